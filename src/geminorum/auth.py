"""Determines from environment and settings which login a run would use, and what selects it.

It never returns the secret itself: only the variable of a key or the file of credentials.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from geminorum.environment import environment_of, home_of, upwards
from geminorum.events import Billing
from geminorum.options import Options
from geminorum.system.regular_file import read_text
from geminorum.wire.launch.settings_file import parsed_settings

Mode: TypeAlias = Literal["api_key", "vertex", "google_account", "compute", "refused", "none"]

# What is blank is looked at once, and only within a line: a file may hold nothing else.
_DOTENV_LINE = re.compile(r"^[^\S\n]*+(?:export\s++)?([\w.]++)\s*+=[ \t]*+([^\n]*+)", re.M)
_GOOGLE_LOGIN = "oauth-personal"
_MODES: Mapping[str | None, Mode] = {
    "gemini-api-key": "api_key",
    "vertex-ai": "vertex",
    "oauth-personal": "google_account",
    "compute-default-credentials": "compute",
    None: "none",
}
_MEANT = ("oauth-personal", "vertex-ai", "gemini-api-key")
"""What a caller can mean by variables; a base URL is no login."""


class Auth(msgspec.Struct, frozen=True):
    """How a run would log in."""

    mode: Mode
    """`refused`: a choice that the CLI does not accept. `none`: nothing to choose from."""
    chosen_by: str = ""
    """The variable or the settings file that decided."""
    choice: str = ""
    """The CLI's own name for it, if one was set."""
    credential: str = ""
    """The variable or file that holds the secret; empty if none is visible."""
    missing: str = ""
    """Variables that the CLI requires and that are not set."""


def auth_mode(options: Options | None = None, env: Mapping[str, str] | None = None) -> Auth:
    """Returns which login a run with these options would use, and what decided that.

    `env` is the run's whole environment. None: this process's variables plus `options.env`.
    """
    options = options or Options()
    env = environment_of(options) if env is None else env
    home = home_of(options, env)
    # A folder's own is disarmed for our runs.
    found = dotenv_variables(options, home)
    dotenv = {name: said for name, said in found.items() if said[1].parent.parent == home}
    choice, chosen_by = _choice(options, env, dotenv)
    # The choice falls before the CLI reads that file; the key itself may still come from there.
    seen = {name: str(path) for name, (_, path) in dotenv.items()}
    seen |= {name: "" for name, value in env.items() if value}
    return _completed(Auth(_MODES.get(choice, "refused"), chosen_by, choice or ""), seen, env, home)


def _choice(
    options: Options, env: Mapping[str, str], dotenv: Mapping[str, tuple[str, Path]]
) -> tuple[str | None, str]:
    users = home_of(options, env) / ".gemini" / "settings.json"
    for path in settings_files(options, env):
        if selected := _selected(path):
            given = login_given(options) if path == users else None
            return given if given and outranked(selected, options) else (selected, str(path))
    others = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA")
    if env.get("GEMINI_API_KEY") and not any(env.get(name) for name in others):
        # Our runs write this choice into their settings, so a base URL does not matter.
        return "gemini-api-key", "GEMINI_API_KEY"
    if is_trusted_at_start(options, env):
        env = {**{name: value for name, (value, _) in dotenv.items()}, **env}
    return next(_choices_of_environment(env), (None, ""))


def login_given(options: Options) -> tuple[str, str] | None:
    """The login that the caller's own variables mean, and the one that says so. What only stands
    in the environment of this process was not given by the caller."""
    chosen = [found for found in _choices_of_environment(options.env) if found[0] in _MEANT]
    return chosen[0] if chosen else None


def outranked(selected: str | None, options: Options) -> str | None:
    """The login to choose in place of the one that the user's settings select; None: that one.

    A Google login may be years old, and the caller knows better.
    """
    given = login_given(options)
    return given[0] if given and selected == _GOOGLE_LOGIN != given[0] else None


