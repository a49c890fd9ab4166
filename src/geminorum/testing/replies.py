"""A scripted answer to the JSON that the Gemini API would send; no I/O."""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import msgspec

from geminorum.testing.answers import Call, Fail, Say, Tokens
from geminorum.testing.request import Request, characters

Json: TypeAlias = dict[str, Any]

CHARACTERS_PER_TOKEN = 4

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_MESSAGE = {
    400: "Request contains an invalid argument.",
    401: "Request had invalid authentication credentials.",
    403: "The caller does not have permission.",
    404: "Requested entity was not found.",
    429: "You exceeded your current quota, please check your plan and billing details.",
    500: "An internal error has occurred. Please retry.",
    503: "The model is overloaded. Please try again later.",
}
_RPC = "type.googleapis.com/google.rpc."


def streamed(answer: Say, request: Request, response_id: str) -> list[Json]:
    """The answer as the API streams it: each item is a whole GenerateContentResponse."""
    tokens = answer.tokens or _estimate(answer, request)
    same = {"modelVersion": answer.model or request.model, "responseId": response_id}
    if answer.blocked:
        blocked = {"promptFeedback": {"blockReason": answer.blocked}}
        return [{**blocked, "usageMetadata": _usage(tokens), **same}]
    groups = _part_groups(answer, request) or [[]]
    chunks: list[Json] = [
        {
            "candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0}],
            "usageMetadata": _usage(_so_far(tokens, number, len(groups))),
            **same,
        }
        for number, parts in enumerate(groups, 1)
    ]
    chunks[-1]["candidates"][0] |= _last_words(answer)
    return chunks


def whole(chunks: Sequence[Json]) -> Json:
    """The same answer without streaming: the last chunk, with the parts of all of them."""
    last = dict(chunks[-1])
    if "candidates" in last:
        parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
        content = {"parts": _joined(parts), "role": "model"}
        last["candidates"] = [{**last["candidates"][0], "content": content}]
    return last


def error(answer: Fail, model: str) -> Json:
    """The body of an error, with the details that clients decide a retry by."""
    found: Json = {
        "code": answer.code,
        "message": answer.message or _MESSAGE.get(answer.code, f"Error {answer.code}."),
        "status": answer.status or _STATUS.get(answer.code, "UNKNOWN"),
    }
    if answer.message is None and answer.retry_delay is not None:
        found["message"] += f" Please retry in {_seconds(answer.retry_delay)}."
    if details := _details(answer, model):
        found["details"] = details
    return {"error": found}


def token_count(request: Request) -> Json:
    inner = request.body.get("generateContentRequest") or request.body
    total = _tokens(characters(inner.get("contents")) + characters(inner.get("systemInstruction")))
    return {
        "totalTokens": total,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": total}],
    }


def model_info(model: str) -> Json:
    return {
        "name": f"models/{model}",
        "version": "001",
        "displayName": model,
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
        "thinking": True,
    }


def _part_groups(answer: Say, request: Request) -> list[list[Json]]:
    groups: list[list[Json]] = [[{"text": text, "thought": True}] for text in answer.thoughts]
    groups += [[_part(chunk)] for chunk in answer.chunks]
    if answer.calls:
        groups.append([_call(call, n, request) for n, call in enumerate(answer.calls)])
    return groups


def _part(chunk: str | Mapping[str, Any]) -> Json:
    return {"text": chunk} if isinstance(chunk, str) else dict(chunk)


def _call(call: Call, index: int, request: Request) -> Json:
    part: Json = {"functionCall": {"name": call.tool, "args": dict(call.args)}}
    # As recorded from the API: Gemini 2.5 sends neither an id nor a signature, Gemini 3 sends an
    # id with every call and a signature with the first of a parallel batch.
    if _generation(request.model) >= 3:
        part["functionCall"]["id"] = _call_id(call, index, request)
        if index == 0:
            part["thoughtSignature"] = "RmFrZUdlbWluaSB0aG91Z2h0IHNpZ25hdHVyZQ=="
    return part


def _generation(model: str) -> int:
    digits = model.removeprefix("gemini-").partition("-")[0].partition(".")[0]
    return int(digits) if digits.isdecimal() else 0


def _call_id(call: Call, index: int, request: Request) -> str:
    # Made from the conversation, so that the same test sees the same ids on every run and a
    # resumed session never meets an id twice.
    seed = f"{len(request.contents)} {index} {call.tool} {request.prompt}"
    return hashlib.sha256(seed.encode(errors="replace")).hexdigest()[:8]


def _last_words(answer: Say) -> Json:
    found = {"finishReason": answer.finish, "groundingMetadata": answer.grounding}
    return {name: value for name, value in found.items() if value}


def _so_far(tokens: Tokens, number: int, of: int) -> Tokens:
    # The API reports running totals on every chunk: a client that adds them up must be caught.
    return msgspec.structs.replace(tokens, output=tokens.output * number // of)


def _usage(tokens: Tokens) -> Json:
    counts = {
        "promptTokenCount": tokens.prompt,
        "cachedContentTokenCount": tokens.cached,
        "candidatesTokenCount": tokens.output,
        "thoughtsTokenCount": tokens.thoughts,
        "toolUsePromptTokenCount": tokens.tool,
    }
    # The API leaves out what is zero.
    return {name: n for name, n in counts.items() if n} | {"totalTokenCount": tokens.total}


def _estimate(answer: Say, request: Request) -> Tokens:
    said = characters(answer.chunks) + sum(
        len(call.tool) + characters(call.args) for call in answer.calls
    )
    return Tokens(
        prompt=_prompt_tokens(request),
        output=_tokens(said),
        thoughts=_tokens(characters(answer.thoughts)),
    )


def _prompt_tokens(request: Request) -> int:
    return _tokens(characters(request.contents) + len(request.system))


def _tokens(n_chars: int) -> int:
    return -(-n_chars // CHARACTERS_PER_TOKEN)


def _joined(parts: Sequence[Json]) -> list[Json]:
    found: list[Json] = []
    for kind, group in groupby(parts, key=_plain_text):
        same = list(group)
        if kind is None:
            found += same
        else:
            found.append({**same[0], "text": "".join(part["text"] for part in same)})
    return found


def _plain_text(part: Json) -> str | None:
    return {("text",): "text", ("text", "thought"): "thought"}.get(tuple(part))


def _details(answer: Fail, model: str) -> list[Json]:
    found: list[Json] = []
    if answer.reason:
        info = {"reason": answer.reason, "domain": "googleapis.com"}
        found.append({"@type": _RPC + "ErrorInfo", **info})
    if answer.code == 429:
        found.append({"@type": _RPC + "QuotaFailure", "violations": [_violation(answer, model)]})
    if answer.retry_delay is not None:
        found.append({"@type": _RPC + "RetryInfo", "retryDelay": _seconds(answer.retry_delay)})
    return found


def _violation(answer: Fail, model: str) -> Json:
    period = "Day" if answer.daily else "Minute"
    return {
        "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
        "quotaId": f"GenerateRequestsPer{period}PerProjectPerModel-FreeTier",
        "quotaDimensions": {"location": "global", "model": model},
        "quotaValue": "10",
    }


def _seconds(delay: float) -> str:
    return f"{delay:.9f}".rstrip("0").rstrip(".") + "s"
