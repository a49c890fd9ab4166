"""`python -m chaos.stores [--seeds N]`: machines that share a session through a store that fails.

Each seed draws a story: turns on three machines, with crashes at any step, calls of the store that
fail before or after they took effect, leases that end under their holders, and torn entries. Then:

- a turn that was acknowledged is in the session wherever it is resumed, once and in order;
- of two writers at the same time, one at most is acknowledged;
- words that were not acknowledged are still on the machine where they were said;
- nothing is raised but what the caller is to know: SessionBusy, SessionLost, StoreError.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from geminorum import sessions
from geminorum.errors import SessionBusy, SessionLost, StoreError
from geminorum.sessions.store import SessionStore, SqliteStore
from geminorum.sessions.store.local_files import find_main_files
from geminorum.sessions.store.session_sync import Place, SessionSync

SESSION = "0f1e2d3c-4b5a-4697-8899-aabbccddeeff"
MACHINES, STEPS = 3, 14
CRASH, FAIL, STEAL, TEAR, REWRITE = 0.12, 0.06, 0.15, 0.05, 0.15
"""How likely each is, at each step at which it can happen."""


class Crash(BaseException):
    """The machine was switched off."""


class Unreliable:
    """A store whose calls fail at times, before or after they took effect."""

    def __init__(self, store: SqliteStore, dice: random.Random) -> None:
        self._store, self._dice = store, dice
        self.is_reliable = False

    def _call(self, name: str, *words: Any) -> Any:
        fails = not self.is_reliable and self._dice.random() < FAIL
        if fails and self._dice.random() < 0.5:
            raise ConnectionError("the store cannot be reached")
        done = getattr(self._store, name)(*words)
        if fails:
            raise TimeoutError("the store took its time")
        return done

    def append(self, session: str, number: int, data: bytes) -> None:
        self._call("append", session, number, data)

    def load(self, session: str, after: int = 0) -> Any:
        return self._call("load", session, after)

    def list(self) -> Any:
        return self._call("list")

    def delete(self, session: str) -> None:
        self._call("delete", session)

    def acquire(self, session: str, holder: str, seconds: float) -> str:
        return str(self._call("acquire", session, holder, seconds))

    def release(self, session: str, holder: str) -> None:
        self._call("release", session, holder)


@dataclass
class Machine:
    home: Path
    cwd: Path
    said: list[str] = field(default_factory=list)
    """All that was ever said here."""

    def say(self, word: str, dice: random.Random) -> None:
        """What a CLI does: it adds to the file, or at times writes all of it anew."""
        files = find_main_files(self.home, self.cwd, SESSION)
        path = files[0] if files else self._begin()
        if dice.random() < REWRITE:
            path = self._rewrite(path, dice)
        text = dice.choice(["word", "many words " * 2000]) + word
        with path.open("a") as file:
            file.write(json.dumps({"id": word, "type": "user", "content": [{"text": text}]}) + "\n")
        self.said.append(word)

    def _begin(self) -> Path:
        chats = self.home / ".gemini/tmp" / self.cwd.name / "chats"
        chats.mkdir(parents=True, exist_ok=True)
        (chats.parent / ".project_root").write_text(str(self.cwd))
        path = chats / f"session-2026-01-02T10-00-{SESSION[:8]}.jsonl"
        top = {"sessionId": SESSION, "projectHash": "0", "startTime": "2026-01-02T10:00:00.000Z"}
        path.write_text(json.dumps(top) + "\n")
        return path

    def _rewrite(self, path: Path, dice: random.Random) -> Path:
        """A repair: the same messages in other bytes, under another name."""
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        place = dice.randrange(len(lines))
        lines[place]["repaired"] = dice.random()
        path.unlink()
        stamp = f"2026-01-02T09-{dice.randrange(60):02}"
        text = "".join(json.dumps(line) + "\n" for line in lines)
        other = path.with_name(f"session-{stamp}-{SESSION[:8]}.jsonl")
        other.write_text(text)
        return other

    def words(self) -> list[str]:
        files = find_main_files(self.home, self.cwd, SESSION)
        return _words_in(files[0]) if files else []

    def all_words(self) -> set[str]:
        """Of every session here, forks included."""
        infos = sessions.list(self.cwd, home=self.home)
        return {word for info in infos if info.id for word in _words_in(info.path)}


def _words_in(path: Path) -> list[str]:
    found = (json.loads(line) for line in path.read_text().splitlines())
    return [one["id"] for one in found if "id" in one]


@dataclass
class Story:
    seed: int
    folder: Path
    violations: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    """What a store said it had, in that order."""
    torn: bool = False
    count: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.sqlite = SqliteStore(self.folder / "sessions.db")
        self.sqlite.delete(SESSION)  # Makes the tables.
        self.store = Unreliable(self.sqlite, self.dice)
        self.machines = [self._machine(number) for number in range(MACHINES)]

    def _machine(self, number: int) -> Machine:
        home, cwd = self.folder / f"home-{number}", self.folder / f"work-{number}"
        home.mkdir()
        cwd.mkdir()
        return Machine(home, cwd)

    def tell(self) -> list[str]:
        for _ in range(STEPS):
            with suppress(Crash):
                self._turn(self.dice.choice(self.machines))
            self._end_leases()
            if self.dice.random() < TEAR:
                self._tear()
        self._check_end()
        return self.violations

    def _turn(self, machine: Machine) -> None:
        sync = SessionSync(_typed(self.store), Place(machine.home, machine.cwd, "0.61.0"))
        if self._attempt(lambda: sync.restore(SESSION)) is None:
            return
        self._may_crash()
        self._check_restored(machine)
        for _ in range(self.dice.randrange(1, 4)):
            if self._attempt(sync.begin_turn) is None:
                break
            self._may_crash()
            if self.dice.random() < STEAL:
                self._end_leases()
                other = self.dice.choice([one for one in self.machines if one is not machine])
                self._interfere(other)
            self._say_and_save(machine, sync)
        sync.close()

    def _interfere(self, other: Machine) -> None:
        """Another run while one is at work, whose lease has ended without its knowledge."""
        sync = SessionSync(_typed(self.store), Place(other.home, other.cwd, "0.61.0"))
        if self._attempt(lambda: sync.restore(SESSION)) is not None:
            if self._attempt(sync.begin_turn) is not None:
                self._say_and_save(other, sync)
            sync.close()

    def _say_and_save(self, machine: Machine, sync: SessionSync) -> None:
        self.count += 1
        machine.say(f"w{self.count}", self.dice)
        self._may_crash()
        before = machine.words()
        if sync.save(SESSION) == []:
            self._acknowledge(before)
        self._may_crash()

    def _acknowledge(self, words: list[str]) -> None:
        """The store has all of these now. Whoever had an acknowledgement before is among them."""
        lost = [word for word in self.acknowledged if word not in words]
        if lost and not self.torn:
            self.violations.append(f"{lost} were acknowledged, and then replaced by {words}")
        self.acknowledged = words

    def _check_restored(self, machine: Machine) -> None:
        words = machine.words()
        lost = [word for word in self.acknowledged if word not in words]
        # Without its store a machine goes on with what it has; its save is refused later.
        if lost and not self.torn and self.store.is_reliable:
            self.violations.append(f"a resume lacks {lost}")
        if len({*words}) < len(words):
            self.violations.append(f"a resume has words twice: {words}")

    def _attempt(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except (SessionBusy, SessionLost, StoreError):
            return None

    def _may_crash(self) -> None:
        if self.dice.random() < CRASH:
            raise Crash

    def _end_leases(self) -> None:
        """As time does: nobody holds the session any more."""
        with sqlite3.connect(self.folder / "sessions.db", timeout=10) as database:
            database.execute("DELETE FROM leases")
        database.close()

    def _tear(self) -> None:
        """The last entry loses some bytes: the turn in it is gone, whoever was told otherwise."""
        with sqlite3.connect(self.folder / "sessions.db", timeout=10) as database:
            row = database.execute("SELECT MAX(number) FROM entries").fetchone()
            if row[0]:
                query = "UPDATE entries SET data = substr(data, 1, ?) WHERE number = ?"
                database.execute(query, (self.dice.randrange(1, 200), row[0]))
                self.torn = True
        database.close()

    def _check_end(self) -> None:
        """With a store that works again, every machine gets what was acknowledged."""
        self.store.is_reliable = True
        for machine in self.machines:
            self._end_leases()
            before = machine.all_words()
            sync = SessionSync(_typed(self.store), Place(machine.home, machine.cwd, "0.61.0"))
            if self._attempt(partial(sync.restore, SESSION)) is not None:
                self._check_restored(machine)
                self._check_order(machine)
            sync.close()
            if lost := before - machine.all_words():
                self.violations.append(f"a resume has overwritten {lost}")
            if lost := {*machine.said} - machine.all_words() - self._stored_words():
                self.violations.append(f"{lost} were said on a machine, and are nowhere")

    def _check_order(self, machine: Machine) -> None:
        words = machine.words()
        kept = [word for word in words if word in self.acknowledged]
        if kept != [word for word in self.acknowledged if word in kept]:
            self.violations.append(f"{words} is not the order of {self.acknowledged}")

    def _stored_words(self) -> set[str]:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            session = sessions.store.fetch(_typed(self.store), SESSION, folder)
            return {*_words_in(session.path)}
        except SessionLost:
            return set()


def _typed(store: Unreliable) -> SessionStore:
    return store


def judged(seed: int) -> list[str]:
    """What one story has violated."""
    # In memory, where there is such a folder: a disk would take most of the time.
    memory = Path("/dev/shm")
    where = memory if memory.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="chaos-stores-", dir=where))
    try:
        return Story(seed, folder).tell()
    finally:
        shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.stores", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="SEED")
    arguments = parser.parse_args()
    began, bad = time.monotonic(), 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        found = judged(seed)
        bad += bool(found)
        for line in found:
            print(f"seed {seed}: {line}", flush=True)
    print(f"{arguments.seeds} stories in {time.monotonic() - began:.0f} s, {bad} violated")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
