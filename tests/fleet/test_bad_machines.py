"""Machines that are not as they should be: a clear error or a clean wait, and nothing lost."""

import asyncio
import errno
import os
import signal
import tempfile
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

import psycopg
import pytest
from databases import open_place, postmaster_of
from fleet_parts import cut_connections, new_database, until, worker_process, working
from psycopg_pool.base import AttemptWithBackoff

from geminorum import Cli, Done, Error, Init, Options, TextDelta, errors
from geminorum.fleet import Fleet
from geminorum.fleet.database import Database, patiently
from geminorum.fleet.embedded import embedded_postgres
from geminorum.workspace import Workspace
from geminorum.workspace.archive import MAX_BYTES

INIT = {"type": "init", "session_id": "5e551011", "model": "gemini-2.5-flash"}
SAID = {"type": "message", "role": "assistant", "content": "Hello.", "delta": True}
RESULT = {"type": "result", "status": "success", "stats": {"total_tokens": 3}}


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.md").write_text("Pipes are patient\n")
    return folder


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGKILL])
async def test_a_database_that_restarts_in_mid_run_loses_nothing(number, stand_in, tmp_path):
    """The client that follows, the one that waits and the worker go on where they were."""
    lines = [{**SAID, "content": f"{number} "} for number in range(60)]
    with open_place() as place, embedded_postgres(place / "fleet") as server:
        url = await new_database(server)
        async with Fleet(url) as fleet:
            job = await fleet.submit("hello", Options(home=tmp_path))
            cli = stand_in(INIT, *lines, RESULT, chunk=200, delay=0.02)
            async with working(url, {"cli": cli}):
                waiting = asyncio.create_task(job.result())
                seen = []
                async for pair in job.numbered_events():
                    seen.append(pair)
                    if isinstance(pair[1], Init) and len(seen) < 5:
                        os.kill(postmaster_of(place / "fleet"), number)
                result = await asyncio.wait_for(waiting, 60)
            again = [pair async for pair in job.numbered_events()]
    assert seen == again
    assert [event.status for _, event in seen if isinstance(event, Done)] == ["success"]
    last = max(attempt for (attempt, _), _ in seen)
    texts = [event.text for (at, _), event in seen if at == last and isinstance(event, TextDelta)]
    assert "".join(texts) == result.text == "".join(line["content"] for line in lines)


async def test_a_database_that_comes_back_after_a_long_time_is_noticed(url, monkeypatch, caplog):
    """The pool's pauses between two tries grow with the outage, up to minutes; readers have one."""
    monkeypatch.setattr(AttemptWithBackoff, "INITIAL_DELAY", 3600.0)  # As after a long one.

    async def read():
        async with database.statements() as connection:
            return await (await connection.execute("SELECT 'here'")).fetchone()

    async def has_failed():
        return "error connecting" in caplog.text

    with another_socket(url) as (address, socket):
        target = socket.readlink()
        async with Database(address, connections=1) as database:
            socket.unlink()
            await cut_connections(url)
            reading = asyncio.create_task(patiently(read))
            await until(has_failed)
            socket.symlink_to(target)
            assert await asyncio.wait_for(reading, 30) == ("here",)


@contextmanager
def another_socket(url):
    """Another address of the same server, and the link at which it is reached."""
    parts = urlsplit(url)
    (folder,) = parse_qs(parts.query)["host"]
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        link = Path(place, ".s.PGSQL.5432")
        link.symlink_to(Path(folder, link.name))
        yield urlunsplit(parts._replace(query=f"host={place}&port=5432")), link


async def test_a_database_that_only_reads_for_a_while_is_waited_for(
    url, fleet, stand_in, tmp_path, caplog
):
    """One that is maintained, or that has not learnt yet that it replaces another."""
    only_reads = f'ALTER DATABASE "{urlsplit(url).path[1:]}" SET default_transaction_read_only = '
    async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}):

        async def is_registered():
            return (await fleet.status()).workers

        await until(is_registered)
        await execute(url, only_reads + "on")
        await cut_connections(url)
        await until(lambda: asyncio.sleep(0, "read-only" in caplog.text))
        await execute(url, only_reads + "off")
        await cut_connections(url)
        async with Fleet(url) as fleet:
            job = await fleet.submit("hello", Options(home=tmp_path))
            assert (await asyncio.wait_for(job.result(), 60)).ok


