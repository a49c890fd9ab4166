"""What was typed on the command line, as the `Options` of a run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import geminorum
from geminorum.apps.command.flags.problems import problems_in
from geminorum.apps.command.flags.table import OPTIONS_FLAGS, Via
from geminorum.errors import InvalidOptions

STORE_VARIABLE = "GEMINORUM_STORE"


def misuse(problem: str, flag: str | None = None) -> Exception:
    """The error for something that was typed wrong."""
    # Loaded for an error only: it takes longer than everything else up to the agent's start.
    from typer import BadParameter

    return BadParameter(problem, param_hint=flag)


def with_options(given: dict[str, Any], *, travels: bool = False) -> dict[str, Any]:
    """The values of a command's parameters with `options` instead of those of its flags.

    `travels`: the run will be on another machine, whose folders and sessions they name.
    """
    own = {name: value for name, value in given.items() if name not in OPTIONS_FLAGS}
    fields = {name: given[name] for name in OPTIONS_FLAGS}
    file = own.pop("options_file")
    if travels:
        return {**own, "options": options_from(fields, file, travels=True)}
    # The API has no sessions, and says so itself.
    saves = own.get("via") is not Via.API
    store = os.environ.get(STORE_VARIABLE) if saves else None
    if saves and not (fields["store"] or store):
        fields["resume"] = _whole_id(fields)
    options = options_from(fields, file)
    return {**own, "options": options.changed(store=options.store or store or None)}


def _whole_id(fields: dict[str, Any]) -> str | None:
    """The session to resume, by its whole id, as `Options` takes it; here its beginning is enough.

    One that is not there stays as it was typed: the transport says what is wrong.
    """
    typed: str | None = fields["resume"]
    if typed in (None, "latest"):
        return typed
    home = fields["home"] or _variables(fields["env"] or []).get("GEMINI_CLI_HOME")
    info = geminorum.sessions.find(session_id=typed, home=home)
    return info.id if info else typed


def options_from(
    fields: dict[str, Any], file: Path | None = None, *, travels: bool = False
) -> geminorum.Options:
    """What was typed, as Options; what was not typed is what the file says, or the default."""
    typed = {name: value for name, value in fields.items() if value not in (None, [], ())}
    readers: dict[str, Callable[[Any], Any]] = {
        "policy": policy_from,
        "env": _variables,
        "output_schema": _schema,
        "approval": str,
        "effort": str,
        "home": _same if travels else _folder,
    }
    values = {name: readers.get(name, _same)(value) for name, value in typed.items()}
    if file is None:
        return geminorum.Options(**values)
    return _options_in(file, travels=travels).changed(**values)


def _options_in(file: Path, *, travels: bool) -> geminorum.Options:
    data = data_in(file, "--options")
    if problems := problems_in(data):
        raise misuse(f"{file}: {'; '.join(problems)}", "--options")
    options = geminorum.Options.from_dict(data)
    if options.home is not None and not travels:
        _folder(options.home)
    return options


def _folder(path: Any) -> Any:
    """A home that is there: one that is mistyped would be made, and have no login."""
    if not Path(path).is_dir():
        text = f"there is no folder {path}; to create an empty one: mkdir {shlex.quote(str(path))}"
        raise misuse(text, "--home")
    return path


def policy_from(text: str) -> geminorum.Policy:
    """A Policy from a JSON or TOML file, or from `file_write=allow,shell_execute=deny`."""
    try:
        return geminorum.Policy.from_dict(_policy_data(text))
    except InvalidOptions as error:
        advice = "write allow, ask or deny for file_write, shell_execute, network_access"
        raise misuse(f"{error.message}; {advice}", "--policy") from error


def _policy_data(text: str) -> Any:
    if "=" in text and not Path(text).exists():
        pairs = [pair.partition("=") for pair in text.split(",")]
        return {name.strip(): level.strip() for name, _, level in pairs}
    data = data_in(Path(text), "--policy")
    if not isinstance(data, dict):
        raise misuse(f"{text} is not a table of capabilities", "--policy")
    return data


def data_in(path: Path, flag: str) -> Any:
    """What a JSON or TOML file of the user's holds."""
    import json
    import tomllib

    text = text_in(path, flag)
    try:
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise misuse(f"{path}: {error}", flag) from error


def text_in(path: Path, flag: str) -> str:
    """The text of a file of the user's; a folder, or a file that is not there, is his mistake."""
    if path.is_dir():
        raise misuse(f"{path} is a folder; name a file in it", flag)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise misuse(f"there is no file {path}", flag) from error
    except (OSError, UnicodeDecodeError) as error:
        raise misuse(f"cannot read {path}: {error}", flag) from error


def _variables(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise misuse(f"{pair!r}; write NAME=VALUE", "--env")
    return dict(pair.split("=", 1) for pair in pairs)


def _schema(path: Path) -> Any:
    return data_in(path, "--output-schema")


def _same(value: Any) -> Any:
    return value
