# SPDX-License-Identifier: Apache-2.0
"""One run's events to the AgentAdapter shape's: complete, in its order, with its error codes."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from geminorum.contracts.agent_events import AgentEvent, DonePayload, ErrorPayload, envelope
from geminorum.contracts.agent_options import AgentOptions
from geminorum.errors import GeminorumError, RunFailed, RunTimeout, StartTimeout
from geminorum.events import Done, Error, Event, Init, Text, ToolUse
from geminorum.wire.stream_json import PARSE_ERROR

# What the reader of the stream complains about on its way; any other error without a line of its
# own is the verdict on the whole run, which is told just before the Done.
_ON_THE_WAY = frozenset({PARSE_ERROR, "LINE_TOO_LONG"})
_OUR_TIME_LIMITS = frozenset({RunTimeout.code, StartTimeout.code})


class Narrator:
    """One run's events in the shape's words; what was told before completes what comes later."""

    def __init__(self, options: AgentOptions, cwd: Path) -> None:
        self._options, self._cwd = options, cwd
        self._began = time.monotonic()
        # Every event of the shape has a session; the resume token is the backend's alone.
        self._session_id = options.resume or uuid.uuid4().hex
        self._introduced = False
        self._verdict: Error | None = None
        self._failure: str | None = None
        self._said: list[str] = []
        self._tool_uses = 0

    def tell(self, event: Event) -> list[AgentEvent]:
        """What the shape's consumer is told for this event; often one event, sometimes none."""
        if self._options.aborted and not isinstance(event, Init | Done):
            return []
        self._note(event)
        opening = self._opening(event)
        if isinstance(event, Done):
            return [*opening, *self._closing(event)]
        earlier = self._withheld()
        if _is_verdict(event):
            self._verdict = event
            return [*opening, *earlier]
        return [*opening, *earlier, self._completed(event)]

    def tell_failure(self, error: GeminorumError) -> list[AgentEvent]:
        """The end of a run that could not begin, or broke."""
        done = Done("error", duration=time.monotonic() - self._began)
        return [*self.tell(Error(str(error), error.code)), *self.tell(done)]

    def _note(self, event: Event) -> None:
        self._session_id = event.session_id or self._session_id
        match event:
            case Text():
                self._said.append(event.text)
            case ToolUse():
                self._tool_uses += 1
            case Error(recoverable=False):
                self._failure = event.message

    def _opening(self, event: Event) -> list[AgentEvent]:
        """An `init` of our own, where the stream does not begin with one."""
        if self._introduced or isinstance(event, Init):
            return []
        return [self._completed(Init(self._options.model, str(self._cwd)))]

    def _withheld(self) -> list[AgentEvent]:
        verdict, self._verdict = self._verdict, None
        return [] if verdict is None else [self._completed(verdict)]

    def _completed(self, event: Event) -> AgentEvent:
        told = self._stamped(envelope(event))
        return self._introduction(told) if isinstance(event, Init) else told

    def _stamped(self, event: AgentEvent) -> AgentEvent:
        return msgspec.structs.replace(
            event,
            session_id=self._session_id,
            timestamp=event.timestamp or time.time_ns() // 1_000_000,
        )

    def _introduction(self, init: AgentEvent) -> AgentEvent:
        if self._introduced:
            # The CLI's own, after lines that were no events: `init` has been told by us.
            return msgspec.structs.replace(init, type=f"{init.agent}:init")
        self._introduced = True
        tools = self._options.tools
        if tools is None:
            return init
        capabilities = {"toolsKnown": True, "toolsSource": "configured"}
        payload = msgspec.structs.replace(init.payload, tools=tools, capabilities=capabilities)
        return msgspec.structs.replace(init, payload=payload)

    def _closing(self, done: Done) -> list[AgentEvent]:
        if self._options.aborted:
            # An abort wins over a result that had arrived but was not read.
            done = msgspec.structs.replace(done, status="interrupted")
            return [self._done(done)]
        if self._verdict is None:
            return [self._done(done)]
        error = self._stamped(_in_their_words(self._verdict, done))
        self._failure = error.payload.message
        return [error, self._done(done)]

    def _done(self, done: Done) -> AgentEvent:
        told = self._completed(done)
        payload: DonePayload = told.payload
        tool_uses = payload.usage.tool_uses or self._tool_uses
        payload = msgspec.structs.replace(
            payload,
            result=self._result(payload),
            resume_token=payload.resume_token or self._options.resume,
            usage=msgspec.structs.replace(payload.usage, tool_uses=tool_uses),
        )
        return msgspec.structs.replace(told, payload=payload)

    def _result(self, done: DonePayload) -> str | None:
        match done.status:
            case "interrupted":
                return None
            case "success":
                return done.result or "".join(self._said) or None
            case "error":
                return done.result or self._failure
            case _:
                return done.result


def _is_verdict(event: Event) -> TypeGuard[Error]:
    if not isinstance(event, Error) or event.frame is not msgspec.UNSET:
        return False
    return event.code not in _ON_THE_WAY


def _in_their_words(verdict: Error, done: Done) -> AgentEvent:
    """Why the run failed, under the code that the shape's consumers know; ours is in metadata."""
    told = envelope(verdict)
    code = _their_code(verdict, done)
    if code == verdict.code:
        return told
    payload = ErrorPayload(
        code=code, message=_with_exit_code(verdict, done), recoverable=verdict.recoverable
    )
    metadata: dict[str, Any] = {**(told.metadata or {}), "code": verdict.code}
    return msgspec.structs.replace(told, payload=payload, metadata=metadata)


def _their_code(verdict: Error, done: Done) -> str | None:
    if done.frame is not msgspec.UNSET:
        return "GEMINI_RESULT_ERROR" if verdict.code == RunFailed.code else verdict.code
    if done.exit_code and verdict.code not in _OUR_TIME_LIMITS:
        return "GEMINI_EXIT_ERROR"
    return verdict.code


def _with_exit_code(verdict: Error, done: Done) -> str:
    named = f"code {done.exit_code}"
    if done.frame is not msgspec.UNSET or named in verdict.message:
        return verdict.message
    return f"{verdict.message} (exit {named})"
