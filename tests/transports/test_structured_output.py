"""Answers of the real CLI in a shape that the caller chose: typed, checked, asked for again."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import pytest
import pytest_asyncio

from geminorum import (
    Acp,
    Api,
    Cli,
    Done,
    Error,
    Init,
    Options,
    Policy,
    Rule,
    Text,
    ToolResult,
    UserMessage,
    ask,
    connect,
    run,
)
from geminorum.errors import ApiError, InvalidAnswer, InvalidOptions, TurnLimit
from geminorum.schema import shape_of
from geminorum.testing import FakeGemini
from geminorum.testing import Tokens as Told
from geminorum.transports.callbacks.final_answer import FinalAnswer
from geminorum.views.result import Result
from shared_acp import (
    MODEL,
    OnEitherWay,
    SharedAcp,
    having,
    on_shared,
    private_options,
    shared_acp,
)

ANSWER = "mcp_geminorum_final_answer"


class Mood(Enum):
    GLAD = "glad"
    SAD = "sad"


class Person(msgspec.Struct):
    name: str
    age: int
    mood: Mood = Mood.GLAD


@dataclass
class Team:
    members: list[Person]
    kind: Literal["red", "blue"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(real_transport, tmp_path_factory) -> AsyncIterator[SharedAcp]:
    """One process for all warm sessions of this module. Somebody is asked about every tool, and
    says no; an answer is no such thing."""
    transport = Acp(executable=real_transport.executable, decide=lambda request: False)
    everything, folder = Policy(rules=(Rule("*", "ask"),)), tmp_path_factory.mktemp("process")
    chosen = {"policy": everything, "system_prompt": "Speak like a pirate."}
    async with shared_acp(transport, folder, **chosen) as shared:
        yield shared


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two_turns(real_transport, tmp_path_factory) -> SimpleNamespace:
    """A headless chat: an answer that is wrong at first, and one that has to be asked for again,
    after a tool."""
    with FakeGemini() as fake:
        fake.call(ANSWER, name="Ada", age="very").call(ANSWER, name="Ada", age=36)
        fake.say("That is Ada.")
        fake.call("list_directory", dir_path=".").say("Hm.")
        fake.call(ANSWER, name="Bo", age=1).say("Done.")
        options = private_options(fake, tmp_path_factory.mktemp("turns"), timeout=60)
        # Those that are started ahead: test_spares.py.
        via, typed = replace(real_transport, spare=0), options.changed(output_schema=Person)
        turns = []
        async with connect(typed, via=via) as chat:
            for prompt in ("Who is A?", "Who is B?"):
                async with chat.turn(prompt) as live:
                    events = [event async for event in live]
                turns.append(SimpleNamespace(events=events, result=live.result))
        return SimpleNamespace(first=turns[0], second=turns[1], requests=fake.requests)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def brief_run(real_transport, tmp_path_factory) -> tuple[Result, Any]:
    """A headless run with one turn and the caller's instructions only, and its first request."""
    with FakeGemini() as fake:
        fake.call(ANSWER, name="Ada", age=36).say("Never asked for.")
        chosen = {"system_prompt": "Be brief.", "replace_system_prompt": True, "max_turns": 1}
        options = private_options(fake, tmp_path_factory.mktemp("brief"), **chosen)
        result = await ask("Who?", options.changed(output_schema=Person), via=real_transport)
        return result, fake.requests[0].body


on_cli = pytest.mark.parametrize("place", [Cli], indirect=True, ids=["cli"])
on_acp = pytest.mark.parametrize("place", ["process"], indirect=True, ids=["acp"])
"""Where both transports share what is tested, one will do: each start of the CLI takes seconds."""


