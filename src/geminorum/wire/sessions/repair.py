"""A session file to one that the CLI resumes as Google's API accepts it: a response for each call.

The CLI records what a tool returned twice: with the call, and as a message of its own. On resume it
sends both, and Google refuses unequal counts of calls and responses with HTTP 400
(gemini-cli#16984). A warm CLI also piles up all calls of a session in its first message. Here each
call gets back to the turn that made it, with one response.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from geminorum.wire.sessions.shape import is_known

Message: TypeAlias = dict[str, Any]
Part: TypeAlias = dict[str, Any]

_LOST = "no result was recorded: the call was interrupted"


def repaired(lines: Sequence[bytes]) -> list[bytes] | None:
    """The lines of the repaired file; None where nothing has to be changed, and where a record is
    not written as we know it."""
    log = _Log()
    for line in lines:
        record = _decoded(line)
        if not is_known(record):
            return None
        log.add(record)
    changes = _changes(log)
    return list(_rewritten(lines, changes)) if changes else None


@dataclass(slots=True)
class _Log:
    """The conversation as the CLI reads it from the file, and which message made which call."""

    messages: dict[str, Message] = field(default_factory=dict)
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    """By id of a call: the message of the model that made it."""
    responses: dict[str, Part] = field(default_factory=dict)
    _speaking: str | None = None
    """The message that the model began last."""

    def add(self, record: Any) -> None:
        match record:
            case {"$rewindTo": str(message_id)}:
                self._rewind(message_id)
            case {"id": str(), **_rest} as message:
                self._take(message)
            case {"$set": {"messages": list(messages)}}:
                self.messages = {}
                self._take_all(messages)
            case {"sessionId": str(), "messages": list(messages)}:
                self._take_all(messages)

    def _take_all(self, messages: list[Any]) -> None:
        for message in messages:
            if isinstance(message, dict) and isinstance(message.get("id"), str):
                self._take(message)

    def _take(self, message: Message) -> None:
        name = message["id"]
        if message.get("type") == "gemini":
            if name not in self.messages:
                self._speaking = name
            self._note_calls(message)
        elif message.get("type") == "user":
            self._note_responses(message)
        self.messages[name] = message

    def _note_calls(self, message: Message) -> None:
        for call in _calls_of(message):
            self.calls[call["id"]] = call
            self.owners.setdefault(call["id"], self._speaking or message["id"])
        for part in _parts_of(message):
            if call_id := _id_in(part, "functionCall"):
                self.owners[call_id] = message["id"]
                self.calls.setdefault(call_id, {"status": "success", **part["functionCall"]})

    def _note_responses(self, message: Message) -> None:
        for part in _parts_of(message):
            call_id = _id_in(part, "functionResponse")
            if call_id and self._speaking and call_id not in self.responses:
                self.owners[call_id] = self._speaking
                self.responses[call_id] = part
                # A warm CLI records no call of a tool that it does not know.
                self.calls.setdefault(call_id, _made_up(call_id, part["functionResponse"]))

    def _rewind(self, message_id: str) -> None:
        names = list(self.messages)
        start = names.index(message_id) if message_id in self.messages else 0
        for name in names[start:]:
            del self.messages[name]


def _changes(log: _Log) -> dict[str, Message | None]:
    """By id: the messages that have to be replaced, or removed where there is None."""
    told = {call: list[Part]() for call in log.owners if log.owners[call] in log.messages}
    calls_by_owner = defaultdict[str, list[str]](list)
    for call in told:
        calls_by_owner[log.owners[call]].append(call)
    found: dict[str, Message | None] = {}
    for name, message in log.messages.items():
        if message.get("type") == "gemini":
            after = _with_own_calls(message, calls_by_owner[name], log)
            told |= {call["id"]: _result_of(call) for call in _calls_of(after)}
            found[name] = after
    seen: set[str] = set()
    for name, message in log.messages.items():
        if message.get("type") == "user":
            found[name] = _without_told(message, told, seen)
    return {name: after for name, after in found.items() if after != log.messages[name]}


def _with_own_calls(message: Message, own: list[str], log: _Log) -> Message:
    in_content = {_id_in(part, "functionCall") for part in _parts_of(message)} - {None}
    if in_content:
        own = [call for call in own if call in in_content]
    calls = [_answered(log.calls[call], log) for call in own]
    # What has no id cannot be told apart, and stays where it is.
    calls += [call for call in _list(message.get("toolCalls")) if not _has_id(call)]
    if calls == _list(message.get("toolCalls")):
        return message
    return {**message, "toolCalls": calls}


def _made_up(call_id: str, response: dict[str, Any]) -> dict[str, Any]:
    told = response.get("response")
    status = "error" if isinstance(told, dict) and "error" in told else "success"
    return {"id": call_id, "name": response.get("name", ""), "args": {}, "status": status}


def _answered(call: dict[str, Any], log: _Log) -> dict[str, Any]:
    own = _own_parts(call)
    if own and own == call["result"]:
        return call
    if isinstance(call.get("result"), str | dict) and call["result"]:
        return call
    lost = {"id": call["id"], "name": call.get("name", ""), "response": {"error": _LOST}}
    told = log.responses.get(call["id"], {"functionResponse": lost})
    return {**call, "result": own or [told]}


def _own_parts(call: dict[str, Any]) -> list[Part]:
    """The call's result without what the CLI, rebuilding a turn, added of the calls beside it."""
    own, whose = list[Part](), call["id"]
    for part in _list(call.get("result")):
        whose = _id_in(part, "functionResponse") or whose
        if whose == call["id"]:
            own.append(part)
    return own


