"""Parses a Gemini client's HTTP request into a Request that a test can inspect."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

import msgspec
from msgspec import Struct

Kind: TypeAlias = Literal[
    "main",
    "subagent",
    "routing",
    "summary",
    "compression",
    "next_speaker",
    "loop_check",
    "edit_fix",
    "web_search",
    "web_fetch",
    "side",
    "count",
    "other",
]

_METHOD = re.compile(r"(?:^|/)(?:models|tunedModels)/(?P<model>[^:]+):(?P<method>\w+)$")

# The CLI puts date, folder and file names before the first prompt, in the same content.
_PREAMBLES = ("<session_context>", "This is the Gemini CLI. We are setting up the context")


class ToolResult(Struct, frozen=True):
    """A tool's result, as the client reports it to the model."""

    name: str
    response: Mapping[str, Any]
    id: str | None = None


class Request(Struct, frozen=True, eq=False):
    """A request as it arrived, with properties for the parts that tests check."""

    model: str
    method: str
    """`generateContent`, `streamGenerateContent` or `countTokens`."""
    path: str
    headers: Mapping[str, str]
    """By lower-case name."""
    body: Mapping[str, Any]
    """The whole JSON body, untouched."""
    at: float
    """When it arrived, in seconds since the epoch."""
    kind: Kind = "main"
    """`main` and `subagent` take scripted answers; most others are the CLI's own side calls."""

    @property
    def stream(self) -> bool:
        return self.method == "streamGenerateContent"

    @property
    def contents(self) -> Sequence[Mapping[str, Any]]:
        found = self.body.get("contents") or []
        return found if isinstance(found, list) else [found]

    @property
    def prompt(self) -> str:
        """The last user message; tool results do not count."""
        return _text(self.contents[index]) if (index := self._prompt_index()) is not None else ""

    @property
    def round(self) -> int:
        """Rounds of tool results since the prompt: 0 for the prompt itself."""
        index = self._prompt_index()
        later = self.contents if index is None else self.contents[index + 1 :]
        return sum(_has_tool_results(content) for content in later)

    @property
    def system(self) -> str:
        found = self.body.get("systemInstruction") or self.body.get("system_instruction") or {}
        return _text(found)

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools the model may call; built-in ones by API name, e.g. `googleSearch`."""
        return tuple(_tool_names(self.body.get("tools") or []))

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The tool results of the last content only."""
        last = self.contents[-1] if self.contents else {}
        found = (part.get("functionResponse") for part in parts_of(last))
        return tuple(
            ToolResult(each.get("name", ""), each.get("response") or {}, each.get("id"))
            for each in found
            if each
        )

    @property
    def config(self) -> Mapping[str, Any]:
        return self.body.get("generationConfig") or {}

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema for the answer; empty if there is none."""
        for name in ("responseJsonSchema", "responseSchema", "response_json_schema"):
            if isinstance(found := self.config.get(name), dict):
                return found
        return {}

    def _prompt_index(self) -> int | None:
        for index in range(len(self.contents) - 1, -1, -1):
            if _is_prompt(self.contents[index]):
                return index
        return None

    def __repr__(self) -> str:
        # The body of a CLI request runs to 100 kB; a failed assertion should stay readable.
        prompt = self.prompt if len(self.prompt) <= 80 else self.prompt[:80] + "…"
        return f"Request(kind={self.kind!r}, model={self.model!r}, prompt={prompt!r})"


def read(path: str, headers: Mapping[str, str], body: bytes) -> Request | None:
    """The request, or None when the path is no call to a model.

    A body that is no JSON object raises ValueError.
    """
    found = _METHOD.search(unquote(path))
    if found is None:
        return None
    content = msgspec.json.decode(body or b"{}")
    if not isinstance(content, dict):
        raise ValueError("the body is not a JSON object")
    return Request(found["model"], found["method"], path, headers, content, time.time())


def characters(value: object) -> int:
    """How many characters of text a piece of JSON holds, keys not counted."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(characters(each) for each in value.values())
    if isinstance(value, list | tuple):
        return sum(characters(each) for each in value)
    return 0


def parts_of(content: object) -> list[Mapping[str, Any]]:
    """The parts of a content; anything malformed is left out."""
    found = content.get("parts") if isinstance(content, Mapping) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _text(content: object) -> str:
    # The CLI sends a bare `{"text": …}` as system instruction; the API takes that too.
    if isinstance(content, Mapping) and isinstance(content.get("text"), str):
        return str(content["text"])
    texts = (str(part["text"]) for part in parts_of(content) if part.get("text"))
    return "\n".join(text for text in texts if not text.startswith(_PREAMBLES))


def _has_tool_results(content: Mapping[str, Any]) -> bool:
    return any("functionResponse" in part for part in parts_of(content))


def _is_prompt(content: Mapping[str, Any]) -> bool:
    if content.get("role", "user") != "user" or not _text(content):
        return False
    # The CLI joins a response that the model never saw with the next prompt, which stands last.
    return not _has_tool_results(content) or bool(parts_of(content)[-1].get("text"))


def _tool_names(tools: list[Mapping[str, Any]]) -> Iterator[str]:
    for tool in tools:
        for name, value in tool.items():
            if name in ("functionDeclarations", "function_declarations"):
                yield from (each["name"] for each in value)
            else:
                yield name