@on_shared
@pytest.mark.gemini_cli
class TestTheRealCli(OnEitherWay):
    @pytest.fixture
    def options(self, place) -> Options:
        return place[1].changed(timeout=60, output_schema=Person)

    async def test_a_wrong_answer_and_then_a_right_one_give_the_typed_value(self, two_turns):
        events, result = two_turns.first.events, two_turns.first.result
        assert result.data == Person("Ada", 36)
        assert result.status == "success"
        assert events[-1].data == {"name": "Ada", "age": 36}
        results = [event for event in events if isinstance(event, ToolResult)]
        assert [(result.name, result.status) for result in results] == [
            ("final_answer", "error"),
            ("final_answer", "success"),
        ]
        assert "age" in str(two_turns.requests[1].tool_results[0].response)

    async def test_each_turn_of_a_chat_has_an_answer_of_its_own(self, two_turns):
        """The second was asked for again after a tool, which the API would refuse if the history
        did not pair its calls."""
        people = [turn.result.data for turn in (two_turns.first, two_turns.second)]
        assert [person.name for person in people] == ["Ada", "Bo"]

    async def test_every_process_of_a_turn_is_paid_for_once(self, two_turns):
        kinds = [type(event) for event in two_turns.second.events]
        assert (kinds.count(Init), kinds.count(Done), kinds.count(UserMessage)) == (1, 1, 2)
        usage = two_turns.second.result.usage
        assert len(usage.requests) == len(two_turns.requests[3:]) == 4
        assert usage.total == sum(request.total for request in usage.requests)

    @on_acp
    async def test_every_kind_of_shape(self, fake_gemini, options, any_transport):
        """One process, a session for each. What only we can see is wrong is sent back too: the CLI
        lets an argument more pass; the shape does not."""

        class Strict(msgspec.Struct, forbid_unknown_fields=True):
            name: str

        team = {"members": [{"name": "Ada", "age": 1, "mood": "sad"}], "kind": "red"}
        plain = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}
        shapes: list[tuple[Any, dict[str, Any], Any]] = [
            (list[int], {"answer": [1, 2]}, [1, 2]),
            (Team, team, Team([Person("Ada", 1, Mood.SAD)], "red")),
            (plain, {"n": 2.5}, {"n": 2.5}),
            (list[Person], {"answer": [{"name": "Bo", "age": 2}]}, [Person("Bo", 2)]),
        ]
        for schema, arguments, value in shapes:
            fake_gemini.call(ANSWER, **arguments).say("Done.")
            result = await ask("Go", options.changed(output_schema=schema), via=any_transport)
            assert result.data == value
        fake_gemini.call(ANSWER, name="Ada", shoe=38).call(ANSWER, name="Ada").say("Done.")
        result = await ask("Who?", options.changed(output_schema=Strict), via=any_transport)
        assert result.data == Strict("Ada")
        assert "shoe" in str(fake_gemini.requests[-2].tool_results[0].response)

    @on_acp
    async def test_an_agent_that_only_talks_is_asked_once_more(
        self, fake_gemini, options, any_transport
    ):
        """One turn for the caller: one Init, one Done, the tokens of both processes."""
        fake_gemini.say("It is Ada, who is 36.", thoughts=["Who might it be?"])
        fake_gemini.call(ANSWER, name="Ada", age=36).say("Done.")
        async with run("Who is it?", options, via=any_transport) as live:
            events = [event async for event in live]
        assert live.result.data == Person("Ada", 36)
        kinds = [type(event) for event in events]
        assert (kinds.count(Init), kinds.count(Done), kinds.count(UserMessage)) == (1, 1, 2)
        assert kinds.count(Error) == 0
        assert len(live.result.usage.requests) == len(fake_gemini.requests) == 3
        assert live.result.usage.exact
        assert live.result.cost is not None
        assert live.result.text == "It is Ada, who is 36.Done."
        assert "36" in str(fake_gemini.requests[1].body["contents"])

    @on_acp
    async def test_enough_wrong_answers_end_the_run(self, fake_gemini, options, any_transport):
        fake_gemini.call(ANSWER, name="Ada").times(9)
        with pytest.raises(InvalidAnswer, match=r"2 attempts.*age") as caught:
            await ask("Who?", options, via=having(any_transport, answer_attempts=2))
        assert caught.value.result.data is None
        assert caught.value.result.session_id
        assert len(fake_gemini.requests) < 9

    @on_acp
    async def test_an_agent_that_never_answers_fails_in_the_end(
        self, fake_gemini, options, any_transport
    ):
        fake_gemini.say("No.").say("Never.").say("Not asked for.")
        with pytest.raises(InvalidAnswer, match="2 attempts: it did not call") as caught:
            await ask("Who?", options, via=having(any_transport, answer_attempts=2))
        assert caught.value.result.text == "No.Never."
        assert len(fake_gemini.requests) == 2

    @on_acp
    async def test_a_schema_that_gemini_refuses_is_an_error_of_the_api(
        self, fake_gemini, options, any_transport
    ):
        fake_gemini.fail(400, "Invalid JSON payload received: schema").always()
        with pytest.raises(ApiError, match="schema") as caught:
            await ask("Who?", options, via=any_transport)
        assert caught.value.status == 400
        assert caught.value.result.data is None

    @on_cli
    async def test_an_answer_that_arrived_stands_though_the_last_words_fail(
        self, fake_gemini, options, any_transport
    ):
        fake_gemini.call(ANSWER, name="Ada", age=36)
        fake_gemini.say(thoughts=["Nothing to add."]).always()
        quick = having(any_transport, settings={"general": {"maxAttempts": 1}})
        async with run("Who?", options, via=quick) as live:
            events = [event async for event in live]
        assert (live.result.status, live.result.data) == ("success", Person("Ada", 36))
        assert [
            event for event in events if isinstance(event, Error) and not event.recoverable
        ] == []

    @on_acp
    async def test_it_stands_though_the_api_fails_afterwards(
        self, fake_gemini, options, any_transport
    ):
        fake_gemini.call(ANSWER, name="Ada", age=36).fail(400, "Not today.").always()
        result = await ask("Who?", options, via=any_transport)
        assert result.data == Person("Ada", 36)
        assert [(error.code, error.recoverable) for error in result.errors] == [("API", True)]

    async def test_it_stands_though_there_is_no_turn_left_for_last_words(self, brief_run):
        result, _ = brief_run
        assert (result.status, result.data) == ("success", Person("Ada", 36))

    @on_acp
    async def test_it_stands_though_the_budget_ends_the_run_after_it(
        self, fake_gemini, options, any_transport
    ):
        """As on the Api, where the answer is the last request: no other is paid for."""
        ada = (ANSWER, {"name": "Ada", "age": 36})
        fake_gemini.calls(ada, tokens=Told(prompt=1_000_000)).hang()
        result = await ask("Who?", options.changed(max_budget_usd=0.25), via=any_transport)
        assert (result.status, result.data) == ("success", Person("Ada", 36))
        assert result.cost.usd >= Decimal("0.30")

    @on_acp
    async def test_the_callers_own_instructions_stay_and_nobody_is_asked_about_the_answer(
        self, fake_gemini, options, any_transport
    ):
        """S1-25: behind the agent's own, with ours behind them. Whatever is said of every tool: in
        this process each is asked about, and refused."""
        fake_gemini.call("list_directory", dir_path=".").call(ANSWER, name="Ada", age=1).say(
            "Done."
        )
        async with run("Who?", options, via=any_transport) as live:
            results = [event async for event in live if isinstance(event, ToolResult)]
        assert [(one.name, one.status) for one in results] == [
            ("list_directory", "denied"),
            ("final_answer", "success"),
        ]
        assert live.result.data == Person("Ada", 1)
        told = str(fake_gemini.requests[0].body)
        assert "Speak like a pirate." in told
        assert f"one call of the tool {ANSWER}" in told

    async def test_they_stay_in_the_place_of_the_agents_own_too(self, brief_run):
        result, asked = brief_run
        assert result.data == Person("Ada", 36)
        assert "Be brief." in str(asked["systemInstruction"])
        # A warm process tells it to this session only, with the rest of what it knows of it.
        assert f"one call of the tool {ANSWER}" in str(asked)


