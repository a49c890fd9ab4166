"""The API's answers, good and broken, read through Google's SDK: what each comes to."""

import json
import re
from typing import Any

import pytest

from geminorum import Api, Done, Error, Options, Thinking, Tool, ToolUse, connect, run
from geminorum.testing import FakeGemini

# Their calls are handed back, so that one request is all there is.
TOOLS = [Tool(name, "", {"type": "object"}) for name in ("get_weather", "get_time", "f")]

KINDS = {
    "Blocked": "BLOCKED",
    "ModelFault": "INVALID_ANSWER",
    "StreamEndedEarly": "ENDED_EARLY",
    "ProtocolError": "PROTOCOL",
    "kind=auth": "AUTH",
    "kind=invalid": "API",
    "kind=not_found": "MODEL_NOT_FOUND",
    "kind=quota": "QUOTA",
    "kind=server": "SERVER",
}
COUNTS = {
    "prompt_token_count": "input",
    "candidates_token_count": "output",
    "cached_content_token_count": "cached",
    "thoughts_token_count": "thoughts",
    "tool_use_prompt_token_count": "tool",
    "total_token_count": "total",
}


SIGNATURE = "YSBzaWduYXR1cmU="
SAID = {"promptTokenCount": 30, "candidatesTokenCount": 4, "totalTokenCount": 34}


def chunk(*parts: dict[str, Any], usage: dict[str, int] | None = SAID, **candidate: Any):
    """A piece of an answer, or a whole one."""
    content = {"role": "model", "parts": list(parts)}
    found: dict[str, Any] = {"candidates": [{"content": content, **candidate}]}
    return found | ({"usageMetadata": usage} if usage else {})


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"text": words, **more}


def calling(city: str, id: str | None = None, **more: Any) -> dict[str, Any]:
    named = {"id": id} if id else {}
    return {"functionCall": {"name": "get_weather", "args": {"city": city}, **named}, **more}


