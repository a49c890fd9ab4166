"""What a run is surrounded by before it is made: variables, and the home that holds `.gemini`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from geminorum.options import Options
from geminorum.system.search_path import childs_path


def environment_of(options: Options) -> dict[str, str]:
    """The variables of a run; its PATH finds no program in the folder that it works in."""
    env = {**_current_variables(), **options.env}
    return env | {"PATH": childs_path(env["PATH"])} if "PATH" in env else env


_OURS_ALONE = frozenset(
    {"GEMINORUM_DB", "GEMINORUM_INBOX", "GEMINORUM_STORE", "GEMINORUM_WEB_TOKEN"}
)
"""Variables of the command that no agent gets: the URL may have a password, and whoever has it can
read the jobs and sessions of others, and change what their agents remember. Whoever has the token
can answer the questions of agents."""


def _current_variables() -> dict[str, str]:
    """A copy of our own, though another thread may remove some meanwhile."""
    found = {name: os.environ.get(name) for name in os.environ if name not in _OURS_ALONE}
    return {name: value for name, value in found.items() if value is not None}


def home_of(options: Options, env: Mapping[str, str]) -> Path:
    # The environment's home before our own: one process may serve many tenants.
    named = options.home or env.get("GEMINI_CLI_HOME") or env.get("HOME") or Path.home()
    return Path(named).expanduser().absolute()


def upwards(folder: Path) -> list[Path]:
    """The folder and all above it, by the name that was given and by the real one: the CLI knows
    the real one, and a link may lead deep into a clone."""
    chains = ((one, *one.parents) for one in (folder, folder.resolve()))
    return [*dict.fromkeys(parent for chain in chains for parent in chain)]
