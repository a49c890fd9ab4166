"""The CLI's own record of a conversation: one JSON document, or since 0.39 a log of changes.

A line of the log is, tested in this order: a rewind, a message, a change of what stands at the top,
or the top itself. A message with the id of an earlier one takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, field

from geminorum.events import ModelRequest, Tokens
from geminorum.runtime import typed
from geminorum.wire.broken_json import mended
from geminorum.wire.clock import Clock
from geminorum.wire.fitting import UNREADABLE, fitting
from geminorum.wire.literal import unguarded

CONTEXT = "<session_context>"
"""How the words begin that the CLI itself puts before every conversation."""


class SavedThought(msgspec.Struct):
    subject: str = ""
    description: str = ""
    timestamp: str = ""


class SavedCall(msgspec.Struct, kw_only=True, rename="camel"):
    """A tool call with its result."""

    id: str = ""
    name: str = ""
    args: dict[str, Any] | None = None
    result: Any = None
    """Parts with a functionResponse: what the model was told."""
    status: str | None = None
    timestamp: str = ""
    result_display: Any = None
    """What a person was shown."""


class SavedMessage(msgspec.Struct, kw_only=True, rename="camel"):
    """One message, as it is written."""

    id: str | None = None
    timestamp: str = ""
    type: str | None = None
    content: Any = None
    display_content: Any = None
    """The prompt before `@files` and commands were expanded."""
    model: str | None = None
    tokens: Tokens | None = None
    thoughts: list[SavedThought] | None = None
    tool_calls: list[SavedCall] | None = None
    is_uncounted: bool = field(default=False, name="(uncounted)")
    """Has it tokens that could not be read? The file has no such key."""
    raw: Raw = field(default_factory=Raw, name="(raw)")
    """The message to the letter, in one line; the file has no such key."""


class Top(msgspec.Struct, kw_only=True, rename="camel"):
    """What stands over the messages."""

    session_id: str | None = None
    project_hash: str | None = None
    start_time: str = ""
    last_updated: str = ""
    kind: str | None = None
    summary: str | None = None
    directories: list[str] | None = None
    forked_from: str | None = None
    """This and the next two are written by `sessions.fork` and kept by the CLI."""
    forked_at: str = ""
    updated_before_fork: str = ""


class Record(Top, kw_only=True, rename="camel"):
    """One line of the log, or the whole document. What is not looked at is not built."""

    id: str | None = None
    type: Any = None
    messages: list[Raw] | None = None
    change: Record | None = field(default=None, name="$set")
    rewind_to: str | None = field(default=None, name="$rewindTo")


_record_decoder = typed.decoder(Record)
_message_decoder = typed.decoder(SavedMessage)
_NO_TOKENS = (None, Tokens())
_S = TypeVar("_S", bound=msgspec.Struct)


def record_of(line: bytes | Raw) -> Record | None:
    """The line as a record; None for a torn one, and for what is none."""
    # A file may hold millions of lines that are nothing, and an exception takes its time.
    if not isinstance(line, Raw) and line.lstrip()[:1] != b"{":
        return None
    try:
        return _record_decoder.decode(line)
    except UNREADABLE:
        return _salvaged(Record, line)[0]


def messages_in(record: Record, line: bytes) -> list[Raw]:
    """The messages that a record holds: itself, or those that the conversation starts anew from."""
    if record.id is not None or is_nameless(record):
        return [Raw(line)]
    return (record.change or record).messages or []


def is_nameless(record: Record) -> bool:
    """Is it a message whose id has another name, or none?"""
    is_top = record.session_id is not None or record.messages is not None
    return record.id is None and record.type is not None and not is_top and record.change is None


def message_of(raw: bytes | Raw) -> SavedMessage:
    """A message, as far as it can be read: what does not fit its place is left out of it."""
    try:
        message, clean = _message_decoder.decode(raw), bytes(raw).strip()
    except UNREADABLE:
        salvaged, clean = _salvaged(SavedMessage, raw)
        message = salvaged or SavedMessage(type="broken")
    if message.tokens in _NO_TOKENS and _has_count(_tokens_in(clean)):
        message.tokens, message.is_uncounted = None, True
    # In a document it goes over many lines; an event has to fit in one.
    message.raw = Raw(msgspec.json.format(clean, indent=-1) if b"\n" in clean else clean)
    return message


class _Counted(msgspec.Struct):
    tokens: Any = None


def _tokens_in(raw: bytes) -> Any:
    # Most messages have none, and looking for the word is quick.
    return typed.decode(raw, _Counted).tokens if b'"tokens"' in raw else None


def _has_count(tokens: Any) -> bool:
    """Is there a number in it, under whatever name?"""
    rest = [tokens]
    while rest:
        match rest.pop():
            case bool() | str():
                continue
            case int() | float() as count if count:
                return True
            case list(inner):
                rest += inner
            case dict(inner):
                rest += inner.values()
    return False


def _salvaged(kind: type[_S], raw: bytes | Raw) -> tuple[_S | None, bytes]:
    """What fits of it, and its bytes as they can be kept; None where it is no JSON object."""
    try:
        data, clean = mended(bytes(raw))
    except (ValueError, RecursionError):
        return None, b"null"
    return (fitting(kind, clean) if isinstance(data, dict) else None), clean


def requests_of(messages: Iterable[SavedMessage]) -> dict[str, ModelRequest]:
    """What the model was asked, by the id of its answer."""
    clock = Clock()
    return {
        message.id: ModelRequest(
            **msgspec.structs.asdict(message.tokens),
            model=message.model,
            timestamp=clock.milliseconds(message.timestamp),
        )
        for message in messages
        if message.id and message.model and message.tokens
    }


def is_counted(message: SavedMessage) -> bool:
    """Are its tokens, if it has any, among the requests?"""
    has_tokens = message.tokens not in _NO_TOKENS
    return not message.is_uncounted and (not has_tokens or bool(message.id and message.model))


def is_context(message: SavedMessage) -> bool:
    """Is it what the CLI says before every conversation?"""
    return message.type == "user" and text_of(message.content).startswith(CONTEXT)


def is_spoken(message: SavedMessage) -> bool:
    """Did a person or the model say it?"""
    return message.type in ("user", "gemini") and not is_context(message)


def words_of(message: SavedMessage) -> str:
    """What a person or the model said with it, before `@files` were put in."""
    said = text_of(message.display_content or message.content) if is_spoken(message) else ""
    return unguarded(said) if message.type == "user" else said


def text_of(content: Any) -> str:
    """The text of a content: a string, a part, or a list of parts. Thoughts are none of it."""
    # A list of what is still to be read: JSON may be nested deeper than Python calls itself.
    texts, rest = list[str](), [content]
    while rest:
        match rest.pop():
            case str(text):
                texts.append(text)
            case list(parts):
                rest += reversed(parts)
            case {"text": str(text), **more} if not more.get("thought"):
                texts.append(text)
    return "".join(texts)
