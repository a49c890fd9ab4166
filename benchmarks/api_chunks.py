"""CPU time per chunk of an API answer: our transport beside the bare SDK, on the same stream.

The server runs in a process of its own, so that only the client's work is counted.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.figures import Figure
from geminorum import Api, Options, TextDelta, run

CHUNKS = 3000
ROUNDS = 5
MODEL = "gemini-2.5-flash"

_SERVER = f"""
from geminorum.testing import FakeGemini
with FakeGemini() as fake:
    fake.say(*("word " for _ in range({CHUNKS}))).always()
    print(fake.url, flush=True)
    input()
"""


def measure() -> list[Figure]:
    with _server() as url:
        asyncio.run(_through_our_transport(url))  # The first run also loads what is needed.
        asyncio.run(_through_the_sdk(url))
        rounds = [
            (asyncio.run(_through_our_transport(url)), asyncio.run(_through_the_sdk(url)))
            for _ in range(ROUNDS)
        ]
    ours, bare = map(min, zip(*rounds, strict=True))
    return [
        Figure("Api transport, CPU per chunk", ours / CHUNKS * 1e6, "µs"),
        Figure("bare google-genai, CPU per chunk", bare / CHUNKS * 1e6, "µs"),
        Figure("added by us, of the bare SDK", (ours - bare) / bare, at_most=0.15),
    ]


@contextmanager
def _server() -> Iterator[str]:
    command = [sys.executable, "-c", _SERVER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.communicate("\n")


async def _through_our_transport(url: str) -> float:
    transport = Api(api_key="none", base_url=url)
    began, count = time.process_time(), 0
    async with run("Count", Options(model=MODEL), via=transport) as live:
        async for event in live:
            count += isinstance(event, TextDelta)
    return _checked(count, time.process_time() - began)


async def _through_the_sdk(url: str) -> float:
    from google import genai
    from google.genai import types

    began, count = time.process_time(), 0
    options = types.HttpOptions(base_url=url, api_version="v1beta")
    client = genai.Client(api_key="none", vertexai=False, http_options=options)
    stream = await client.aio.models.generate_content_stream(model=MODEL, contents="Count")
    async for chunk in stream:
        count += bool(chunk.text)
    await client.aio.aclose()
    return _checked(count, time.process_time() - began)


def _checked(count: int, seconds: float) -> float:
    if count != CHUNKS:
        raise RuntimeError(f"{count} chunks of {CHUNKS}")
    return seconds
