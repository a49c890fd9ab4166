"""Draws the pictures of the README from a recorded run.

    python docs/pictures/draw.py run       run.jsonl → run.svg
    python docs/pictures/draw.py export    run.jsonl → export.png, in a real browser
    python docs/pictures/draw.py record    a new run.jsonl: the real CLI and a simulated model

`export` needs playwright, Pillow, and a Chromium: `playwright install chromium`, or CHROMIUM=path.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text as Line
from rich.theme import Theme

from geminorum.apps.command.render.live_terminal import TerminalView
from geminorum.apps.command.render.style import STYLES
from geminorum.events import Event, decode
from geminorum.sessions.exporting import export
from geminorum.testing import FakeGemini, Tokens
from geminorum.views.result import result

HERE = Path(__file__).resolve().parent
RECORDING = HERE / "run.jsonl"
FOLDER = "/home/ada/geometry"
"""Replaces the folder of the recorded run."""
PROMPT = "Use math.pi in circle.py, then push it"
POLICY = "file_write=allow"
COLUMNS = 88

# Rich's own template without its web font: a picture in a README cannot load anything.
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px Menlo, Consolas, \
"DejaVu Sans Mono", monospace; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def recorded(folder: str = FOLDER) -> list[Event]:
    """The events of the recorded run, as if it had worked in that folder."""
    lines = RECORDING.read_text(encoding="utf-8").replace(FOLDER, folder).splitlines()
    return [decode(line.encode()) for line in lines]


def run_picture() -> str:
    """The terminal after the recorded `geminorum run`, as SVG."""
    screen = Console(
        record=True,
        file=io.StringIO(),
        width=COLUMNS,
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
        theme=Theme(STYLES),
    )
    command = f'geminorum run "{PROMPT}" --policy {POLICY}'
    screen.print(Line.assemble(("$ ", "dim"), command))
    # The command shows paths relative to the current folder, so the run moves into this one.
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        events = recorded(str(Path.cwd()))
        view = TerminalView("cli")
        view._console = screen
        for event in events:
            view.show(event)
        view.finish(result(events))
    text = screen.export_svg(
        title="geminorum run", theme=SVG_EXPORT_THEME, code_format=SVG, unique_id="run"
    )
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines() if line.strip())


def export_page() -> str:
    """The recorded run as the HTML page of `geminorum sessions export`."""
    return export(recorded(), "html")


def export_picture() -> bytes:
    """The top of that page in a browser, as a PNG of 64 colours."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        file = Path(folder, "run.html")
        file.write_text(export_page(), encoding="utf-8")
        browser = play.chromium.launch(
            executable_path=os.environ.get("CHROMIUM"),
            args=["--no-sandbox", "--disable-gpu", "--single-process", "--no-zygote"],
        )
        page = browser.new_page(viewport={"width": 1080, "height": 900})
        page.goto(file.as_uri(), wait_until="networkidle")
        page.get_by_text("replace", exact=True).click()  # unfolds the diff
        page.mouse.move(0, 0)
        shot = page.screenshot()
        browser.close()
    small = io.BytesIO()
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(64).save(small, "PNG", optimize=True)
    return small.getvalue()


BEFORE = "def area(r):\n    return 3.14 * r * r\n"
AFTER = "from math import pi\n\n\ndef area(r):\n    return pi * r * r\n"
ANSWER = (
    "`circle.py` now uses `math.pi`, so `area(1)` is **3.14159** instead of 3.14.\n\n"
    "I may not run commands here. To push it yourself: `git push`."
)


def record() -> str:
    """The events of a new run of the real command."""
    with tempfile.TemporaryDirectory() as folder, FakeGemini() as fake:
        here = Path(folder).resolve()
        (here / "circle.py").write_text(BEFORE)
        _script(fake)
        done = subprocess.run(
            [sys.executable, "-m", "geminorum", "run", PROMPT, "--policy", POLICY, "--json"],
            cwd=here,
            env={**os.environ, **fake.env, "GEMINI_MODEL": "gemini-2.5-flash"},
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stdout.replace(str(here), FOLDER)


def _script(fake: FakeGemini) -> None:
    change = {"file_path": "circle.py", "old_string": BEFORE, "new_string": AFTER}
    change["instruction"] = "Use math.pi"
    fake.calls(
        ("read_file", {"file_path": "circle.py"}),
        thoughts=["**Reading first**\n\nI look at the file before I change it."],
        tokens=Tokens(prompt=8214, output=24, thoughts=61),
    )
    fake.calls(("replace", change), tokens=Tokens(prompt=8390, cached=8000, output=92))
    fake.calls(
        ("run_shell_command", {"command": "git push"}),
        tokens=Tokens(prompt=8610, cached=8000, output=21),
    )
    fake.say(ANSWER, tokens=Tokens(prompt=8930, cached=8000, output=58, thoughts=20))


def main(arguments: list[str]) -> int:
    match arguments:
        case ["run"]:
            (HERE / "run.svg").write_text(run_picture(), encoding="utf-8")
        case ["export"]:
            (HERE / "export.png").write_bytes(export_picture())
        case ["record"]:
            RECORDING.write_text(record(), encoding="utf-8")
        case _:
            sys.stderr.write(__doc__ or "")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
