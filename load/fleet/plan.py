"""The measurements, and how much of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.figures import Figure

from load.fleet.crowd import Size, crowd
from load.fleet.idling import idle
from load.fleet.nodes import run_real
from load.fleet.parts import Stage
from load.fleet.saturation import carry
from load.fleet.stopping import cancel, take_over
from load.fleet.streaming import stream
from load.fleet.submitting import submit


@dataclass(frozen=True, slots=True)
class Amounts:
    jobs: int
    events: int
    """Of each of these jobs, 50 ms apart."""
    submitted: int
    times: int
    """How often something is cancelled, or taken over."""
    rates: tuple[tuple[int, float], ...]
    """Runs at once, and events per second of all of them."""
    seconds: float
    """For each of these rates, and for workers that idle."""
    idle: tuple[int, ...]
    crowds: tuple[Size, ...]
    real: int
    """Jobs of real CLIs."""


WHOLE = Amounts(
    jobs=300,
    events=100,
    submitted=1000,
    times=5,
    rates=((100, 1000), (100, 5000), (100, 10_000), (100, 40_000)),
    seconds=10.0,
    idle=(5, 20),
    crowds=(Size(100, 1000, 1000), Size(1000, 10_000, 10_000), Size(10_000, 100_000, 100_000)),
    real=20,
)
SHORT = Amounts(
    jobs=4,
    events=20,
    submitted=50,
    times=1,
    rates=((4, 500),),
    seconds=1.0,
    idle=(2,),
    crowds=(Size(100, 100, 100),),
    real=2,
)


async def _stream(stage: Stage, amounts: Amounts) -> list[Figure]:
    return (await stream(stage, amounts.jobs, amounts.events, pause_ms=50)).figures()


async def _submit(stage: Stage, amounts: Amounts) -> list[Figure]:
    return (await submit(stage, amounts.submitted)).figures()


async def _cancel(stage: Stage, amounts: Amounts) -> list[Figure]:
    warm = await cancel(stage, "acp", amounts.times)
    return [*(await cancel(stage, "cli", amounts.times)).figures(), *warm.figures()]


async def _take_over(stage: Stage, amounts: Amounts) -> list[Figure]:
    return (await take_over(stage, amounts.times)).figures()


async def _carry(stage: Stage, amounts: Amounts) -> list[Figure]:
    found = [await carry(stage, runs, rate, amounts.seconds) for runs, rate in amounts.rates]
    return [figure for one in found for figure in one.figures()]


async def _idle(stage: Stage, amounts: Amounts) -> list[Figure]:
    found = [await idle(stage, workers, amounts.seconds) for workers in amounts.idle]
    return [figure for one in found for figure in one.figures()]


async def _crowd(stage: Stage, amounts: Amounts) -> list[Figure]:
    found = [await crowd(stage, size) for size in amounts.crowds]
    return [figure for one in found for figure in one.figures()]


async def _real(stage: Stage, amounts: Amounts) -> list[Figure]:
    cold = await run_real(stage, "cli", amounts.real, slots=4)
    warm = await run_real(stage, "acp", amounts.real * 5, slots=20)
    return [*cold.figures(), *warm.figures()]


PARTS: dict[str, Callable[[Stage, Amounts], Awaitable[list[Figure]]]] = {
    "stream": _stream,
    "submit": _submit,
    "cancel": _cancel,
    "takeover": _take_over,
    "carry": _carry,
    "idle": _idle,
    "crowd": _crowd,
    "real": _real,
}
REAL = {"cancel", "takeover", "real"}
"""Those that need the real CLI."""
