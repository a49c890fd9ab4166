"""Pages of `geminorum web` over ten thousand sessions, and over one of a hundred megabytes."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

import httpx

from benchmarks.figures import Figure
from benchmarks.memory_store import LISTED, fill, write_long_log
from geminorum import Options, web

TOKEN = "a token of the benchmark's own"


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measured(Path(folder)))


async def _measured(folder: Path) -> list[Figure]:
    home = folder / "home"
    fill(home, LISTED, turns=1)
    long = next((home / ".gemini/tmp").glob("*/chats")) / "session-2026-11-15T12-00-aaaaaaaa.jsonl"
    write_long_log(long, "aaaaaaaa-0000")
    os.utime(long, (0, 0))  # It is not among the newest, which the list shows first.
    options = Options(cwd=folder, home=home)
    page = web.app(token=TOKEN, db=f"sqlite:///{folder}/web.db", options=options)
    transport = httpx.ASGITransport(app=page)
    client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000")
    async with page.running(), client:
        client.follow_redirects = True
        await client.get(f"/runs?token={TOKEN}")
        first, _ = await _timed(client, "/sessions")
        while "Read on" in (await _timed(client, "/sessions"))[1]:
            pass
        again, _ = await _timed(client, "/sessions")
        one, text = await _timed(client, "/sessions/aaaaaaaa-0000")
    return [
        Figure(f"the first page of {LISTED:,} sessions, nothing known", first, "s", at_most=1),
        Figure("… once all of them are known", again, "s", at_most=0.5),
        Figure("a part of a session of 100 MB", one, "s", at_most=3),
        Figure("… its page", len(text) / 1e6, "MB", at_most=2),
    ]


async def _timed(client: httpx.AsyncClient, path: str) -> tuple[float, str]:
    start = time.perf_counter()
    answer = await client.get(path)
    answer.raise_for_status()
    return time.perf_counter() - start, answer.text
