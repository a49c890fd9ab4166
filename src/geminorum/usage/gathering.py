"""Every saved session of a home to its requests, each once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from geminorum.events import ModelRequest
from geminorum.sessions.places import (
    Project,
    all_projects,
    files_in,
    folder_named,
    projects_of,
    store_of,
)
from geminorum.usage.billing import Bill, Request, bill_of
from geminorum.usage.tally import Problem

ReadBill: TypeAlias = Callable[[Path], Bill]


class Entry(NamedTuple):
    """A request, and what it belongs to."""

    request: ModelRequest
    session_id: str
    project: str
    """The project's folder; if it is unknown, the name of the CLI's folder for it."""


class Gathered(NamedTuple):
    entries: list[Entry]
    problems: list[Problem]


class _Found(NamedTuple):
    bill: Bill
    folder: Path
    """The CLI's, of the project."""
    project: str


def gather(
    home: Path, cwd: str | os.PathLike[str] | None, read_bill: ReadBill = bill_of
) -> Gathered:
    """The requests of all sessions, or those that count for one folder, and what is unreadable."""
    problems: list[Problem] = []
    store = store_of(home).resolve()
    # The whole store, even for one folder: the original of a fork may lie in another.
    wanted = None if cwd is None else projects_of(home, folder_named(cwd))
    found = [
        _Found(bill, project.folder, name)
        for project in all_projects(home)
        for name in [_name(project, cwd)]
        for path in _inside(_files(project.folder), store, problems)
        if (bill := _bill(path, read_bill, problems)) is not None
    ]
    return Gathered(
        [
            Entry(request.made, one.bill.parent or request.session_id, one.project)
            for one, request in _each_once(found)
            if wanted is None or one.folder in wanted
        ],
        [one for one in problems if wanted is None or _is_in(one.path, wanted)],
    )


def _files(project: Path) -> list[Path]:
    # Subagents have a folder beside their session's file. It may outlive that file.
    return [*files_in(project), *sorted((project / "chats").glob("*/*.json*"))]


def _inside(paths: list[Path], store: Path, problems: list[Problem]) -> Iterator[Path]:
    """Those that no link leads out of the store. Each folder is asked once: it takes its time."""
    folders = {folder for folder in {path.parent for path in paths} if _leaves(folder, store)}
    for path in paths:
        if path.parent in folders or (path.is_symlink() and _leaves(path, store)):
            problems.append(Problem(path, "a link leads out of the store"))
        else:
            yield path


def _leaves(path: Path, store: Path) -> bool:
    try:
        return not path.resolve().is_relative_to(store)
    except (OSError, RuntimeError):
        return False  # A circle; opening it will say so.


def _bill(path: Path, read_bill: ReadBill, problems: list[Problem]) -> Bill | None:
    try:
        bill = read_bill(path)
    except OSError as error:
        problems.append(Problem(path, error.strerror or str(error)))
        return None
    if not bill.records:
        problems.append(Problem(path, "nothing in it is a record of a session"))
    elif bill.broken:
        problems.append(Problem(path, f"lines that cannot be read: {bill.broken}"))
    return bill


def _each_once(found: list[_Found]) -> Iterator[tuple[_Found, Request]]:
    seen: set[str] = set()
    for one in _oldest_first(found):
        fresh = [key for key in one.bill.requests if key not in seen]
        seen.update(fresh)
        yield from ((one, one.bill.requests[key]) for key in fresh)


def _oldest_first(found: list[_Found]) -> list[_Found]:
    """A subagent's file is as old as the session it works for: a fork has an exact copy of it."""
    ages: dict[str, tuple[int, int, str]] = {}
    for bill in (one.bill for one in found if one.bill.parent is None):
        ages[bill.session_id] = min(bill.age, ages.get(bill.session_id, bill.age))
    return sorted(
        found, key=lambda one: (ages.get(one.bill.parent or "", one.bill.age), one.bill.age)
    )


def _name(project: Project, cwd: str | os.PathLike[str] | None) -> str:
    known = project.cwd or (folder_named(cwd) if cwd is not None else None)
    return str(known) if known else project.folder.name


def _is_in(path: Path, folders: list[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)