@on_shared
@pytest.mark.gemini_cli
async def test_sessions_of_one_process_have_shapes_of_their_own(process, tmp_path):
    """And one without a shape is not told to answer in one."""
    shared = process.afresh(tmp_path / "workspace")
    fake_gemini, warm = shared.fake, shared.warm
    options = shared.options.changed(output_schema=Person)
    fake_gemini.when("Who").call(ANSWER, name="Ada", age=1).say("Done.")
    fake_gemini.when("many").say("Seven.")
    fake_gemini.when("not given").call(ANSWER, answer=7).say("Done.")
    fake_gemini.when("Hello").say("Hi.")
    async with (
        connect(options, via=warm) as one,
        connect(options.changed(output_schema=int), via=warm) as other,
        connect(options.changed(output_schema=None), via=warm) as free,
    ):
        who, many = await one.ask("Who?"), await other.ask("How many?")
        hello = await free.ask("Hello")
    assert (who.data, many.data, hello.data) == (Person("Ada", 1), 7, None)
    assert ANSWER not in str(fake_gemini.requests[-1].body)


async def test_a_run_that_ends_otherwise_keeps_its_own_reason(stand_in):
    """As the CLI ends at its limit of turns; the real one does so in test_settings.py."""
    init = {"type": "init", "session_id": "s-1", "model": MODEL}
    spoken = {"type": "message", "role": "assistant", "content": "Hm.", "delta": True}
    via = stand_in(init, spoken, {"type": "result", "status": "error"}, exit=53)
    with pytest.raises(TurnLimit) as caught:
        await ask("Who?", Options(output_schema=Person, max_turns=1), via=via)
    assert caught.value.result.text == "Hm."  # Once: it was not asked again.


