"""Notices a CLI that does not apply the policy of a run: a tool ran that the options deny."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from geminorum.events import Event, ToolResult
from geminorum.options import Options
from geminorum.wire.policy_toml import is_surely_denied


def ran_denied_tool(
    events: Iterable[Event], options: Options, permitted: Sequence[str] = ()
) -> bool:
    """Has one of the events the result of a tool that these options deny?

    `permitted` are others that may run: functions of the caller, whatever they are called.
    """
    results = (event for event in events if isinstance(event, ToolResult))
    done = (result.name or "" for result in results if result.status == "success")
    return any(is_surely_denied(options, name, permitted) for name in done)
