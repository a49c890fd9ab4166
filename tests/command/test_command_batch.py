"""`geminorum batch`: many prompts, each with exactly one result, for no more than was allowed."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from command_line import COMMAND, Started, Terminal, environment, shared_environment
from command_line import geminorum_command as command
from geminorum import GeminorumError, Options
from geminorum.apps.command.batch.input import Task, tasks_in
from geminorum.apps.command.batch.journal import Journal, TaskOutcome
from geminorum.apps.command.batch.runner import Batch, Budget, Limits
from geminorum.apps.command.batch.senders import LocalSender
from geminorum.apps.command.exits import Exit
from geminorum.errors import InvalidOptions
from geminorum.testing import FakeGemini, Say, Tokens

SPENT = Tokens(prompt=1000, output=100)
PRICE = Decimal("0.00055")
"""Of those tokens, with gemini-2.5-flash."""
API = ("--via", "api", "--model", "gemini-2.5-flash")


def prompts(folder: Path, count: int) -> Path:
    file = folder / "prompts.jsonl"
    lines = [json.dumps({"id": f"p{n}", "prompt": f"Prompt {n}."}) for n in range(count)]
    file.write_text("\n".join(lines) + "\n")
    return file


def shouting(fake: FakeGemini, delay: float = 0.0) -> FakeGemini:
    """Answers each prompt with itself in capitals, at a known price."""
    return fake.reply(
        lambda request: Say((request.prompt.upper(),), tokens=SPENT, delay=delay)
    ).always()


def results(folder: Path) -> list[dict]:
    return [
        json.loads(line) for line in (folder / "prompts.results.jsonl").read_text().splitlines()
    ]


def killed_after(lines: int, file: Path, *arguments: str, env) -> None:
    """Start a batch, and kill -9 it when so many results are written."""
    written = file.with_name("prompts.results.jsonl")
    child = begin(file, *arguments, env=env)
    kill_when(lambda: written.exists() and written.read_bytes().count(b"\n") >= lines, child)


def begin(file: Path, *arguments: str, env, stderr: int = subprocess.DEVNULL) -> Started:
    return Started("batch", file, *arguments, env=env, stderr=stderr)


def kill_when(happened: Callable[[], bool], child: Started | subprocess.Popen[bytes]) -> None:
    while not happened():
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()


# ---- must show: killed in the middle


def test_a_batch_that_was_killed_goes_on_and_every_prompt_has_one_result(fake_gemini, tmp_path):
    shouting(fake_gemini)
    file = prompts(tmp_path, 80)
    killed_after(25, file, *API, env=fake_gemini.env)
    before = results(tmp_path)
    assert 25 <= len(before) < 80
    done = command("batch", file, *API, env=fake_gemini.env)
    assert done.returncode == 0, done.stderr
    words = f"{len(before)} of 80 prompts are done already; {80 - len(before)} to go\n"
    assert done.stderr.startswith(words)
    after = results(tmp_path)
    assert after[: len(before)] == before
    assert Counter(one["id"] for one in after) == {f"p{n}": 1 for n in range(80)}
    assert all(one["text"] == one["prompt"].upper() for one in after)
    # What was in flight at the kill was asked twice, and nothing else was.
    asked = Counter(request.prompt for request in fake_gemini.requests)
    assert len(asked) == 80
    assert asked.total() <= 84
    again = command("batch", file, *API, env=fake_gemini.env)
    assert (again.returncode, len(fake_gemini.requests)) == (0, asked.total())


def test_the_budget_holds_over_a_kill(fake_gemini, tmp_path):
    shouting(fake_gemini)
    file = prompts(tmp_path, 50)
    budget = ("--budget", str(PRICE * 25))
    killed_after(10, file, *API, *budget, env=fake_gemini.env)
    done = command("batch", file, *API, *budget, env=fake_gemini.env)
    assert done.returncode == Exit.LIMIT
    assert "raise --budget" in done.stderr
    assert len(fake_gemini.requests) <= 25
    told = results(tmp_path)
    # Four may have been in flight at the kill: their cost was never told, and is counted in full.
    assert 21 <= len(told) <= 25
    assert {one["status"] for one in told} == {"success"}
    more = command("batch", file, *API, "--budget", "1", env=fake_gemini.env)
    assert more.returncode == 0
    assert Counter(one["id"] for one in results(tmp_path)) == {f"p{n}": 1 for n in range(50)}


def test_what_a_killed_attempt_cost_is_called_an_assumption(fake_gemini, tmp_path):
    shouting(fake_gemini)
    file = prompts(tmp_path, 3)
    with Journal(tmp_path / "prompts.results.jsonl", file).open() as journal:
        journal.begin(tasks_in(file)[0])
    done = command("batch", file, *API, env=fake_gemini.env)
    assert f"(${PRICE} of it assumed for attempts that were killed)" in done.stderr


def test_half_a_line_at_the_end_is_no_result(fake_gemini, tmp_path):
    shouting(fake_gemini)
    file = prompts(tmp_path, 3)
    assert command("batch", file, *API, env=fake_gemini.env).returncode == 0
    whole = (tmp_path / "prompts.results.jsonl").read_bytes()
    (tmp_path / "prompts.results.jsonl").write_bytes(whole[:-20])
    assert command("batch", file, *API, env=fake_gemini.env).returncode == 0
    assert sorted(one["id"] for one in results(tmp_path)) == ["p0", "p1", "p2"]
    assert len(fake_gemini.requests) == 4


def shell(line: str, env) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line], env=environment(env), capture_output=True, text=True, timeout=60
    )


def test_a_full_disk_stops_it_and_it_goes_on_afterwards(fake_gemini, tmp_path):
    shouting(fake_gemini)
    file = prompts(tmp_path, 12)
    line = " ".join([*COMMAND, "batch", str(file), *API])
    full = shell(f"ulimit -f 2; exec {line}", fake_gemini.env)
    assert full.returncode == Exit.FAILED, full.stderr
    assert "run the same command again" in full.stderr
    assert "Traceback" not in full.stderr
    assert command("batch", file, *API, env=fake_gemini.env).returncode == 0
    assert Counter(one["id"] for one in results(tmp_path)) == {f"p{n}": 1 for n in range(12)}


def test_a_reader_who_leaves_stops_it_and_loses_nothing(fake_gemini, tmp_path):
    shouting(fake_gemini)
    file = prompts(tmp_path, 12)
    line = " ".join([*COMMAND, "batch", str(file), *API, "--json"])
    done = shell(f"set -o pipefail; {line} | head -1", fake_gemini.env)
    assert done.returncode in (0, Exit.CLOSED_PIPE), done.stderr
    assert "Traceback" not in done.stderr
    assert command("batch", file, *API, env=fake_gemini.env).returncode == 0
    assert Counter(one["id"] for one in results(tmp_path)) == {f"p{n}": 1 for n in range(12)}


# ---- must show: killed with agents at work

SLOW_AGENT = """#!{python}
import fcntl, json, os, signal, sys, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # As one that tidies up for as long as it may.
prompt = sys.stdin.read().split()[1].rstrip(".")
log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def note(what):
    os.write(log, (what + " " + prompt + "\\n").encode())

