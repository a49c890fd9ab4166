"""The folders of an agent to the other ways into what steers later runs."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from geminorum.wire.policy.toml_writer import STEERING_FOLDERS, Steering, fits_in_a_pattern

_MAX_ENTRIES = 500_000
# A clone brings no links in there, and the CLI itself writes nothing there.
_SKIPPED_NAME = ".git"
_DECODED = re.compile("%[0-9A-Fa-f]{2}")
_SKIPPED_PATHS = ("/proc", "/sys", "/dev")


def steering_in(folders: Sequence[Path]) -> Steering:
    """The names of the files that steer runs in these folders, and of the links that lead there.

    The CLI follows links, also those to a folder that does not exist yet. It looks for a file that
    it does not find by the end of its path, and decodes the path that it found. Not complete for
    folders that are too large to be searched.
    """
    roots = [folder.resolve() for folder in folders]
    files, links, misread, seen = set(), set(), set(), 0
    for entry, place in islice(_walk(roots), _MAX_ENTRIES):
        seen += 1
        if not _has_utf8_name(entry):
            continue
        if place.steers and not _is_folder(entry):
            files.add(entry.name)
        if place.is_misread and not _is_folder(entry):
            misread.add(entry.name)
        if entry.is_symlink() and _leads_there(Path(entry.path), roots):
            links.add(entry.name)
    fit = {name for name in files | links | misread if fits_in_a_pattern(name)}
    sets = frozenset(files & fit), frozenset(links & fit), frozenset(misread & fit)
    complete = seen < _MAX_ENTRIES and fit == files | links | misread
    return Steering(*sets, is_complete=complete)


def _has_utf8_name(entry: os.DirEntry[str]) -> bool:
    """Node has no words for other names, so no tool of the CLI can mean such a file."""
    return not any("\ud800" <= letter <= "\udfff" for letter in entry.name)


class _Place(NamedTuple):
    """What the names of the folders above a file make of it."""

    steers: bool = False
    is_misread: bool = False

    def below(self, name: str) -> _Place:
        return _Place(self.steers or _steers(name), self.is_misread or bool(_DECODED.search(name)))


def _walk(roots: Sequence[Path]) -> Iterator[tuple[os.DirEntry[str], _Place]]:
    """All below the folders, and the place where it lies."""
    ahead = deque((str(root), _Place()) for root in roots)
    while ahead:
        folder, place = ahead.popleft()
        entries = _entries(folder)
        yield from ((entry, place) for entry in entries)
        below = (entry for entry in entries if _is_folder(entry) and not _is_skipped(entry))
        ahead += [(entry.path, place.below(entry.name)) for entry in below]


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
