"""Scripted answers as plain values, without HTTP or JSON."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

Part: TypeAlias = Mapping[str, Any]
"""A Part in the API's format, e.g. `{"inlineData": {…}}`."""

Ending: TypeAlias = Literal["whole", "drop", "hang"]


class Tokens(Struct, frozen=True):
    """The token counts an answer reports, with the API's arithmetic.

    `cached` is part of `prompt`; `thoughts` are not part of `output`.
    """

    prompt: int = 0
    cached: int = 0
    output: int = 0
    thoughts: int = 0
    tool: int = 0

    @property
    def total(self) -> int:
        return self.prompt + self.output + self.thoughts + self.tool


class Call(Struct, frozen=True):
    """The model calls a tool."""

    tool: str
    args: Mapping[str, Any]


class Say(Struct, frozen=True, repr_omit_defaults=True):
    """The model answers: thoughts, then text, then tool calls."""

    chunks: tuple[str | Part, ...] = ()
    thoughts: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    tokens: Tokens | None = None
    finish: str | None = "STOP"
    model: str | None = None
    blocked: str | None = None
    grounding: Mapping[str, Any] | None = None
    delay: float = 0
    drip: float = 0
    ending: Ending = "whole"


class Fail(Struct, frozen=True, repr_omit_defaults=True):
    """The API refuses, with an error in Google's JSON format."""

    code: int
    message: str | None = None
    status: str | None = None
    reason: str | None = None
    retry_delay: float | None = None
    daily: bool = False
    after: tuple[str, ...] = ()
    delay: float = 0
    retry_after: float | None = None


class Hang(Struct, frozen=True):
    """The API accepts the request and never answers."""


class Raw(Struct, frozen=True, repr_omit_defaults=True):
    """Raw bytes, sent as they are."""

    body: bytes
    status: int = 200
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = {}


Answer: TypeAlias = Say | Fail | Hang | Raw
