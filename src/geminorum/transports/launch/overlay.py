"""A home for one run: the user's own folders, with the run's settings laid on top.

The user's files stay as they are, byte for byte: their folders are linked, their settings are
merged into a copy, and the whole overlay is removed when the block ends.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from geminorum.errors import ConfigError, SetupError
from geminorum.hints import advice
from geminorum.system.owned_folder import OwnedFolder
from geminorum.system.regular_file import read_text
from geminorum.transports.launch.control_place import candidates
from geminorum.transports.launch.unused_session import UnusedSession
from geminorum.transports.process.full_disk import blaming
from geminorum.wire.launch.settings_file import merged, parsed_settings, with_all_hooks

# Another name than versions had that did not lock their folders: a sweep would take those of their
# running agents for forgotten ones.
_PREFIX = "geminorum-kept-home-"
_SETTINGS = "settings.json"
_OWN_CONTEXT = "GEMINORUM.md"
_OWN_STORES = ("tmp", "history")
"""Where the CLI keeps sessions. Linked even before they exist, or the first run's session would
vanish together with the overlay."""


@dataclass(frozen=True, slots=True)
class HomePlan:
    """What an overlay holds, by path below it."""

    settings: Mapping[str, Any]
    """What goes into `.gemini/settings.json`: the user's and the run's."""
    files: Mapping[str, str]
    links: Mapping[str, Path]
    folders: tuple[str, ...] = ()

    def with_files(self, files: Mapping[str, str]) -> HomePlan:
        """Returns a plan in which these files take the place of whatever has their names."""
        links = {name: target for name, target in self.links.items() if name not in files}
        return replace(self, files={**self.files, **files}, links=links)


def plan_home(base: Path, settings: Mapping[str, Any], instructions: str | None = None) -> HomePlan:
    """Reads the user's home, `base`. ConfigError if it or its settings cannot be used."""
    with _unusable_home(base):
        theirs = _read(base / ".gemini" / _SETTINGS)
        both = with_all_hooks(merged(theirs, settings), theirs, settings)
        plan = HomePlan(both, {}, _links(base))
        return plan if instructions is None else _with_instructions(plan, base, instructions)


class Overlay:
    """A private folder to be GEMINI_CLI_HOME."""

    def __init__(self, base: Path, place: Path | None = None) -> None:
        """`place` is the folder to make it in; None: the temporary folder."""
        self._base = base
        self._folder = OwnedFolder(
            _PREFIX, place, swept=candidates(), on_sweep=UnusedSession.remove_noted_in
        )
        self.path, self.remove = self._folder.path, self._folder.remove

    @classmethod
    def create(
        cls,
        base: Path,
        settings: Mapping[str, Any],
        instructions: str | None = None,
        place: Path | None = None,
    ) -> Overlay:
        """Creates an overlay in which `settings` win over the user's."""
        overlay = cls(base, place)
        overlay.write(plan_home(base, settings, instructions))
        return overlay

    def write(self, plan: HomePlan) -> None:
        """Fills the folder; removes it if that fails."""
        try:
            with _unusable_home(self._base):
                _make_stores(self._base)
                with blaming(self.path.parent):
                    _fill(self.path, plan)
        except SetupError:
            self.remove()
            raise

    def fileno(self) -> int:
        """The lock that keeps the folder while it is in use."""
        return self._folder.fileno()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


def selected_auth(base: Path) -> str | None:
    """The way to log in that the user's settings choose."""
    settings = _read(base / ".gemini" / _SETTINGS)
    auth = _at(_at(settings, "security"), "auth")
    choice = auth.get("selectedType")
    return choice if isinstance(choice, str) else None


def replace_file(file: Path, content: bytes) -> None:
    """Replaces the content in one step, so that no reader sees half a file."""
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    fresh.write_bytes(content)
    fresh.replace(file)


@contextmanager
def _unusable_home(base: Path) -> Iterator[None]:
    try:
        yield
    except SetupError:
        raise
    except (OSError, ValueError) as error:  # No file can have a NUL in its name.
        raise ConfigError(
            f"cannot use the home {str(base)!r}: {error}",
            hint=advice("pass {Options.home=…} with a folder that can be written to"),
        ) from error


def _links(base: Path) -> dict[str, Path]:
    folder = base.absolute() / ".gemini"
    names = {*_OWN_STORES, *(_names_in(folder) if folder.is_dir() else ())} - {_SETTINGS}
    links = {f".gemini/{name}": folder / name for name in names}
    if (base / ".agents").is_dir():
        links[".agents"] = base.absolute() / ".agents"
    return links


def _names_in(folder: Path) -> list[str]:
    return os.listdir(folder)  # noqa: PTH208 - names are wanted


def _with_instructions(plan: HomePlan, base: Path, instructions: str) -> HomePlan:
    """Behind what the user tells every agent, in the file that the CLI reads it from."""
    named = _at(plan.settings, "context").get("fileName") or "GEMINI.md"
    names = [str(name) for name in named] if isinstance(named, list) else [str(named)]
    if Path(names[0]).name != names[0]:
        # In a folder of the user's, which is linked: a file of our own beside it instead.
        both = merged(plan.settings, {"context": {"fileName": [*names, _OWN_CONTEXT]}})
        return replace(plan, settings=both).with_files({f".gemini/{_OWN_CONTEXT}": instructions})
    file = base / ".gemini" / names[0]
    theirs = read_text(file) if file.exists() else ""
    text = f"{theirs}\n\n{instructions}\n" if theirs else instructions
    # A file in place of the link, never through it: the user's own stays as it is.
    return plan.with_files({f".gemini/{names[0]}": text})


def _make_stores(base: Path) -> None:
    for name in _OWN_STORES:
        (base / ".gemini" / name).mkdir(parents=True, exist_ok=True)


def _fill(home: Path, plan: HomePlan) -> None:
    for name in (".gemini", *plan.folders):
        (home / name).mkdir(mode=0o700)
    for name, target in plan.links.items():
        _link(target, _make_folder(home / name))
    for name, text in plan.files.items():
        _make_folder(home / name).write_text(text, encoding="utf-8")
    (home / ".gemini" / _SETTINGS).write_text(json.dumps(plan.settings), encoding="utf-8")


def _make_folder(file: Path) -> Path:
    file.parent.mkdir(mode=0o700, exist_ok=True)
    return file


def _at(data: Any, key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _read(path: Path) -> dict[str, Any]:
    """Settings with comments, as the CLI reads them; a ConfigError where they are broken."""
    try:
        return parsed_settings(read_text(path))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the settings file {str(path)!r} cannot be used: {error}",
            hint=advice("fix it[, or pass {Options.home=…} to run without it]"),
        ) from error


def _link(target: Path, link: Path) -> None:
    if sys.platform == "win32" and target.is_dir():
        # A junction needs no privilege, a symbolic link does.
        import _winapi

        _winapi.CreateJunction(str(target), str(link))
    else:
        os.symlink(target, link)  # noqa: PTH211 - reads in the order of `ln -s`
