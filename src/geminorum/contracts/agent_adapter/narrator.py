# SPDX-License-Identifier: Apache-2.0
"""One run's events to the AgentAdapter shape's: complete, in its order, with its error codes."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import TypeGuard

from msgspec import UNSET
from msgspec.structs import replace

from geminorum.adapter_parts import PARSE_ERROR
from geminorum.contracts.agent_adapter.events import AgentEvent, envelope, known
from geminorum.contracts.agent_adapter.options import AgentOptions
from geminorum.errors import GeminorumError, RunFailed, RunTimeout, SessionLost, StartTimeout
from geminorum.events import Done, Error, Event, Init, Status, Text, ToolUse

# What the reader of the stream complains about on its way; any other error without a line of its
# own is the verdict on the whole run, which is told just before the Done.
_ON_THE_WAY = frozenset({PARSE_ERROR, "LINE_TOO_LONG"})
_OUR_TIME_LIMITS = frozenset({RunTimeout.code, StartTimeout.code})


class Narrator:
    """Translates the events of one run; earlier events complete later ones."""

    def __init__(self, options: AgentOptions, cwd: Path) -> None:
        self._options, self._cwd = options, cwd
        self._began = time.monotonic()
        # Every event of the shape has a session; the resume token is the backend's alone.
        self._session_id = options.resume or uuid.uuid4().hex
        self._introduced = False
        self._lost = False
        self._verdict: list[Error] = []
        self._failure: str | None = None
        self._said: list[str] = []
        self._tool_uses = 0

    def tell(self, event: Event) -> list[AgentEvent]:
        """The consumer's events for this event: often one, sometimes none."""
        if self._options.aborted and not isinstance(event, Init | Done):
            return []
        self._note(event)
        opening = self._opening(event)
        if isinstance(event, Done):
            return [*opening, *self._close(event)]
        # The run goes on: what looked like its verdict was one error of several.
        withheld, self._verdict = self._verdict, [event] if _is_verdict(event) else []
        due = withheld if self._verdict else [*withheld, event]
        return [*opening, *(self._stamped(envelope(one)) for one in due)]

    def tell_failure(self, error: GeminorumError) -> list[AgentEvent]:
        """The end of a run that could not begin, or broke."""
        done = Done("error", duration=time.monotonic() - self._began)
        told = Error(error.message, error.code, hint=error.hint)
        return [*self.tell(told), *self.tell(done)]

    def _note(self, event: Event) -> None:
        self._session_id = event.session_id or self._session_id
        self._lost = self._lost or (isinstance(event, Error) and event.code == SessionLost.code)
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
        return [self._stamped(envelope(Init(self._options.model, str(self._cwd))))]

    def _stamped(self, event: AgentEvent) -> AgentEvent:
        now = event.timestamp or time.time_ns() // 1_000_000
        stamped = replace(event, session_id=self._session_id, timestamp=now)
        return self._introduce(stamped) if event.type == "init" else stamped

    def _introduce(self, init: AgentEvent) -> AgentEvent:
        if self._introduced:
            # The CLI's own, after lines that were no events: `init` has been told by us.
            return replace(init, type=f"{init.agent}:init")
        self._introduced = True
        tools = self._options.tools
        if tools is None:
            return init
        capabilities = {"toolsKnown": True, "toolsSource": "configured"}
        return replace(init, payload={**init.payload, "tools": tools, "capabilities": capabilities})

    def _close(self, done: Done) -> list[AgentEvent]:
        if self._options.aborted:
            # An abort wins over a result that had arrived but was not read.
            return [self._done(replace(done, status="interrupted"))]
        errors = [self._stamped(_in_their_words(verdict, done)) for verdict in self._verdict]
        for error in errors:
            self._failure = error.payload["message"]
        return [*errors, self._done(done)]

    def _done(self, done: Done) -> AgentEvent:
        told = self._stamped(envelope(replace(done, resume=self._resume_token(done))))
        usage = told.payload["usage"]
        completed = {
            **told.payload,
            "result": self._result(done.status, told.payload.get("result")),
            "usage": {**usage, "toolUses": usage["toolUses"] or self._tool_uses},
        }
        return replace(told, payload=known(**completed))

    def _resume_token(self, done: Done) -> str | None:
        asked = self._options.resume
        if self._lost:
            # Another session may have taken its place; the lost one cannot be resumed again.
            return done.resume if done.resume != asked else None
        return done.resume or asked

    def _result(self, status: Status, told: str | None) -> str | None:
        match status:
            case "interrupted":
                return None
            case "success":
                return told or "".join(self._said) or None
            case "error":
                return told or self._failure
            case _:
                return told


def _is_verdict(event: Event) -> TypeGuard[Error]:
    return isinstance(event, Error) and event.frame is UNSET and event.code not in _ON_THE_WAY


def _in_their_words(verdict: Error, done: Done) -> AgentEvent:
    """Why the run failed, under the code that the shape's consumers know; ours is in metadata."""
    told, code = envelope(verdict), _their_code(verdict, done)
    if code == verdict.code:
        return told
    payload = {**told.payload, "code": code, "message": _with_exit_code(verdict, done)}
    return replace(told, payload=payload, metadata={**(told.metadata or {}), "code": verdict.code})


def _their_code(verdict: Error, done: Done) -> str | None:
    if done.frame is not UNSET:
        return "GEMINI_RESULT_ERROR" if verdict.code == RunFailed.code else verdict.code
    if done.exit_code and verdict.code not in _OUR_TIME_LIMITS:
        return "GEMINI_EXIT_ERROR"
    return verdict.code


def _with_exit_code(verdict: Error, done: Done) -> str:
    named = f"code {done.exit_code}"
    if done.frame is not UNSET or named in verdict.message:
        return verdict.message
    return f"{verdict.message} (exit {named})"
