"""Asking for permission: who is asked, what counts as a yes, and that nothing else does."""

import asyncio
import contextvars
import functools
import gc
import subprocess
import sys
import threading

import pytest

from geminorum.decisions import Allow, AllowAlways, Decisions, Deny, invoke, run_in_thread
from geminorum.errors import InvalidOptions
from geminorum.events import PermissionRequest

SHELL = PermissionRequest(name="run_shell_command", id="1", input={"command": "ls"})
WRITE = PermissionRequest(name="write_file", id="2", input={"file_path": "a"})


def ask(decide, *requests, timeout=300.0):
    """The answers, one question after the other, in a loop of their own."""
    decisions = Decisions(decide, timeout)

    async def all_of_them():
        return [await decisions.ask(request) for request in requests]

    answers = asyncio.run(all_of_them())
    return answers[0] if len(answers) == 1 else answers


class TestAnswers:
    @pytest.mark.parametrize("answer", [Allow(), AllowAlways(), Deny(), Deny("not on a Sunday")])
    def test_what_decide_says_is_the_answer(self, answer):
        """S0-30: Allow, AllowAlways and Deny pass through unchanged."""
        assert ask(lambda request: answer, SHELL) == answer

    def test_decide_sees_the_request_whole(self):
        """S0-30: the callback receives the whole PermissionRequest."""
        seen = []
        ask(lambda request: seen.append(request) or Allow(), SHELL)
        assert seen == [SHELL]

    @pytest.mark.parametrize(("answer", "meant"), [(True, Allow()), (False, Deny())])
    def test_true_and_false_are_understood(self, answer, meant):
        assert ask(lambda request: answer, SHELL) == meant

    @pytest.mark.parametrize(
        ("answer", "named"),
        [(None, "None"), ("allow", "of type str"), (1, "of type int"), (Allow, "the class Allow")],
    )
    def test_anything_else_is_a_no_that_says_what_to_return(self, answer, named):
        decision = ask(lambda request: answer, SHELL)
        assert isinstance(decision, Deny)
        assert named in decision.reason
        assert "Allow(), AllowAlways() or Deny('why')" in decision.reason

    def test_an_exception_is_a_no_that_names_it(self):
        def broken(request):
            raise LookupError("no terminal")

        assert ask(broken, SHELL) == Deny("decide raised LookupError: no terminal")

    def test_an_exception_of_an_async_function_is_a_no_that_names_it(self):
        async def broken(request):
            raise TimeoutError("the database slept")

        assert ask(broken, SHELL) == Deny("decide raised TimeoutError: the database slept")

    def test_the_next_question_is_asked_after_a_failure(self):
        answers = iter([Deny("first"), "nonsense", Allow()])
        assert ask(lambda request: next(answers), SHELL, SHELL, SHELL)[2] == Allow()

    def test_a_decide_that_runs_out_of_answers_is_a_no(self):
        """A StopIteration cannot pass through a coroutine; it must not hang the run either."""
        answers = iter([Allow()])
        second = ask(lambda request: next(answers), SHELL, SHELL)[1]
        assert isinstance(second, Deny)
        assert "StopIteration" in second.reason

    def test_nobody_to_ask_is_a_no(self):
        assert ask(None, SHELL) == Deny("there is nobody to ask")


class TestAlways:
    def test_a_tool_that_is_always_allowed_is_not_asked_about_again(self):
        asked = []

        def decide(request):
            asked.append(request.name)
            return AllowAlways()

        assert ask(decide, SHELL, SHELL, WRITE, SHELL) == [
            AllowAlways(),
            Allow(),
            AllowAlways(),
            Allow(),
        ]
        assert asked == ["run_shell_command", "write_file"]

    def test_a_single_yes_is_not_remembered(self):
        answers = [Allow(), Deny("enough")]
        assert ask(lambda request: answers.pop(0), SHELL, SHELL) == [Allow(), Deny("enough")]

    def test_two_deciders_do_not_share_what_they_remember(self):
        assert ask(lambda request: AllowAlways(), SHELL) == AllowAlways()
        assert ask(lambda request: Deny("other"), SHELL) == Deny("other")

    async def test_a_question_that_waited_is_answered_by_the_always_before_it(self):
        asked = []

        async def decide(request):
            asked.append(request.id)
            await asyncio.sleep(0)
            return AllowAlways()

        decisions = Decisions(decide)
        answers = await asyncio.gather(*(decisions.ask(SHELL) for _ in range(5)))
        assert answers == [AllowAlways(), *[Allow()] * 4]
        assert asked == ["1"]

    async def test_what_is_always_allowed_does_not_wait_for_another_question(self):
        open_question = asyncio.Event()
        answer = asyncio.Event()

        async def decide(request):
            if request.name == "run_shell_command":
                return AllowAlways()
            open_question.set()
            await answer.wait()
            return Allow()

        decisions = Decisions(decide)
        await decisions.ask(SHELL)
        pending = asyncio.create_task(decisions.ask(WRITE))
        await open_question.wait()
        assert await decisions.ask(SHELL) == Allow()
        assert not pending.done()
        answer.set()
        assert await pending == Allow()


