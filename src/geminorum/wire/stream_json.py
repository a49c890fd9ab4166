"""The output of `gemini --output-format stream-json`, bytes to events."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw

from geminorum.events import (
    Cost,
    Error,
    Event,
    Init,
    Text,
    TextDelta,
    Tokens,
    ToolResult,
    ToolUse,
    Unknown,
    Usage,
    UserMessage,
    total_of,
)
from geminorum.wire.dialects import in_todays_words, mended
from geminorum.wire.lines import LONGEST_LINE, Lines

PARSE_ERROR = "NDJSON_PARSE_ERROR"
_SAMPLE = 200


class _Frame(msgspec.Struct, tag_field="type", gc=False):
    timestamp: str | None = None


class InitFrame(_Frame, tag="init", kw_only=True):
    session_id: str | None
    model: str | None = None
    cwd: str | None = None
    tools: list[str] | None = None


class MessageFrame(_Frame, tag="message", kw_only=True):
    content: str
    role: str = "assistant"
    delta: bool = False


class ToolUseFrame(_Frame, tag="tool_use", kw_only=True):
    tool_name: str
    tool_id: str | None = None
    parameters: dict[str, Any] | None = None


class ToolError(msgspec.Struct):
    type: str | None = None
    message: str | None = None


class ToolResultFrame(_Frame, tag="tool_result", kw_only=True):
    tool_id: str | None
    tool_name: str | None = None
    status: str | None = None
    output: Any = None
    error: ToolError | None = None
    duration_ms: float | None = None


class ErrorFrame(_Frame, tag="error", kw_only=True):
    message: str
    severity: str | None = None
    code: str | None = None
    recoverable: bool | None = None


class Stats(msgspec.Struct):
    total_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached: int = 0
    cached_input_tokens: int = 0
    tool_calls: int = 0
    total_cost_usd: Decimal | None = None
    models: dict[str, Stats] | None = None


class ResultFrame(_Frame, tag="result", kw_only=True):
    status: str
    error: str | dict[str, Any] | None = None
    stats: Stats | None = None
    session_id: str | None = None
    stop_reason: str | None = msgspec.field(default=None, name="stopReason")
    total_cost_usd: Decimal | None = None


Frame: TypeAlias = (
    InitFrame | MessageFrame | ToolUseFrame | ToolResultFrame | ErrorFrame | ResultFrame
)
_decoder: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)


class StreamDecoder:
    """One run's output to events, all but the `Done`: that needs to know how the process ended.

    Remembers what the verdict asks for afterwards: the `result`, and what came before it.
    """

    def __init__(self, *, longest_line: int = LONGEST_LINE) -> None:
        self._lines = Lines(longest_line)
        self._text = io.StringIO()
        self._text_frame: Raw | None = None
        self._tool_names: dict[str, str] = {}
        self._clock = _Clock()
        self._at = 0
        self.session_id: str | None = None
        self.model: str | None = None
        self.result: ResultFrame | None = None
        self.result_line = b""
        self.failure: Error | None = None
        """The last error that was not a warning."""
        self.failed_after_result = False
        self.frames = 0
        """How many lines were frames of the stream."""
        self.garbage = 0
        """How many lines were not."""
        self.answered = False
        """Did the model say or do anything?"""
        self.tool_uses = 0

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes."""
        return self._events(self._lines.feed(chunk))

    def close(self) -> list[Event]:
        """What remains: a last line without its end, and the message it belonged to."""
        events = self._events([self._lines.rest()])
        self._flush(events)
        return events

    def _events(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        decode, message, seen = _decoder.decode, self._message, 0
        for line in lines:
            if not line:
                continue
            try:
                frame = decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._odd_line(line, events)
                continue
            seen += 1
            if type(frame) is MessageFrame:
                message(frame, line, events)
            else:
                self._other(frame, line, events)
        self.frames += seen
        if self._lines.overlong:
            self._report_overlong(events)
        return events

    def _odd_line(self, line: bytes, events: list[Event]) -> None:
        """A line that is no frame of today's CLI: mend it, translate it, or report it."""
        if line.isspace():
            return
        try:
            data, line = mended(line)
        except ValueError as error:
            self._report(PARSE_ERROR, f"{error}; raw: {_sample(line)}", events)
            return
        if not isinstance(data, dict):
            self._report(PARSE_ERROR, f"expected a JSON object; raw: {_sample(line)}", events)
            return
        self._translated(data, line, events)

    def _translated(self, data: dict[str, Any], line: bytes, events: list[Event]) -> None:
        frames = []
        for words in in_todays_words(data):
            try:
                frames.append(msgspec.convert(words, Frame))
            except msgspec.ValidationError:
                frames.clear()
                break
        if not frames:
            kind = data.get("type")
            events.append(Unknown(kind=str(kind) if kind else None, **self._envelope(line)))
            return
        self.frames += 1
        for frame in frames:
            if isinstance(frame, MessageFrame):
                self._message(frame, line, events)
            else:
                self._other(frame, line, events)

    def _message(self, frame: MessageFrame, line: bytes, events: list[Event]) -> None:
        at = self._at = self._clock.milliseconds(frame.timestamp)
        if frame.role == "assistant":
            self.answered = True
            if frame.delta:
                self._text_frame = raw = Raw(line)
                text = frame.content
                self._text.write(text)
                events.append(TextDelta(text, timestamp=at, session_id=self.session_id, frame=raw))
            else:
                self._flush(events)
                events.append(Text(frame.content, **self._envelope(line)))
        else:
            self._flush(events)
            if frame.role == "user":
                events.append(UserMessage(frame.content, **self._envelope(line)))
            else:
                events.append(Unknown(kind=f"message:{frame.role}", **self._envelope(line)))

    def _other(self, frame: Frame, line: bytes, events: list[Event]) -> None:
        self._at = self._clock.milliseconds(frame.timestamp)
        if not isinstance(frame, ErrorFrame):
            self._flush(events)
        handler: Callable[[StreamDecoder, Any, bytes], Event | None] = _HANDLERS[type(frame)]
        event = handler(self, frame, line)
        if event is not None:
            events.append(event)

    def _init(self, frame: InitFrame, line: bytes) -> Event:
        self.session_id = frame.session_id or self.session_id
        self.model = frame.model
        return Init(frame.model, frame.cwd, frame.tools, **self._envelope(line))

    def _tool_use(self, frame: ToolUseFrame, line: bytes) -> Event:
        self.answered = True
        self.tool_uses += 1
        if frame.tool_id:
            self._tool_names[frame.tool_id] = frame.tool_name
        return ToolUse(
            frame.tool_name, frame.tool_id, frame.parameters or {}, **self._envelope(line)
        )

    def _tool_result(self, frame: ToolResultFrame, line: bytes) -> Event:
        # A name is joined once: nothing is kept for calls that are over.
        name = frame.tool_name or self._tool_names.pop(frame.tool_id or "", None)
        error = frame.error
        output = frame.output
        if error and output is None:
            output = error.message
        return ToolResult(
            id=frame.tool_id,
            name=name,
            status=_tool_status(frame),
            output=output,
            error_type=error.type if error else None,
            duration=None if frame.duration_ms is None else frame.duration_ms / 1000,
            **self._envelope(line),
        )

    def _error(self, frame: ErrorFrame, line: bytes) -> Event:
        warning = frame.severity == "warning"
        recoverable = warning if frame.recoverable is None else frame.recoverable
        # Without a code of its own, an error of severity "error" is the CLI's complaint about an
        # answer: empty, blocked, cut off.
        code = frame.code or {"warning": "WARNING", "error": "INVALID_ANSWER"}.get(
            frame.severity or ""
        )
        error = Error(frame.message, code, recoverable, **self._envelope(line))
        if not recoverable:
            self.failure = error
            self.failed_after_result = self.result is not None
        return error

    def _result(self, frame: ResultFrame, line: bytes) -> None:
        self.session_id = frame.session_id or self.session_id
        self.result, self.result_line = frame, line

    def _flush(self, events: list[Event]) -> None:
        """End the message that the deltas were making."""
        if self._text_frame is None:
            return
        events.append(Text(self._text.getvalue(), timestamp=self._at, session_id=self.session_id))
        self._text = io.StringIO()
        self._text_frame = None

    def _report(self, code: str, message: str, events: list[Event]) -> None:
        self.garbage += 1
        events.append(Error(message, code, True, timestamp=self._at, session_id=self.session_id))

    def _report_overlong(self, events: list[Event]) -> None:
        self._report("LINE_TOO_LONG", f"{self._lines.overlong} line(s) dropped", events)
        self._lines.overlong = 0

    def _envelope(self, line: bytes) -> Any:
        return {"timestamp": self._at, "session_id": self.session_id, "frame": Raw(line)}


_HANDLERS: dict[type[Any], Callable[[StreamDecoder, Any, bytes], Event | None]] = {
    InitFrame: StreamDecoder._init,
    ToolUseFrame: StreamDecoder._tool_use,
    ToolResultFrame: StreamDecoder._tool_result,
    ErrorFrame: StreamDecoder._error,
    ResultFrame: StreamDecoder._result,
}


class _Clock:
    """ISO stamps to milliseconds; most stamps of a stream share their second, so that is kept."""

    def __init__(self) -> None:
        self._second = ""
        self._milliseconds = 0
        self._last = 0

    def milliseconds(self, stamp: str | None) -> int:
        if stamp is None:
            return self._last
        if stamp[:19] != self._second or len(stamp) != 24:
            self._last = self._parsed(stamp)
            return self._last
        with contextlib.suppress(ValueError):
            self._last = self._milliseconds + int(stamp[20:23])
        return self._last

    def _parsed(self, stamp: str) -> int:
        try:
            moment = datetime.fromisoformat(stamp)
        except ValueError:
            return self._last
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        milliseconds = round(moment.timestamp() * 1000)
        if len(stamp) == 24 and stamp.endswith("Z"):
            self._second = stamp[:19]
            self._milliseconds = milliseconds // 1000 * 1000
        return milliseconds


def _tool_status(frame: ToolResultFrame) -> Literal["success", "error", "denied"]:
    error = frame.error
    if error is None:
        return "error" if (frame.status or "success") in ("error", "failed") else "success"
    if (error.type or "").lower() == "policy_violation":
        return "denied"
    # What would have needed a question is refused when nobody is there to be asked.
    if "requires user confirmation" in (error.message or ""):
        return "denied"
    return "error"


def usage_of(stats: Stats | None, tool_uses: int) -> Usage | None:
    """The run's tokens, as far as the stream tells them."""
    if stats is None:
        return None
    by_model = {name: _tokens(share) for name, share in (stats.models or {}).items()}
    whole = total_of(by_model.values()) if by_model else _tokens(stats)
    calls = stats.tool_calls or tool_uses
    return Usage(**msgspec.structs.asdict(whole), by_model=by_model, tool_calls=calls)


def told_cost(result: ResultFrame | None) -> Cost | None:
    """The price, from a program that tells it. The Gemini CLI does not, yet."""
    if result is None:
        return None
    told = result.total_cost_usd or (result.stats.total_cost_usd if result.stats else None)
    return None if told is None else Cost(told)


def _tokens(stats: Stats) -> Tokens:
    # The stream leaves thoughts out; what the parts lack to the total is thoughts, and the tokens
    # of built-in tools, which only the session file tells apart.
    hidden = max(0, stats.total_tokens - stats.input_tokens - stats.output_tokens)
    return Tokens(
        input=stats.input_tokens,
        output=stats.output_tokens,
        cached=stats.cached or stats.cached_input_tokens,
        thoughts=hidden,
        total=stats.total_tokens,
    )


def _sample(line: bytes) -> str:
    text = line[:_SAMPLE].decode("utf-8", "replace")
    return text + "…" if len(line) > _SAMPLE else text
