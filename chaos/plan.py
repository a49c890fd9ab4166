"""What one trial does, drawn from its seed alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

CLI_KINDS = ("cli", "acp", "warm", "pool")
EVERY_KIND = (*CLI_KINDS, "api")
SHARED_KINDS = ("warm", "pool")
"""One process serves several conversations, and lives on after each."""
MOST_TICKS, MOST_SECONDS = 20_000, 1.5


@dataclass(frozen=True, slots=True)
class Story:
    """What the agent says and does."""

    words: int
    pace: float
    """Seconds between two words."""
    tools: tuple[str, ...] = ()
    """Background jobs that it starts: `session` leaves its session, `bare` its environment too,
    `stubborn` ignores SIGTERM."""
    habit: str = ""
    """What the stand-in does instead of going on, after `habit_at` words."""
    habit_at: int = 0
    ignores_term: bool = False
    heeds_cancel: bool = True
    """Does it hear the protocol's `session/cancel` while it speaks?"""

    @property
    def text(self) -> str:
        return "".join(map(word, range(self.words)))


def word(number: int) -> str:
    return f"w{number} "


@dataclass(frozen=True, slots=True)
class Moment:
    """When the fault happens: after so many ticks of the event loop, events, or seconds."""

    unit: str
    count: float


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    fault: str
    transport: str
    agent: str
    """`stand-in`, or `real`: the CLI behind a simulated API, and Google's SDK for `api`."""
    story: Story
    moment: Moment
    scope: str
    """Who cancels: `asyncio` once, `anyio` again and again."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def title(self) -> str:
        return f"{self.fault} · {self.transport} · {self.agent}"


def plan_of(data: dict[str, Any]) -> Plan:
    """The reverse of `as_dict`, from JSON."""
    story = Story(**{**data["story"], "tools": tuple(data["story"]["tools"])})
    return Plan(**{**data, "story": story, "moment": Moment(**data["moment"])})


@dataclass(frozen=True, slots=True)
class Fault:
    """Where a fault can happen."""

    transports: tuple[str, ...] = EVERY_KIND
    agents: tuple[str, ...] = ("stand-in", "real")


_STAND_IN = ("stand-in",)
FAULTS = {
    "none": Fault(),
    "kill agent": Fault(CLI_KINDS),
    "kill tools": Fault(CLI_KINDS),
    "kill keeper": Fault(CLI_KINDS),
    "kill keeper server": Fault(CLI_KINDS),
    "kill api": Fault(EVERY_KIND, ("real",)),
    "kill us": Fault(),
    "freeze agent": Fault(CLI_KINDS),
    "freeze us": Fault(),
    "cut stdout": Fault(CLI_KINDS, _STAND_IN),
    "half a line": Fault(CLI_KINDS, _STAND_IN),
    "garbage": Fault(CLI_KINDS, _STAND_IN),
    "flood stderr": Fault(CLI_KINDS, _STAND_IN),
    "early exit": Fault(CLI_KINDS, _STAND_IN),
    "hang": Fault(CLI_KINDS, _STAND_IN),
    "full disk": Fault(),
    "no descriptors": Fault(),
    "clock": Fault(),
    "clock of the agent": Fault(CLI_KINDS, ("real",)),
    "cancel": Fault(),
    "leave": Fault(),
    "timeout": Fault(),
    "fork": Fault(),
    "two loops": Fault(("cli", "acp", "api")),
    "slow consumer": Fault(),
    "storm": Fault(("pool",)),
    "kill batch": Fault(("cli",)),
    "interrupt command": Fault(("cli", "acp", "api")),
}
AGENTS_OWN = frozenset(
    {"cut stdout", "half a line", "garbage", "flood stderr", "early exit", "hang"}
)
"""Faults that the stand-in itself commits."""
COMMANDS = frozenset({"kill batch", "interrupt command"})
"""Faults of the `geminorum` command, which the judge commits."""
_REAL_SHARE = 0.2


def drawn(seed: int, fault: str | None = None) -> Plan:
    """Every fault once before any comes again; the rest is chance."""
    chance = random.Random(seed)
    fault = fault or list(FAULTS)[seed % len(FAULTS)]
    transport = chance.choice(FAULTS[fault].transports)
    agent = _agent(fault, transport, chance)
    story = _story(fault, agent, chance)
    return Plan(
        seed,
        fault,
        transport,
        agent,
        story,
        _moment(story, chance),
        _choice("asyncio anyio", chance),
    )


def _agent(fault: str, transport: str, chance: random.Random) -> str:
    agents = FAULTS[fault].agents
    if transport == "api" or agents == ("real",):
        return "real"
    return "real" if "real" in agents and chance.random() < _REAL_SHARE else "stand-in"


def _story(fault: str, agent: str, chance: random.Random) -> Story:
    words = chance.randint(1, 400)
    kinds = ["session", "bare", "stubborn"]
    needs_tools = fault == "kill tools"
    tools = tuple(chance.sample(kinds, chance.randint(int(needs_tools), 3)))
    return Story(
        words=words,
        pace=chance.choice([0.0, 0.001, 0.5 / words]),
        tools=tools if agent == "stand-in" or needs_tools else (),
        habit=fault if fault in AGENTS_OWN else "",
        habit_at=chance.randint(0, words),
        ignores_term=chance.random() < 0.3,
        heeds_cancel=chance.random() < 0.7,
    )


def _moment(story: Story, chance: random.Random) -> Moment:
    draw: dict[str, Callable[[], float]] = {
        "ticks": lambda: int(MOST_TICKS ** chance.random()),
        "events": lambda: chance.randint(0, story.words),
        "seconds": lambda: round(MOST_SECONDS * chance.random() ** 2, 4),
    }
    unit = chance.choice(list(draw))
    return Moment(unit, draw[unit]())


def _choice(words: str, chance: random.Random) -> str:
    return chance.choice(words.split())
