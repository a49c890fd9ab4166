"""Faults of the `geminorum` command: a batch that is killed, a run that is interrupted."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from chaos.plan import Plan
from chaos.stage import MODEL, Stage

Watched = Callable[..., tuple[int, list[str]]]
PROMPTS, HANDS, FIRST = 6, 3, 40
TOO_CLOSE_SECONDS = 0.25
"""An agent that finished so short before the kill may not have been written down."""


def kill_batch(plan: Plan, stage: Stage, watched: Watched) -> list[str]:
    """Killed and started again: every prompt has one result, and no agent finished twice."""
    prompts = stage.folder / "prompts.jsonl"
    lines = [json.dumps(f"Story {FIRST + number}") for number in range(PROMPTS)]
    prompts.write_text("\n".join(lines) + "\n")
    stage.write_story(plan.story)
    command = _command(plan, stage, "batch", str(prompts), "-j", str(HANDS), "--retries", "0")
    killed_at: list[float] = []

    def kill(child: subprocess.Popen[bytes]) -> None:
        time.sleep(_delay(plan))
        child.kill()
        killed_at.append(time.time())

    _, found = watched(command, stage, _env(plan, stage), kill)
    again_at = time.time()
    code, more = watched(command, stage, _env(plan, stage))
    found += more
    results = stage.folder / "prompts.results.jsonl"
    found += [f"the batch that was started again ended with {code}"] if code else []
    found += _of_results(plan, [json.loads(line) for line in results.read_text().splitlines()])
    if plan.agent == "stand-in":
        for number in range(FIRST, FIRST + PROMPTS):
            found += _of_agent(stage, number, killed_at[0], again_at)
    return found


def _of_results(plan: Plan, results: list[dict[str, Any]]) -> list[str]:
    if len(results) != PROMPTS:
        return [f"{len(results)} results for {PROMPTS} prompts"]
    return [
        f"a result without the whole text: {one}"
        for one in results
        if plan.story.text.strip() not in json.dumps(one)
    ]


def _of_agent(stage: Stage, number: int, killed_at: float, again_at: float) -> list[str]:
    """One that came to its end while the batch was dying could not be written down."""
    ends = [float(line) for line in (stage.folder / f"finished-{number}").read_text().split()]
    dying = (killed_at - TOO_CLOSE_SECONDS, again_at)
    certain = [end for end in ends if not dying[0] < end < dying[1]]
    if len(certain) <= 1 and len(ends) <= 2:
        return []
    return [f"agent {number} finished {len(ends)} times: {ends}, killed at {killed_at}"]


def interrupt_command(plan: Plan, stage: Stage, watched: Watched) -> list[str]:
    """Ctrl-C, once or in bursts, or SIGTERM: no traceback, and nothing is left."""
    stage.write_story(plan.story)
    chance = random.Random(plan.seed)
    number = chance.choice([signal.SIGINT, signal.SIGTERM])
    burst = chance.choice([1, 2, 5])

    def interrupt(child: subprocess.Popen[bytes]) -> None:
        time.sleep(_delay(plan))
        for _ in range(burst):
            child.send_signal(number)
            time.sleep(0.05 * chance.random())

    _, found = watched(_command(plan, stage, "run", "Story 2"), stage, _env(plan, stage), interrupt)
    code, more = watched(_command(plan, stage, "run", "Story 3"), stage, _env(plan, stage))
    left = [path.name for path in stage.temporary.glob("*geminorum*")]
    found += more + ([f"left after the next run: {left}"] if left else [])
    return found + ([f"the next run ended with {code}"] if code else [])


def _delay(plan: Plan) -> float:
    """Seconds from the start of Python on."""
    return float(3 * random.Random(plan.seed).random() ** 1.5)


def _command(plan: Plan, stage: Stage, *words: str) -> list[str]:
    model = ["--model", MODEL]
    transport = ["--via", plan.transport]
    if plan.transport != "api":
        program = stage.cli if plan.agent == "real" else str(stage.stand_in())
        transport += ["--cli", program]
    where = ["--cwd", str(stage.work)] if plan.transport != "api" else []
    return [sys.executable, "-m", "geminorum", *words, *model, *transport, *where]


def _env(plan: Plan, stage: Stage) -> dict[str, str]:
    if plan.agent == "real":
        return stage.apis[0].env
    return {"GEMINI_CLI_HOME": str(stage.home), "HOME": str(stage.home)}


COMMITTED: dict[str, Callable[[Plan, Stage, Watched], list[str]]] = {
    "kill batch": kill_batch,
    "interrupt command": interrupt_command,
}
