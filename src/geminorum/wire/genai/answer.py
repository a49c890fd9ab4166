"""Chunks of a Gemini API answer to events, and to the turn that has to be sent back verbatim."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from geminorum.events import (
    Event,
    ModelRequest,
    Text,
    TextDelta,
    Thinking,
    ToolResult,
    ToolUse,
    Unknown,
)
from geminorum.runtime import typed
from geminorum.wire.broken_json import mended
from geminorum.wire.surrogates import PairJoiner, loose, whole
from geminorum.wire.usage import request_of

Part = dict[str, Any]
"""A Part as the API writes it: what we have no word for must come back to the API, too."""

_PLAIN = {"text", "thought"}
_SERVER_CALLS = ("executableCode", "toolCall")
_SERVER_RESULTS = ("codeExecutionResult", "toolResponse")


class BadChunk(ValueError):
    """What arrived is not an answer of the API."""


class Content(msgspec.Struct):
    parts: list[Part] | None = None


class Candidate(msgspec.Struct, rename="camel"):
    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class Chunk(msgspec.Struct, rename="camel"):
    candidates: list[Candidate] | None = None
    prompt_feedback: Feedback | None = None
    usage_metadata: dict[str, Any] | None = None
    model_version: str | None = None
    error: dict[str, Any] | None = None


class FunctionCall(msgspec.Struct, frozen=True):
    """The model asks for a function of the caller's."""

    name: str
    id: str
    arguments: dict[str, Any]


_decoder = typed.decoder(Chunk)
_NO_CHUNK = (ValueError, RecursionError)


def chunk_of(data: bytes) -> tuple[Chunk, bytes]:
    """The chunk, and its bytes as they can be kept. Raises BadChunk.

    One bad character does not cost the answer: the text of a part may have half a surrogate pair.
    """
    try:
        return _decoder.decode(data), data
    except _NO_CHUNK:
        pass
    try:
        data.decode()  # Bytes that are no text at all mean that the answer is broken off.
        clean = mended(data)[1]
        chunk, to_the_letter = _decoder.decode(clean), typed.convert(loose(data), Chunk)
    except _NO_CHUNK as error:
        raise BadChunk(f"{error}; it begins {data[:120]!r}") from error
    for part, odd in zip(_parts_of(chunk), _parts_of(to_the_letter), strict=True):
        if "text" in part:
            part["text"] = odd.get("text")
    return chunk, clean


