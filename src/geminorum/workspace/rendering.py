"""A patch to text for people: names, modes and lines. Nothing reads it back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from geminorum.errors import WorkspaceTooLarge
from geminorum.views.plain_text import printable
from geminorum.workspace.comparing import Comparison
from geminorum.workspace.names import shown
from geminorum.workspace.patch import Change, Patch
from geminorum.workspace.tree import Entry, entry_of, read_entry

_MAX_TEXT_BYTES = 1024 * 1024
"""Larger files are told by their size: to compare them takes too long."""


def rendered(folder: Path, patch: Patch) -> str:
    """The changes as a unified diff. Old lines come from the folder, if they are still there."""
    renamed, comparison = _renames(folder, patch), Comparison()
    old_names = {*renamed.values()}
    return "".join(
        line
        for change, contents in patch.contents
        if change.name not in old_names
        for line in _lines(folder, change, contents, renamed.get(change.name), comparison)
    )


def _renames(folder: Path, patch: Patch) -> dict[str, str]:
    """New names to old ones. A patch may lie, so only a file that is here counts as an old one."""
    before = {change.name: change.before for change in patch.changes}
    return {
        new: old
        for old, new in patch.renames.items()
        if entry_of(folder, old) == before[old] is not None
    }


def _lines(
    folder: Path, change: Change, new: bytes, old_name: str | None, comparison: Comparison
) -> Iterator[str]:
    if old_name is not None:
        yield f"renamed {shown(old_name)} to {shown(change.name)}\n"
        return
    yield f"{change.what} {shown(change.name)}{_modes(change)}\n"
    old = _old_contents(folder, change)
    before, after = _text(old), _text(new)
    if before is None or after is None:
        yield f"  {_size(change.before)} to {_size(change.after)}\n"
    elif before != after:
        yield f"--- a/{shown(change.name)}\n+++ b/{shown(change.name)}\n"
        for line in comparison.hunks(_split(before), _split(after)):
            yield _printed(line)


def _split(text: str) -> list[str]:
    """Into lines with their ends. Not `splitlines`, to which a form feed ends a line, too."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def _printed(line: str) -> str:
    """Shows what acts on a terminal or hides: the text may be anybody's."""
    body = printable(line.removesuffix("\n"))
    return f"{body}\n" if line.endswith("\n") else f"{body}\n\\ No newline at end of file\n"


def _old_contents(folder: Path, change: Change) -> bytes | None:
    """None if the folder has other contents than the patch expects."""
    if change.before is None or change.before.kind != "file":
        return b""
    if change.before.size > _MAX_TEXT_BYTES:
        return None
    with suppress(WorkspaceTooLarge):
        found = read_entry(folder, change.name, change.before.size)
        return found[1] if found and found[0] == change.before else None
    return None


def _text(contents: bytes | None) -> str | None:
    if contents is None or len(contents) > _MAX_TEXT_BYTES or b"\0" in contents:
        return None
    try:
        return contents.decode()
    except UnicodeDecodeError:
        return None


def _modes(change: Change) -> str:
    before, after = (_kind(entry) for entry in (change.before, change.after))
    if change.before and change.after and before != after:
        return f" ({before} → {after})"
    is_file = before in ("", "file") and after in ("", "file")
    return "" if is_file else f" ({after or before})"


def _kind(entry: Entry | None) -> str:
    if entry is None:
        return ""
    if entry.kind == "link":
        return f"link to {shown(entry.target)}"
    return "executable" if entry.executable else entry.kind


def _size(entry: Entry | None) -> str:
    return "nothing" if entry is None else f"{entry.size:,} bytes"