async def execute(url, statement):
    writes = {"autocommit": True, "options": "-c default_transaction_read_only=off"}
    async with await psycopg.AsyncConnection.connect(url, **writes) as connection:
        await connection.execute(statement)


@pytest.mark.parametrize("clock", [3600.0, -3600.0])
async def test_a_worker_whose_clock_is_wrong_by_an_hour_works_as_others(
    clock, url, fleet, stand_in, tmp_path
):
    """It is neither given up by others, nor gives them up, nor waits for an hour."""
    cli = stand_in(INIT, stderr="[API Error: 503 UNAVAILABLE]", exit=1)
    job = await fleet.submit("hello", Options(home=tmp_path), max_attempts=2)
    program, home = str(cli.executable), tmp_path / "wrong"
    with worker_process(url, home, executable=program, name="wrong", clock=clock):
        async with working(url, {"api": cli}, name="right"):  # It sweeps.
            with pytest.raises(errors.GeminorumError):
                await asyncio.wait_for(job.result(), 60)
            workers = {(await job.info()).worker}
    info = await job.info()
    assert (info.attempt, info.status, workers) == (2, "error", {"wrong"})


async def test_a_full_disk_is_the_workers_fault_and_another_worker_takes_the_job(
    url, fleet, stand_in, tmp_path, project, monkeypatch
):
    job = await fleet.submit("hello", Options(home=tmp_path), workspace=project)
    unpack, full = Workspace.unpack, [True]

    def unpack_once_there_is_room(*words, **more):
        if full.pop():
            cause = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise errors.WorkspaceError("the folder cannot be written") from cause
        full.append(False)
        return unpack(*words, **more)

    monkeypatch.setattr(Workspace, "unpack", unpack_once_there_is_room)
    full[:] = [False, True]
    cli = stand_in(INIT, SAID, RESULT)
    async with working(url, {"cli": cli}, name="one"), working(url, {"cli": cli}, name="two"):
        events = [event async for event in job.events()]
        assert (await job.result()).ok
    troubles = [event for event in events if isinstance(event, Error)]
    assert [(one.code, one.recoverable) for one in troubles] == [("SETUP", True)]
    assert (await job.info()).attempt == 2


async def test_a_worker_without_the_cli_leaves_the_job_to_another(url, fleet, stand_in, tmp_path):
    job = await fleet.submit("hello", Options(home=tmp_path))
    missing = Cli(executable=tmp_path / "nowhere/gemini")
    async with working(url, {"cli": missing}, name="bare"):
        events = job.events()
        first = await anext(events)
        assert (first.code, first.recoverable) == ("CLI_NOT_FOUND", True)
        async with working(url, {"cli": stand_in(INIT, SAID, RESULT)}, name="whole"):
            assert (await job.result()).ok
            assert (await job.info()).worker == "whole"
        await events.aclose()


async def test_a_workspace_over_the_cap_is_refused_before_it_is_submitted(fleet, project):
    with (project / "large.bin").open("wb") as file:
        file.truncate(MAX_BYTES + 1)  # Takes no room on the disk.
    with pytest.raises(errors.WorkspaceError, match="large"):
        await fleet.submit("hello", workspace=project)
    assert await fleet.jobs() == []


async def test_a_link_out_of_a_workspace_is_refused_before_it_is_submitted(fleet, project):
    (project / "out").symlink_to("/etc/passwd")
    with pytest.raises(errors.WorkspaceError, match="out"):
        await fleet.submit("hello", workspace=project)
    assert await fleet.jobs() == []


async def test_a_worker_removes_what_a_killed_one_has_left_on_its_machine(
    url, fleet, stand_in, tmp_path
):
    cli = stand_in(INIT, SAID, hang=True)
    program, home = str(cli.executable), tmp_path / "machine"
    job = await fleet.submit("hello", Options(home=tmp_path))
    with worker_process(url, home, executable=program, name="killed"):
        async for event in job.events():
            if isinstance(event, Init):
                break
    left = [*(home / "tmp").glob("geminorum-job-*")]
    assert left
    await job.cancel()
    with worker_process(url, home, executable=program, name="next"):
        with pytest.raises(errors.Interrupted):
            await job.result()
        assert not any(folder.exists() for folder in left)
