"""`python -m load.fleet.writer SETTINGS`: how a worker writes events, without agents.

It takes jobs as a worker does, then writes events of all of them at a rate, each with its time in
it, and ends them. Prints how many it has written, as JSON.
"""

from __future__ import annotations

import asyncio
import sys
import time
import uuid

import msgspec

from geminorum import Done, Event, TextDelta
from geminorum.fleet.database import Database
from geminorum.fleet.events.writer import AttemptLog, EventWriter
from geminorum.fleet.travel import Outcome
from geminorum.fleet.workers import claims
from geminorum.fleet.workers.claims import Claim
from geminorum.fleet.workers.heartbeat import Heartbeat
from geminorum.views.result import Result

_TICK_SECONDS = 0.01


class Settings(msgspec.Struct, frozen=True):
    url: str
    runs: int
    rate: float
    """Events per second, of all runs together."""
    seconds: float


class Written(msgspec.Struct, frozen=True):
    events: int
    seconds: float
    """Until all of them were in the database, and their jobs had ended."""
    cpu: float
    """Seconds of processor time of this process."""


async def main(settings: Settings) -> Written:
    async with Database(settings.url) as database, Database(settings.url, connections=1) as own:
        async with database.transaction() as connection:
            worker = await claims.register(connection, "writer", settings.runs, {})
        beating = asyncio.create_task(Heartbeat(database, worker, lambda _: None).run())
        writer = EventWriter(own, _complain)
        taken = [await _take(database, worker) for _ in range(settings.runs)]
        logs = [writer.open(claim.job, claim.attempt) for claim in taken]
        writing = asyncio.create_task(writer.run())
        cpu, began = time.process_time(), time.perf_counter()
        events = await _write(writer, logs, settings)
        for claim, log in zip(taken, logs, strict=True):
            await _end(database, writer, claim, log)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        for task in (writing, beating):
            task.cancel()
        await asyncio.wait([writing, beating])
    return Written(events, seconds, cpu)


def _complain(job: uuid.UUID, attempt: int) -> None:
    raise RuntimeError(f"attempt {attempt} of job {job} is another's")


async def _take(database: Database, worker: int) -> Claim:
    async with database.transaction() as connection:
        claim = await claims.take(connection, worker, "writer", ["cli"], None)
    assert claim is not None
    return claim


async def _write(writer: EventWriter, logs: list[AttemptLog], settings: Settings) -> int:
    """Steadily; a writer that cannot keep up makes its runs wait, as those of agents do."""
    began, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < settings.seconds:
        for number in range(count, int(passed * settings.rate)):
            log = logs[number % len(logs)]
            await writer.add(log, [_event(number // len(logs))])
            count += 1
        await asyncio.sleep(_TICK_SECONDS)
    return count


def _event(number: int) -> Event:
    return TextDelta(f"{number} {time.time_ns()} word of a story")


async def _end(database: Database, writer: EventWriter, claim: Claim, log: AttemptLog) -> None:
    log.add([Done(status="success")])
    chunks = await writer.take_rest(log)
    async with database.transaction() as connection:
        await claims.hold(connection, claim.job, claim.attempt)
        await claims.finish(connection, claim, chunks, Outcome(result=Result(status="success")))


if __name__ == "__main__":
    found = asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Settings)))
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
