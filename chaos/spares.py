"""`python -m chaos.spares [--runs 200] [--kills 50] [--seed 1]`: CLIs that were started ahead.

Between two runs, something that a CLI reads at its start changes at random, or nothing does. Each
prompt is sent twice: to a `Cli` that starts CLIs ahead, and to one that never does. Google must see
the same request, but for ids and times. Then CLIs that wait are killed at random moments: no run
may be lost, and nothing may be left behind. The exit code is 1 if any of that fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from benchmarks.cold_start import MODEL, found_cli

from geminorum import Cli, Options, Policy, ask
from geminorum.testing import FakeGemini

_SKILL = re.compile(r"<skill>.*?</skill>")
_OVERLAY = re.compile(r"/[\w./-]*geminorum-kept-home-[\w-]+")
_READY_SECONDS, _STARTING_SECONDS = 20.0, 0.5


class Log(logging.Handler):
    """Counts what is said about CLIs started ahead."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.taken = 0
        self.unfit: Counter[str] = Counter()
        logger = logging.getLogger("geminorum.spares")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.taken += text.startswith("the prompt went")
        if "is not used" in text:
            self.unfit[re.sub(r"'.*'", "a file", text.partition(": ")[2])] += 1


class Folder:
    """A project and a home, and the ways in which they change."""

    def __init__(self, folder: Path, fake: FakeGemini, dice: random.Random) -> None:
        self.cwd, self.home, self.dice = folder, fake.home, dice
        self.options = Options(cwd=folder, env=fake.env, model=MODEL)
        (folder / "src").mkdir()
        (folder / "src/main.py").write_text("print('hello')\n")
        self.number = 0

    def change(self) -> str:
        """Changes one thing, or nothing; its name."""
        self.number += 1
        name = self.dice.choice(sorted(self.changes))
        self.changes[name]()
        return name

    @property
    def changes(self) -> dict[str, Callable[[], None]]:
        home, cwd = self.home / ".gemini", self.cwd
        return {
            "nothing": lambda: None,
            "nothing again": lambda: None,
            "nothing at all": lambda: None,
            "a file": lambda: self._write(cwd / f"file{self.number}.txt"),
            "a file below": lambda: self._write(cwd / "src" / f"file{self.number}.txt"),
            "a file less": self._remove_file,
            "an edited file": lambda: self._write(cwd / "src/main.py"),
            "GEMINI.md": lambda: self._toggle(cwd / "GEMINI.md"),
            "GEMINI.md below": lambda: self._toggle(cwd / "src/GEMINI.md"),
            "the user's GEMINI.md": lambda: self._toggle(home / "GEMINI.md"),
            ".gitignore": lambda: self._toggle(cwd / ".gitignore", "*.txt\n"),
            ".geminiignore": lambda: self._toggle(cwd / ".geminiignore", "*.py\n"),
            "a repository": self._toggle_repository,
            "a setting": self._change_settings,
            "a policy of the user": self._toggle_policy,
            "a skill": self._toggle_skill,
            "the key": lambda: self._change(
                env={**self.options.env, "GEMINI_API_KEY": f"key-{self.number}-of-many"}
            ),
            "a variable": lambda: self._change(env={**self.options.env, "LANG": "de_DE.UTF-8"}),
            "the policy": lambda: self._change(
                policy=Policy(shell_execute=self.dice.choice(["allow", "deny"]))
            ),
            "the system prompt": lambda: self._change(system_prompt=f"Be brief, {self.number}."),
            "the turn limit": lambda: self._change(max_turns=self.dice.randint(3, 9)),
            "a budget": lambda: self._change(max_budget_usd=self.dice.uniform(1, 2)),
        }

    def _change(self, **values: Any) -> None:
        self.options = self.options.changed(**values)

    def _write(self, file: Path) -> None:
        file.write_text(f"version {self.number}\n")

    def _remove_file(self) -> None:
        files = sorted(self.cwd.rglob("file*.txt"))
        if files:
            self.dice.choice(files).unlink()

    def _toggle(self, file: Path, text: str | None = None) -> None:
        if file.exists():
            file.unlink()
        else:
            file.write_text(text or f"Remember the number {self.number}.\n")

    def _toggle_repository(self) -> None:
        if (self.cwd / ".git").exists():
            (self.cwd / ".git").rename(self.cwd.parent / f"git{self.number}")
        else:
            subprocess.run(["git", "init", "-q"], cwd=self.cwd, check=True)

    def _change_settings(self) -> None:
        file = self.home / ".gemini/settings.json"
        settings = json.loads(file.read_text())
        settings["context"] = {"includeDirectoryTree": self.dice.random() < 0.5}
        file.write_text(json.dumps(settings))

    def _toggle_policy(self) -> None:
        folder = self.home / ".gemini/policies"
        folder.mkdir(exist_ok=True)
        rule = '[[rule]]\ntoolName = "web_fetch"\ndecision = "deny"\npriority = 100\n'
        self._toggle(folder / "mine.toml", rule)

    def _toggle_skill(self) -> None:
        folder = self.home / ".gemini/skills/counting"
        folder.mkdir(parents=True, exist_ok=True)
        text = f"---\nname: counting\ndescription: Counts to {self.number}.\n---\nCount.\n"
        self._toggle(folder / "SKILL.md", text)


