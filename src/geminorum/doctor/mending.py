"""Safe, automatic fixes for findings of the doctor."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from geminorum.doctor.finding import Check
from geminorum.errors import ConfigError
from geminorum.install import install_cli, private_folder
from geminorum.system.regular_file import read_text

_EDIT = re.compile(r"put into (?P<file>.+?): (?P<settings>\{.*\})")


class Remedy(NamedTuple):
    """A fix that adds what is missing and removes nothing."""

    what: str
    """What it would do, worded to ask for confirmation."""
    apply: Callable[[], str]
    """Applies the fix and returns what was done. Raises a GeminorumError if it fails."""


def remedy_for(check: Check) -> Remedy | None:
    """Returns the fix; None if nothing is wrong, or if only the owner should act."""
    if check.level == "ok":
        return None
    if check.code == "CLI_NOT_FOUND" and check.name == "cli":
        return Remedy("Install the Gemini CLI into a folder of geminorum's own?", _install)
    if edit := _EDIT.fullmatch(check.fix):
        file, settings = Path(edit["file"]), edit["settings"]
        if file.name == "settings.json":
            return Remedy(f"Add {settings} to {file}?", lambda: _add(file, json.loads(settings)))
    return None


def _install() -> str:
    return f"installed at {install_cli(private_folder()).path}"


def _add(file: Path, settings: dict[str, object]) -> str:
    try:
        there = json.loads(read_text(file) or "{}") if file.exists() else {}
        text = json.dumps(_merged(there, settings), indent=2) + "\n"
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f"{file.name}.new")
        # Settings may hold keys: for their owner alone, unless they were open before.
        beside.touch(mode=0o600)
        if file.exists():
            shutil.copymode(file, beside)
        beside.write_text(text, encoding="utf-8")
        beside.replace(file)  # In one step: a file that is half written would stop the CLI.
    except (OSError, ValueError, TypeError, RecursionError) as error:
        # Comments are allowed there; to write it anew would lose them.
        hint = f"put it in by hand: {json.dumps(settings)}"
        raise ConfigError(f"{file} is left as it is: {error}", hint=hint) from error
    return f"wrote {file}"


def _merged(there: object, more: dict[str, object]) -> dict[str, object]:
    if not isinstance(there, dict):
        raise TypeError(f"it holds a {type(there).__name__} where settings should be")
    both = dict(there)
    for key, value in more.items():
        both[key] = _merged(both.get(key, {}), value) if isinstance(value, dict) else value
    return both