async def test_an_answer_past_the_budget_stands_on_the_api_too(fake_gemini):
    fake_gemini.say('{"name": "Ada", "age": 36}', tokens=Told(prompt=1_000_000))
    limited = Options(env=fake_gemini.env, model=MODEL, output_schema=Person, max_budget_usd=0.25)
    result = await ask("Who?", limited, via=Api())
    assert (result.status, result.data) == ("success", Person("Ada", 36))


@pytest.mark.parametrize("schema", [3, "person", {"type": "object", "if": {}}, lambda: None])
async def test_what_is_no_shape_is_refused_before_anything_starts(stand_in, schema):
    with pytest.raises(InvalidOptions):
        await ask("Hi", Options(output_schema=schema), via=stand_in())


async def test_a_tool_cannot_take_the_answers_name(stand_in):
    def final_answer(text: str) -> None: ...

    with pytest.raises(InvalidOptions, match="already"):
        await ask("Hi", Options(output_schema=int), via=stand_in(tools=[final_answer]))


class TestTheAnswer:
    async def test_an_answer_that_is_no_object_is_the_one_argument(self):
        answer = FinalAnswer(shape_of(list[Person]), attempts=1)
        schema = answer.served.declared.schema
        assert schema["required"] == ["answer"]
        assert schema["properties"]["answer"]["type"] == "array"
        assert "Person" in schema["$defs"]
        text, well = await answer.served.call({"answer": [{"name": "Ada"}]})
        assert (well, "age" in text) == (False, True)

    async def test_the_last_answer_that_fits_counts(self):
        answer = FinalAnswer(shape_of(int), attempts=1)
        for number in (1, 2):
            await answer.served.call({"answer": number})
        await answer.served.call({"answer": "three"})
        (done,) = answer.judged([Done("success")])
        assert (done.data, done.status) == (2, "success")

    @pytest.mark.parametrize(
        "ending",
        [
            [Done("max_turns")],
            [Done("max_budget")],
            [Error("no price", "BUDGET"), Done("error")],
            [Error("round and round", "LOOP"), Done("error")],
        ],
    )
    async def test_an_answer_stands_whatever_ends_the_run_behind_it(self, ending):
        answer = FinalAnswer(shape_of(int), attempts=1)
        await answer.served.call({"answer": 7})
        *errors, done = answer.judged(ending)
        assert (done.data, done.status) == (7, "success")
        assert all(error.recoverable for error in errors)

    def test_a_cancelled_run_is_not_blamed_on_the_model(self):
        answer = FinalAnswer(shape_of(int), attempts=1)
        (done,) = answer.judged([Done("interrupted")])
        assert done.status == "interrupted"
        assert not answer.needs_retry

    def test_a_failure_of_another_kind_is_left_alone(self):
        answer = FinalAnswer(shape_of(int), attempts=3)
        error, done = answer.judged([Error("no quota", "QUOTA"), Done("error")])
        assert (error.code, done.status) == ("QUOTA", "error")


def test_a_recorded_run_gives_plain_data():
    from geminorum.views.result import result

    told = result([Text("Hi"), Done("success", data={"name": "Ada"})])
    assert isinstance(told, Result)
    assert told.data == {"name": "Ada"}
