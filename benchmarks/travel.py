"""A turn of a long session with a store and without, and resuming a session of many turns."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cold_start import MODEL, PROMPT, found_cli
from benchmarks.figures import Figure
from benchmarks.memory_store import _answer, _call, _line, _top, _user
from geminorum import Acp, Chat, Options, connect
from geminorum.sessions.store import SessionStore, SqliteStore, open_store
from geminorum.sessions.store.log import SessionLog
from geminorum.sessions.store.session_sync import Place, SessionSync
from geminorum.testing import FakeGemini
from geminorum.wire.stored.entries import About, SavedFile

SESSION = "0f1e2d3c-4b5a-4697-8899-aabbccddeeff"
SESSION_MB, ROUNDS, TURNS = 10, 5, 1000


class Counted:
    """A store that counts the bytes of the entries that it is given."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self.sent = 0

    def append(self, session: str, number: int, data: bytes) -> None:
        self._store.append(session, number, data)
        self.sent += len(data)

    def load(self, session: str, after: int = 0) -> Iterable[bytes]:
        return self._store.load(session, after)

    def list(self) -> Iterable[tuple[str, int]]:
        return self._store.list()

    def delete(self, session: str) -> None:
        self._store.delete(session)

    def acquire(self, session: str, holder: str, seconds: float) -> str:
        return self._store.acquire(session, holder, seconds)

    def release(self, session: str, holder: str) -> None:
        self._store.release(session, holder)


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name, _bucket() as bucket:
        folder = Path(name)
        stores = {"SQLite": Counted(SqliteStore(folder / "turns.db")), "S3": Counted(bucket)}
        turns = asyncio.run(_turns(folder, stores))
        return [*turns, _resuming(folder, "SQLite", SqliteStore(folder / "many.db"))]


@contextmanager
def _bucket() -> Iterator[SessionStore]:
    """In the loopback server of the tests, which takes most of the time that this store takes."""
    tests = Path(__file__).parents[1] / "tests"
    sys.path[:0] = [str(tests / room) for room in ("stores", "fleet")]
    from servers import s3_server  # type: ignore[import-not-found]

    keys = "access_key_id=key&secret_access_key=secret"
    with s3_server() as address:
        yield open_store(f"s3://sessions/x?endpoint={address}&region=us-east-1&{keys}")


async def _turns(folder: Path, stores: dict[str, Counted]) -> list[Figure]:
    """A chat with each store and one without, side by side."""
    with FakeGemini(default="Hello") as fake:
        async with AsyncExitStack() as stack:
            options = Options(model=MODEL, env=fake.env, resume=SESSION)
            opened = [
                await stack.enter_async_context(_chat(folder / name, options.changed(store=store)))
                for name, store in {"none": None, **stores}.items()
            ]
            for chat in opened:
                await _timed(chat)  # Saves the whole session, which happens once.
            whole = {name: store.sent for name, store in stores.items()}
            rounds = [[await _timed(chat) for chat in opened] for _ in range(ROUNDS)]
    plain = median(one[0] for one in rounds)
    figures = [Figure(f"a turn of a session of {SESSION_MB} MB, no store", plain, "ms")]
    for number, (name, store) in enumerate(stores.items(), 1):
        added = median(one[number] - one[0] for one in rounds)
        sent = (store.sent - whole[name]) / ROUNDS
        figures += [
            Figure(f"… {name}: added", added, "ms"),
            Figure(f"… {name}: added, of a turn", added / plain),
            Figure(f"… {name}: sent for each turn", sent / 1024, "KB", at_most=16),
        ]
    return figures


@asynccontextmanager
async def _chat(place: Path, options: Options) -> AsyncIterator[Chat]:
    home, cwd = place / "home", place / "work"
    cwd.mkdir(parents=True)
    _write_session(home, cwd)
    where = options.changed(home=home, cwd=cwd)
    async with connect(where, via=Acp(executable=found_cli())) as chat:
        yield chat


async def _timed(chat: Chat) -> float:
    start = time.perf_counter()
    result = await chat.ask(PROMPT)
    if result.text != "Hello" or result.errors:
        raise RuntimeError(f"{result.text!r}: {result.errors}")
    return (time.perf_counter() - start) * 1000


def _write_session(home: Path, cwd: Path) -> Path:
    """As the CLI would have: at each resume, it writes the whole conversation once more."""
    path, said = _session_file(home, cwd), [*_messages()]
    with path.open("wb") as file:
        file.write(_line(_top(SESSION)))
        for message in said:
            file.write(_line(message))
        while file.tell() < SESSION_MB * 2**20:
            file.write(_line({"$set": {"messages": said}}))
    return path


def _messages() -> Iterator[dict[str, Any]]:
    """As much as a model's window holds: 1 MB, with tool outputs of 5 to 50 KB."""
    size = number = 0
    while size < 2**20:
        call = _call(number, 5000 + number * 7919 % 45_000)
        yield _user(f"u{number}", "Go on.")
        yield {**_answer(f"a{number}", "Let me see."), "toolCalls": [call]}
        size, number = size + len(str(call)), number + 1


def _session_file(home: Path, cwd: Path) -> Path:
    chats = home / ".gemini" / "tmp" / cwd.name / "chats"
    chats.mkdir(parents=True)
    (chats.parent / ".project_root").write_text(str(cwd))
    return chats / f"session-2026-01-02T10-00-{SESSION[:8]}.jsonl"


def _resuming(folder: Path, name: str, store: SessionStore) -> Figure:
    """Two entries a turn: what a machine reads that continues the session."""
    for number, entry in enumerate(_entries(), 1):
        store.append(SESSION, number, entry)
    there = folder / f"{name}-resumed"
    place = Place(there, there / "work", None)
    place.cwd.mkdir(parents=True)
    start = time.perf_counter()
    SessionSync(store, place).restore(SESSION)
    seconds = time.perf_counter() - start
    return Figure(f"resuming a session of {TURNS:,} turns, {name}", seconds, "s", at_most=5)


def _entries() -> list[bytes]:
    """Of a session of many turns, as its writer makes them."""
    memory = InMemory()
    log, data = SessionLog(memory, SESSION, "benchmark"), _line(_top(SESSION))
    log.read()
    for number in range(TURNS):
        log.begin_turn(About())
        data += _line(_user(f"u{number}", "Go on."))
        data += _line(_answer(f"a{number}", f"It is done, {number}. " * 50))
        file = SavedFile(f"session-2026-01-02T10-00-{SESSION[:8]}.jsonl", data)
        log.save_turn({"main.jsonl": file}, About())
    return memory.entries


class InMemory:
    """As much of a store as a log needs."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []

    def append(self, session: str, number: int, data: bytes) -> None:
        self.entries.append(data)

    def load(self, session: str, after: int = 0) -> list[bytes]:
        return self.entries[after:]

    def list(self) -> list[tuple[str, int]]:
        return [(SESSION, len(self.entries))]

    def delete(self, session: str) -> None:
        self.entries.clear()

    def acquire(self, session: str, holder: str, seconds: float) -> str:
        return holder

    def release(self, session: str, holder: str) -> None:
        pass
