"""Translates a standard prompt to the contents of a Gemini request.

`role` decides. System texts go in front of the first user message, tool results of one step into
one content, and a history that starts with the model gets a user turn before it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import msgspec

from geminorum.contracts.provider_adapter.failures import PromptTranslationFailed

Content: TypeAlias = dict[str, Any]
Message: TypeAlias = Mapping[str, Any]

INITIAL_CONTEXT = "(Initial context)"

_SKIPPED = "tool_request"
_RESULTS = ("tool_result", "tool")
_ROLES = ("system", "user", "assistant", *_RESULTS, _SKIPPED)


class Translated(msgspec.Struct, frozen=True):
    """A prompt in the API's words."""

    contents: list[Content]
    call_ids: list[list[str | None]]
    """For each part of each content, the caller's id of the tool call that it is about."""
    system: str | None = None
    """What is to be the system instruction; None where it was merged or where there is none."""


def translate_to_gemini(prompt: Sequence[Message]) -> list[Content]:
    """Returns the prompt as `Content[]`, with the system texts in the first user message."""
    return translated(prompt).contents


def translated(prompt: Sequence[Message], *, system_instruction: bool = False) -> Translated:
    """The prompt's contents; with `system_instruction`, the system texts stand beside them."""
    messages = _checked(prompt)
    system = "\n\n".join(_texts_of_system(messages)) or None
    pieces = [*_pieces(messages)]
    if system and not (system_instruction and pieces):
        pieces, system = _merged(system, pieces), None
    if not pieces:
        raise PromptTranslationFailed(
            "the prompt has no message for the model",
            hint='pass at least {"role": "user", "content": "…"}',
        )
    if pieces[0].role == "model":
        pieces = [_Piece("user", [({"text": INITIAL_CONTEXT}, None)]), *pieces]
    return Translated([p.content for p in pieces], [p.call_ids for p in pieces], system)


class _Piece(msgspec.Struct, frozen=True):
    """A content on its way: its parts, each with the call that it is about."""

    role: str
    parts: list[tuple[dict[str, Any], str | None]]

    @property
    def content(self) -> Content:
        return {"role": self.role, "parts": [part for part, _ in self.parts]}

    @property
    def call_ids(self) -> list[str | None]:
        return [call_id for _, call_id in self.parts]


def _checked(prompt: Any) -> list[Message]:
    if not isinstance(prompt, Sequence) or isinstance(prompt, str | bytes):
        raise PromptTranslationFailed(
            f"the prompt is a {type(prompt).__name__}, not a list of messages",
            hint='[{"role": "user", "content": "…"}]',
        )
    # A loop, and no comprehension: the warning counts the frames up to the caller.
    found = []
    for place, message in enumerate(prompt):
        if _is_for_us(message, place):
            found.append(message)
    return found


def _is_for_us(message: Any, place: int) -> bool:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise PromptTranslationFailed(
            f"message {place} has no role",
            hint=f'a message is {{"role": …, "content": …}}; roles: {", ".join(_ROLES)}',
        )
    role = message["role"]
    if role not in _ROLES:
        warnings.warn(f"message {place} is skipped: the role {role!r} is unknown", stacklevel=5)
    return role in _ROLES and role != _SKIPPED


def _texts_of_system(messages: Sequence[Message]) -> list[str]:
    return [_text_of(message) for message in messages if message["role"] == "system"]


def _merged(system: str, pieces: list[_Piece]) -> list[_Piece]:
    """The system text in front of what the user says first; alone where the user says nothing."""
    for place, piece in enumerate(pieces):
        first, *more = piece.parts
        if piece.role == "user" and "text" in first[0]:
            text = {"text": f"{system}\n\n{first[0]['text']}"}
            return [*pieces[:place], _Piece("user", [(text, None), *more]), *pieces[place + 1 :]]
    return [_Piece("user", [({"text": system}, None)]), *pieces]


