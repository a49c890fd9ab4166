"""Runs that ask the inbox, on every transport; and questions that outlive the run."""

import asyncio
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from inbox_parts import WAIT_SECONDS, asked, the_question

from geminorum import (
    Acp,
    Allow,
    AllowAlways,
    Api,
    Deny,
    Done,
    Error,
    Options,
    PermissionDecision,
    ToolResult,
    ask,
    connect,
    run,
    sync,
)
from geminorum.errors import QuestionClosed, SessionBusy, WaitingForAnswer
from geminorum.inbox import Inbox
from geminorum.inbox import sync as sync_inbox
from geminorum.sessions.lock import SessionLock

MODEL = "gemini-2.5-flash"


@pytest.fixture
def store(tmp_path):
    return tmp_path / "state" / "inbox.db"


@pytest.fixture
def inbox(store):
    return Inbox(store)


@pytest.fixture
def options(fake_gemini, tmp_path):
    (tmp_path / "project").mkdir()
    return Options(env=fake_gemini.env, model=MODEL, cwd=tmp_path / "project", timeout=60)


async def until_free(session_id, home):
    """The agent of a killed process holds its session for a moment more."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                with SessionLock(home, session_id):
                    return
            except SessionBusy:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def answering(inbox, *answers):
    """Somebody answers each question in turn while the block lasts; yields the questions."""
    seen = []

    async def answer():
        for decision in answers:
            (question,) = await asked(inbox)
            seen.append(await inbox.answer(question.id, decision, by="anna"))

    task = asyncio.create_task(answer())
    try:
        yield seen
        await asyncio.wait_for(task, WAIT_SECONDS)
    finally:
        task.cancel()


class TestApi:
    @pytest.fixture
    def deployed(self):
        return []

    @pytest.fixture
    def via(self, deployed):
        def deploy(target: str) -> str:
            """Deploys the program."""
            deployed.append(target)
            return "deployed"

        return partial(Api, tools=[deploy])

    @pytest.fixture
    def options(self, fake_gemini):
        return Options(env=fake_gemini.env, model=MODEL, session_id="chat-7")

    async def test_a_run_goes_on_when_the_answer_is_there(
        self, fake_gemini, options, via, deployed, inbox, store
    ):
        """The reason of a no reaches the model; always holds for the rest of the run."""
        fake_gemini.call("deploy", target="moon").call("deploy", target="mars")
        fake_gemini.call("deploy", target="venus").say("Done.")
        answers = Deny("no rocket today"), AllowAlways()
        async with answering(Inbox(store), *answers) as seen:
            result = await ask("Go", options, via=via(decide=inbox))
        assert (deployed, result.text) == (["mars", "venus"], "Done.")
        assert [one.input for one in seen] == [{"target": "moon"}, {"target": "mars"}]
        assert seen[0].transport == "api"
        assert "no rocket today" in str(fake_gemini.requests[1].tool_results)

    async def test_calls_of_one_answer_are_asked_about_at_once(
        self, fake_gemini, options, via, deployed, inbox
    ):
        fake_gemini.calls(("deploy", {"target": "moon"}), ("deploy", {"target": "mars"}))
        fake_gemini.say("Done.")
        running = asyncio.create_task(ask("Go", options, via=via(decide=inbox)))
        for question in await asked(inbox, 2):
            await inbox.answer(question.id, Allow())
        assert (await running).text == "Done."
        assert sorted(deployed) == ["mars", "moon"]

    async def test_without_an_answer_the_run_ends_waiting(
        self, fake_gemini, options, via, deployed, store, inbox
    ):
        fake_gemini.call("deploy", target="moon")
        async with run("Go", options, via=via(decide=Inbox(store, patience=0.1))) as live:
            events = [event async for event in live]
        question = await the_question(inbox, "waiting")
        *_, error, done = events
        assert isinstance(done, Done)
        assert (done.status, deployed) == ("error", [])
        assert isinstance(error, Error)
        assert (error.code, error.question, error.recoverable) == ("WAITING", question.id, False)
        assert question.short_id in error.message
        caught = live.result.exception()
        assert isinstance(caught, WaitingForAnswer)
        assert (caught.question_id, caught.retryable) == (question.id, False)
        assert [one.decision for one in events if isinstance(one, PermissionDecision)] == ["deny"]
        # The next conversation with the same session takes the answer.
        await inbox.answer(question.id, Allow())
        fake_gemini.call("deploy", target="moon").say("Done.")
        await ask("Again", options, via=via(decide=inbox))
        assert deployed == ["moon"]

    async def test_a_store_that_fails_is_a_no(self, fake_gemini, options, via, deployed, tmp_path):
        (tmp_path / "inbox.db").mkdir()
        fake_gemini.call("deploy", target="moon").say("Well then.")
        async with run("Go", options, via=via(decide=Inbox(tmp_path / "inbox.db"))) as live:
            decisions = [one async for one in live if isinstance(one, PermissionDecision)]
        assert [one.decision for one in decisions] == ["deny"]
        assert "inbox.db" in decisions[0].reason
        assert (deployed, live.result.text) == ([], "Well then.")

    def test_code_that_does_not_await_asks_and_answers(
        self, fake_gemini, options, via, deployed, store
    ):
        fake_gemini.call("deploy", target="moon").say("Done.")
        inbox = sync_inbox.Inbox(store)
        with sync.run("Go", options, via=via(decide=inbox)) as live:
            with closing(inbox.watch()) as changes:
                question = inbox.question(next(changes).short_id)
                inbox.answer(question.id, Allow())
                assert next(changes).answer.decision == "allow"
            results = [event.status for event in live if isinstance(event, ToolResult)]
        assert results == ["success"]
        assert inbox.questions() == []
        assert [one.answer.decision for one in inbox.questions(include_closed=True)] == ["allow"]
        assert deployed == ["moon"]


ASKER = """
import asyncio, json
from geminorum import Cli, Options, ask
from geminorum.inbox import Inbox
options = Options.from_dict({options!r})
asyncio.run(ask("Go", options, via=Cli(executable={cli!r}, decide=Inbox({store!r}))))
"""


@pytest.mark.gemini_cli
class TestTheRealCli:
    async def test_a_question_outlives_its_killed_process_and_the_tool_acts_once(
        self, fake_gemini, options, real_transport, store, inbox, owner
    ):
        """A model that changes its mind gets a new question; the answer stays for the old one."""
        add = {"command": "echo more >> log"}
        fake_gemini.call("run_shell_command", **add)
        plain = {"cwd": str(options.cwd), "model": MODEL, "env": dict(options.env), "timeout": 60}
        text = {"options": plain, "cli": str(real_transport.executable), "store": str(store)}
        asker = owner(ASKER.format(**text))
        (question,) = await asked(inbox)
        assert (question.command, question.state) == (add["command"], "open")
        asker.kill()
        asker.wait()
        await the_question(inbox, "waiting")
        with pytest.raises(QuestionClosed, match="not answered"):
            inbox.resume(question)
        answered = await inbox.answer(question.id, Allow())
        await until_free(question.session_id, Path(options.env["GEMINI_CLI_HOME"]))

        fake_gemini.call("run_shell_command", command="echo other >> log")
        fake_gemini.call("run_shell_command", **add).call("run_shell_command", **add).say("Done.")
        answers = Deny("stay with the plan"), Deny("once is enough")
        async with answering(inbox, *answers) as seen:
            resuming = inbox.resume(
                answered, options=Options(env=options.env, model=MODEL), via=real_transport
            )
            async with resuming as live:
                results = [one async for one in live if isinstance(one, ToolResult)]
        assert [one.status for one in results] == ["denied", "success", "denied"]
        assert [one.command for one in seen] == ["echo other >> log", add["command"]]
        assert (options.cwd / "log").read_text() == "more\n"
        assert live.result.session_id == question.session_id
        assert "It is allowed now" in str(fake_gemini.requests[-4].contents[-1])
        assert "stay with the plan" in str(fake_gemini.requests[-3].tool_results)
        with pytest.raises(QuestionClosed, match="was used"):
            inbox.resume(await inbox.question(question.id))

    async def test_a_chat_goes_on_after_a_turn_that_ended_waiting(
        self, fake_gemini, options, real_transport, store, inbox
    ):
        """The agent asks again, and hears the reason of the no."""
        touch = {"command": "touch made"}
        fake_gemini.call("run_shell_command", **touch)
        via = replace(real_transport, decide=Inbox(store, patience=0.2))
        async with connect(options, via=via) as chat:
            with pytest.raises(WaitingForAnswer) as caught:
                await chat.ask("Go")
            question = await the_question(inbox, "waiting")
            assert caught.value.question_id == question.id
            assert caught.value.session_id == question.session_id
            await inbox.answer(question.id, Deny("not on a Monday"))
            fake_gemini.call("run_shell_command", **touch).say("Fine.")
            assert (await chat.ask("And now?")).text == "Fine."
            assert chat.session_id == question.session_id
        assert "not on a Monday" in str(fake_gemini.requests[-1].tool_results)
        assert not (options.cwd / "made").exists()

    async def test_a_warm_session_ends_waiting_and_is_resumed(
        self, fake_gemini, options, real_transport, store, inbox
    ):
        write = {"file_path": "a.txt", "content": "hello\n"}
        fake_gemini.call("write_file", **write)
        # Only who resumes can let the write through.
        refuses = Acp(executable=real_transport.executable, decide=lambda request: False)
        async with refuses.warm(options) as via:
            asks = Inbox(store, patience=0.2)
            async with connect(options, via=via, decide=asks) as chat, chat.turn("Go") as live:
                events = [event async for event in live]
            assert [one.code for one in events if isinstance(one, Error)] == ["WAITING"]
            question = await the_question(inbox, "waiting")
            assert "+hello" in question.diff
            answered = await inbox.answer(question.id, Allow())
            fake_gemini.call("write_file", **write).say("Done.")
            async with inbox.resume(answered, options=options, via=via) as live:
                async for _ in live:
                    pass
        assert (live.result.text, live.result.session_id) == ("Done.", question.session_id)
        assert (options.cwd / "a.txt").read_text() == "hello\n"
