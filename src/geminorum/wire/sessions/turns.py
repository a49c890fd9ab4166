"""The messages of a saved session, with each tool call in the turn that made it.

A warm CLI saves an answer and its calls as two messages, adds the calls of all turns to the first
message that has any, and saves no call that was refused. What the model was told of a call is in
its own turn, by the id of the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from geminorum.wire.sessions.records import SavedMessage, message_of


def in_turns(messages: Iterable[SavedMessage]) -> Iterator[SavedMessage]:
    """The same messages, each answer with its own calls."""
    answer: SavedMessage | None = None
    for message in _split(messages):
        if answer is not None and _has_only_calls(message):
            answer = _joined(answer, message)
            continue
        if answer is not None:
            yield answer
        answer = message if message.type == "gemini" and message.tokens else None
        if answer is None:
            yield message
    if answer is not None:
        yield answer


def _split(messages: Iterable[SavedMessage]) -> Iterator[SavedMessage]:
    """The same messages; calls that were answered in a later turn are in messages of their own."""
    known = messages if isinstance(messages, Sequence) else list(messages)
    turn_of, saved = _answers(known)
    held: dict[str, SavedMessage] = {}
    turn = 0
    for message in known:
        answers = answers_in(message.content) if message.type == "user" else {}
        turn += not answers
        if answers:
            yield from _moved(held, answers)
            lost = {name: answer for name, answer in answers.items() if name not in saved}
            yield from _unsaved(message, lost)
            saved |= answers.keys()
        calls = [call.id for call in message.tool_calls or ()]
        late = {name for name in calls if turn_of.get(name, turn) > turn}
        held |= dict.fromkeys(late, message)
        yield _with_calls(message, set(calls) - late) if late else message


def answers_in(content: Any) -> dict[str, dict[str, Any]]:
    """The answers of tools, by the id of their call, where a message holds nothing else."""
    parts = content if isinstance(content, list) else []
    found = [part.get("functionResponse") for part in parts if isinstance(part, dict)]
    answers = {str(one.get("id")): one for one in found if isinstance(one, dict) and one.get("id")}
    return answers if len(answers) == len(parts) else {}


def _has_only_calls(message: SavedMessage) -> bool:
    is_answer = message.content or message.thoughts or message.tokens
    return message.type == "gemini" and bool(message.tool_calls) and not is_answer


def _joined(answer: SavedMessage, calls: SavedMessage) -> SavedMessage:
    """The answer with the calls, which the CLI saves without its tokens."""
    data, more = msgspec.json.decode(answer.raw), msgspec.json.decode(calls.raw)
    both = [*(data.get("toolCalls") or []), *more["toolCalls"]]
    return message_of(msgspec.json.encode({**data, "toolCalls": both}))


def _answers(messages: Iterable[SavedMessage]) -> tuple[dict[str, int], set[str]]:
    """In which turn each call was first answered, and which calls are saved."""
    turn, turn_of, saved = 0, dict[str, int](), set[str]()
    for message in messages:
        answers = answers_in(message.content) if message.type == "user" else {}
        turn += not answers
        for name in answers:
            turn_of.setdefault(name, turn)
        saved |= {call.id for call in message.tool_calls or ()} | _asked_in(message.content)
    return turn_of, saved


def _asked_in(content: Any) -> set[str]:
    parts = content if isinstance(content, list) else []
    calls = [part.get("functionCall") for part in parts if isinstance(part, dict)]
    return {str(call.get("id")) for call in calls if isinstance(call, dict)}


def _moved(held: dict[str, SavedMessage], answers: Iterable[str]) -> Iterator[SavedMessage]:
    """The calls that are answered now, out of the message that the CLI has put them in."""
    by_source: dict[str | None, tuple[SavedMessage, list[str]]] = {}
    for name in answers:
        if (source := held.pop(name, None)) is not None:
            by_source.setdefault(source.id, (source, []))[1].append(name)
    for source, names in by_source.values():
        about = {"id": f"{source.id}-{names[0]}", "content": "", "thoughts": []}
        yield _with_calls(source, set(names), **about)


def _unsaved(message: SavedMessage, answers: dict[str, dict[str, Any]]) -> Iterator[SavedMessage]:
    """Calls of which only the answer is saved: their arguments are lost."""
    if answers:
        calls = [_call_of(name, answer) for name, answer in answers.items()]
        about = {"id": f"{message.id}-calls", "timestamp": message.timestamp, "type": "gemini"}
        yield message_of(msgspec.json.encode({**about, "content": "", "toolCalls": calls}))


def _call_of(name: str, answer: dict[str, Any]) -> dict[str, Any]:
    response = answer.get("response")
    failed = isinstance(response, dict) and "error" in response
    return {
        "id": name,
        "name": str(answer.get("name") or ""),
        "result": [{"functionResponse": answer}],
        "status": "error" if failed else "success",
    }


def _with_calls(message: SavedMessage, names: set[str], **changes: Any) -> SavedMessage:
    data = {**msgspec.json.decode(message.raw), **changes}
    calls = data.get("toolCalls") or []
    data["toolCalls"] = [one for one in calls if isinstance(one, dict) and one.get("id") in names]
    if "id" in changes:
        data.pop("tokens", None)  # They were counted with the message that they came with.
        data["timestamp"] = data["toolCalls"][0].get("timestamp") or message.timestamp
    return message_of(msgspec.json.encode(data))
