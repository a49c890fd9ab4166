"""One Chromium for all tests of the page: a start takes a second of CPU, a window little."""

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import psutil
import pytest
import pytest_asyncio
from install_browser import FOLDER, executable_in
from playwright.async_api import Browser, Page, async_playwright, expect

from left_processes import SHARED

# As root, Chromium starts only without its own sandbox; it loads nothing but our own pages.
ARGUMENTS = ["--no-sandbox", "--disable-gpu"]
WAIT_MS = 30_000
expect.set_options(timeout=WAIT_MS)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The browser that all tests share; `window` is what a test uses of it."""
    executable = executable_in(FOLDER)
    if executable is None:
        pytest.fail(f"no browser in {FOLDER}: run `make test`, which installs it")
    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=executable, args=ARGUMENTS)
        _share_browser()
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def window(browser: Browser) -> AsyncIterator[Page]:
    """A window with cookies of its own.

    Fails the test if a page asks another host for anything, breaks its own content policy, or has a
    script that fails.
    """
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(WAIT_MS)
    page = await context.new_page()
    wrong: list[str] = []
    page.on("request", lambda request: wrong.extend(_elsewhere(request.url)))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.extend([said.text] if _is_bad(said) else []))
    yield page
    await context.close()
    _share_browser()
    assert wrong == []


def _share_browser() -> None:
    """The processes of the browser are shared, whichever test made it start them."""
    SHARED.update(process.pid for process in psutil.Process().children(recursive=True))


def _elsewhere(url: str) -> list[str]:
    host = urlsplit(url).hostname
    return [] if host in ("127.0.0.1", "localhost", None) else [f"asks for {url}"]


def _is_bad(said) -> bool:
    # Answers that say what is wrong have a status that says so, too.
    return said.type in ("error", "warning") and "Failed to load resource" not in said.text
