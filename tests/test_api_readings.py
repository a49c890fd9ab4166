"""The API's answers, good and broken, read through the SDK as fixtures/genai/index.json says."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from geminorum import Api, Done, Error, Options, Thinking, Tool, ToolUse, connect, run
from geminorum.testing import FakeGemini

INDEX = Path(__file__).resolve().parents[2] / "shared/fixtures/genai/index.json"
SCENARIOS: dict[str, dict[str, Any]] = json.loads(INDEX.read_text()) if INDEX.exists() else {}

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


def cases(*kinds: str) -> list[Any]:
    found = [(name, kind) for name, each in SCENARIOS.items() for kind in kinds if each.get(kind)]
    if found:
        return [pytest.param(*case, id="-".join(case)) for case in found]
    return [pytest.param("", "", marks=pytest.mark.skip("../shared/fixtures is not here"))]


async def read_through_the_door(name: str, kind: str):
    scenario = SCENARIOS[name]
    body = (INDEX.parent / scenario[kind]).read_bytes()
    content_type = scenario.get("content-type") or (
        "text/event-stream" if kind == "stream" else "application/json; charset=UTF-8"
    )
    async with FakeGemini() as fake:
        fake.raw(body, status=scenario["status"], content_type=content_type)
        door = Api(retries=0, stream=kind != "whole", tools=TOOLS)
        options = Options(env=fake.env, model="gemini-3.8-flash")
        async with connect(options, via=door) as chat:
            async with chat.turn("go") as live:
                events = [event async for event in live]
            return events, live.result, chat.history


@pytest.mark.parametrize(("name", "kind"), cases("stream", "whole"))
async def test_an_answer_is_read_as_stated(name, kind):
    """S2-20, S2-23, S2-27: texts, thoughts, calls, endings and counts of every scenario."""
    stated = stated_for(name, kind)
    events, result, history = await read_through_the_door(name, kind)
    assert result.text == stated["text"]
    assert (
        "".join(event.text for event in events if isinstance(event, Thinking))
        == (stated["thoughts"])
    )
    assert calls_of(events) == [tuple(call) for call in stated["calls"]]
    check_counts(result.usage, stated["usage"])
    check_ending(events, result, stated["outcome"])
    if result.ok:
        assert plain(history[-1]["parts"]) == plain(echo_of(stated, name))
    assert [type(event) for event in events].count(Done) == 1


@pytest.mark.parametrize(("name", "kind"), cases("body"))
async def test_a_refusal_is_read_as_stated(name, kind):
    """S2-21, S2-26: HTTP errors in every shape, to a typed error with what to do next."""
    events, result, history = await read_through_the_door(name, kind)
    check_ending(events, result, SCENARIOS[name]["proto"]["outcome"])
    assert history == []
    assert result.exception().status == SCENARIOS[name]["status"]


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


def stated_for(name, kind):
    """The index speaks of the stream; a whole answer is one chunk with one count."""
    stated = SCENARIOS[name]["proto"]
    if name == "done-marker":
        # The index states what its prototype did; facts/genai.md §4 says that it is ignored.
        return stated | {"outcome": "stop"}
    if kind == "whole" and name == "no-finish":
        return stated | {"outcome": stated["outcome"].replace("2 chunk", "1 chunk")}
    if kind == "whole" and name == "usage-drops-cached":
        return stated | {"usage": stated["usage"] | {"cached_content_token_count": 0}}
    return stated


def echo_of(stated, name):
    """Better than stated: what has no name here is sent back as it came, too."""
    known = stated["echo_parts"]
    if name == "unknown-part":
        return [{"brandNewPart": {"a": 1}}, *known[1:]]
    return [{**known[0], "brandNewPartField": {"a": 1}}] if name == "unknown-fields" else known


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


def test_the_scenarios_are_all_here():
    if not SCENARIOS:
        pytest.skip("../shared/fixtures is not on this machine")
    assert len(SCENARIOS) == 101
