"""What a batch has done, on disk: a result for each prompt, and a journal of the tries.

A result is one write of one line, and nothing else says that a prompt is finished: however the
batch is killed, the prompt has its line or has none.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from geminorum.apps.command.batch.input import Task
from geminorum.apps.command.private_files import open_private
from geminorum.errors import GeminorumError, InvalidOptions
from geminorum.system.leases import share_with_agents

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


T = TypeVar("T")
_MAX_USD = 10**12
_MAX_ATTEMPTS = 10**6
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_ELSEWHERE = "choose another file with --output"
_LAST_AGENTS_SECONDS, _LOCK_PAUSE_SECONDS = 5.0, 0.05


class Failure(msgspec.Struct, frozen=True):
    code: str
    message: str
    hint: str | None = None
    retryable: bool = False


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
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
    job: str | None = None
    """The id of the job, if a fleet ran it: `geminorum jobs apply` takes it."""
    finished: int = 0
    """Milliseconds since 1970."""

    def __post_init__(self) -> None:
        _require_amount(self.cost_usd)
        _require_attempt(self.attempts)


class Try(msgspec.Struct, frozen=True):
    """An attempt: noted when it begins, and again when it has ended."""

    id: str
    attempt: int
    ended: bool = False
    usd: Decimal | None = None
    at: int = 0
    """Milliseconds since 1970."""
    source: str = ""
    """The name of the file of prompts."""
    batch: str = ""
    """The name of the batch, which a restart changes."""

    def __post_init__(self) -> None:
        _require_amount(self.usd)
        _require_attempt(self.attempt)


def _require_amount(usd: Decimal | None) -> None:
    """Nothing can be added to NaN, and no budget held against it; huge numbers overflow in sums."""
    if usd is not None and not (usd.is_finite() and 0 <= usd < _MAX_USD):
        raise ValueError(f"{usd} is not an amount")


def _require_attempt(number: int) -> None:
    """Refuses an implausible number: the budget pays for each attempt whose cost is unknown."""
    if not 1 <= number <= _MAX_ATTEMPTS:
        raise ValueError(f"{number} is not a number of attempts")


class Journal:
    """The two files of a batch, for one process at a time."""

    def __init__(self, results: Path, source: Path | None = None) -> None:
        self.results = results
        self.tries = results.with_name(f"{results.name}.journal")
        self._beside = results.with_name(f"{results.name}.new")
        self._source = source
        self._sources: set[str] = set()
        self._batch = ""
        self.outcomes: dict[str, TaskOutcome] = {}
        self._ended: dict[tuple[str, int], Decimal | None] = {}
        self._begun: dict[str, int] = {}
        self._open: dict[Path, IO[bytes]] = {}

    @contextmanager
    def open(self, tasks: Iterable[Task] = (), *, restart: bool = False) -> Iterator[Journal]:
        """Reads the journal and locks it against a second batch; `restart` discards its content.
        Files that belong to no batch, or to other tasks, are refused and left as they are."""
        tasks = list(tasks)
        self._refuse_files_of_others(tasks, restart=restart)
        try:
            self.results.parent.mkdir(parents=True, exist_ok=True)
            # The results first: where they cannot be written, no journal is left behind.
            self._open = {path: _open_for_append(path) for path in (self.results, self.tries)}
        except OSError as error:
            raise _not_writable(error) from error
        try:
            _lock(self._open[self.tries], self.results)
            # Another batch may have written since they were looked at.
            self._read()
            if restart:
                self._forget()
            self._refuse_other_prompts(tasks)
            self._mend_ends(restart=restart)
            with share_with_agents(self._open[self.tries].fileno()):
                yield self
        finally:
            for file in self._open.values():
                file.close()

    @property
    def batch(self) -> str:
        """A name for this batch, which a continued one keeps."""
        self._batch = self._batch or uuid.uuid4().hex
        return self._batch

    def begin(self, task: Task, *, may_continue: bool = False) -> int:
        """The number of the attempt; noted before anything is spent.

        `may_continue`: an attempt that a kill kept from being noted as ended goes on.
        """
        last = self._begun.get(task.id, 0)
        if may_continue and last and (task.id, last) not in self._ended:
            return last
        self._begun[task.id] = last + 1
        self._append(self.tries, self._try(task, last + 1))
        return last + 1

    def end(self, task: Task, attempt: int, usd: Decimal | None) -> None:
        """What the attempt cost, whatever came of it."""
        self._ended[task.id, attempt] = usd
        self._append(self.tries, self._try(task, attempt, ended=True, usd=usd))

    def _try(self, task: Task, attempt: int, **ending: Any) -> Try:
        source, batch = self._name, self.batch
        return Try(task.id, attempt, at=now(), source=source, batch=batch, **ending)

    def finish(self, outcome: TaskOutcome) -> None:
        """The prompt's one result."""
        self.outcomes[outcome.id] = outcome
        self._append(self.results, outcome)

    def drop_failures(self) -> None:
        """Forget the results that are none, so that their prompts are sent again."""
        kept = {name: one for name, one in self.outcomes.items() if one.status == "success"}
        if len(kept) == len(self.outcomes):
            return
        self.outcomes = kept
        with open(self._beside, "wb", opener=open_private) as file:
            shutil.copymode(self.results, self._beside)
            file.write(b"".join(_line(one) for one in kept.values()))
            file.flush()
            os.fsync(file.fileno())
        self._open.pop(self.results).close()
        self._beside.replace(self.results)
        self._open[self.results] = _open_for_append(self.results)

    @property
    def costs(self) -> list[Decimal]:
        """Of the attempts that ended and have a price."""
        return [usd for usd in self._ended.values() if usd is not None]

    @property
    def torn(self) -> int:
        """Attempts that were killed: their cost was never reported."""
        begun = sum(self._begun.values())
        return max(begun - len(self._ended), 0)

    @property
    def _name(self) -> str:
        """Not the whole path: a folder may be moved between two starts."""
        return self._source.name if self._source else ""

    def _refuse_files_of_others(self, tasks: Iterable[Task], *, restart: bool) -> None:
        """Before anything is made or written."""
        for path in (self.results, self.tries, self._beside):
            _refuse_special(path)
            if self._source and path.exists() and path.samefile(self._source):
                text = f"{path} would be written over: it is the file of prompts"
                raise InvalidOptions(text, hint=_ELSEWHERE)
        _values(self._beside, TaskOutcome)  # --retry-failed writes it.
        self._read()
        if not restart:
            self._refuse_other_prompts(tasks)
        self._forget()

    def _refuse_other_prompts(self, tasks: Iterable[Task]) -> None:
        """Refuses a file of prompts that is another than the one the results are of."""
        hint = "add --restart to begin anew, or --output FILE to keep the old results"
        others = self._sources - {self._name, ""}
        if self._source and others:
            text = f"{self.results} has results of {min(others)}, not of {self._name}"
            raise InvalidOptions(text, hint=hint)
        for task in tasks:
            known = self.outcomes.get(task.id)
            if known is not None and known.digest != task.digest:
                text = f"the prompt {task.id!r} is not what {self.results} has a result of"
                raise InvalidOptions(text, hint=hint)

    def _mend_ends(self, *, restart: bool) -> None:
        for path, file in self._open.items():
            data = path.read_bytes()
            whole = b"" if restart else _whole_lines(data)
            file.truncate(min(len(whole), len(data)))
            file.write(whole[len(data) :])

    def _forget(self) -> None:
        self._batch = ""
        for known in (self.outcomes, self._ended, self._begun, self._sources):
            known.clear()

    def _read(self) -> None:
        self._forget()
        for outcome in _values(self.results, TaskOutcome):
            self.outcomes[outcome.id] = outcome
            # The result is written first: a kill may come before its try is noted as ended.
            self._begun[outcome.id] = outcome.attempts
            self._ended[outcome.id, outcome.attempts] = outcome.cost_usd
        for one in _values(self.tries, Try):
            self._sources.add(one.source)
            self._batch = one.batch or self._batch
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
            hint = "make room, then run the same command again"
            raise GeminorumError(f"cannot write {path}: {error.strerror}", hint=hint) from error


