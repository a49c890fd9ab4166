"""The folders that an agent works in to a place for what steers its run, outside of all of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from geminorum.system.owned_folder import temporary_folder


def place_outside(folders: Sequence[Path]) -> Path | None:
    """A private place in none of these folders; None where there is none."""
    usable = (place for place in candidates() if not is_within(place, folders))
    return next((place for place in usable if _is_ready(place)), None)


def candidates() -> Iterator[Path]:
    """Where what steers a run may lie, the usual place first."""
    import platformdirs

    yield temporary_folder()
    # platformdirs knows this one too, but warns every user who has none.
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "geminorum"
    yield platformdirs.user_cache_path("geminorum") / "runs"
    # Each run makes a folder there that is its own, as in the temporary folder.
    yield from (Path("/var/tmp"), Path("/dev/shm"))  # nosec B108


def is_within(path: Path, folders: Sequence[Path]) -> bool:
    """Does the path lie in one of these folders, whatever links and spellings lead there?"""
    real = path.resolve()
    above = {_identity(one) for one in (real, *real.parents)}
    return not above.isdisjoint(filter(None, map(_identity, folders)))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_ready(place: Path) -> bool:
    if place == temporary_folder():
        return True  # Where it cannot be used, that has to be said.
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        real = place.resolve()
        safe = all(_is_safe(folder.stat()) for folder in (real, *real.parents))
        return safe and os.access(place, os.W_OK | os.X_OK)
    except OSError:
        return False


def _is_safe(found: os.stat_result) -> bool:
    """Can no other user exchange what lies in the folder?"""
    if not hasattr(os, "getuid"):
        return True
    mine = found.st_uid in (0, os.getuid())
    shared = bool(found.st_mode & stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
    return mine and not shared
