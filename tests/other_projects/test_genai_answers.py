"""The API's answers, good and broken, read through the SDK as genai/index.json says."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_api_readings import calls_of, check_counts, check_ending, plain, read

from geminorum import Done, Thinking

INDEX = Path(__file__).resolve().parents[3] / "shared/fixtures/genai/index.json"
SCENARIOS: dict[str, dict[str, Any]] = json.loads(INDEX.read_text())


def cases(*kinds: str) -> list[Any]:
    found = [(name, kind) for name, each in SCENARIOS.items() for kind in kinds if each.get(kind)]
    return [pytest.param(*case, id="-".join(case)) for case in found]


async def read_scenario(name: str, kind: str):
    scenario = SCENARIOS[name]
    body = (INDEX.parent / scenario[kind]).read_bytes()
    return await read(body, scenario["status"], scenario.get("content-type"), kind != "whole")


@pytest.mark.parametrize(("name", "kind"), cases("stream", "whole"))
async def test_an_answer_is_read_as_stated(name, kind):
    """S2-20, S2-23, S2-27: texts, thoughts, calls, endings and counts of every scenario."""
    stated = stated_for(name, kind)
    events, result, history = await read_scenario(name, kind)
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
    events, result, history = await read_scenario(name, kind)
    check_ending(events, result, SCENARIOS[name]["proto"]["outcome"])
    assert history == []
    assert result.exception().status == SCENARIOS[name]["status"]


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


def test_the_scenarios_are_all_here():
    assert len(SCENARIOS) == 101
