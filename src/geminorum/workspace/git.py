"""Runs git so that no repository and no configuration can make it run anything else.

Git is only asked three things: which names an index has, which names are ignored, and for a copy
of a repository. The first two run in an empty repository of our own with a copy of the index: the
configuration, hooks, filters and remotes of the repository in question are never read.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from geminorum.errors import SetupError, WorkspaceError
from geminorum.system.owned_folder import OwnedFolder
from geminorum.system.regular_file import UnfitFile, open_regular, read_bytes
from geminorum.system.search_path import childs_path

TIMEOUT_SECONDS = 120.0
_MAX_POINTER_BYTES = 4096
_INSIDE = ("objects", "refs")
_MAX_INDEX_BYTES = 512 * 1024 * 1024
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
_SHA256 = re.compile(rb"^[ \t]*objectformat[ \t]*=[ \t]*\"?sha256", re.I | re.M)
_MAX_CONFIG_BYTES = 1024 * 1024


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


def is_bare(folder: Path) -> bool:
    """Is it a repository without files, as servers have them?"""
    return (folder / "HEAD").is_file() and all((folder / one).is_dir() for one in _INSIDE)


def _private_folder(dot_git: Path) -> Path | None:
    if dot_git.is_file():
        dot_git = dot_git.parent / _pointer(dot_git).removeprefix("gitdir:").strip()
    return dot_git if (dot_git / "HEAD").is_file() else None


def _shared_folder(private: Path) -> Path:
    pointer = private / "commondir"
    return private / _pointer(pointer).strip() if pointer.is_file() else private


def _pointer(path: Path) -> str:
    """The path in a file that git keeps instead of a folder; no more of it than a path has."""
    with open_regular(path) as file:
        return os.fsdecode(file.read(_MAX_POINTER_BYTES)).partition("\0")[0]


def tracked_names(repository: Repository) -> Mapping[str, bool]:
    """The names in the index, relative to the top; True for a submodule."""
    if not (repository.private / "index").is_file():
        return {}
    with _empty_repository(is_sha256=_is_sha256(repository)) as own:
        # A split index has parts in files of their own.
        for part in (repository.private / "index", *repository.private.glob("sharedindex.*")):
            _copy_index(part, own / part.name)
        # A sparse index names folders, which are trees among the objects.
        where = {"GIT_DIR": own, "GIT_OBJECT_DIRECTORY": repository.shared / "objects"}
        listed = run_git("ls-files", "-z", "--stage", where=where)
    return {name: mode == "160000" for mode, name in map(_staged, _split(listed))}


def _copy_index(path: Path, copy: Path) -> None:
    try:
        if path.stat().st_size > _MAX_INDEX_BYTES:  # It may be sparse: not read before it is told.
            raise UnfitFile(f"it has more than {_MAX_INDEX_BYTES:,} bytes")
        copy.write_bytes(read_bytes(path, _MAX_INDEX_BYTES))
    except OSError as error:
        hint = "look at the repository with `git status`"
        raise WorkspaceError(f"{path} cannot be read: {error}", hint=hint) from error


def ignored_names(folder: Path, rules: str) -> set[str]:
    """The names below a folder that its `.gitignore` files or these rules ignore.

    Folders end with `/`; what is in them is not named.
    """
    which = ("--others", "--ignored", "--exclude-standard", "--directory")
    with _rules_for(folder, rules) as where:
        return set(_split(run_git("ls-files", "-z", *which, where=where, cwd=folder)))


def ignored_among(folder: Path, rules: str, names: Iterable[str]) -> set[str]:
    """Which of these names are ignored, also in repositories within the folder."""
    asked = b"".join(os.fsencode(f"{name}\0") for name in names)
    if not asked:
        return set()
    which = ("check-ignore", "--no-index", "-z", "--stdin")
    with _rules_for(folder, rules) as where:
        # 1: none of them.
        return set(_split(run_git(*which, where=where, cwd=folder, words=asked, fine=(0, 1))))


@contextmanager
def _rules_for(folder: Path, rules: str) -> Iterator[Mapping[str, Path]]:
    with _empty_repository() as own:
        (own / "info/exclude").write_bytes(rules.encode("utf-8", "surrogateescape"))
        yield {"GIT_DIR": own, "GIT_WORK_TREE": folder}


def run_git(
    *arguments: str,
    where: Mapping[str, Path] | None = None,
    cwd: Path | None = None,
    words: bytes = b"",
    fine: Collection[int] = (0,),
) -> bytes:
    """Runs git with nobody's configuration; WorkspaceError with git's words if it fails.

    `words` go to its stdin, and `fine` are the exit codes that are no failure.
    """
    settings = [word for pair in _SETTINGS.items() for word in ("-c", "=".join(pair))]
    done = _run([_program(), *settings, *arguments], _environment(where or {}), cwd, words)
    if done.returncode not in fine:
        raise _failed(arguments[0], done.stderr.decode("utf-8", "replace"))
    return done.stdout


def _failed(command: str, said: str) -> WorkspaceError:
    hint = next((hint for sign, hint in _HINTS.items() if sign in said.lower()), None)
    return WorkspaceError(f"git {command} failed: {_reason_in(said)}", hint=hint)


_WHICH_REF = "name a branch, a tag or a whole commit: `git ls-remote` lists them"
_LOGIN = "put a login for the host into ~/.netrc, or use git+ssh://"
_HINTS = {
    "dubious ownership": "it belongs to another user: make a clone of your own, and pack that",
    "couldn't find remote ref": _WHICH_REF,
    "not our ref": _WHICH_REF,
    "invalid refspec": _WHICH_REF,
    "could not read username": _LOGIN,
    "authentication failed": _LOGIN,
    "permission denied (": "add a key to your SSH agent: ssh-add",
    "host key verification failed": "connect to the host with ssh once, which saves its key",
    "could not resolve host": "check the address, and the network",
    "unable to access": "check the address, and the network",
    "does not appear to be a git repository": "check the address; a ref comes after the last @",
    "no space left": "make room on the disk, then try again",
}
"""By what git says, in small letters."""


def _reason_in(said: str) -> str:
    """The line that says why: git's advice comes after it, and other words before it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    reasons = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return next(iter(reasons or lines[-1:]), "it did not say why")


def _program() -> str:
    program = shutil.which("git", path=childs_path(os.environ.get("PATH", "")))
    if program is None:
        hint = "install git, or pack a folder that is no git repository"
        raise SetupError("there is no git on PATH", hint=hint)
    return program


def _run(
    command: list[str], environment: dict[str, str], cwd: Path | None, words: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    # In a session of its own: what git starts, such as ssh, ends with it.
    with subprocess.Popen(  # nosec B603
        command,
        env=environment,
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(words, TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as error:
            _kill(process)
            text = f"git took longer than {TIMEOUT_SECONDS:.0f} seconds"
            hint = "look for a pipe named .gitignore, or a slow server"
            raise WorkspaceError(text, hint=hint) from error
        except BaseException:
            _kill(process)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


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
    if not config.is_file():
        return False
    with open_regular(config) as file:  # It may be anybody's: no more of it than one has.
        return _SHA256.search(file.read(_MAX_CONFIG_BYTES)) is not None


def _split(output: bytes) -> list[str]:
    return [os.fsdecode(part) for part in output.split(b"\0") if part]


def _staged(line: str) -> tuple[str, str]:
    facts, _, name = line.partition("\t")
    return facts.split(" ")[0], name


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
