"""Where a trial plays: the transport, its agent, and the folders of this trial alone."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.plan import Plan, Story

# The judge of a trial needs only the folders. Loading geminorum would take longer than its work.
if TYPE_CHECKING:
    from geminorum import Options
    from geminorum.transports import Transport

MODEL = "gemini-2.5-flash"
GRACE_SECONDS, LIMIT_SECONDS, NETWORK_SECONDS = 0.5, 25.0, 3.0
STEPS = (1, 3600, 86_400 * 400)
"""Seconds by which a clock may step."""
STEP_CLOCK = Path(__file__).with_name("step_clock.cjs")
STORYTELLER = Path(__file__).with_name("storyteller.py")


@dataclass(frozen=True, slots=True)
class SimulatedApi:
    """A simulated API that runs as a process of its own."""

    pid: int
    env: dict[str, str]
    home: str


@dataclass(frozen=True, slots=True)
class Stage:
    """The folders of a trial, its real CLI, and its simulated APIs."""

    folder: Path
    cli: str
    apis: tuple[SimulatedApi, ...]
    """The second one is for the run after the first was killed."""

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    @property
    def report(self) -> Path:
        return self.folder / "report.json"

    def save(self, plan: Plan) -> None:
        """For the process that plays the trial."""
        stage = {"cli": self.cli, "apis": [asdict(api) for api in self.apis]}
        (self.folder / "trial.json").write_text(json.dumps({"plan": plan.as_dict(), **stage}))

    def write_story(self, story: Story) -> None:
        """What the stand-in tells from its next prompt on."""
        unfinished = self.folder / "story.tmp"
        unfinished.write_text(json.dumps(asdict(story)))
        unfinished.rename(self.folder / "story.json")

    def told(self, number: int) -> int:
        """How many words the stand-in has written, for certain."""
        try:
            return int((self.folder / f"told-{number}").read_bytes() or b"0")
        except OSError:
            return 0

    def stand_in(self) -> Path:
        program = self.folder / "gemini"
        if not program.exists():
            line = f'exec "{sys.executable}" -SE "{STORYTELLER}" "{self.folder}" "$@"'
            program.write_text(f"#!/bin/sh\n{line}\n")
            program.chmod(0o755)
        return program

    def options(self, plan: Plan, api: int = 0) -> Options:
        from geminorum import Options

        given = Options(cwd=self.work, home=self.home, model=MODEL, timeout=LIMIT_SECONDS)
        if plan.transport == "api":
            given = Options(model=MODEL, timeout=LIMIT_SECONDS)
        if plan.agent == "real":
            used = self.apis[api]
            home = None if plan.transport == "api" else used.home
            given = given.changed(
                env={**used.env, **self._clock(plan)},
                home=home,
                network_timeout=NETWORK_SECONDS,
                approval="yolo",
            )
        return given

    def _clock(self, plan: Plan) -> dict[str, str]:
        """Steps the clock of the real CLI, whichever part of its start or its turn that is in."""
        if plan.fault != "clock of the agent":
            return {}
        chance = random.Random(plan.seed)
        step = 1000 * chance.choice([-1, 1]) * chance.choice(STEPS)
        return {
            "NODE_OPTIONS": f"--require={STEP_CLOCK}",
            "CHAOS_STEP": str(step),
            "CHAOS_STEP_AFTER": str(chance.randint(0, 3000)),
        }

    @asynccontextmanager
    async def opened(self, plan: Plan, api: int = 0) -> AsyncIterator[Transport]:
        from geminorum import Acp, Api, Cli, Pool

        program = self.cli if plan.agent == "real" else self.stand_in()
        warm = Acp(executable=program, grace=GRACE_SECONDS)
        match plan.transport:
            case "cli":
                yield Cli(executable=program, grace=GRACE_SECONDS)
            case "acp":
                yield warm
            case "api":
                yield Api(grace=GRACE_SECONDS)
            case "warm":
                async with warm.warm(self.options(plan, api)) as shared:
                    yield shared
            case "pool":
                async with Pool(warm, size=2, at_once=2) as pool:
                    yield pool
            case other:
                raise ValueError(other)
