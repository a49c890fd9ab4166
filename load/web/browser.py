"""A real Chromium whose pages note what happens on them (watch.js)."""

from __future__ import annotations

import runpy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import psutil
from playwright.async_api import Browser, Page, async_playwright

from load.fleet.machines import tree_seconds
from load.page import ROOT

# As root, Chromium starts only without its own sandbox; it loads nothing but our own pages.
_ARGUMENTS = ["--no-sandbox", "--disable-gpu"]
_PATIENCE_MS = 60_000
_WATCH = Path(__file__).with_name("watch.js").read_text(encoding="utf-8")
Noted: TypeAlias = dict[str, Any]


class MeasuredBrowser:
    """The browser, its windows, and what it uses."""

    def __init__(self, browser: Browser, pid: int) -> None:
        self._browser, self._pid = browser, pid

    @asynccontextmanager
    async def window(self, link: str) -> AsyncIterator[Page]:
        """A window of somebody who has opened the link."""
        context = await self._browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(_PATIENCE_MS)
        await context.add_init_script(_WATCH)
        page = await context.new_page()
        try:
            await page.goto(link)
            yield page
        finally:
            await context.close()

    def cpu_seconds(self) -> float:
        """Of all its processes."""
        return tree_seconds(self._pid)


async def noted_by(page: Page) -> Noted:
    noted: Noted = await page.evaluate("noted")
    return noted


@asynccontextmanager
async def open_browser() -> AsyncIterator[MeasuredBrowser]:
    # The installer knows where the browser is; it belongs to the tests.
    installer = runpy.run_path(str(ROOT / "tests/web/install_browser.py"))
    executable = installer["executable_in"](installer["FOLDER"])
    if executable is None:
        raise SystemExit("no browser: `make .browser/.installed` installs one")
    others = set(psutil.Process().children(recursive=True))
    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=executable, args=_ARGUMENTS)
        yield MeasuredBrowser(browser, _found(executable, others))
        await browser.close()


def _found(executable: str, others: set[psutil.Process]) -> int:
    """The first process of the browser, below the program that drives it."""
    new = [one for one in psutil.Process().children(recursive=True) if one not in others]
    name = Path(executable).name
    return next(one.pid for one in new if name in Path(one.cmdline()[0]).name)
