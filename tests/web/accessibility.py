"""axe-core in a page: what would keep somebody from using it."""

from typing import Any

from install_browser import FOLDER
from playwright.async_api import Page

AXE = FOLDER / "node_modules/axe-core/axe.min.js"


async def violations(page: Page) -> list[str]:
    """Serious ones, each with the places where it was found."""
    # Through the debugger's own world, which the page's policy does not bind.
    await page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = (await page.evaluate("axe.run()"))["violations"]
    return [
        f"{one['id']}: {[node['html'][:120] for node in one['nodes']]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