class TestOneAtATime:
    @pytest.mark.parametrize("kind", ["sync", "async"])
    async def test_a_person_is_asked_one_question_at_a_time(self, kind):
        at_once = [0]
        most = [0]

        def counted(change):
            at_once[0] += change
            most[0] = max(most[0], at_once[0])

        def sync_decide(request):
            counted(1)
            threading.Event().wait(0.01)
            counted(-1)
            return Allow()

        async def async_decide(request):
            counted(1)
            await asyncio.sleep(0.01)
            counted(-1)
            return Allow()

        decisions = Decisions(sync_decide if kind == "sync" else async_decide)
        answers = await asyncio.gather(*(decisions.ask(SHELL) for _ in range(4)))
        assert answers == [Allow()] * 4
        assert most == [1]

    def test_one_object_serves_one_loop_after_the_other(self):
        async def decide(request):
            await asyncio.sleep(0)
            return Allow()

        decisions = Decisions(decide)

        async def two_at_once():
            return await asyncio.gather(decisions.ask(SHELL), decisions.ask(WRITE))

        assert [asyncio.run(two_at_once()) for _ in range(3)] == [[Allow(), Allow()]] * 3
        assert len(decisions._locks) == 1  # the closed loops are let go


class TestTimeout:
    def test_no_answer_is_a_no(self):
        release = threading.Event()
        try:
            decision = ask(lambda request: release.wait(), SHELL, timeout=0.05)
        finally:
            release.set()
        assert decision == Deny("nobody answered in 0.05 s")

    def test_an_async_function_that_is_late_is_cancelled(self):
        cancelled = []

        async def slow(request):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(request.name)
                raise

        assert ask(slow, SHELL, timeout=0.05) == Deny("nobody answered in 0.05 s")
        assert cancelled == ["run_shell_command"]

    def test_a_yes_that_comes_too_late_is_a_no(self):
        async def stubborn(request):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return AllowAlways()

        assert ask(stubborn, SHELL, SHELL, timeout=0.05) == [Deny("nobody answered in 0.05 s")] * 2

    def test_without_a_timeout_it_waits(self):
        async def decide(request):
            await asyncio.sleep(0.05)
            return Allow()

        assert ask(decide, SHELL, timeout=None) == Allow()

    async def test_the_next_question_can_be_asked_after_a_timeout(self):
        release = threading.Event()
        decisions = Decisions(lambda request: request.name == "write_file" or release.wait(), 0.05)
        try:
            assert isinstance(await decisions.ask(SHELL), Deny)
            assert await decisions.ask(WRITE) == Allow()
        finally:
            release.set()


class TestCancelling:
    @pytest.mark.parametrize("kind", ["sync", "async"])
    async def test_a_cancelled_run_does_not_wait_for_the_answer(self, kind):
        release = threading.Event()

        def sync_decide(request):
            release.wait()
            return Allow()

        async def async_decide(request):
            await asyncio.Event().wait()

        decisions = Decisions(sync_decide if kind == "sync" else async_decide)
        asking = asyncio.create_task(decisions.ask(SHELL))
        await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        release.set()

    async def test_a_cancelled_question_lets_the_next_one_through(self):
        first = asyncio.Event()

        async def decide(request):
            if request is SHELL:
                first.set()
                await asyncio.Event().wait()
            return Allow()

        decisions = Decisions(decide)
        asking = asyncio.create_task(decisions.ask(SHELL))
        await first.wait()
        waiting = asyncio.create_task(decisions.ask(WRITE))
        asking.cancel()
        assert await waiting == Allow()


