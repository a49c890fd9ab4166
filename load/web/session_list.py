"""The first paint of the list of sessions, with ten thousand of them."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.figures import Figure
from benchmarks.memory_store import fill
from playwright.async_api import Page

from load.web.parts import Stage
from load.web.server import serving

_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


@dataclass(frozen=True, slots=True)
class Painted:
    sessions: int
    rows: int
    first: float
    """Milliseconds from the click on a link to the first paint, when the server knew nothing."""
    again: float
    """The same once it has read all sessions."""

    def figures(self) -> list[Figure]:
        return [
            Figure(f"first paint of {self.sessions:,} sessions", self.first, "ms", at_most=1000),
            Figure("… once the server knows them", self.again, "ms", at_most=1000),
            Figure("… sessions on it", self.rows, at_least=min(self.sessions, 20)),
        ]


async def paint_sessions(stage: Stage, sessions: int) -> Painted:
    home = stage.place / "sessions"
    fill(home, sessions, turns=1)
    with serving(home, stage.stand_in) as server:
        async with stage.browser.window(server.link) as page:
            first = await _paint(page, f"{server.address}/sessions")
            rows = await page.locator(".session").count()
            while await page.get_by_text("Read on").count():
                await page.goto(f"{server.address}/sessions")
            again = await _paint(page, f"{server.address}/sessions")
    return Painted(sessions, rows, first, again)


async def _paint(page: Page, address: str) -> float:
    await page.goto(address)
    await page.wait_for_function(_PAINTED)
    painted: float = await page.evaluate(_PAINTED)
    return painted
