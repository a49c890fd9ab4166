"""Runs by the hundred on one page, while somebody types on it and others ask for pages."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import httpx
from benchmarks.figures import Figure
from playwright.async_api import Page

from load.fleet.parts import percentile
from load.web.browser import Noted, noted_by
from load.web.parts import Stage
from load.web.server import PageServer, serving

PAUSE_MS = 50
_WAIT_SECONDS, _LOOK_SECONDS = 300.0, 0.2
_KEY_SECONDS, _REQUEST_SECONDS = 0.25, 0.1
_WRITTEN = re.compile(r"(\d+) (\d{19}) word")

Stamps = list[int]
"""When an agent wrote each of its events, in nanoseconds."""


@dataclass(slots=True)
class Answers:
    """Seconds until others had their answers."""

    page: list[float] = field(default_factory=list)
    api: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Used:
    """Seconds of processor time since the start of a measurement."""

    server: float
    agents: float
    """Keepers and stand-ins."""
    browser: float

    @classmethod
    def so_far(cls, stage: Stage, server: PageServer) -> Used:
        return cls(server.own_seconds(), server.agents_seconds(), stage.browser.cpu_seconds())

    def since(self, before: Used) -> Used:
        return Used(*(getattr(self, name) - getattr(before, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Watched:
    runs: int
    events: int
    """Those that the agents wrote."""
    kept: int
    """Those that are in the book of the page, each behind the one before."""
    succeeded: int
    """Rows that say so in the end."""
    delays: list[float]
    """Milliseconds from an agent's write to the frame that shows it, or a later event."""
    noted: Noted
    answers: Answers
    seconds: float
    used: Used

    def figures(self) -> list[Figure]:
        page, api, share = self.answers.page, self.answers.api, 100 / self.seconds
        return [
            Figure(f"events lost, of {self.events:,}", self.events - self.kept, at_most=0),
            Figure(f"rows that end as `success`, of {self.runs}", self.succeeded,
                   at_least=self.runs),
            Figure("from an event to the screen: p50", percentile(self.delays, 50), "ms"),
            Figure("… p99", percentile(self.delays, 99), "ms", at_most=500),
            Figure("longest task of the page's thread", max(self.noted["longTasks"], default=0),
                   "ms", at_most=200),
            Figure("longest delay of a timer on the page", self.noted["longestDrift"], "ms"),
            Figure("from a key to the frame that shows it: longest",
                   max(self.noted["waits"], default=0), "ms", at_most=200),
            Figure("page of a live run: p50", percentile(page, 50) * 1000, "ms"),
            Figure("… p99", percentile(page, 99) * 1000, "ms", at_most=500),
            Figure("`GET /api/runs`: p50", percentile(api, 50) * 1000, "ms"),
            Figure("… p99", percentile(api, 99) * 1000, "ms", at_most=500),
            Figure("CPU: server", self.used.server * share, "% of a core", at_most=100),
            Figure("CPU: browser", self.used.browser * share, "% of a core"),
            Figure("CPU: keepers and stand-ins", self.used.agents * share, "% of a core"),
        ]  # fmt: skip


async def watch_runs(stage: Stage, runs: int, seconds: float) -> Watched:
    # They start one after the other, and all of them are to be there for so long.
    events = int((seconds + runs * 0.25) * 1000 / PAUSE_MS)
    with serving(stage.place / "runs", stage.stand_in) as server:
        async with (
            server.client() as client,
            stage.browser.window(server.link) as page,
            asyncio.timeout(_WAIT_SECONDS),
        ):
            ids = await _start(client, runs, events)
            await _until(client, ids, "running")
            await page.evaluate(
                "Object.assign(noted, { longTasks: [], waits: [], longestDrift: 0 })"
            )
            before, began = Used.so_far(stage, server), time.time()
            answers = await _disturb(page, client, ids, seconds)
            used, took = Used.so_far(stage, server).since(before), time.time() - began
            noted = await noted_by(page)
            await _until(client, ids, "success")
            await page.wait_for_function(_ALL_SUCCEEDED, arg=runs)
            succeeded = await page.locator(_SUCCEEDED).count()
            written = {id: await _stamps(client, id) for id in ids}
    kept = sum(map(len, written.values()))
    delays = list(_delays(noted["rows"], written, began, began + took))
    return Watched(runs, runs * events, kept, succeeded, delays, noted, answers, took, used)


_SUCCEEDED = ".run [data-status=success]"
_ALL_SUCCEEDED = f"runs => document.querySelectorAll({_SUCCEEDED!r}).length >= runs"


async def _start(client: httpx.AsyncClient, runs: int, events: int) -> list[str]:
    env = {"LOAD_EVENTS": str(events), "LOAD_PAUSE_MS": str(PAUSE_MS)}
    new = {"prompt": "Tell a story", "options": {"env": env}}
    answers = await asyncio.gather(*(client.post("/api/runs", json=new) for _ in range(runs)))
    return [answer.raise_for_status().json()["id"] for answer in answers]


async def _until(client: httpx.AsyncClient, ids: Iterable[str], status: str) -> None:
    while True:
        found = (await client.get("/api/runs?limit=500")).raise_for_status().json()["runs"]
        states = {run["id"]: run["status"] for run in found}
        if all(states.get(id) == status for id in ids):
            return
        await asyncio.sleep(_LOOK_SECONDS)


async def _disturb(
    page: Page, client: httpx.AsyncClient, ids: list[str], seconds: float
) -> Answers:
    """Somebody types on the page, and others ask for pages, for so long."""
    answers = Answers()
    await page.locator("textarea").first.focus()

    async def ask_for(path: str, took: list[float]) -> None:
        began = time.perf_counter()
        (await client.get(path)).raise_for_status()
        took.append(time.perf_counter() - began)

    await asyncio.gather(
        _repeat(lambda: page.keyboard.press("a"), _KEY_SECONDS, seconds),
        _repeat(lambda: ask_for(f"/runs/{ids[0]}", answers.page), _REQUEST_SECONDS, seconds),
        _repeat(lambda: ask_for("/api/runs", answers.api), _REQUEST_SECONDS, seconds),
    )
    return answers


async def _repeat(act: Callable[[], Awaitable[None]], every: float, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await act()
        await asyncio.sleep(every)


async def _stamps(client: httpx.AsyncClient, id: str) -> Stamps:
    """Of the events that the page has kept, up to the first that is missing."""
    answer = await client.get(f"/api/runs/{id}/events?follow=false")
    lines = answer.raise_for_status().text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line[:6] == "data: "]
    texts = [one["text"] for one in events if one["type"] in ("text", "text_delta")]
    written = _WRITTEN.findall("".join(texts))
    return [int(stamp) for place, (number, stamp) in enumerate(written) if int(number) == place]


def _delays(
    rows: Iterable[tuple[str, int, float]], written: dict[str, Stamps], since: float, until: float
) -> Iterable[float]:
    """Of all events that were written in this time."""
    shown = dict.fromkeys(written, 0)
    for id, number, at in rows:
        for stamp in written.get(id, [])[shown.get(id, 0) : number + 1]:
            if since <= stamp / 1e9 <= until:
                yield at - stamp / 1e6
        shown[id] = max(shown.get(id, 0), number + 1)
