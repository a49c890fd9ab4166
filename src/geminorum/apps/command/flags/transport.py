"""The transport that the command line asks for."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import geminorum
from geminorum.apps.command.flags.options import misuse
from geminorum.apps.command.flags.table import Program, Via
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum import Acp, Api, Cli
    from geminorum import inbox as inboxes
else:
    inboxes = lazy_module("geminorum.inbox")

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


def inbox_for(
    *, inbox: bool, patience: float | None = None, remind: str | None = None, db: str | None = None
) -> inboxes.Inbox | None:
    """The inbox that is asked, if that was typed."""
    for value, flag in ((patience, "--patience"), (remind, "--remind")):
        if value is not None and not inbox:
            raise misuse("it means something with --inbox only; add --inbox", flag)
    if not inbox:
        return None
    return inboxes.Inbox(db, patience=patience, remind=_reminder(remind))


def _reminder(text: str | None) -> str | list[str] | None:
    """An address, or a program and its arguments: no shell reads them."""
    if text is None or text.startswith(("http://", "https://")):
        return text
    if "://" in text.partition(" ")[0]:
        raise misuse(f"{text!r}; write an http or https address, or a program", "--remind")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise misuse(f"{text!r}: {error}", "--remind") from error
