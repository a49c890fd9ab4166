"""Where an embedded PostgreSQL lives: the folder is found or made, and refused where it is unsafe.

A normal user's folder holds everything and is closed to others. Root's differs, because PostgreSQL
refuses to run as root and runs as `nobody`, as do other programs: the folder itself can be passed
through, and the folder `server` in it is open to a group that only this server has.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from geminorum.errors import SetupError
from geminorum.fleet.embedded.guardian_program import SERVER, USERS
from geminorum.runtime.lazy import platformdirs

_ROOTS_FOLDER = Path("/var/lib/geminorum/fleet")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ELSEWHERE = "name another folder, or use a PostgreSQL of your own"


def is_root() -> bool:
    return os.geteuid() == 0


def default_folder() -> Path:
    """In the user's data folder. Root's home is mostly closed to the account that the server runs
    as, so root's is /var/lib/geminorum/fleet."""
    return _ROOTS_FOLDER if is_root() else platformdirs.user_data_path("geminorum") / "fleet"


def resolved(folder: Path | None) -> Path:
    """One name for all users of a folder. Only the folder itself must not be a link."""
    named = (default_folder() if folder is None else Path(folder)).absolute()
    return named.parent.resolve() / named.name


def make_folder(folder: Path) -> None:
    """Makes the folder if there is none, and refuses one that is not for this user alone."""
    if os.path.lexists(folder):
        require_own(folder)
    if is_root():
        _require_way_for_server(folder)
        for each in [*reversed(folder.parents), folder]:
            _make_passable(each)
    else:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_own(folder)
    _require_empty_or_ours(folder)


def require_own(folder: Path) -> None:
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise SetupError(f"{str(folder)!r} is a link", hint="name the folder that it leads to")
    if not stat.S_ISDIR(found.st_mode):
        raise SetupError(f"{str(folder)!r} is not a folder", hint=_ELSEWHERE)
    if found.st_uid != os.geteuid():
        text = f"{str(folder)!r} belongs to the user with the number {found.st_uid}"
        raise SetupError(text, hint=_ELSEWHERE)
    if found.st_mode & _OTHERS_WRITE:
        hint = f"close it: chmod go-w {folder}; or name another folder"
        raise SetupError(f"others may write to {str(folder)!r}", hint=hint)


def _require_empty_or_ours(folder: Path) -> None:
    # Its lock is the first file that we make; a new file system has a folder of its own.
    names = {path.name for path in folder.iterdir()}
    if names - {"lost+found"} and not (folder / USERS).exists():
        hint = "name a folder that is empty or does not exist"
        raise SetupError(f"{str(folder)!r} holds something else than a database", hint=hint)


def require_closed_server(folder: Path) -> None:
    """The gate to the data, once it is there."""
    server = folder / SERVER
    if not os.path.lexists(server):
        return
    require_own(server)
    found = server.lstat()
    if stat.S_IMODE(found.st_mode) & ~0o710 or (is_root() and found.st_gid == 0):
        mode = f"{stat.S_IMODE(found.st_mode):o}"
        text = f"{str(server)!r} has another mode or group than we gave it ({mode})"
        raise SetupError(text, hint="restore it with its modes and groups, or name another folder")


# Root's


def _make_passable(folder: Path) -> None:
    """Makes a folder that others may pass through, but not look into, whatever the umask says."""
    if os.path.lexists(folder):
        return
    new = Path(tempfile.mkdtemp(prefix=".geminorum-", dir=folder.parent))
    new.chmod(0o711)
    try:
        new.rename(folder)  # Also over an empty one, which somebody has made meanwhile.
    except OSError:
        with suppress(OSError):
            new.rmdir()
        if not os.path.lexists(folder):
            raise


def _require_way_for_server(folder: Path) -> None:
    for each in filter(os.path.lexists, (folder, *folder.parents)):
        if problem := _problem_on_the_way(each):
            hint = f"name a folder that all may pass through, such as {default_folder()}"
            raise SetupError(f"{str(each)!r} {problem}", hint=hint)


def _problem_on_the_way(folder: Path) -> str | None:
    found = folder.lstat()
    if found.st_uid != 0:
        return "belongs to another user, who could exchange what is in it"
    if found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
        return "can be written to by others, who could exchange what is in it"
    if stat.S_ISDIR(found.st_mode) and not found.st_mode & stat.S_IXOTH:
        return "is closed to the account that PostgreSQL runs as"
    return None


def is_open_to_server(folder: Path) -> bool:
    return not any(map(_problem_on_the_way, (folder, *folder.parents)))
