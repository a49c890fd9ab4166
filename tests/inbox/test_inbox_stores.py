"""Questions that wait for people elsewhere: in a file, and in a PostgreSQL for many machines."""

import asyncio
import itertools
import threading
from contextlib import aclosing
from datetime import timedelta

import psycopg
import pytest
from inbox_parts import (
    SHELL,
    WAIT_SECONDS,
    WRITE,
    asked,
    asking,
    conversation,
    leave_questions,
    start_asker,
    the_question,
)
from msgspec.structs import replace
from servers import empty_database

from geminorum import Allow, AllowAlways, Deny
from geminorum.decisions import Place
from geminorum.errors import (
    AlreadyAnswered,
    QuestionClosed,
    UnknownQuestion,
    WaitingForAnswer,
)
from geminorum.inbox import Inbox
from geminorum.inbox.address import open_database
from geminorum.inbox.changes import Changes
from geminorum.inbox.drafting import draft_of
from geminorum.inbox.table import QuestionTable
from geminorum.inbox.watching import watch
from geminorum.sessions.store.holder import new_holder

_numbers = itertools.count()


@pytest.fixture(scope="module")
def database_url(server):
    return empty_database(server)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path):
    """The address of an empty inbox."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/inbox.db"
        return
    url = request.getfixturevalue("database_url")
    with psycopg.connect(url, autocommit=True) as database:
        for table in ("geminorum_inbox", "geminorum_questions"):
            database.execute(f"DROP TABLE IF EXISTS {table}")
    yield url


@pytest.fixture
def inbox(store):
    return Inbox(store)


@pytest.fixture
def others(store):
    """The same inbox, as another process knows it."""
    return Inbox(store)


async def test_a_question_waits_until_somebody_answers_it_elsewhere(inbox, others, tmp_path):
    (tmp_path / "a.txt").write_text("old\n")
    async with asking(conversation(inbox, str(tmp_path)), SHELL, WRITE) as tasks:
        found = {one.tool: one for one in await asked(others, 2)}
        shell, write = found["run_shell_command"], found["write_file"]
        assert (shell.command, shell.input, shell.diff) == ("rm -r build", SHELL.input, None)
        assert "-old\n+new" in write.diff
        assert (write.session_id, write.call_id, write.cwd) == ("s-1", "call-2", str(tmp_path))
        assert (write.state, write.agent, write.transport) == ("open", "gemini", "cli")
        assert "write_file" in write.scope
        assert write.deadline - write.asked_at == 86_400_000
        answered = await others.answer(shell.id, Allow(), by="anna")
        assert (answered.state, answered.answer.by, answered.answer.decision) == (
            *("answered", "anna"),
            "allow",
        )
        await others.answer(write.id, Deny("not on a Monday"))
        assert await asyncio.gather(*tasks) == [Allow(), Deny("not on a Monday")]
    assert await inbox.questions() == []
    assert all(one.used_at for one in await inbox.questions(include_closed=True))


async def test_of_many_answers_exactly_one_counts(inbox, store):
    async with asking(conversation(inbox), SHELL) as (task,):
        (question,) = await asked(inbox)
        answers = [Allow() if number % 2 else Deny(f"no {number}") for number in range(8)]
        outcomes = await asyncio.gather(
            *(
                Inbox(store).answer(question.id, answer, by=f"person {number}")
                for number, answer in enumerate(answers)
            ),
            return_exceptions=True,
        )
        losers = [one for one in outcomes if isinstance(one, AlreadyAnswered)]
        (winner,) = [one for one in outcomes if not isinstance(one, Exception)]
        assert len(losers) == 7
        assert {one.question.answer for one in losers} == {winner.answer}
        assert all(winner.answer.by in str(one) for one in losers)
        assert await task == winner.answer.as_decision()


async def test_always_covers_the_tool_in_this_run_and_no_other(inbox):
    here, elsewhere = conversation(inbox), conversation(inbox)
    other = replace(SHELL, input={"command": "make"})
    async with asking(here, SHELL, other, WRITE) as tasks, asking(elsewhere, SHELL):
        questions = await asked(inbox, 4)
        mine = next(one for one in questions if one.command == "make")
        await inbox.answer(mine.id, AllowAlways())
        assert [await tasks[0], await tasks[1]] == [Allow(), AllowAlways()]
        assert await here.ask(replace(SHELL, input={"command": "ls"})) == Allow()
        left = [one.tool for one in await inbox.questions()]
        assert sorted(left) == ["run_shell_command", "write_file"]


async def test_a_deadline_that_passes_is_a_no(store, others):
    decision = await conversation(Inbox(store, deadline=0.05)).ask(SHELL)
    assert decision == Deny("nobody answered in 0.05 s")
    question = await the_question(others, "expired")
    with pytest.raises(QuestionClosed, match="is expired") as caught:
        await others.answer(question.id, Allow())
    assert not isinstance(caught.value, AlreadyAnswered)


async def test_a_deadline_holds_when_nobody_is_there_any_more(store, inbox):
    """Neither can such a question be answered, nor an answer be used that came in time."""
    await leave_questions(store, SHELL, deadline=4.0)
    await leave_questions(store, replace(SHELL, session_id="s-2"), deadline=4.0)
    first, second = await inbox.questions()
    await inbox.answer(first.id, Allow())
    async with asyncio.timeout(WAIT_SECONDS):
        while await inbox.questions():
            await asyncio.sleep(0.05)
    assert (await inbox.question(second.id)).state == "expired"
    with pytest.raises(QuestionClosed, match="is expired"):
        await inbox.answer(second.id, Allow())
    async with asking(conversation(inbox), SHELL):
        assert (await asked(inbox))[0].id != first.id


async def test_a_run_that_is_stopped_withdraws_its_question(inbox, others):
    async with asking(conversation(inbox), SHELL):
        await asked(others)
    question = await the_question(others, "withdrawn")
    with pytest.raises(QuestionClosed, match="is withdrawn"):
        await others.answer(question.id, Allow())


async def test_a_program_that_ends_can_leave_its_questions(inbox, others):
    async with asking(conversation(inbox), SHELL) as [task]:
        await asked(others)
        with inbox.leaving_questions():
            task.cancel()
            await asyncio.wait([task])
    question = await the_question(others, "waiting")
    assert (await others.answer(question.id, Allow())).is_resumable
    async with asking(conversation(inbox), replace(SHELL, session_id="s-9")):
        await asked(others)
    assert await others.questions() == []


async def test_an_answer_after_the_run_counts_once_for_the_same_call(store, inbox):
    """If the agent asks for anything else, or once more, that is a new question."""
    (error,) = await leave_questions(store, SHELL)
    assert isinstance(error, WaitingForAnswer)
    question = await the_question(inbox, "waiting")
    assert error.question_id == question.id
    assert not question.is_resumable
    answered = await inbox.answer(question.id, Allow())
    assert answered.is_resumable

    for other in (
        replace(SHELL, input={"command": "rm -r src"}),
        replace(SHELL, name="other_tool"),
        replace(SHELL, session_id="s-2"),
        replace(SHELL, session_id=None),
    ):
        async with asking(conversation(inbox), other):
            assert (await asked(inbox))[0].id != question.id
    async with asking(conversation(inbox, cwd="/srv/other"), SHELL):
        await asked(inbox)
    again = conversation(inbox)
    assert await again.ask(SHELL) == Allow()
    async with asking(again, SHELL):
        assert (await asked(inbox))[0].id != question.id


async def test_all_questions_of_a_run_that_ends_waiting_can_be_answered(store, inbox):
    await leave_questions(store, SHELL, WRITE)
    questions = await inbox.questions()
    assert [one.state for one in questions] == ["waiting", "waiting"]
    for one in questions:
        await inbox.answer(one.id, Deny(f"no {one.tool}"))
    decisions = conversation(inbox)
    assert await decisions.ask(WRITE) == Deny("no write_file")
    assert await decisions.ask(SHELL) == Deny("no run_shell_command")


async def test_each_turn_of_a_conversation_has_its_own_patience(store, inbox, monkeypatch):
    has_patience = [False]
    spent = property(lambda clock: not has_patience[0])
    monkeypatch.setattr("geminorum.inbox.asking._Clock.is_out_of_patience", spent)
    chat, ended = conversation(Inbox(store)), asyncio.Event()
    first = asyncio.create_task(chat.ask(SHELL, lambda error: ended.set()))
    await asyncio.wait_for(ended.wait(), WAIT_SECONDS)
    first.cancel()
    await asyncio.wait([first])
    has_patience[0] = True
    async with asking(chat, WRITE) as (second,):
        while "write_file" not in [one.tool for one in await inbox.questions()]:
            await asyncio.sleep(0.01)
        (question,) = await inbox.questions()
        await asyncio.sleep(0.1)
        await inbox.answer(question.id, Allow())
        assert await asyncio.wait_for(second, WAIT_SECONDS) == Allow()


async def test_a_session_that_goes_on_with_something_else_withdraws_what_it_left(store, inbox):
    """But neither what was answered, nor what another session has left."""
    await leave_questions(store, SHELL, WRITE)
    await leave_questions(store, replace(SHELL, session_id="s-2"))
    left = {(one.tool, one.session_id): one.id for one in await inbox.questions()}
    await inbox.answer(left["write_file", "s-1"], Allow())
    async with asking(conversation(inbox), replace(SHELL, input={"command": "make"})):
        while "make" not in [one.command for one in await inbox.questions()]:
            await asyncio.sleep(0.01)
        states = {one.id: one.state for one in await inbox.questions(include_closed=True)}
    assert states[left["run_shell_command", "s-1"]] == "withdrawn"
    assert states[left["run_shell_command", "s-2"]] == "waiting"
    assert await conversation(inbox).ask(WRITE) == Allow()


async def test_a_question_of_a_killed_process_is_taken_over(store, inbox):
    """Nobody answered: who resumes the session asks the same question on."""
    asker = start_asker(store)
    try:
        (question,) = await asked(inbox)
        assert (question.state, question.pid) == ("open", asker.pid)
    finally:
        asker.kill()
        asker.communicate()
    assert (await the_question(inbox, "waiting")).id == question.id
    async with asking(conversation(inbox), SHELL) as (task,):
        taken = await the_question(inbox, "open")
        assert (taken.id, taken.pid == asker.pid) == (question.id, False)
        await inbox.answer(question.id[:6], AllowAlways())
        assert await task == AllowAlways()


async def test_an_asker_that_lost_its_question_does_not_act(store, inbox, monkeypatch):
    """A machine may sleep past its lease, and another go on with the session."""
    monkeypatch.setattr("geminorum.inbox.table.LEASE_SECONDS", -1.0)
    async with asking(conversation(inbox), SHELL) as (first,):
        await the_question(inbox, "waiting")
        async with asking(conversation(inbox), SHELL) as (second,):
            reason = "another run of the session has taken the question over"
            assert await asyncio.wait_for(first, WAIT_SECONDS) == Deny(reason)
            (question,) = await inbox.questions()
            await inbox.answer(question.id, Allow())
            assert await second == Allow()


async def test_a_watcher_sees_each_change(store, inbox, others):
    async with aclosing(others.watch()) as changes:

        async def next_change():
            question = await asyncio.wait_for(anext(changes), WAIT_SECONDS)
            return question.tool, question.state, question.used_at is not None

        async with asking(conversation(inbox), SHELL) as (task,):
            assert await next_change() == ("run_shell_command", "open", False)
            (question,) = await inbox.questions()
            await inbox.answer(question.id, Allow())
            assert await task == Allow()
        seen = [await next_change()]
        if seen[0] == ("run_shell_command", "answered", False):
            seen.append(await next_change())
        assert seen[-1] == ("run_shell_command", "answered", True)
        asker = start_asker(store)
        try:
            assert await next_change() == ("run_shell_command", "open", False)
        finally:
            asker.kill()
            asker.communicate()
        assert await next_change() == ("run_shell_command", "waiting", False)
    before = question.revision
    async with aclosing(others.watch(before)) as changes:
        assert (await anext(changes)).id == question.id
        assert (await anext(changes)).state == "waiting"


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
async def test_a_database_that_cuts_all_connections_loses_no_question(store, inbox, others):
    """And none of ours is left in the end."""
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    async with aclosing(others.watch()) as changes, asking(conversation(inbox), SHELL) as (task,):
        question = await anext(changes)
        with psycopg.connect(store, autocommit=True) as database:
            database.execute(cut)
        await inbox.answer(question.id, Allow())
        assert await asyncio.wait_for(task, WAIT_SECONDS) == Allow()
        async for change in changes:
            if change.used_at is not None:
                break
    with psycopg.connect(store, autocommit=True) as database:
        async with asyncio.timeout(WAIT_SECONDS):
            own = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            while database.execute(own).fetchone() != (1,):
                await asyncio.sleep(0.02)


async def test_a_watcher_is_told_what_is_open_already(inbox, others):
    async with asking(conversation(inbox), SHELL, WRITE):
        await asked(inbox, 2)
        async with aclosing(others.watch()) as changes:
            seen = {(await anext(changes)).tool, (await anext(changes)).tool}
    assert seen == {"run_shell_command", "write_file"}


async def test_changes_of_many_writers_are_all_seen_in_their_order(inbox, store):
    """A revision is never seen before a lower one."""
    count = 12
    requests = [replace(SHELL, input={"command": str(number)}) for number in range(count)]
    seen = []
    async with aclosing(inbox.watch(0)) as changes:

        async def watch():
            async for question in changes:
                seen.append(question)
                if len({one.id for one in seen}) == count:
                    return

        watching = asyncio.create_task(watch())
        async with asking(conversation(Inbox(store)), *requests):
            await asyncio.wait_for(watching, WAIT_SECONDS)
    revisions = [one.revision for one in seen]
    assert revisions == sorted(set(revisions))


async def test_what_changes_between_two_looks_is_told_in_its_turn(store):
    """Two questions are asked after the changes were read, and before the open ones are."""

    class Late(QuestionTable):
        def unanswered(self, limit):
            if not asked_late:
                for number in range(2):
                    draft = draft_of(replace(SHELL, input={"n": number}), Place())
                    asked_late.append(self.ask(draft, new_holder(), None).revision)
            return super().unanswered(limit)

    asked_late = []
    table, changes = Late(open_database(store)), Changes(open_database(store))
    async with aclosing(watch(table, changes, 0)) as watching:
        assert [(await anext(watching)).revision for _ in range(2)] == [1, 2] == asked_late
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(watching), 0.5)


@pytest.mark.parametrize(
    "text", ["zero \0 and half \ud83d", "'; DROP TABLE geminorum_questions; --", "%(id)s :id {x}"]
)
async def test_any_text_of_a_model_can_be_asked_about(inbox, text):
    request = replace(SHELL, name=text, id=text, input={text: [text], "command": text}, reason=text)
    async with asking(conversation(inbox, cwd=f"/srv/{text}"), request) as (task,):
        (question,) = await asked(inbox)
        await inbox.answer(question.id, Deny(text), by=text)
        assert isinstance(await task, Deny)
        assert (await inbox.question(question.id)).answer.reason


async def test_ids_can_be_shortened_but_not_guessed(inbox):
    with pytest.raises(UnknownQuestion):
        await inbox.question("abc")
    async with asking(conversation(inbox), *[replace(SHELL, input={"n": n}) for n in range(17)]):
        questions = await asked(inbox, 17)
        assert await inbox.question(questions[3].id[:12].upper()) == questions[3]
        firsts = [one.id[0] for one in questions]
        shared = next(digit for digit in firsts if firsts.count(digit) > 1)
        with pytest.raises(UnknownQuestion, match="several questions begin"):
            await inbox.question(shared)
        for wrong in ("", "%", "_", "zz", "\0"):
            with pytest.raises(UnknownQuestion, match="there is no question"):
                await inbox.question(wrong)


async def test_old_questions_can_be_pruned_but_no_open_one(inbox):
    async with asking(conversation(inbox), SHELL, WRITE) as tasks:
        questions = await asked(inbox, 2)
        await inbox.answer(questions[0].id, Allow())
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert await inbox.prune(timedelta(hours=1)) == 0
        assert await inbox.prune(timedelta(seconds=-1)) == 1
        assert [one.id for one in await inbox.questions(include_closed=True)] == [questions[1].id]


def test_the_first_users_of_an_empty_inbox_may_come_at_once(store):
    outcomes = []

    def look():
        try:
            outcomes.append(asyncio.run(ask_and_withdraw()))
        except Exception as error:
            outcomes.append(error)

    async def ask_and_withdraw():
        async with asking(conversation(Inbox(store)), SHELL):
            await asked(Inbox(store))
        return "asked"

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["asked"] * 4
