"""The flags that mean what `Options` and the transports mean, declared to Typer; shared by the
commands that send prompts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from copy import copy
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from geminorum.apps.command.flags.options import with_options
from geminorum.apps.command.flags.table import (
    CLI_PATH,
    INBOX,
    OPTIONS_FILE,
    OPTIONS_FLAGS,
    PATIENCE,
    REMIND,
    STALL_TIMEOUT,
    START_TIMEOUT,
    Flag,
)


def declared(flag: Flag) -> Any:
    """A flag of the table, as Typer wants it."""
    return typer.Option(
        *flag.names,
        help=flag.help,
        rich_help_panel=flag.panel,
        # Those with a panel are the library's, and tell the default in their help.
        show_default=flag.panel is None,
        metavar=flag.metavar,
    )


def _annotated(flag: Flag) -> Any:
    return Annotated[flag.kind, declared(flag)]


_FLAGS: dict[str, Any] = {name: _annotated(flag) for name, flag in OPTIONS_FLAGS.items()}
CliPath = Annotated[Path | None, declared(CLI_PATH)]
StartTimeout = Annotated[float | None, declared(START_TIMEOUT)]
StallTimeout = Annotated[float | None, declared(STALL_TIMEOUT)]
UseInbox = Annotated[bool, declared(INBOX)]
Patience = Annotated[float | None, declared(PATIENCE)]
Remind = Annotated[str | None, declared(REMIND)]
_WITH_THE_REST = (CliPath, StartTimeout, StallTimeout, UseInbox, Patience, Remind)


def takes_options(
    function: Callable[..., Any], unseen: Collection[str] = (), *, travels: bool = False
) -> Callable[..., Any]:
    """A command with a parameter `options` gets a flag for each field of `Options` instead.

    Those that are `unseen` are taken, and are not on its help page. `travels`: the run will be on
    another machine.
    """

    @wraps(function)
    def command(**given: Any) -> Any:
        return function(**with_options(given, travels=travels))

    own = inspect.signature(function, eval_str=True)
    kept = [each for name, each in own.parameters.items() if name != "options"]
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=_hidden(kind) if name in unseen else kind,
        )
        for name, kind in {**_FLAGS, "options_file": _annotated(OPTIONS_FILE)}.items()
    ]
    keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in kept]
    # Those of our panels go with them: a help page begins with what is the command's own.
    first = [each for each in keyword if each.annotation not in _WITH_THE_REST]
    last = [each for each in keyword if each.annotation in _WITH_THE_REST]
    signature = inspect.Signature([*first, *added, *last])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in [*kept, *added]}
    return command


def _hidden(annotation: Any) -> Any:
    kind, flag = get_args(annotation)
    hidden = copy(flag)  # The other commands show theirs.
    hidden.hidden = True
    return Annotated[kind, hidden]
