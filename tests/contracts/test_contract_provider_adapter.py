"""The ProviderAdapter contract (S2): direct model calls in the shape of ART's adapters."""

import asyncio
import gc
import json
import os
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminorum.contracts import provider_adapter
from geminorum.contracts.provider_adapter import (
    DEFAULT_API_MODEL,
    INITIAL_CONTEXT,
    AdapterOptions,
    ARTError,
    CallOptions,
    GeminiAdapter,
    LLMMetadata,
    MissingApiKey,
    PromptTranslationFailed,
    ProviderAdapter,
    StreamEvent,
    ToolCall,
    translate_to_gemini,
)
from geminorum.contracts.provider_adapter.failures import failure_told
from geminorum.contracts.provider_adapter.memory import NO_SIGNATURE, CallMemory
from geminorum.contracts.provider_adapter.telling import Teller
from geminorum.contracts.provider_adapter.translation import translated
from geminorum.errors import GeminorumError, InvalidOptions, QuotaError, RunTimeout
from geminorum.events import Done, Error, TextDelta
from geminorum.testing import FakeGemini, Tokens, prose
from geminorum.wire.genai import verdict as genai_verdict

HI = [{"role": "user", "content": "Hi"}]
ADD = {
    "name": "add",
    "description": "Adds two numbers",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "outputSchema": {"type": "integer"},
}
ADDED = '{"a": 2}'
STREAMED = [True, False]
MODEL = "gemini-2.5-flash"
SIGNATURE = "RmFrZUdlbWluaSB0aG91Z2h0IHNpZ25hdHVyZQ=="

SLOW_BOOK = [prose(50, seed=n) for n in range(400)]

Making = Callable[..., GeminiAdapter]


@pytest.fixture
def adapter(fake_gemini: FakeGemini) -> Making:
    """Makes adapters that talk to the fake, and do not try again where a test wants a failure."""

    def make(**options: Any) -> GeminiAdapter:
        base = {"apiKey": "key-1", "apiBaseUrl": fake_gemini.url, "model": MODEL, "retries": 0}
        return GeminiAdapter({**base, **options})

    return make


async def whole(events: AsyncIterator[StreamEvent]) -> list[StreamEvent]:
    """All events of a call. Whatever a test is about: END is told once, and last."""
    found = [event async for event in events]
    kinds = types(found)
    assert kinds.count("END") == 1
    assert kinds[-1] == "END"
    return found


async def told(
    adapter: GeminiAdapter, prompt: Sequence[dict[str, Any]] = HI, **options: Any
) -> list[StreamEvent]:
    return await whole(await adapter.call(prompt, {"threadId": "t-1", **options}))


def types(events: Sequence[StreamEvent]) -> list[str]:
    return [event.type for event in events]


def tokens(events: Sequence[StreamEvent]) -> list[str]:
    return [event.data for event in events if event.type == "TOKEN"]


def metadata(events: Sequence[StreamEvent]) -> LLMMetadata:
    (found,) = [event.data for event in events if event.type == "METADATA"]
    assert isinstance(found, LLMMetadata)
    return found


def calls(events: Sequence[StreamEvent]) -> list[ToolCall]:
    return [event.data for event in events if event.type == "TOOL_CALL"]


def error(events: Sequence[StreamEvent]) -> ARTError:
    (found,) = [event.data for event in events if event.type == "ERROR"]
    assert isinstance(found, ARTError)
    return found


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def assistant(*made: ToolCall, content: str | None = None) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [call.as_tool_call() for call in made],
    }


def answer(call: ToolCall, content: Any) -> dict[str, Any]:
    known = {"tool_call_id": call.id, "name": call.name}
    return {"role": "tool_result", **known, "content": content}


def called(id: str, name: str, arguments: Any = "{}") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": id, "type": "function", "function": function}


def sse(*chunks: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n" for chunk in chunks)


PROMPTS = {
    "one message": (HI, [{"role": "user", "parts": [{"text": "Hi"}]}]),
    "system and history": (
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Who waits?"},
            {"role": "assistant", "content": "A pipe."},
            {"role": "user", "content": "For whom?"},
        ],
        [
            {"role": "user", "parts": [{"text": "Be brief.\n\nWho waits?"}]},
            {"role": "model", "parts": [{"text": "A pipe."}]},
            {"role": "user", "parts": [{"text": "For whom?"}]},
        ],
    ),
    "tool call": (
        [*HI, {"role": "assistant", "content": None, "tool_calls": [called("c", "add", ADDED)]}],
        [
            {"role": "user", "parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "add", "args": {"a": 2}}}]},
        ],
    ),
    "tool result": (
        [
            *HI,
            {"role": "assistant", "content": None, "tool_calls": [called("c", "add", ADDED)]},
            {"role": "tool_result", "tool_call_id": "c", "name": "add", "content": "4"},
        ],
        [
            {"role": "user", "parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "add", "args": {"a": 2}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "add", "response": {"content": "4"}}}],
            },
        ],
    ),
}
"""Prompts, and the contents of their requests."""


def spoken(text: str, **candidate: Any) -> dict[str, Any]:
    """A response, or a chunk of one, with one candidate."""
    return {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, **candidate}]}


