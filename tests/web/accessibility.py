"""axe-core in a page: what would keep somebody from using it."""

from typing import Any

from install_browser import FOLDER
from playwright.async_api import Page

AXE = FOLDER / "node_modules/axe-core/axe.min.js"
LOOKS = ((1280, "light"), (390, "dark"))
"""Each width and each scheme once. What shows at one width only is judged in one scheme only."""


async def violations(page: Page) -> list[str]:
    """Serious ones of the page as it is open, in both looks, each with the places where it was
    found; and whether it is wider than its window."""
    # Through the debugger's own world, which the page's policy does not bind.
    await page.evaluate(AXE.read_text())
    return [one for look in LOOKS for one in await _in_this_look(page, *look)]


async def _in_this_look(page: Page, width: int, scheme: Any) -> list[str]:
    await page.set_viewport_size({"width": width, "height": 800})
    await page.emulate_media(color_scheme=scheme)
    axe = "axe.run({resultTypes: ['violations']})"
    found: list[dict[str, Any]] = (await page.evaluate(axe))["violations"]
    wrong = [
        f"{one['id']}: {[node['html'][:120] for node in one['nodes']]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        wrong.append("wider than the window")
    return [f"{width} {scheme}: {one}" for one in wrong]