def _without_told(message: Message, told: dict[str, list[Part]], seen: set[str]) -> Message | None:
    """The message without responses that stand with their call, and without second ones."""
    parts = _parts_of(message)
    ids = [_id_in(part, "functionResponse") for part in parts]
    repeated = {_key(part) for call in ids if call for part in told.get(call, ())}
    kept = []
    for part, call in zip(parts, ids, strict=True):
        if (call and (told.get(call) or call in seen)) or _key(part) in repeated:
            continue
        seen |= {call} if call else set()
        kept.append(part)
    if len(kept) == len(parts):
        return message
    return {**message, "content": kept} if kept else None


def _rewritten(lines: Iterable[bytes], changes: dict[str, Message | None]) -> Iterator[bytes]:
    written: set[str] = set()
    for line in lines:
        match _decoded(line):
            case {"$rewindTo": str()}:
                yield line
            case {"id": str(name), **_rest} if name in changes:
                # Once, where it first stood: later records of it only repeated what it has by now.
                after = changes[name]
                if after is not None and name not in written:
                    written.add(name)
                    yield _encoded(after)
            case {"$set": {"messages": list(messages)} as restated} as record if "id" not in record:
                now = list(_replaced(messages, changes))
                changed = {**record, "$set": {**restated, "messages": now}}
                yield line if now == messages else _encoded(changed)
            case {"sessionId": str(), "messages": list(messages), **_rest} as top:
                now = list(_replaced(messages, changes))
                yield line if now == messages else _encoded({**top, "messages": now})
            case _:
                yield line


def _replaced(messages: list[Any], changes: dict[str, Message | None]) -> Iterator[Any]:
    for message in messages:
        name = message.get("id") if isinstance(message, dict) else None
        after = changes.get(name, message) if isinstance(name, str) else message
        if after is not None:
            yield after


def _decoded(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # Torn; the CLI passes over it as well.


def _encoded(record: dict[str, Any]) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def _key(part: Any) -> bytes:
    """The same for equal parts; comparing each with each would take the square of their number."""
    return msgspec.json.encode(part, order="deterministic")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _parts_of(message: Message) -> list[Any]:
    return _list(message.get("content"))


def _has_id(call: Any) -> bool:
    return isinstance(call, dict) and isinstance(call.get("id"), str) and bool(call["id"])


def _calls_of(message: Message) -> list[dict[str, Any]]:
    return [call for call in _list(message.get("toolCalls")) if _has_id(call)]


def _result_of(call: dict[str, Any]) -> list[Part]:
    result = call.get("result")
    return result if isinstance(result, list) else [result] if result else []


def _id_in(part: Any, kind: str) -> str | None:
    inner = part.get(kind) if isinstance(part, dict) else None
    found = inner.get("id") if isinstance(inner, dict) else None
    return found if isinstance(found, str) else None
