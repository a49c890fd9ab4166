"""A prompt through the real Gemini CLI, against a simulated model: everything arrives."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from geminorum import (
    Acp,
    Cli,
    Done,
    Event,
    Init,
    Options,
    Result,
    Text,
    TextDelta,
    UserMessage,
    ask,
    connect,
    sync,
)
from geminorum import run as start
from geminorum.errors import ApiError, LoopDetected, TurnLimit
from geminorum.testing import FakeGemini, Request, Tokens, prose
from shared_run import private_place

pytestmark = pytest.mark.gemini_cli
MODEL = "gemini-2.5-flash"


@pytest.fixture
def options(fake_gemini, tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Options(env=fake_gemini.env, cwd=workspace, model=MODEL)


class Read(NamedTuple):
    """A run whose events were all read, and what was there when it was over."""

    options: Options
    events: list[Event]
    result: Result
    requests: list[Request]
    sessions: list[Path]
    settings: tuple[bytes, bytes]
    memory: str
    """What the user tells every agent."""


@pytest.fixture(scope="module")
def shared(real_transport, tmp_path_factory) -> Callable[..., Read]:
    """Makes a run for several tests; `script` says what the model says, and may prepare folders."""

    def make(
        prompt: str, script: Callable[[FakeGemini, Path], object], slowly: float = 0, **chosen
    ):
        async def read(fake: FakeGemini, cwd: Path) -> Read:
            settings = fake.home / ".gemini/settings.json"
            before = settings.read_bytes()
            options = Options(**{"env": fake.env, "cwd": cwd, "model": MODEL, **chosen})
            events = []
            async with start(prompt, options, via=real_transport) as live:
                async for event in live:
                    await asyncio.sleep(slowly)
                    events.append(event)
            kept = list((fake.home / ".gemini/tmp").rglob("session-*.jsonl"))
            same, memory = (before, settings.read_bytes()), fake.home / ".gemini/GEMINI.md"
            told = memory.read_text() if memory.exists() else ""
            return Read(options, events, live.result, fake.requests, kept, same, told)

        with private_place(tmp_path_factory) as cwd, FakeGemini() as fake:
            script(fake, cwd)
            return asyncio.run(read(fake, cwd))

    return make


@pytest.fixture(scope="module")
def hello(shared) -> Read:
    tokens = Tokens(prompt=1000, cached=400, output=10, thoughts=100)
    return shared(
        "Say hello",
        lambda fake, _: fake.say("Hello ", "world.", tokens=tokens),
        session_id="3e0923c9-7033-438d-a978-a361d8031f47",
        effort="low",
    )


ODD_PROMPT = "/memory show @secret.txt"


@pytest.fixture(scope="module")
def at_work(shared) -> Read:
    """In yolo, with a prompt that looks like a command, and instructions of user and caller."""

    def script(fake: FakeGemini, cwd: Path) -> None:
        (fake.home / ".gemini/GEMINI.md").write_text("Always be kind.")
        (cwd / "secret.txt").write_text("the password is swordfish")
        fake.call("write_file", file_path="a.txt", content="hi")
        fake.call("run_shell_command", command="cat a.txt")
        fake.say("Done.")

    chosen = {"model": "flash", "effort": "low", "system_prompt": "Answer in Latin."}
    return shared(ODD_PROMPT, script, approval="yolo", **chosen)


CHUNKS = [prose(2048, seed=number) for number in range(300)]
BOOK = prose(1_500_000, seed=1)


@pytest.fixture(scope="module")
def long_answer(shared) -> Read:
    parrot = {"system_prompt": "You are a parrot.", "replace_system_prompt": True}
    return shared("Tell me a lot", lambda fake, _: fake.say(*CHUNKS, BOOK), slowly=0.015, **parrot)


def test_a_prompt_becomes_a_stream_of_events(hello):
    """S0-4, S0-11, S0-25, S1-2, S1-27, S1-28, S1-36, B-37: the caller may choose the session's id.

    S0-16, S1-33, S1-37: what it took is told to the token, by the session file.
    """
    events, result, chosen = hello.events, hello.result, hello.options
    assert [event.type for event in events] == [
        *("init", "user_message", "text_delta", "text_delta", "text", "done")
    ]
    first, prompt, *_ = events
    assert (first.model, first.cwd, first.session_id) == (
        *(MODEL, str(chosen.cwd), chosen.session_id),
    )
    assert prompt.text == "Say hello"
    assert hello.requests[0].model == MODEL
    assert (result.text, result.status) == ("Hello world.", "success")
    assert result.session_id == chosen.session_id
    usage = result.usage
    assert (usage.input, usage.cached, usage.output, usage.thoughts) == (1000, 400, 10, 100)
    assert (usage.total, list(usage.by_model), usage.exact) == (1110, [MODEL], True)
    # 600 · 0.30 + 400 · 0.03 + 110 · 2.50 dollars per million
    assert float(result.cost.usd) == pytest.approx(0.000467)
    # The user's store has the session, the user's settings are as they were.
    assert hello.sessions
    before, after = hello.settings
    assert after == before


def test_tools_run_and_their_files_are_told(at_work):
    """S0-13, S0-14, S4-19 … S4-23: in a real run with yolo, tools run, and the result lists the
    written file."""
    cwd, result = at_work.options.cwd, at_work.result
    assert (cwd / "a.txt").read_text() == "hi"
    assert [(c.path, c.tool) for c in result.files] == [(str(cwd / "a.txt"), "write_file")]
    assert result.usage.tool_calls == 2


@pytest.mark.parametrize(
    ("run", "config"),
    [("hello", ("thinkingBudget", 4096)), ("at_work", ("thinkingLevel", "LOW"))],
    ids=["gemini-2.5-flash", "flash"],
)
def test_effort_reaches_the_model(request, run, config):
    """D-8: through settings, since there is no flag for it."""
    key, value = config
    asked = request.getfixturevalue(run).requests[-1]
    assert asked.config["thinkingConfig"][key] == value


def test_a_slow_reader_loses_nothing(long_answer):
    """D-1, D-2: 300 chunks of 2 KB, 15 ms for each event, when the CLI has long ended."""
    texts = [event.text for event in long_answer.events if isinstance(event, TextDelta)]
    assert texts[:300] == CHUNKS
    assert long_answer.result.status == "success"
    assert long_answer.result.text == "".join([*CHUNKS, BOOK])


def test_an_answer_of_a_megabyte_and_a_half_arrives_whole(long_answer):
    """Facts §17: through a pipe, 4 to 9 % of it arrives."""
    answer = long_answer.result.text.removeprefix("".join(CHUNKS))
    assert len(answer) == 1_500_000
    assert answer == BOOK


class Talk(NamedTuple):
    """Three turns of a chat on the model `auto`."""

    refused: ApiError
    looped: LoopDetected
    last: Result
    requests: list[Request]


async def talk(fake: FakeGemini, options: Options, via: Cli | Acp) -> Talk:
    fake.when("What").say("You said seven.")
    fake.fail(400, "not now").call("list_directory", dir_path=".").always()
    async with connect(options, via=via) as chat:
        with pytest.raises(ApiError) as refused:
            await chat.ask("Hello?")
        with pytest.raises(LoopDetected) as looped:
            await chat.ask("Remember seven")
        return Talk(refused.value, looped.value, await chat.ask("What did I say?"), fake.requests)


@pytest.fixture(scope="module", params=[Cli, Acp], ids=["cli", "acp"])
def conversation(request, real_transport, tmp_path_factory) -> Talk:
    with private_place(tmp_path_factory) as cwd, FakeGemini() as fake:
        options = Options(env=fake.env, cwd=cwd, model="auto")
        via = request.param(executable=real_transport.executable)
        return asyncio.run(talk(fake, options, via))


ON_CLI = pytest.mark.parametrize("conversation", [Cli], indirect=True, ids=["cli"])


def test_a_conversation_remembers_and_survives_a_first_turn_that_failed(conversation):
    """S1-49: each turn resumes the session of the one before.

    The CLI rolls a failed first prompt back: after it there is nothing to resume.
    """
    assert "not now" in str(conversation.refused)
    assert conversation.last.text == "You said seven."
    assert conversation.last.session_id == conversation.looped.session_id
    assert "Remember seven" in json.dumps(conversation.requests[-1].contents)


def test_a_loop_that_the_cli_stops_is_the_same_failure_through_every_transport(conversation):
    """Nobody set a limit of turns, so none is to be raised."""
    assert "repeated itself" in str(conversation.looped)
    assert conversation.looped.result.status == "error"
    assert "max_turns" not in conversation.looped.hint


@ON_CLI
def test_model_auto_is_routed_and_its_real_model_told(conversation):
    """S1-19, B-16: `init` says auto; the stats name who answered."""
    result = conversation.last
    assert result.text == "You said seven."
    assert result.model not in (None, "auto")


@ON_CLI
def test_the_question_which_model_to_take_is_paid_too(conversation):
    """S1-19: `auto` asks a small model first; its tokens are in the stats, but in no session
    file."""
    usage = conversation.last.usage
    assert len({request.model for request in usage.requests}) == 1
    assert len(usage.by_model) == 2
    assert usage.exact
    assert set(conversation.last.cost.by_model) == set(usage.by_model)


async def test_a_limit_of_turns_in_the_settings_of_a_warm_cli_is_told_from_a_loop(
    fake_gemini, options, real_transport
):
    for number in range(3):
        fake_gemini.call("glob", pattern=f"*.{number}")
    limit = {"model": {"maxSessionTurns": 2}}
    via = Acp(executable=real_transport.executable, settings=limit)
    with pytest.raises(TurnLimit):
        await ask("Go on forever", options, via=via)


def test_a_slash_and_an_at_sign_are_text(at_work):
    first, *_ = at_work.requests
    # What precedes the slash has no width; a backslash precedes the at-sign.
    assert first.prompt == "\u200b/memory show \\@secret.txt"
    assert "swordfish" not in json.dumps(first.contents)


def test_a_system_prompt_stands_behind_the_agents_own(at_work):
    """B-18: and behind what the user tells every agent."""
    system = json.dumps(at_work.requests[-1].system)
    assert system.index("Always be kind.") < system.index("Answer in Latin.")
    assert "Gemini CLI" in system
    assert at_work.memory == "Always be kind."


def test_a_system_prompt_replaces_the_agents_own_on_request(long_answer):
    system = json.dumps(long_answer.requests[-1].system)
    assert "You are a parrot." in system
    assert "Gemini CLI" not in system


def said(text: str) -> list[dict]:
    return [
        {"type": "init", "session_id": "s-1", "model": MODEL},
        {"type": "message", "role": "user", "content": "Hi"},
        {"type": "message", "role": "assistant", "content": text, "delta": True},
        {"type": "result", "status": "success"},
    ]


def test_code_that_does_not_await_uses_the_same_verbs(stand_in):
    """On the real CLI, so do test_export.py and, through the ACP, test_sessions.py."""
    with sync.run("Hi", via=stand_in(*said("One."))) as live:
        kinds = [type(event) for event in live]
    assert kinds == [Init, UserMessage, TextDelta, Text, Done]
    assert live.result.text == "One."
    with sync.connect(via=stand_in(*said("Two."))) as chat, chat.turn("Again") as turn:
        assert [event.text for event in turn if isinstance(event, Text)] == ["Two."]


def test_the_sync_verbs_work_where_a_loop_is_running_already(stand_in):
    via = stand_in(*said("In a notebook."))

    async def cell():
        return sync.ask("Hi", via=via)

    assert asyncio.run(cell()).text == "In a notebook."