def _pieces(messages: Sequence[Message]) -> Iterator[_Piece]:
    spoken = [message for message in messages if message["role"] != "system"]
    names = _names_of_calls(spoken)
    for are_results, group in groupby(spoken, lambda message: message["role"] in _RESULTS):
        if are_results:
            # The API wants the results of parallel calls together, as the calls were.
            yield _Piece("user", [_function_response(message, names) for message in group])
        else:
            yield from map(_spoken, group)


def _spoken(message: Message) -> _Piece:
    if message["role"] == "user":
        return _Piece("user", [({"text": _text_of(message)}, None)])
    content = message.get("content")
    said = [({"text": _text_of(message)}, None)] if content not in (None, "") else []
    parts = [*said, *map(_function_call, _calls_of(message))]
    return _Piece("model", parts or [({"text": ""}, None)])


def _text_of(message: Message) -> str:
    match message.get("content"):
        case str(text):
            return text
        case None:
            role = message["role"]
            raise PromptTranslationFailed(
                f"a {role} message has no content", hint=f'{{"role": "{role}", "content": "…"}}'
            )
        case data:
            return _json(data)


def _json(data: Any) -> str:
    try:
        return msgspec.json.encode(data).decode()
    except (TypeError, ValueError) as error:
        raise PromptTranslationFailed(
            f"a message's content cannot become JSON: {error}", hint="pass text or plain data"
        ) from error


def _calls_of(message: Message) -> Sequence[Any]:
    calls = message.get("tool_calls") or ()
    if isinstance(calls, str | bytes | Mapping) or not isinstance(calls, Sequence):
        raise PromptTranslationFailed("tool_calls is not a list", hint=_CALL_HINT)
    return calls


_CALL_HINT = (
    '"tool_calls": [{"id": "…", "type": "function", "function": {"name": "…", "arguments": "{…}"}}]'
)


def _function_call(call: Any) -> tuple[dict[str, Any], str | None]:
    match call:
        case {"function": {"name": str(name), "arguments": arguments}} if name:
            part = {"functionCall": {"name": name, "args": _arguments(name, arguments)}}
            call_id = call.get("id")
            return part, call_id if isinstance(call_id, str) else None
        case _:
            raise PromptTranslationFailed(f"not a tool call: {call!r:.200}", hint=_CALL_HINT)


def _arguments(tool: str, arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, str) and not arguments.strip():
        return {}
    try:
        parsed = msgspec.json.decode(arguments) if isinstance(arguments, str) else arguments
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        text = f"the arguments of {tool!r} are not JSON: {error}"
        raise PromptTranslationFailed(text, hint="json.dumps({…})") from error
    if not isinstance(parsed, Mapping):
        raise PromptTranslationFailed(
            f"the arguments of {tool!r} are not an object", hint='"arguments": "{}" for none'
        )
    return dict(parsed)


def _names_of_calls(messages: Sequence[Message]) -> dict[str, str]:
    """The tool of each call, for `tool` messages, which may leave the name out."""
    found = {}
    for message in messages:
        for call in _calls_of(message):
            match call:
                case {"id": str(call_id), "function": {"name": str(name)}}:
                    found[call_id] = name
    return found


def _function_response(
    message: Message, names: Mapping[str, str]
) -> tuple[dict[str, Any], str | None]:
    role, call_id, name = message["role"], message.get("tool_call_id"), message.get("name")
    if role == "tool" and not name and isinstance(call_id, str):
        name = names.get(call_id)
    if not (isinstance(call_id, str) and call_id and isinstance(name, str) and name):
        raise PromptTranslationFailed(
            f"a {role} message is missing required 'tool_call_id' or 'name'",
            hint=f'{{"role": "{role}", "tool_call_id": "…", "name": "…", "content": …}}',
        )
    response = {"content": _plain(message.get("content"))}
    return {"functionResponse": {"name": name, "response": response}}, call_id


def _plain(content: Any) -> Any:
    return content if isinstance(content, str) else msgspec.json.decode(_json(content))
