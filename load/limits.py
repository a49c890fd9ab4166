"""`python -m load.limits`: one limit over ten workers that would send far more.

Each is a process with a clock that is wrong by up to an hour. Counts the requests that reach a
simulated API in every window of 60 seconds. The exit code is 1 if one has more than the limit and
its burst, or less than 98 % of the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from chaos.fleet_machines import open_place

from geminorum import Options
from geminorum.fleet import Fleet, JobRequest, initialise, key_fingerprint
from geminorum.fleet.embedded import embedded_postgres
from geminorum.testing import FakeGemini, Say

ROOT = Path(__file__).parents[1]
WINDOW_SECONDS = 60.0
LEAST_SHARE = 0.98
_KEY = "the-key-of-all-workers"
_SLOTS, _REQUESTS_PER_JOB = 4, 10
_LEAVE_SECONDS = 30.0


class Windows(NamedTuple):
    """The fullest and the emptiest window."""

    most: int
    least: int


class SimulatedApi(FakeGemini):
    """Has each agent look around again and again, and notes when it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[float] = []
        self.reply(self._answer_now).always()

    def _answer_now(self, request: Any) -> Say | str:
        self.moments.append(time.monotonic())
        if request.round + 1 >= _REQUESTS_PER_JOB:
            return "Nothing new."
        return Say(({"functionCall": {"name": "look", "args": {}}},))


def windows_in(times: Sequence[float], begin: float, end: float) -> Windows:
    """The requests in every window of a minute that lies between two moments."""
    times = sorted(times)
    # A window is fullest that begins with a request, and emptiest that begins right behind one.
    starts = [begin, *(one for one in times if begin <= one <= end - WINDOW_SECONDS)]
    ends = [bisect_right(times, start + WINDOW_SECONDS) for start in starts]
    most = [end - bisect_left(times, start) for start, end in zip(starts, ends, strict=True)]
    least = [end - bisect_right(times, start) for start, end in zip(starts, ends, strict=True)]
    return Windows(max(most), min(least))


async def set_up(url: str, rate: float, burst: float, requests: int) -> None:
    """Makes a fleet with a limit and enough jobs for so many requests."""
    await initialise(url)
    jobs = -(-requests // _REQUESTS_PER_JOB)
    asked = JobRequest(prompt="Look around", options=Options(model="gemini-2.5-flash"), via="api")
    async with Fleet(url) as fleet:
        key = key_fingerprint(_KEY)
        await fleet.set_limit("requests_per_minute", rate, key=key, burst=burst)
        await fleet.submit_many([asked] * jobs)


@contextmanager
def workers(url: str, base_url: str, place: Path, count: int) -> Iterator[None]:
    """Processes as on separate machines, which leave at the end of the block."""
    running = []
    try:
        for number in range(count):
            clock = 3600.0 * (number - count // 2) / max(1, count // 2)
            running.append(_start(url, base_url, place / f"machine-{number}", clock))
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            _await_end(process)


def _start(url: str, base_url: str, home: Path, clock: float) -> subprocess.Popen[bytes]:
    (home / "tmp").mkdir(parents=True)
    facts = {"url": url, "base_url": base_url, "key": _KEY, "slots": _SLOTS, "clock": clock}
    own = {"HOME": str(home), "TMPDIR": str(home / "tmp")}
    command = [sys.executable, "-m", "load.limits_worker", json.dumps(facts)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **own})


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def measured(rate: float, burst: float, count: int, seconds: float, warm_up: float) -> Windows:
    """Lets the workers work, and counts what arrives once they all do."""
    with ExitStack() as stack:
        place = stack.enter_context(open_place())
        url = stack.enter_context(embedded_postgres(place / "database"))
        api = stack.enter_context(SimulatedApi())
        requests = int(rate * (seconds + warm_up) / 60 * 1.5) + count * _SLOTS * _REQUESTS_PER_JOB
        asyncio.run(set_up(url, rate, burst, requests))
        stack.enter_context(workers(url, api.url, place, count))
        time.sleep(warm_up)
        begin = time.monotonic()
        time.sleep(seconds)
        return windows_in(api.moments, begin, time.monotonic())


def main() -> int:
    given = _arguments()
    found = measured(given.rate, given.burst, given.workers, given.seconds, given.warm_up)
    highest, lowest = given.rate + given.burst, given.rate * LEAST_SHARE
    sys.stdout.write(
        f"{given.workers} workers, {given.rate:g} requests per minute, burst {given.burst:g}: "
        f"{found.least} to {found.most} in any {WINDOW_SECONDS:g} s "
        f"(wanted: {lowest:g} to {highest:g})\n"
    )
    return int(not (lowest <= found.least and found.most <= highest))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m load.limits", description=__doc__)
    parser.add_argument("--rate", type=float, default=600.0, help="requests per minute")
    parser.add_argument("--burst", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=120.0, help="at least 60")
    parser.add_argument("--warm-up", type=float, default=30.0, help="seconds until all work")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
