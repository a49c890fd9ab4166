"""What a start depends on that the CLI itself does not look at, so that no record has it.

Git and MCP servers are processes of their own, Node reads certificates without JavaScript, and what
a process may do, it has from the one that starts it.
"""

from __future__ import annotations

import json
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from geminorum.system.regular_file import read_text
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.preloads.start_record import TOO_FRESH_NS, State, state_of
from geminorum.transports.process.inherited import inherited

_READ_BY_GIT = ("config", "config.worktree", "commondir")
_READ_BY_NODE = ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "OPENSSL_CONF")
"""Variables that name a file."""
_EXTENSIONS, _EXTENSION = ".gemini/extensions", "gemini-extension.json"

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """Equal for two starts that find the same."""

    inherited: tuple[object, ...]
    files: Mapping[str, State | None]

    def difference(self, other: Unrecorded) -> str | None:
        """In words; None if there is none."""
        if self.inherited != other.inherited:
            return "it has other rights, limits or another umask"
        changed = {*self.files.items()} ^ {*other.files.items()}
        return f"{min(name for name, _ in changed)!r} has changed" if changed else None


def look_around(context: LaunchContext, settings: Settings, env: Mapping[str, str]) -> Unrecorded:
    """`settings` are those of the user and of the run, `env` is what the CLI starts with."""
    files = [
        *(file for folder in context.folders for file in _read_by_git(folder)),
        *_configuration_of_git(env),
        *(context.cwd / env[name] for name in _READ_BY_NODE if env.get(name)),
        *_read_by_servers(context, settings, env),
    ]
    return Unrecorded(inherited(), {str(file): _settled_state(str(file)) for file in files})


def _settled_state(file: str) -> State | None:
    state = state_of(file)
    if state is None or stat.S_ISDIR(int(state[2])):
        # Git writes to its folder all the time.
        return state and state[:5]
    now = time.time_ns()
    # Another write may leave the same time: what was written just now is like nothing else.
    return (*state, str(now)) if now - int(state[-1]) < TOO_FRESH_NS else state


def _read_by_git(folder: Path) -> Iterator[Path]:
    """To say where the repository of the folder begins, and where it keeps its data."""
    real = folder.resolve()
    for above in (real, *real.parents):
        yield above / ".git"
        if state_of(str(above / ".git")) is not None:
            yield from (one / name for one in _data_of(above) for name in _READ_BY_GIT)
            return


def _data_of(repository: Path) -> list[Path]:
    """Two folders in a linked worktree: its own, and the one that it shares."""
    found = repository / ".git"
    if not (line := _line_in(found)).startswith("gitdir:"):
        return [found]
    own = repository / line.removeprefix("gitdir:").strip()
    return [own, own / _line_in(own / "commondir")]


def _line_in(file: Path) -> str:
    try:
        return read_text(file).strip().partition("\n")[0]
    except (OSError, ValueError):
        return ""


def _configuration_of_git(env: Mapping[str, str]) -> Iterator[Path]:
    """It says, for one, whose repositories git opens."""
    home = Path(env.get("HOME") or "/")
    yield Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "git/config"
    yield Path(env.get("GIT_CONFIG_GLOBAL") or home / ".gitconfig")
    yield Path(env.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig")


def _read_by_servers(
    context: LaunchContext, settings: Settings, env: Mapping[str, str]
) -> Iterator[Path]:
    """The programs of the MCP servers, and the files among their arguments."""
    for one in (settings, *context.settings_above.values(), *_extensions(context.home)):
        for server in _at(one, "mcpServers").values():
            if isinstance(server, Mapping):
                yield from _read_by_server(server, context.cwd, env)


def _read_by_server(server: Settings, cwd: Path, env: Mapping[str, str]) -> Iterator[Path]:
    variables = {**env, **{name: str(text) for name, text in _at(server, "env").items()}}

    def spelled_out(value: object) -> str:
        return Template(value).safe_substitute(variables) if isinstance(value, str) else ""

    folder = cwd / spelled_out(server.get("cwd"))
    if command := spelled_out(server.get("command")):
        found = shutil.which(command, path=variables.get("PATH"))
        yield folder / (found or command)
    given = server.get("args")
    for word in given if isinstance(given, list) else ():
        # `--config=file` names one, too.
        names = {spelled_out(word), spelled_out(word).rpartition("=")[2]}
        yield from (folder / name for name in sorted(names) if _is_file(folder / name))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # Too long for a name, or with a NUL.
        return False


def _extensions(home: Path) -> Iterable[Settings]:
    """What the user's extensions say of their servers."""
    for file in sorted((home / _EXTENSIONS).glob(f"*/{_EXTENSION}")):
        try:
            text = read_text(file)
            # A JSON text in a JSON text: the name of a folder may hold a quotation mark.
            data = json.loads(text.replace("${extensionPath}", json.dumps(str(file.parent))[1:-1]))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            yield data


def _at(data: Settings, key: str) -> Settings:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}