def _choices_of_environment(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """In the CLI's own order. Only the word `true` counts, not `1`."""
    if env.get("GOOGLE_GENAI_USE_GCA") == "true":
        yield "oauth-personal", "GOOGLE_GENAI_USE_GCA"
    if env.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        yield "vertex-ai", "GOOGLE_GENAI_USE_VERTEXAI"
    if env.get("GOOGLE_GEMINI_BASE_URL"):
        yield "gateway", "GOOGLE_GEMINI_BASE_URL"
    if env.get("GEMINI_API_KEY"):
        yield "gemini-api-key", "GEMINI_API_KEY"
    for name in ("CLOUD_SHELL", "GEMINI_CLI_USE_COMPUTE_ADC"):
        if env.get(name) == "true":
            yield "compute-default-credentials", name


# ---- what belongs to it


def _completed(auth: Auth, seen: Mapping[str, str], env: Mapping[str, str], home: Path) -> Auth:
    """`seen` maps each variable to the file it comes from, "" for the environment."""
    credential, missing = "", ""
    if auth.mode == "api_key":
        credential = _named("GEMINI_API_KEY", seen) or _file(home / ".gemini" / _STORED_KEY)
        missing = "" if credential else "GEMINI_API_KEY"
    elif auth.mode == "vertex":
        credential = _named("GOOGLE_API_KEY", seen) or _default_credentials(env, home)
        wanted = ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION")
        if "GOOGLE_API_KEY" not in seen:
            missing = " and ".join(name for name in wanted if name not in seen)
    elif auth.mode == "google_account":
        credential = _file(home / ".gemini" / "oauth_creds.json")
    elif auth.mode == "compute":
        credential = "the metadata server"
    return msgspec.structs.replace(auth, credential=credential, missing=missing)


_STORED_KEY = "gemini-credentials.json"


def _named(name: str, seen: Mapping[str, str]) -> str:
    if name not in seen:
        return ""
    return f"{name} in {seen[name]}" if seen[name] else name


def _default_credentials(env: Mapping[str, str], home: Path) -> str:
    if named := env.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return "GOOGLE_APPLICATION_CREDENTIALS" if Path(named).is_file() else ""
    # Google's libraries know nothing of GEMINI_CLI_HOME.
    root = Path(env.get("HOME") or home)
    folder = env.get("CLOUDSDK_CONFIG") or env.get("APPDATA", root / ".config") / Path("gcloud")
    return _file(Path(folder) / "application_default_credentials.json")


def _file(path: Path) -> str:
    return str(path) if path.is_file() else ""


# ---- where it is written


def settings_files(options: Options, env: Mapping[str, str]) -> list[Path]:
    """The settings files that decide, the strongest first."""
    system, defaults = system_settings(env)
    folder = Path(options.cwd or ".").expanduser().absolute() / ".gemini" / "settings.json"
    return [
        *filter(is_read_by_cli, [system]),
        *([folder] if is_trusted_at_start(options, env) else []),
        home_of(options, env) / ".gemini" / "settings.json",
        *filter(is_read_by_cli, [defaults]),
    ]


def is_trusted_at_start(options: Options, env: Mapping[str, str]) -> bool:
    """`--skip-trust` comes too late for the folder's settings; only the variable is in time."""
    return options.trust_workspace is True or env.get("GEMINI_CLI_TRUST_WORKSPACE") == "true"


def system_settings(env: Mapping[str, str]) -> tuple[Path, Path]:
    """The machine's settings, and its defaults below everybody's."""
    places = {
        "darwin": "/Library/Application Support/GeminiCli",
        "win32": r"C:\ProgramData\gemini-cli",
    }
    folder = Path(places.get(sys.platform, "/etc/gemini-cli"))
    system = Path(env.get("GEMINI_CLI_SYSTEM_SETTINGS_PATH") or folder / "settings.json")
    defaults = env.get("GEMINI_CLI_SYSTEM_DEFAULTS_PATH") or system.with_name(
        "system-defaults.json"
    )
    return system, Path(defaults)


def is_read_by_cli(path: Path) -> bool:
    """Since 0.60 the CLI passes over a system file that others than root could have changed."""
    if not path.is_file() or os.name == "nt":
        return path.is_file()
    stats = [place.stat() for place in (path.resolve(), *path.resolve().parents)]
    return all(entry.st_uid == 0 and not entry.st_mode & 0o022 for entry in stats)


def read_settings(path: Path) -> dict[str, Any]:
    """Settings with comments, as the CLI reads them; ValueError or OSError where it cannot."""
    if not path.exists():
        return {}
    text = read_text(path)
    if not text.strip():
        raise ValueError("it is empty; write at least {}")
    settings = parsed_settings(text)
    json.dumps(settings, allow_nan=False)  # NaN, which Python reads and JavaScript refuses
    return settings


def _selected(path: Path) -> str | None:
    try:
        settings = read_settings(path)
    except (OSError, ValueError):
        return None  # The CLI stops at a broken file, so nothing is chosen by it.
    match settings:
        case {"security": {"auth": {"selectedType": str(selected)}}}:
            return selected
        case _:
            return None


def payer(options: Options, env: Mapping[str, str]) -> Billing | None:
    """Who is billed for a run; None where that is not to be seen."""
    try:
        mode = auth_mode(options, env).mode
    except (OSError, ValueError):
        return None
    return mode if mode in ("api_key", "vertex", "google_account") else None


def dotenv_variables(options: Options, home: Path) -> dict[str, tuple[str, Path]]:
    """What the nearest `.gemini/.env` sets, from the folder upwards and at last in the home.

    Of a folder's own, plain `gemini` obeys everything; our runs do not unless `Cli(dotenv=True)`.
    """
    cwd = Path(options.cwd or ".").expanduser().absolute()
    places = [folder / ".gemini" / ".env" for folder in (*upwards(cwd), home)]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        return {}
    try:
        lines = _DOTENV_LINE.findall(read_text(file, errors="replace"))
    except OSError:
        return {}
    said = [(name, value.rstrip().strip("\"'")) for name, value in lines]
    return {name: (value, file) for name, value in said if value}
