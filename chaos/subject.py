"""The process that a trial hurts: `python -m chaos.subject FOLDER [calm]`.

It runs a calm story, then one under the fault, then a calm one again, and writes down what came
of each and what is left. With `calm`, only the last, for when the process itself was killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos import leftovers
from chaos.faults import Scene, lifted
from chaos.plan import SHARED_KINDS, Plan, Story, plan_of
from chaos.stage import SimulatedApi, Stage
from chaos.telling import Reader, Telling
from geminorum import Options
from geminorum.errors import SessionBusy
from geminorum.sessions.lock import SessionLock
from geminorum.transports import Transport

CALM = Story(words=5, pace=0.0)
WARM_UP, HURT, NEXT = 1, 2, 3
GUESTS, FIRST_GUEST = 6, 10
FEW_DESCRIPTORS = 200
SHORT_SECONDS = 2.0
"""For an agent that will not end by itself."""


@dataclass
class Report:
    """What the judge reads."""

    tellings: list[Telling] = field(default_factory=list)
    next: Telling | None = None
    unhandled: list[str] = field(default_factory=list)
    """What the event loop was told and nobody handled."""
    left: list[str] = field(default_factory=list)


class Trial:
    def __init__(self, plan: Plan, stage: Stage) -> None:
        self.plan, self.stage, self.report = plan, stage, Report()
        self._chance = random.Random(plan.seed)

    async def play(self) -> None:
        self._listen()
        if self.plan.transport != "api":
            await self._calm_cycle(replace(self.plan, agent="stand-in"), WARM_UP)
        else:
            await self._calm_cycle(self.plan, WARM_UP)
        leftovers.await_prices()
        before = leftovers.descriptors(), leftovers.threads()
        await self._hurt_cycle()
        await self._look_for_leftovers(*before)

    async def play_calmly(self) -> None:
        self._listen()
        self.report.next = await self._calm_cycle(self.plan, NEXT)
        await self._settle()
        self.report.left += leftovers.folders(self.stage.temporary)

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, told: self.report.unhandled.append(repr(told)))

    async def _calm_cycle(self, plan: Plan, number: int, api: int = 0) -> Telling:
        self.stage.write_story(CALM)
        async with self.stage.opened(plan, api) as via:
            return await self._calm_run(self.stage.options(plan, api), via, number)

    async def _calm_run(self, options: Options, via: Transport, number: int) -> Telling:
        reader = Reader(number, options, via)
        await reader.start()
        return reader.telling

    async def _hurt_cycle(self) -> None:
        plan, stage = self.plan, self.stage
        stage.write_story(plan.story)
        async with stage.opened(plan) as via:
            with lifted(plan) as fault:
                await self._hurt(via, fault)
            self._look_for_agents()
            stage.write_story(CALM)
            if plan.fault != "kill api":
                self.report.next = await self._calm_run(stage.options(plan), via, NEXT)
        if plan.fault == "kill api" or self._has_lost_its_process():
            self.report.next = await self._calm_cycle(plan, NEXT, self._spare_api())
        self._look_for_locks()

    def _spare_api(self) -> int:
        return len(self.stage.apis) - 1 if self.stage.apis else 0

    def _has_lost_its_process(self) -> bool:
        """Of all transports, only `warm` has one process and no other: where that is killed or
        frozen, it says so, and somebody has to open another."""
        told = self.report.next
        has_failed = told is not None and told.status != "success" and not told.error
        return self.plan.transport == "warm" and has_failed

    async def _hurt(self, via: Transport, fault: Any) -> None:
        match self.plan.fault:
            case "storm":
                await self._storm(via)
            case "two loops":
                await self._two_loops(via)
            case _:
                await self._hurt_one(via, fault)

    async def _hurt_one(self, via: Transport, fault: Any) -> None:
        reader = Reader(HURT, self._hurt_options(), via)
        self.report.tellings.append(reader.telling)
        if self.plan.fault == "slow consumer":
            reader.before_each = lambda: asyncio.sleep(0.002)
        reading = reader.start()
        await self._wait_for_moment(reader, reading)
        reader.telling.told_at_fault = self.stage.told(HURT)
        if not reading.done():
            await fault(Scene(self.plan, self.stage, reader, self._chance))
        await asyncio.wait([reading])

    def _hurt_options(self) -> Options:
        options = self.stage.options(self.plan)
        if self.plan.fault == "timeout":
            return options.changed(timeout=0.01 + self._chance.random() ** 2)
        if self.plan.fault in ("freeze agent", "hang", "cut stdout"):
            return options.changed(timeout=SHORT_SECONDS if self.plan.agent != "real" else 6.0)
        return options

    async def _wait_for_moment(self, reader: Reader, reading: asyncio.Task[None]) -> None:
        moment = self.plan.moment
        clock = asyncio.get_running_loop().time
        began, ticks = clock(), 0
        while not reading.done():
            await asyncio.sleep(0 if moment.unit == "ticks" else 0.0005)
            ticks += 1
            counts = {"ticks": ticks, "events": reader.events, "seconds": clock() - began}
            if counts[moment.unit] >= moment.count:
                return

    async def _storm(self, via: Transport) -> None:
        """More guests than places; some give up, some are cancelled."""
        readers = [
            Reader(FIRST_GUEST + guest, self.stage.options(self.plan), via)
            for guest in range(GUESTS)
        ]
        self.report.tellings += [reader.telling for reader in readers]
        readings = [reader.start() for reader in readers]
        for reader in readers:
            await asyncio.sleep(0.3 * self._chance.random() ** 2)
            match self._chance.choice(["cancel", "anyio", "leave", "stay"]):
                case "cancel":
                    reader.cancel("asyncio")
                case "anyio":
                    reader.cancel("anyio")
                case "leave":
                    reader.wants_to_leave = True
        await asyncio.wait(readings)

    async def _two_loops(self, via: Transport) -> None:
        """One transport in two threads, each with an event loop of its own."""

        def run_there(number: int) -> None:
            async def read() -> None:
                reader = Reader(number, self.stage.options(self.plan), via)
                self.report.tellings.append(reader.telling)
                await reader.start()

            asyncio.run(read())

        await asyncio.gather(*(asyncio.to_thread(run_there, number) for number in (20, 21)))

    # ---- what is left

    def _look_for_agents(self) -> None:
        """A run's own process is gone at the end of its block."""
        if self.plan.transport not in SHARED_KINDS:
            self._note("alive after its block", leftovers.processes(agents_only=True))

    def _look_for_locks(self) -> None:
        for telling in self.report.tellings:
            if telling.session is None or self.plan.transport == "api":
                continue
            try:
                with SessionLock(Path(self._home()), telling.session):
                    pass
            except SessionBusy as error:
                self._note("locked", [repr(error)])

    def _home(self) -> str:
        return str(self.stage.options(self.plan).home)

    async def _look_for_leftovers(self, fds: list[str], threads: list[str]) -> None:
        await self._settle()
        self._note("tasks", leftovers.tasks())
        self._note("processes", leftovers.processes())
        self._note("folders", leftovers.folders(self.stage.temporary))
        self._note("threads", _more(leftovers.threads(), threads))
        self._note("descriptors", _more(leftovers.descriptors(), fds))

    async def _settle(self) -> None:
        """Keepers end a moment after what they kept, and callbacks run in the next round."""
        for _ in range(100):
            await asyncio.sleep(0.01)
            if not leftovers.processes():
                return

    def _note(self, what: str, found: list[str]) -> None:
        self.report.left += [f"{what}: {one}" for one in found]


def _more(now: list[str], before: list[str]) -> list[str]:
    return [*(Counter(now) - Counter(before)).elements()]


def main(folder: Path, *, is_calm: bool) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_DESCRIPTORS, FEW_DESCRIPTORS))
    trial_data = json.loads((folder / "trial.json").read_text())
    apis = tuple(SimulatedApi(**api) for api in trial_data["apis"])
    trial = Trial(plan_of(trial_data["plan"]), Stage(folder, trial_data["cli"], apis))
    try:
        asyncio.run(trial.play_calmly() if is_calm else trial.play())
    finally:
        unfinished = folder / f"report-{os.getpid()}"
        unfinished.write_text(json.dumps(asdict(trial.report)))
        unfinished.rename(folder / "report.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]), is_calm="calm" in sys.argv[2:])
