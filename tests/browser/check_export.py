"""Opens exported pages in a real Chromium: takes pictures, and fails where a page loads anything.

Needs `pip install playwright` and a Chromium: `playwright install chromium`, or CHROMIUM=path.

    python tests/browser/check_export.py [session file …]

Without files it runs the real CLI against FakeGemini and opens that session, a long one, and one
with hostile texts. The pictures' folder is printed.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from geminorum import Options, sync
from geminorum.events import Done, Error, Event, Text, Thinking, ToolResult, ToolUse, UserMessage
from geminorum.sessions.exporting import export
from geminorum.sessions.places import files_in, projects_of
from geminorum.sessions.reading import load
from geminorum.testing import FakeGemini, Tokens, prose
from geminorum.transports.cli.transport import Cli

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "def area(r):\n    return 3.14 * r * r\n\n\ndef perimeter(r):\n    return 2 * 3.14 * r\n"
ANSWER = """## What I changed

`area` and `perimeter` now use **`math.pi`**:

| function | before | after |
|---|---:|---:|
| `area(1)` | 3.14 | 3.14159 |
| `perimeter(1)` | 6.28 | 6.28319 |

1. The constant was rounded, so results were off by *0.05 %*.
2. The check printed `3.141592653589793`.

> Small numbers add up.

```python
from circle import area

print(area(2))
```

See [the docs](https://docs.python.org/3/library/math.html) for more.
"""
HOSTILE = """<script>document.title = "owned"</script>
<img src=https://evil.example/x onerror=alert(1)>
![pixel](https://evil.example/pixel.png) [click](javascript:alert(1)) [data](data:text/html,x)
</details></main></body><style>body{display:none}</style>"""

HIDDEN = """[...document.querySelectorAll('details pre, details .prose')].filter(
    box => !box.checkVisibility({contentVisibilityAuto: true})
).length"""


def worked(folder: Path, live: bool) -> str:
    """A session with tools, diffs and thoughts by the real CLI; its page as saved, or as seen."""
    workspace = folder / f"geometry-{live}"
    workspace.mkdir()
    (workspace / "circle.py").write_text(BEFORE)
    with FakeGemini() as fake:
        _script(fake)
        options = Options(
            env=fake.env, home=fake.home, cwd=workspace, model="gemini-2.5-pro", approval="yolo"
        )
        transport = Cli(executable=ROOT / ".gemini-cli/node_modules/.bin/gemini")
        with sync.run("Use the real π in circle.py, and check it.", options, via=transport) as run:
            events = list(run)
        [project] = projects_of(Path(fake.home), workspace)
        return export(events if live else load(files_in(project)[0], workspace), "html")


def _script(fake: FakeGemini) -> None:
    spent = Tokens(prompt=8214, cached=6100, output=164, thoughts=312)
    thought = "**Reading first**\n\nBefore I change the constant I should see who else uses it."
    call = {"functionCall": {"name": "read_file", "args": {"file_path": "circle.py"}}}
    fake.say(call, thoughts=[thought, "**Plan**\n\nEdit, then run it."], tokens=spent)
    new = BEFORE.replace("3.14", "pi")
    edit = {
        "file_path": "circle.py",
        "old_string": BEFORE,
        "new_string": f"from math import pi\n\n\n{new}",
    }
    edit["instruction"] = "Use math.pi"
    check = (
        "from circle import area\n\nfor radius in range(1, 4):\n    print(radius, area(radius))\n"
    )
    fake.calls(
        ("replace", edit), ("write_file", {"file_path": "check.py", "content": check}), tokens=spent
    )
    fake.calls(
        ("run_shell_command", {"command": "python3 check.py", "description": "Check the result"}),
        ("read_file", {"file_path": "missing.py"}),
        tokens=spent,
    )
    fake.say(ANSWER, tokens=Tokens(prompt=9512, cached=8000, output=410, thoughts=96))


def long_session() -> Iterator[Event]:
    for turn in range(24):
        yield UserMessage(
            f"Question {turn + 1}: {prose(60, seed=turn)}", timestamp=1_794_770_000_000
        )
        yield Thinking(prose(200, seed=turn + 50))
        yield ToolUse("run_shell_command", f"t{turn}", {"command": f"seq 1 {turn * 40}"})
        yield ToolResult(f"t{turn}", output="\n".join(map(str, range(turn * 40))))
        yield Text(f"### Answer {turn + 1}\n\n{prose(700, seed=turn + 100)}")
    yield Error("the model is overloaded", recoverable=True, hint="try again in a minute")
    yield Done("interrupted")


def hostile() -> Iterator[Event]:
    yield UserMessage(HOSTILE)
    yield Thinking(HOSTILE)
    yield ToolUse(HOSTILE, "1", {HOSTILE: HOSTILE})
    yield ToolResult("1", output=HOSTILE, content="told: " + HOSTILE)
    yield Text(HOSTILE)
    yield Error(HOSTILE)
    yield Done("error")


def check(browser: Browser, name: str, page_text: str, pictures: Path) -> list[str]:
    """What is wrong with a page."""
    file = pictures / f"{name}.html"
    file.write_text(page_text, encoding="utf-8")
    problems: list[str] = []
    for scheme, width in (("light", 1440), ("dark", 1440), ("light", 420)):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        asked: list[str] = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.on("console", lambda message, asked=asked: asked.append(message.text))
        page.goto(file.as_uri(), wait_until="networkidle")
        page.screenshot(path=pictures / f"{name}-{scheme}-{width}.png", full_page=name != "long")
        problems += [
            f"{name} asks for {url}" for url in asked if url != file.as_uri() and url != "data:,"
        ]
        wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
        problems += [f"{name} scrolls sideways at {width}"] if wide else []
        if scheme == "light" and width == 1440:
            problems += _printed(page, name, pictures)
        page.close()
    return problems


def _printed(page, name: str, pictures: Path) -> list[str]:
    page.pdf(path=pictures / f"{name}.pdf", prefer_css_page_size=True)
    page.emulate_media(media="print")
    page.screenshot(path=pictures / f"{name}-print.png", full_page=name != "long")
    hidden = page.evaluate(HIDDEN)
    page.emulate_media(media="screen")
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    page.screenshot(path=pictures / f"{name}-open.png", full_page=name != "long")
    return [f"{name}: {hidden} folded boxes are not printed"] if hidden else []


def main() -> int:
    pictures = Path(tempfile.mkdtemp(prefix="geminorum-export-"))
    pages = {Path(path).stem: export(load(path), "html") for path in sys.argv[1:]} or {
        "saved": worked(pictures, live=False),
        "live": worked(pictures, live=True),
        "long": export(long_session(), "html"),
        "hostile": export(hostile(), "html"),
    }
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=os.environ.get("CHROMIUM"), args=["--no-sandbox"]
        )
        problems = [
            one for name, text in pages.items() for one in check(browser, name, text, pictures)
        ]
        browser.close()
    sys.stdout.write(
        "\n".join([f"pictures in {pictures}", *problems, f"{len(problems)} problems\n"])
    )
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
