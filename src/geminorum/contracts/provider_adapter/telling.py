"""One call's events in our words to the shape's stream events: END last, and once."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec

from geminorum.contracts.provider_adapter.events import (
    EventType,
    LLMMetadata,
    StreamEvent,
    TokenType,
    ToolCall,
)
from geminorum.contracts.provider_adapter.failures import ARTError, failure_told, is_stopped_answer
from geminorum.contracts.provider_adapter.options import CallOptions
from geminorum.errors import AnswerCut, RunFailed
from geminorum.events import Done, Error, Event, Init, TextDelta, Thinking, ToolUse

_THINKING: dict[str | None, TokenType] = {
    "AGENT_THOUGHT": "AGENT_THOUGHT_LLM_THINKING",
    "FINAL_SYNTHESIS": "FINAL_SYNTHESIS_LLM_THINKING",
}
_RESPONSE: dict[str | None, TokenType] = {
    "AGENT_THOUGHT": "AGENT_THOUGHT_LLM_RESPONSE",
    "FINAL_SYNTHESIS": "FINAL_SYNTHESIS_LLM_RESPONSE",
}


class Teller:
    """Tells one call. Without streaming, an answer's text is one token."""

    def __init__(self, options: CallOptions) -> None:
        self._options = options
        self._trace_id = options.trace_id or f"gemini-trace-{uuid.uuid4().hex}"
        self._began = time.monotonic()
        self._first_token: float | None = None
        self._withheld: list[Event] = []
        self._failure: Error | None = None
        self._answered = False
        self._ended = False

    def tell(self, event: Event) -> Iterator[StreamEvent]:
        """The consumer's events for this event: often one, sometimes none."""
        match event:
            case Init():
                # The first call of a process loads the SDK; that is nobody's generation time.
                self._began = time.monotonic()
            case Error(recoverable=False):
                self._failure = event
            case Done():
                yield from self._closing(event)
            case TextDelta() | Thinking() | ToolUse() if self._options.stream:
                yield from self._translate(event)
            case TextDelta() | Thinking() | ToolUse():
                self._withheld.append(event)

    def tell_failure(self, error: ARTError) -> Iterator[StreamEvent]:
        """The end of a call that could not begin, or broke."""
        if not self._ended:
            yield self._event("ERROR", error)
            yield self._end()

    def _closing(self, done: Done) -> Iterator[StreamEvent]:
        for event in _joined(self._withheld):
            yield from self._translate(event)
        error = self._error(done)
        # An answer that a filter stopped was generated, and is billed.
        if error is None or self._was_stopped(done):
            yield self._event("METADATA", self._metadata(done))
        if error is not None:
            yield self._event("ERROR", error)
        yield self._end()

    def _end(self) -> StreamEvent:
        self._ended = True
        return self._event("END")

    def _error(self, done: Done) -> ARTError | None:
        if self._failure is None and done.status in ("success", "max_turns"):
            return None
        failure = self._failure or Error(f"the call ended: {done.status}", RunFailed.code)
        # An answer that was cut at its length is an answer; METADATA says how it ended.
        if failure.code == AnswerCut.code and self._answered:
            return None
        stopped = self._was_stopped(done)
        return failure_told(failure, done.stop_reason, empty=not self._answered, stopped=stopped)

    def _was_stopped(self, done: Done) -> bool:
        return self._failure is not None and is_stopped_answer(self._failure, done)

    def _translate(self, event: TextDelta | Thinking | ToolUse) -> Iterator[StreamEvent]:
        context = self._options.call_context
        match event:
            case TextDelta(text=text) if text:
                self._answered = True
                yield self._token(text, _RESPONSE.get(context, "LLM_RESPONSE"))
            case Thinking(text=text) if text and self._options.include_thoughts:
                yield self._token(text, _THINKING.get(context, "LLM_THINKING"))
            case ToolUse():
                self._answered = True
                yield self._event("TOOL_CALL", ToolCall(event.id or "", event.name, event.input))

    def _token(self, text: str, kind: TokenType) -> StreamEvent:
        self._first_token = self._first_token or time.monotonic()
        return self._event("TOKEN", text, kind)

    def _event(
        self, kind: EventType, data: Any = None, token_type: TokenType | None = None
    ) -> StreamEvent:
        return StreamEvent(
            type=kind,
            data=data,
            token_type=token_type,
            thread_id=self._options.thread_id,
            trace_id=self._trace_id,
            session_id=self._options.session_id,
        )

    def _metadata(self, done: Done) -> LLMMetadata:
        usage, first = done.usage, self._first_token
        return LLMMetadata(
            input_tokens=usage.input if usage else None,
            output_tokens=usage.output if usage else None,
            # The API leaves out what is zero.
            thinking_tokens=(usage.thoughts or None) if usage else None,
            time_to_first_token_ms=None if first is None else self._milliseconds(first),
            total_generation_time_ms=self._milliseconds(time.monotonic()),
            stop_reason=done.stop_reason,
            provider_raw_usage=_raw_usage(done),
            trace_id=self._trace_id,
        )

    def _milliseconds(self, until: float) -> int:
        return round((until - self._began) * 1000)


def _joined(events: list[Event]) -> list[Any]:
    """A whole answer: its thoughts, its text, its calls."""
    thoughts = "".join(event.text for event in events if isinstance(event, Thinking))
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    calls = [event for event in events if isinstance(event, ToolUse)]
    return [Thinking(thoughts), TextDelta(text), *calls]


def _raw_usage(done: Done) -> dict[str, Any] | None:
    if done.frame is msgspec.UNSET:
        return None
    match done.raw:
        case {"usageMetadata": dict() as usage}:
            return usage
        case _:
            return None
