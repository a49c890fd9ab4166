"""What a terminal is given to draw: whole words, no holes in a light background, no rubbish."""

import asyncio
import os
import re
import signal
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console, RenderableType
from rich.theme import Theme

from geminorum import Error, Options, PermissionRequest, Result, ToolResult, ToolUse
from geminorum.apps.command.chat.questions import question
from geminorum.apps.command.failures import command_words, forgive_narrow_encodings
from geminorum.apps.command.render import events as shown
from geminorum.apps.command.render.live import JsonView
from geminorum.apps.command.render.style import STYLES
from geminorum.apps.command.run.turn import watch_turn
from geminorum.apps.command.sessions.cost import narrowed

PAGE = """# Findings

Some `code`, a [link](https://example.com/there) and **words** that go on beyond the edge.

| file | note |
|---|---|
| `src/a/path/that/is/long/and/has/no/space.py` | two words |

```python
print("a line of code that is much longer than forty columns", 1, None)  # to the end
```
"""
COMMAND = "git status && rm -rf build/some/very/long/path && echo to the end"


def drawn(what: RenderableType, width: int = 40) -> str:
    """With the escapes, as a terminal of that width gets it."""
    screen = Console(
        file=StringIO(), width=width, force_terminal=True, theme=Theme(STYLES), highlight=False
    )
    screen.print(what)
    return screen.file.getvalue()


def words(text: str) -> str:
    """Without them."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def letters(text: str) -> Counter[str]:
    return Counter(text) - Counter({" ": 10**6, "\n": 10**6, "─": 10**6})


@pytest.mark.parametrize(
    "what",
    [
        shown.said(PAGE),
        shown.diff("", "a line that is a good deal longer than forty columns\n"),
        shown.output_of(ToolResult("1", "x", status="error", output="went wrong " * 9)),
        shown.summary(Result(status="success", session_id="s" * 36, model="gemini-2.5-flash")),
        question(PermissionRequest("run_shell_command", id="1", input={"command": COMMAND}), "."),
    ],
    ids=["markdown", "diff", "error", "summary", "question"],
)
def test_forty_columns_hold_every_word_and_no_black_boxes(what):
    raw = drawn(what)
    lines = words(raw).split("\n")
    assert max(map(len, lines)) <= 40
    assert not [line for line in lines if line != line.rstrip()]
    assert letters(words(raw)) == letters(words(drawn(what, 400)))
    assert not re.search(r"\x1b\[[0-9;]*(?<![0-9])4[0-8][;m]", raw)


def test_what_wraps_keeps_its_margin():
    wrapped = words(drawn(shown.diff("", "a line that is a good deal longer than forty columns\n")))
    assert wrapped.split("\n")[1:3] == [
        "  +a line that is a good deal longer",
        "    than forty columns",
    ]


def test_a_refusal_says_which_option_would_allow_it():
    hint = "allow it beforehand: Options(policy=Policy(…)), allowed_tools or approval"
    told = words(drawn(shown.warning(Error("no", hint=hint, recoverable=True)), 80))
    assert told == "! no\n  → allow it beforehand: --policy, --allow-tool or --approval\n"
    use = ToolUse("write_file", "1", {"file_path": "x" * 60})
    refused = shown.call_ended(use, ToolResult("1", "write_file", status="denied"))
    assert words(drawn(refused)).startswith("⊘ write_file refused xxx")


def test_arithmetic_breaks_before_the_product():
    lines = [
        "gemini",
        "  55,496 input    * $0.75/M = $0.041622",
        "59,907 tokens, $1 at list prices",
    ]
    assert narrowed(lines, None) == narrowed(lines, 80) == lines
    assert narrowed(lines, 35)[1:3] == ["  55,496 input    * $0.75/M", "    = $0.041622"]


def test_an_error_in_json_is_told_as_its_sentence():
    assert command_words('{"error":{"code":400,"message":"No such thing."}}') == "No such thing."
    assert command_words('{"error"') == '{"error"'


def test_ctrl_c_while_a_transport_is_opened_ends_it(own_handlers):
    """There is no agent yet that could be asked to end. What is pressed after that is ignored."""

    class Slow:
        @asynccontextmanager
        async def open(self, options):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(30)
            yield None

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(watch_turn("Hi", Options(), Slow(), JsonView))


class Noting(JsonView):
    """A view that writes down when it is made and when it goes."""

    def __init__(self, notes):
        self._notes = notes
        notes.append("screen made")

    def __exit__(self, *_):
        self._notes.append("screen gone")


@pytest.mark.parametrize(
    ("at_once", "order"),
    [
        (True, ["agent started", "screen made", "agent ended", "screen gone"]),
        (False, ["screen made", "agent started", "agent ended", "screen gone"]),
    ],
)
def test_the_screen_does_not_keep_an_agent_waiting(at_once, order):
    """It is loaded while the agent starts, and stays until the agent has ended."""
    notes = []

    class Turn:
        stderr = ""

        async def __aenter__(self):
            notes.append("agent started")
            return self

        async def __aexit__(self, *_):
            notes.append("agent ended")

        async def read(self):
            return []

        async def stop(self, reason, limit=None):
            pass

        def hurry(self):
            pass

    class Transport:
        @asynccontextmanager
        async def open(self, options):
            yield SimpleNamespace(turn=lambda prompt: Turn())

    view = partial(Noting, notes)
    asyncio.run(watch_turn("Hi", Options(), Transport(), view, opens_at_once=at_once))
    assert notes == order


def test_a_narrow_code_page_has_plain_marks():
    forgive_narrow_encodings()
    assert "✓ done · ✗ ü ⠋".encode("ascii", "geminorum") == b"+ done - x ? *"
    assert "✓ a · ü".encode("cp1252", "geminorum") == "+ a · ü".encode("cp1252")