class TestTheShape:
    @pytest.mark.parametrize("name", PROMPTS)
    def test_prompts_are_translated_to_the_letter(self, name):
        """S2-7, S2-8, S2-9, S2-10, S2-11, S2-12, S2-14, S2-15: each sample prompt becomes exactly
        the expected contents."""
        prompt, contents = PROMPTS[name]
        assert translate_to_gemini(prompt) == contents

    @pytest.mark.parametrize("name", PROMPTS)
    async def test_what_is_sent_is_what_was_translated(self, name, adapter, fake_gemini):
        """S2-7: the request body has the translated contents unchanged."""
        fake_gemini.say("Yes.")
        prompt, contents = PROMPTS[name]
        await told(adapter(), prompt)
        assert fake_gemini.requests[0].contents == contents

    @pytest.mark.parametrize("stream", STREAMED)
    async def test_a_result_of_an_unknown_call(self, stream, adapter, fake_gemini):
        """S2-28: a tool result without id and name gives ERROR and END before any request."""
        prompt = [{"role": "tool_result", "content": "4"}]
        events = await told(adapter(), prompt, stream=stream)
        assert types(events) == ["ERROR", "END"]
        assert error(events).code == "PROMPT_TRANSLATION_FAILED"
        assert "missing required 'tool_call_id' or 'name'" in error(events).message
        assert fake_gemini.log == []

    async def test_the_generation_parameters(self, adapter, fake_gemini):
        """S2-31: generation parameters arrive under the API's names, and nothing else does."""
        fake_gemini.say("Yes.")
        chosen = {"temperature": 0.3, "maxOutputTokens": 70, "topP": 0.8, "stopSequences": ["END"]}
        await told(adapter(), **chosen)
        assert fake_gemini.requests[0].config == chosen

    async def test_an_answer_at_once(self, adapter, fake_gemini):
        """S2-23, S2-25: without streaming, the whole text is one TOKEN."""
        counts = {"promptTokenCount": 12, "candidatesTokenCount": 4}
        answer = {**spoken("A pipe.", finishReason="STOP"), "usageMetadata": counts}
        fake_gemini.raw(json.dumps(answer).encode(), content_type="application/json")
        events = await told(adapter(), stream=False)
        assert types(events) == ["TOKEN", "METADATA", "END"]
        assert tokens(events) == ["A pipe."]
        found = events[1].as_dict()["data"]
        assert (found["stopReason"], found["inputTokens"], found["outputTokens"]) == ("STOP", 12, 4)
        assert fake_gemini.requests[0].method == "generateContent"

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (
                {"promptFeedback": {"blockReason": "SAFETY"}, "candidates": []},
                "Gemini API call blocked: SAFETY",
            ),
            (
                {"candidates": []},
                "Invalid response structure from Gemini SDK: No text content found",
            ),
        ],
        ids=["blocked", "empty"],
    )
    async def test_no_answer_at_once(self, answer, words, adapter, fake_gemini):
        """S2-24, S2-27: without streaming, a blocked prompt and an empty answer are ERRORs."""
        fake_gemini.raw(json.dumps(answer).encode(), content_type="application/json")
        events = await told(adapter(), stream=False)
        assert types(events) == ["ERROR", "END"]
        assert words in error(events).message

    async def test_a_stream(self, adapter, fake_gemini):
        """S2-17, S2-18, S2-20, S2-22: each chunk gives a TOKEN; counts missing in the last chunk
        come from earlier ones."""
        fake_gemini.raw(
            sse(
                spoken("A "),
                {**spoken("pipe"), "usageMetadata": {"promptTokenCount": 12}},
                {
                    **spoken(".", finishReason="STOP"),
                    "usageMetadata": {"candidatesTokenCount": 4},
                },
            )
        )
        events = await told(adapter(), stream=True)
        assert types(events) == ["TOKEN", "TOKEN", "TOKEN", "METADATA", "END"]
        assert tokens(events) == ["A ", "pipe", "."]
        found = events[-2].as_dict()["data"]
        assert (found["stopReason"], found["inputTokens"], found["outputTokens"]) == ("STOP", 12, 4)
        assert found["providerRawUsage"] == {"candidatesTokenCount": 4}
        assert fake_gemini.requests[0].method == "streamGenerateContent"

    async def test_a_stream_that_breaks(self, adapter, fake_gemini):
        """S2-21, S2-22: the tokens that arrived are kept, then ERROR and END follow."""
        broken = {"error": {"code": 500, "message": "the model fell over", "status": "INTERNAL"}}
        fake_gemini.raw(sse(spoken("A pipe "), broken))
        events = await told(adapter(), stream=True)
        assert types(events) == ["TOKEN", "ERROR", "END"]
        assert tokens(events) == ["A pipe "]
        assert "the model fell over" in error(events).message


BAD_PROMPTS = {
    "text": "Hi",
    "nothing": None,
    "empty": [],
    "only a request": [{"role": "tool_request", "content": "x"}],
    "no message": [42],
    "no role": [{"content": "Hi"}],
    "a user without words": [{"role": "user", "content": None}],
    "a result without id": [{"role": "tool_result", "name": "add", "content": "3"}],
    "a result without name": [{"role": "tool_result", "tool_call_id": "1", "content": "3"}],
    "an unknown call": [{"role": "tool", "tool_call_id": "1", "content": "3"}],
    "arguments": [{"role": "assistant", "tool_calls": [called("1", "add", "{a: 1}")]}],
    "a list": [{"role": "assistant", "tool_calls": [called("1", "add", "[1]")]}],
    "no function": [{"role": "assistant", "tool_calls": [{"id": "1"}]}],
    "no name": [{"role": "assistant", "tool_calls": [called("1", "")]}],
    "no list": [{"role": "assistant", "tool_calls": {"id": "1"}}],
    "no data": [{"role": "user", "content": object()}],
    "no result": [{"role": "tool_result", "tool_call_id": "1", "name": "add", "content": object()}],
}