busy = os.open("busy-" + prompt, os.O_WRONLY | os.O_CREAT)
try:
    fcntl.flock(busy, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    note("beside another:")
note("begun")
time.sleep(0.5 if os.path.exists("go") else 60)
note("finished")
for line in (
    {{"type": "init", "session_id": "s-" + prompt, "model": "flash"}},
    {{"type": "message", "role": "assistant", "content": "Done", "delta": True}},
    {{"type": "result", "status": "success"}},
):
    print(json.dumps(line), flush=True)
"""


def lines_of(file: Path) -> Counter[str]:
    return Counter(file.read_text().splitlines()) if file.exists() else Counter()


def test_a_killed_batch_started_again_lets_every_agent_finish_once_and_alone(tmp_path):
    agent = tmp_path / "agent"
    agent.write_text(SLOW_AGENT.format(python=sys.executable))
    agent.chmod(0o755)
    file, log = prompts(tmp_path, 12), tmp_path / "log"
    arguments = ("-j", "12", "--cli", str(agent), "--cwd", str(tmp_path))
    kill_when(lambda: lines_of(log).total() == 12, begin(file, *arguments, env={}))
    (tmp_path / "go").touch()
    done = command("batch", file, *arguments)
    assert done.returncode == 0, done.stderr
    noted = lines_of(log)
    assert noted == {f"{what} {n}": times for n in range(12) for what, times in HOW_OFTEN}
    assert Counter(one["id"] for one in results(tmp_path)) == {f"p{n}": 1 for n in range(12)}


HOW_OFTEN = (("begun", 2), ("finished", 1))


AGENT_WITH_A_JOB = """#!{python}
import json, subprocess, sys

sys.stdin.read()
null = subprocess.DEVNULL
job = "trap '' TERM; while :; do sleep 0.1; done"
pid = subprocess.Popen(["sh", "-c", job], start_new_session=True, stdout=null, stderr=null).pid
open("pid", "w").write(str(pid))
for line in (
    {{"type": "init", "session_id": "s-1", "model": "flash"}},
    {{"type": "message", "role": "assistant", "content": "Done", "delta": True}},
    {{"type": "result", "status": "success"}},
):
    print(json.dumps(line), flush=True)
"""


def test_what_an_agent_has_finished_is_written_down_before_its_jobs_are_ended(tmp_path):
    """That takes up to five seconds, in which a kill would let the agent do it all again."""
    agent = tmp_path / "agent"
    agent.write_text(AGENT_WITH_A_JOB.format(python=sys.executable))
    agent.chmod(0o755)
    file = prompts(tmp_path, 1)
    arguments = ("--cli", str(agent), "--cwd", str(tmp_path))
    outcomes = tmp_path / "prompts.results.jsonl"
    child = begin(file, *arguments, env={})
    kill_when(lambda: outcomes.exists() and outcomes.read_text().endswith("\n"), child)
    assert psutil.pid_exists(int((tmp_path / "pid").read_text()))
    (tmp_path / "pid").unlink()
    assert command("batch", file, *arguments).returncode == 0
    assert not (tmp_path / "pid").exists()


BATCH_WITH_A_STUBBORN_AGENT = """
import asyncio, os
from pathlib import Path
from geminorum.apps.command.batch.journal import Journal
from geminorum.transports.process.tree import Child

STUBBORN = "trap '' TERM; echo $$ > new; mv new pid; while :; do sleep 0.1; done"

async def main():
    with Journal(Path("out.jsonl")).open():
        async with Child(["sh", "-c", STUBBORN], env=dict(os.environ)):
            await asyncio.sleep(60)

asyncio.run(main())
"""


def test_a_batch_goes_on_when_the_last_agent_of_the_killed_one_is_gone(tmp_path):
    killed = subprocess.Popen([sys.executable, "-c", BATCH_WITH_A_STUBBORN_AGENT], cwd=tmp_path)
    kill_when((tmp_path / "pid").exists, killed)
    with Journal(tmp_path / "out.jsonl").open():
        assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


# ---- must show: through the real CLI


@pytest.fixture(scope="module")
def ordeal(real_transport, tmp_path_factory) -> Iterator[SimpleNamespace]:
    """Two prompts through the real CLI. The batch is terminated at its first request; it is stopped
    by its budget; it is killed with an agent at work; and then it goes on to its end."""
    folder = tmp_path_factory.mktemp("ordeal")
    found, file = SimpleNamespace(folder=folder), prompts(folder, 2)
    arguments = ("--model", "gemini-2.5-flash", "--approval", "yolo", "--cwd", folder)
    one_by_one = (*arguments, "-j", "1", "--budget")
    with FakeGemini() as fake:
        fake.when("Prompt 0").hang()
        fake.when(lambda request: request.prompt != "Prompt 0." and not request.round).calls(
            ("run_shell_command", {"command": "echo x >> begun; sleep 2; echo x >> finished"}),
            tokens=SPENT,
        ).always()
        shouting(fake)
        env = {"GEMINI_CLI_PATH": str(real_transport.executable), **fake.env}
        env |= shared_environment(folder)
        child = begin(file, *one_by_one, "1", env=env, stderr=subprocess.PIPE)
        while not fake.requests:
            assert child.poll() is None
            time.sleep(0.01)
        child.send_signal(signal.SIGTERM)  # As Ctrl-C.
        found.told = child.communicate().decode()
        found.terminated = child.returncode
        found.limited = command("batch", file, *one_by_one, str(PRICE * 2), env=env)
        found.within_budget, found.asked = results(folder), len(fake.requests)
        child = begin(file, *arguments, env=env)
        kill_when(lambda: lines_of(folder / "begun")["x"] == 1, child)
        found.done = command("batch", file, *arguments, env=env)
        yield found


@pytest.mark.gemini_cli
def test_a_handful_through_the_real_cli_killed_and_gone_on(ordeal):
    assert ordeal.terminated == Exit.TERMINATED
    assert "run the same command again" in ordeal.told
    assert "Traceback" not in ordeal.told
    assert ordeal.limited.returncode == Exit.LIMIT, ordeal.limited.stderr
    # Nobody told what the attempt that was terminated cost: it counts as much as this one.
    assert [one["id"] for one in ordeal.within_budget] == ["p0"]
    assert ordeal.asked == 2
    assert ordeal.done.returncode == 0
    told = results(ordeal.folder)
    assert Counter(one["id"] for one in told) == {"p0": 1, "p1": 1}
    assert all(one["session_id"] and one["cost_usd"] for one in told)


@pytest.mark.gemini_cli
def test_a_killed_batch_of_the_real_cli_lets_its_agent_finish_once(ordeal):
    """And each of several, of a stand-in: `…_lets_every_agent_finish_once_and_alone`."""
    assert ordeal.done.returncode == 0, ordeal.done.stderr
    assert lines_of(ordeal.folder / "begun")["x"] == 2
    assert lines_of(ordeal.folder / "finished")["x"] == 1
    assert {one["text"] for one in results(ordeal.folder)} == {"PROMPT 0.", "PROMPT 1."}


# ---- limits


def tries(folder: Path) -> list[dict]:
    return [
        json.loads(line)
        for line in (folder / "prompts.results.jsonl.journal").read_text().splitlines()
    ]


def test_no_more_are_asked_at_a_time_than_was_said(fake_gemini, tmp_path):
    shouting(fake_gemini, delay=0.05)
    done = command("batch", prompts(tmp_path, 12), *API, "-j", "3", env=fake_gemini.env)
    assert done.returncode == 0
    open_ones = list(accumulate(-1 if one["ended"] else 1 for one in tries(tmp_path)))
    assert max(open_ones) == 3
    assert open_ones[-1] == 0


def test_prompts_begin_no_more_often_than_the_rate(fake_gemini, tmp_path):
    shouting(fake_gemini)
    file = prompts(tmp_path, 4)
    assert command("batch", file, *API, "--rate", "120", env=fake_gemini.env).returncode == 0
    begun = [one["at"] for one in tries(tmp_path) if not one["ended"]]
    assert begun[-1] - begun[0] >= 1400  # Three times half a second, to the millisecond or two.


def test_a_budget_keeps_room_for_what_is_in_flight():
    budget = Budget(1.0)
    assert budget.has_room(0)
    assert not budget.has_room(1)  # Nobody knows yet what one costs.
    budget.pay(Decimal("0.3"))
    assert budget.has_room(1)
    assert not budget.has_room(2)
    assert budget.share(1) == pytest.approx(0.4)
    budget.pay(Decimal("0.5"))
    assert not budget.has_room(0)
    assert Budget(None).has_room(99)
    torn = Budget(1.0, [Decimal("0.2"), Decimal("0.1")], torn=2)
    assert torn.spent == Decimal("0.7")
    assert not Budget(0).has_room(0)


def test_killed_attempts_count_as_soon_as_any_cost_is_known():
    budget = Budget(1.0, [], torn=4)
    assert budget.spent == 0
    budget.pay(Decimal("0.3"))
    assert budget.spent == Decimal("1.5")
    assert not budget.has_room(0)


@pytest.fixture(scope="module")
def one_dear_prompt(real_transport, tmp_path_factory) -> Iterator[SimpleNamespace]:
    """A prompt costs $0.30 before its tool is called; what follows comes late. First it is more
    than the batch may spend, then more than a prompt may, and another follows it."""
    folder = tmp_path_factory.mktemp("dear")
    found, arguments = SimpleNamespace(folder=folder), ("--model", "gemini-2.5-flash")
    with FakeGemini() as fake:
        fake.when(lambda request: request.prompt == "Prompt 0." and not request.round).calls(
            ("list_directory", {"dir_path": "."}), tokens=Tokens(prompt=1_000_000, output=100)
        ).always()
        fake.when(lambda request: request.round == 1).say("Too late.", delay=20).always()
        shouting(fake)
        env = {"GEMINI_CLI_PATH": str(real_transport.executable), **fake.env}
        env |= shared_environment(folder)

        def batch(count: int, *limits: str) -> subprocess.CompletedProcess[str]:
            return command("batch", prompts(folder, count), *arguments, *limits, env=env)

        found.stopped = batch(1, "--budget", "0.01")
        found.after_stop, found.asked = results(folder), len(fake.requests)
        found.blocked = batch(1, "--budget", "0.01")
        found.more_asked = len(fake.requests) - found.asked
        found.limited = batch(2, "-j", "1", "--budget", "9", "--max-budget-usd", "0.01")
        yield found


@pytest.mark.gemini_cli
def test_a_prompt_that_the_budget_stops_has_no_result_and_is_sent_again(one_dear_prompt):
    assert one_dear_prompt.stopped.returncode == Exit.LIMIT
    assert one_dear_prompt.asked > 0
    assert one_dear_prompt.after_stop == []
    assert one_dear_prompt.blocked.returncode == Exit.LIMIT  # What was spent stays spent.
    assert one_dear_prompt.more_asked == 0
    assert [one["id"] for one in results(one_dear_prompt.folder)] == ["p0", "p1"]


@pytest.mark.gemini_cli
def test_a_limit_of_each_prompt_is_its_own_result(one_dear_prompt):
    assert one_dear_prompt.limited.returncode == Exit.FAILED
    told = [one["status"] for one in results(one_dear_prompt.folder)]
    assert told == ["max_budget", "success"]


def test_a_dear_answer_is_kept_and_stops_the_batch(fake_gemini, tmp_path):
    fake_gemini.say("cheap", tokens=SPENT)
    fake_gemini.say("dear", tokens=Tokens(prompt=1_000_000, output=100))
    file = prompts(tmp_path, 3)
    done = command("batch", file, *API, "--budget", "0.01", "-j", "1", env=fake_gemini.env)
    assert done.returncode == Exit.LIMIT
    assert [one["text"] for one in results(tmp_path)] == ["cheap", "dear"]


def test_a_model_without_a_price_ends_a_batch_with_a_budget(fake_gemini, tmp_path):
    shouting(fake_gemini)
    file = prompts(tmp_path, 5)
    arguments = ("--via", "api", "--model", "secret-1", "--budget", "1")
    done = command("batch", file, *arguments, env=fake_gemini.env)
    assert done.returncode == Exit.LIMIT
    assert "price is not known" in done.stderr
    assert len(fake_gemini.requests) <= 1


# ---- failures


async def test_only_what_may_pass_is_tried_again(fake_gemini, tmp_path):
    """The waits are shortened here, so the engine is called and not the command."""
    from geminorum import Api

    fake_gemini.when("Prompt 0").fail(503).fail(503).say("At last.")
    fake_gemini.when("Prompt 1").fail(400, "No.").always()
    fake_gemini.when("Prompt 2").fail(503).always()
    tasks = [Task(f"p{n}", f"Prompt {n}.") for n in range(3)]
    journal = Journal(tmp_path / "out.jsonl")
    limits = Limits(concurrency=1, retries=2, first_wait=0.001)
    options = Options(env=fake_gemini.env, model="flash")
    with journal.open():
        await Batch(tasks, journal, options, LocalSender(Api(retries=0)), limits).run()
    told = journal.outcomes
    assert {name: (one.status, one.attempts) for name, one in told.items()} == {
        "p0": ("success", 3),
        "p1": ("error", 1),
        "p2": ("error", 3),
    }
    assert told["p1"].error is not None
    assert (told["p1"].error.code, told["p1"].error.retryable) == ("API", False)
    assert Counter(request.prompt for request in fake_gemini.requests) == {
        "Prompt 0.": 3,
        "Prompt 1.": 1,
        "Prompt 2.": 3,
    }


def test_failed_prompts_are_sent_again_only_when_asked(fake_gemini, tmp_path):
    fake_gemini.when("Prompt 1").fail(400)
    shouting(fake_gemini)
    file = prompts(tmp_path, 3)
    done = command("batch", file, *API, env=fake_gemini.env)
    assert done.returncode == Exit.FAILED
    assert "--retry-failed" in done.stderr
    assert "first failure, 'p1': " in done.stderr
    assert command("batch", file, *API, env=fake_gemini.env).returncode == Exit.FAILED
    assert len(fake_gemini.requests) == 3
    assert command("batch", file, *API, "--retry-failed", env=fake_gemini.env).returncode == 0
    assert len(fake_gemini.requests) == 4
    assert sorted(one["id"] for one in results(tmp_path)) == ["p0", "p1", "p2"]
    assert {one["status"] for one in results(tmp_path)} == {"success"}


def test_a_set_up_that_cannot_work_ends_it_at_once(tmp_path):
    file = prompts(tmp_path, 5)
    env = {"GEMINI_API_KEY": "", "GOOGLE_API_KEY": "", "HOME": str(tmp_path)}
    done = command("batch", file, *API, env=env)
    assert done.returncode == Exit.SETUP
    assert "no API key" in done.stderr
    assert "→ export GEMINI_API_KEY=…" in done.stderr
    assert "geminorum run --offline" in done.stderr
    assert "5 left" in done.stderr
    assert results(tmp_path) == []


def test_a_disk_that_is_full_leaves_no_half_of_a_line(tmp_path):
    """A little room is left: the system takes a part of the line, and says nothing."""
    resource = pytest.importorskip("resource")
    outcome = TaskOutcome(id="1", digest="d", prompt="p", status="success", text="x" * 1000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(tmp_path / "r.jsonl").open() as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
        try:
            with pytest.raises(GeminorumError, match=r"cannot write .*r\.jsonl"):
                journal.finish(outcome)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        journal.finish(outcome)
    with Journal(tmp_path / "r.jsonl").open() as journal:
        assert list(journal.outcomes) == ["1"]


# ---- files


def test_a_column_of_a_table_is_a_list_of_prompts(fake_gemini, tmp_path):
    shouting(fake_gemini)
    file = tmp_path / "prompts.csv"
    file.write_text('\ufeffid,text,note\na,"Hello,\nyou",x\nb,Bye,y\n')
    done = command("batch", file, *API, "--column", "text", env=fake_gemini.env)
    assert done.returncode == 0, done.stderr
    assert {one["id"]: one["text"] for one in results(tmp_path)} == {"a": "HELLO,\nYOU", "b": "BYE"}


def test_results_can_be_printed_and_written_elsewhere(fake_gemini, tmp_path):
    shouting(fake_gemini)
    output = tmp_path / "new" / "out.jsonl"
    file = prompts(tmp_path, 3)
    done = command("batch", file, *API, "--json", "-o", output, env=fake_gemini.env)
    assert done.stdout == output.read_text()
    assert sorted(json.loads(line)["id"] for line in done.stdout.splitlines()) == ["p0", "p1", "p2"]


def test_another_file_of_prompts_is_not_mixed_up_with_old_results(fake_gemini, tmp_path):
    shouting(fake_gemini)
    file = prompts(tmp_path, 2)
    command("batch", file, *API, env=fake_gemini.env)
    file.write_text(file.read_text().replace("Prompt 1", "Question 1"))
    done = command("batch", file, *API, env=fake_gemini.env)
    assert done.returncode == Exit.USAGE
    assert "--restart" in done.stderr
    assert command("batch", file, *API, "--restart", env=fake_gemini.env).returncode == 0
    assert sorted(one["text"] for one in results(tmp_path)) == ["PROMPT 0.", "QUESTION 1."]


def test_prompts_can_be_added_and_taken_out_between_two_starts(fake_gemini, tmp_path):
    shouting(fake_gemini)
    file = prompts(tmp_path, 3)
    command("batch", file, *API, env=fake_gemini.env)
    file.write_text("\n".join(file.read_text().splitlines()[1:]) + '\n{"id": "new", "prompt": "N"}')
    done = command("batch", file, *API, env=fake_gemini.env)
    assert done.returncode == 0
    assert "3 done, 0 failed, 0 left" in done.stderr
    assert len(fake_gemini.requests) == 4


def test_two_batches_do_not_write_the_same_results(fake_gemini, tmp_path):
    fake_gemini.hang().always()
    file = prompts(tmp_path, 2)
    first = begin(file, *API, env=fake_gemini.env, stderr=subprocess.PIPE)
    while not fake_gemini.requests:
        time.sleep(0.01)
    second = command("batch", file, *API, env=fake_gemini.env)
    first.send_signal(signal.SIGINT)
    told = first.communicate()
    assert second.returncode == Exit.USAGE
    assert "another batch is writing" in second.stderr
    assert first.returncode == Exit.CANCELLED
    assert b"run the same command again" in told
    assert b"Traceback" not in told


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.jsonl", "", ["no prompts"]),
        ("a.jsonl", "\n\n", ["no prompts"]),
        ("a.jsonl", "{", ["a.jsonl, line 1", '"a prompt"']),
        ("a.jsonl", '"ok"\n{"text": "x"}', ["a.jsonl, line 2", '{"prompt"']),
        ("a.jsonl", '{"id": "x", "prompt": "1"}\n{"id": "x", "prompt": "2"}', ["'x'"]),
        ("a.jsonl", '{"id": ["x"], "prompt": "1"}', ["line 1"]),
        ("a.csv", "text\nhi\n", ["'prompt'", "'text'"]),
        ("a.csv", "", ["'prompt'", "none"]),
        ("a.jsonl", '"ok"\n""\n{"prompt": " "}', ["empty", "line 2, 3"]),
    ],
)
def test_a_file_that_holds_no_prompts_says_what_to_write(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    done = command("batch", name, *API, cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr


def test_other_bad_input_is_a_message_and_code_2(tmp_path):
    file = prompts(tmp_path, 1)
    for arguments in (
        [tmp_path],
        [tmp_path / "none.jsonl"],
        [file, "--resume", "latest"],
        [file, "-j", "0"],
        [file, "--budget", "-1"],
        [file, "--budget", "inf"],
        [file, "--budget", "nan"],
        [file, "--output", "/dev/null"],
        [file, "--output", tmp_path],
        [file, "--concurency", "3"],
    ):
        done = command("batch", *arguments, *API)
        assert done.returncode == Exit.USAGE, (arguments, done.stderr)
        assert "Traceback" not in done.stderr
        assert list(tmp_path.iterdir()) == [file], arguments
    (tmp_path / "prompts.results.jsonl").write_text("something else\n")
    done = command("batch", file, *API)
    assert done.returncode == Exit.USAGE
    assert "--output" in done.stderr
    assert (tmp_path / "prompts.results.jsonl").read_text() == "something else\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "id;prompt\na;Hello, you\n"),
        ("a.csv", "id\tprompt\na\tHello, you\n"),
        ("a.csv", 'id,prompt\na,"Hello, you"\n'),
        ("a.tsv", "id\tprompt\na\tHello, you\n"),
    ],
)
def test_a_table_may_have_any_of_three_delimiters(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert tasks_in(tmp_path / name) == [Task("a", "Hello, you")]


def test_a_table_of_one_column_keeps_to_its_ending(tmp_path):
    (tmp_path / "a.tsv").write_text("prompt\nHello, you; and you\n")
    assert tasks_in(tmp_path / "a.tsv") == [Task("1", "Hello, you; and you")]


def test_empty_cells_are_named_by_their_lines(tmp_path):
    (tmp_path / "a.csv").write_text("id,prompt\na,Hello\nb,\nc\n")
    with pytest.raises(InvalidOptions, match="line 3, 4"):
        tasks_in(tmp_path / "a.csv")


RESULT = b'{"id":"1","digest":"d","prompt":"p","status":"success"}\n'


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    "foreign",
    [
        b"# Notes\nno end",
        b"one line without an end",
        b'{"id": "p0", "prompt": "x"}',
        b'{"id": "p0", "prompt": "x"}\n{"id": "p1"',
        RESULT + b"notes\n",
        RESULT + b'{"prompt": "x"}',
        b"\xff\xfe\x00",
        b"\n",
        b"[" * 100_000,
    ],
)
def test_a_file_that_is_not_of_a_batch_is_left_as_it_is(tmp_path, foreign, restart):
    output = tmp_path / "out"
    output.write_bytes(foreign)
    with (
        pytest.raises(InvalidOptions, match="is not of a batch") as caught,
        Journal(output).open(restart=restart),
    ):
        pass
    assert "--output" in (caught.value.hint or "")
    assert output.read_bytes() == foreign
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize("name", ["out.journal", "out.new"])
def test_what_lies_beside_the_results_is_not_written_over(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(InvalidOptions, match=name), Journal(tmp_path / "out").open(restart=True):
        pass
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (RESULT + b'{"id":"2","dig', RESULT),
        (b'{"id":"2","dig', b""),
        (RESULT[:-1], RESULT),
        (b"", b""),
    ],
)
def test_only_half_a_line_of_our_own_is_cut(tmp_path, before, after):
    (tmp_path / "out").write_bytes(before)
    with Journal(tmp_path / "out").open() as journal:
        assert len(journal.outcomes) == after.count(b"\n")
    assert (tmp_path / "out").read_bytes() == after


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("name", ["out", "out.journal", "out.new"])
def test_the_prompts_are_not_written_over(tmp_path, name, restart):
    source = tmp_path / "prompts.jsonl"
    source.write_bytes(b'{"id":"torn')  # Which would pass for a result.
    (tmp_path / name).symlink_to(source)
    with (
        pytest.raises(InvalidOptions, match="it is the file of prompts"),
        Journal(tmp_path / "out", source).open(restart=restart),
    ):
        pass
    assert source.read_bytes() == b'{"id":"torn'
    assert len(list(tmp_path.iterdir())) == 2


def test_results_go_to_regular_files_only(tmp_path):
    """Not with /dev/full: were it read, it would take all memory."""
    (tmp_path / "device").symlink_to("/dev/null")
    with (
        pytest.raises(InvalidOptions, match="not a file that can hold results"),
        Journal(tmp_path / "device").open(),
    ):
        pass
    assert len(list(tmp_path.iterdir())) == 1


def test_results_of_another_file_are_not_taken_for_those_of_this_one(tmp_path):
    output, task = tmp_path / "z.results.jsonl", Task("1", "x")
    for name in ("z.jsonl", "z.csv"):
        (tmp_path / name).write_text("")
    with Journal(output, tmp_path / "z.jsonl").open([task]) as journal:
        journal.begin(task)
        journal.finish(TaskOutcome(id="1", digest=task.digest, prompt="x", status="success"))
    with (
        pytest.raises(InvalidOptions, match=r"results of z\.jsonl, not of z\.csv"),
        Journal(output, tmp_path / "z.csv").open([task]),
    ):
        pass
    with Journal(output, tmp_path / "z.jsonl").open([task]) as journal:
        assert list(journal.outcomes) == ["1"]
    with Journal(output, tmp_path / "z.csv").open([task], restart=True) as journal:
        assert not journal.outcomes


def test_a_refusal_of_changed_prompts_leaves_no_journal(tmp_path):
    (tmp_path / "out").write_bytes(RESULT)
    with (
        pytest.raises(InvalidOptions, match="is not what"),
        Journal(tmp_path / "out").open([Task("1", "another")]),
    ):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_lines_may_be_strings_and_hold_what_unicode_calls_a_line_end(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text(
        json.dumps("one\u2028two", ensure_ascii=False) + '\r\n\n{"prompt": "x", "id": 7}\n'
    )
    assert tasks_in(file) == [Task("1", "one\u2028two"), Task("7", "x")]


def test_the_help_page_lists_what_a_batch_takes(tmp_path):
    page = command("batch", "--help").stdout
    assert "--cli " in page
    assert "NAME.results.jsonl" in page
    assert "--resume" not in page
    assert "--session-id" not in page
    assert "--resume" in command("run", "--help").stdout


def test_a_cli_that_is_not_there_is_named(tmp_path):
    done = command("batch", prompts(tmp_path, 1), "--cli", tmp_path / "no-such-cli")
    assert done.returncode == Exit.SETUP
    assert "no-such-cli" in done.stderr


# ---- on a terminal


@pytest.mark.parametrize("columns", [80, 40])
def test_a_bar_shows_how_far_it_is(fake_gemini, tmp_path, columns):
    shouting(fake_gemini, delay=0.05)
    file = prompts(tmp_path, 8)
    with Terminal("batch", file, *API, env=fake_gemini.env, columns=columns) as screen:
        assert screen.ends_with() == 0
    assert "8/8" in screen.text
    assert "━" in screen.text
    assert "8 done, 0 failed, 0 left; $0.0044 spent" in screen.text.replace("\n", " ")


def test_ctrl_c_stops_it_and_says_how_to_go_on(fake_gemini, tmp_path):
    fake_gemini.when("Prompt 0").say("first")
    fake_gemini.hang().always()
    file = prompts(tmp_path, 4)
    with Terminal("batch", file, *API, "-j", "1", env=fake_gemini.env) as screen:
        screen.wait_for("1/4")
        screen.send("\x03")
        assert screen.ends_with() == Exit.CANCELLED
    assert "1 done, 0 failed, 3 left" in screen.text
    assert "Traceback" not in screen.text


def test_the_journal_is_in_place_before_anything_is_spent(tmp_path):
    journal = Journal(tmp_path / "out.jsonl")
    with journal.open():
        assert journal.begin(Task("a", "x")) == 1
    again = Journal(tmp_path / "out.jsonl")
    with again.open():
        assert again.torn == 1
        assert again.begin(Task("a", "x")) == 2
        again.end(Task("a", "x"), 2, Decimal("0.5"))
        assert (again.torn, again.costs) == (1, [Decimal("0.5")])


@pytest.mark.parametrize(
    "line",
    [
        {"id": "p0", "attempt": -1, "ended": True},
        {"id": "p0", "attempt": 10**9},
    ],
)
def test_a_journal_that_was_forged_lifts_no_budget(tmp_path, line):
    journal = Journal(tmp_path / "out.jsonl")
    journal.tries.write_text(json.dumps(line) + "\n")
    with pytest.raises(InvalidOptions, match="not a number of attempts"), journal.open():
        pass
