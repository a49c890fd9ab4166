"""Names and links in, what is wrong with them out: a pack or a patch may come from anybody."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import TypeAlias

from geminorum.views.plain_text import printable_line

STAGING = ".geminorum-apply"
"""Where `apply` works, in the folder itself; never travels."""

LinkTarget: TypeAlias = Callable[[str], str | None]
"""The target of the link with this name; None if there is no link."""

# Windows has a short name for each: `git~1`.
_VCS_FOLDERS = {".git", "git~1", ".hg", ".svn", ".bzr", ".jj"}
_CONTROL_FOLDERS = {".gemini", "gemini~1", ".agents", "agents~1"}
# Letters that some file systems do not see: `.g\u200cit` is `.git` on a Mac.
_INVISIBLE = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), 0xFEFF])
_INVISIBLE |= dict.fromkeys(range(0x206A, 0x2070))
_MAX_PART_BYTES = 255
_MAX_NAME_BYTES = 4000
_MAX_PARTS = 200
"""Each folder above a name is remembered, so depth takes memory and time."""
_MAX_HOPS = 40
_NAMES_LISTED = 10


def problem_with(name: str) -> str | None:
    """Says why a name must not be written below a folder; None if it may."""
    parts = name.split("/")
    if not _is_encodable(name):
        return "is no name"
    longest = max(len(encoded(part)) for part in parts)
    if longest > _MAX_PART_BYTES or len(encoded(name)) > _MAX_NAME_BYTES:
        return "is too long"
    if len(parts) > _MAX_PARTS:
        return f"is in more than {_MAX_PARTS} folders"
    if _has_foreign_sign(name) or any(part in ("", ".", "..") for part in parts):
        return "does not stay in the folder"
    if any(is_vcs(part) for part in parts):
        return "belongs to a version control system"
    return "is reserved" if is_staging(name) else None


def _is_encodable(name: str) -> bool:
    try:
        encoded(name)
    except UnicodeEncodeError:
        return False
    return True


def _has_foreign_sign(name: str) -> bool:
    # On Windows a backslash separates folders and a colon names a drive or a stream.
    return "\0" in name or (os.name == "nt" and any(sign in name for sign in "\\:"))


def is_staging(name: str) -> bool:
    """Is it where `apply` works, or what it left for somebody to look at?"""
    return _folded(name.partition("/")[0]).startswith(STAGING)


def is_vcs(part: str) -> bool:
    """Is this one part of a path a version control system's folder, on any file system?"""
    return _folded(part) in _VCS_FOLDERS


def is_control(name: str) -> bool:
    """Does the file control later runs of the agent?"""
    return any(_folded(part) in _CONTROL_FOLDERS for part in name.split("/"))


def _folded(part: str) -> str:
    """As the least careful file system compares it: no case, no trailing dots, no streams."""
    return part.translate(_INVISIBLE).casefold().partition(":")[0].rstrip(". ")


def is_excluded(name: str, patterns: Iterable[str]) -> bool:
    """Does a pattern match the name, or a folder above it?"""
    above = [name, *parents_of(name)]
    return any(_matches(one, pattern.strip("/")) for pattern in patterns for one in above)


def _matches(name: str, pattern: str) -> bool:
    # `pages/[id].tsx` is a name first: as a pattern it would not match itself.
    return name == pattern or fnmatchcase(name, pattern)


def parents_of(name: str) -> list[str]:
    """The folders above it, the nearest first, without the root."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]


def leads_out(name: str, target: str, target_of: LinkTarget) -> bool:
    """Does a link lead out of the folder, or into a version control system's?

    Resolves it as the system would, through other links: with `l` a link to `.`, the text of
    `l/..` looks harmless.
    """
    here, todo = name.split("/")[:-1], _steps(target)
    for _ in range(_MAX_HOPS):
        link = _follow(here, todo, target_of)
        if link is None:
            return False
        if link == _OUTSIDE:
            return True
        todo += _steps(link)
    return False  # A circle: it leads nowhere.


_OUTSIDE = "/"


def _steps(target: str) -> list[str]:
    """The parts of a path, the first one last."""
    first = [_OUTSIDE] if target.startswith("/") or _has_foreign_sign(target) else []
    return [*reversed(target.split("/")), *first]


def _follow(here: list[str], todo: list[str], target_of: LinkTarget) -> str | None:
    """Walks on to the next link and returns its target; `_OUTSIDE`, or None at the end."""
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == _OUTSIDE or is_vcs(part) or (part == ".." and not here):
            return _OUTSIDE
        if part == "..":
            here.pop()
        elif (link := target_of("/".join([*here, part]))) is not None:
            return link
        else:
            here.append(part)
    return None


def encoded(name: str) -> bytes:
    """A name as the file system has it; it need not be UTF-8."""
    return name.encode("utf-8", "surrogateescape")


def shown(name: str) -> str:
    """A name on one line that can be printed: no control characters, and not always UTF-8."""
    return printable_line(encoded(name).decode("utf-8", "backslashreplace"))


def listed(names: Iterable[str]) -> str:
    """The first names of some, for a message."""
    every = sorted(names)
    first = ", ".join(map(shown, every[:_NAMES_LISTED]))
    more = len(every) - _NAMES_LISTED
    return first if more <= 0 else f"{first} and {more:,} more"
