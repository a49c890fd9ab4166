"""Notices a CLI that does not apply the policy of a run: a tool ran that the options deny."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from geminorum.events import Event, ToolResult
from geminorum.options import Options
from geminorum.wire.policy.toml_writer import is_surely_denied


def ran_denied_tool(
    events: Iterable[Event], options: Options, permitted: Sequence[str] = ()
) -> bool:
    """Has one of the events the result of a tool that these options deny?

    `permitted` are others that may run: functions of the caller, whatever they are called.
    """
    # Looked at for every event of a stream: each name once, and no question that a type answers.
    done = [one for one in events if type(one) is ToolResult and one.status == "success"]
    names = {result.name or "" for result in done}
    return any(is_surely_denied(options, name, permitted) for name in names)
