"""The door that was asked for on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import geminorum
from geminorum.apps.command.flags import Via
from geminorum.errors import Unsupported

if TYPE_CHECKING:
    from geminorum import Api, Cli


def door_for(
    via: Via,
    *,
    cli: Path | None = None,
    decide: Callable[..., Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Cli | Api | Any:
    """A door. `decide` is asked where the door can ask; `settings` go to the CLI."""
    if via is Via.API:
        return geminorum.Api(decide=decide)
    if via is Via.ACP:
        if not has_acp():
            raise Unsupported("this version has no warm door yet", hint="--via cli")
        return geminorum.Acp(executable=cli, decide=decide, settings=settings or {})
    return geminorum.Cli(executable=cli, settings=settings or {})


def has_acp() -> bool:
    """Is the warm door there?"""
    return hasattr(geminorum, "Acp")
