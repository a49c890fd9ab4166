"""What a CLI would have written: recordings of any length, the same bytes every time."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

Frame: TypeAlias = tuple[str, dict[str, Any]]

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_STEP = timedelta(microseconds=500)  # What the CLI itself needs for a line, at its fastest.
_MODEL = "gemini-2.5-flash"
_PROSE = ["the", "agent", "reads", "a", "file", "then", "writes", "another", "and", "says", "so"]
_MARKDOWN = [*["\n\n", "\n- ", "**bold**", '`print("hello")`', "\n    return 42\n"] * 4, "—"]


def answers(events: int) -> Iterator[bytes]:
    """An agent that mostly talks: a tool call and its result in every fifty lines.

    One delta is one chunk of the API, and Gemini's chunks are long: a sentence or three, with the
    line ends, quotes and code of an answer in Markdown.
    """
    return _lines(events, deltas=48, words=(5, 90))


def tool_work(events: int) -> Iterator[bytes]:
    """An agent that mostly works: one word between two tools, so all its text is short."""
    return _lines(events, deltas=1, words=(1, 1))


def _lines(events: int, *, deltas: int, words: tuple[int, int]) -> Iterator[bytes]:
    for number, (kind, fields) in enumerate(_frames(events, deltas, words)):
        moment = _BEGIN + _STEP * number
        stamp = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        frame = {"type": kind, "timestamp": stamp, **fields}
        yield json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _frames(events: int, deltas: int, words: tuple[int, int]) -> Iterator[Frame]:
    chance = random.Random(61)
    yield "init", {"session_id": "98735e4c-114a-4a11-b1c5-a0c13abe31ef", "model": _MODEL}
    yield "message", {"role": "user", "content": "Tidy up, please."}
    rounds, rest = divmod(events - 3, deltas + 2)
    for _ in range(rounds):
        yield from _said(deltas, words, chance)
        yield from _tool(chance)
    yield from _said(rest, words, chance)
    share = {"total_tokens": 260, "input_tokens": 200, "output_tokens": 20, "cached": 40}
    stats = {**share, "duration_ms": 187, "tool_calls": rounds, "models": {_MODEL: share}}
    yield "result", {"status": "success", "stats": stats}


def _said(deltas: int, words: tuple[int, int], chance: random.Random) -> Iterator[Frame]:
    for _ in range(deltas):
        text = chance.choices(_PROSE, k=chance.randint(*words))
        if len(text) > 1:
            text[-1] = chance.choice(_MARKDOWN)
        yield "message", {"role": "assistant", "content": " ".join(text), "delta": True}


def _tool(chance: random.Random) -> Iterator[Frame]:
    call = f"run_shell_command__run_shell_command_{chance.getrandbits(40)}_0"
    command = {"command": f"wc -l src/part_{chance.randint(1, 99)}.py", "description": "Count"}
    yield "tool_use", {"tool_name": "run_shell_command", "tool_id": call, "parameters": command}
    output = "\n".join(f"{chance.randint(1, 999)} lines" for _ in range(chance.randint(1, 20)))
    yield "tool_result", {"tool_id": call, "status": "success", "output": output}
