"""The Agent Client Protocol as `gemini --acp` speaks it: JSON-RPC lines, typed, both ways."""

from __future__ import annotations

import re
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from geminorum.decisions import Decision, Deny
from geminorum.runtime import typed
from geminorum.wire.broken_json import mended
from geminorum.wire.fitting import UNREADABLE, fitting
from geminorum.wire.literal import guarded_for_warm
from geminorum.wire.surrogates import loose

PROTOCOL = 1
"""The version of the protocol that these types describe."""

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?!\d)")
_MAX_NAME = 256
"""More than any name of a tool has; ids without end are not looked through."""
_INTERNAL_ERROR = -32603
_S = TypeVar("_S", bound=msgspec.Struct)


# ---- the envelope


class RpcError(msgspec.Struct):
    code: int
    """The HTTP status where the API refused; a negative number of JSON-RPC's own otherwise."""
    message: str
    data: Any = None


class Message(msgspec.Struct):
    """A line: a request has a method and an id, a notification no id, an answer no method."""

    id: int | str | None = None
    method: str | None = None
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: RpcError | None = None
    halved: str | None = field(default=None, name="(halved)")
    """The text of a chunk to the letter, where it has half a surrogate pair in it, which `params`
    cannot have; the wire has no such key."""


_message_decoder = typed.decoder(Message)
_encoder = msgspec.json.Encoder()


def message_of(line: bytes) -> Message | None:
    """The line as a message; None where it is none."""
    try:
        return _message_decoder.decode(line)
    except UNREADABLE:
        return _mended_message(line) or _failure(line)


def _mended_message(line: bytes) -> Message | None:
    """One bad character must not cost the message it stands in."""
    try:
        message = _message_decoder.decode(mended(line)[1])
        message.halved = _chunk_text(loose(line))
        return message
    except (ValueError, RecursionError):
        return None


class _Failure(msgspec.Struct):
    """An answer whose error has another shape than JSON-RPC's. Its caller must get it, too."""

    id: int | str
    error: Any


def _failure(line: bytes) -> Message | None:
    try:
        failure = fitting(_Failure, line)
        error = failure.error
        text = error if isinstance(error, str) else msgspec.json.encode(error).decode()
    except UNREADABLE:
        return None
    return Message(failure.id, error=RpcError(_INTERNAL_ERROR, text))


def _chunk_text(data: Any) -> str | None:
    match data:
        case {"params": {"update": {"sessionUpdate": "agent_message_chunk", "content": content}}}:
            text = content.get("text") if isinstance(content, dict) else None
            return text if isinstance(text, str) else None
        case _:
            return None


def request(number: int, method: str, params: object) -> bytes:
    return _line({"id": number, "method": method, "params": params})


def notification(method: str, params: object) -> bytes:
    return _line({"method": method, "params": params})


def answer(number: int | str | None, result: object) -> bytes:
    return _line({"id": number, "result": result})


def refusal(number: int | str | None, method: str) -> bytes:
    """To a request that we have no answer for: silence would keep the agent waiting forever."""
    error = {"code": -32601, "message": f"Method not found: {method}"}
    return _line({"id": number, "error": error})


def _line(message: dict[str, object]) -> bytes:
    return _encoder.encode({"jsonrpc": "2.0", **message}) + b"\n"


# ---- what we ask


def initialize(version: str) -> dict[str, object]:
    """Neither files nor terminals are offered: the CLI would use them for a part of its tools only,
    and the rest would see another disk."""
    files = {"readTextFile": False, "writeTextFile": False}
    return {
        "protocolVersion": PROTOCOL,
        "clientCapabilities": {"fs": files, "terminal": False},
        "clientInfo": {"name": "geminorum", "title": "geminorum", "version": version},
    }


def prompt(session_id: str, text: str, *, literal: bool) -> dict[str, object]:
    sent = guarded_for_warm(text) if literal else text
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": sent}]}


# ---- what it answers


class AgentInfo(msgspec.Struct):
    name: str = ""
    version: str = ""


class Initialized(msgspec.Struct, rename="camel"):
    protocol_version: Any = None
    agent_info: AgentInfo | None = None


def version_of(hello: Initialized) -> tuple[int, int, int] | None:
    """The agent's version, where it tells one."""
    found = _VERSION.match(hello.agent_info.version) if hello.agent_info else None
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


class Models(msgspec.Struct, rename="camel"):
    current_model_id: str | None = None


class Opened(msgspec.Struct, rename="camel"):
    """The answer to `session/new`, and to `session/load`, which has no id in it."""

    session_id: str = ""
    models: Models | None = None


class TokenCount(msgspec.Struct):
    # Both or none of it: a count that has another name by now is not zero.
    input_tokens: int
    output_tokens: int


class ModelShare(msgspec.Struct):
    model: str = ""
    token_count: TokenCount | None = None


class Quota(msgspec.Struct):
    token_count: TokenCount
    model_usage: list[ModelShare] = []


class _Meta(msgspec.Struct):
    quota: Quota | None = None


class Prompted(msgspec.Struct, rename="camel"):
    """How a prompt ended."""

    stop_reason: str = ""
    meta: _Meta | None = field(default=None, name="_meta")

    @property
    def quota(self) -> Quota | None:
        return self.meta.quota if self.meta else None