def failed(code: int, status: str, message: str, *details: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


STOP = {"finishReason": "STOP"}
USAGE = {"prompt_token_count": 30, "candidates_token_count": 4, "total_token_count": 34}
NOTHING = {"text": "", "thoughts": "", "calls": [], "usage": USAGE, "echo": []}
ANSWERS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "text": (
        [chunk(text("A ")), chunk(text("pipe."), **STOP)],
        {"outcome": "stop", "text": "A pipe.", "echo": [text("A pipe.")]},
    ),
    "thoughts": (
        [chunk(text("**Who** waits?", thought=True)), chunk(text("A pipe."), **STOP)],
        {
            "outcome": "stop",
            "text": "A pipe.",
            "thoughts": "**Who** waits?",
            "echo": [text("**Who** waits?", thought=True), text("A pipe.")],
        },
    ),
    "two calls": (
        [
            chunk(calling("Oslo", "c-1", thoughtSignature=SIGNATURE)),
            chunk(calling("Rome", "c-2"), **STOP),
        ],
        {
            "outcome": "tool_calls",
            "calls": [
                ("get_weather", {"city": "Oslo"}, "c-1"),
                ("get_weather", {"city": "Rome"}, "c-2"),
            ],
            "echo": [
                calling("Oslo", "c-1", thoughtSignature=SIGNATURE),
                calling("Rome", "c-2"),
            ],
        },
    ),
    "a call without an id": (
        [chunk(calling("Oslo"), **STOP)],
        {
            "outcome": "tool_calls",
            "calls": [("get_weather", {"city": "Oslo"}, "call_*")],
            "echo": [calling("Oslo", "call_*")],
        },
    ),
    "no counts": (
        [chunk(text("A pipe."), usage=None, **STOP)],
        {"outcome": "stop", "text": "A pipe.", "usage": {}, "echo": [text("A pipe.")]},
    ),
    "a blocked prompt": (
        [{"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": SAID}],
        {"outcome": "Blocked: prompt blocked: SAFETY"},
    ),
    "too long": (
        [chunk(text("A pi"), finishReason="MAX_TOKENS")],
        {"outcome": "length", "text": "A pi"},
    ),
    "an answer for safety": (
        [chunk(text("A pi"), finishReason="SAFETY", finishMessage="not safe")],
        {"outcome": "Blocked: answer stopped: SAFETY not safe", "text": "A pi"},
    ),
    "a recitation": (
        [chunk(text("A pi"), finishReason="RECITATION", finishMessage="a known poem")],
        {"outcome": "Blocked: answer stopped: RECITATION a known poem", "text": "A pi"},
    ),
    "a call that is none": (
        [chunk(finishReason="MALFORMED_FUNCTION_CALL", finishMessage="no such call")],
        {"outcome": "ModelFault retryable: MALFORMED_FUNCTION_CALL no such call"},
    ),
    "another reason": (
        [chunk(text("A pi"), finishReason="OTHER")],
        {"outcome": "other:OTHER", "text": "A pi", "echo": [text("A pi")]},
    ),
    "no end": (
        [chunk(text("A pi"))],
        {"outcome": "StreamEndedEarly retryable: no finishReason after 1 chunk(s)", "text": "A pi"},
    ),
    "no candidate": (
        [{"candidates": [], "usageMetadata": SAID}],
        {"outcome": "StreamEndedEarly retryable: no finishReason after 1 chunk(s)"},
    ),
}
"""The chunks of an answer, and what they come to; what is not said is as in NOTHING."""
BROKEN: dict[str, tuple[list[Any], str]] = {
    "overloaded": (
        [failed(503, "UNAVAILABLE", "Too many poems.")],
        "ApiError kind=server retryable: 503 UNAVAILABLE: Too many poems.",
    ),
    "no quota": (
        [failed(429, "RESOURCE_EXHAUSTED", "No more poems today.")],
        "ApiError kind=quota retryable: 429 RESOURCE_EXHAUSTED: No more poems today.",
    ),
    "no object": ([[1, 2]], "ProtocolError: "),
}
"""What may come instead of the next chunk."""
REFUSALS: dict[str, tuple[int, Any, str]] = {
    "a wrong key": (
        400,
        failed(
            *(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"},
        ),
        "ApiError kind=auth: 400 INVALID_ARGUMENT: API key not valid. Please pass a valid API key.",
    ),
    "no login": (
        401,
        failed(401, "UNAUTHENTICATED", "Who are you?"),
        "ApiError kind=auth: 401 UNAUTHENTICATED: Who are you?",
    ),
    "no model": (
        404,
        failed(404, "NOT_FOUND", "models/poet is not found"),
        "ApiError kind=not_found: 404 NOT_FOUND: models/poet is not found",
    ),
    "a quota with a delay": (
        429,
        failed(
            *(429, "RESOURCE_EXHAUSTED", "No more poems."),
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"},
        ),
        "ApiError kind=quota retryable after=2.5: 429 RESOURCE_EXHAUSTED: No more poems.",
    ),
    "a fault": (
        500,
        failed(500, "INTERNAL", "The poet fell over."),
        "ApiError kind=server retryable: 500 INTERNAL: The poet fell over.",
    ),
    "a proxy": (
        502,
        "<html>Bad Gateway</html>",
        "ApiError kind=server retryable: 502 Bad Gateway: <html>Bad Gateway</html>",
    ),
    "a wrong request": (
        400,
        failed(400, "INVALID_ARGUMENT", "No such field: poem"),
        "ApiError kind=invalid: 400 INVALID_ARGUMENT: No such field: poem",
    ),
}
"""The status and the body of an error, and what it comes to."""


def sse(*chunks: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\r\n\r\n" for each in chunks)


async def read(
    body: bytes, status: int = 200, content_type: str | None = None, stream: bool = True
):
    """Events, result and history of a turn to which the API answers so."""
    usual = "text/event-stream" if stream else "application/json; charset=UTF-8"
    async with FakeGemini() as fake:
        fake.raw(body, status=status, content_type=content_type or usual)
        transport = Api(retries=0, stream=stream, tools=TOOLS)
        options = Options(env=fake.env, model="gemini-3.8-flash")
        async with connect(options, via=transport) as chat:
            async with chat.turn("go") as live:
                events = [event async for event in live]
            return events, live.result, chat.history


def check_answer(events, result, history, stated) -> None:
    thoughts = [event.text for event in events if isinstance(event, Thinking)]
    assert result.text == stated["text"]
    assert "".join(thoughts) == stated["thoughts"]
    assert calls_of(events) == stated["calls"]
    check_counts(result.usage, stated["usage"])
    check_ending(events, result, stated["outcome"])
    if result.ok:
        assert plain(history[-1]["parts"]) == stated["echo"]
    assert [type(event) for event in events].count(Done) == 1


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_streamed_answer(name):
    """S2-20, S2-23, S2-27: texts, thoughts, calls, stop reasons and counts of a stream are read."""
    chunks, stated = ANSWERS[name]
    check_answer(*await read(sse(*chunks)), NOTHING | stated)


@pytest.mark.parametrize(
    "name", [name for name, (chunks, _) in ANSWERS.items() if len(chunks) == 1]
)
async def test_an_answer_at_once(name):
    """S2-23, S2-24, S2-27: an answer without streaming reads like a stream of one chunk."""
    (whole,), stated = ANSWERS[name]
    check_answer(*await read(json.dumps(whole).encode(), stream=False), NOTHING | stated)


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("before", [[], [chunk(text("A pi"))]], ids=["first", "later"])
async def test_a_stream_that_breaks(name, before):
    """S2-21, S2-22: an error in a stream keeps what arrived before it."""
    broken, outcome = BROKEN[name]
    events, result, history = await read(sse(*before, *broken))
    assert result.text == ("A pi" if before else "")
    check_ending(events, result, outcome)
    assert history == []


async def test_a_stream_that_is_cut():
    """S2-21: a stream that ends inside a chunk is an error."""
    events, result, _ = await read(sse(chunk(text("A pi")), chunk(text("pe."), **STOP))[:-40])
    assert result.text == "A pi"
    check_ending(events, result, "ProtocolError: ")


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refusal(name):
    """S2-21, S2-26: HTTP errors become a typed error with what to do next."""
    status, body, outcome = REFUSALS[name]
    if isinstance(body, str):
        events, result, history = await read(body.encode(), status, "text/html; charset=UTF-8")
    else:
        data = json.dumps(body).encode()
        events, result, history = await read(data, status, "application/json; charset=UTF-8")
    check_ending(events, result, outcome)
    assert history == []
    assert result.exception().status == status


@pytest.mark.parametrize(
    ("finish", "code"), [({"finishReason": "STOP"}, None), ({}, "ENDED_EARLY")]
)
async def test_the_done_marker_of_a_gateway_neither_breaks_nor_completes_an_answer(finish, code):
    chunk = {"candidates": [{"content": {"parts": [{"text": "Hel"}]}, **finish}]}
    body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    async with FakeGemini() as fake:
        fake.raw(body, content_type="text/event-stream")
        async with run("go", Options(env=fake.env, model="m"), via=Api(retries=0)) as live:
            async for _ in live:
                pass
    error = live.result.exception()
    assert live.result.text == "Hel"
    assert (error.code if error else None) == code


def calls_of(events):
    found = [event for event in events if isinstance(event, ToolUse)]
    ours = [event for event in found if event.name in {tool.name for tool in TOOLS}]
    return [(e.name, e.input, re.sub(r"^call_\w+$", "call_*", e.id)) for e in ours]


def check_counts(usage, stated):
    told = {name: value for name, value in stated.items() if name in COUNTS and value}
    for theirs, ours in COUNTS.items():
        assert (getattr(usage, ours) if usage else 0) == told.get(theirs, 0), theirs


def check_ending(events, result, outcome: str) -> None:
    error = result.exception()
    if outcome in ("stop", "tool_calls"):
        assert error is None
        assert result.errors == []
    elif outcome.startswith("other:"):
        assert error is None
        assert [(e.code, e.recoverable) for e in result.errors] == [("FINISH", True)]
        assert events[-1].stop_reason == outcome.removeprefix("other:")
    elif outcome == "length":
        assert (error.code, error.retryable) == ("LENGTH", False)
    else:
        kind = next(code for word, code in KINDS.items() if re.search(rf"{word}\b", outcome))
        head, _, text = outcome.partition(": ")
        assert error.code == kind
        assert error.retryable is ("retryable" in head)
        assert error.retry_after == (2.5 if "after=2.5" in head else None)
        # How a parser words what it does not understand is its own affair.
        assert kind == "PROTOCOL" or error.message == text.rstrip(" ") or error.message == text
        assert error.hint
    assert all(e.hint for e in events if isinstance(e, Error) and not e.recoverable)


def plain(parts):
    """Without nulls, and with one name for the ids that we made."""
    text = json.dumps(parts)
    found = json.loads(re.sub(r'"call_\w+"', '"call_*"', text))
    return [
        {
            key: {k: v for k, v in value.items() if v is not None}
            if isinstance(value, dict)
            else value
            for key, value in part.items()
        }
        for part in found
    ]
