"""One Chromium for all tests of the page: a start takes a second of CPU, a tab next to nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from install_browser import executable_in
from playwright.async_api import Browser, async_playwright

from left_processes import SHARED

FOLDER = Path(__file__).resolve().parents[2] / ".browser"
# As root, Chromium starts only without its own sandbox; it loads nothing but our own pages.
ARGUMENTS = ["--no-sandbox", "--disable-gpu"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The browser that all tests share; each has a window of its own."""
    executable = executable_in(FOLDER)
    if executable is None:
        pytest.fail(f"no browser in {FOLDER}: run `make test`, which installs it")
    before = _descendants()
    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=executable, args=ARGUMENTS)
        SHARED.update(_descendants() - before)
        yield browser
        await browser.close()


def _descendants() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}
