"""Pages of saved sessions, the last written first, for a program that shows them again and again.

`sessions.list` reads a summary of every file. A `Catalogue` remembers the summaries until a file
changes, and stops reading when its time is up: ten thousand sessions do not keep a page waiting.
"""

from __future__ import annotations

import os
import time
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from geminorum.sessions.finding import (
    USUAL_NAME,
    AnyPath,
    file_entries,
    is_inside,
    is_listed,
    merged,
    was_alive,
)
from geminorum.sessions.places import ID_IN_NAME, Project, all_projects, home_of, store_of
from geminorum.sessions.searching import says
from geminorum.sessions.summary import SessionInfo, info_of

T = TypeVar("T")

_MAX_SEARCHES = 8
"""Searches whose results are remembered."""


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the sessions that match, and how far the catalogue has looked for them."""

    sessions: list[SessionInfo]
    number: int
    """The first page is 1."""
    size: int
    found: int
    """How many match, on all pages; among those that were examined."""
    examined: int
    """Sessions that were looked at. If the time was too short for all, ask again: what is known is
    not read a second time."""
    total: int
    """Sessions there are, in the projects that were asked for."""
    projects: dict[str, int]
    """Files by project: all projects, by their folder, or by the CLI's name if it is unknown."""

    @property
    def is_complete(self) -> bool:
        return self.examined == self.total

    @property
    def pages(self) -> int:
        return max(1, -(-self.found // self.size))


class _Stamp(NamedTuple):
    """What changes when a file does."""

    written: int
    size: int
    cwd: Path | None


class _File(NamedTuple):
    path: str
    """Not a Path: to make one for each file takes longer than all the rest."""
    name: str
    project: str
    stamp: _Stamp

    @property
    def key(self) -> str:
        """The same for files that may be of one session."""
        is_usual = self.name.startswith(USUAL_NAME)
        return self.name.partition(".")[0][-ID_IN_NAME:] if is_usual else self.path


class _Filter(NamedTuple):
    since: datetime | int | None
    until: datetime | int | None
    text: str | None


_ALL = _Filter(None, None, None)


class Catalogue:
    """The saved sessions of a home, page by page. Several threads may use one at a time."""

    # Without a lock: two threads may read the same file at a time, and come to the same result.

    def __init__(self, home: AnyPath | None = None) -> None:
        """`home` is the folder that holds `.gemini`; default: GEMINI_CLI_HOME, or the user's."""
        self._home = home_of(home)
        self._infos: dict[str, tuple[_Stamp, SessionInfo]] = {}
        self._searches: OrderedDict[str, dict[str, tuple[_Stamp, bool]]] = OrderedDict()

    def page(
        self,
        number: int = 1,
        *,
        size: int = 50,
        project: str | None = None,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
        text: str | None = None,
        seconds: float = 0.5,
    ) -> SessionPage:
        """Returns one page of the sessions that match; see `sessions.list` for the filters.

        Reads files for at most `seconds`, and at least one; `is_complete` says whether that was
        enough. `project` is a key of `SessionPage.projects`. Blocks: in async code, use
        `await asyncio.to_thread(catalogue.page)`.
        """
        files = list(_scan(self._home))
        self._forget_others(files)
        groups = _grouped(one for one in files if project in (None, one.project))
        found, examined = self._matches(groups, _Filter(since, until, text), seconds)
        first = (max(1, number) - 1) * size
        return SessionPage(
            sessions=found[first : first + size],
            number=max(1, number),
            size=size,
            found=len(found),
            examined=examined,
            total=len(groups),
            projects=dict(sorted(Counter(one.project for one in files).items())),
        )

    def named(self, ids: Collection[str]) -> dict[str, SessionInfo]:
        """Returns the sessions with these ids, as far as they are there. Blocks, as `page` does."""
        starts = {id[:ID_IN_NAME] for id in ids}
        files = [one for one in _scan(self._home) if one.key in starts]
        reader = _Reader(self._home, self._infos, {})
        found = [info for group in _grouped(files) for info in reader.matches(group, _ALL)]
        return {info.id: info for info in found if info.id in ids}

    def _matches(
        self, groups: list[list[_File]], wanted: _Filter, seconds: float
    ) -> tuple[list[SessionInfo], int]:
        found: list[SessionInfo] = []
        reader = _Reader(self._home, self._infos, self._search_for(wanted.text))
        deadline = time.monotonic() + seconds
        for examined, group in enumerate(groups):
            # What is known costs next to nothing: only reading is limited.
            if reader.has_read and time.monotonic() > deadline and reader.must_read(group, wanted):
                return found, examined
            found += reader.matches(group, wanted)
        # The time in a file is more exact than that of the file, which may be a copy.
        found.sort(key=lambda info: info.updated, reverse=True)
        return found, len(groups)

    def _search_for(self, text: str | None) -> dict[str, tuple[_Stamp, bool]]:
        if text is None:
            return {}
        results = self._searches.pop(text, {})
        self._searches[text] = results
        while len(self._searches) > _MAX_SEARCHES:
            self._searches.popitem(last=False)
        return results

    def _forget_others(self, files: list[_File]) -> None:
        there = {one.path for one in files}
        for path in [path for path in self._infos if path not in there]:
            self._infos.pop(path, None)


class _Reader:
    """Answers from memory where it can, and reads files where it has to."""

    def __init__(
        self,
        home: Path,
        infos: dict[str, tuple[_Stamp, SessionInfo]],
        results: dict[str, tuple[_Stamp, bool]],
    ) -> None:
        self._store = store_of(home)
        self._infos, self._results = infos, results
        self._inside: dict[Path, bool] = {}
        self.has_read = False

    def must_read(self, group: list[_File], wanted: _Filter) -> bool:
        """Does `matches` have to read a file to answer?"""
        if any(_recalled(self._infos, one) is None for one in group):
            return True
        alive = self._alive(group, wanted)
        files = {one.path: one for one in group}
        return wanted.text is not None and any(
            _recalled(self._results, files[str(info.path)]) is None for info in alive
        )

    def matches(self, group: list[_File], wanted: _Filter) -> list[SessionInfo]:
        alive = self._alive(group, wanted)
        if wanted.text is None:
            return alive
        files = {one.path: one for one in group}
        return [info for info in alive if self._says(info, files[str(info.path)], wanted.text)]

    def _alive(self, group: list[_File], wanted: _Filter) -> list[SessionInfo]:
        listed = [info for info in map(self._info, group) if is_listed(info, "main")]
        if len(listed) > 1:
            listed = merged(listed)
        return [info for info in listed if was_alive(info, wanted.since, wanted.until)]

    def _info(self, file: _File) -> SessionInfo:
        if (known := _recalled(self._infos, file)) is not None:
            return known
        self.has_read = True
        path = Path(file.path)
        if path.parent not in self._inside:
            self._inside[path.parent] = is_inside(path.parent, self._store)
        safe = self._inside[path.parent]
        info = info_of(path, self._store, file.stamp.cwd, is_inside=safe)
        self._infos[file.path] = file.stamp, info
        return info

    def _says(self, info: SessionInfo, file: _File, text: str) -> bool:
        if (known := _recalled(self._results, file)) is not None:
            return known
        self.has_read = True
        found = says(info, text)
        self._results[file.path] = file.stamp, found
        return found


def _recalled(memory: dict[str, tuple[_Stamp, T]], file: _File) -> T | None:
    """What is remembered of a file; None if it has changed since."""
    known = memory.get(file.path)
    return known[1] if known is not None and known[0] == file.stamp else None


def _scan(home: Path) -> Iterator[_File]:
    for project in all_projects(home):
        name = _name_of(project)
        for entry, _ in file_entries(project.folder, "main"):
            yield _File(entry.path, entry.name, name, _stamp_of(entry, project.cwd))


def _name_of(project: Project) -> str:
    return str(project.cwd or project.folder.name)


def _stamp_of(entry: os.DirEntry[str], cwd: Path | None) -> _Stamp:
    try:
        status = entry.stat()
    except OSError:
        return _Stamp(0, 0, cwd)  # A link that leads nowhere; reading it says so.
    return _Stamp(status.st_mtime_ns, status.st_size, cwd)


def _grouped(files: Iterable[_File]) -> list[list[_File]]:
    """Files that may be of one session, by their names; the last written first."""
    groups: dict[str, list[_File]] = {}
    for one in files:
        groups.setdefault(one.key, []).append(one)
    return sorted(
        groups.values(), key=lambda group: max(one.stamp.written for one in group), reverse=True
    )
