"""What the API wants to see again of its own tool calls, kept between two calls of the adapter.

A message of the shape has no place for a thought signature, and its call ids may be ours. Gemini 3
refuses a call of its own that comes back without its signature.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from geminorum.contracts.provider_adapter.translation import Content, Translated
from geminorum.events import ToolUse

NO_SIGNATURE = "skip_thought_signature_validator"
"""What the API takes for a call whose signature is lost, or that another model made."""

_GENERATION = re.compile(r"gemini-(\d*)")


class _Kept(msgspec.Struct, frozen=True):
    signature: str | None
    model: str


class CallMemory:
    """Tool calls by the id under which the caller knows them; the oldest are forgotten first."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def keep(self, known_as: str, part: dict[str, Any], model: str) -> None:
        """A call's part as the API wrote it; empty where it is not known."""
        self._kept[known_as] = _Kept(part.get("thoughtSignature"), model)
        self._kept.move_to_end(known_as)
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def restored(self, prompt: Translated, model: str) -> list[Content]:
        """The contents with ids and signatures back in their parts, as far as they are known."""
        contents = [
            {**content, "parts": [self._part(*pair, model) for pair in _pairs(content, ids)]}
            for content, ids in zip(prompt.contents, prompt.call_ids, strict=True)
        ]
        return [_signed(content) for content in contents] if _wants_signatures(model) else contents

    def _part(self, part: dict[str, Any], known_as: str | None, model: str) -> dict[str, Any]:
        kept = None if known_as is None else self._kept.get(known_as)
        if kept is None:
            return part
        # The API's own id, or the one that the transport made where the API gave none.
        named = {kind: {"id": known_as, **told} for kind, told in part.items()}
        # A signature is for the model that wrote it; another one refuses it.
        if "functionCall" in part and kept.signature and kept.model == model:
            return {**named, "thoughtSignature": kept.signature}
        return named


def _pairs(content: Content, ids: Sequence[str | None]) -> Iterator[tuple[Any, str | None]]:
    return zip(content["parts"], ids, strict=True)


class CallsInFrames:
    """Finds the part that a ToolUse was read from, in the order in which they were read."""

    def __init__(self) -> None:
        self._frame: object = None
        self._left: list[dict[str, Any]] = []

    def part_of(self, event: ToolUse) -> dict[str, Any]:
        # The calls of one chunk share one frame.
        if event.frame is not self._frame:
            self._frame, self._left = event.frame, _calls_in(event.raw)
        for place, part in enumerate(self._left):
            if part["functionCall"].get("name") == event.name:
                return self._left.pop(place)
        return {}


def _calls_in(frame: Any) -> list[dict[str, Any]]:
    match frame:
        case {"candidates": [{"content": {"parts": [*parts]}}, *_]}:
            return [part for part in parts if isinstance(part.get("functionCall"), dict)]
        case _:
            return []


def _wants_signatures(model: str) -> bool:
    # "gemini-flash-latest" has no number: it is the newest.
    found = _GENERATION.match(model.removeprefix("models/"))
    return found is not None and int(found[1] or 3) >= 3


def _signed(content: Content) -> Content:
    """The first of parallel calls carries the signature; the others never had one."""
    parts: Sequence[dict[str, Any]] = content["parts"]
    for place, part in enumerate(parts):
        if "functionCall" in part:
            signed = {"thoughtSignature": NO_SIGNATURE, **part}
            return {**content, "parts": [*parts[:place], signed, *parts[place + 1 :]]}
    return content
