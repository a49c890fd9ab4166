"""A home with sessions such as people have: what pages of sessions and usage are tested on."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from saved_sessions import Store, answer, call, prompt

FIX, TOUR, HOSTILE = (f"{letter * 8}-0000-4000-8000-000000000000" for letter in "abc")
DIFF = """Index: queue.py
===================================================================
--- queue.py\tCurrent
+++ queue.py\tProposed
@@ -10,6 +10,7 @@
     def get(self):
-        return self._items.pop()
+        with self._lock:
+            return self._items.pop(0)

     def put(self, item):
"""
EVIL = "<script>alert(1)</script>\u202e\x1b[31m"


class Clock:
    """Stamps that go on by so many seconds."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def after(self, seconds: float) -> str:
        self._now += timedelta(seconds=seconds)
        return self._now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def tokens(input: int, output: int, cached: int = 0, thoughts: int = 0) -> dict[str, int]:
    total = input + output + thoughts
    told = {"input": input, "output": output, "cached": cached}
    return {**told, "thoughts": thoughts, "tool": 0, "total": total}


def fixing(clock: Clock) -> Iterator[dict[str, Any]]:
    """A test is mended: searches, an edit with its diff, a long command, one that is denied."""
    flash = {"model": "gemini-2.5-flash"}
    yield prompt("Why does `test_queue.py` fail now and then? Please fix it.", clock.after(0), "u1")
    at = clock.after(3)
    yield answer(
        "I look at the queue and its test first.",
        at,
        "g1",
        call("grep_search", clock.after(0.4), "c1", "queue.py:12", args={"pattern": "def get"}),
        call("read_file", clock.after(0.1), "c2", "class Queue: …", args={"file_path": "queue.py"}),
        thoughts=[{"subject": "Looking around", "description": "Where is the lock?"}],
        tokens=tokens(8200, 60, 4000, 120),
        **flash,
    )
    at = clock.after(4)
    edit = {"file_path": "queue.py", "old_string": "pop()", "new_string": "pop(0)"}
    shown = {"fileDiff": DIFF, "fileName": "queue.py"}
    yield answer(
        "Two threads take the same item: `get` has **no lock**. I add one.",
        at,
        "g2",
        call("replace", clock.after(0.8), "c3", "edited", args=edit, resultDisplay=shown),
        tokens=tokens(9100, 210, 8000, 340),
        **flash,
    )
    at = clock.after(3)
    yield answer(
        "",
        at,
        "g3",
        call("run_shell_command", clock.after(14), "c4", "2 failed", args={"command": "make test"}),
        tokens=tokens(9600, 30, 9000),
        **flash,
    )
    at = clock.after(2)
    denied = [{"functionResponse": {"id": "c5", "response": {"error": "denied by policy"}}}]
    command = {"args": {"command": "rm -rf build"}, "status": "error", "result": denied}
    yield answer(
        "",
        at,
        "g4",
        call("run_shell_command", clock.after(0.2), "c5", **command),
        tokens=tokens(9700, 25, 9000),
        **flash,
    )
    text = "It passes a hundred times now.\n\n| before | after |\n|---|---|\n| 3 % | 0 % |"
    yield answer(text, clock.after(6), "g5", tokens=tokens(9900, 80, 9000), **flash)


def touring(clock: Clock) -> Iterator[dict[str, Any]]:
    """A conversation of many turns, a day apart."""
    for number in range(80):
        yield prompt(f"Question {number} about the river", clock.after(900), f"tour-u{number}")
        spent = tokens(1000 + number, 100)
        yield answer(
            f"Answer {number}",
            clock.after(5),
            f"tour-g{number}",
            model="gemini-2.5-pro",
            tokens=spent,
        )


def hostile(clock: Clock) -> Iterator[dict[str, Any]]:
    """Everything that it can say is markup, or turns a terminal red."""
    yield prompt(EVIL, clock.after(0), "evil-u1")
    evil = call(EVIL, clock.after(1), "c1", EVIL, args={EVIL: EVIL, "long": EVIL * 9})
    thoughts = [{"subject": EVIL, "description": EVIL}]
    image = f"![x](https://evil.example/x.png) [y](javascript:alert(1)) {EVIL}"
    yield answer(
        image, clock.after(1), "evil-g1", evil, thoughts=thoughts, model=EVIL, tokens=tokens(5, 5)
    )


def fill(home: Path, folder: Path, today: datetime | None = None) -> Store:
    """The three sessions, the first of today."""
    now = today or datetime.now(UTC).replace(microsecond=0)
    store = Store(home, folder)
    for days, name, lines in ((0, FIX, fixing), (4, TOUR, touring), (7, HOSTILE, hostile)):
        began = now - timedelta(days=days, hours=1)
        stamp = Clock(began).after(0)
        said = list(lines(Clock(began)))
        path = store.save(name, startTime=stamp, lastUpdated=said[-1]["timestamp"])
        named = path.with_name(f"session-{began:%Y-%m-%dT%H-%M}-{name[:8]}.jsonl")
        path.rename(named)
        store.append(named, said)
    return store