def comparable(request: Any) -> str:
    """A request without what differs from run to run."""
    body = json.dumps(request.body, sort_keys=True)
    key = request.headers.get("x-goog-api-key")
    return _OVERLAY.sub("/overlay", f"{request.model} {key} {_with_sorted_skills(body)}")


def _with_sorted_skills(text: str) -> str:
    """The CLI lists its skills in the order in which it happens to have read them."""
    skills = iter(sorted(_SKILL.findall(text)))
    return _SKILL.sub(lambda _: next(skills), text)


async def ready(cli: Cli) -> None:
    """Until the CLIs that were ordered wait for a prompt."""
    spares = cli._spares
    assert spares is not None
    with suppress(TimeoutError):
        async with asyncio.timeout(_READY_SECONDS):
            while not spares.waiting:  # noqa: ASYNC110 - other tasks and processes fill it
                await asyncio.sleep(0.02)


async def change_and_compare(runs: int, seed: int) -> int:
    """The number of runs that differed."""
    dice, log, wrong = random.Random(seed), Log(), 0
    with FakeGemini(default="Hello") as fake, tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "project").mkdir()
        folder = Folder(Path(scratch) / "project", fake, dice)
        cold = Cli(executable=found_cli(), spare=0)
        async with Cli(executable=found_cli(), spare=1, spare_age=600) as ahead:
            for number in range(runs):
                await ready(ahead)
                change = folder.change()
                requests = []
                for cli in (ahead, cold):
                    seen = len(fake.requests)
                    await ask(f"Prompt {number}", folder.options, via=cli)
                    requests.append([comparable(one) for one in fake.requests[seen:]])
                if requests[0] != requests[1]:
                    wrong += 1
                    print(f"run {number}, {change}: another request than a cold run's", flush=True)
                    print(_difference(*map("\n".join, requests)), flush=True)
                elif number % 10 == 9:
                    print(f"{number + 1} runs, {log.taken} ahead, {wrong} wrong", flush=True)
    print(f"{runs} runs: {log.taken} went to a CLI started ahead, {wrong} differed from a cold one")
    for why, count in log.unfit.most_common():
        print(f"  {count:4} not used: {why}")
    return wrong


def _difference(one: str, other: str) -> str:
    pairs = zip(one, other, strict=False)
    place = next((number for number, (a, b) in enumerate(pairs) if a != b), 0)
    return "\n".join(f"    … {text[max(0, place - 60) : place + 60]!r}" for text in (one, other))


async def kill_and_count(kills: int, seed: int) -> int:
    """The number of runs lost, and of things left behind."""
    dice, log, wrong = random.Random(seed), Log(), 0
    with FakeGemini(default="Hello") as fake, tempfile.TemporaryDirectory() as folder:
        options = Options(cwd=folder, env=fake.env, model=MODEL)
        async with Cli(executable=found_cli(), spare=2, spare_age=600) as cli:
            for number in range(kills):
                await asyncio.sleep(dice.uniform(0, 2.5))
                # At the latest while the prompt is on its way: the CLI says its first word, and
                # begins to work, about 40 ms later.
                loop = asyncio.get_running_loop()
                loop.call_later(dice.uniform(0, 0.02), _kill_one, cli, dice)
                result = await ask(f"Prompt {number}", options, via=cli)
                wrong += result.text != "Hello"
        sessions = len([*fake.home.rglob("session-*")])
        wrong += sessions != kills
        left = [one for one in _descendants() if "gemini" in " ".join(one.cmdline())]
        overlays = [*Path(tempfile.gettempdir()).glob(f"geminorum-kept-home-{os.getpid()}-*")]
        wrong += len(left) + len(overlays)
    print(
        f"{kills} kills: {log.taken} runs went to a CLI started ahead, {sessions} sessions, "
        f"{len(left)} processes and {len(overlays)} folders left; {wrong} wrong"
    )
    return wrong


def _kill_one(cli: Cli, dice: random.Random) -> None:
    """One that waits, or that starts."""
    assert cli._spares is not None
    pids = [spare.pid for spare in cli._spares.waiting]
    if not pids:
        pids = [one.pid for one in _descendants() if _is_starting(one)]
    with suppress(ProcessLookupError, IndexError):
        os.kill(dice.choice(pids), signal.SIGKILL)


def _is_starting(process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # It has ended meanwhile.
        is_young = time.time() - process.create_time() < _STARTING_SECONDS
        return is_young and "start_record" in " ".join(process.cmdline())
    return False


def _descendants() -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process().children(recursive=True)
    return []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.spares")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    wrong = asyncio.run(change_and_compare(given.runs, given.seed)) if given.runs else 0
    return int(wrong + asyncio.run(kill_and_count(given.kills, given.seed)) > 0)


if __name__ == "__main__":
    sys.exit(main())
