"""What `geminorum worker` does: a worker in the foreground, its signals and what it says."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any, NamedTuple

import msgspec

import geminorum
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.table import Program, Via
from geminorum.apps.command.flags.transport import inbox_for, transport_for
from geminorum.apps.command.fleet.views import short_id
from geminorum.apps.command.render.output import print_json_line
from geminorum.errors import SetupError
from geminorum.fleet import Worker, WorkerReport, database_url, shown_url

_API_KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_STOPPING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT") if hasattr(signal, name))


class Work(NamedTuple):
    """What a worker is to do, as it was typed."""

    slots: int
    tenants: Sequence[str] | None
    vias: Sequence[Via] | None
    pool: bool
    name: str | None
    drain_seconds: float | None
    program: Program
    inbox: bool = False
    remind: str | None = None


def run_worker(db: str | None, work: Work, *, json: bool) -> Exit:
    """Runs jobs until a signal ends it."""
    vias = _usable(work)
    asyncio.run(_work(db, work, vias, WorkerLog(json)))
    return Exit.OK


async def _work(db: str | None, work: Work, vias: Sequence[Via], log: WorkerLog) -> None:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(database_url(db))
        # Not `url`: an embedded database is one that `geminorum inbox` would not find.
        decide = inbox_for(inbox=work.inbox, remind=work.remind, db=db)
        worker = Worker(
            url,
            {via.value: await _transport(via, work, decide, stack) for via in vias},
            slots=work.slots,
            tenants=work.tenants,
            name=work.name,
            on_report=log.report,
        )
        log.start(worker.name, shown_url(url), work, vias)
        with _drain_on_signals(worker, log, work.drain_seconds):
            await worker.run()
        log.say("stopped", "stopped")


async def _transport(
    via: Via, work: Work, decide: Callable[..., Any] | None, stack: AsyncExitStack
) -> Any:
    transport: Any = transport_for(via, program=work.program, decide=decide)
    if via is not Via.ACP or not work.pool:
        return transport
    # Jobs that are alike share a process; each slot can have one of its own if they are not.
    return await stack.enter_async_context(geminorum.Pool(transport, size=work.slots))


def _usable(work: Work) -> list[Via]:
    """The transports that this machine can serve; raises if one that was asked for cannot be."""
    wanted = list(work.vias or (Via.CLI, Via.ACP))
    if work.vias is None and _has_api():
        wanted.append(Via.API)
    if wanted != [Via.API]:
        _require_cli(work.program)
    if work.pool and Via.ACP not in wanted:
        raise SetupError("--pool serves acp only", hint="add acp to --via, or leave --pool out")
    return wanted


def _has_api() -> bool:
    has_library = find_spec("google") is not None and find_spec("google.genai") is not None
    return has_library and any(os.environ.get(name) for name in _API_KEYS)


def _require_cli(program: Program) -> None:
    found = geminorum.doctor.cli_check(program.path)
    if found.level == "fail":
        hint = "`geminorum doctor` says how to fix it; a worker with `--via api` needs no CLI"
        raise SetupError(f"this machine has no usable Gemini CLI: {found.detail}", hint=hint)


@contextmanager
def _drain_on_signals(worker: Worker, log: WorkerLog, seconds: float | None) -> Iterator[None]:
    """The first signal drains the worker; the second, or `seconds` later, its jobs go back."""
    loop = asyncio.get_running_loop()
    drain = _Drain(worker, log, seconds)

    def on_signal(*_: object) -> None:
        loop.call_soon_threadsafe(drain.begin_or_hurry)

    # Not loop.add_signal_handler, which Windows has not got.
    before = {number: signal.signal(number, on_signal) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Drain:
    """How far a worker is on its way out."""

    def __init__(self, worker: Worker, log: WorkerLog, seconds: float | None) -> None:
        self._worker, self._log, self._seconds = worker, log, seconds
        self._begun = self._hurried = False

    def begin_or_hurry(self) -> None:
        if self._begun:
            return self.hurry()
        self._begun = True
        self._log.drain(self._worker.running, self._seconds)
        self._worker.stop()
        if self._seconds is not None:
            asyncio.get_running_loop().call_later(self._seconds, self.hurry)
        return None

    def hurry(self) -> None:
        if self._hurried:
            return
        self._hurried = True
        if running := self._worker.running:
            self._log.say("handing_back", f"handing back {_jobs(running)}", running=running)
        self._worker.hand_back()


class WorkerLog:
    """What a worker says: a line for each thing that happens, for people or as JSON."""

    def __init__(self, json: bool) -> None:
        self._json = json

    def start(self, name: str, database: str, work: Work, vias: Sequence[Via]) -> None:
        serves = ", ".join(vias)
        tenants = f"tenants {', '.join(work.tenants)}" if work.tenants else "all tenants"
        about = f"{work.slots} slot{'' if work.slots == 1 else 's'}, {serves}, {tenants}"
        facts = {"slots": work.slots, "vias": [*vias], "tenants": work.tenants}
        text = f"worker {name}: {about}, {database}"
        self.say("starting", text, worker=name, database=database, **facts)

    def drain(self, running: int, seconds: float | None) -> None:
        if not running:
            return self.say("draining", "draining: no job runs", running=0)
        later = f" or {seconds:g} s" if seconds is not None else ""
        text = f"draining: {_jobs(running)} to finish; another signal{later} hands them back"
        return self.say("draining", text, running=running)

    def report(self, report: WorkerReport) -> None:
        facts = msgspec.to_builtins(report)
        self.say(facts.pop("what"), _line(report), **facts)

    def say(self, what: str, text: str, **facts: Any) -> None:
        """Nobody has to listen: a closed pipe is no reason to end the jobs."""
        now = datetime.now(UTC)
        with suppress(OSError, ValueError):
            if self._json:
                print_json_line({"at": now, "what": what, **facts})
            else:
                sys.stdout.write(f"{now.astimezone():%H:%M:%S}  {text}\n")
                sys.stdout.flush()


def _line(report: WorkerReport) -> str:
    if report.job is None:
        return "ready: takes jobs"
    job = f"job {short_id(report.job)}"
    if report.what == "begun":
        return f"{job} begins: attempt {report.attempt}, {report.via}, tenant {report.tenant}"
    return f"{job} ended: {report.ending}, {report.seconds or 0.0:.1f} s"


def _jobs(number: int) -> str:
    return f"{number} job{'' if number == 1 else 's'}"
