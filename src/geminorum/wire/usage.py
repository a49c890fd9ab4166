"""Requests to the tokens of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from geminorum.events import ModelRequest, Tokens, Usage, total_of

_COUNTS = {
    "promptTokenCount": "input",
    "candidatesTokenCount": "output",
    "cachedContentTokenCount": "cached",
    "thoughtsTokenCount": "thoughts",
    "toolUsePromptTokenCount": "tool",
    "totalTokenCount": "total",
}


def added(usages: Sequence[Usage | None]) -> Usage | None:
    """What several processes used together, as one turn; exact where all of them are."""
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None
    names = dict.fromkeys(name for usage in known for name in usage.by_model)
    shares = {
        name: total_of([usage.by_model[name] for usage in known if name in usage.by_model])
        for name in names
    }
    return Usage(
        **msgspec.structs.asdict(total_of(known)),
        by_model=shares,
        tool_calls=sum(usage.tool_calls for usage in known),
        exact=len(known) == len(usages) and all(usage.exact for usage in known),
        requests=tuple(request for usage in known for request in usage.requests),
    )


def usage_of_requests(requests: Sequence[ModelRequest], tool_uses: int) -> Usage | None:
    """A run that was stopped leaves no sums, only the requests that it had finished."""
    if not requests:
        return None
    counts = msgspec.structs.asdict(total_of(requests))
    shares = tokens_by_model(requests)
    return Usage(**counts, by_model=shares, tool_calls=tool_uses, requests=tuple(requests))


def tokens_by_model(requests: Sequence[ModelRequest]) -> dict[str, Tokens]:
    models = dict.fromkeys(request.model for request in requests)
    return {
        name: total_of([request for request in requests if request.model == name])
        for name in models
    }


def request_of(counts: Mapping[str, Any], model: str, at: int = 0) -> ModelRequest | None:
    """What a request consumed, by the API's `usageMetadata`; None where nothing was told."""
    told = {ours: _count(counts.get(theirs)) for theirs, ours in _COUNTS.items()}
    return ModelRequest(**told, model=model, timestamp=at) if any(told.values()) else None


def _count(told: Any) -> int:
    return told if isinstance(told, int) and not isinstance(told, bool) and told > 0 else 0
