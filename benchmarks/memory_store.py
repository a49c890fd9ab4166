"""Saved sessions: listed, billed, loaded and followed, beside reading the same bytes with json."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks.figures import Figure
from benchmarks.memory import _peak as peak
from geminorum import Text, sessions, usage
from geminorum.cost import Price, PriceBook
from geminorum.sessions import tail

LISTED, BILLED, LOADED_MB = 10_000, 1_000, 100
RECORDS, PAUSE = 200, 0.01
FLASH = PriceBook({"gemini-2.5-flash": Price(Decimal("0.3"), Decimal("2.5"), Decimal("0.03"))})
_TOKENS = {"input": 1000, "output": 10, "cached": 400, "thoughts": 100, "tool": 0, "total": 1110}


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        return [*_listing(home / "many"), *_billing(home / "few"), *_loading(home), *_tailing(home)]


def _listing(home: Path) -> list[Figure]:
    fill(home, LISTED, turns=1)
    ours, found = _timed(lambda: sessions.list(home=home))
    theirs, _ = _timed(lambda: [_records(path) for path in _files(home)])
    _expect(LISTED, len(found))
    return [
        Figure(f"listing {LISTED:,} sessions", ours, "s"),
        Figure("… times reading the same files with json", ours / theirs, at_most=3),
    ]


def _billing(home: Path) -> list[Figure]:
    fill(home, BILLED, turns=4)
    theirs, counted = _timed(lambda: sum(map(_counted, _files(home))))
    # Ours first loads the list of prices, which a long-lived program does once.
    usage.report(home=home / "nobody")
    ours, report = _timed(lambda: usage.report(home=home, prices=FLASH))
    listed, _ = _timed(lambda: usage.report(home=home))
    _expect(counted, report.total.tokens.total)
    return [
        Figure(f"usage over {BILLED:,} sessions, a price book", ours, "s"),
        Figure("… times summing the same files with json", ours / theirs, at_most=2),
        Figure(f"usage over {BILLED:,} sessions, list prices", listed, "s"),
    ]


def _loading(folder: Path) -> list[Figure]:
    path = folder / "session-2026-11-15T12-00-aaaaaaaa.jsonl"
    write_long_log(path)
    # A process each, because a peak never comes down again.
    ours, theirs = _in_process("ours", path), _in_process("json", path)
    _expect(theirs["messages"], ours["messages"])
    return [
        Figure(f"loading {LOADED_MB} MB and reading every message", ours["seconds"], "s"),
        Figure("… times json, line by line", ours["seconds"] / theirs["seconds"], at_most=2),
        Figure("… peak memory", ours["peak"], "MB"),
        Figure("… peak memory, of json's", ours["peak"] / theirs["peak"], at_most=0.5),
    ]


def _tailing(folder: Path) -> list[Figure]:
    path = folder / "session-live.jsonl"
    path.write_bytes(_line(_top("live")))
    with subprocess.Popen([sys.executable, "-m", __name__, "drip", str(path)]):
        percentiles = quantiles(asyncio.run(_delays(path)), n=100)
    return [
        Figure("tail, from write to consumer, median", percentiles[49], "ms", at_most=20),
        Figure("tail, from write to consumer, 99 of 100", percentiles[98], "ms"),
    ]


async def _delays(path: Path) -> list[float]:
    delays: list[float] = []
    async with asyncio.timeout(60):
        async for event in tail(path):
            if isinstance(event, Text):
                delays.append((time.monotonic_ns() - int(event.text)) / 1_000_000)
            if len(delays) == RECORDS:
                break
    return delays


def _drip(path: Path) -> None:
    """The CLI's part. Each record carries the time of its writing."""
    with path.open("ab", buffering=0) as file:
        for number in range(RECORDS):
            time.sleep(PAUSE)
            file.write(_line(_answer(f"d{number}", str(time.monotonic_ns()))))


def _in_process(mode: str, path: Path) -> dict[str, float]:
    command = [sys.executable, "-m", __name__, mode, str(path)]
    output = subprocess.run(command, check=True, capture_output=True).stdout
    told: dict[str, float] = json.loads(output)
    return told


