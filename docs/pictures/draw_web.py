"""Draws web-run.png: the page of `geminorum web` in a real browser, with a simulated model.

    python docs/pictures/draw_web.py

Needs Pillow, the browser that `make test` installs, and the Gemini CLI of `make demo`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/web"), str(ROOT / "docs/pictures")]
GEMINI = ROOT / ".gemini-cli/node_modules/.bin/gemini"
PROMPT = "Use the real π in circle.py, and check it."
BEFORE = "def area(r):\n    return 3.14 * r * r\n"
AFTER = "from math import pi\n\n\ndef area(r):\n    return pi * r * r\n"


async def main() -> None:
    # Here: only whoever draws needs them.
    from install_browser import FOLDER, executable_in
    from PIL import Image
    from playwright.async_api import async_playwright
    from served import served

    from geminorum import Cli, Options
    from geminorum.testing import FakeGemini

    with FakeGemini() as fake, tempfile.TemporaryDirectory() as place:
        work = Path(place, "geometry")
        work.mkdir()
        (work / "circle.py").write_text(BEFORE)
        edit = {"file_path": "circle.py", "old_string": BEFORE, "new_string": AFTER}
        call = {"functionCall": {"name": "replace", "args": {**edit, "instruction": "Use pi"}}}
        thoughts = ["**Plan**\n\nReplace the constant, then run it."]
        fake.say("I replace the rounded constant, then I check it.", call, thoughts=thoughts)
        fake.call(
            "run_shell_command", command="python3 -c 'from circle import area; print(area(1))'"
        )
        fake.say("Done.")
        options = Options(cwd=work, env=fake.env, home=fake.home, model="gemini-2.5-pro")
        via = {"cli": Cli(GEMINI, decide_timeout=None)}
        async with (
            served(db=f"sqlite:///{place}/web.db", options=options, transports=via) as visitor,
            async_playwright() as play,
        ):
            browser = await play.chromium.launch(
                executable_path=executable_in(FOLDER), args=["--no-sandbox", "--disable-gpu"]
            )
            window = await browser.new_page(viewport={"width": 1100, "height": 900})
            await window.goto(visitor.link)
            id = await visitor.start(PROMPT, "cli", approval="auto_edit", folder=str(work))
            await window.goto(f"{visitor.address}/runs/{id}")
            await window.wait_for_selector(".question")
            await window.evaluate(
                "path => { for (const place of document.querySelectorAll('.mono, .output'))"
                " place.textContent = place.textContent.replace(path, '/home/ada/geometry') }",
                str(work),
            )
            await window.evaluate("scrollTo(0, 0)")
            target = ROOT / "docs/pictures/web-run.png"
            picture = await window.screenshot(full_page=True)
            # As many colours as the page has; a photograph would need more.
            Image.open(BytesIO(picture)).convert("RGB").quantize(48).save(target, optimize=True)
            await visitor.post(f"/runs/{id}/stop")
            await visitor.until(id, "interrupted", "success", "error")
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
