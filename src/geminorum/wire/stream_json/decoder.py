"""The output of `gemini --output-format stream-json`, bytes to events."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw

from geminorum.events import (
    Error,
    Event,
    Init,
    Text,
    TextDelta,
    ToolResult,
    ToolUse,
    Unknown,
    UserMessage,
)
from geminorum.runtime import typed
from geminorum.wire.broken_json import mended
from geminorum.wire.clock import FRACTIONS, Clock
from geminorum.wire.lines import LONGEST_LINE, Lines
from geminorum.wire.literal import unguarded
from geminorum.wire.notices import ALLOW_BEFOREHAND, NOBODY_TO_ASK, PARSE_ERROR
from geminorum.wire.stream_json.dialects import in_todays_words, output_in, stats_in
from geminorum.wire.stream_json.frames import (
    ErrorFrame,
    Frame,
    InitFrame,
    MessageFrame,
    ResultFrame,
    Stats,
    ToolResultFrame,
    ToolStatus,
    ToolUseFrame,
    frame_decoder,
    is_telling,
    status_of,
    was_unasked,
)
from geminorum.wire.surrogates import PairJoiner, loose

_LOOP = "Loop detected"
"""How the CLI begins to say that it stops an agent which repeats itself."""
_SAMPLE = 200
_MANY = 1000
"""So many pieces of a message are worth joining before it ends: small strings take much room."""
_NO_FRAME = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _OpenMessage:
    """The message that is not finished."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        """What the last blocks of output add to it."""
        self.joiner = PairJoiner()
        self._blocks: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._blocks + self.pieces)

    def settle(self) -> None:
        """At the end of a block: many pieces become one."""
        if len(self.pieces) > _MANY:
            self._blocks.append("".join(self.pieces))
            self.pieces.clear()

    def end(self) -> str:
        """The whole message; empty where there was none."""
        text = self.text
        self._blocks.clear()
        self.pieces.clear()
        return text


class _ToolNames:
    """What tools are called: by the caller, and in the calls that run."""

    def __init__(self, rename: Callable[[str], str], is_refused: Callable[[str], bool]) -> None:
        self._rename, self.is_refused = rename, is_refused
        self._running: dict[str, str] = {}

    def call(self, tool_id: str | None, name: str) -> str:
        name = self._rename(name)
        if tool_id:
            self._running[tool_id] = name
        return name

    def end_call(self, tool_id: str | None) -> str | None:
        """A name is joined once: nothing is kept for calls that are over."""
        return self._running.pop(tool_id or "", None)


class StreamDecoder:
    """One run's output to events, all but the `Done`: that needs to know how the process ended.

    Remembers what the verdict asks for afterwards: the `result`, and what came before it.
    """

    def __init__(
        self,
        *,
        cwd: str | None = None,
        is_refused: Callable[[str], bool] = lambda tool: False,
        tool_name: Callable[[str], str] = str,
        longest_line: int = LONGEST_LINE,
    ) -> None:
        """`tool_name`: what the CLI calls a tool to what the caller does."""
        self._cwd = cwd
        self._tools = _ToolNames(tool_name, is_refused)
        self._lines = Lines(longest_line)
        self._open = _OpenMessage()
        self._clock = Clock()
        self.session_id: str | None = None
        self.result: ResultFrame | None = None
        self.result_line = b""
        self.failure: Error | None = None
        """The last error that was not a warning."""
        self.failed_after_result = False
        self.looped = False
        """Did the CLI stop the agent because it repeated itself?"""
        self._said_before_loop = 0
        self.frames = 0
        """How many lines were frames of the stream."""
        self.garbage = 0
        """How many lines were not."""
        self.tool_uses = 0
        self.tool_results = 0
        self._spoke = False
        self._warned = False

    @property
    def answered(self) -> bool:
        """Did the model say or do anything?"""
        return self._spoke or self.tool_uses > 0

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes."""
        return self._events(self._lines.feed(chunk))

    def close(self) -> list[Event]:
        """What remains: a last line without its end, and the message it belonged to."""
        events = self._events([self._lines.rest()])
        self._release_half(events)
        self._flush(events)
        return events

    def _events(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        try:
            # All before the first event is made: in turns, the two would take longer.
            frames = list(map(frame_decoder.decode, lines))
        except _NO_FRAME:
            self._one_by_one(lines, events)
        else:
            self._take(frames, lines, events)
        self._settle(events)
        return events

    def _one_by_one(self, lines: list[bytes], events: list[Event]) -> None:
        for line in lines:
            try:
                frame = frame_decoder.decode(line)
            except _NO_FRAME:
                self._odd_line(line, events)
            else:
                self._take([frame], [line], events)

    def _take(self, frames: list[Frame], lines: list[bytes], events: list[Event]) -> None:
        if frames and self._open.joiner.is_waiting:
            self._release_half(events)  # What these frames hold is whole.
        self.frames += len(frames)
        append, hold, clock = events.append, self._open.pieces.append, self._clock
        message, delta, raw, fraction_of = MessageFrame, TextDelta, Raw, FRACTIONS.get
        session_id, at, last = self.session_id, clock.last, ""
        for frame, line in zip(frames, lines, strict=True):
            if type(frame) is message and frame.delta and frame.role == "assistant":
                # Nearly every line of a long stream, so no call is made that need not be, and no
                # name is looked up outside. Where speed matters there are several in a
                # millisecond, with the same stamp, and many in a second.
                text, stamp = frame.content, frame.timestamp
                if stamp != last:
                    last, fraction = stamp, fraction_of(stamp[20:])
                    if fraction is not None and stamp[:20] == clock.second:
                        clock.last = at = clock.base + fraction
                    else:
                        at = clock.milliseconds(stamp)
                hold(text)
                append(delta(text, timestamp=at, session_id=session_id, frame=raw(line)))
            else:
                self._on_frame(frame, raw(line), events)
                session_id, at, last = self.session_id, clock.last, ""

    def _settle(self, events: list[Event]) -> None:
        """At the end of a block."""
        self._open.settle()
        if self._lines.overlong:
            self._report("LINE_TOO_LONG", f"{self._lines.overlong} line(s) dropped", events)
            self._lines.overlong = 0

    def _odd_line(self, line: bytes, events: list[Event]) -> None:
        """A line that is no frame of today's CLI: mend it, translate it, or report it."""
        if not line or line.isspace():
            return
        try:
            data, clean = mended(line)
        except ValueError as error:
            self._report(PARSE_ERROR, f"{error}; raw: {_sample(line)}", events)
            return
        if not isinstance(data, dict):
            self._report(PARSE_ERROR, f"expected a JSON object; raw: {_sample(line)}", events)
            return
        self._translate(self._rejoined(data, line, events), Raw(clean), events)

    def _rejoined(self, data: dict[str, Any], line: bytes, events: list[Event]) -> dict[str, Any]:
        """The data; where it is a piece of a message, behind the half that waits for it."""
        with suppress(ValueError, RecursionError):  # What is nested so deeply is no piece.
            match loose(line):
                case {"type": "message", "role": "assistant", "delta": True, "content": str(text)}:
                    return data | {"content": self._open.joiner.add(text)}
        self._release_half(events)
        return data

    def _release_half(self, events: list[Event]) -> None:
        if rest := self._open.joiner.take_rest():
            self._open.pieces.append(rest)
            events.append(TextDelta(rest, timestamp=self._clock.last, session_id=self.session_id))

    def _translate(self, data: dict[str, Any], raw: Raw, events: list[Event]) -> None:
        try:
            words = in_todays_words(data)
            frame = None if words is None else typed.convert(words, Frame)
        except (msgspec.ValidationError, RecursionError):
            frame = None
        if frame is None:
            kind, stamp = data.get("type"), data.get("timestamp")
            self._clock.milliseconds(stamp if isinstance(stamp, str) else "")
            events.append(Unknown(kind=str(kind) if kind else None, **self._envelope(raw)))
        else:
            self.frames += 1
            self._on_frame(frame, raw, events)

    def _on_frame(self, frame: Frame, raw: Raw, events: list[Event]) -> None:
        self._clock.milliseconds(frame.timestamp)
        event = _HANDLERS[type(frame)](self, frame, raw)
        if type(event) is TextDelta:
            self._open.pieces.append(event.text)
        elif not isinstance(frame, ErrorFrame):
            self._flush(events)
        if event is not None:
            events.append(event)
        if isinstance(frame, ToolResultFrame) and was_unasked(frame) and not self._warned:
            self._warned = True
            events.append(self._nobody_to_ask(event))

    def _nobody_to_ask(self, refused: Any) -> Error:
        """Once a run: what a question means if it cannot be answered."""
        text = f"{refused.name or 'a tool'} needs approval, and there is nobody to ask: refused"
        return Error(
            text,
            NOBODY_TO_ASK,
            recoverable=True,
            hint=ALLOW_BEFOREHAND,
            timestamp=self._clock.last,
            session_id=self.session_id,
        )

    def _on_message(self, frame: MessageFrame, raw: Raw) -> Event:
        match frame.role:
            case "assistant" if frame.delta:
                return TextDelta(frame.content, **self._envelope(raw))
            case "assistant":
                self._spoke = True
                return Text(frame.content, **self._envelope(raw))
            case "user":
                return UserMessage(unguarded(frame.content), **self._envelope(raw))
            case _:
                return Unknown(kind=f"message:{frame.role}", **self._envelope(raw))

    def _on_init(self, frame: InitFrame, raw: Raw) -> Event:
        self.session_id = frame.session_id or self.session_id
        return Init(frame.model, frame.cwd or self._cwd, frame.tools, **self._envelope(raw))

    def _on_tool_use(self, frame: ToolUseFrame, raw: Raw) -> Event:
        self.tool_uses += 1
        return ToolUse(
            self._tools.call(frame.tool_id, frame.tool_name),
            frame.tool_id,
            frame.parameters or {},
            timestamp=self._clock.last,
            session_id=self.session_id,
            frame=raw,
        )

    def _on_tool_result(self, frame: ToolResultFrame, raw: Raw) -> Event:
        self.tool_results += 1
        # The CLI runs the calls that came before the loop, and asks the model once more.
        self.looped = False
        name = frame.tool_name or self._tools.end_call(frame.tool_id)
        error = frame.error
        output = frame.output
        if output is None:
            output = error.message if error else output_in(bytes(raw))
        return ToolResult(
            id=frame.tool_id,
            name=name,
            status=self._status(frame, name),
            output=output,
            error_type=error.type if error else None,
            duration=None if frame.duration_ms is None else frame.duration_ms / 1000,
            timestamp=self._clock.last,
            session_id=self.session_id,
            frame=raw,
        )

    def _status(self, frame: ToolResultFrame, name: str | None) -> ToolStatus:
        # A tool that is refused altogether is not even offered; a model that calls it all the
        # same is told that there is no such tool.
        hidden = frame.error is not None and frame.error.type == "tool_not_registered"
        return "denied" if hidden and self._tools.is_refused(name or "") else status_of(frame)

    def _on_error(self, frame: ErrorFrame, raw: Raw) -> Event:
        warning = frame.severity == "warning"
        if warning and _LOOP in frame.message:
            self.looped, self._said_before_loop = True, len(self._open.text)
        recoverable = warning if frame.recoverable is None else frame.recoverable
        # Without a code of its own, an error of severity "error" is the CLI's complaint about an
        # answer: empty, blocked, cut off.
        code = frame.code or {"warning": "WARNING", "error": "INVALID_ANSWER"}.get(
            frame.severity or ""
        )
        error = Error(frame.message, code, recoverable, **self._envelope(raw))
        if not recoverable:
            self.failure = error
            self.failed_after_result = self.result is not None
        return error

    def _on_result(self, frame: ResultFrame, raw: Raw) -> None:
        self.session_id = frame.session_id or self.session_id
        if frame.stats is not None and not is_telling(frame.stats):
            counts = stats_in(bytes(raw))
            frame.stats = None if counts is None else typed.convert(counts, Stats)
        self.result, self.result_line = frame, bytes(raw)

    def _flush(self, events: list[Event]) -> None:
        """End the message that the deltas were making."""
        if text := self._open.end():
            self._spoke = True
            # Who goes on to speak was not stopped.
            self.looped = self.looped and len(text) <= self._said_before_loop
            events.append(Text(text, timestamp=self._clock.last, session_id=self.session_id))

    def _report(self, code: str, message: str, events: list[Event]) -> None:
        self.garbage += 1
        events.append(
            Error(message, code, True, timestamp=self._clock.last, session_id=self.session_id)
        )

    def _envelope(self, raw: Raw) -> Any:
        return {"timestamp": self._clock.last, "session_id": self.session_id, "frame": raw}


_HANDLERS: dict[type[Any], Callable[[StreamDecoder, Any, Raw], Event | None]] = {
    InitFrame: StreamDecoder._on_init,
    MessageFrame: StreamDecoder._on_message,
    ToolUseFrame: StreamDecoder._on_tool_use,
    ToolResultFrame: StreamDecoder._on_tool_result,
    ErrorFrame: StreamDecoder._on_error,
    ResultFrame: StreamDecoder._on_result,
}


def _sample(line: bytes) -> str:
    text = line[:_SAMPLE].decode("utf-8", "replace")
    return text + "…" if len(line) > _SAMPLE else text
