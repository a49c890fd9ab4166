"""Carries out a plan in a folder, all of it or nothing, also if the process is killed.

The new files are written beside the old ones, in `.geminorum-apply/new`. Then the journal lists
all steps, and they are done: old files move to `.geminorum-apply/old`, new ones take their place.
Removing the journal completes the work. As long as there is a journal, every step can be undone.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from geminorum.errors import WorkspaceConflict, WorkspaceError
from geminorum.runtime.lazy import msgspec
from geminorum.runtime.typed import convert
from geminorum.workspace.files import save_file
from geminorum.workspace.names import STAGING, problem_with
from geminorum.workspace.plan import Plan
from geminorum.workspace.tree import Entry, mode_of, read_entry

if sys.platform != "win32":
    import fcntl

_JOURNAL = "journal.json"
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
    with _staging(folder) as place:
        steps = _stage(folder, place, plan)
        _write_journal(place, steps)
        try:
            for step in steps:
                _do(folder, place, step)
        except BaseException:
            # If this fails, the journal stays for the next attempt.
            _undo_all(folder, place, steps)
            (place / _JOURNAL).unlink()
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
            hint=f"wait for it, or undo it: geminorum workspace recover {folder}",
        )


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """The folder to work in, locked. One that a killed process left is cleared first."""
    place = folder / STAGING
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    _require_ours(place)
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


def _require_ours(place: Path) -> None:
    """A journal is obeyed, so it must not be one that came with the files of a stranger."""
    found = place.lstat()
    is_private = sys.platform == "win32" or stat.S_IMODE(found.st_mode) == 0o700
    is_ours = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    if not (stat.S_ISDIR(found.st_mode) and is_private and is_ours):
        text = f"{place} was not made by geminorum"
        raise WorkspaceError(text, paths=[STAGING], hint=f"look at it, then remove it: {place}")


def _lock(place: Path) -> int:
    if sys.platform == "win32":
        return os.open(os.devnull, os.O_RDONLY)
    lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        text = f"another patch is being applied in {place.parent}"
        raise WorkspaceError(text, hint="try again in a moment", retryable=True) from error
    return lock


def _clear(folder: Path, place: Path) -> None:
    """Undoes what the journal there lists, if there is one, and makes room for new work."""
    if (place / _JOURNAL).exists():
        _undo_all(folder, place, _read_journal(place))
        (place / _JOURNAL).unlink()
    for name in ("old", "new"):
        if (place / name).is_dir():
            shutil.rmtree(place / name)
        (place / name).mkdir()


def _stage(folder: Path, place: Path, plan: Plan) -> list[Step]:
    """Writes the new files, and returns the steps that the plan consists of."""
    takes = [Step("take", name, n, entry) for n, (name, entry) in enumerate(plan.take.items())]
    modes = {name: stat.S_IMODE((folder / name).stat().st_mode) for name in plan.remove_folders}
    removes = [Step("remove", name, mode) for name, mode in modes.items()]
    makes = [Step("make", name) for name in plan.make_folders]
    puts = [Step("put", name, n, entry) for n, (name, (entry, _)) in enumerate(plan.put.items())]
    for step in puts:
        _write_new(folder, place, step, plan.put[step.name][1])
    return [*takes, *removes, *makes, *puts]


def _write_new(folder: Path, place: Path, step: Step, contents: bytes) -> None:
    path = place / "new" / str(step.number)
    assert step.entry is not None
    if step.entry.kind == "link":
        path.symlink_to(step.entry.target)
        return
    save_file(path, contents, 0o777 if step.entry.executable else 0o666)
    old = mode_of(folder, step.name)
    if old is not None and stat.S_ISREG(old):
        path.chmod(_changed_mode(old, executable=step.entry.executable))


def _changed_mode(old: int, *, executable: bool) -> int:
    """Keeps who may read and write; whoever may read may execute."""
    mode = old & 0o666
    return mode | (mode & 0o444) >> 2 if executable else mode


def _write_journal(place: Path, steps: list[Step]) -> None:
    lines = [[*step[:3], asdict(step.entry) if step.entry else None] for step in steps]
    save_file(place / "unfinished", json.dumps(lines).encode())
    (place / "unfinished").rename(place / _JOURNAL)


def _read_journal(place: Path) -> list[Step]:
    try:
        lines: Any = json.loads((place / _JOURNAL).read_bytes())
        steps = [Step(*line) for line in convert(lines, list[tuple[str, str, int, Entry | None]])]
    except (ValueError, msgspec.MsgspecError) as error:
        raise WorkspaceError(f"{place / _JOURNAL} cannot be read: {error}") from error
    if bad := [step.name for step in steps if problem_with(step.name)]:
        raise WorkspaceError(f"{place / _JOURNAL} names {bad[0]!r}", paths=bad)
    return steps


def _do(folder: Path, place: Path, step: Step) -> None:
    path = folder / step.name
    match step.verb:
        case "take":
            _take(path, place / "old" / str(step.number), step)
        case "remove":
            path.rmdir()
        case "make":
            path.mkdir()
        case "put":
            _put(place / "new" / str(step.number), path)


def _take(path: Path, old: Path, step: Step) -> None:
    path.rename(old)
    # Only now nobody can change it any more by its name.
    found = read_entry(old.parent, old.name)
    if found is None or found[0] != step.entry:
        text = f"{step.name} changed while the patch was applied; nothing was written"
        raise WorkspaceConflict(text, paths=[step.name], hint="try again", retryable=True)


def _put(new: Path, path: Path) -> None:
    """Moves a file to its place. A hard link fails if there is something; a rename would not."""
    try:
        os.link(new, path, follow_symlinks=False)
    except FileExistsError as error:
        text = f"{path} appeared while the patch was applied; nothing was written"
        raise WorkspaceConflict(text, paths=[path.name], hint="try again") from error
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS or os.path.lexists(path):
            raise
        new.rename(path)


def _undo_all(folder: Path, place: Path, steps: list[Step]) -> None:
    """Undoes all steps that were done. What somebody else wrote since then is kept, and told."""
    kept = [step.name for step in reversed(steps) if not _undo(folder, place, step)]
    if kept:
        (place / _JOURNAL).rename(place / "stopped.json")
        saved = Path(tempfile.mkdtemp(prefix=f"{STAGING}-kept-", dir=folder))
        place.rename(saved)
        raise WorkspaceConflict(
            f"these changed after the patch was interrupted, and were kept: {', '.join(kept)}",
            paths=kept,
            hint=f"compare them with the old versions in {saved}",
        )


def _undo(folder: Path, place: Path, step: Step) -> bool:
    """Undoes a step, if it was done; False if that would overwrite somebody's work."""
    path, old = folder / step.name, place / "old" / str(step.number)
    match step.verb:
        case "put":
            return _undo_put(folder, step)
        case "make" if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        case "remove" if not os.path.lexists(path):
            path.mkdir(mode=step.number)
            path.chmod(step.number)
        case "take" if os.path.lexists(old):
            return _undo_take(old, path)
    return True


def _undo_put(folder: Path, step: Step) -> bool:
    found = read_entry(folder, step.name)
    if found is not None and found[0] == step.entry:
        (folder / step.name).unlink()
    return True


def _undo_take(old: Path, path: Path) -> bool:
    if os.path.lexists(path):
        return False
    old.rename(path)
    return True