class Patient:
    async def __call__(self, request):
        await asyncio.sleep(0)
        return Deny("a patient no")


class Plain:
    def __call__(self, request):
        return Deny(threading.current_thread().name)


async def two_arguments(reason, request):
    return Deny(reason)


class TestKindsOfFunction:
    @pytest.mark.parametrize(
        "decide",
        [
            Patient(),
            functools.partial(two_arguments, "a patient no"),
            lambda request: two_arguments("a patient no", request),
            Patient().__call__,
        ],
        ids=["object", "partial", "lambda", "method"],
    )
    def test_whatever_awaits_is_awaited(self, decide):
        assert ask(decide, SHELL) == Deny("a patient no")

    def test_what_does_not_await_runs_in_a_thread_of_its_own(self):
        assert ask(Plain(), SHELL).reason not in ("", threading.current_thread().name)

    def test_the_loop_goes_on_while_a_plain_function_thinks(self):
        """The loop itself opens the gate that the function waits for."""
        gate = threading.Event()

        async def both():
            asyncio.get_running_loop().call_later(0.01, gate.set)
            return await Decisions(lambda request: gate.wait(30)).ask(SHELL)

        assert asyncio.run(both()) == Allow()

    def test_a_plain_function_sees_the_callers_context_variables(self):
        tenant = contextvars.ContextVar("tenant", default="nobody")

        async def asked():
            tenant.set("ada")
            return await Decisions(lambda request: Deny(tenant.get())).ask(SHELL)

        assert asyncio.run(asked()) == Deny("ada")

    @pytest.mark.parametrize(
        ("arguments", "advice"),
        [(("yes",), "decide=may_i"), ((None, 0), "None waits"), ((None, float("nan")), "None")],
    )
    def test_what_cannot_work_is_refused_at_once(self, arguments, advice):
        with pytest.raises(InvalidOptions, match=advice):
            Decisions(*arguments)


class TestThreads:
    async def test_the_result_and_the_exception_come_back(self):
        assert await run_in_thread(pow, 2, 5) == 32
        with pytest.raises(ZeroDivisionError):
            await run_in_thread(divmod, 1, 0)

    @pytest.mark.parametrize("ending", ["value", "exception", "coroutine"])
    def test_a_late_result_is_dropped_in_silence(self, ending, capfd, caplog):
        """Once where the waiting task was cancelled, once where the loop is closed already."""

        def late(release, finished):
            finished.append(threading.current_thread())
            release.wait()
            if ending == "exception":
                raise LookupError("too late")
            return two_arguments("too", "late") if ending == "coroutine" else "too late"

        async def abandoned(release, threads, stay):
            waiting = asyncio.create_task(run_in_thread(late, release, threads))
            while not threads:
                await asyncio.sleep(0.001)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            if stay:
                release.set()
                while threads[0].is_alive():
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0)

        for stay in (True, False):
            release, threads = threading.Event(), []
            asyncio.run(abandoned(release, threads, stay), debug=True)
            release.set()
            threads[0].join()
        gc.collect()
        assert capfd.readouterr() == ("", "")
        assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []

    def test_a_function_that_never_returns_does_not_keep_the_program_alive(self):
        code = """
import asyncio, threading
from geminorum.decisions import Decisions
from geminorum.events import PermissionRequest
ask = Decisions(lambda request: threading.Event().wait(), 0.05).ask
print(asyncio.run(ask(PermissionRequest(name="x"))))
"""
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "Deny(reason='nobody answered in 0.05 s')\n"

    @pytest.mark.parametrize(("function", "threads"), [(two_arguments, 0), (divmod, 1)])
    def test_only_a_plain_function_gets_a_thread(self, function, threads):
        started = set()
        # Called from inside each thread that begins meanwhile.
        threading.setprofile(lambda *_: started.add(threading.get_ident()))
        try:
            asyncio.run(invoke(function, 7, 2))
        finally:
            threading.setprofile(None)
        assert len(started) == threads