def _tell(read: Callable[[], int]) -> None:
    seconds, messages = _timed(read)
    print(json.dumps({"seconds": seconds, "messages": messages, "peak": peak()}))


def _read_ours(path: Path) -> int:
    return sum(message.type == "gemini" for message in sessions.load(path).messages)


def _read_json(path: Path) -> int:
    records = _records(path)
    return len({one["id"] for one in records if one.get("type") == "gemini"})


def _records(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        return [json.loads(line) for line in file]


def _counted(path: Path) -> int:
    answers = {one["id"]: one for one in _records(path) if one.get("tokens")}
    return sum(one["tokens"]["total"] for one in answers.values())


def _files(home: Path) -> Iterator[Path]:
    return (home / ".gemini" / "tmp").glob("*/chats/session-*.jsonl")


def fill(home: Path, count: int, turns: int) -> None:
    """Sessions of ten projects; each answer is written twice, as the CLI does it."""
    for number in range(count):
        chats = home / ".gemini" / "tmp" / f"project-{number % 10}" / "chats"
        chats.mkdir(parents=True, exist_ok=True)
        name = f"{number:08}-0000-4000-8000-000000000000"
        lines = [_line(_top(name)), _line(_user(f"{name}-c", "<session_context>\n" + "x" * 1000))]
        for turn in range(turns):
            spoken = _answer(f"{name}-{turn}", "Yes.", minutes=number)
            lines += [_line(_user(f"{name}-u{turn}", "Is it?")), _line(spoken)]
            lines.append(_line({**spoken, "toolCalls": [_call(turn, 2000)]}))
        (chats / f"session-2026-11-15T12-00-{name[:8]}.jsonl").write_bytes(b"".join(lines))


def write_long_log(path: Path, session_id: str = "long") -> None:
    """Tool outputs of 5 to 50 KB; every tenth answer is written again, and one checkpoint."""
    with path.open("wb") as file:
        file.write(_line(_top(session_id)))
        number = 0
        while file.tell() < LOADED_MB * 2**20:
            spoken = _answer(f"a{number}", "Let me see.", minutes=number)
            called = {**spoken, "toolCalls": [_call(number, 5000 + number * 7919 % 45_000)]}
            if number % 10 == 0:
                file.write(_line(spoken))
            file.write(_line(called))
            if number == 100:
                kept = [_answer(f"a{one}", "Let me see.") for one in range(101)]
                file.write(_line({"$set": {"messages": kept}}))
            number += 1


def _top(session_id: str) -> dict[str, Any]:
    when = "2026-11-15T12:00:00.000Z"
    times = {"startTime": when, "lastUpdated": when}
    return {"sessionId": session_id, "projectHash": "0" * 64, **times, "kind": "main"}


def _user(name: str, text: str) -> dict[str, Any]:
    told = {"id": name, "timestamp": "2026-11-15T12:00:00.000Z", "type": "user"}
    return {**told, "content": [{"text": text}]}


def _answer(name: str, text: str, minutes: int = 0) -> dict[str, Any]:
    when = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    stamp = when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    told = {"id": name, "timestamp": stamp, "type": "gemini", "content": text}
    return {**told, "thoughts": [], "tokens": _TOKENS, "model": "gemini-2.5-flash"}


def _call(number: int, size: int) -> dict[str, Any]:
    name, text = f"read_file__{number}", 'A line, "quoted", and its end.\n' * (size // 31)
    response = {"id": name, "name": "read_file", "response": {"output": text}}
    told = {"id": name, "name": "read_file", "args": {"file_path": "a.txt"}, "status": "success"}
    return {**told, "result": [{"functionResponse": response}]}


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def _expect(wanted: float, found: float) -> None:
    if wanted != found:
        raise RuntimeError(f"{found} instead of {wanted}")


if __name__ == "__main__":
    what, place = sys.argv[1], Path(sys.argv[2])
    match what:
        case "drip":
            _drip(place)
        case "ours":
            _tell(lambda: _read_ours(place))
        case _:
            _tell(lambda: _read_json(place))
