"""Which requests the Gemini CLI makes for itself, and an answer that lets it go on."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from geminorum.testing.answers import Say
from geminorum.testing.request import Kind, Request

Routing: TypeAlias = Literal["flash", "pro"]

SIDE_KINDS: frozenset[Kind] = frozenset(get_args(Kind)) - {"main", "subagent", "count", "other"}

_KIND_BY_FIELD: dict[str, Kind] = {
    "model_choice": "routing",
    "complexity_score": "routing",
    "next_speaker": "next_speaker",
    "unproductive_state_confidence": "loop_check",
    "corrected_string_escaping": "edit_fix",
    "noChangesRequired": "edit_fix",
}
_KIND_BY_TOOL: dict[str, Kind] = {"googleSearch": "web_search", "urlContext": "web_fetch"}
_TEXT: dict[Kind, str] = {
    "web_search": "FakeGemini has no web. Script it: fake.when(kind='web_search').say('…')",
    "web_fetch": "FakeGemini has no web. Script it: fake.when(kind='web_fetch').say('…')",
    "summary": "A conversation with FakeGemini",
    "compression": "<state_snapshot>A conversation with FakeGemini.</state_snapshot>",
}


def kind_of(request: Request) -> Kind:
    """`main` and `subagent` are the model's own turns; everything else is a side call.

    The CLI streams its turns and nothing else. Only its own requests are judged by that: another
    client may well ask for JSON, and without streaming.
    """
    if request.method not in ("generateContent", "streamGenerateContent"):
        return "count" if request.method == "countTokens" else "other"
    if not _from_cli(request):
        return "main"
    if request.stream:
        return "subagent" if "complete_task" in request.tools else "main"
    return _side_kind(request)


def default_answer(request: Request, routing: Routing) -> Say:
    """The least that the CLI accepts."""
    if request.schema:
        fields = _instance(request.schema) | _decisions(routing)
        known = request.schema.get("properties") or {}
        return _json({name: value for name, value in fields.items() if name in known})
    return Say((_TEXT.get(request.kind, "OK."),))


def _from_cli(request: Request) -> bool:
    # `GeminiCLI/0.61.0/<model> (linux; x64; …)`, or `GeminiCLI-tui/…`, `GeminiCLI-<editor>/…`.
    return request.headers.get("user-agent", "").startswith("GeminiCLI")


def _side_kind(request: Request) -> Kind:
    for field in request.schema.get("properties") or ():
        if field in _KIND_BY_FIELD:
            return _KIND_BY_FIELD[field]
    for tool in request.tools:
        if tool in _KIND_BY_TOOL:
            return _KIND_BY_TOOL[tool]
    if "<state_snapshot>" in request.system + request.prompt:
        return "compression"
    return "summary" if request.prompt.startswith("Summarize the ") else "side"


def _decisions(routing: Routing) -> dict[str, Any]:
    return {
        "model_choice": routing,
        "complexity_score": 90 if routing == "pro" else 10,
        "next_speaker": "user",
        "unproductive_state_confidence": 0.0,
        # Found in no file, so that a failed edit stays the failure that it was.
        "search": "FakeGemini does not repair edits.",
    }


def _json(value: Mapping[str, Any]) -> Say:
    return Say((msgspec.json.encode(value).decode(),))


def _instance(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    wanted = schema.get("required") or properties
    return {name: _value(properties.get(name) or {}) for name in wanted}


def _value(schema: Mapping[str, Any]) -> object:
    if choices := schema.get("enum"):
        return choices[0]
    match str(schema.get("type", "string")).lower():
        case "object":
            return _instance(schema)
        case "array":
            return []
        case "number" | "integer":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case _:
            return "FakeGemini"
