"""The folders of an agent to the other ways into what steers later runs."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
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
    files, links, misread = set(), set(), set()
    search = _Search(roots)
    for entry, place in search.found():
        if not _has_utf8_name(entry):
            continue
        if place.steers:
            files.add(entry.name)
        if place.is_misread:
            misread.add(entry.name)
        if entry.is_symlink() and _leads_there(Path(entry.path), roots):
            links.add(entry.name)
    fit = {name for name in files | links | misread if fits_in_a_pattern(name)}
    sets = frozenset(files & fit), frozenset(links & fit), frozenset(misread & fit)
    return Steering(*sets, is_complete=search.is_complete and fit == files | links | misread)


def _has_utf8_name(entry: os.DirEntry[str]) -> bool:
    """Node has no words for other names, so no tool of the CLI can mean such a file."""
    return not any("\ud800" <= letter <= "\udfff" for letter in entry.name)


class _Place(NamedTuple):
    """What the names of the folders above a file make of it."""

    steers: bool = False
    is_misread: bool = False

    def below(self, name: str) -> _Place:
        is_misread = "%" in name and _DECODED.search(name) is not None
        return _Place(self.steers or _steers(name), self.is_misread or is_misread)


_ORDINARY = _Place()


class _Search:
    """What may matter below some folders. They are searched before each run, so ordinary files must
    cost almost nothing."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._ahead = deque((str(root), _ORDINARY) for root in roots)
        self._left = _MAX_ENTRIES

    @property
    def is_complete(self) -> bool:
        return self._left > 0

    def found(self) -> Iterator[tuple[os.DirEntry[str], _Place]]:
        """Each link, and each file in a place that is not ordinary, with its place."""
        while self._ahead and self.is_complete:
            folder, place = self._ahead.popleft()
            entries = _entries(folder)[: self._left]
            self._left -= len(entries)
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self._look_later(entry, place)
                elif place != _ORDINARY or entry.is_symlink():
                    yield entry, place

    def _look_later(self, folder: os.DirEntry[str], place: _Place) -> None:
        if folder.name != _SKIPPED_NAME and folder.path not in _SKIPPED_PATHS:
            self._ahead.append((folder.path, place.below(folder.name)))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []  # What we may not read, the agent may not either.


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
