"""The folders of an agent to the other ways into what steers later runs."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from geminorum.wire.policy_toml import STEERING_FOLDERS, Steering

_MAX_ENTRIES = 10_000
_SKIPPED = {".git", "node_modules"}


def steering_in(folders: Sequence[Path]) -> Steering:
    """The names of the files that steer runs in these folders, and of the links that lead there:
    the CLI follows links, and looks for a file that it does not find by the end of its path."""
    places = [folder / name for folder in folders for name in STEERING_FOLDERS]
    steering = [place for place in places if place.is_dir()]
    if not steering:
        return Steering()
    files = [entry.name for entry in _walked(steering) if not _is_folder(entry)]
    targets = [folder.resolve() for folder in steering]
    links = [entry.name for entry in _walked(folders) if _leads_into(entry, targets)]
    return Steering(frozenset(files), frozenset(links))


def _walked(folders: Iterable[Path]) -> Iterator[os.DirEntry[str]]:
    """All below the folders, the nearest first, as far as it can be read."""
    return islice(_entries(deque(map(str, folders))), _MAX_ENTRIES)


def _entries(ahead: deque[str]) -> Iterator[os.DirEntry[str]]:
    while ahead:
        try:
            with os.scandir(ahead.popleft()) as found:
                entries = list(found)
        except OSError:
            continue
        yield from entries
        ahead += [e.path for e in entries if _is_folder(e) and e.name not in _SKIPPED]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _leads_into(entry: os.DirEntry[str], folders: Sequence[Path]) -> bool:
    try:
        target = Path(entry.path).resolve() if entry.is_symlink() else None
    except (OSError, RuntimeError):
        return False  # It leads nowhere, or in a circle.
    return target is not None and any(target.is_relative_to(folder) for folder in folders)