def _open_for_append(path: Path) -> IO[bytes]:
    return open(path, "a+b", 0, opener=open_private)


def now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _line(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _values(path: Path, kind: type[T]) -> list[T]:
    """Each line as a value, but for half a line at the end, which a kill may leave. Of a file that
    is not a batch's, nothing is taken."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _not_writable(error) from error
    lines = _whole_lines(data).split(b"\n")[:-1]
    if data and not lines and not data.startswith(b'{"id":'):
        lines = [data]  # Not the beginning of one of our lines: it is refused, not cut.
    return [
        _value(line, kind, f"{path}, line {number}") for number, line in enumerate(lines, start=1)
    ]


def _value(line: bytes, kind: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except _UNREADABLE as error:
        raise InvalidOptions(f"{where} is not of a batch: {error}", hint=_ELSEWHERE) from error


def _whole_lines(data: bytes) -> bytes:
    """Without half a line at its end; a last line that lacks only its end gets it."""
    start = data.rfind(b"\n") + 1
    try:
        msgspec.json.decode(data[start:])
    except _UNREADABLE:
        return data[:start]
    return data + b"\n"


def _refuse_special(path: Path) -> None:
    """A device or a pipe may have no end, and keeps nothing."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise _not_writable(error) from error
    if not stat.S_ISREG(mode):
        what = "is a folder" if stat.S_ISDIR(mode) else "is not a file that can hold results"
        raise InvalidOptions(f"{path} {what}", hint=_ELSEWHERE)


def _not_writable(error: OSError) -> InvalidOptions:
    return InvalidOptions(f"cannot write {error.filename}: {error.strerror}", hint=_ELSEWHERE)


def _lock(file: IO[bytes], results: Path) -> None:
    """Held until this process and all its agents have ended, however they end.

    A batch that was killed leaves agents for a moment: to go on beside them would let them finish
    twice.
    """
    deadline = time.monotonic() + _LAST_AGENTS_SECONDS
    while not _is_locked(file):
        if time.monotonic() > deadline:
            hint = "wait for it, or choose another file with --output"
            raise InvalidOptions(f"another batch is writing {results}", hint=hint)
        time.sleep(_LOCK_PAUSE_SECONDS)


def _is_locked(file: IO[bytes]) -> bool:
    try:
        if sys.platform == "win32":
            file.seek(1 << 30)  # Beyond what is written: Windows forbids reading locked bytes.
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
