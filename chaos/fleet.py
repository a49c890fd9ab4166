"""`python -m chaos.fleet [--seeds N]`: workers and a database that are killed, stopped and cut off.

Each seed draws a story: jobs on three machines, and faults in mid-run. Workers get SIGKILL, or
SIGSTOP and later SIGCONT, one has a clock that is wrong by an hour, PostgreSQL is shut down at once
or killed, connections are cut, users cancel. Then:

- every job has one result and one `Done`, which is its last event;
- no event is lost, doubled or out of order, and those read live are those read afterwards;
- no two agents of a job lived at the same time, and one attempt at most was acknowledged;
- an attempt with a checkpoint was resumed, and its prompt not sent again;
- nothing is left: no process, no folder after the next worker of that machine, no traceback.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from chaos.fleet_judge import Row, Told, violations
from chaos.fleet_machines import Machine, Server, open_place, server_in, still_alive, write_agent
from chaos.invariants import noise
from geminorum import Options
from geminorum.errors import FleetUnavailable, GeminorumError
from geminorum.fleet import Fleet, JobRequest, schema
from geminorum.fleet.client import Job
from geminorum.fleet.database import Database

SLOTS, JOBS, FAULTS = 4, 10, 5
WORDS, PAUSES = (30, 80), (0.05, 0.12)
WRONG_CLOCKS = (0.0, 3600.0, -3600.0)
"""By how many seconds the clock of each machine is wrong."""
_WAIT_SECONDS, _LOOK_SECONDS = 120.0, 0.2


@dataclass
class Story:
    seed: int
    folder: Path
    server: Server
    faults: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.url = self.server.url.replace("/postgres?", f"/chaos_{uuid.uuid4().hex}?")
        self.diary = self.folder / "diary"
        self.diary.mkdir(parents=True)
        agent = write_agent(self.folder, self.diary)
        self.machines = [
            Machine(self.folder / f"machine-{number}", self.url, agent, slots=SLOTS, clock=clock)
            for number, clock in enumerate(WRONG_CLOCKS)
        ]
        self.told: list[Told] = []
        self.jobs: list[Job[object]] = []

    async def tell(self) -> list[str]:
        await _create_database(self.server.url, self.url)
        try:
            async with Fleet(self.url) as fleet, asyncio.timeout(_WAIT_SECONDS):
                for machine in self.machines:
                    machine.start()
                await self._run_jobs(fleet)
                problems = await self._clean_up(fleet)
        except TimeoutError:
            problems = [f"not over after {_WAIT_SECONDS:g} s: {await self._open_jobs()}"]
        finally:
            for machine in self.machines:
                machine.end()
        return [*problems, *self._judge()]

    async def _run_jobs(self, fleet: Fleet) -> None:
        requests = [self._request(number) for number in range(JOBS)]
        self.jobs = await fleet.submit_many(requests)
        self.told = [Told(whole=_whole(request)) for request in requests]
        following = [
            asyncio.create_task(self._follow(job, told))
            for job, told in zip(self.jobs, self.told, strict=True)
        ]
        await self._hurt()
        await asyncio.gather(*following)

    def _request(self, number: int) -> JobRequest:
        words, pause = self.dice.randint(*WORDS), round(self.dice.uniform(*PAUSES), 3)
        options = Options(env={"STORY": f"story-{number} {words} {pause}"})
        # More attempts than faults: giving up is not what is tried here.
        return JobRequest(prompt=f"Tell story {number}", options=options, max_attempts=50)

    async def _follow(self, job: Job[object], told: Told) -> None:
        told.live = [pair async for pair in job.numbered_events()]
        try:
            result = await job.result()
            told.status, told.text = result.status, result.text
        except GeminorumError as error:
            told.status = error.result.status if error.result else error.code.lower()
        told.later = [pair async for pair in job.numbered_events()]
        told.info = await job.info()
        told.attempts = await self._attempts(job)

    async def _attempts(self, job: Job[object]) -> list[Row]:
        query = """SELECT number, ending, checkpoints FROM geminorum_attempts
            WHERE job = %s ORDER BY number"""
        while True:
            # PostgreSQL may be gone at this very moment: faults go on while some jobs are over.
            with suppress(psycopg.OperationalError):
                async with await psycopg.AsyncConnection.connect(self.url) as connection:
                    rows = await (await connection.execute(query, (job.id,))).fetchall()
                return [Row(*row) for row in rows]
            await asyncio.sleep(_LOOK_SECONDS)

    async def _hurt(self) -> None:
        late: list[asyncio.Task[None]] = []
        for _ in range(FAULTS):
            await asyncio.sleep(self.dice.uniform(0.1, 1.5))
            name = self.dice.choice(sorted(self._ways))
            self.faults[name] += 1
            late.append(asyncio.create_task(self._ways[name]()))
        await asyncio.gather(*late)

    @property
    def _ways(self) -> dict[str, Callable[[], Coroutine[None, None, None]]]:
        return {
            "kill worker": self._kill_worker,
            "kill worker again": self._kill_worker,
            "stop worker": self._stop_worker,
            "stop worker again": self._stop_worker,
            "shut down PostgreSQL": self._shut_down_database,
            "kill PostgreSQL": self._kill_database,
            "cut connections": self._cut_connections,
            "cancel": self._cancel,
        }

    async def _kill_worker(self) -> None:
        machine = self.dice.choice(self.machines)
        machine.kill()
        await asyncio.sleep(self.dice.uniform(0.0, 2.0))
        machine.start()

    async def _stop_worker(self) -> None:
        machine = self.dice.choice(self.machines)
        machine.signal(signal.SIGSTOP)
        await asyncio.sleep(self.dice.uniform(0.5, 6.0))
        machine.signal(signal.SIGCONT)

    async def _shut_down_database(self) -> None:
        self.server.signal(signal.SIGQUIT)

    async def _kill_database(self) -> None:
        self.server.signal(signal.SIGKILL)

    async def _cut_connections(self) -> None:
        await asyncio.to_thread(self.server.cut_connections)

    async def _cancel(self) -> None:
        place = self.dice.randrange(len(self.jobs))
        while True:
            with suppress(FleetUnavailable):  # What a user would see, who tries again.
                self.told[place].was_cancelled = True
                await self.jobs[place].cancel()
                return
            await asyncio.sleep(0.2)

    async def _clean_up(self, fleet: Fleet) -> list[str]:
        """Workers leave; those that come back run one more job each, and leave nothing behind."""
        problems = [
            f"{one.name} left with {code}" for one in self.machines if (code := one.leave())
        ]
        for machine in self.machines:
            machine.start(tenants=[machine.name])
        options = Options(env={"STORY": "last 2 0"})
        names = [machine.name for machine in self.machines]
        last = [JobRequest(prompt="bye", options=options, tenant=name) for name in names]
        for job in await fleet.submit_many(last):
            await job.result()
        for machine in self.machines:
            machine.leave()
            problems += [f"{machine.name} has kept {name}" for name in machine.folders()]
        return problems

    async def _open_jobs(self) -> list[str]:
        with suppress(Exception):
            async with Fleet(self.url) as fleet:
                return [str(info) for info in await fleet.jobs() if info.state != "done"]
        return ["the database cannot be used"]

    def _judge(self) -> list[str]:
        found = [f"{one.name} {line}" for one in self.machines for line in noise(one.said())]
        notes = {path.name: _notes(path) for path in self.diary.iterdir()}
        for number, told in enumerate(self.told):
            told.diary = notes.get(f"story-{number}", [])
            found += [f"story {number}: {line}" for line in violations(told)]
            self.effects += _effects(told)
        if alive := still_alive(_processes([note for each in notes.values() for note in each])):
            found.append(f"{alive} are still alive")
        return found


async def _create_database(server: str, url: str) -> None:
    name = url.rpartition("?")[0].rpartition("/")[2]
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as connection:
        await connection.execute(f'CREATE DATABASE "{name}"'.encode())
    async with Database(url) as database:
        await schema.initialise(database)


def _effects(told: Told) -> Counter[str]:
    """What the faults have done: a story that nothing happens to proves nothing."""
    starts = [note for note in told.diary if note["what"] == "start"]
    return Counter(
        {
            "agents resumed": sum(note["resumed"] is not None for note in starts),
            "attempts lost": sum(row.ending == "lost" for row in told.attempts),
            "jobs interrupted": told.status == "interrupted",
        }
    )


def _whole(request: JobRequest) -> str:
    assert request.options.env is not None
    words = int(request.options.env["STORY"].split()[1])
    return "".join(f"w{number} " for number in range(words))


def _notes(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _processes(notes: list[dict[str, object]]) -> set[tuple[int, str]]:
    """The agents and what they started."""
    agents = {(note["pid"], note["born"]) for note in notes}
    tools = {tuple(pair) for note in notes for pair in note.get("tools", ())}  # type: ignore[attr-defined]
    return agents | tools  # type: ignore[return-value]


def judged(seeds: range) -> tuple[dict[int, list[str]], Counter[str]]:
    """What stories have violated, by seed, and how often each fault happened."""
    found, faults = {}, Counter[str]()
    with open_place() as place, server_in(place) as server:
        for seed in seeds:
            story = Story(seed, place / str(seed), server)
            found[seed] = asyncio.run(story.tell())
            faults += story.faults + story.effects
            for line in found[seed]:
                print(f"seed {seed}: {line}", flush=True)
    return found, faults


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.fleet", description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="SEED")
    given = parser.parse_args()
    began = time.monotonic()
    found, counts = judged(range(given.first, given.first + given.seeds))
    bad, seconds = sum(map(bool, found.values())), time.monotonic() - began
    print(
        f"{FAULTS * given.seeds} faults in {given.seeds} stories, {seconds:.0f} s, {bad} violated"
    )
    print(", ".join(f"{name}: {times}" for name, times in sorted(counts.items())))
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
