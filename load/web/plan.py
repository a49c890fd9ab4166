"""The measurements, and how much of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.figures import Figure

from load.web.live_runs import watch_runs
from load.web.parts import Stage
from load.web.questions import ask_and_answer
from load.web.session_list import paint_sessions


@dataclass(frozen=True, slots=True)
class Amounts:
    runs: int
    seconds: float
    """For which these runs are watched, each with 20 events per second."""
    questions: int
    sessions: int


WHOLE = Amounts(runs=100, seconds=20.0, questions=30, sessions=10_000)
SHORT = Amounts(runs=4, seconds=2.0, questions=3, sessions=200)


async def _runs(stage: Stage, amounts: Amounts) -> list[Figure]:
    return (await watch_runs(stage, amounts.runs, amounts.seconds)).figures()


async def _questions(stage: Stage, amounts: Amounts) -> list[Figure]:
    return (await ask_and_answer(stage, amounts.questions)).figures()


async def _sessions(stage: Stage, amounts: Amounts) -> list[Figure]:
    return (await paint_sessions(stage, amounts.sessions)).figures()


PARTS: dict[str, Callable[[Stage, Amounts], Awaitable[list[Figure]]]] = {
    "runs": _runs,
    "questions": _questions,
    "sessions": _sessions,
}
