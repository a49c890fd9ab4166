"""A prompt through the real Gemini CLI, against a simulated model: everything arrives."""

import asyncio
import json

import pytest

from geminorum import (
    Acp,
    Done,
    Init,
    Options,
    Text,
    TextDelta,
    ToolResult,
    UserMessage,
    ask,
    connect,
    sync,
)
from geminorum import run as start
from geminorum.errors import ApiError, LoopDetected, TurnLimit
from geminorum.testing import Tokens, prose

pytestmark = pytest.mark.gemini_cli
MODEL = "gemini-2.5-flash"


@pytest.fixture
def options(fake_gemini, tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Options(env=fake_gemini.env, cwd=workspace, model=MODEL)


async def test_a_prompt_becomes_a_stream_of_events(fake_gemini, options, real_transport):
    """S0-4, S0-11, S0-25, S1-2, S1-27, S1-28, S1-36, B-37: the caller may choose the session's id.

    S0-16, S1-33, S1-37: what it took is told to the token, by the session file.
    """
    settings = fake_gemini.home / ".gemini/settings.json"
    before = settings.read_bytes()
    tokens = Tokens(prompt=1000, cached=400, output=10, thoughts=100)
    fake_gemini.say("Hello ", "world.", tokens=tokens)
    chosen = options.changed(session_id="3e0923c9-7033-438d-a978-a361d8031f47")
    async with start("Say hello", chosen, via=real_transport) as live:
        events = [event async for event in live]
    assert [event.type for event in events] == [
        *("init", "user_message", "text_delta", "text_delta", "text", "done")
    ]
    first, prompt, *_ = events
    assert (first.model, first.cwd, first.session_id) == (
        *(MODEL, str(options.cwd), chosen.session_id),
    )
    assert prompt.text == "Say hello"
    assert fake_gemini.requests[0].model == MODEL
    result = live.result
    assert (result.text, result.status) == ("Hello world.", "success")
    assert result.session_id == chosen.session_id
    usage = result.usage
    assert (usage.input, usage.cached, usage.output, usage.thoughts) == (1000, 400, 10, 100)
    assert (usage.total, list(usage.by_model), usage.exact) == (1110, [MODEL], True)
    # 600 · 0.30 + 400 · 0.03 + 110 · 2.50 dollars per million
    assert float(result.cost.usd) == pytest.approx(0.000467)
    # The user's store has the session, the user's settings are as they were.
    assert list((fake_gemini.home / ".gemini/tmp").rglob("session-*.jsonl"))
    assert settings.read_bytes() == before


async def test_tools_run_and_their_files_are_told(fake_gemini, options, real_transport):
    """S0-13, S0-14, S4-19 … S4-23: in a real run with yolo, tools run, and the result lists the
    written file."""
    fake_gemini.call("write_file", file_path="a.txt", content="hi")
    fake_gemini.call("run_shell_command", command="cat a.txt")
    fake_gemini.say("Done.")
    result = await ask("Write it", options.changed(approval="yolo"), via=real_transport)
    assert (options.cwd / "a.txt").read_text() == "hi"
    assert [(c.path, c.tool) for c in result.files] == [(str(options.cwd / "a.txt"), "write_file")]
    assert result.usage.tool_calls == 2


async def test_a_slow_reader_loses_nothing(fake_gemini, options, real_transport):
    """D-1, D-2: 300 chunks of 2 KB, 15 ms for each event, when the CLI has long ended."""
    chunks = [prose(2048, seed=number) for number in range(300)]
    fake_gemini.say(*chunks)
    texts = []
    async with start("Tell me a lot", options, via=real_transport) as live:
        async for event in live:
            await asyncio.sleep(0.015)
            if isinstance(event, TextDelta):
                texts.append(event.text)
    assert texts == chunks
    assert live.result.status == "success"
    assert live.result.text == "".join(chunks)


async def test_an_answer_of_a_megabyte_and_a_half_arrives_whole(
    fake_gemini, options, real_transport
):
    """Facts §17: through a pipe, 4 to 9 % of it arrives."""
    answer = prose(1_500_000, seed=1)
    fake_gemini.say(answer)
    result = await ask("Write a book", options, via=real_transport)
    assert len(result.text) == 1_500_000
    assert result.text == answer


async def test_a_conversation_remembers_and_survives_a_first_turn_that_failed(
    fake_gemini, options, real_transport
):
    """S1-49: each turn resumes the session of the one before.

    The CLI rolls a failed first prompt back: after it there is nothing to resume.
    """
    fake_gemini.fail(400, "not now").say("Noted.").say("You said seven.")
    async with connect(options, via=real_transport) as chat:
        with pytest.raises(ApiError):
            await chat.ask("Hello?")
        first = await chat.ask("Remember seven")
        second = await chat.ask("What did I say?")
    assert (first.text, second.text) == ("Noted.", "You said seven.")
    assert first.session_id == second.session_id
    assert "Remember seven" in json.dumps(fake_gemini.requests[-1].contents)


async def test_model_auto_is_routed_and_its_real_model_told(fake_gemini, options, real_transport):
    """S1-19, B-16: `init` says auto; the stats name who answered."""
    fake_gemini.say("Routed.")
    result = await ask("Hi", options.changed(model="auto"), via=real_transport)
    assert result.text == "Routed."
    assert result.model not in (None, "auto")


async def test_the_turn_limit_ends_the_run(fake_gemini, options, real_transport):
    """S0-21, B-19: through settings, since there is no flag for it."""
    for number in range(3):
        fake_gemini.call("glob", pattern=f"*.{number}")
    limited = options.changed(max_turns=2)
    async with start("Go on forever", limited, via=real_transport) as live:
        events = [event async for event in live]
    assert events[-1].status == "max_turns"
    assert live.result.exit_code == 53
    assert len([event for event in events if isinstance(event, ToolResult)]) == 2


async def test_a_loop_that_the_cli_stops_is_the_same_failure_through_every_transport(
    fake_gemini, options, any_transport
):
    """Nobody set a limit of turns, so none is to be raised."""
    fake_gemini.when("Enough").say("Well then.")
    fake_gemini.call("list_directory", dir_path=".").always()
    async with connect(options, via=any_transport) as chat:
        with pytest.raises(LoopDetected, match="repeated itself") as caught:
            await chat.ask("Go on forever")
        assert caught.value.result.status == "error"
        assert "max_turns" not in caught.value.hint
        assert (await chat.ask("Enough")).session_id == caught.value.session_id
    assert "forever" in str(fake_gemini.requests[-1].contents)


async def test_a_limit_of_turns_in_the_settings_of_a_warm_cli_is_told_from_a_loop(
    fake_gemini, options, real_transport
):
    for number in range(3):
        fake_gemini.call("glob", pattern=f"*.{number}")
    limit = {"model": {"maxSessionTurns": 2}}
    via = Acp(executable=real_transport.executable, settings=limit)
    with pytest.raises(TurnLimit):
        await ask("Go on forever", options, via=via)


async def test_a_slash_and_an_at_sign_are_text(fake_gemini, options, real_transport):
    (options.cwd / "secret.txt").write_text("the password is swordfish")
    fake_gemini.say("I see text.")
    await ask("/memory show @secret.txt", options, via=real_transport)
    (request,) = fake_gemini.requests
    assert request.prompt.replace("\\", "").strip() == "/memory show @secret.txt"
    assert "swordfish" not in json.dumps(request.contents)


async def test_a_system_prompt_stands_behind_the_agents_own(fake_gemini, options, real_transport):
    """B-18: and behind what the user tells every agent."""
    theirs = fake_gemini.home / ".gemini/GEMINI.md"
    theirs.write_text("Always be kind.")
    fake_gemini.say("Hi")
    await ask("Hi", options.changed(system_prompt="Answer in Latin."), via=real_transport)
    system = json.dumps(fake_gemini.requests[-1].system)
    assert system.index("Always be kind.") < system.index("Answer in Latin.")
    assert "Gemini CLI" in system
    assert theirs.read_text() == "Always be kind."


async def test_a_system_prompt_replaces_the_agents_own_on_request(
    fake_gemini, options, real_transport
):
    fake_gemini.say("Hi")
    replaced = options.changed(system_prompt="You are a parrot.", replace_system_prompt=True)
    await ask("Hi", replaced, via=real_transport)
    system = json.dumps(fake_gemini.requests[-1].system)
    assert "You are a parrot." in system
    assert "Gemini CLI" not in system


@pytest.mark.parametrize(
    ("model", "config"),
    [("gemini-2.5-flash", ("thinkingBudget", 4096)), ("flash", ("thinkingLevel", "LOW"))],
)
async def test_effort_reaches_the_model(fake_gemini, options, real_transport, model, config):
    """D-8: through settings, since there is no flag for it."""
    fake_gemini.say("Hi")
    await ask("Hi", options.changed(model=model, effort="low"), via=real_transport)
    key, value = config
    assert fake_gemini.requests[-1].config["thinkingConfig"][key] == value


def test_code_that_does_not_await_uses_the_same_verbs(fake_gemini, options, real_transport):
    fake_gemini.say("One.").say("Two.")
    with sync.run("Hi", options, via=real_transport) as live:
        kinds = [type(event) for event in live]
    assert kinds == [Init, UserMessage, TextDelta, Text, Done]
    assert live.result.text == "One."
    with sync.connect(options, via=real_transport) as chat, chat.turn("Again") as turn:
        assert [event.text for event in turn if isinstance(event, Text)] == ["Two."]


def test_the_sync_verbs_work_where_a_loop_is_running_already(fake_gemini, options, real_transport):
    fake_gemini.say("In a notebook.")

    async def cell():
        return sync.ask("Hi", options, via=real_transport)

    assert asyncio.run(cell()).text == "In a notebook."
