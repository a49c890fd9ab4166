"""Carries out a plan in a folder, all of it or nothing, also if the process is killed.

The new files are written beside the old ones, in `.geminorum-apply/new`. Then the journal lists
all steps, and they are done: old files move to `.geminorum-apply/old`, new ones take their place.
Removing the journal completes the work. As long as there is a journal, every step can be undone.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from geminorum.errors import WorkspaceConflict, WorkspaceError
from geminorum.runtime.lazy import msgspec
from geminorum.runtime.typed import convert
from geminorum.system.regular_file import read_bytes
from geminorum.workspace import beneath
from geminorum.workspace.files import failure_is_told, save_file
from geminorum.workspace.names import STAGING, parents_of, problem_with, shown
from geminorum.workspace.plan import Plan
from geminorum.workspace.tree import Entry, entry_of, mode_of

if sys.platform != "win32":
    import fcntl

_JOURNAL, _MARK = "journal.json", "mark"
_MAX_JOURNAL_BYTES = 1024 * 1024 * 1024
_ROUNDS = 20
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


class Step(NamedTuple):
    """One step of a journal: `take`, `remove`, `make` or `put`."""

    verb: str
    name: str
    number: int = 0
    """The file in `old` or `new`; the mode of a folder to remove."""
    entry: Entry | None = None
    """What is taken or put."""


def carry_out(folder: Path, plan: Plan) -> None:
    """Does all steps of a plan; if one fails, undoes those before it and raises."""
    with _staging(folder) as place, failure_is_told("the patch cannot be applied"):
        steps = _stage(folder, plan)
        _write_journal(place, steps)
        try:
            for step in steps:
                _do(folder, step)
        except BaseException:
            _undo_all(folder, place, steps)
            raise
        (place / _JOURNAL).unlink()


def recover(folder: Path) -> bool:
    """Undoes what a killed process left half done; False if there is nothing to undo."""
    if not (folder / STAGING).is_dir():
        return False
    # Without a journal nothing was changed yet, or everything was.
    is_half_done = (folder / STAGING / _JOURNAL).exists()
    with _staging(folder):
        return is_half_done


def refuse_unfinished(folder: Path) -> None:
    """Refuses a folder in which a process was killed while it applied a patch, or still does."""
    if os.path.lexists(folder / STAGING / _JOURNAL):
        raise WorkspaceError(
            f"a patch is being applied in {folder}, or its process was killed",
            hint=f"wait for it, or undo it: {_recovery(folder)}",
        )


def _recovery(folder: Path) -> str:
    return f"geminorum workspace recover {shlex.quote(str(folder))}"


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """The folder to work in, locked. One that a killed process left is cleared first."""
    place = folder / STAGING
    with failure_is_told("the patch cannot be applied"):
        lock = _lock(place)
    try:
        _clear(folder, place)
        yield place
        shutil.rmtree(place)
    except BaseException:
        # With a journal it is needed once more.
        if not (place / _JOURNAL).exists():
            shutil.rmtree(place, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def _lock(place: Path) -> int:
    """Makes the folder, and returns a lock on it."""
    for _ in range(_ROUNDS):
        with suppress(FileExistsError):
            place.mkdir(mode=0o700)
        _require_ours(place)
        with suppress(FileNotFoundError):  # Another process has just completed its work.
            lock = _try_to_lock(place)
            if sys.platform == "win32" or os.path.samestat(os.fstat(lock), place.lstat()):
                return lock
            os.close(lock)
    raise _busy(place)


def _require_ours(place: Path) -> None:
    """A folder that is a link, or that others may write in, is none of ours."""
    with suppress(FileNotFoundError):
        found = place.lstat()
        # A folder may hand its group on to new ones: a bit of the mode, but no permission.
        is_private = sys.platform == "win32" or found.st_mode & 0o777 == 0o700
        is_ours = not hasattr(os, "getuid") or found.st_uid == os.getuid()
        if not (stat.S_ISDIR(found.st_mode) and is_private and is_ours):
            raise _strange(place)


def _strange(place: Path) -> WorkspaceError:
    text = f"{place} was not made by geminorum in this folder"
    hint = f"look at it, save what {place / 'old'} has of yours, then remove it"
    return WorkspaceError(text, paths=[STAGING], hint=hint)


def _try_to_lock(place: Path) -> int:
    if sys.platform == "win32":
        return os.open(os.devnull, os.O_RDONLY)
    lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise _busy(place) from error
    return lock


def _busy(place: Path) -> WorkspaceError:
    text = f"another patch is being applied in {place.parent}"
    return WorkspaceError(text, hint="try again in a moment", retryable=True)


def _clear(folder: Path, place: Path) -> None:
    """Undoes what the journal there lists, if there is one, and makes room for new work."""
    if (place / _JOURNAL).exists():
        _undo_all(folder, place, _read_journal(place))
    for name in ("old", "new"):
        if (place / name).is_dir():
            shutil.rmtree(place / name)
        (place / name).mkdir()


def _stage(folder: Path, plan: Plan) -> list[Step]:
    """Writes the new files, and returns the steps that the plan consists of."""
    takes = [Step("take", name, n, entry) for n, (name, entry) in enumerate(plan.take.items())]
    removes = [Step("remove", name, _mode_now(folder, name)) for name in plan.remove_folders]
    makes = [Step("make", name) for name in plan.make_folders]
    puts = [Step("put", name, n, entry) for n, (name, (entry, _)) in enumerate(plan.put.items())]
    for step in puts:
        _write_new(folder, step, plan.put[step.name][1])
    return [*takes, *removes, *makes, *puts]


def _mode_now(folder: Path, name: str) -> int:
    return stat.S_IMODE(mode_of(folder, name) or 0o777)


def _write_new(folder: Path, step: Step, contents: bytes) -> None:
    assert step.entry is not None
    if step.entry.kind == "link":
        beneath.create_link(folder, _new(step), step.entry.target)
        return
    mode = 0o777 if step.entry.executable else 0o666
    with os.fdopen(beneath.open_new(folder, _new(step), mode), "wb") as file:
        file.write(contents)
        old = beneath.stat_of(folder, step.name)
        if old is not None and stat.S_ISREG(old.st_mode):
            _take_over(file.fileno(), old, executable=step.entry.executable)


def _take_over(new: int, old: os.stat_result, *, executable: bool) -> None:
    """Leaves a changed file to those who had it: its owner, its group, and who may read it.

    Not by its name: somebody else may put a link there, and we may be root.
    """
    if sys.platform != "win32":
        with suppress(PermissionError):
            os.fchown(new, old.st_uid, old.st_gid)
        os.fchmod(new, _changed_mode(old.st_mode, executable=executable))


def _new(step: Step) -> str:
    return f"{STAGING}/new/{step.number}"


def _old(step: Step) -> str:
    return f"{STAGING}/old/{step.number}"


def _changed_mode(old: int, *, executable: bool) -> int:
    """Keeps who may read and write; whoever may read may execute."""
    mode = old & 0o666
    return mode | (mode & 0o444) >> 2 if executable else mode


def _write_journal(place: Path, steps: list[Step]) -> None:
    lines = [[*step[:3], asdict(step.entry) if step.entry else None] for step in steps]
    save_file(place / _MARK, b"")
    journal = {"mark": _mark(place), "steps": lines}
    save_file(place / "unfinished", json.dumps(journal).encode())
    (place / "unfinished").rename(place / _JOURNAL)


def _mark(place: Path) -> list[int]:
    """What nobody knows of a file before it is there: a journal from elsewhere cannot have it.

    A journal is obeyed, and a clone or an archive can bring one along.
    """
    try:
        found = (place / _MARK).lstat()
    except FileNotFoundError as error:
        raise _strange(place) from error
    return [found.st_ino, found.st_ctime_ns]


def _read_journal(place: Path) -> list[Step]:
    try:
        journal: Any = json.loads(read_bytes(place / _JOURNAL, _MAX_JOURNAL_BYTES))
        is_ours, lines = journal["mark"] == _mark(place), journal["steps"]
        steps = [Step(*line) for line in convert(lines, list[tuple[str, str, int, Entry | None]])]
    except (ValueError, KeyError, TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise _strange(place) from error
    if not is_ours or any(problem_with(step.name) for step in steps):
        raise _strange(place)
    return steps


def _do(folder: Path, step: Step) -> None:
    match step.verb:
        case "take":
            _take(folder, step)
        case "remove":
            beneath.remove_folder(folder, step.name)
        case "make":
            beneath.make_folder(folder, step.name)
        case "put":
            _put(folder, step)


def _take(folder: Path, step: Step) -> None:
    try:
        beneath.move(folder, step.name, _old(step))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _moved_away(step) from error
    # Only now nobody can change it any more by its name.
    if entry_of(folder, _old(step)) != step.entry:
        raise _moved_away(step)


def _moved_away(step: Step) -> WorkspaceConflict:
    text = f"{shown(step.name)} changed while the patch was applied; nothing was written"
    return WorkspaceConflict(text, paths=[step.name], hint="try again", retryable=True)


def _put(folder: Path, step: Step) -> None:
    """Moves a file to its place. A hard link fails if there is something; a rename would not."""
    try:
        beneath.link_again(folder, _new(step), step.name)
    except FileExistsError as error:
        text = f"{shown(step.name)} appeared while the patch was applied; nothing was written"
        raise WorkspaceConflict(text, paths=[step.name], hint="try again") from error
    except NotADirectoryError as error:
        raise _moved_away(step) from error
    except OSError as error:
        is_there = beneath.stat_of(folder, step.name) is not None
        if error.errno not in _NO_HARD_LINKS or is_there:
            raise
        beneath.move(folder, _new(step), step.name)


def _undo_all(folder: Path, place: Path, steps: list[Step]) -> None:
    """Undoes all steps that were done. What somebody else wrote since then is kept, and told."""
    try:
        kept = [step.name for step in reversed(steps) if not _undo(folder, step)]
    except OSError as error:
        # The journal stays for the next attempt.
        text = f"a half-applied patch cannot be undone in {folder}: {error.strerror}"
        hint = f"make room or allow writing there, then: {_recovery(folder)}"
        raise WorkspaceError(text, hint=hint) from error
    if kept:
        conflict = _set_aside(folder, place, kept)
        raise conflict
    (place / _JOURNAL).unlink()


def _set_aside(folder: Path, place: Path, names: list[str]) -> WorkspaceConflict:
    (place / _JOURNAL).rename(place / "stopped.json")
    saved = Path(tempfile.mkdtemp(prefix=f"{STAGING}-kept-", dir=folder))
    place.rename(saved)
    text = ", ".join(map(shown, names))
    return WorkspaceConflict(
        f"these changed after the patch was interrupted, and were kept: {text}",
        paths=names,
        hint=f"compare them with the old versions in {saved}",
    )


def _undo(folder: Path, step: Step) -> bool:
    """Undoes a step, if it was done; False if that would overwrite somebody's work."""
    match step.verb:
        case "put":
            _undo_put(folder, step)
        case "make":
            # One that somebody has put files in stays.
            with suppress(OSError):
                beneath.remove_folder(folder, step.name)
        case "remove":
            return _undo_remove(folder, step)
        case "take" if beneath.stat_of(folder, _old(step)) is not None:
            return _undo_take(folder, step)
    return True


