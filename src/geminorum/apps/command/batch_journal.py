"""What a batch has done, on disk: a result for each prompt, and a journal of the tries.

A result is one write of one line, and nothing else says that a prompt is finished: however the
batch is killed, the prompt has its line or has none.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from geminorum.apps.command.batch_input import Task
from geminorum.errors import GeminorumError, InvalidOptions

T = TypeVar("T")


class Failure(msgspec.Struct, frozen=True):
    code: str
    message: str
    hint: str | None = None
    retryable: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one prompt."""

    id: str
    digest: str
    prompt: str
    status: str
    """As in `Done.status`: "success", "error", "max_turns" …"""
    text: str = ""
    data: Any = None
    error: Failure | None = None
    session_id: str | None = None
    model: str | None = None
    tokens: int = 0
    cost_usd: Decimal | None = None
    """None: not known."""
    files: list[str] = []
    duration: float = 0.0
    attempts: int = 1
    finished: int = 0
    """Milliseconds since 1970."""


class Try(msgspec.Struct, frozen=True):
    """An attempt: noted when it begins, and again when it has ended."""

    id: str
    attempt: int
    ended: bool = False
    usd: Decimal | None = None
    at: int = 0
    """Milliseconds since 1970."""


class Journal:
    """The two files of a batch, for one process at a time."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.tries = results.with_name(f"{results.name}.journal")
        self.outcomes: dict[str, Outcome] = {}
        self._ended: dict[tuple[str, int], Decimal | None] = {}
        self._begun: dict[str, int] = {}
        self._open: dict[Path, IO[bytes]] = {}

    @contextmanager
    def opened(self, *, restart: bool = False) -> Iterator[Journal]:
        """Read what is there, and hold it against a second batch; `restart` forgets all of it."""
        try:
            self.results.parent.mkdir(parents=True, exist_ok=True)
            self._open = {path: path.open("a+b", 0) for path in (self.tries, self.results)}
        except OSError as error:
            text = f"cannot write {error.filename}: {error.strerror}"
            raise InvalidOptions(text, hint="choose another file with --output") from error
        try:
            _lock(self._open[self.tries], self.results)
            if restart:
                for file in self._open.values():
                    file.truncate(0)
            self._read()
            yield self
        finally:
            for file in self._open.values():
                file.close()

    def begin(self, task: Task) -> int:
        """The number of the attempt; noted before anything is spent."""
        number = self._begun.get(task.id, 0) + 1
        self._begun[task.id] = number
        self._append(self.tries, Try(task.id, number, at=now()))
        return number

    def end(self, task: Task, attempt: int, usd: Decimal | None) -> None:
        """What the attempt cost, whatever came of it."""
        self._ended[task.id, attempt] = usd
        self._append(self.tries, Try(task.id, attempt, ended=True, usd=usd, at=now()))

    def finish(self, outcome: Outcome) -> None:
        """The prompt's one result."""
        self.outcomes[outcome.id] = outcome
        self._append(self.results, outcome)

    def drop_failures(self) -> None:
        """Forget the results that are none, so that their prompts are sent again."""
        kept = {name: one for name, one in self.outcomes.items() if one.status == "success"}
        if len(kept) == len(self.outcomes):
            return
        self.outcomes = kept
        beside = self.results.with_name(f"{self.results.name}.new")
        with beside.open("wb") as file:
            file.write(b"".join(_line(one) for one in kept.values()))
            file.flush()
            os.fsync(file.fileno())
        self._open.pop(self.results).close()
        beside.replace(self.results)
        self._open[self.results] = self.results.open("a+b", 0)

    @property
    def costs(self) -> list[Decimal]:
        """Of the attempts that ended and have a price."""
        return [usd for usd in self._ended.values() if usd is not None]

    @property
    def torn(self) -> int:
        """Attempts that somebody killed: what they cost was never told."""
        begun = sum(self._begun.values())
        return begun - len(self._ended)

    def is_about(self, tasks: Iterable[Task]) -> None:
        """Refuses a file of prompts that is another than the one the results are of."""
        for task in tasks:
            known = self.outcomes.get(task.id)
            if known is not None and known.digest != task.digest:
                text = f"the prompt {task.id!r} is not what {self.results} has a result of"
                hint = "add --restart to begin anew, or --output FILE to keep the old results"
                raise InvalidOptions(text, hint=hint)

    def _read(self) -> None:
        for outcome in _whole_lines(self._open[self.results], Outcome, self.results):
            self.outcomes[outcome.id] = outcome
            # The result is written first: a kill may come before its try is noted as ended.
            self._begun[outcome.id] = outcome.attempts
            self._ended[outcome.id, outcome.attempts] = outcome.cost_usd
        for one in _whole_lines(self._open[self.tries], Try, self.tries):
            self._begun[one.id] = max(one.attempt, self._begun.get(one.id, 0))
            if one.ended:
                self._ended[one.id, one.attempt] = one.usd

    def _append(self, path: Path, value: Any) -> None:
        file, line = self._open[path], _line(value)
        size = os.fstat(file.fileno()).st_size
        try:
            # A disk with a little room left takes a part of the line without a word.
            while line:
                line = line[file.write(line) :]
            os.fsync(file.fileno())
        except OSError as error:
            # Half a line would spoil the next one.
            file.truncate(size)
            hint = "make room, then type the same command again"
            raise GeminorumError(f"cannot write {path}: {error.strerror}", hint=hint) from error


def now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _line(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _whole_lines(file: IO[bytes], kind: type[T], path: Path) -> Iterator[T]:
    """Each line as a value; half a line at the end, which a kill may leave, is cut off."""
    file.seek(0)
    data = file.read()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        file.truncate(whole)
    for number, line in enumerate(data[:whole].split(b"\n")[:-1], start=1):
        try:
            yield msgspec.json.decode(line, type=kind)
        except msgspec.DecodeError as error:
            text = f"{path}, line {number} is not of a batch: {error}"
            raise InvalidOptions(text, hint="choose another file with --output") from error


def _lock(file: IO[bytes], results: Path) -> None:
    """Held until the file is closed, also by the death of this process."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(1 << 30)  # Beyond what is written: Windows forbids reading locked bytes.
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        hint = "wait for it, or choose another file with --output"
        raise InvalidOptions(f"another batch is writing {results}", hint=hint) from error
