"""`Api` over a real SDK and a real connection: what is asked, what is said, how it ends."""

import asyncio
import base64
import contextlib
import gc
import gzip
import importlib.util
import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal, get_type_hints

import pytest

from geminorum import (
    Acp,
    Allow,
    AllowAlways,
    Api,
    Blob,
    Chat,
    Cli,
    Deny,
    Done,
    Error,
    GeminorumError,
    Init,
    Link,
    Options,
    PermissionDecision,
    PermissionRequest,
    Pool,
    Text,
    TextDelta,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
    UserMessage,
    ask,
    connect,
    errors,
    run,
    sync,
)
from geminorum.cost import Price, PriceBook
from geminorum.prompt import Content, PromptFile
from geminorum.testing import FakeGemini
from geminorum.testing.answers import Say, Tokens

ROOT = Path(__file__).parents[2]
GEMINI_3 = "gemini-3.8-flash"


@contextlib.contextmanager
def no_descriptor_left():
    """Every descriptor that this process may have is taken."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, limits[0]), limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture
async def fake():
    async with FakeGemini() as running:
        yield running


@pytest.fixture
def options(fake):
    return Options(env=fake.env, model=GEMINI_3)


async def events_of(prompt, options, transport=None):
    async with run(prompt, options, via=transport or Api()) as live:
        events = [event async for event in live]
    return events, live.result


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: Its English name.
    """
    return f"sunny in {city}"


