"""Tells people about a question: by a command of theirs, or by a request to a web address."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from geminorum.errors import InvalidOptions
from geminorum.hints import advice
from geminorum.inbox.question import Question

log = logging.getLogger("geminorum.inbox")

_SECONDS = 30.0
"""For one reminder; what takes longer is ended."""
_HINT = advice('{remind="https://…"}, or {remind=["./notify", "--now"]} for a program')


class _Way(Protocol):
    async def send(self, body: bytes) -> None: ...


class Reminders:
    """Sends a reminder when a question is asked, and again every so many seconds."""

    def __init__(self, remind: str | Sequence[str] | None, every: float | None) -> None:
        self._way = None if remind is None else _way_of(remind)
        self._every = every

    @asynccontextmanager
    async def about(self, question: Question) -> AsyncIterator[None]:
        """Reminds while the block lasts."""
        if self._way is None:
            yield
            return
        task = asyncio.create_task(self._remind(self._way, question))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _remind(self, way: _Way, question: Question) -> None:
        body = msgspec.json.encode(question)
        while True:
            try:
                async with asyncio.timeout(_SECONDS):
                    await way.send(body)
            except Exception as error:
                # Never fatal, and without the address, which may be a secret.
                reason = "it took too long" if isinstance(error, TimeoutError) else error
                log.warning("no reminder of question %s: %s", question.short_id, reason)
            if self._every is None:
                return
            await asyncio.sleep(self._every)


def _way_of(remind: str | Sequence[str]) -> _Way:
    if not isinstance(remind, str):
        given: list[object] = list(remind)
        words = [word for word in given if isinstance(word, str) and "\0" not in word]
        if not words or len(words) < len(given):
            raise InvalidOptions("remind takes a program and its arguments", hint=_HINT)
        return _Program(words)
    return _Webhook(remind)


class _Program:
    """A program that gets the question as JSON on its standard input. No shell reads the words."""

    def __init__(self, words: list[str]) -> None:
        self._words = words

    async def send(self, body: bytes) -> None:
        # In a task: a cancellation while it starts would leave behind what it starts itself.
        starting = asyncio.ensure_future(self._start())
        try:
            process = await asyncio.shield(starting)
            await process.communicate(body)
        finally:
            await asyncio.wait([starting])
            if starting.exception() is None:
                _kill(starting.result())
                await starting.result().wait()
        if process.returncode != 0:
            raise OSError(f"the program ended with {process.returncode}")

    def _start(self) -> Coroutine[Any, Any, asyncio.subprocess.Process]:
        return asyncio.create_subprocess_exec(
            *self._words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )


def _kill(process: asyncio.subprocess.Process) -> None:
    """Also what it has started and left behind."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


class _Webhook:
    """A POST of the question as JSON. Only the status of the answer is read, and never followed."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            self._port = parts.port
        except ValueError as error:
            raise InvalidOptions("remind is not an address", hint=_HINT) from error
        is_plain = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
            raise InvalidOptions("remind takes an http or https address, or a list", hint=_HINT)
        if parts.username is not None or parts.password is not None:
            hint = "put a token into its path or query, as most services do"
            raise InvalidOptions("remind takes an address without user and password", hint=hint)
        self._host, self._is_secure = parts.hostname, parts.scheme == "https"
        self._target = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        self._authority = parts.netloc

    async def send(self, body: bytes) -> None:
        context = ssl.create_default_context() if self._is_secure else None
        port = self._port or (443 if self._is_secure else 80)
        reader, writer = await asyncio.open_connection(self._host, port, ssl=context)
        try:
            writer.write(self._head(len(body)) + body)
            await writer.drain()
            status = (await reader.readline()).split()[1:2]
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        if not status or not status[0].startswith(b"2"):
            said = status[0].decode("ascii", "replace") if status else "nothing"
            raise OSError(f"the address answered {said}, not 200")

    def _head(self, length: int) -> bytes:
        return (
            f"POST {self._target} HTTP/1.1\r\n"
            f"Host: {self._authority}\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {length}\r\n"
            "Connection: close\r\n\r\n"
        ).encode("ascii")
