"""The Model Context Protocol as a server of tools speaks it: JSON-RPC messages, in and out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from geminorum._version import __version__
from geminorum.errors import InvalidOptions
from geminorum.hints import python_only
from geminorum.runtime import typed
from geminorum.wire.surrogates import without_halves

SERVER = "geminorum"
"""What the CLI knows us by; it makes the tool `add` to `mcp_geminorum_add` for the model."""
PREFIX = f"mcp_{SERVER}_"

# Newest first. What is served here is the same in all of them.
_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
_LONGEST_NAME = 63
_CLIS_OWN = "wait_for_previous"
"""An argument that the CLI adds to every tool, and passes on."""
INVALID_REQUEST, NO_SUCH_METHOD, INVALID_PARAMS = -32600, -32601, -32602


class Message(msgspec.Struct):
    """A request, or a notification where there is no id."""

    method: str
    id: int | str | None = None
    params: dict[str, Any] = {}


class Declared(msgspec.Struct, frozen=True):
    """A tool, as it is offered."""

    name: str
    description: str
    schema: Mapping[str, Any]


class Refusal(Exception):
    """The answer to what cannot be answered."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


_decoder = typed.decoder(Message)


def message_of(body: bytes) -> Message:
    try:
        return _decoder.decode(without_halves(body))
    except (ValueError, RecursionError) as error:
        raise Refusal(INVALID_REQUEST, str(error)) from error


def answered(request_id: int | str | None, result: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def refused(request_id: int | str | None, refusal: Refusal) -> bytes:
    error = {"code": refusal.code, "message": refusal.message}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error})


def welcome(params: Mapping[str, Any], instructions: str = "") -> dict[str, Any]:
    """The answer to `initialize`: their version of the protocol, where it is one of ours. The
    instructions are for the model: the CLI puts them behind its own."""
    theirs = params.get("protocolVersion")
    told = {"instructions": instructions} if instructions else {}
    return {
        **told,
        "protocolVersion": theirs if theirs in _VERSIONS else _VERSIONS[0],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": SERVER, "version": __version__},
    }


def listing(tools: Sequence[Declared]) -> dict[str, Any]:
    return {
        "tools": [
            {"name": tool.name, "description": tool.description, "inputSchema": tool.schema}
            for tool in tools
        ]
    }


def declared(name: str, description: str, schema: Mapping[str, Any]) -> Declared:
    """A tool for the CLI, which tells the model of one more argument and then refuses it where the
    schema lets no others in. What is too much is found out when the tool is called."""
    open_schema = {key: value for key, value in schema.items() if key != "additionalProperties"}
    return Declared(name, description, open_schema)


def sent_arguments(tool: Declared, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments without the CLI's own, unless the tool has one of that name."""
    known = tool.schema.get("properties") or {}
    return {key: arguments[key] for key in arguments if key != _CLIS_OWN or key in known}


def outcome(text: str, *, failed: bool = False) -> dict[str, Any]:
    """What a tool gave back, as the model shall read it."""
    content = [{"type": "text", "text": text}]
    if failed:
        return {"content": content, "isError": True}
    # The CLI reads a text that is JSON as structured content, and refuses any that is no object:
    # a tool that answers `42` would fail. So there is always an object.
    return {"content": content, "structuredContent": {"result": text}, "isError": False}


def full_name(tool: str) -> str:
    """The name of our tool for the model, the policies and the hooks of the CLI."""
    return f"{PREFIX}{tool}"


def own_name(name: str) -> str:
    """A tool as the caller wrote it; the names of others stay what they are."""
    return name.removeprefix(PREFIX)


def check_names(names: Sequence[str], taken: frozenset[str]) -> None:
    """Refuses names that the CLI would cut, and those that would pass for its own tools."""
    for name in names:
        if len(full_name(name)) > _LONGEST_NAME:
            room = _LONGEST_NAME - len(PREFIX)
            hint = python_only(f"{room} characters at most: Tool.of(function, name=…)")
            raise InvalidOptions(f"the tool name {name!r} is too long", hint=hint)
        if name in taken:
            hint = python_only(f"Tool.of(function, name='my_{name}')")
            raise InvalidOptions(f"there is a tool {name!r} already", hint=hint)
