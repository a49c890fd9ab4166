"""`geminorum fleet`, `worker`, `submit` and `jobs`, as somebody types them."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import psutil
import psycopg
import pytest
from fleet_parts import new_database, requesting_cli, until, working
from inbox_parts import SHELL, asked, conversation

from command_line import SOURCE, Terminal, geminorum_command
from geminorum import Allow, Cli, Options, errors
from geminorum.environment import environment_of
from geminorum.fleet import Fleet, key_fingerprint
from geminorum.fleet.workers.session_store import TenantStore
from geminorum.inbox import Inbox

INIT = {"type": "init", "session_id": "5e551011", "model": "gemini-2.5-flash"}
SAID = {"type": "message", "role": "assistant", "content": "Hello.", "delta": True}
RESULT = {"type": "result", "status": "success", "stats": {"total_tokens": 3}}


def typed(url, *words, code=0, **more):
    env = {"GEMINORUM_DB": url, **more.pop("env", {})}
    done = geminorum_command(*words, env=env, **more)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


async def in_thread(*arguments, **more):
    """The command while a worker of this process goes on."""
    return await asyncio.to_thread(typed, *arguments, **more)


async def query(url, statement, *values):
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(statement, values or None)
        return await cursor.fetchall() if cursor.description else []


def program(folder, cli, first=""):
    """The stand-in with a version, which the command asks for, and a line of shell before it."""
    script = folder / "gemini-with-a-version"
    version = '[ "$1" = --version ] && echo 0.61.0 && exit'
    script.write_text(f'#!/bin/sh\n{version}\n{first}\nexec "{cli.executable}" "$@"\n')
    script.chmod(0o755)
    return script


class WorkerCommand:
    """`geminorum worker` in a process of its own; its lines as they come."""

    def __init__(self, url, home, executable, *words):
        home.mkdir(parents=True, exist_ok=True)
        own = {"HOME": str(home), "PYTHONPATH": str(SOURCE), "GEMINORUM_DB": url}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "geminorum", "worker", "--cli", str(executable), *words],
            env={**os.environ, **own},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._has_more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._has_more:
                self.lines.append(line.rstrip("\n"))
                self._has_more.notify_all()

    def wait_for(self, words):
        with self._has_more:
            there = self._has_more.wait_for(lambda: any(words in one for one in self.lines), 60)
        assert there, (words, self.lines)

    def ends_with(self):
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still there after 60 s: {self.lines}")
        self._reader.join(60)
        return code


@contextmanager
def worker_command(*arguments):
    worker = WorkerCommand(*arguments)
    try:
        yield worker
    finally:
        worker.process.kill()
        worker.process.wait()
        worker._reader.join()
        worker.process.stdout.close()


# ---- fleet


async def test_init_makes_the_tables_once_and_says_what_it_did(server):
    url = await _empty_database(server)
    missing = typed(url, "jobs", "list", code=1)
    assert "geminorum fleet init" in missing.stderr
    assert typed(url, "fleet", "init").stdout.startswith("created the tables (version 2) in ")
    again = typed(url, "fleet", "init")
    assert again.stdout.startswith("the tables are up to date (version 2) in ")
    told = json.loads(typed("", "fleet", "init", "--db", url, "--json").stdout)
    assert (told["before"], told["version"]) == (2, 2)
    password = re.search(":([^:@]+)@", url)[1]
    assert password not in again.stdout + told["database"]


async def test_init_updates_the_tables_of_an_older_geminorum(server):
    url = await new_database(server, version=1)
    assert "geminorum fleet init" in typed(url, "fleet", "status", code=1).stderr
    assert "updated the tables from version 1 to 2 in " in typed(url, "fleet", "init").stdout
    typed(url, "fleet", "status")


async def _empty_database(server):
    name = f"fleet_{uuid.uuid4().hex}"
    await query(server, f'CREATE DATABASE "{name}"')
    return server.replace("/postgres?", f"/{name}?")


async def _finish(url, job, usd, ago):
    """As if an attempt had ended that long ago, for so much."""
    finished = "UPDATE geminorum_jobs SET state = 'done', status = 'success', "
    await query(url, finished + "finished_at = now() - %s::interval WHERE id = %s", ago, job)
    ended = "INSERT INTO geminorum_attempts (job, number, worker, ended_at, usd) VALUES "
    await query(url, ended + "(%s, 1, 'one', now() - %s::interval, %s)", job, ago, usd)


async def test_status_shows_workers_queues_waits_and_spending(url, fleet, stand_in):
    jobs = [await fleet.submit("hello", tenant=tenant) for tenant in ("acme", "acme", "zeta")]
    done, waiting, _ = [uuid.UUID(job.id) for job in jobs]
    await _finish(url, done, 2, "3 d")
    await query(url, "UPDATE geminorum_jobs SET waits_for = '600 requests' WHERE id = %s", waiting)
    today = await fleet.submit("hello", tenant="zeta")
    await _finish(url, uuid.UUID(today.id), 1, "0 d")
    async with working(url, {"api": stand_in(INIT)}, name="one", slots=7, tenants=["zeta"]):

        async def is_there():
            return (await fleet.status()).workers

        await until(is_there)
        found = json.loads((await in_thread(url, "fleet", "status", "--json")).stdout)
        shown = (await in_thread(url, "fleet", "status")).stdout
    (worker,) = found["workers"]
    facts = ("name", "slots", "running", "vias", "tenants", "is_draining", "is_lost")
    assert [worker[fact] for fact in facts] == ["one", 7, 0, ["api"], ["zeta"], False, False]
    assert [[*one.values()] for one in found["tenants"]] == [
        ["acme", 1, 0, 1, "0", "2"],
        ["zeta", 1, 0, 0, "1", "1"],
    ]
    assert [(one["waits_for"], one["jobs"]) for one in found["waiting"]] == [("600 requests", 1)]
    assert re.search(r"^one +ready +0/7 +\d\.\d s ago +api +zeta ", shown, re.M)
    assert re.search(r"^total +2 +0 +1 +\$1\.00 +\$3\.00$", shown, re.M)
    assert re.search(r"^ *1 +\d\d:\d\d +600 requests$", shown, re.M)
    assert "start one with `geminorum worker`" in typed(url, "fleet", "status").stderr


async def test_prune_removes_what_is_done_and_old_and_nothing_else(url, fleet, stand_in, tmp_path):
    old = await fleet.submit("old", Options(home=tmp_path), idempotency_key="nightly")
    async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}):
        await old.result()
    await query(
        url,
        "UPDATE geminorum_jobs SET submitted_at = now() - interval '9 d', "
        "finished_at = now() - interval '8 d'",
    )
    waiting = await fleet.submit("waits")
    fresh = await fleet.submit("fresh")
    await fresh.cancel()
    await query(url, "UPDATE geminorum_jobs SET submitted_at = now() - interval '9 d'")
    lost = "INSERT INTO geminorum_workers (id, name, slots, about, is_lost) VALUES "
    await query(url, lost + "(99, 'gone', 1, '{}', true), (98, 'here', 1, '{}', false)")
    store = await _sessions(url, {old: ["mine", "ours", "resumed"], fresh: ["ours"]})
    later = await fleet.submit("later", Options(resume="resumed"))
    dry = typed(url, "fleet", "prune", "--older-than", "7d", "--dry-run")
    assert dry.stdout == "would remove 1 job and 1 lost worker\n"
    assert len(await fleet.jobs()) == 4
    told = json.loads(typed(url, "fleet", "prune", "--older-than", "7d", "--json").stdout)
    assert told == {"removed": True, "jobs": 1, "workers": 1}
    assert {job.id for job in await fleet.jobs()} == {waiting.id, fresh.id, later.id}
    assert sorted(name for name, _ in store.list()) == ["ours", "resumed"]
    left = "SELECT count(*) FROM {} WHERE job = %s"
    for table in ("geminorum_events", "geminorum_attempts"):
        assert await query(url, left.format(table), uuid.UUID(old.id)) == [(0,)]
    assert await query(url, "SELECT count(*) FROM procrastinate_jobs") == [(3,)]
    assert await query(url, "SELECT name FROM geminorum_workers") == [("here",)]
    wrong = typed(url, "fleet", "prune", "--older-than", "soon", code=2)
    assert "write 90m, 24h, 30d or 2w" in wrong.stderr


async def _sessions(url, sessions):
    """Gives jobs an attempt for each of these sessions, and saves the sessions."""
    store = TenantStore(url, "default")
    insert = (
        "INSERT INTO geminorum_attempts (job, number, worker, session) VALUES (%s, %s, 'w', %s)"
    )
    for job, names in sessions.items():
        for number, name in enumerate(names):
            await query(url, insert, uuid.UUID(job.id), 10 + number, name)
    for name in sorted({name for names in sessions.values() for name in names}):
        store.append(name, 1, b"entry")
    return store


async def test_more_old_jobs_than_one_transaction_takes_are_pruned(url, fleet, monkeypatch):
    monkeypatch.setattr("geminorum.fleet.retention._AT_ONCE", 2)
    for _ in range(5):
        await (await fleet.submit("hello")).cancel()
    assert (await fleet.prune(timedelta(0))).jobs == 5
    assert await fleet.jobs() == []
    with pytest.raises(errors.InvalidOptions):
        await fleet.prune(timedelta(-1))


async def test_the_roles_on_the_page_can_do_what_they_should_and_no_more(
    server, stand_in, tmp_path, fake_gemini, monkeypatch
):
    url = await _empty_database(server)
    typed(url, "fleet", "init")
    page = (Path(__file__).parents[2] / "docs/fleet.md").read_text()
    statements = re.findall(r"^    ((?:CREATE ROLE|GRANT) .*;)$", page, re.M)
    for statement in statements:
        await query(url, statement)
    submitter, worker, operator = (
        f"{url}&options=-c%20role%3Dfleet_{role}" for role in ("submitter", "worker", "operator")
    )
    async with Fleet(submitter) as fleet:
        job = await fleet.submit("hello", Options(home=tmp_path))
        late = await fleet.submit("late", via="api")
        async with working(worker, {"cli": stand_in(INIT, SAID, RESULT)}):
            assert (await job.result()).text == "Hello."
        await late.cancel()
        await late.retry()
        assert [event async for event in late.events()]
        with pytest.raises(errors.FleetError, match="permission denied"):
            await fleet.prune(timedelta(0))
        await _sessions(url, {job: ["mine"]})
    approver = f"{url}&options=-c%20role%3Dfleet_approver"
    asking = asyncio.create_task(conversation(Inbox(worker)).ask(SHELL))
    (question,) = await asked(Inbox(approver))
    refused = typed(submitter, "inbox", "allow", question.id, code=1)
    assert "permission denied" in refused.stderr
    typed(approver, "inbox", "allow", question.id)
    assert await asking == Allow()
    refused = typed(worker, "submit", "hello", code=1)
    assert "permission denied" in refused.stderr
    assert "another role" in refused.stderr
    typed(operator, "fleet", "status")
    limit = ("fleet", "limits", "set", "requests-per-minute", "600")
    for role in (submitter, worker):
        assert "permission denied" in typed(role, *limit, code=1).stderr
    typed(operator, *limit)
    for name, value in fake_gemini.env.items():
        monkeypatch.setenv(name, value)
    fake_gemini.say("Hello.")
    async with Fleet(submitter) as fleet:
        job = await fleet.submit("counted", Options(home=tmp_path))
        async with working(worker, {"cli": requesting_cli(tmp_path)}):
            assert (await job.result()).text == "counted. "
        assert len(await fleet.limits()) == 1
    typed(operator, "fleet", "limits", "remove", "requests-per-minute")
    pruned = typed(operator, "fleet", "prune", "--older-than", "0d").stdout
    assert pruned == "removed 3 jobs and 0 lost workers\n"


# ---- limits


async def test_limits_are_set_listed_and_removed(url, fleet):
    env = {"THE_KEY": "AIza-nobody-sees-it"}
    key = key_fingerprint(env["THE_KEY"])
    words = ("fleet", "limits", "set")
    made = typed(url, *words, "requests-per-minute", "600", "--key-of", "THE_KEY", env=env)
    assert made.stdout == f"600 requests per minute for key {key}: delays what is above it\n"
    told = typed(url, *words, "usd_per_day", "2.50", "--tenant", "*", "--refuse", "--json")
    assert json.loads(told.stdout)["reaction"] == "refuse"
    typed(url, *words, "concurrency", "1", "--tenant", "acme")
    for _ in range(2):
        await fleet.submit("hello", tenant="acme")
    await query(url, "UPDATE geminorum_jobs SET state = 'running' WHERE entry = 1")
    lines = typed(url, "fleet", "limits", "list").stdout.splitlines()
    titles = "limit amount burst key tenant model above it used waiting"
    assert lines[0].split() == titles.split()
    assert [line.split() for line in lines[1:]] == [
        ["concurrency", "1", "-", "all", "acme", "all", "delay", "1", "1"],
        ["requests-per-minute", "600", "10", key, "all", "all", "delay", "0", "0"],
        ["usd-per-day", "2.5", "-", "all", "each", "all", "refuse", "0", "0"],
    ]
    listed = typed(url, "fleet", "limits", "list", "--json").stdout.splitlines()
    assert json.loads(listed[0])["kind"] == "concurrency"
    assert " waiting " in typed(url, "jobs", "list", "--tenant", "acme").stdout
    removed = ("fleet", "limits", "remove", "requests-per-minute", "--key")
    assert typed(url, *removed, key).stdout == "removed\n"
    assert "there is no such limit" in typed(url, *removed, key, code=6).stderr
    assert len(await fleet.limits()) == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["requests-per-hour", "1"], "kind is one of"),
        (["usd-per-day", "0"], "above 0"),
        (["usd-per-day", "1", "--key", "AIza-a-key"], "--key-of VARIABLE"),
        (["usd-per-day", "1", "--key-of", "NOT_SET"], "NOT_SET is not set"),
        (["usd-per-day", "1", "--key-of", "HOME", "--key", "*"], "exclude each other"),
        (["concurrency", "1", "--refuse"], "only delays"),
    ],
)
async def test_a_limit_that_cannot_be_says_what_to_type(url, words, why):
    refused = typed(url, "fleet", "limits", "set", *words, code=2)
    assert why in refused.stderr
    assert "AIza" not in refused.stderr


# ---- worker


def test_a_worker_without_a_cli_refuses_to_start(tmp_path):
    """Before it looks for a database."""
    refused = typed("postgresql://nowhere", "worker", "--cli", tmp_path / "none", code=3)
    assert "no usable Gemini CLI" in refused.stderr
    assert "geminorum doctor" in refused.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--via", "cli,smoke"], "write some of cli,acp,api"),
        (["--tenants", "a,,b"], "names with commas"),
        (["--slots", "0"], "--slots"),
    ],
)
def test_a_worker_refuses_what_it_cannot_do(words, why):
    assert why in typed("postgresql://nowhere", "worker", *words, code=2).stderr


async def test_a_worker_says_what_it_does_and_ends_when_it_is_drained(
    url, fleet, stand_in, tmp_path
):
    """SIGTERM while a job runs: the job is finished, the next one is left in the queue."""
    cli = stand_in(INIT, SAID, RESULT, sleep=1.0)
    options = Options(home=tmp_path)
    job = await fleet.submit("hello", options, tenant="acme")
    words = ("--slots", "1", "--name", "one", "--via", "cli", "--tenants", "acme")
    with worker_command(url, tmp_path / "one", program(tmp_path, cli), *words) as worker:
        worker.wait_for("begins")
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for("draining")
        late = await fleet.submit("late", options, tenant="acme")
        assert worker.ends_with() == 0
    lines = [line.split("  ", 1)[1] for line in worker.lines]
    assert lines[0].startswith("worker one: 1 slot, cli, tenants acme, postgresql://")
    assert lines[1:3] == [
        "ready: takes jobs",
        f"job {job.id} begins: attempt 1, cli, tenant acme",
    ]
    assert lines[3] == "draining: 1 job to finish; another signal hands them back"
    assert lines[4].startswith(f"job {job.id} ended: success, ")
    assert lines[5:] == ["stopped"]
    assert (await job.result()).text == "Hello."
    assert (await late.info()).state == "queued"
    assert await query(url, "SELECT name FROM geminorum_workers") == []


@pytest.mark.parametrize("signals", [2, 1])
async def test_a_second_signal_or_the_time_hands_running_jobs_back(
    signals, url, fleet, stand_in, tmp_path
):
    cli = stand_in(INIT, SAID, hang=True)
    job = await fleet.submit("hello", Options(home=tmp_path))
    words = ["--json", "--via", "cli", *(["--drain-seconds", "0.2"] if signals == 1 else [])]
    with worker_command(url, tmp_path / "one", program(tmp_path, cli), *words) as worker:
        worker.wait_for('"begun"')
        for _ in range(signals):
            worker.process.send_signal(signal.SIGINT)
            worker.wait_for('"draining"')
        assert worker.ends_with() == 0
    told = [json.loads(line) for line in worker.lines]
    assert [one["what"] for one in told] == [
        *("starting", "registered", "begun", "draining", "handing_back", "ended", "stopped"),
    ]
    assert (told[5]["job"], told[5]["ending"]) == (job.id, "put back")
    assert (await job.info()).state == "queued"


@pytest.mark.gemini_cli
async def test_a_worker_with_a_pool_serves_acp_from_warm_processes(
    url, fleet, fake_gemini, real_transport, tmp_path, monkeypatch
):
    """Two jobs have the same process; what the first wrote comes home as a patch."""
    for name, value in fake_gemini.env.items():
        monkeypatch.setenv(name, value)
    fake_gemini.call("write_file", file_path="new.txt", content="new\n").say("Written.")
    fake_gemini.say("Hello.")
    project = tmp_path / "project"
    project.mkdir()
    (project / "old.txt").write_text("old\n")
    options = Options(approval="auto_edit", model="gemini-2.5-flash")
    words = ("--pool", "--via", "acp", "--slots", "1")
    with worker_command(url, tmp_path / "one", real_transport.executable, *words) as worker:
        first = await fleet.submit("Write", options, via="acp", workspace=project)
        assert (await first.result()).text.endswith("Written.")
        warm = _processes_of(tmp_path / "one")
        second = await fleet.submit("Hello", options, via="acp")
        assert (await second.result()).text == "Hello."
        assert _processes_of(tmp_path / "one") == warm != set()
        worker.process.send_signal(signal.SIGTERM)
        assert worker.ends_with() == 0
    shown = typed(url, "jobs", "apply", first.id[:8], project, "--check")
    assert shown.stdout == "added    new.txt\n1 change would be applied\n"
    typed(url, "jobs", "apply", first.id[:8], cwd=project)
    assert (project / "new.txt").read_text() == "new\n"


async def test_a_worker_asks_in_the_inbox_of_the_fleet(url, fleet, stand_in_acp, tmp_path):
    cli = program(tmp_path, stand_in_acp("asking"))
    with worker_command(url, tmp_path / "one", cli, "--inbox", "--via", "acp") as worker:
        job = await fleet.submit("Write", via="acp")
        (question,) = await asked(Inbox(url))
        assert (question.pid, question.tool) == (worker.process.pid, "write_file")
        allowed = await in_thread(url, "inbox", "allow", question.id[:8])
        assert allowed.stdout.startswith("allowed ")
        assert "proceed_once" in (await job.result()).text


def _processes_of(home):
    """The warm CLIs of a worker. A program that one starts is its copy for a moment."""
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "--acp" in process.cmdline() and process.environ().get("HOME") == str(home):
                found[process.pid] = process.ppid()
    return {pid for pid, parent in found.items() if parent not in found}


def test_an_agent_does_not_get_the_address_of_the_fleet(monkeypatch):
    monkeypatch.setenv("GEMINORUM_DB", "postgresql://me:swordfish@host/db")
    assert "GEMINORUM_DB" not in environment_of(Options())


# ---- submit


async def test_submit_prints_the_id_and_follows_on_request(url, fleet, stand_in, tmp_path):
    words = ("submit", "Say hello", "--home", tmp_path, "--model", "flash", "--tenant", "acme")
    cli = stand_in(INIT, SAID, RESULT)
    job = (await in_thread(url, *words, "--key", "nightly", "--priority", "3")).stdout.strip()
    again = await in_thread(url, *words, "--key", "nightly", "--priority", "3", "--json")
    assert json.loads(again.stdout)["id"] == job
    async with working(url, {"cli": cli}):
        await (await fleet.job(job)).result()
        followed = await in_thread(url, *words, "--follow")
        quiet = await in_thread(url, *words, "--follow", "--quiet")
        events = (await in_thread(url, *words, "--follow", "--json")).stdout.splitlines()
    info = await (await fleet.job(job)).info()
    assert (info.tenant, info.priority, info.title) == ("acme", 3, "Say hello")
    assert "flash" in " ".join(stand_in.call["argv"])
    assert followed.stdout == quiet.stdout == "Hello.\n"
    assert re.match(r"job [-0-9a-f]{36}\nsuccess · gemini-2.5-flash", followed.stderr)
    assert quiet.stderr == ""
    assert [json.loads(event)["type"] for event in events][-1] == "done"


async def test_following_ends_with_the_exit_code_of_run(url, stand_in, tmp_path):
    cli = stand_in(stderr="Please set an Auth method", exit=41)
    words = ("submit", "hello", "--home", tmp_path, "--max-attempts", "1", "--follow")
    async with working(url, {"cli": cli}):
        failed = await in_thread(url, *words, code=3)
    local = ("run", "hello", "--home", tmp_path, "--cli", cli.executable)
    assert geminorum_command(*local).returncode == 3
    assert "error  " in failed.stderr
    (job,) = typed(url, "jobs", "list", "--json", "--limit", "1").stdout.splitlines()
    shown = typed(url, "jobs", "show", json.loads(job)["id"]).stdout
    assert re.search(r"^state +error$", shown, re.M)
    assert re.search(r"^next +\S", shown, re.M)


async def test_ctrl_c_leaves_the_job_and_says_how_to_follow_it(url, fleet, stand_in, tmp_path):
    cli = stand_in(INIT, SAID, hang=True)
    words = ("submit", "hello", "--home", tmp_path, "--follow")
    async with working(url, {"cli": cli}):
        with Terminal(*words, env={"GEMINORUM_DB": url}) as terminal:

            async def has_begun():
                return "Hello." in terminal.text

            await until(has_begun)
            assert "Ctrl-C leaves the job running" in terminal.text
            terminal.send("\x03")
            assert terminal.ends_with() == 130
        (job,) = await fleet.jobs()
        assert job.state == "running"
        assert f"geminorum jobs watch {job.id}" in terminal.text
        assert f"geminorum jobs cancel {job.id}" in terminal.text


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--cwd", "here"], "--workspace FOLDER"),
        (["--resume", "latest"], "--resume ID"),
        (["--env", "GEMINI_API_KEY=AIza-secret-key"], "the database keeps no keys"),
        (["--store", "sqlite:///x.db"], "leave store out"),
        (["--max-attempts", "0"], "1 to 100"),
        (["--workspace", "nowhere"], "nowhere"),
        (["--json", "--quiet"], "leave one of them out"),
    ],
)
async def test_submit_refuses_what_cannot_travel_and_says_what_to_type(url, words, why):
    refused = typed(url, "submit", "hello", *words, code=2)
    assert why in refused.stderr
    assert "GEMINORUM_STORE" not in refused.stderr


async def test_a_store_of_this_machine_is_no_store_of_a_job(url):
    """GEMINORUM_STORE is for runs here; a job's session is in the fleet's database."""
    env = {"GEMINORUM_STORE": "sqlite:///mine.db"}
    assert typed(url, "submit", "hello", env=env).stdout


# ---- jobs


async def test_jobs_are_listed_and_shown(url, fleet, stand_in, tmp_path):
    options = Options(home=tmp_path, max_turns=7)
    done = await fleet.submit("Say\thello\n\x1b[31m", options, tenant="acme")
    async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}, name="one"):
        await done.result()
    waits = await fleet.submit("Nobody\0 takes me", via="api")
    lines = typed(url, "jobs", "list").stdout.splitlines()
    assert lines[0].split() == [
        "id",
        "state",
        "submitted",
        "tenant",
        "via",
        "attempt",
        "worker",
        "cost",
        "prompt",
    ]
    assert lines[1].split()[:2] == [waits.id, "queued"]
    assert lines[2].split()[:2] == [done.id, "success"]
    assert lines[2].endswith(r"Say hello \u001b[31m")
    told = typed(url, "jobs", "list", "--json", "--state", "queued").stdout
    assert json.loads(told)["title"] == "Nobody\0 takes me"
    assert typed(url, "jobs", "list", "--tenant", "other").stdout == ""
    assert "more; add --limit 10\n" in typed(url, "jobs", "list", "-n", "1").stdout
    shown = typed(url, "jobs", "show", done.id[:6]).stdout
    facts = dict(line.split(None, 1) for line in shown.splitlines() if "attempt" not in line)
    assert (facts["job"], facts["state"], facts["answer"]) == (done.id, "success", "Hello.")
    assert "attempt 1  success on one" in shown
    fields = json.loads(typed(url, "jobs", "show", done.id, "--json").stdout)
    assert fields["options"]["max_turns"] == 7
    assert (fields["id"], fields["result"]["text"]) == (done.id, "Hello.")


async def test_the_beginning_of_an_id_has_to_be_unique(url, fleet):
    for _ in range(17):
        await fleet.submit("hello")
    first = [job.id[0] for job in await fleet.jobs()]
    twice = next(digit for digit in first if first.count(digit) > 1)
    ambiguous = typed(url, "jobs", "show", twice, code=2)
    assert "beginning of several jobs" in ambiguous.stderr
    assert "type more of the id" in ambiguous.stderr
    assert "no id of a job" in typed(url, "jobs", "show", "seventeen", code=2).stderr
    assert "no job 0000" in typed(url, "jobs", "show", "0" * 30, code=6).stderr


async def test_a_job_is_watched_cancelled_and_retried(url, fleet, stand_in, tmp_path):
    cli = stand_in(INIT, SAID, hang=True)
    job = await fleet.submit("hello", Options(home=tmp_path), idempotency_key="k", tenant="acme")
    async with working(url, {"cli": cli}):

        async def has_begun():
            return (await job.info()).state == "running"

        assert "not over" in typed(url, "jobs", "retry", job.id, code=1).stderr
        await until(has_begun)
        cancelled = await in_thread(url, "jobs", "cancel", job.id[:10])
        assert cancelled.stdout == f"stopping {job.id}\n"
        watched = await in_thread(url, "jobs", "watch", job.id, code=130)
        assert watched.stderr.startswith("interrupted")
    over = typed(url, "jobs", "cancel", job.id).stdout
    assert over == f"{job.id} is over already: interrupted\n"
    again = typed(url, "jobs", "retry", job.id).stdout.strip()
    stand_in.change(hang=False, stdout=str(_lines(tmp_path, INIT, SAID, RESULT)))
    async with working(url, {"cli": cli}):
        assert (await in_thread(url, "jobs", "watch", again, "--quiet")).stdout == "Hello.\n"
    assert (await job.info()).status == "interrupted"
    info = await (await fleet.job(again)).info()
    assert (info.status, info.tenant, info.title) == ("success", "acme", "hello")
    assert "has succeeded" in typed(url, "jobs", "retry", again, code=1).stderr


def _lines(folder: Path, *lines) -> Path:
    file = folder / "lines"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


async def test_a_job_that_waits_is_cancelled_at_once(url, fleet):
    job = await fleet.submit("hello")
    assert typed(url, "jobs", "cancel", job.id).stdout == f"cancelled {job.id}\n"


async def test_a_retry_has_the_workspace_and_apply_never_overwrites(url, fleet, stand_in, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    cancelled = await fleet.submit("hello", Options(home=tmp_path), workspace=project)
    assert "not over" in typed(url, "jobs", "apply", cancelled.id, code=1).stderr
    await cancelled.cancel()
    assert "no changes to apply" in typed(url, "jobs", "apply", cancelled.id, code=1).stderr
    job = typed(url, "jobs", "retry", cancelled.id).stdout.strip()
    writing = program(tmp_path, stand_in(INIT, RESULT), "echo two > a.txt")
    async with working(url, {"cli": Cli(executable=writing)}):
        await (await fleet.job(job)).result()
    assert "-one\n+two\n" in typed(url, "jobs", "apply", job, project, "--show").stdout
    (project / "a.txt").write_text("mine\n")
    conflict = typed(url, "jobs", "apply", job, project, code=1)
    assert "changed on both sides: a.txt" in conflict.stderr
    assert (project / "a.txt").read_text() == "mine\n"
    (project / "a.txt").write_text("one\n")
    assert typed(url, "jobs", "apply", job, project).stdout.endswith("1 change applied\n")
    assert (project / "a.txt").read_text() == "two\n"