def prompted_of(reply: Message) -> Prompted:
    """How a prompt ended; raises a MsgspecError where the answer is none."""
    if (found := decoded(reply.result or b"", Prompted)) is None:
        raise msgspec.DecodeError("the answer to the prompt is no object")
    return found


def decoded(raw: Any, kind: type[_S]) -> _S | None:
    """What fits of it; None where it is no object, or lacks a field that it must have."""
    if raw is UNSET:
        return None
    try:
        return typed.decode(raw, kind)
    except UNREADABLE:
        pass
    try:
        return fitting(kind, raw)
    except UNREADABLE:
        return None


# ---- what it tells meanwhile


class Block(msgspec.Struct):
    type: str = ""
    text: str = ""


class Piece(msgspec.Struct, rename="camel"):
    """Something to show of a tool call: a text, or a file before and after."""

    type: str = ""
    content: Block | None = None
    path: str = ""
    old_text: str | None = None
    new_text: str | None = None


class Location(msgspec.Struct):
    path: str = ""


class ToolCallUpdate(msgspec.Struct, rename="camel", kw_only=True):
    """A tool call, as far as it is told: for people rather than for programs."""

    tool_call_id: str
    status: str | None = None
    title: str = ""
    kind: str = ""
    content: list[Piece] | None = None
    locations: list[Location] | None = None

    @property
    def names_tool(self) -> bool:
        """Does the id begin with a tool's name?"""
        return "__" in self.tool_call_id[1 : _MAX_NAME + 2]

    @property
    def name(self) -> str:
        # The protocol has no place for it; the CLI builds its ids as `name__name_<ms>_<n>`, and a
        # name may have two underscores of its own.
        id = self.tool_call_id
        cuts = [found.start() for found in re.finditer("(?=__)", id[: _MAX_NAME + 2])]
        repeated = [id[:cut] for cut in cuts if id.startswith(f"{id[:cut]}_", cut + 2)]
        return repeated[-1] if repeated else id.partition("__")[0]

    @property
    def text(self) -> str:
        blocks = [piece.content for piece in self.content or () if piece.content is not None]
        return "\n".join(block.text for block in blocks)

    @property
    def diff(self) -> Piece | None:
        return next((piece for piece in self.content or () if piece.type == "diff"), None)


class Option(msgspec.Struct, rename="camel"):
    option_id: str
    kind: str = ""


class Question(msgspec.Struct, rename="camel"):
    """The parameters of `session/request_permission`."""

    session_id: str
    tool_call: ToolCallUpdate
    options: list[Option] = []


class Named(msgspec.Struct, rename="camel"):
    """The session that a request is about."""

    session_id: str


class _Update(msgspec.Struct, tag_field="sessionUpdate", rename="camel"):
    pass


class Words(msgspec.Struct):
    """A block that has a text, whatever else it is."""

    text: str


class Chunk(_Update, tag="agent_message_chunk"):
    content: Words


class ThoughtChunk(_Update, tag="agent_thought_chunk"):
    content: Words


class Commands(_Update, tag="available_commands_update"):
    """What may be typed after a slash. Comes after every session that is opened."""


class CallBegun(ToolCallUpdate, tag_field="sessionUpdate", tag="tool_call", rename="camel"):
    pass


class CallEnded(ToolCallUpdate, tag_field="sessionUpdate", tag="tool_call_update", rename="camel"):
    pass


Update: TypeAlias = Chunk | ThoughtChunk | Commands | CallBegun | CallEnded


class Told(msgspec.Struct, rename="camel"):
    """The parameters of `session/update`, its update still to be read."""

    session_id: str
    update: Raw


_update_decoder: msgspec.json.Decoder[Update] = typed.decoder(Update)


def update_of(raw: Raw) -> Update | str:
    """The update; its name where this version has no word for it."""
    try:
        return _update_decoder.decode(raw)
    except UNREADABLE:
        outline = decoded(raw, _Outline) or _Outline()
        return _of_another_shape(outline, raw) or outline.session_update


class _Outline(msgspec.Struct, rename="camel"):
    session_update: str = "update"
    content: Any = None


def _of_another_shape(outline: _Outline, raw: Raw) -> Update | None:
    """A known update with odd details, as far as it can be read."""
    text = _joined(outline.content)
    match outline.session_update:
        case "agent_message_chunk" if text is not None:
            return Chunk(Words(text))
        case "agent_thought_chunk" if text is not None:
            return ThoughtChunk(Words(text))
        case "tool_call":
            return decoded(raw, CallBegun)
        case "tool_call_update":
            return decoded(raw, CallEnded)
        case _:
            return None


def _joined(content: Any) -> str | None:
    """The text of a content; None where a part of it is no text."""
    texts = []
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, dict) else part
        if not isinstance(text, str):
            return None
        texts.append(text)
    return "".join(texts)


# ---- what we answer


WITHDRAWN: dict[str, object] = {"outcome": {"outcome": "cancelled"}}


def choice(question: Question, decision: Decision | None) -> dict[str, object]:
    """The option that means the decision; None: the question is withdrawn.

    Only ids that were offered, and never one for "always": on an edit the CLI would go on to allow
    every other edit too, and it takes an id that writes to the user's own policies.
    """
    wanted = "reject_once" if isinstance(decision, Deny) else "allow_once"
    offered = [option.option_id for option in question.options if option.kind == wanted]
    if decision is None or not offered:
        return WITHDRAWN
    return {"outcome": {"outcome": "selected", "optionId": offered[0]}}
