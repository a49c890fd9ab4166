"""What the tests of the page run: programs that play a Gemini CLI."""

from pathlib import Path
from typing import Any

from geminorum import Cli, Options
from stand_in import StandIn

BEFORE, AFTER = "def area(r):\n    return 3.14 * r * r\n", "def area(r):\n    return pi * r * r\n"
ANSWER = "## Done\n\n`area` uses **pi**."


def delta(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": text, "delta": True}


INIT = {"type": "init", "session_id": "s-1", "model": "gemini-2.5-flash"}
EDIT = {"file_path": "circle.py", "old_string": BEFORE, "new_string": AFTER}
WORK = [
    INIT,
    delta("I look "),
    delta("around."),
    {"type": "tool_use", "tool_name": "replace", "tool_id": "t1", "parameters": EDIT},
    {"type": "tool_result", "tool_id": "t1", "status": "success", "output": "replaced"},
    *map(delta, ANSWER.partition("\n\n")),
]
STATS = {"total_tokens": 120, "input_tokens": 100, "output_tokens": 20}
MODELS = {"models": {"gemini-2.5-flash": {**STATS, "cached": 0, "input": 100}}}
RESULT = {"type": "result", "status": "success", "stats": {**STATS, **MODELS}}


def settings(folder: Path) -> dict[str, Any]:
    """Those of a page whose runs are played. They work beside its files, which are not theirs."""
    (folder / "work").mkdir(exist_ok=True)
    return {
        "db": f"sqlite:///{folder}/web.db",
        "transports": transports(folder),
        # They ask nobody, and a run in which a tool ran unasked is a failure otherwise.
        "options": Options(cwd=folder / "work", approval="yolo"),
    }


def transports(folder: Path) -> dict[str, Cli]:
    """`quick` succeeds, `endless` hangs after a while, `dies` is killed, `fails` cannot start."""
    stand_in = StandIn(folder)
    return {
        "quick": stand_in(*WORK, RESULT),
        "endless": stand_in(
            *WORK[:5], delta("And now"), hang=True, grandchildren=("tool", "stubborn")
        ),
        "dies": stand_in(*WORK[:3], signal=9),
        "fails": Cli(executable=folder / "nothing here"),
    }
