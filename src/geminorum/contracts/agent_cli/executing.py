"""A prompt to a result with Claude-format messages, built from the stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, Unpack

import msgspec

from geminorum import client
from geminorum.contracts.agent_cli.routing import TOOL, refuse_others
from geminorum.errors import GeminorumError, InvalidOptions, Unsupported
from geminorum.events import Event, TextDelta, Usage
from geminorum.options import Options, StrPath
from geminorum.transports import Transport
from geminorum.views.messages import Message, claude, usage_of
from geminorum.views.result import Result

PERMISSION_MODES = {
    "default": "default",
    "acceptEdits": "auto_edit",
    "bypassPermissions": "yolo",
    "plan": "plan",
}
"""The shape's word for each of the CLI's approval modes."""


class ExecuteResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to; after a failure, whatever had arrived."""

    success: bool
    messages: list[Message] = []
    session_id: str | None = None
    text: str = ""
    """All that the agent said."""
    error: str | None = None
    """Why it failed, and what to type next."""
    exit_code: int | None = None
    usage: Usage | None = None
    duration: float = 0.0
    """Seconds."""


class Settings(TypedDict, total=False):
    """What else a run may be told."""

    tool: str
    model: str | None
    resume: str | None
    """The session to go on with, or "latest"."""
    session_id: str | None
    """The id that a new session shall have."""
    timeout: float | None
    on_event: Callable[[Event], object] | None
    """Is given each event as it arrives."""
    base: Options | None
    """What the shape has no word for: environment, home, limits."""
    via: Transport | None


async def execute(
    prompt: str,
    permission_mode: str = "default",
    working_dir: StrPath | None = None,
    **settings: Unpack[Settings],
) -> ExecuteResult:
    """One run of the agent, to its end. A run that fails is a result; a wrong call raises.

    The permission mode is always said to the CLI, so it goes before what `base` says.
    """
    refuse_others(settings.get("tool", TOOL))
    options = _options(permission_mode, working_dir, settings)
    note, events = settings.get("on_event"), list[Event]()
    try:
        async with client.run(prompt, options, via=settings.get("via")) as live:
            async for event in live:
                if note is not None:
                    note(event)
                # The whole message follows its deltas.
                if type(event) is not TextDelta:
                    events.append(event)
    except (InvalidOptions, Unsupported):
        raise
    except GeminorumError as error:
        return ExecuteResult(success=False, error=str(error), exit_code=error.exit_code)
    return _result(live.result, claude(events))


def execute_sync(
    prompt: str,
    permission_mode: str = "default",
    working_dir: StrPath | None = None,
    **settings: Unpack[Settings],
) -> ExecuteResult:
    """`execute` for code that does not await."""
    from geminorum.sync import BackgroundLoop

    with BackgroundLoop() as loop:
        return loop.call(execute(prompt, permission_mode, working_dir, **settings))


def _options(mode: str, working_dir: StrPath | None, settings: Settings) -> Options:
    if mode not in PERMISSION_MODES:
        choices = ", ".join(PERMISSION_MODES)
        raise InvalidOptions(f"permission_mode={mode!r}", hint=f"write one of: {choices}")
    wanted: dict[str, Any] = {
        "cwd": working_dir,
        "model": settings.get("model"),
        "resume": settings.get("resume"),
        "session_id": settings.get("session_id"),
        "timeout": settings.get("timeout"),
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    return (settings.get("base") or Options()).changed(approval=PERMISSION_MODES[mode], **given)


def _result(result: Result, messages: list[Message]) -> ExecuteResult:
    error = result.exception()
    return ExecuteResult(
        success=result.ok,
        messages=_with_usage(messages, result.usage),
        session_id=result.session_id,
        text=result.text,
        error=str(error) if error else None,
        exit_code=result.exit_code,
        usage=result.usage,
        duration=result.duration,
    )


def _with_usage(messages: list[Message], usage: Usage | None) -> list[Message]:
    """Where the single requests are not known, the last answer has the sum: sums stay right."""
    answers = [message for message in messages if message["role"] == "assistant"]
    if answers and usage and not any("usage" in answer for answer in answers):
        answers[-1]["usage"] = usage_of(usage)
    return messages
