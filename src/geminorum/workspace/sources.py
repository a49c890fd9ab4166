"""Where a workspace comes from: a folder, or a git repository by its address and a ref."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from geminorum.errors import InvalidOptions
from geminorum.system.owned_folder import OwnedFolder
from geminorum.workspace.git import run_git

_PREFIX = "git+"
_SCHEMES = ("https", "ssh", "file")
# As git allows, but for what would make it an option or a pattern of refs.
_REF = re.compile(r"(?![-+./@])[^\x00-\x20\x7f~^:?*\[\\]+")


class GitSource(NamedTuple):
    """A repository's address and what to take of it."""

    url: str
    ref: str = "HEAD"


def is_git_source(source: str | os.PathLike[str]) -> bool:
    """Is it an address of a git repository, and not a path?"""
    return isinstance(source, str) and source.startswith(_PREFIX)


def git_source(text: str) -> GitSource:
    """Reads `git+https://host/path@ref`; InvalidOptions if it is not of that form.

    No other scheme is possible: `ext::` and its kin run a program that the address names.
    """
    address, ref = _split_ref(text.removeprefix(_PREFIX))
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise _invalid(text, "its form") from error
    if parts.scheme not in _SCHEMES or parts.query or parts.fragment or not parts.path:
        raise _invalid(text, "its form")
    # A host or a user that begins with a dash would be an option of ssh.
    is_option = any(part.startswith("-") for part in parts.netloc.split("@"))
    if is_option or {"\n", "\0"} & {*text, *unquote(text)}:
        raise _invalid(text, "its host")
    # Over https, a name alone may be a token.
    if parts.password is not None or (parts.scheme == "https" and parts.username is not None):
        text = f"the address has a login, which others could see: {without_password(text)!r}"
        raise InvalidOptions(text, hint="put it into ~/.netrc, or use git+ssh://")
    if not _REF.fullmatch(ref) or ".." in ref:
        raise _invalid(text, "its ref")
    if parts.scheme == "file" and not parts.netloc:
        address = _local(parts.path).resolve().as_uri()
    return GitSource(address, ref)


def _local(path: str) -> Path:
    """A path as it is, or as a URL has it, with %20 for a space."""
    return Path(path) if os.path.lexists(path) else Path(unquote(path))


def _split_ref(address: str) -> tuple[str, str]:
    """The ref is behind the last `@` of the path; `git@host` is in front of it."""
    start = address.find("/", address.find("://") + 3) if "://" in address else 0
    path, at, ref = address[max(start, 0) :].rpartition("@")
    return (address[:start] + path, ref) if at else (address, "HEAD")


def _invalid(text: str, what: str) -> InvalidOptions:
    return InvalidOptions(
        f"{what} is not valid: {without_password(text)!r}",
        hint="write git+https://host/path@ref, git+ssh://git@host/path@ref or git+file:///path@ref",
    )


def without_password(text: str) -> str:
    """An address that may be shown: the name of a user stays, and may not be a token."""
    return _PASSWORD.sub(r"\1…@", text)


# `git@host` is no secret; `token@host` and `user:token@host` are.
_PASSWORD = re.compile(r"(://(?!git@)|://git(?=:))[^/@]*@")


@contextmanager
def check_out(source: GitSource) -> Iterator[Path]:
    """A repository's files at its ref, in a folder that is gone after the block."""
    with OwnedFolder("geminorum-clone-") as place:
        folder = place / "files"
        run_git("init", "--quiet", "--template=", os.fspath(folder))
        fetch = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules")
        run_git(*fetch, "--", source.url, source.ref, cwd=folder)
        run_git("checkout", "--quiet", "--detach", "FETCH_HEAD", cwd=folder)
        yield folder