class TestAnAnswer:
    async def test_it_streams_and_ends_with_tokens_and_cost(self, fake, options):
        """S2-17, S2-18, S2-20: a stream gives deltas, one merged text, then exact usage and
        cost."""
        fake.say("Hello ", "world", thoughts=["Hm."], tokens=Tokens(1000, 400, 50, 20))
        events, result = await events_of("Hi", options)
        assert [type(event) for event in events] == [
            *(Init, UserMessage, Thinking, TextDelta, TextDelta, Text, Done),
        ]
        assert (events[0].model, events[1].text, events[2].text) == (GEMINI_3, "Hi", "Hm.")
        assert result.text == "Hello world"
        usage = result.usage
        assert (usage.input, usage.cached, usage.output, usage.thoughts) == (1000, 400, 50, 20)
        assert usage.exact
        # 600 fresh at 0.75, 400 cached at 0.075, 70 written at 3.75 dollars per million.
        assert result.cost.usd == Decimal("0.0007425")
        assert events[-1].stop_reason == "STOP"

    async def test_every_event_knows_session_and_frame(self, fake, options):
        fake.say("Hello")
        events, _ = await events_of("Hi", options.changed(session_id="mine"))
        assert {event.session_id for event in events} == {"mine"}
        assert all(event.timestamp for event in events)
        (delta,) = of(TextDelta, events)
        assert delta.raw["candidates"][0]["content"]["parts"] == [{"text": "Hello"}]

    async def test_without_streaming_the_same_events_come(self, fake, options):
        """S2-23, S2-25: one request for the whole answer gives the same events as a stream."""
        fake.say("Hello ", "world", tokens=Tokens(10, 0, 5))
        events, result = await events_of("Hi", options, Api(stream=False))
        assert not fake.requests[0].stream
        assert [event.text for event in of(TextDelta, events)] == ["Hello world"]
        assert (result.text, result.usage.input) == ("Hello world", 10)

    async def test_a_model_is_taken_where_none_was_named(self, fake, options):
        """B-27: the default model of `Api` is not a retired one."""
        fake.say("a").say("b")
        await ask("Hi", options.changed(model=None), via=Api())
        await ask("Hi", options.changed(model="pro"), via=Api())
        assert [r.model for r in fake.requests] == ["gemini-2.5-flash", "gemini-3.1-pro-preview"]

    async def test_the_system_prompt_is_the_system_instruction(self, fake, options):
        """B-18: the system prompt is sent in the API's own field, not in the user's text."""
        fake.say("Arr")
        await ask("Hi", options.changed(system_prompt="Be a pirate."), via=Api())
        (request,) = fake.requests
        assert request.system == "Be a pirate."
        assert request.contents == [{"role": "user", "parts": [{"text": "Hi"}]}]

    @pytest.mark.parametrize(
        ("model", "wanted"),
        [
            (GEMINI_3, {"include_thoughts": True, "thinking_level": "HIGH"}),
            ("gemini-2.5-flash", {"include_thoughts": True, "thinking_budget": 16384}),
        ],
    )
    async def test_effort_speaks_the_words_of_the_family(self, fake, options, model, wanted):
        fake.say("Hm")
        await ask("Hi", options.changed(model=model, effort="high"), via=Api())
        told = fake.requests[0].config["thinkingConfig"]
        assert {to_snake(key): value for key, value in told.items()} == wanted

    async def test_a_model_that_does_not_think_is_not_asked_to(self, fake, options):
        fake.say("Hi")
        await ask("Hi", options.changed(model="gemini-2.0-flash"), via=Api())
        assert "thinkingConfig" not in fake.requests[0].config

    async def test_more_settings_go_through_the_sdk(self, fake, options):
        fake.say("Hi")
        await ask("Hi", options, via=Api(config={"temperature": 0.2, "seed": 7}))
        assert fake.requests[0].config["temperature"] == 0.2
        assert fake.requests[0].config["seed"] == 7

    async def test_a_compressed_answer_is_read_as_any_other(self, fake, options):
        chunk = b'data: {"candidates":[{"content":{"parts":[{"text":"small"}]},'
        body = gzip.compress(chunk + b'"finishReason":"STOP"}]}\r\n\r\n')
        fake.raw(body, headers={"Content-Encoding": "gzip"})
        assert (await ask("Hi", options, via=Api())).text == "small"

    async def test_google_tools_speak_in_the_words_of_any_tool(self, fake, options):
        fake.say(
            {"executableCode": {"language": "PYTHON", "code": "print(2)", "id": "c1"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2\n", "id": "c1"}},
            "It is 2.",
        )
        transport = Api(config={"tools": [{"code_execution": {}}]})
        events, _ = await events_of("1+1?", options, transport)
        assert fake.requests[0].tools == ("codeExecution",)
        (use,), (result,) = of(ToolUse, events), of(ToolResult, events)
        assert (use.name, use.id, use.input["code"]) == ("code_execution", "c1", "print(2)")
        assert (result.id, result.status, result.output) == ("c1", "success", "2\n")


class TestParts:
    async def test_files_and_bytes_go_with_the_text_in_their_order(self, fake, options, tmp_path):
        picture = tmp_path / "cat.png"
        picture.write_bytes(b"\x89PNG")
        fake.say("A cat")
        options = options.changed(cwd=tmp_path)
        prompt = ["What?", Path("cat.png"), Blob(b"RIFF", "audio/wav"), Link("gs://bucket/a.pdf")]
        events, _ = await events_of(prompt, options)
        assert fake.requests[0].contents[0]["parts"] == [
            {"text": "What?"},
            {"inlineData": {"mimeType": "image/png", "data": encoded(b"\x89PNG")}},
            {"inlineData": {"mimeType": "audio/wav", "data": encoded(b"RIFF")}},
            {"fileData": {"fileUri": "gs://bucket/a.pdf", "mimeType": "application/pdf"}},
        ]
        (echo,) = of(UserMessage, events)
        assert echo.text == "What?\n[image/png]\n[audio/wav]\n[application/pdf]"

    async def test_a_file_that_is_text_is_sent_as_text(self, fake, options, tmp_path):
        notes = tmp_path / "NOTES"
        notes.write_text("Remember the milk.")
        fake.say("Milk")
        await ask(["Read:", notes], options, via=Api())
        assert fake.requests[0].contents[0]["parts"][1] == {"text": "Remember the milk."}

    async def test_what_a_file_is_called_may_mislead(self, fake, options, tmp_path):
        (tmp_path / "app.ts").write_text("let x = 1")
        (tmp_path / "data.json.gz").write_bytes(b"\x1f\x8b\xff")
        fake.say("Code").say("Code")
        prompt = [Path("app.ts"), Path("data.json.gz")]
        await ask(prompt, options.changed(cwd=tmp_path), via=Api())
        text, packed = fake.requests[0].contents[0]["parts"]
        assert text == {"text": "let x = 1"}
        assert packed["inlineData"]["mimeType"] == "application/gzip"
        await ask(tmp_path / "app.ts", options, via=Api())

    async def test_bytes_in_a_content_become_base64(self, fake, options):
        fake.say("A cat")
        part = {"inlineData": {"mimeType": "image/png", "data": b"\x89PNG"}}
        async with connect(options, via=Api()) as chat:
            await chat.ask({"role": "user", "parts": (part,)})
            json.dumps(chat.history)
        assert fake.requests[0].contents[0]["parts"][0]["inlineData"]["data"] == encoded(b"\x89PNG")


class TestTools:
    async def test_three_rounds_carry_signatures_ids_and_results(self, fake, options):
        """B-35, S2-13, S2-15: every call is sent back as it came, with its result under its id."""
        signed = {"thoughtSignature": "+//+c2lnbmVk"}
        first = [
            {"functionCall": {"name": "weather", "args": {"city": "Paris"}, "id": "a"}, **signed},
            {"functionCall": {"name": "weather", "args": {"city": "Rome"}, "id": "b"}},
        ]
        second = {
            "functionCall": {"name": "weather", "args": {"city": "Oslo"}, "id": "c"},
            "thoughtSignature": "c2Vjb25k",
        }
        fake.say(*first).say("One more. ", second)
        fake.say("Sunny", {"text": "", "thoughtSignature": "dGhpcmQ="})
        async with connect(options, via=Api(tools=[weather])) as chat:
            result = await chat.ask("Weather?")
            history = chat.history
        asked, after_one, after_two = fake.requests
        assert asked.tools == ("weather",)
        assert after_one.contents == [
            {"role": "user", "parts": [{"text": "Weather?"}]},
            {"role": "model", "parts": first},
            {"role": "user", "parts": [told("a", "Paris"), told("b", "Rome")]},
        ]
        assert after_two.contents == [
            *after_one.contents,
            {"role": "model", "parts": [{"text": "One more. "}, second]},
            {"role": "user", "parts": [told("c", "Oslo")]},
        ]
        assert result.text == "One more. Sunny"
        assert history[-1]["parts"][-1] == {"text": "", "thoughtSignature": "dGhpcmQ="}
        assert (result.usage.tool_calls, len(result.usage.requests)) == (3, 3)

    async def test_the_declaration_says_what_the_hints_say(self, fake, options):
        fake.say("Hi")
        await ask("Hi", options, via=Api(tools=[weather]))
        (declared,) = fake.requests[0].body["tools"][0]["functionDeclarations"]
        schema = declared.get("parametersJsonSchema") or declared["parameters_json_schema"]
        assert (declared["name"], declared["description"]) == ("weather", "The weather in a city.")
        assert schema["properties"]["city"] == {
            "type": "string",
            "description": "Its English name.",
        }

    async def test_calls_run_side_by_side(self, fake, options):
        both = asyncio.Barrier(2)

        async def meet(name: str) -> str:
            await both.wait()
            return name

        fake.calls(("meet", {"name": "a"}), ("meet", {"name": "b"})).say("Met")
        async with asyncio.timeout(10):
            events, result = await events_of("Go", options, Api(tools=[meet]))
        assert {event.output for event in of(ToolResult, events)} == {"a", "b"}
        assert [r.response["output"] for r in fake.requests[1].tool_results] == ["a", "b"]
        assert result.ok

    async def test_what_goes_wrong_in_a_tool_is_told_to_the_model(self, fake, options):
        def broken(n: int) -> int:
            raise RuntimeError("no luck")

        calls = [("broken", {"n": 1}), ("broken", {"n": "x"}), ("nowhere", {})]
        fake.calls(*calls).say("Oh")
        events, result = await events_of("Go", options, Api(tools=[broken]))
        assert result.text == "Oh"
        outcomes = {event.error_type: event for event in of(ToolResult, events)}
        assert outcomes["tool_failed"].output == "RuntimeError: no luck"
        assert "n" in outcomes["invalid_arguments"].output
        assert (
            outcomes["tool_not_registered"].output
            == "there is no tool 'nowhere'; there are: broken"
        )
        told = [answer.response for answer in fake.requests[1].tool_results]
        assert told[0] == {"error": "RuntimeError: no luck"}
        assert all(set(response) == {"error"} for response in told)

    async def test_a_declared_tool_is_left_to_the_caller(self, fake, options):
        """The turn ends with the call; its result is the next prompt."""
        lookup = Tool("lookup", "Look it up.", {"type": "object", "properties": {}})
        fake.call("lookup").say("Found")
        async with connect(options, via=Api(tools=[lookup])) as chat:
            async with chat.turn("Go") as live:
                (use,) = [event async for event in live if isinstance(event, ToolUse)]
            assert live.result.ok
            answer = {"id": use.id, "name": use.name, "response": {"output": 42}}
            prompt = {"role": "user", "parts": [{"functionResponse": answer}]}
            assert (await chat.ask(prompt)).text == "Found"
        assert fake.requests[1].tool_results[0].response == {"output": 42}

    @pytest.mark.parametrize("list_name", ["allowed_tools", "disallowed_tools"])
    async def test_a_mistyped_function_in_a_list_is_named_with_the_nearest(
        self, fake, options, list_name
    ):
        fake.say("ok")
        transport = Api(tools=[weather])
        with pytest.warns(UserWarning, match="no function 'wether'; did you mean 'weather'"):
            await ask("Hi", options.changed(**{list_name: ("wether",)}), via=transport)

    async def test_allowed_and_disallowed_tools_choose_among_them(self, fake, options):
        def read_file(path: str) -> str:
            return path

        fake.say("a").say("b")
        transport = Api(tools=[weather, read_file])
        await ask("Hi", options.changed(allowed_tools=("read_file",)), via=transport)
        await ask("Hi", options.changed(disallowed_tools=("read_file",)), via=transport)
        assert [r.tools for r in fake.requests] == [("read_file",), ("weather",)]

    async def test_functions_called_for_ever_end_at_the_limit(self, fake, options):
        fake.call("weather", city="Paris").always()
        events, result = await events_of("Go", options.changed(max_turns=3), Api(tools=[weather]))
        assert result.status == "max_turns"
        assert len(fake.requests) == 3
        assert len(of(ToolResult, events)) == 3

    async def test_the_budget_stops_before_the_next_request(self, fake, options):
        prices = PriceBook({GEMINI_3: Price(Decimal(1), Decimal(1), Decimal(1))})
        fake.reply(lambda request: call_for(300_000)).always()
        transport = Api(tools=[weather], prices=prices)
        _, result = await events_of("Go", options.changed(max_budget_usd=0.75), transport)
        assert result.status == "max_budget"
        assert len(fake.requests) == 3
        assert result.cost.usd == Decimal("0.9")

    async def test_a_budget_without_a_price_sends_nothing(self, fake, options):
        transport = Api(tools=[weather], prices=PriceBook({}))
        _, result = await events_of("Go", options.changed(max_budget_usd=1), transport)
        assert result.status == "error"
        assert fake.requests == []

    async def test_nor_does_one_whose_spending_is_not_told(self, fake, options):
        part = {"functionCall": {"name": "weather", "args": {"city": "Rome"}}}
        body = {"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]}
        fake.raw(b"data: " + json.dumps(body).encode() + b"\n\n").always()
        transport = Api(tools=[weather])
        _, result = await events_of("Go", options.changed(max_budget_usd=1), transport)
        assert result.status == "error"
        assert len(fake.requests) == 1

    @pytest.mark.parametrize("leave", ["exit", "cancelled"])
    async def test_a_tool_cannot_end_the_program_or_the_run(self, fake, options, leave):
        async def inner() -> None:
            task = asyncio.ensure_future(asyncio.sleep(60))
            task.cancel()
            await task

        def parse(text: str) -> None:
            sys.exit(2)

        async def waits(text: str) -> None:
            await inner()

        tool = {"exit": parse, "cancelled": waits}[leave]
        fake.call(tool.__name__, text="x").say("Oh")
        events, result = await events_of("Go", options, Api(tools=[tool]))
        assert of(ToolResult, events)[0].error_type == "tool_failed"
        assert result.text == "Oh"


class TestDecisions:
    async def test_a_refused_call_does_not_run_and_the_turn_goes_on(self, fake, options):
        ran = []

        def delete(path: str) -> None:
            ran.append(path)

        async def may_i(request: PermissionRequest):
            return Deny("not that one") if request.input["path"] == "/" else Allow()

        fake.calls(("delete", {"path": "/"}), ("delete", {"path": "a"})).say("Done")
        events, result = await events_of("Go", options, Api(tools=[delete], decide=may_i))
        assert ran == ["a"]
        paths = {e.id: e.input["path"] for e in of(PermissionRequest, events)}
        decisions = {paths[e.id]: e.decision for e in of(PermissionDecision, events)}
        assert decisions == {"/": "deny", "a": "allow"}
        denied = next(e for e in of(ToolResult, events) if e.status == "denied")
        assert denied.output == "the user denied this call: not that one"
        assert fake.requests[1].tool_results[0].response == {"error": denied.output}
        assert result.text == "Done"

    async def test_always_is_asked_once_and_yolo_never(self, fake, options):
        asked = []

        def may_i(request):
            asked.append(request.name)
            return AllowAlways()

        transport = Api(tools=[weather], decide=may_i)
        for _ in range(3):
            fake.call("weather", city="Rome").call("weather", city="Oslo").say("ok")
        await ask("Go", options, via=transport)
        assert asked == ["weather"]
        await ask("Go", options.changed(approval="yolo"), via=transport)
        await ask("Go", options.changed(allowed_tools=("weather",)), via=transport)
        assert asked == ["weather"]

    @pytest.mark.parametrize(("approval", "count"), [(None, 1), ("default", 1), ("yolo", 0)])
    async def test_approval_says_whether_decide_is_asked(self, fake, options, approval, count):
        asked = []

        def may_i(request):
            asked.append(request.name)
            return Allow()

        fake.call("weather", city="Rome").say("ok")
        transport = Api(tools=[weather], decide=may_i)
        await ask("Go", options.changed(approval=approval), via=transport)
        assert asked == ["weather"] * count

    async def test_a_cancel_while_the_question_stands_runs_nothing(self, fake, options):
        ran, asked = [], asyncio.Event()

        def delete(path: str) -> None:
            ran.append(path)

        async def may_i(request):
            asked.set()
            await asyncio.Event().wait()

        fake.call("delete", path="/")
        async with run("Go", options, via=Api(tools=[delete], decide=may_i)) as live:
            await asked.wait()
            await live.cancel()
            events = [event async for event in live]
        assert ran == []
        assert events[-1].status == "interrupted"


class TestConversations:
    async def test_turns_know_what_was_said_and_the_history_can_be_kept(self, fake, options):
        fake.say("One").say("Two").say("Three")
        async with connect(options, via=Api()) as chat:
            await chat.ask("First")
            second = await chat.ask("Second")
            kept = json.loads(json.dumps(chat.history))
        async with connect(options, via=Api(history=kept)) as chat:
            third = await chat.ask("Third")
        texts = [[p["text"] for c in r.contents for p in c["parts"]] for r in fake.requests]
        assert texts[2] == ["First", "One", "Second", "Two", "Third"]
        assert second.session_id != third.session_id

    @pytest.mark.parametrize("verb", [connect, sync.connect])
    def test_a_transport_without_a_history_says_so_before_anything_runs(self, options, verb):
        for transport in (Cli(executable="/nowhere"), Acp(executable="/nowhere"), Pool(Acp())):
            with pytest.raises(errors.Unsupported, match="has no history"):
                _ = verb(options, via=transport).history

    def test_the_history_of_a_chat_has_a_type(self):
        for chat in (Chat, sync.Chat):
            assert get_type_hints(chat.history.fget)["return"] == list[Content]

    async def test_a_failed_turn_leaves_no_trace(self, fake, options):
        fake.say("One").block().say("Three")
        async with connect(options, via=Api()) as chat:
            await chat.ask("First")
            with pytest.raises(errors.Blocked):
                await chat.ask("Second")
            await chat.ask("Third")
        assert [c["parts"][0]["text"] for c in fake.requests[2].contents] == [
            *("First", "One", "Third"),
        ]

    async def test_an_answer_of_another_shape_is_no_history_either(self, fake, options):
        fake.say("none").say('{"name": "Rome", "people": 3}')
        wanted = options.changed(output_schema=City)
        async with connect(wanted, via=Api()) as chat:
            with pytest.raises(errors.InvalidAnswer):
                await chat.ask("City?")
            assert chat.history == []
            assert (await chat.ask("City?")).data == City("Rome", 3)

    async def test_a_tool_that_was_finished_is_known_where_another_was_cancelled(
        self, fake, options
    ):
        paid, waiting = asyncio.Event(), asyncio.Event()

        async def pay() -> str:
            paid.set()
            return "paid 5"

        async def wait() -> None:
            waiting.set()
            await asyncio.Event().wait()

        fake.calls(("pay", {}), ("wait", {})).say("So it is.")
        async with connect(options, via=Api(tools=[pay, wait])) as chat:
            async with chat.turn("Go"):
                await paid.wait()
                await waiting.wait()
            await chat.ask("What happened?")
        (results,) = [c for c in fake.requests[1].contents if "functionResponse" in c["parts"][0]]
        told = [part["functionResponse"]["response"] for part in results["parts"]]
        assert told == [{"output": "paid 5"}, {"error": "cancelled before it was finished"}]

    async def test_what_the_tools_did_stays_known_when_the_turn_fails(self, fake, options):
        fake.call("weather", city="Rome").block().say("Sunny")
        async with connect(options, via=Api(tools=[weather])) as chat:
            with pytest.raises(errors.Blocked):
                await chat.ask("Weather?")
            assert (await chat.ask("So?")).text == "Sunny"
        roles = [content["role"] for content in fake.requests[2].contents]
        assert roles == ["user", "model", "user", "user"]

    async def test_one_turn_at_a_time(self, fake, options):
        fake.hang()
        async with connect(options, via=Api()) as chat, chat.turn("One"):
            with pytest.raises(errors.SessionBusy, match="still running"):
                await chat.ask("Two")

    async def test_a_turn_ends_with_its_chat(self, fake, options):
        fake.hang("Hello")
        async with connect(options, via=Api()) as chat:
            live = chat.turn("One")
            await live.__aenter__()
        assert (await live.read())[-1].status == "interrupted"
        await live.__aexit__()
        with pytest.raises(GeminorumError, match="not open"):
            chat.turn("Two")

    def test_one_transport_serves_many_loops(self):
        with FakeGemini(default="Hi") as fake:
            transport, options = Api(), Options(env=fake.env)
            assert [sync.ask("Hi", options, via=transport).text for _ in range(3)] == ["Hi"] * 3
            with sync.connect(options, via=transport) as chat:
                assert chat.ask("Hi").text == "Hi"
                assert len(chat.history) == 2


@dataclass
class City:
    name: str
    people: int


class TestStructuredOutput:
    async def test_the_answer_is_a_typed_value(self, fake, options):
        fake.say('{"name": "Rome",', ' "people": 3}')
        result = await ask("City?", options.changed(output_schema=City), via=Api())
        assert result.data == City("Rome", 3)
        config = fake.requests[0].config
        assert config["responseMimeType"] == "application/json"
        assert fake.requests[0].schema["properties"]["people"] == {"type": "integer"}

    async def test_an_answer_of_another_shape_is_an_error_that_keeps_it(self, fake, options):
        fake.say('{"name": "Rome", "people": "many"}')
        with pytest.raises(errors.InvalidAnswer, match="people") as caught:
            await ask("City?", options.changed(output_schema=City), via=Api())
        assert caught.value.result.text == '{"name": "Rome", "people": "many"}'
        assert caught.value.result.data is None

    @pytest.mark.parametrize("wanted", [Literal["a", "b"], {"type": "string"}], ids=repr)
    async def test_a_shape_may_be_a_text(self, fake, options, wanted):
        fake.say('"a"')
        assert (await ask("?", options.changed(output_schema=wanted), via=Api())).data == "a"

    async def test_an_answer_in_a_fence(self, fake, options):
        fake.say('```json\n{"name": "Rome", "people": 3}\n```')
        result = await ask("City?", options.changed(output_schema=City), via=Api())
        assert result.data == City("Rome", 3)


class TestStopping:
    async def test_leaving_the_block_closes_the_connection_at_once(self, fake, options):
        """Garbage collection does nothing for it."""
        fake.say(*(f"{n} " for n in range(100)), drip=0.05)
        gc.disable()
        try:
            async with run("Count", options, via=Api()) as live:
                async for event in live:
                    if isinstance(event, TextDelta) and event.text == "2 ":
                        break
            await abandoned(fake)
        finally:
            gc.enable()
        assert live.result.status == "interrupted"
        assert live.result.text.startswith("0 1 2 ")
        assert not live.result.usage.exact

    async def test_a_dropped_iterator_a_cancelled_task_and_an_exception(self, fake, options):
        fake.hang("Hello").always()

        async def consume():
            async with run("Hi", options, via=Api()) as live:
                async for _ in live:
                    pass

        task = asyncio.create_task(consume())
        await arrived(fake, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        async def fail():
            async with run("Hi", options, via=Api()) as live:
                async for event in live:
                    if isinstance(event, TextDelta):
                        raise KeyError

        with pytest.raises(KeyError):
            await fail()
        async for event in run("Hi", options, via=Api()):
            if isinstance(event, TextDelta):
                break
        await abandoned(fake, 3)

    async def test_nothing_is_printed_and_nothing_is_left(self, tmp_path):
        """A whole program: breaks off, closes its loop, ends."""
        script = Path(__file__).parents[1] / "api_break.py"
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-W", "error", str(script)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stderr == ""
        told = json.loads(done.stdout)
        assert told["abandoned"] == 1
        assert told["tasks"] == []

    async def test_the_whole_time_is_limited(self, fake, options):
        fake.hang("Hello")
        with pytest.raises(errors.RunTimeout) as caught:
            await ask("Hi", options.changed(timeout=2), via=Api())
        assert caught.value.result.text == "Hello"

    async def test_so_is_the_silence(self, fake, options):
        fake.hang("Hello")
        with pytest.raises(errors.Stalled, match=r"no data from the API for 1\.5 s") as caught:
            await ask("Hi", options, via=Api(idle_timeout=1.5))
        assert caught.value.result.text == "Hello"

    async def test_a_slow_consumer_is_no_silence_and_loses_nothing(self, fake, options):
        fake.say(*(f"{n} " for n in range(3000)))
        seen = 0
        async with run("Count", options, via=Api(idle_timeout=3)) as live:
            async for event in live:
                if isinstance(event, TextDelta):
                    seen += 1
                    if seen == 1:
                        await asyncio.sleep(4)
        assert live.result.ok, live.result.errors
        assert seen == 3000

    async def test_a_tool_that_will_not_be_cancelled_is_left_behind(self, fake, options):
        started, free = asyncio.Event(), asyncio.Event()

        async def stubborn() -> None:
            started.set()
            while not free.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await free.wait()

        fake.call("stubborn")
        async with run("Go", options, via=Api(tools=[stubborn], grace=0.1)) as live:
            await started.wait()
        assert live.result.status == "interrupted"
        free.set()

    @pytest.mark.parametrize("count", ['"12"', "-5", "1.5", "[]"])
    async def test_counts_that_are_none_do_not_matter(self, fake, options, count):
        chunk = '{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}],'
        chunk += '"usageMetadata":{"promptTokenCount":' + count + "}}"
        fake.raw(b"data: " + chunk.encode() + b"\n\n")
        result = await ask("Hi", options, via=Api())
        assert (result.text, result.usage) == ("Hi", None)

    async def test_prices_that_fail_do_not_take_the_answer_along(self, fake, options):
        class Broken(PriceBook):
            def price_of(self, model):
                raise KeyError(model)

        fake.say("Hi")
        result = await ask("Hi", options, via=Api(prices=Broken({})))
        assert (result.text, result.cost) == ("Hi", None)
        assert "KeyError" in result.cost_note

    async def test_a_tool_that_never_returns_does_not_hold_the_end(self, fake, options):
        started = asyncio.Event()

        async def forever() -> None:
            started.set()
            await asyncio.Event().wait()

        fake.call("forever")
        async with run("Go", options, via=Api(tools=[forever])) as live:
            await started.wait()
        assert live.result.status == "interrupted"


class TestRetries:
    async def test_a_passing_failure_is_tried_again_and_told(self, fake, options):
        fake.fail(503, retry_after=0.01).fail(429, retry_delay=0.01).truncate().say("At last")
        events, result = await events_of("Hi", options)
        assert result.text == "At last"
        notices = of(Error, events)
        assert [(e.code, e.recoverable) for e in notices] == [
            *(("SERVER", True), ("QUOTA", True), ("ENDED_EARLY", True)),
        ]
        assert "trying again in" in notices[0].message
        assert [notices[0].retry_after, notices[1].retry_after] == [0.01, 0.01]

    async def test_never_after_the_first_word(self, fake, options):
        fake.fail(503, after=["Hel"]).say("Hello")
        with pytest.raises(errors.ServerError) as caught:
            await ask("Hi", options, via=Api())
        assert caught.value.result.text == "Hel"
        assert caught.value.retryable
        assert len(fake.requests) == 1

    async def test_never_for_a_spent_day_or_a_longer_wait_than_patience(self, fake, options):
        fake.fail(429, daily=True).fail(503, retry_after=90)
        with pytest.raises(errors.QuotaError) as caught:
            await ask("Hi", options, via=Api())
        assert not caught.value.retryable
        assert "tomorrow" in caught.value.hint
        with pytest.raises(errors.ServerError) as caught:
            await ask("Hi", options, via=Api())
        assert caught.value.retry_after == 90
        assert len(fake.requests) == 2

    async def test_the_number_of_tries_is_bounded_and_each_is_counted(self, fake, options):
        fake.say("", finish="STOP", tokens=Tokens(100)).always()
        transport = Api(retries=2, patience=0.01)
        with pytest.raises(errors.InvalidAnswer, match="empty answer") as caught:
            await ask("Hi", options, via=transport)
        assert len(fake.requests) == 3
        assert caught.value.result.usage.input == 300

    async def test_an_api_that_is_not_there(self, options):
        transport = Api(base_url="http://127.0.0.1:9", retries=0, api_key="k")
        with pytest.raises(errors.NetworkError) as caught:
            await ask("Hi", Options(), via=transport)
        assert caught.value.retryable
        assert len(caught.value.result.errors) == 1

    async def test_an_api_that_is_away_has_network_timeout_to_come_back(self, options):
        """However few retries there are: they are for requests that got through."""
        transport = Api(base_url="http://127.0.0.1:9", retries=1, patience=0.01, api_key="k")
        with pytest.raises(errors.NetworkError) as caught:
            await ask("Hi", Options(network_timeout=1), via=transport)
        *announced, last = caught.value.result.errors
        assert len(announced) > 2
        assert all(one.recoverable and "trying again in 0.1 s" in one.message for one in announced)
        assert not last.recoverable

    async def test_a_request_that_got_through_is_repeated_no_more_than_retries_allow(
        self, fake, options
    ):
        """It may have been billed."""
        fake.truncate("", drop=True).always()
        with pytest.raises(errors.NetworkError):
            await ask("Hi", options, via=Api(retries=1, patience=0.01))
        assert len(fake.requests) == 2

    async def test_no_descriptor_is_not_blamed_on_the_network(self, fake, options):
        async with connect(options, via=Api()) as chat:
            with no_descriptor_left(), pytest.raises(errors.SetupError) as caught:
                await chat.ask("Hi")
        assert "no descriptor is left" in caught.value.message
        assert "ulimit" in caught.value.hint

    async def test_a_status_is_believed_before_a_body(self, fake, options):
        fake.raw(b'{"error": {"code": "503", "message": "busy"}}', status=503)
        with pytest.raises(errors.ServerError, match="503 Service Unavailable: busy") as caught:
            await ask("Hi", options, via=Api(retries=0))
        assert (caught.value.status, caught.value.retryable) == (503, True)

    async def test_a_redirect_is_not_followed_with_the_key(self, fake, options):
        async with FakeGemini(default="stolen") as other:
            fake.raw(b"", status=307, headers={"Location": other.url + "/v1beta/models/x:y"})
            with pytest.raises(errors.ApiError, match="redirects to") as caught:
                await ask("Hi", options, via=Api())
            assert other.log == []
        assert "base_url" in caught.value.message

    async def test_a_connection_that_breaks_keeps_what_arrived(self, fake, options):
        fake.truncate("Hel", drop=True)
        with pytest.raises(errors.NetworkError) as caught:
            await ask("Hi", options, via=Api())
        assert caught.value.result.text == "Hel"


class TestAddresses:
    async def test_the_developer_api_is_pinned(self, fake, options, monkeypatch):
        monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "other")
        monkeypatch.setenv("GOOGLE_GENAI_API_VERSION", "v9")
        fake.say("Hi")
        await ask("Hi", options, via=Api(headers={"X-Trace": "7"}))
        (request,) = fake.requests
        assert request.path == f"/v1beta/models/{GEMINI_3}:streamGenerateContent"
        assert request.headers["x-trace"] == "7"
        assert request.headers["x-goog-api-key"] == fake.env["GEMINI_API_KEY"]

    async def test_the_version_can_be_chosen(self, fake, options):
        fake.say("Hi")
        await ask("Hi", options, via=Api(api_version="v1"))
        assert fake.requests[0].path.startswith("/v1/models/")

    async def test_vertex_is_chosen_by_name(self, fake, options):
        from google.oauth2.credentials import Credentials

        fake.say("Hi", tokens=Tokens(1_000_000))
        transport = Api(
            vertex=True,
            project="p",
            location="europe-west1",
            credentials=Credentials(token="secret"),
            base_url=fake.url,
        )
        result = await ask("Hi", options, via=transport)
        (request,) = fake.requests
        assert request.path.startswith("/v1beta1/projects/p/locations/europe-west1/publishers/")
        assert request.headers["authorization"] == "Bearer secret"
        assert result.cost.billing == "vertex"

    async def test_vertex_takes_project_and_place_from_the_options(self, fake, options):
        from google.oauth2.credentials import Credentials

        fake.say("Hi")
        env = {"GOOGLE_CLOUD_PROJECT": "q", "GOOGLE_CLOUD_LOCATION": "us-east1"}
        transport = Api(vertex=True, credentials=Credentials(token="t"), base_url=fake.url)
        await ask("Hi", options.changed(env={**fake.env, **env}), via=transport)
        assert "/projects/q/locations/us-east1/" in fake.requests[0].path

    async def test_proxy_variables_are_those_of_the_run(self, fake, options, monkeypatch):
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
        fake.say("Hi").say("Hi")
        await ask("Hi", options, via=Api())
        env = {"http_proxy": fake.url, "no_proxy": "", "NO_PROXY": "", "GEMINI_API_KEY": "k"}
        transport = Api(base_url="http://gemini.invalid")
        await ask("Hi", options.changed(env=env), via=transport)
        assert fake.requests[1].headers["host"] == "gemini.invalid"

    async def test_a_proxy(self, fake, options):
        fake.say("Hi")
        transport = Api(base_url="http://gemini.invalid", proxy=fake.url, api_key="k")
        assert (await ask("Hi", Options(model=GEMINI_3), via=transport)).text == "Hi"
        assert fake.requests[0].headers["host"] == "gemini.invalid"

    async def test_a_tier_without_a_price_has_no_cost(self, fake, options):
        chunk = {
            "candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 5, "serviceTier": "priority"},
        }
        fake.raw(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        result = await ask("Hi", options, via=Api())
        assert result.cost is None
        assert "priority" in result.cost_note


class TestBadInput:
    """Each is refused before any request, and says what to write."""

    async def refused(self, fake, options, prompt="Hi", transport=None, **changes):
        with pytest.raises(GeminorumError) as caught:
            await ask(prompt, options.changed(**changes), via=transport or Api())
        assert fake.log == []
        assert caught.value.hint
        return caught.value

    async def test_no_key(self, fake, options, monkeypatch):
        error = await self.refused(fake, options, env={"GOOGLE_GEMINI_BASE_URL": fake.url})
        assert isinstance(error, errors.AuthError)
        assert "GEMINI_API_KEY" in error.hint
        env = {"GEMINI_API_KEY": " ", "GOOGLE_GEMINI_BASE_URL": fake.url}
        assert isinstance(await self.refused(fake, options, env=env), errors.AuthError)

    def test_an_empty_key(self):
        with pytest.raises(errors.InvalidOptions, match="api_key is empty"):
            Api(api_key=" ")

    def test_no_secret_is_shown(self):
        proxy = "http://user:secret@proxy"
        transport = Api(api_key="secret", headers={"Authorization": "secret"}, proxy=proxy)
        assert "secret" not in repr(transport)

    async def test_effort_for_a_model_that_does_not_think(self, fake, options):
        error = await self.refused(fake, options, model="gemini-2.0-flash", effort="high")
        assert isinstance(error, errors.Unsupported)

    async def test_vertex_without_a_project(self, fake, options):
        error = await self.refused(fake, options, transport=Api(vertex=True))
        assert isinstance(error, errors.AuthError)

    @pytest.mark.parametrize("model", ["a?b", "../x", "a b", "models/", "a/../b", "a#b"])
    async def test_a_model_that_is_an_address(self, fake, options, model):
        error = await self.refused(fake, options, model=model)
        assert isinstance(error, errors.InvalidOptions)

    async def test_a_picture_that_is_not_there(self, fake, options, tmp_path):
        missing = tmp_path / "cat.png"
        error = await self.refused(fake, options, ["What?", missing])
        assert str(missing) in str(error)

    async def test_a_file_of_no_known_kind(self, fake, options, tmp_path):
        (tmp_path / "data").write_bytes(b"\xff\xfe\x00")
        error = await self.refused(fake, options, ["What?", tmp_path / "data"])
        assert "Blob" in error.hint

    @pytest.mark.parametrize(
        "prompt",
        ["", " \n", [], [" "], 7, [7], {"parts": []}, {"role": "robot", "parts": [{"text": "x"}]}],
        ids=repr,
    )
    async def test_a_prompt_that_is_none(self, fake, options, prompt):
        assert isinstance(await self.refused(fake, options, prompt), errors.InvalidPrompt)

    async def test_a_prompt_file_which_nothing_here_could_read(self, fake, options):
        error = await self.refused(fake, options, PromptFile("task.md"))
        assert "Path" in error.hint

    async def test_a_result_without_the_name_of_its_tool(self, fake, options):
        prompt = {"role": "user", "parts": [{"functionResponse": {"response": {}}}]}
        error = await self.refused(fake, options, prompt)
        assert "functionResponse without a name" in error.message

    @pytest.mark.parametrize(
        "history",
        [
            [{"role": "model", "parts": [{"text": "Hi"}]}],
            [{"role": "user", "parts": []}],
            [{"role": "user", "parts": ["Hi"]}],
            ["Hi"],
            "Hi",
        ],
        ids=["starts with the model", "no parts", "text for a part", "text", "a string"],
    )
    def test_a_history_that_the_api_would_refuse(self, history):
        with pytest.raises(errors.InvalidPrompt) as caught:
            Api(history=history)
        assert caught.value.hint

    def test_a_tool_without_hints(self):
        def search(query, limit=3):
            return query

        with pytest.raises(errors.InvalidOptions, match="query") as caught:
            Api(tools=[search])
        assert caught.value.hint

    async def test_a_setting_that_the_sdk_does_not_know(self, fake, options):
        error = await self.refused(fake, options, transport=Api(config={"temprature": 1}))
        assert "temprature" in error.message

    @pytest.mark.parametrize(
        "changes",
        [
            {"resume": "latest"},
            {"approval": "plan"},
            {"approval": "auto_edit"},
            {"include_directories": ("a",)},
            {"literal": False},
            {"home": "/tmp"},
        ],
        ids=repr,
    )
    async def test_what_this_transport_cannot_do(self, fake, options, changes):
        assert isinstance(await self.refused(fake, options, **changes), errors.Unsupported)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"base_url": "localhost:1"},
            {"proxy": "x"},
            {"project": "p"},
            {"retries": -1},
            {"patience": None},
            {"headers": {"x": 1}},
            {"headers": "x"},
            {"api_version": 5},
            {"vertex": "false"},
            {"decide_timeout": "5"},
            {"config": {1: 2}},
            {"config": {"http_options": {}}},
            {"prices": {"gemini-2.5-flash": (0.3, 2.5)}},
            {"idle_timeout": 0},
            {"config": []},
        ],
        ids=repr,
    )
    def test_a_transport_that_makes_no_sense(self, wrong):
        with pytest.raises(errors.InvalidOptions) as caught:
            Api(**wrong)
        assert caught.value.hint

    async def test_vertex_without_credentials(self, fake, options, tmp_path, monkeypatch):
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
        transport = Api(vertex=True, project="p")
        error = await self.refused(fake, options, transport=transport)
        assert isinstance(error, errors.AuthError)


def told(id: str, city: str) -> dict:
    response = {"output": f"sunny in {city}"}
    return {"functionResponse": {"id": id, "name": "weather", "response": response}}


def call_for(tokens: int) -> Say:
    part = {"functionCall": {"name": "weather", "args": {"city": "Rome"}}}
    return Say((part,), tokens=Tokens(tokens))


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def to_snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


async def arrived(fake: FakeGemini, count: int) -> None:
    async with asyncio.timeout(10):
        while len(fake.requests) < count:
            await asyncio.sleep(0.01)


async def abandoned(fake: FakeGemini, count: int = 1) -> None:
    async with asyncio.timeout(10):
        while len(fake.abandoned) < count:
            await asyncio.sleep(0.01)


@pytest.mark.gemini_cli
async def test_one_program_handles_both_transports(fake_gemini, real_transport, tmp_path):
    """The example's own function, over the real CLI and over the API."""
    spec = importlib.util.spec_from_file_location(
        "two_transports", ROOT / "examples/two_transports.py"
    )
    two_transports = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(two_transports)

    def read_file(file_path: str) -> str:
        return (tmp_path / file_path).read_text()

    (tmp_path / "note.txt").write_text("Buy milk.")
    fake_gemini.whenever().calls(
        ("read_file", {"file_path": "note.txt"}), thoughts=["A file."]
    ).say("It says: ", "buy milk.")
    options = Options(env=fake_gemini.env, cwd=tmp_path, model=GEMINI_3)
    transport = Api(tools=[read_file])
    by_api = await two_transports.tell("What does it say?", options, transport)
    by_cli = await two_transports.tell("What does it say?", options, real_transport)
    shapes = [[line.split()[0] for line in lines] for lines in (by_api, by_cli)]
    assert shapes[0] == ["said", "thought", "call", "result", "done"]
    assert sorted(shapes[1]) == sorted(shapes[0])
    for lines in (by_api, by_cli):
        assert "said     It says: buy milk." in lines
        assert "call     read_file {'file_path': 'note.txt'}" in lines
        assert any(line.startswith("done     success") for line in lines)
