"""Where the CLI keeps its conversations: one folder a project, named in a different way by version.

`home` is the folder that holds `.gemini`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from glob import escape
from pathlib import Path
from typing import NamedTuple

from geminorum.errors import InvalidOptions
from geminorum.system.regular_file import open_regular, read_text
from geminorum.wire.sessions.records import Record, is_spoken, message_of, messages_in, record_of

ID_IN_NAME = 8
"""How much of its session's id a file has in its name."""


class Project(NamedTuple):
    """A folder of the store, and the folder whose sessions it holds, where that is known."""

    folder: Path
    cwd: Path | None


def home_of(home: str | os.PathLike[str] | None = None) -> Path:
    """The folder that holds `.gemini`, as the CLI chooses it where none is given."""
    return Path(home or os.environ.get("GEMINI_CLI_HOME") or Path.home()).expanduser().absolute()


def folder_named(cwd: str | os.PathLike[str]) -> Path:
    """The folder that a caller names; raises InvalidOptions for what no folder can be called."""
    try:
        return Path(cwd).expanduser().resolve()
    except (ValueError, RuntimeError) as error:
        raise InvalidOptions(f"{os.fspath(cwd)!r} is no folder: {error}") from error


def store_of(home: Path) -> Path:
    """The folder below which every session lies."""
    return home / ".gemini" / "tmp"


def all_projects(home: Path) -> list[Project]:
    """Every folder with sessions, those of newer CLIs first."""
    slugs = {slug: Path(cwd) for cwd, slug in _registry(home).items()}
    folders = [folder for folder in _folders_in(store_of(home)) if not _is_hash(folder)]
    named = [Project(folder, _root_of(folder) or slugs.get(folder.name)) for folder in folders]
    hashes = {hash_of(cwd): cwd for cwd in [*slugs.values(), *(one.cwd for one in named)] if cwd}
    old = [folder for folder in _folders_in(store_of(home)) if _is_hash(folder)]
    return [*named, *(Project(folder, hashes.get(folder.name)) for folder in old)]


def projects_of(home: Path, cwd: Path) -> list[Path]:
    """The folders that hold the sessions of `cwd`, those of newer CLIs first."""
    root, real = store_of(home), cwd.resolve()
    named = [root / _slug(home, real), *_marked(root, real), root / hash_of(real)]
    return [folder for folder in dict.fromkeys(named) if folder != root and folder.is_dir()]


def files_in(project: Path) -> list[Path]:
    """A project's session files, the one written last at the top."""
    # Newer CLIs may name them in another way; hidden ones are half written.
    chats = [path for path in (project / "chats").glob("*.json*") if path.name[0] != "."]
    found = [*chats, *project.glob("session-*.json*")]
    return sorted(found, key=_written, reverse=True)


def project_of(home: Path, session_id: str) -> Path | None:
    """The folder that a session belongs to, wherever on this machine; None where nothing tells."""
    for path in store_of(home).glob(f"*/chats/session-*-{escape(session_id[:ID_IN_NAME])}*"):
        top = top_of(path)
        if top and top.session_id == session_id:
            return _root_of(path.parent.parent)
    return None


def latest(home: Path, cwd: Path) -> str | None:
    """The session of `cwd` with the latest message."""
    files = [path for project in projects_of(home, cwd) for path in files_in(project)]
    for path in sorted(files, key=_written, reverse=True):
        top = top_of(path)
        if top and top.kind != "subagent" and was_used(path):
            return top.session_id
    return None


def top_of(path: Path) -> Record | None:
    """What stands at the top of a session file."""
    return next((record for record, _ in records(path)), None)


def records(path: Path) -> Iterator[tuple[Record, bytes]]:
    """A file's records, one at a time; what is torn or strange is left out."""
    try:
        with open_regular(path) as file:
            # A document has many lines and one record, a log has one a line.
            for line in file if path.suffix == ".jsonl" else [file.read()]:
                if (record := record_of(line)) is not None:
                    yield record, line
    except OSError:
        return


def was_used(path: Path) -> bool:
    """Does it contain a message?"""
    return any(
        is_spoken(message_of(raw))
        for record, line in records(path)
        for raw in messages_in(record, line)
    )


def _slug(home: Path, cwd: Path) -> str:
    return _registry(home).get(str(cwd), "")


def _registry(home: Path) -> dict[str, str]:
    """Which name each folder has been given; a name that leads out of the store is none."""
    try:
        known = json.loads(read_text(home / ".gemini" / "projects.json"))
        pairs = known["projects"].items()
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return {}
    return {cwd: slug for cwd, slug in pairs if _is_name(slug)}


def _is_name(slug: object) -> bool:
    return isinstance(slug, str) and Path(slug).name == slug != ".."


def _folders_in(root: Path) -> list[Path]:
    try:
        return sorted(folder for folder in root.iterdir() if folder.is_dir())
    except OSError:
        return []


def _is_hash(folder: Path) -> bool:
    return len(folder.name) == 64 and set(folder.name) <= set("0123456789abcdef")


def _marked(root: Path, cwd: Path) -> list[Path]:
    return [mark.parent for mark in root.glob("*/.project_root") if _root_of(mark.parent) == cwd]


def _root_of(project: Path) -> Path | None:
    try:
        text = read_text(project / ".project_root").strip()
        return Path(text).resolve() if text else None
    except (OSError, ValueError, RuntimeError):
        return None  # Not there, not text, or a path that leads in a circle.


def hash_of(cwd: Path) -> str:
    """The name that older CLIs gave to the folder of a project."""
    return hashlib.sha256(str(cwd).encode("utf-8", "surrogatepass")).hexdigest()


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
