"""Draws web-session.png: a saved session on the page of `geminorum web`, in a real browser.

    python docs/pictures/draw_web_session.py

Needs Pillow, and the browser that `make test` installs.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/web")]


async def main() -> None:
    # Here: only whoever draws needs them.
    from install_browser import FOLDER, executable_in
    from PIL import Image
    from playwright.async_api import async_playwright
    from saved_home import FIX, fill
    from served import served

    from geminorum import Options

    with tempfile.TemporaryDirectory() as place:
        work = Path(place, "queue")
        work.mkdir()
        fill(Path(place, "home"), work)
        options = Options(cwd=work, home=Path(place, "home"))
        async with (
            served(db=f"sqlite:///{place}/web.db", options=options) as visitor,
            async_playwright() as play,
        ):
            browser = await play.chromium.launch(
                executable_path=executable_in(FOLDER), args=["--no-sandbox", "--disable-gpu"]
            )
            window = await browser.new_page(viewport={"width": 1100, "height": 900})
            await window.goto(visitor.link)
            await window.goto(f"{visitor.address}/sessions/{FIX}")
            await window.locator("details.call", has_text="replace").locator("summary").click()
            await window.evaluate(
                "path => { for (const place of document.querySelectorAll('dd.mono'))"
                " place.textContent = place.textContent.replace(path, '/home/ada/queue') }",
                str(work),
            )
            await window.evaluate("scrollTo(0, 0)")
            await window.mouse.move(0, 0)
            picture = await window.screenshot(full_page=True)
            target = ROOT / "docs/pictures/web-session.png"
            # As many colours as the page has; a photograph would need more.
            Image.open(BytesIO(picture)).convert("RGB").quantize(48).save(target, optimize=True)
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