class TestTranslation:
    def test_all_system_texts_go_before_what_the_user_says_first(self):
        """S2-8: every system message, wherever it stands, is put before the first user text."""
        prompt = [
            {"role": "system", "content": "Be kind."},
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "system", "content": "Be gone."},
            {"role": "user", "content": "Bye"},
        ]
        first, *_, last = translate_to_gemini(prompt)
        assert first["parts"] == [{"text": "Be kind.\n\nBe brief.\n\nBe gone.\n\nHi"}]
        assert last["parts"] == [{"text": "Bye"}]

    def test_without_a_user_the_system_text_is_the_first_message(self):
        """S2-32: without a user message, the system text becomes one, even if model and tools have
        spoken."""
        system = {"role": "system", "content": "Be kind."}
        spoken = [
            {"role": "assistant", "content": None, "tool_calls": [called("c", "now")]},
            {"role": "tool_result", "tool_call_id": "c", "name": "now", "content": "noon"},
        ]
        first = {"role": "user", "parts": [{"text": "Be kind."}]}
        assert translate_to_gemini([system]) == [first]
        contents = translate_to_gemini([*spoken, system])
        assert contents[0] == first
        assert [content["role"] for content in contents] == ["user", "model", "user"]

    def test_a_history_that_begins_with_the_model_gets_a_turn_before_it(self):
        """S2-16: a dummy user turn is added only if the history starts with the model."""
        contents = translate_to_gemini([{"role": "assistant", "content": "Welcome"}, *HI])
        assert contents[0] == {"role": "user", "parts": [{"text": "(Initial context)"}]}
        assert [content["role"] for content in contents] == ["user", "model", "user"]
        assert INITIAL_CONTEXT not in str(translate_to_gemini(HI))

    def test_what_is_no_text_becomes_json(self):
        """S2-12: other content than text becomes compact JSON, with non-English letters
        unescaped."""
        prompt = [{"role": "user", "content": {"größe": [1, None]}}]
        assert translate_to_gemini(prompt)[0]["parts"] == [{"text": '{"größe":[1,null]}'}]

    def test_an_assistant_says_something_and_asks_for_tools(self):
        """S2-10, S2-14: an assistant message gives its text first, then each call with parsed
        arguments."""
        tools = [called("1", "add", '{"a": 1}'), called("2", "now", {})]
        prompt = [*HI, {"role": "assistant", "content": "Wait", "tool_calls": tools}]
        assert translate_to_gemini(prompt)[1]["parts"] == [
            {"text": "Wait"},
            {"functionCall": {"name": "add", "args": {"a": 1}}},
            {"functionCall": {"name": "now", "args": {}}},
        ]

    @pytest.mark.parametrize("content", [None, ""])
    def test_an_assistant_who_said_nothing(self, content):
        """S2-32: an assistant message without text and calls becomes a part with empty text."""
        contents = translate_to_gemini([*HI, {"role": "assistant", "content": content}])
        assert contents[1] == {"role": "model", "parts": [{"text": ""}]}

    def test_tool_requests_are_skipped_and_unknown_roles_with_a_warning(self):
        """S2-32: the warning names the role and points at the caller's line."""
        quiet = [*HI, {"role": "tool_request", "content": "add"}]
        assert len(translate_to_gemini(quiet)) == 1
        with pytest.warns(UserWarning, match="'critic' is unknown") as caught:
            contents = translate_to_gemini([*HI, {"role": "critic", "content": "Boo"}])
        assert len(contents) == 1
        assert caught[0].filename == __file__

    def test_results_of_parallel_calls_stand_in_one_content(self):
        """B-35, S2-11: the API demands one content for parallel results; the next user text is a
        content of its own."""
        results = [
            {"role": "tool_result", "tool_call_id": "1", "name": "add", "content": "3"},
            {"role": "tool_result", "tool_call_id": "2", "name": "now", "content": {"h": 12}},
        ]
        tools = [called("1", "add"), called("2", "now")]
        asked = {"role": "assistant", "content": None, "tool_calls": tools}
        contents = translate_to_gemini([*HI, asked, *results, {"role": "user", "content": "So?"}])
        assert [content["role"] for content in contents] == ["user", "model", "user", "user"]
        assert contents[2]["parts"] == [
            {"functionResponse": {"name": "add", "response": {"content": "3"}}},
            {"functionResponse": {"name": "now", "response": {"content": {"h": 12}}}},
        ]
        assert contents[3]["parts"] == [{"text": "So?"}]

    def test_a_tool_message_finds_its_name(self):
        """S2-15: a message with the role `tool` may leave out the name, which its call has."""
        asked = {"role": "assistant", "content": None, "tool_calls": [called("1", "add")]}
        result = {"role": "tool", "tool_call_id": "1", "content": "3"}
        part = translate_to_gemini([*HI, asked, result])[2]["parts"][0]
        assert part == {"functionResponse": {"name": "add", "response": {"content": "3"}}}

    @pytest.mark.parametrize("arguments", ["", " \n"])
    def test_a_call_without_arguments_may_leave_their_text_empty(self, arguments):
        """S2-14: `arguments: ""` means no arguments, as in ART."""
        made = {"role": "assistant", "content": None, "tool_calls": [called("c", "now", arguments)]}
        assert translate_to_gemini([made])[1]["parts"] == [
            {"functionCall": {"name": "now", "args": {}}}
        ]

    def test_an_adapter_translates_as_it_would_send(self, adapter):
        """S2-7, S2-9: the method `translate_to_gemini` follows the adapter's `systemInstruction`
        option."""
        prompt = [{"role": "system", "content": "Be brief."}, *HI]
        assert adapter().translate_to_gemini(prompt) == translate_to_gemini(prompt)
        beside = adapter(systemInstruction=True).translate_to_gemini(prompt)
        assert beside == [{"role": "user", "parts": [{"text": "Hi"}]}]
        with pytest.raises(PromptTranslationFailed):
            adapter().translate_to_gemini([])

    def test_the_prompt_is_left_as_it_was(self):
        """S2-7: translating does not modify the caller's prompt."""
        before = json.dumps(PROMPTS)
        for prompt, _ in PROMPTS.values():
            translate_to_gemini(prompt)
        assert json.dumps(PROMPTS) == before

    @pytest.mark.parametrize("prompt", BAD_PROMPTS.values(), ids=BAD_PROMPTS)
    async def test_an_untranslatable_prompt_is_reported_before_any_request(
        self, prompt, adapter, fake_gemini
    ):
        """S2-28: ERROR has the code and says what to write; END follows; nothing is sent."""
        events = await told(adapter(), prompt, stream=True)
        assert types(events) == ["ERROR", "END"]
        assert error(events).code == "PROMPT_TRANSLATION_FAILED"
        assert error(events).hint
        assert fake_gemini.log == []
        with pytest.raises(PromptTranslationFailed):
            translate_to_gemini(prompt)

    json_like = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "name", "id"])
                | st.sampled_from(["function", "arguments"]),
                inner
                | st.sampled_from(["system", "user", "assistant", "tool_result", "tool", "{}"]),
                max_size=5,
            )
        ),
        max_leaves=20,
    )

    @pytest.mark.filterwarnings("ignore:message .* is skipped")
    @given(json_like)
    def test_any_prompt_is_translated_or_refused(self, prompt):
        """S2-28: any input is translated or raises PromptTranslationFailed, and no history starts
        with the model."""
        try:
            contents = translate_to_gemini(prompt)
        except PromptTranslationFailed:
            return
        assert contents[0]["role"] == "user"
        assert all(content["parts"] for content in contents)