def _undo_put(folder: Path, step: Step) -> None:
    """Removes the file, if it is the one that was put there, and nobody's of the same contents."""
    new, now = beneath.stat_of(folder, _new(step)), beneath.stat_of(folder, step.name)
    if new is not None and now is not None and not os.path.samestat(new, now):
        return
    if entry_of(folder, step.name) == step.entry:
        beneath.remove_file(folder, step.name)


def _undo_remove(folder: Path, step: Step) -> bool:
    if beneath.is_folder(folder, step.name):
        return True
    return _made_room(folder, step.name) and _is_done(
        lambda: beneath.make_folder(folder, step.name, step.number)
    )


def _undo_take(folder: Path, step: Step) -> bool:
    if beneath.stat_of(folder, step.name) is not None or not _made_room(folder, step.name):
        return False
    return _is_done(lambda: beneath.move(folder, _old(step), step.name))


def _made_room(folder: Path, name: str) -> bool:
    """Makes the folders above a name that somebody removed since then."""
    missing = [one for one in parents_of(name) if beneath.stat_of(folder, one) is None]
    return all(_is_done(partial(beneath.make_folder, folder, one)) for one in reversed(missing))


def _is_done(act: Callable[[], object]) -> bool:
    """False if somebody's file or link is in the way."""
    try:
        act()
    except (FileExistsError, NotADirectoryError, FileNotFoundError):
        return False
    return True
