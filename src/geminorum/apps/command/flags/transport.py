"""The transport that the command line asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import geminorum
from geminorum.apps.command.flags.table import Program, Via

if TYPE_CHECKING:
    from geminorum import Acp, Api, Cli

_ANY = Program()


def transport_for(
    via: Via,
    *,
    program: Program = _ANY,
    decide: Callable[..., Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Cli | Acp | Api:
    """Makes the transport. `decide` is asked, for as long as it takes; `settings` go to the CLI."""
    asking: dict[str, Any] = {"decide": decide, "decide_timeout": None} if decide else {}
    if via is Via.API:
        return geminorum.Api(**asking)
    # Only the one that is needed is loaded.
    kind = geminorum.Acp if via is Via.ACP else geminorum.Cli
    return kind(settings=settings or {}, **program.given(), **asking)
