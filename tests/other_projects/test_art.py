"""The prompts and answers of ART's own tests, through the provider_adapter, as its tests expect."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_contract_provider_adapter import (
    STREAMED,
    adapter,
    error,
    sse,
    tokens,
    told,
    types,
)

from geminorum.contracts.provider_adapter import translate_to_gemini

__all__ = ["adapter"]


@pytest.fixture(scope="session")
def art(fixtures_folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (fixtures_folder / "art/translate-and-events.json").read_text()
    )
    return found


def on_the_wire(seen: dict[str, Any]) -> dict[str, Any]:
    """A response as the SDK shows it, in the JSON that it was made from."""
    sent = {key: value for key, value in seen.items() if key not in ("text", "$raise")}
    if "$raise" in seen:
        return {"error": {"code": 500, "message": seen["$raise"], "status": "INTERNAL"}}
    if text := seen.get("text"):
        candidate = (seen.get("candidates") or [{}])[0]
        content = {"role": "model", "parts": [{"text": text}]}
        sent["candidates"] = [{**candidate, "content": content}]
    return sent


class TestArt:
    @pytest.mark.parametrize("number", range(4))
    def test_prompts_are_translated_to_the_letter(self, art, number):
        """S2-7, S2-8, S2-9, S2-10, S2-11, S2-12, S2-14, S2-15: as the source has it."""
        case = art["translate"][number]
        assert translate_to_gemini(case["prompt"]) == case["contents"]

    @pytest.mark.parametrize("number", range(4))
    async def test_what_is_sent_is_what_was_translated(self, art, number, adapter, fake_gemini):
        """S2-7: nothing between the translation and the wire changes it."""
        fake_gemini.say("Yes.")
        case = art["translate"][number]
        await told(adapter(), case["prompt"])
        assert fake_gemini.requests[0].contents == case["contents"]

    @pytest.mark.parametrize("stream", STREAMED)
    async def test_a_result_of_an_unknown_call(self, art, stream, adapter, fake_gemini):
        """S2-28: ERROR, then END, before any request."""
        case = art["translate"][4]
        events = await told(adapter(), case["prompt"], stream=stream)
        assert types(events) == ["ERROR", "END"]
        assert error(events).code == case["error_code"]
        assert case["error_contains"] in error(events).message
        assert fake_gemini.log == []

    async def test_the_generation_parameters(self, art, adapter, fake_gemini):
        """S2-31: they arrive under the API's names, and nothing else does."""
        fake_gemini.say("Yes.")
        case = art["generation_config"]
        await told(adapter(), **case["call_options"])
        assert fake_gemini.requests[0].config == case["config"]

    @pytest.mark.parametrize("number", range(3))
    async def test_answers_at_once(self, art, number, adapter, fake_gemini):
        """S2-23, S2-24, S2-25, S2-27: text, a blocked prompt, nothing at all."""
        case = art["non_stream"][number]
        body = json.dumps(on_the_wire(case["response"])).encode()
        fake_gemini.raw(body, content_type="application/json")
        events = await told(adapter(), stream=False)
        assert types(events) == case["events"]
        assert fake_gemini.requests[0].method == "generateContent"
        if "error_contains" in case:
            assert case["error_contains"] in error(events).message
        else:
            assert tokens(events) == [case["token"]]
            assert case["metadata"].items() <= events[1].as_dict()["data"].items()

    async def test_a_stream(self, art, adapter, fake_gemini):
        """S2-17, S2-18, S2-20, S2-22: a token for each chunk, counts filled from earlier ones."""
        case = art["stream"][0]
        fake_gemini.raw(sse(*map(on_the_wire, case["chunks"])))
        events = await told(adapter(), stream=True)
        assert types(events) == ["TOKEN", "TOKEN", "TOKEN", "METADATA", "END"]
        assert tokens(events) == case["tokens"]
        found = events[-2].as_dict()["data"]
        assert case["metadata"].items() <= found.items()
        assert found["providerRawUsage"] == case["raw_usage_last_chunk"]
        assert fake_gemini.requests[0].method == "streamGenerateContent"

    async def test_a_stream_that_breaks(self, art, adapter, fake_gemini):
        """S2-21, S2-22: what arrived is kept, then ERROR and END."""
        case = art["stream"][1]
        fake_gemini.raw(sse(*map(on_the_wire, case["chunks"])))
        events = await told(adapter(), stream=True)
        assert types(events) == case["events"]
        assert tokens(events) == ["Good chunk "]
        assert "Chunk processing error" in error(events).message
