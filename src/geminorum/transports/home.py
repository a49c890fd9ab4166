"""A home for one run: the user's own folders, with the run's settings laid on top.

The user's files stay as they are, byte for byte: their folders are linked, their settings are
merged into a copy, and the whole overlay is removed when the block ends.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geminorum.errors import ConfigError, SetupError
from geminorum.owned_folder import OwnedFolder
from geminorum.regular_file import read_text
from geminorum.transports.control_place import candidates
from geminorum.transports.full_disk import blaming
from geminorum.wire.settings_file import parsed_settings

# Another name than versions had that did not lock their folders: a sweep would take those of their
# running agents for forgotten ones.
_PREFIX = "geminorum-kept-home-"
_SETTINGS = "settings.json"
_OWN_CONTEXT = "GEMINORUM.md"
_OWN_STORES = ("tmp", "history")
"""Where the CLI keeps sessions. Linked even before they exist, or the first run's session would
vanish together with the overlay."""


class Overlay:
    """A private folder to be GEMINI_CLI_HOME, in which `settings` win over the user's."""

    def __init__(
        self,
        base: Path,
        settings: Mapping[str, Any],
        instructions: str | None = None,
        place: Path | None = None,
    ) -> None:
        """`place` is the folder to make it in; None: the temporary folder."""
        self._folder = OwnedFolder(_PREFIX, place, swept=candidates())
        self.path, self.remove = self._folder.path, self._folder.remove
        try:
            _make_stores(base)
            with blaming(self.path.parent):
                _fill(self.path, base, settings)
                if instructions is not None:
                    _append(self.path / ".gemini", instructions)
        except SetupError:
            self.remove()
            raise
        except (OSError, ValueError) as error:  # No file can have a NUL in its name.
            self.remove()
            raise ConfigError(
                f"cannot use the home {str(base)!r}: {error}",
                hint="pass Options(home=…) with a folder that can be written to",
            ) from error

    def fileno(self) -> int:
        """What holds the folder for as long as somebody needs it."""
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


def merged(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Both, with `top` winning, dictionaries merged to any depth."""
    both = dict(base)
    for key, value in top.items():
        below = both.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            value = merged(below, value)
        both[key] = value
    return both


def replace_file(file: Path, content: bytes) -> None:
    """Puts the content in place in one step: nobody reads half a file."""
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    fresh.write_bytes(content)
    fresh.replace(file)


def _at(data: Any, key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _make_stores(base: Path) -> None:
    for name in _OWN_STORES:
        (base / ".gemini" / name).mkdir(parents=True, exist_ok=True)


def _fill(home: Path, base: Path, settings: Mapping[str, Any]) -> None:
    theirs, ours = base / ".gemini", home / ".gemini"
    ours.mkdir(mode=0o700)
    for entry in theirs.iterdir():
        if entry.name != _SETTINGS:
            _link(entry, ours / entry.name)
    if (base / ".agents").is_dir():
        _link(base / ".agents", home / ".agents")
    _write_settings(theirs / _SETTINGS, ours / _SETTINGS, settings)


def _append(ours: Path, instructions: str) -> None:
    """Behind what the user tells every agent, in the file that the CLI reads it from."""
    settings = _read(ours / _SETTINGS)
    named = _at(settings, "context").get("fileName") or "GEMINI.md"
    names = [str(name) for name in named] if isinstance(named, list) else [str(named)]
    if Path(names[0]).name != names[0]:
        # In a folder of the user's, which is linked: a file of our own beside it instead.
        (ours / _OWN_CONTEXT).write_text(instructions, encoding="utf-8")
        both = merged(settings, {"context": {"fileName": [*names, _OWN_CONTEXT]}})
        (ours / _SETTINGS).write_text(json.dumps(both), encoding="utf-8")
        return
    file = ours / names[0]
    theirs = read_text(file) if file.exists() else ""
    # A file in place of the link, never through it: the user's own stays as it is.
    file.unlink(missing_ok=True)
    file.write_text(f"{theirs}\n\n{instructions}\n" if theirs else instructions, encoding="utf-8")


def _write_settings(theirs: Path, ours: Path, settings: Mapping[str, Any]) -> None:
    own = _read(theirs)
    both = {**merged(own, settings), **_all_hooks(own, settings)}
    ours.write_text(json.dumps(both), encoding="utf-8")


def _all_hooks(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """The hooks of both, theirs first: one that guards the user must not go when we add ours."""
    both = merged(_at(theirs, "hooks"), _at(ours, "hooks"))
    for event, rules in _at(ours, "hooks").items():
        before = _at(theirs, "hooks").get(event)
        if isinstance(before, list) and isinstance(rules, list):
            both[event] = [*before, *rules]
    return {"hooks": both} if both else {}


def _read(path: Path) -> dict[str, Any]:
    """Settings with comments, as the CLI reads them; a ConfigError where they are broken."""
    try:
        return parsed_settings(read_text(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the settings file {str(path)!r} cannot be used: {error}",
            hint="fix it, or pass Options(home=…) to run without it",
        ) from error


def _link(target: Path, link: Path) -> None:
    if sys.platform == "win32" and target.is_dir():
        # A junction needs no privilege, a symbolic link does.
        import _winapi

        _winapi.CreateJunction(str(target), str(link))
    else:
        os.symlink(target.absolute(), link)  # noqa: PTH211 - reads in the order of `ln -s`
