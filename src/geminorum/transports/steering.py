"""The folders of an agent to the other ways into what steers later runs."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from geminorum.wire.policy_toml import STEERING_FOLDERS, Steering

_MAX_ENTRIES = 500_000
# A clone brings no links in there, and the CLI itself writes nothing there.
_SKIPPED_NAME = ".git"
_SKIPPED_PATHS = ("/proc", "/sys", "/dev")


def steering_in(folders: Sequence[Path]) -> Steering:
    """The names of the files that steer runs in these folders, and of the links that lead there.

    The CLI follows links, also those to a folder that does not exist yet, and looks for a file
    that it does not find by the end of its path. Not complete for folders that are too large to
    be searched.
    """
    roots = [folder.resolve() for folder in folders]
    files, links, seen = set(), set(), 0
    for entry, is_inside in islice(_walked(roots), _MAX_ENTRIES):
        seen += 1
        if is_inside and not _is_folder(entry):
            files.add(entry.name)
        if entry.is_symlink() and _leads_there(Path(entry.path), roots):
            links.add(entry.name)
    return Steering(frozenset(files), frozenset(links), is_complete=seen < _MAX_ENTRIES)


def _walked(roots: Sequence[Path]) -> Iterator[tuple[os.DirEntry[str], bool]]:
    """All below the folders, and whether it lies in a folder that steers."""
    ahead = deque((str(root), False) for root in roots)
    while ahead:
        folder, is_inside = ahead.popleft()
        entries = _entries(folder)
        yield from ((entry, is_inside) for entry in entries)
        below = (entry for entry in entries if _is_folder(entry) and not _is_skipped(entry))
        ahead += [(entry.path, is_inside or _steers(entry.name)) for entry in below]


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []  # What we may not read, the agent may not either.


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _is_skipped(entry: os.DirEntry[str]) -> bool:
    return entry.name == _SKIPPED_NAME or entry.path in _SKIPPED_PATHS


def _steers(name: str) -> bool:
    return name.lower() in STEERING_FOLDERS


def _leads_there(link: Path, roots: Sequence[Path]) -> bool:
    try:
        target = link.resolve()
    except (OSError, RuntimeError):
        return False  # It leads in a circle.
    # Where a folder of the agent itself lies in such a folder, only what follows counts.
    root = next((root for root in roots if target.is_relative_to(root)), Path(target.anchor))
    return any(map(_steers, target.relative_to(root).parts))