class ModelAnswer:
    """One answer while it arrives: what to show of it, what to send back, how it ended."""

    def __init__(self, session_id: str | None = None) -> None:
        self._session_id = session_id
        self._open: list[str] = []
        """The text of the message that has not ended yet."""
        self._joiner = PairJoiner()
        self._parts: list[Part] = []
        self._growth: list[str] = []
        """What the last part has grown by."""
        self.calls: list[FunctionCall] = []
        self.counts: dict[str, Any] = {}
        """The last count of each kind: a later chunk may leave out what an earlier one told."""
        self.finish: str | None = None
        self.finish_message: str | None = None
        self.blocked: str | None = None
        self.model: str | None = None
        self.chunks = 0
        self.spoke = False
        """Has it said anything that a person or a program can use?"""
        self.said = False
        """Was any event made of it?"""
        self.last_chunk: bytes = b""
        """The last one; of a blocked prompt the one that says so."""

    @property
    def parts(self) -> list[Part]:
        """The model's turn as the next request has to repeat it."""
        self._settle()
        return self._parts

    @property
    def text(self) -> str:
        """All that was said, thoughts left out."""
        return "".join(part.get("text") or "" for part in self.parts if not part.get("thought"))

    def add(self, data: bytes, at: int = 0) -> list[Event]:
        """The events of one chunk. Raises BadChunk, and ApiRefusal for an error in mid-stream."""
        chunk, data = chunk_of(data)
        if chunk.error is not None:
            raise ApiRefusal(chunk.error)
        envelope = {"timestamp": at, "session_id": self._session_id, "frame": _frame_of(data)}
        parts = _parts_of(chunk)
        events = [event for part in parts for event in self._add(part, envelope)]
        self._note(chunk, data)
        self.said = self.said or bool(events)
        return events

    def close(self, at: int = 0) -> list[Event]:
        """The whole message behind its deltas, where one is still open."""
        return self._close_text({"timestamp": at, "session_id": self._session_id})

    def request(self, asked_for: str, at: int) -> ModelRequest | None:
        """What it consumed; None where nothing was told."""
        return request_of(self.counts, self.model or asked_for, at)

    def _note(self, chunk: Chunk, data: bytes) -> None:
        self.chunks += 1
        if self.blocked is None:
            self.last_chunk = data
        self.model = chunk.model_version or self.model
        for candidate in (chunk.candidates or ())[:1]:
            self.finish = candidate.finish_reason or self.finish
            self.finish_message = candidate.finish_message or self.finish_message
        if chunk.prompt_feedback is not None:
            self.blocked = chunk.prompt_feedback.block_reason or self.blocked
            self.finish_message = chunk.prompt_feedback.block_reason_message or self.finish_message
        told = (chunk.usage_metadata or {}).items()
        self.counts.update({name: value for name, value in told if isinstance(value, int | str)})

    def _add(self, part: Part, envelope: dict[str, Any]) -> list[Event]:
        text = part.get("text")
        if text is None:
            return [*self._close_text(envelope), *self._add_other(part, envelope)]
        if not isinstance(text, str):
            raise BadChunk(f"the text of a part is {text!r}")
        if text and part.get("thought"):
            events = self._close_text(envelope)
            self._keep(part, whole(text))
            return [*events, Thinking(whole(text), **envelope)]
        self.spoke = self.spoke or bool(text)
        return self._add_text(part, self._joiner.add(text), envelope)

    def _add_text(self, part: Part, text: str, envelope: Mapping[str, Any]) -> list[Event]:
        self._keep(part, text)
        if not text:
            return []
        self._open.append(text)
        return [TextDelta(text, **envelope)]

    def _keep(self, part: Part, text: str) -> None:
        """Deltas grow together; what is signed, or more than text, stands alone."""
        if self._grows_by(part):
            self._growth.append(text)
        elif text or "thoughtSignature" in part:
            self._add_part({**part, "text": text})

    def _grows_by(self, part: Part) -> bool:
        last = self._parts[-1] if self._parts else {}
        if not isinstance(last.get("text"), str) or not (last.keys() | part.keys()) <= _PLAIN:
            return False
        return bool(last.get("thought")) == bool(part.get("thought"))

    def _add_part(self, part: Part) -> None:
        self._settle()
        self._parts.append(part)

    def _settle(self) -> None:
        if self._growth:
            last = self._parts[-1]
            self._parts[-1] = {**last, "text": "".join([last["text"], *self._growth])}
            self._growth = []

    def _add_other(self, part: Part, envelope: dict[str, Any]) -> list[Event]:
        if part.get("functionCall") is not None:
            return self._add_function_call(part, envelope)
        if part:
            self._add_part(part)
        kinds = [name for name in part if name not in ("thoughtSignature", "text", "thought")]
        self.spoke = self.spoke or bool(kinds)
        return [_server_side(kind, part[kind], envelope) for kind in kinds[:1]]

    def _add_function_call(self, part: Part, envelope: dict[str, Any]) -> list[Event]:
        told = part["functionCall"]
        if not isinstance(told, dict):
            raise BadChunk(f"a functionCall is {told!r}")
        if not isinstance(name := told.get("name"), str):
            # A piece of arguments that arrive in pieces; only Vertex sends them, and only if asked.
            self._add_part(part)
            return []
        if not isinstance(arguments := told.get("args") or {}, dict):
            raise BadChunk(f"the arguments of a functionCall are {arguments!r}")
        # Older models give no id; the answer of the tool needs one, and the API takes ours.
        call = FunctionCall(
            name, _text(told.get("id")) or f"call_{uuid.uuid4().hex[:12]}", arguments
        )
        self.calls.append(call)
        self._add_part({**part, "functionCall": {**told, "id": call.id}})
        return [ToolUse(name, call.id, call.arguments, **envelope)]

    def _close_text(self, envelope: Mapping[str, Any]) -> list[Event]:
        rest = self._joiner.take_rest()
        events = self._add_text({"text": rest}, rest, envelope) if rest else []
        if not self._open:
            return events
        text, self._open = "".join(self._open), []
        return [*events, Text(text, **envelope)]


def _frame_of(data: bytes) -> msgspec.Raw:
    # A chunk may come in many lines; an event has to fit in one.
    return msgspec.Raw(msgspec.json.format(data, indent=-1) if b"\n" in data else data)


def _text(told: Any) -> str | None:
    return told if isinstance(told, str) else None


def _parts_of(chunk: Chunk) -> list[Part]:
    """The parts of the first candidate; we never request more than one."""
    content = chunk.candidates[0].content if chunk.candidates else None
    return (content.parts if content else None) or []


class ApiRefusal(Exception):
    """An error of the API in its own JSON, in mid-stream."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.error = error


def _server_side(kind: str, told: Any, envelope: dict[str, Any]) -> Event:
    """What Google's side ran by itself, in the words of any other tool."""
    if not isinstance(told, dict) or kind not in (*_SERVER_CALLS, *_SERVER_RESULTS):
        return Unknown(kind, **envelope)
    name, id = _text(told.get("toolType")) or "code_execution", _text(told.get("id"))
    if kind in _SERVER_CALLS:
        args = told.get("args")
        code = {key: told[key] for key in ("language", "code") if key in told}
        return ToolUse(name, id, args if args and isinstance(args, dict) else code, **envelope)
    failed = told.get("outcome", "OUTCOME_OK") != "OUTCOME_OK"
    output = told.get("output", told.get("response"))
    return ToolResult(id, name, "error" if failed else "success", output, **envelope)
