"""Runs git so that no repository and no configuration can make it run anything else.

Git is only asked three things: which names an index has, which names are ignored, and for a copy
of a repository. The first two run in an empty repository of our own with a copy of the index: the
configuration, hooks, filters and remotes of the repository in question are never read.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from geminorum.errors import SetupError, WorkspaceError
from geminorum.system.owned_folder import OwnedFolder
from geminorum.system.search_path import childs_path

TIMEOUT_SECONDS = 120.0
_NOTHING = os.devnull
_SETTINGS = {
    "core.hooksPath": _NOTHING,
    "core.fsmonitor": "false",
    "core.autocrlf": "false",
    "core.symlinks": "true",
    "core.excludesFile": _NOTHING,
    "core.attributesFile": _NOTHING,
    "core.sshCommand": "ssh -oBatchMode=yes",
    "credential.helper": "",
    "submodule.recurse": "false",
}
_CONFIG = "[core]\nrepositoryformatversion = 0\nbare = false\n"
_SHA256_CONFIG = _CONFIG.replace("= 0", "= 1") + "[extensions]\nobjectformat = sha256\n"
_SHA256 = re.compile(rb"^\s*objectformat\s*=\s*\"?sha256", re.I | re.M)


class Repository(NamedTuple):
    """A repository that a folder belongs to."""

    top: Path
    private: Path
    """Where its index is; a linked worktree has a folder of its own for it."""
    shared: Path
    """Where its objects and its configuration are."""


def find_repository(folder: Path) -> Repository | None:
    """Finds the repository of a folder without asking git, which would read its configuration."""
    for top in (folder, *folder.parents):
        private = _private_folder(top / ".git")
        if private is not None:
            return Repository(top, private, _shared_folder(private))
    return None


def _private_folder(dot_git: Path) -> Path | None:
    if dot_git.is_file():
        words = dot_git.read_bytes()[:4096].decode("utf-8", "surrogateescape")
        dot_git = dot_git.parent / words.removeprefix("gitdir:").strip()
    return dot_git if (dot_git / "HEAD").is_file() else None


def _shared_folder(private: Path) -> Path:
    pointer = private / "commondir"
    return private / pointer.read_text().strip() if pointer.is_file() else private


def tracked_names(repository: Repository) -> Mapping[str, bool]:
    """The names in the index, relative to the top; True for a submodule."""
    if not (repository.private / "index").is_file():
        return {}
    with _empty_repository(is_sha256=_is_sha256(repository)) as own:
        # A split index has parts in files of their own.
        for part in (repository.private / "index", *repository.private.glob("sharedindex.*")):
            shutil.copyfile(part, own / part.name)
        # A sparse index names folders, which are trees among the objects.
        where = {"GIT_DIR": own, "GIT_OBJECT_DIRECTORY": repository.shared / "objects"}
        listed = run_git("ls-files", "-z", "--stage", where=where)
    return {name: mode == "160000" for mode, name in map(_staged, _split(listed))}


def ignored_names(folder: Path, rules: str) -> set[str]:
    """The names below a folder that its `.gitignore` files or these rules ignore.

    Folders end with `/`; what is in them is not named.
    """
    with _empty_repository() as own:
        (own / "info/exclude").write_bytes(rules.encode("utf-8", "surrogateescape"))
        where = {"GIT_DIR": own, "GIT_WORK_TREE": folder}
        which = ("--others", "--ignored", "--exclude-standard", "--directory")
        return set(_split(run_git("ls-files", "-z", *which, where=where, cwd=folder)))


def run_git(
    *arguments: str, where: Mapping[str, Path] | None = None, cwd: Path | None = None
) -> bytes:
    """Runs git with nobody's configuration; WorkspaceError with git's words if it fails."""
    settings = [word for pair in _SETTINGS.items() for word in ("-c", "=".join(pair))]
    done = _run([_program(), *settings, *arguments], _environment(where or {}), cwd)
    if done.returncode:
        raise WorkspaceError(f"git {arguments[0]} failed: {_last_words(done.stderr)}")
    return done.stdout


def _program() -> str:
    program = shutil.which("git", path=childs_path(os.environ.get("PATH", "")))
    if program is None:
        hint = "install git, or pack a folder that is no git repository"
        raise SetupError("there is no git on PATH", hint=hint)
    return program


def _run(
    command: list[str], environment: dict[str, str], cwd: Path | None
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(  # nosec B603
            command,
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        text = f"git took longer than {TIMEOUT_SECONDS:.0f} seconds"
        hint = "look for a pipe named .gitignore, or a slow server"
        raise WorkspaceError(text, hint=hint) from error


def _environment(where: Mapping[str, Path]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **kept,
        "PATH": childs_path(os.environ.get("PATH", "")),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": _NOTHING,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ALLOW_PROTOCOL": "file:https:ssh",
        **{name: os.fspath(path) for name, path in where.items()},
    }


@contextmanager
def _empty_repository(*, is_sha256: bool = False) -> Iterator[Path]:
    """As `git init` makes it, which would be one more process and read templates."""
    with OwnedFolder("geminorum-git-") as own:
        for name in ("objects", "refs", "info"):
            (own / name).mkdir()
        (own / "HEAD").write_text("ref: refs/heads/none\n")
        (own / "config").write_text(_SHA256_CONFIG if is_sha256 else _CONFIG)
        yield own


def _is_sha256(repository: Repository) -> bool:
    config = repository.shared / "config"
    return config.is_file() and _SHA256.search(config.read_bytes()) is not None


def _split(output: bytes) -> list[str]:
    return [os.fsdecode(part) for part in output.split(b"\0") if part]


def _staged(line: str) -> tuple[str, str]:
    facts, _, name = line.partition("\t")
    return facts.split(" ")[0], name


def _last_words(stderr: bytes) -> str:
    lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it did not say why"


def user_ignore_file() -> Path:
    """The file of names that this user never wants in a repository.

    The user's own configuration is trusted, and to read a value of it starts nothing.
    """
    asked = ("config", "--global", "--type=path", "--get", "core.excludesFile")
    done = _run([_program(), *asked], dict(os.environ), None)
    if named := os.fsdecode(done.stdout.rstrip(b"\n")):
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "git/ignore"
