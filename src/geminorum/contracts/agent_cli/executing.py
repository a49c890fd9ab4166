"""Runs a prompt and builds a result with Claude-format messages from the stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

import msgspec

from geminorum import Result, Transport, run
from geminorum.adapter_parts import BackgroundLoop, render, usage_of
from geminorum.contracts.agent_cli.routing import TOOL, refuse_others
from geminorum.contracts.agent_cli.spelling import merged
from geminorum.contracts.vocabulary import vocabulary
from geminorum.errors import GeminorumError, InvalidOptions, Unsupported
from geminorum.events import Event, TextDelta, Usage
from geminorum.options import Options, StrPath
from geminorum.views.messages import Message, claude

PermissionMode: TypeAlias = Literal["default", "acceptEdits", "bypassPermissions", "plan"]
PERMISSION_MODES: dict[PermissionMode, str] = {
    "default": "default",
    "acceptEdits": "auto_edit",
    "bypassPermissions": "yolo",
    "plan": "plan",
}
"""The interface's permission modes and the CLI's approval modes."""


class ExecuteResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run; partial after a failure."""

    success: bool
    messages: list[Message] = []
    session_id: str | None = None
    text: str = ""
    """All text of the agent."""
    error: str | None = None
    """Why it failed, and what to do next."""
    exit_code: int | None = None
    usage: Usage | None = None
    duration: float = 0.0
    """Seconds."""


class Settings(TypedDict, total=False):
    """Further keywords of a run; the camelCase ones are the document's spelling."""

    tool: str
    model: str | None
    resume: str | None
    """The session to resume, or "latest"."""
    session_id: str | None
    """The id for a new session."""
    timeout: float | None
    """Seconds until the run is stopped."""
    on_event: Callable[[Event], object] | None
    """Called with each event as it arrives."""
    base: Options | None
    """Options that the document does not have: environment, home, limits."""
    via: Transport | None
    permissionMode: PermissionMode | None
    workingDir: StrPath | None
    sessionId: str | None
    onEvent: Callable[[Event], object] | None


async def execute(
    prompt: str,
    permission_mode: PermissionMode | None = None,
    working_dir: StrPath | None = None,
    **settings: Unpack[Settings],
) -> ExecuteResult:
    """Runs the agent to its end. A failed run is a result; invalid arguments raise.

    The permission mode, by default "default", replaces the approval of `base`. `timeout` is in
    seconds. An unknown keyword raises InvalidOptions.
    """
    parameters = {"permission_mode": permission_mode, "working_dir": working_dir}
    given = merged(parameters, settings, _NAMES)
    refuse_others(given.get("tool", TOOL))
    options = _options(given)
    on_event, events = given.get("on_event"), list[Event]()
    try:
        async with run(prompt, options, via=given.get("via")) as live:
            async for event in live:
                if on_event is not None:
                    on_event(event)
                # The whole message follows its deltas.
                if type(event) is not TextDelta:
                    events.append(event)
    except GeminorumError as error:
        error.hint = hint_for(error.hint)
        if isinstance(error, InvalidOptions | Unsupported):
            raise
        return ExecuteResult(success=False, error=str(error), exit_code=error.exit_code)
    return _result(live.result, claude(events))


def execute_sync(
    prompt: str,
    permission_mode: PermissionMode | None = None,
    working_dir: StrPath | None = None,
    **settings: Unpack[Settings],
) -> ExecuteResult:
    """`execute` for synchronous code."""
    with BackgroundLoop() as loop:
        return loop.call(execute(prompt, permission_mode, working_dir, **settings))


_SHARED = ("model", "resume", "session_id", "timeout")
_NAMES = ("tool", *_SHARED, "on_event", "base", "via")
_IN_KEYWORDS = vocabulary(
    {
        "Options.cwd": "working_dir",
        "Options.approval": "permission_mode",
        **{f"Options.{name}": name for name in _SHARED},
        ".result": ".messages",
    },
    takes_options=True,
)


def hint_for(hint: str | None) -> str | None:
    """The hint in the keywords of `execute`."""
    return render(hint, _IN_KEYWORDS)


def _options(given: Mapping[str, Any]) -> Options:
    mode = given.get("permission_mode") or "default"
    if mode not in PERMISSION_MODES:
        choices = ", ".join(PERMISSION_MODES)
        raise InvalidOptions(f"permission_mode={mode!r}", hint=f"write one of: {choices}")
    wanted = {name: given[name] for name in _SHARED if given.get(name) is not None}
    if given.get("working_dir") is not None:
        wanted["cwd"] = given["working_dir"]
    return (given.get("base") or Options()).changed(approval=PERMISSION_MODES[mode], **wanted)


def _result(result: Result, messages: list[Message]) -> ExecuteResult:
    if (error := result.exception()) is not None:
        error.hint = hint_for(error.hint)
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
