"""The folders of a run to what the CLI may read there by itself: regular files of the project."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from geminorum.detect import CliProgram
from geminorum.errors import ConfigError, Unsupported
from geminorum.hints import advice
from geminorum.transports.launch.context import LaunchContext, settings_in
from geminorum.transports.launch.overlay import replace_file
from geminorum.transports.launch.preloads.scripts import script_text

_SCRIPT, _RULES = "read_guard.cjs", "read_guard.json"
_SKILL = "SKILL.md"
_OUTSIDE = "leads outside of the project"
_CONTEXT = "GEMINI.md"
_READ_BY_GIT = ("HEAD", "commondir", "config", "config.worktree", "index", "packed-refs")


class _Opening(Protocol):
    @property
    def outside_links(self) -> bool: ...
    @property
    def sandbox(self) -> bool | str | None: ...


class ReadGuard:
    """A script that Node loads ahead of the CLI, and the projects that it keeps the CLI to."""

    def __init__(self, home: Path, transport: _Opening, folders: Iterable[Path]) -> None:
        self._home, self._transport = home, transport
        self._projects = [_roots_as_text(folders)]
        self._admitting = threading.Lock()

    @property
    def node_flag(self) -> str:
        # Not `--require`: for that, Node reads the package.json of the folder that it starts in,
        # which may say that another file is meant, also in place of an absolute path.
        return f"--import={(self._home / _SCRIPT).as_uri()}"

    @property
    def files(self) -> dict[str, str]:
        return {_SCRIPT: script_text(_SCRIPT), _RULES: self._rules()}

    def admit(self, folders: Iterable[Path]) -> None:
        """Adds the project around these folders, before the CLI first reads there."""
        roots = _roots_as_text(folders)
        with self._admitting:  # Or else the file could be left without what another thread adds.
            if roots not in self._projects:
                self._projects.append(roots)
            # Also where nothing is new: a command that was allowed may have rewritten it.
            replace_file(self._home / _RULES, self._rules().encode())

    def _rules(self) -> str:
        home = [str(self._home), str(self._home.resolve())]
        links = self._transport.outside_links
        return json.dumps({"projects": self._projects, "home": home, "links": links})


def _roots_as_text(folders: Iterable[Path]) -> list[str]:
    return [str(root) for root in roots_of(folders)]


def roots_of(folders: Iterable[Path]) -> list[Path]:
    """The projects that these folders belong to, and the folders by the names that were given."""
    pairs = ((_project(folder.resolve()), folder) for folder in folders)
    return [*dict.fromkeys(path for pair in pairs for path in pair)]


def _project(folder: Path) -> Path:
    """The nearest folder with a `.git`, from this one upwards; this one where there is none."""
    chain = (folder, *folder.parents)
    return next((one for one in chain if (one / ".git").exists()), folder)


def context_names(*settings: Mapping[str, Any]) -> list[str]:
    """What these settings call context files, beside the CLI's own name for them."""
    found = [_CONTEXT]
    for one in settings:
        context = one.get("context")
        named = context.get("fileName") if isinstance(context, dict) else None
        found += [name for name in _as_list(named) if isinstance(name, str) and name.strip()]
    return [*dict.fromkeys(found)]


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def check_folders(context: LaunchContext, program: CliProgram) -> None:
    """Warns of what the CLI would send to the model at its start and is kept from reading; raises
    where it cannot be kept from it."""
    transport, folders = context.transport, context.folders
    theirs = [settings_in(context.system_settings_file), context.user_settings]
    names = context_names(transport.settings, *theirs, context.folder_settings)
    _refuse_unfit_git(folders)
    allowed = f"{type(transport).__name__}(outside_links=True)"
    for file, why in _unfit_files(transport, folders, names):
        # A sandbox starts a CLI of its own, without our flag.
        if program.node is None or transport.sandbox:
            raise Unsupported(
                f"{str(file)!r} {why}, and only the npm package's CLI, without a sandbox, can be "
                "kept from reading it",
                hint=advice(
                    "remove it, name that CLI with {Cli.executable|`executable`}, [or, where it is "
                    "a link to a file, let it be read: {Cli.outside_links=True|allowed}]",
                    allowed=allowed,
                ),
            )
        text = f"{str(file)!r} {why} and is left out"
        if why == _OUTSIDE:
            text = advice(
                "{text}[; {Cli.outside_links=True|allowed} lets it in]", text=text, allowed=allowed
            )
        warnings.warn(text, stacklevel=2)


def _refuse_unfit_git(folders: Iterable[Path]) -> None:
    """The CLI starts git, which our guard cannot keep from waiting for a pipe."""
    for folder in folders:
        git = _project(folder.resolve()) / ".git"
        for file in (git / name for name in _READ_BY_GIT) if git.is_dir() else ():
            if file.exists() and not file.is_file():
                text = f"{str(file)!r} is not a regular file"
                raise ConfigError(text, hint="remove it, or make the clone anew")


def _unfit_files(
    transport: _Opening, folders: list[Path], names: Iterable[str]
) -> Iterator[tuple[Path, str]]:
    """Context files and skills that the CLI would read at its start, and why it may not."""
    roots = roots_of(folders)
    for file in dict.fromkeys([*_context_files(folders, names), *_skill_files(folders[0])]):
        try:
            real = file.resolve(strict=True)
        except (OSError, RuntimeError):
            continue  # There is none, or it leads nowhere.
        if not real.is_dir() and not real.is_file():
            yield file, "is not a regular file"
        elif not transport.outside_links and not any(real.is_relative_to(root) for root in roots):
            yield file, _OUTSIDE


def _context_files(folders: Iterable[Path], names: Iterable[str]) -> Iterator[Path]:
    """In each folder, and in those above it up to the root of its project."""
    names = list(names)
    for folder in map(Path.resolve, folders):
        root = _project(folder)
        above = [one for one in folder.parents if one.is_relative_to(root)]
        yield from (one / name.lstrip("/") for one in (folder, *above) for name in names)


def _skill_files(cwd: Path) -> Iterator[Path]:
    for place in (cwd / ".gemini" / "skills", cwd / ".agents" / "skills"):
        yield place / _SKILL
        try:
            yield from (child / _SKILL for child in sorted(place.iterdir()))
        except OSError:
            continue