class TestTheAdapter:
    async def test_it_is_a_provider_adapter_over_googles_sdk(self, adapter, fake_gemini):
        """S2-1: `GeminiAdapter` satisfies the protocol and calls the API through google-genai."""
        fake_gemini.say("Yes.")
        made = adapter()
        assert isinstance(made, ProviderAdapter)
        assert made.provider_name == "gemini"
        await told(made)
        assert "google-genai-sdk/" in fake_gemini.requests[0].headers["x-goog-api-client"]

    @pytest.mark.parametrize(
        "options", [None, {}, {"apiKey": ""}, {"apiKey": " "}, {"api_key": None}]
    )
    def test_without_a_key_there_is_no_adapter(self, options, monkeypatch):
        """S2-2: the key must be passed, even if the environment has one."""
        monkeypatch.setenv("GEMINI_API_KEY", "from-the-environment")
        with pytest.raises(MissingApiKey, match="GeminiAdapter requires an apiKey in options"):
            GeminiAdapter(options)
        with pytest.raises(MissingApiKey):
            AdapterOptions()

    @pytest.mark.parametrize("options", ["key", {"apiKey": 7}, {"apiKey": "k", "timeout": "long"}])
    def test_wrong_options_are_refused(self, options):
        """S2-2: the error says which option is wrong."""
        with pytest.raises(InvalidOptions):
            GeminiAdapter(options)

    def test_a_wrong_address_is_refused_at_once(self):
        """S2-5: an invalid `apiBaseUrl` raises at construction, before any call."""
        with pytest.raises(InvalidOptions, match="base_url"):
            GeminiAdapter({"apiKey": "k", "apiBaseUrl": "localhost:80"})

    def test_an_unknown_option_is_warned_of(self):
        """S2-2: the warning suggests the nearest option."""
        with pytest.warns(UserWarning, match="did you mean 'api_key'") as caught:
            GeminiAdapter({"apiKey": "k", "apiKye": "k"})
        assert caught[0].filename == __file__

    def test_the_name_of_the_provider_is_no_stranger(self, recwarn):
        """S2-2: `providerName`, which ART's ProviderManager adds to all options, gives no
        warning."""
        made = GeminiAdapter({"apiKey": "k", "model": "m", "providerName": "gemini"})
        assert made.options == AdapterOptions(api_key="k", model="m")
        assert [*recwarn] == []

    async def test_the_key_of_the_environment(self, adapter, fake_gemini, monkeypatch):
        """S2-6: the document's example with GEMINI_API_KEY works, and the key is not in the
        repr."""
        monkeypatch.setenv("GEMINI_API_KEY", "secret-1")
        fake_gemini.say("Yes.")
        made = adapter(apiKey=os.environ["GEMINI_API_KEY"])
        await told(made)
        assert fake_gemini.requests[0].headers["x-goog-api-key"] == "secret-1"
        assert "secret-1" not in repr(made.options)

    @pytest.mark.parametrize(
        "names", [("apiVersion", "apiBaseUrl"), ("api_version", "api_base_url")]
    )
    async def test_address_and_version_are_honoured(self, names, fake_gemini):
        """S2-5: `apiBaseUrl` and `apiVersion` take effect in both spellings."""
        fake_gemini.say("Yes.")
        version, base = names
        made = GeminiAdapter(
            {"apiKey": "k", "model": MODEL, version: "v1alpha", base: f"{fake_gemini.url}/proxy"}
        )
        await told(made)
        assert fake_gemini.requests[0].path == f"/proxy/v1alpha/models/{MODEL}:generateContent"

    async def test_the_default_model_is_warned_of_where_it_is_used(self, fake_gemini, monkeypatch):
        """S2-3, B-27: the warning comes with the call that uses the default, not at
        construction."""
        fake_gemini.say("Yes.").always()
        made = GeminiAdapter({"apiKey": "k", "apiBaseUrl": fake_gemini.url})
        assert DEFAULT_API_MODEL == "gemini-1.5-flash-latest"
        with pytest.warns(DeprecationWarning, match="retired.*gemini-2.5-flash") as caught:
            await told(made)
        assert caught[0].filename == __file__
        await told(made, providerConfig={"modelId": "gemini-2.5-pro-preview-05-06"})
        monkeypatch.setenv("DEFAULT_API_MODEL", "gemini-2.0-flash")
        await told(made)
        models = [request.model for request in fake_gemini.requests]
        assert models == [DEFAULT_API_MODEL, "gemini-2.5-pro-preview-05-06", "gemini-2.0-flash"]

    async def test_which_model_is_asked(self, adapter, fake_gemini):
        """S2-3, S2-4: the call's model wins over the runtime configuration's, and that over the
        adapter's."""
        fake_gemini.say("Yes.").always()
        made = adapter(model="gemini-a")
        runtime = {"providerName": "gemini", "modelId": "gemini-b", "adapterOptions": {}}
        await told(made)
        await told(made, providerConfig=runtime)
        await told(made, provider_config={"model_id": "gemini-b"}, model="gemini-c")
        models = [request.model for request in fake_gemini.requests]
        assert models == ["gemini-a", "gemini-b", "gemini-c"]

    async def test_a_calls_own_adapter_options_go_before_the_adapters(self, adapter, fake_gemini):
        """S2-4, S2-31: `providerConfig.adapterOptions` replaces key and model for its call."""
        fake_gemini.say("ok").always()
        used = adapter(model="of-adapter")
        theirs = {"apiKey": "key-2", "model": "of-config", "systemInstruction": True}
        config = {"providerName": "gemini", "adapterOptions": {**theirs, "providerName": "gemini"}}
        prompt = [{"role": "system", "content": "Be brief."}, *HI]
        await told(used, prompt, providerConfig=config)
        await told(used, prompt, provider_config={"adapter_options": {"api_key": "key-3"}})
        await told(used, prompt, providerConfig={**config, "modelId": "of-id"})
        await told(used, prompt)
        seen = fake_gemini.requests
        keys = [request.headers["x-goog-api-key"] for request in seen]
        assert keys == ["key-2", "key-3", "key-2", "key-1"]
        models = [request.model for request in seen]
        assert models == ["of-config", "of-adapter", "of-id", "of-adapter"]
        prompts = [request.prompt for request in seen]
        assert prompts == ["Hi", "Be brief.\n\nHi", "Hi", "Be brief.\n\nHi"]

    async def test_typed_call_options_take_the_keys_in_either_spelling(self, adapter, fake_gemini):
        """S2-4, S2-31: the typed form uses the key and the model that were asked for, too."""
        fake_gemini.say("ok").always()
        for theirs in ({"apiKey": "key-2", "model": "a"}, {"api_key": "key-3", "model": "b"}):
            call = CallOptions(
                thread_id="t-1", adapter_options={**theirs, "providerName": "gemini"}
            )
            await whole(await adapter(model="of-adapter").call(HI, call))
        seen = [(one.headers["x-goog-api-key"], one.model) for one in fake_gemini.requests]
        assert seen == [("key-2", "a"), ("key-3", "b")]

    async def test_a_calls_adapter_options_are_checked(self, adapter, fake_gemini):
        """S2-2: wrong `adapterOptions` raise, so that no request uses another key or model than
        asked for."""
        for wrong in ({"model": 3}, {"retries": "many"}, ["key"]):
            with pytest.raises(InvalidOptions):
                await told(adapter(), providerConfig={"adapterOptions": wrong})
        with pytest.raises(MissingApiKey):
            await told(adapter(), providerConfig={"adapterOptions": {"apiKey": " "}})
        assert fake_gemini.log == []
        fake_gemini.say("ok")
        with pytest.warns(UserWarning, match="'modle' is ignored; did you mean 'model'") as seen:
            await told(adapter(), providerConfig={"adapterOptions": {"modle": "x"}})
        assert seen[0].filename == __file__

    def test_the_key_of_a_call_is_not_shown(self):
        options = CallOptions.from_dict(
            {"threadId": "t-1", "providerConfig": {"adapterOptions": {"apiKey": "secret-key"}}}
        )
        assert "secret-key" not in repr(options)
        assert "thread_id='t-1'" in repr(options)

    async def test_the_system_instruction_where_it_is_wanted(self, adapter, fake_gemini):
        """B-18, S2-8: with `systemInstruction`, system text is in the API's own field and not in
        the user's message."""
        fake_gemini.say("Yes.").always()
        prompt = [{"role": "system", "content": "Be kind."}, *HI]
        await told(adapter(systemInstruction=True), prompt)
        await told(adapter(system_instruction=False), prompt)
        await told(adapter(systemInstruction=True), prompt[:1])
        real, merged, alone = fake_gemini.requests
        assert (real.system, real.prompt) == ("Be kind.", "Hi")
        assert (merged.system, merged.prompt) == ("", "Be kind.\n\nHi")
        assert (alone.system, alone.prompt) == ("", "Be kind.")

    async def test_one_adapter_serves_many_calls_at_once(self, adapter, fake_gemini):
        """S2-22: parallel calls keep their thread ids, and each has its own END."""
        fake_gemini.reply(lambda request: request.prompt.upper()).always()
        made = adapter()

        async def one(name: str) -> None:
            prompt = [{"role": "user", "content": name}]
            events = await told(made, prompt, threadId=name, stream=True)
            assert tokens(events) == [name.upper()]
            assert {event.thread_id for event in events} == {name}

        await asyncio.gather(*(one(f"call {n}") for n in range(5)))

    def test_the_sdk_is_loaded_at_the_first_call(self):
        """S2-1: importing the module and creating an adapter do not load google-genai."""
        code = (
            "import sys; from geminorum.contracts.provider_adapter import GeminiAdapter; "
            "GeminiAdapter({'apiKey': 'k'}); print('google.genai' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.stdout.strip(), done.stderr) == ("False", "")

    def test_the_module_tells_its_names(self):
        """S2-1: every name in `__all__` exists."""
        for name in provider_adapter.__all__:
            assert getattr(provider_adapter, name) is not None


WRONG_OPTIONS = [
    {"temperature": "hot"},
    {"stop": 7},
    {"stream": "yes"},
    {"tools": "add"},
    {"tools": [{"description": "nameless"}]},
    {"tools": [ADD, ADD]},
    {"tools": [{"name": "a b"}]},
    {"providerConfig": "gemini"},
    {"gemini": "thinking"},
]


class TestCallOptions:
    async def test_a_thread_is_required(self, adapter, fake_gemini):
        """S2-31: a missing `threadId` raises, because there is no stream yet to report it."""
        for options in ({}, {"threadId": None}, {"threadId": ""}):
            with pytest.raises(InvalidOptions, match="threadId"):
                await adapter().call(HI, options)
        with pytest.raises(InvalidOptions, match="options is a str"):
            await adapter().call(HI, "t-1")
        assert fake_gemini.log == []

    @pytest.mark.parametrize(
        "options",
        [
            {"max_tokens": 9, "top_p": 0.5, "top_k": 4, "stop": ["x"]},
            {"maxTokens": 9, "topP": 0.5, "topK": 4, "stop": "x"},
            {"maxOutputTokens": 9, "topP": 0.5, "topK": 4, "stopSequences": ["x"]},
            {"max_output_tokens": 9, "top_p": 0.5, "top_k": 4, "stop_sequences": ["x"]},
            {"max_tokens": 9, "maxOutputTokens": 7, "top_p": 0.5, "top_k": 4, "stop": "x"}
            | {"stopSequences": ["y"], "temperature": None},
        ],
    )
    async def test_every_spelling_of_a_parameter(self, options, adapter, fake_gemini):
        """S2-31: all spellings of a parameter mean the same, and None leaves it out."""
        fake_gemini.say("Yes.")
        await told(adapter(), **options)
        sent = {"maxOutputTokens": 9, "topP": 0.5, "topK": 4, "stopSequences": ["x"]}
        assert fake_gemini.requests[0].config == sent

    async def test_zero_is_a_value(self, adapter, fake_gemini):
        """S2-31: a parameter of 0 is sent; only None is left out."""
        fake_gemini.say("Yes.")
        await told(adapter(), temperature=0, gemini={"thinking": {"thinkingBudget": 0}})
        config = fake_gemini.requests[0].config
        assert config["temperature"] == 0
        assert set(config["thinkingConfig"].values()) == {0}

    @pytest.mark.parametrize("options", WRONG_OPTIONS, ids=str)
    async def test_a_wrong_value_is_thrown(self, options, adapter, fake_gemini):
        """S2-26, S2-31: a parameter of the wrong type raises before the stream exists."""
        with pytest.raises(InvalidOptions):
            await adapter().call(HI, {"threadId": "t", **options})
        assert fake_gemini.log == []

    async def test_unknown_keys_are_kept_and_do_no_harm(self, adapter, fake_gemini):
        """S2-31: unknown call options are allowed and not sent, and neither is `userId`."""
        fake_gemini.say("Yes.")
        options = CallOptions.from_dict({"threadId": "t", "userId": "u", "myKey": 1})
        assert options.extra == {"myKey": 1}
        assert options.user_id == "u"
        await whole(await adapter().call(HI, options))
        assert "myKey" not in str(fake_gemini.requests[0].body)
        assert fake_gemini.requests[0].config == {}

    async def test_schemas_of_tools_are_sent_as_json_schema(self, adapter, fake_gemini):
        """S2-13: schemas go into `parametersJsonSchema`, because `parameters` lacks references and
        unions."""
        schema = {
            "type": "object",
            "properties": {"to": {"$ref": "#/$defs/place"}},
            "$defs": {"place": {"type": ["string", "null"]}},
        }
        fake_gemini.say("Yes.")
        await told(adapter(), tools=[{"name": "go", "inputSchema": schema}])
        (tools,) = fake_gemini.requests[0].body["tools"]
        (sent,) = tools["functionDeclarations"]
        # Google's SDK writes either spelling, by its version; the API takes both.
        (key,) = sent.keys() & {"parametersJsonSchema", "parameters_json_schema"}
        assert sent[key] == schema
        assert "parameters" not in sent

    async def test_tools_are_really_sent(self, adapter, fake_gemini):
        """S2-13: the request has each tool's name, description and JSON Schema as given."""
        fake_gemini.say("Yes.")
        snake = {"name": "now", "input_schema": {"type": "object", "properties": {}}}
        await told(adapter(), tools=[ADD, snake, {"name": "bare"}])
        (tools,) = fake_gemini.requests[0].body["tools"]
        first, second, third = tools["functionDeclarations"]
        assert (first["name"], first["description"]) == ("add", "Adds two numbers")
        assert ADD["inputSchema"] in first.values()
        assert snake["input_schema"] in second.values()
        assert {"type": "object"} in third.values()
        assert "outputSchema" not in str(tools)


class TestEvents:
    @pytest.mark.parametrize("stream", STREAMED)
    @pytest.mark.parametrize(
        ("context", "prefix"),
        [
            ("AGENT_THOUGHT", "AGENT_THOUGHT_"),
            ("FINAL_SYNTHESIS", "FINAL_SYNTHESIS_"),
            ("SUMMARY", ""),
            (None, ""),
        ],
    )
    async def test_the_kind_of_a_token(self, context, prefix, stream, adapter, fake_gemini):
        """S2-19: the two contexts of the document set the token type; any other gives
        LLM_RESPONSE."""
        fake_gemini.say("Yes.", thoughts=["Hm"])
        wish = {"thinking": {"includeThoughts": True, "thinkingBudget": 512}}
        events = await told(adapter(), callContext=context, stream=stream, gemini=wish)
        found = [(event.data, event.token_type) for event in events if event.type == "TOKEN"]
        assert found == [("Hm", f"{prefix}LLM_THINKING"), ("Yes.", f"{prefix}LLM_RESPONSE")]
        assert all(event.token_type is None for event in events if event.type != "TOKEN")
        sent = fake_gemini.requests[0].config["thinkingConfig"]
        assert sorted(sent.values()) == [True, 512]

    @pytest.mark.parametrize("stream", STREAMED)
    async def test_thoughts_come_only_on_request(self, stream, adapter, fake_gemini):
        """S2-29: by default the API is not asked for thoughts; on request they are tokens of their
        own type."""
        fake_gemini.say("Yes.", thoughts=["Hm"], tokens=Tokens(prompt=5, output=2, thoughts=7))
        events = await told(adapter(), stream=stream)
        assert tokens(events) == ["Yes."]
        assert "thinkingConfig" not in fake_gemini.requests[0].config
        # They were paid for all the same.
        assert (metadata(events).output_tokens, metadata(events).thinking_tokens) == (2, 7)

    @pytest.mark.parametrize("stream", STREAMED)
    async def test_the_metadata(self, stream, adapter, fake_gemini):
        """S2-20, S2-25, S2-30: METADATA has counts, stop reason, times, raw usage and the trace
        id."""
        fake_gemini.say("One ", "two.", tokens=Tokens(prompt=40, cached=8, output=6))
        events = await told(adapter(), stream=stream, traceId="trace-1")
        found = metadata(events)
        assert (found.input_tokens, found.output_tokens, found.stop_reason) == (40, 6, "STOP")
        assert found.thinking_tokens is None
        assert found.trace_id == "trace-1"
        assert found.provider_raw_usage is not None
        assert found.provider_raw_usage["cachedContentTokenCount"] == 8
        assert found.time_to_first_token_ms is not None
        assert found.total_generation_time_ms is not None
        assert 0 <= found.time_to_first_token_ms <= found.total_generation_time_ms
        assert types(events) == ["TOKEN"] * (2 if stream else 1) + ["METADATA", "END"]

    async def test_without_streaming_the_text_is_one_token_to_the_letter(
        self, adapter, fake_gemini
    ):
        """S2-23, S2-25: many parts become one TOKEN, and nothing is trimmed."""
        fake_gemini.say("  One ", {"text": "two", "thoughtSignature": SIGNATURE}, " three \n")
        events = await told(adapter(), stream=False)
        assert tokens(events) == ["  One two three \n"]

    async def test_an_event_as_plain_data(self, adapter, fake_gemini):
        """S2-30: `as_dict` has the document's keys; unknown values have none."""
        fake_gemini.say("Yes.").fail(429, "Slow down.", retry_delay=7)
        ids = {"threadId": "t-1", "traceId": "r-1"}
        token, told_metadata, end = await told(adapter(), **ids, sessionId="s-1")
        all_ids = {**ids, "sessionId": "s-1"}
        assert token.as_dict() == {
            "type": "TOKEN",
            "data": "Yes.",
            "tokenType": "LLM_RESPONSE",
            **all_ids,
        }
        assert end.as_dict() == {"type": "END", "data": None, **all_ids}
        assert told_metadata.as_dict()["data"]["stopReason"] == "STOP"
        failed, _ = await told(adapter(), **ids)
        plain = failed.as_dict()
        assert json.loads(json.dumps(plain)) == plain
        assert "sessionId" not in plain
        expected = {"name": "ARTError", "code": "LLM_PROVIDER_ERROR", "cause": "QUOTA"}
        assert {**expected, "status": 429, "retryAfter": 7.0}.items() <= plain["data"].items()

    async def test_a_trace_is_made_where_none_is_given(self, adapter, fake_gemini):
        """S2-30, S2-31: all events of a call share a generated trace id; the next call gets
        another."""
        fake_gemini.say("Yes.").always()
        made = adapter()
        traces = [{event.trace_id for event in await told(made)} for _ in range(2)]
        (first,), (second,) = traces
        assert first.startswith("gemini-trace-")
        assert first != second

    async def test_an_answer_that_reached_its_length_is_an_answer(self, adapter, fake_gemini):
        """S2-20: METADATA has the stop reason MAX_TOKENS, and there is no ERROR."""
        fake_gemini.say("Once upon", finish="MAX_TOKENS")
        events = await told(adapter(), stream=True)
        assert types(events) == ["TOKEN", "METADATA", "END"]
        assert metadata(events).stop_reason == "MAX_TOKENS"

    def test_end_comes_once_even_if_the_transport_fails_after_it(self):
        """S2-22: a failure after END adds no event; consumers cannot provoke this from outside."""
        teller = Teller(CallOptions(thread_id="t"))
        ended = [*teller.tell(TextDelta("Hi")), *teller.tell(Done("success"))]
        assert types(ended) == ["TOKEN", "METADATA", "END"]
        assert [*teller.tell_failure(ARTError("late"))] == []

    def test_a_failure_without_an_error_event_is_a_failure(self):
        """S2-21: a failed call without an error event still gives ERROR; a recoverable notice does
        not count."""
        teller = Teller(CallOptions(thread_id="t", stream=True))
        notice = Error("trying again", "QUOTA", recoverable=True)
        assert [*teller.tell(notice)] == []
        assert types([*teller.tell(Done("interrupted"))]) == ["ERROR", "END"]


class TestFailures:
    @pytest.mark.parametrize("stream", STREAMED)
    @pytest.mark.parametrize(
        ("status", "reason", "cause"),
        [
            (400, "API_KEY_INVALID", "AUTH"),
            (403, None, "AUTH"),
            (404, None, "MODEL_NOT_FOUND"),
            (429, None, "QUOTA"),
            (503, None, "SERVER"),
        ],
    )
    async def test_what_the_api_refuses(self, status, reason, cause, stream, adapter, fake_gemini):
        """S2-26, S2-21: an HTTP error gives an ERROR with the API's message, then END."""
        fake_gemini.fail(status, "No, because.", reason=reason)
        events = await told(adapter(), stream=stream)
        assert types(events) == ["ERROR", "END"]
        found = error(events)
        assert "No, because." in found.message
        assert (found.code, found.status) == ("LLM_PROVIDER_ERROR", status)
        assert isinstance(found.__cause__, GeminorumError)
        assert found.__cause__.code == cause
        assert "key-1" not in str(events[0].as_dict())

    @pytest.mark.parametrize("stream", STREAMED)
    async def test_a_refused_connection_is_an_error(self, stream, adapter):
        """S2-26: an address that refuses connections gives a retryable NETWORK_ERROR, then END."""
        events = await told(adapter(apiBaseUrl="http://127.0.0.1:9"), stream=stream)
        assert types(events) == ["ERROR", "END"]
        assert (error(events).code, error(events).retryable) == ("NETWORK_ERROR", True)

    @pytest.mark.parametrize("stream", STREAMED)
    async def test_the_time_is_up(self, stream, adapter, fake_gemini):
        """S2-26: a call that exceeds its timeout gives TIMEOUT_ERROR, and the request is
        stopped."""
        fake_gemini.say("Hi").hang()
        await told(adapter(), stream=stream)  # Loads the SDK, which may take longer than that.
        events = await told(adapter(timeout=0.3), stream=stream)
        assert types(events) == ["ERROR", "END"]
        assert error(events).code == "TIMEOUT_ERROR"
        assert isinstance(error(events).__cause__, RunTimeout)
        await until(lambda: fake_gemini.abandoned)

    def test_silence_is_a_timeout_too(self):
        """S2-26: the transport's limit on silence is reported as TIMEOUT_ERROR; the real limit is
        too long for a test."""
        found = failure_told(Error("not a word", "STALLED", retryable=True), None, empty=True)
        assert (found.code, found.message, found.retryable) == ("TIMEOUT_ERROR", "not a word", True)

    async def test_a_model_that_cannot_be_one(self, adapter, fake_gemini):
        """S2-26: an impossible model name is an ERROR in the stream, before any request."""
        events = await told(adapter(), model="../secrets?x")
        assert types(events) == ["ERROR", "END"]
        assert fake_gemini.log == []

    @pytest.mark.parametrize("stream", STREAMED)
    async def test_a_blocked_prompt_is_noticed(self, stream, adapter, fake_gemini):
        """S2-24: a block reason gives the document's ERROR in a stream, too."""
        fake_gemini.block("PROHIBITED_CONTENT")
        events = await told(adapter(), stream=stream)
        assert types(events) == ["ERROR", "END"]
        assert error(events).message == "Gemini API call blocked: PROHIBITED_CONTENT"
        assert not error(events).retryable

    async def test_a_stopped_answer_is_told_from_a_blocked_prompt_by_data(
        self, adapter, fake_gemini, monkeypatch
    ):
        """Whatever words the messages begin with, and though both have one code."""
        monkeypatch.setattr(genai_verdict, "ANSWER_STOPPED", "filtered: ")
        monkeypatch.setattr(genai_verdict, "PROMPT_BLOCKED", "answer stopped: ")
        fake_gemini.say("First you", finish="SAFETY").block("SAFETY")
        stopped, blocked = await told(adapter()), await told(adapter())
        assert types(stopped) == ["TOKEN", "METADATA", "ERROR", "END"]
        assert types(blocked) == ["ERROR", "END"]
        assert error(blocked).message == "Gemini API call blocked: SAFETY"

    @pytest.mark.parametrize("stream", STREAMED)
    @pytest.mark.parametrize("reason", ["SAFETY", "RECITATION"])
    @pytest.mark.parametrize("said", [["First you"], []], ids=["begun", "empty"])
    async def test_an_answer_that_a_filter_stopped(
        self, said, reason, stream, adapter, fake_gemini
    ):
        """S2-20, S2-24: text, usage and stop reason are kept, and the ERROR does not say that the
        prompt was blocked."""
        fake_gemini.say(*said, finish=reason, tokens=Tokens(prompt=7, output=2))
        events = await told(adapter(), stream=stream)
        assert types(events) == [*["TOKEN"] * len(said), "METADATA", "ERROR", "END"]
        usage = metadata(events)
        assert (usage.input_tokens, usage.output_tokens, usage.stop_reason) == (7, 2, reason)
        assert usage.provider_raw_usage["promptTokenCount"] == 7
        assert error(events).message == f"Gemini stopped the answer: {reason}"
        assert error(events).__cause__.code == "BLOCKED"

    @pytest.mark.parametrize("stream", STREAMED)
    @pytest.mark.parametrize(
        "said",
        [
            {},
            {"thoughts": ["Hm"]},
            {"finish": None},
            {"finish": "MAX_TOKENS"},
            {"finish": "MALFORMED_FUNCTION_CALL"},
        ],
        ids=str,
    )
    async def test_neither_text_nor_a_tool_call(self, said, stream, adapter, fake_gemini):
        """S2-27: an empty answer is an ERROR with the document's text and the stop reason."""
        fake_gemini.say(**said)
        events = await told(adapter(), stream=stream)
        assert types(events) == ["ERROR", "END"]
        start = "Invalid response structure from Gemini SDK: No text content found ("
        assert error(events).message.startswith(start)
        if isinstance(said.get("finish"), str):
            assert said["finish"] in error(events).message

    @pytest.mark.parametrize("drop", [False, True])
    async def test_a_stream_that_ends_too_early(self, drop, adapter, fake_gemini):
        """S2-21, S2-22: the tokens are kept, and the ERROR names the broken stream, not missing
        text."""
        fake_gemini.truncate("Once ", "upon", drop=drop)
        events = await told(adapter(), stream=True)
        assert types(events)[-2:] == ["ERROR", "END"]
        assert tokens(events)[0] == "Once "
        assert "No text content" not in error(events).message

    async def test_an_error_in_mid_stream(self, adapter, fake_gemini):
        """S2-21, S2-22: an error after some tokens gives ERROR and END after them."""
        fake_gemini.fail(503, "Overloaded.", after=["One ", "two "])
        events = await told(adapter(), stream=True)
        assert types(events) == ["TOKEN", "TOKEN", "ERROR", "END"]
        assert error(events).retryable

    async def test_what_is_not_the_api(self, adapter, fake_gemini):
        """S2-21: an HTML page instead of JSON is an ERROR."""
        fake_gemini.raw(b"<html>Welcome to the hotel</html>", content_type="text/html")
        events = await told(adapter(), stream=False)
        assert types(events) == ["ERROR", "END"]

    async def test_a_request_is_sent_again_without_a_word(self, adapter, fake_gemini):
        """S2-21: a retry that succeeds leaves no ERROR in the stream."""
        fake_gemini.fail(503, retry_delay=0.01).say("Yes.")
        events = await told(adapter(retries=1), stream=True)
        assert types(events) == ["TOKEN", "METADATA", "END"]
        assert len(fake_gemini.requests) == 2

    async def test_an_error_can_be_raised_and_pickled(self, adapter, fake_gemini):
        """S2-26: the data of an ERROR is an exception with geminorum's error as its cause."""
        fake_gemini.fail(429, daily=True)
        found = error(await told(adapter()))
        with pytest.raises(ARTError, match="429") as caught:
            raise found
        assert isinstance(caught.value.__cause__, QuotaError)
        again = pickle.loads(pickle.dumps(found))
        assert again.as_dict()["status"] == 429


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collection")
class TestLeaving:
    async def test_a_break_stops_the_request(self, adapter, fake_gemini):
        """S2-17, S2-22: leaving the loop after the first token closes the connection, even if the
        caller keeps the stream."""
        fake_gemini.say(*SLOW_BOOK, drip=0.05)
        stream = await adapter().call(HI, {"threadId": "t", "stream": True})
        async for event in stream:
            assert event.type == "TOKEN"
            break
        await until(lambda: fake_gemini.abandoned)
        assert [event async for event in stream] == []

    async def test_closing_waits_until_it_is_done(self, adapter, fake_gemini):
        """S2-22: `aclosing` returns after the request has ended."""
        fake_gemini.say(*SLOW_BOOK, drip=0.05)
        call = await adapter().call(HI, {"threadId": "t", "stream": True})
        async with aclosing(call) as stream:
            assert (await anext(stream)).type == "TOKEN"
        await until(lambda: fake_gemini.abandoned)

    async def test_leaving_a_loop_inside_of_aclosing_is_quiet(self, adapter, fake_gemini):
        """S2-22: `break` inside `aclosing` closes the request twice and logs no error."""
        complaints = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
        for number in range(1, 9):
            fake_gemini.say(*SLOW_BOOK, drip=0.05)
            call = await adapter().call(HI, {"threadId": "t", "stream": True})
            async with aclosing(call) as stream:
                async for event in stream:
                    assert event.type == "TOKEN"
                    break
            await until(lambda number=number: len(fake_gemini.abandoned) == number)
        await until(lambda: len(asyncio.all_tasks()) == 1)
        gc.collect()  # What nobody retrieved is reported when its task goes.
        assert complaints == []

    @pytest.mark.parametrize("stream", STREAMED)
    async def test_a_cancelled_task_stops_the_request(self, stream, adapter, fake_gemini):
        """S2-22: cancelling the reading task closes the connection, even before the first token."""
        fake_gemini.hang()
        task = asyncio.create_task(told(adapter(), stream=stream))
        await until(lambda: fake_gemini.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: fake_gemini.abandoned)

    async def test_a_stream_that_nobody_reads_asks_nothing(self, adapter, fake_gemini):
        """S2-26: the request is sent when the first event is requested."""
        await adapter().call(HI, {"threadId": "t", "stream": True})
        assert fake_gemini.log == []


class TestToolCalls:
    @pytest.mark.parametrize("stream", STREAMED)
    async def test_a_call_is_told_and_left_to_the_caller(self, stream, adapter, fake_gemini):
        """B-35, S2-27: a function call is a TOOL_CALL with parsed arguments, and needs no text
        beside it."""
        fake_gemini.calls(("add", {"a": 2}), text="Let me see.")
        events = await told(adapter(), stream=stream, tools=[ADD])
        assert types(events) == ["TOKEN", "TOOL_CALL", "METADATA", "END"]
        (call,) = calls(events)
        assert (call.name, call.arguments) == ("add", {"a": 2})
        assert call.id.startswith("call_")
        assert events[1].as_dict()["data"] == {
            "id": call.id,
            "name": "add",
            "arguments": {"a": 2},
        }
        assert len(fake_gemini.requests) == 1

    async def test_a_call_of_an_undeclared_tool(self, adapter, fake_gemini):
        """B-35: a call of an undeclared tool also goes to the caller; the model is not asked
        again."""
        fake_gemini.call("guess", what="a number")
        events = await told(adapter(), stream=True)
        assert types(events) == ["TOOL_CALL", "METADATA", "END"]
        assert len(fake_gemini.requests) == 1

    @pytest.mark.parametrize("stream", STREAMED)
    async def test_three_steps_with_parallel_calls_and_signatures(
        self, stream, adapter, fake_gemini
    ):
        """B-35, S2-14: signatures return in their parts, ids match on both sides, and results share
        one content."""
        fake_gemini.calls(("add", {"a": 1}), ("add", {"a": 2})).call("add", a=3).say("Six.")
        made = adapter(model="gemini-3-flash-preview")
        prompt: list[dict[str, Any]] = [*HI]
        for result in (1, 2):
            asked = calls(await told(made, prompt, stream=stream, tools=[ADD]))
            prompt += [assistant(*asked), *(answer(call, str(result)) for call in asked)]
        assert tokens(await told(made, prompt, stream=stream, tools=[ADD])) == ["Six."]

        _, model, results, later, last = fake_gemini.requests[2].contents
        first, second = model["parts"]
        assert first["thoughtSignature"] == later["parts"][0]["thoughtSignature"] == SIGNATURE
        assert "thoughtSignature" not in second
        ids = [part["functionCall"]["id"] for part in (first, second, *later["parts"])]
        answered = [*results["parts"], *last["parts"]]
        assert [part["functionResponse"]["id"] for part in answered] == ids
        assert len(set(ids)) == 3
        assert not any(id.startswith("call_") for id in ids)

    async def test_calls_without_an_id_get_ours_at_both_ends(self, adapter, fake_gemini):
        """B-35: generated ids keep two results of one tool apart; no signature is invented."""
        fake_gemini.calls(("add", {"a": 1}), ("add", {"a": 2})).say("Done.")
        made = adapter(model="gemini-2.5-flash")
        one, two = calls(await told(made, tools=[ADD]))
        await told(made, [*HI, assistant(one, two), answer(two, "2"), answer(one, "1")])
        _, model, results = fake_gemini.requests[1].contents
        assert [part["functionCall"]["id"] for part in model["parts"]] == [one.id, two.id]
        found = [part["functionResponse"]["id"] for part in results["parts"]]
        assert found == [two.id, one.id]
        assert "thoughtSignature" not in str(model)

    @pytest.mark.parametrize(
        ("model", "signed"),
        [
            ("gemini-2.5-flash", False),
            ("gemini-3-pro-preview", True),
            ("models/gemini-3.8-flash", True),
            ("gemini-10-ultra", True),
            ("gemini-flash-latest", True),
            ("gemini-1.5-flash-latest", False),
        ],
    )
    async def test_a_call_of_an_unknown_past(self, model, signed, adapter, fake_gemini):
        """B-35: from Gemini 3 on, the first call of an unknown step is marked as lacking its
        signature."""
        fake_gemini.say("Done.")
        one, two = ToolCall("1", "add", {"a": 1}), ToolCall("2", "add", {"a": 2})
        prompt = [*HI, assistant(one, two, content="So"), answer(one, "1"), answer(two, "2")]
        await told(adapter(model=model), prompt)
        text, first, second = fake_gemini.requests[0].contents[1]["parts"]
        assert first.get("thoughtSignature") == (NO_SIGNATURE if signed else None)
        assert "thoughtSignature" not in {**second, **text}
        assert NO_SIGNATURE not in str(translate_to_gemini(prompt))

    async def test_another_model_does_not_get_the_signature(self, adapter, fake_gemini):
        """B-35: the API refuses signatures of another model, so they are left out."""
        fake_gemini.call("add", a=1).say("Done.")
        made = adapter(model="gemini-3-flash-preview")
        (call,) = calls(await told(made, tools=[ADD]))
        await told(made, [*HI, assistant(call), answer(call, "1")], model="gemini-3-pro-preview")
        (part,) = fake_gemini.requests[1].contents[1]["parts"]
        assert part["thoughtSignature"] == NO_SIGNATURE
        assert part["functionCall"]["id"] == call.id

    async def test_signatures_of_calls_in_several_chunks(self, adapter, fake_gemini):
        """B-35: each call gets the signature of its own chunk, in order."""

        def part(number: int, **more: str) -> dict[str, Any]:
            return {"functionCall": {"name": "add", "args": {"a": number}}, **more}

        both = {"text": "", "thoughtSignature": "dGV4dA=="}
        one, two, three = (
            part(1, thoughtSignature="b25l"),
            part(1),
            part(1, thoughtSignature="dHdv"),
        )
        fake_gemini.raw(
            sse(
                {"candidates": [{"content": {"parts": [both, one, two]}}]},
                {"candidates": [{"content": {"parts": [three]}, "finishReason": "STOP"}]},
            )
        )
        fake_gemini.say("Done.")
        made = adapter(model="gemini-3-flash-preview")
        asked = calls(await told(made, stream=True, tools=[ADD]))
        await told(made, [*HI, assistant(*asked), *(answer(call, "1") for call in asked)])
        parts = fake_gemini.requests[1].contents[1]["parts"]
        assert [part.get("thoughtSignature") for part in parts] == ["b25l", None, "dHdv"]

    def test_the_memory_has_an_end(self):
        """B-35: the oldest calls are forgotten first; a call that is seen again counts as new."""
        memory = CallMemory(limit=2)
        for id in ("1", "2", "1", "3"):
            memory.keep(id, {"thoughtSignature": f"s{id}"}, "gemini-2.5-pro")
        asked = [called(id, "add") for id in ("1", "2", "3")]
        prompt = translated([*HI, {"role": "assistant", "content": None, "tool_calls": asked}])
        parts = memory.restored(prompt, "gemini-2.5-pro")[1]["parts"]
        assert [part.get("thoughtSignature") for part in parts] == ["s1", None, "s3"]
