"""A folder to the names that travel: what git tracks, and what it does not ignore."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from geminorum.errors import WorkspaceError
from geminorum.hints import advice
from geminorum.workspace.git import (
    Repository,
    find_repository,
    ignored_names,
    tracked_names,
    user_ignore_file,
)
from geminorum.workspace.names import is_excluded, is_staging, is_vcs, problem_with
from geminorum.workspace.tree import mode_of, without_parents


@dataclass(frozen=True, slots=True)
class Rules:
    """What does not travel. They travel with the pack, so that both sides leave out the same."""

    uses_git: bool
    """Whether `.gitignore` files count: the folder belongs to a git repository."""
    ignore: str = ""
    """Patterns from outside of the folder: above it, the repository's own, and the user's."""
    exclude: tuple[str, ...] = ()
    """Names and patterns that the caller left out."""


@dataclass(slots=True)
class Listing:
    """The names of a folder that travel, and those that stay."""

    names: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Ignored, excluded, and what is no file, link or folder. Folders end with `/`."""
    nested: list[str] = field(default_factory=list)
    """Folders that are repositories themselves."""


def list_origin(
    folder: Path, exclude: Collection[str] = (), *, submodules: bool = False
) -> tuple[Listing, Rules]:
    """Lists a folder for packing; WorkspaceError if it contains other repositories."""
    repository = find_repository(folder)
    rules = Rules(repository is not None, _patterns_outside(repository, folder), tuple(exclude))
    tracked = _tracked_below(repository, folder) if repository else {}
    listing = list_names(folder, rules, [name for name in tracked if not tracked[name]])
    links = [name for name in tracked if tracked[name] and not is_excluded(name, exclude)]
    modules = sorted({*listing.nested, *links})
    if modules and not submodules:
        raise _nested(modules)
    for module in modules:
        _add_module(listing, folder, module, exclude)
    listing.names = sorted(without_parents(listing.names))
    return listing, rules


def list_names(folder: Path, rules: Rules, known: Collection[str]) -> Listing:
    """Lists the names of a folder. `known` ones travel even if they are ignored."""
    ignored = ignored_names(folder, rules.ignore) if rules.uses_git else set()
    listing = Listing()
    _walk(folder, "", _Filter(rules, ignored), listing)
    found = set(listing.names)
    more = (name for name in known if name not in found and not is_excluded(name, rules.exclude))
    listing.names += [name for name in more if _is_there(folder, name)]
    listing.names = sorted(without_parents(listing.names))
    return listing


@dataclass(frozen=True, slots=True)
class _Filter:
    rules: Rules
    ignored: Collection[str]

    def drops(self, name: str) -> bool:
        is_ignored = name in self.ignored or f"{name}/" in self.ignored
        return is_ignored or is_excluded(name, self.rules.exclude)


def _walk(folder: Path, below: str, chosen: _Filter, listing: Listing) -> None:
    before = len(listing.names)
    for entry in _entries(folder / below):
        name = f"{below}/{entry.name}" if below else entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_vcs(entry.name) or is_staging(name):
            _note_repository(listing, below, name)
        elif chosen.drops(name):
            listing.left_out.append(f"{name}/" if is_folder else name)
        elif is_folder:
            _walk(folder, name, chosen, listing)
        elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
            listing.names.append(name)
        else:
            listing.left_out.append(name)  # A pipe, a socket or a device.
    if below and len(listing.names) == before:
        listing.names.append(below)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _note_repository(listing: Listing, below: str, name: str) -> None:
    # That of the folder itself stays where it is, always.
    if below:
        listing.left_out.append(name)
        listing.nested.append(below)


def _is_there(folder: Path, name: str) -> bool:
    return problem_with(name) is None and mode_of(folder, name) is not None


def _nested(modules: list[str]) -> WorkspaceError:
    return WorkspaceError(
        f"other git repositories (submodules) are in the folder: {', '.join(modules)}",
        paths=modules,
        hint=advice(
            "pack their files too: {workspace.submodules|submodules=True}; or leave them out: "
            "{workspace.exclude=name|exclude}",
            name=modules[0],
            exclude=f"exclude={modules[:1]}",
        ),
    )


def _add_module(listing: Listing, folder: Path, module: str, exclude: Collection[str]) -> None:
    """Lists a repository within the folder by its own index and its own rules."""
    if not (folder / module / ".git").exists():
        text = f"the submodule {module} is not checked out"
        raise WorkspaceError(
            text, paths=[module], hint=f"git submodule update --init {module}, or leave it out"
        )
    below = f"{module}/"
    inner = [name.removeprefix(below) for name in exclude if name.startswith(below)]
    own, _ = list_origin(folder / module, inner, submodules=True)
    listing.names = [name for name in listing.names if not f"{name}/".startswith(below)]
    listing.names += [below + name for name in own.names]
    listing.left_out += [below + name for name in own.left_out]


def _tracked_below(repository: Repository, folder: Path) -> dict[str, bool]:
    below = _place_of(folder, repository)
    names = tracked_names(repository).items()
    return {name.removeprefix(below): link for name, link in names if name.startswith(below)}


def _place_of(folder: Path, repository: Repository) -> str:
    """Where the folder is in the repository: "" at its top, else with a `/` at the end."""
    place = folder.relative_to(repository.top).as_posix()
    return "" if place == "." else f"{place}/"


def _patterns_outside(repository: Repository | None, folder: Path) -> str:
    """The rules that git would apply here, from files that do not travel; the last one wins."""
    if repository is None:
        return ""
    user = _text(user_ignore_file())
    own = _text(repository.shared / "info/exclude")
    above = [place for place in reversed(folder.parents) if _is_in(place, repository.top)]
    lines = [line for place in above for line in _rebased(place, folder)]
    below = _place_of(folder, repository)
    anchored = [line for text in (user, own) for line in _moved(text, below)]
    return "\n".join([*anchored, *lines, ""])


def _is_in(place: Path, top: Path) -> bool:
    return place == top or top in place.parents


def _rebased(place: Path, folder: Path) -> Iterator[str]:
    return _moved(_text(place / ".gitignore"), folder.relative_to(place).as_posix() + "/")


def _moved(text: str, below: str) -> Iterator[str]:
    """Patterns for a folder as patterns for one below it.

    A pattern without a slash applies at any depth. One with a slash applies to one place, which
    may be outside of the folder below.
    """
    for line in text.splitlines():
        sign, body = ("!", line[1:]) if line.startswith("!") else ("", line)
        if not body or body.startswith("#"):
            continue
        if body.startswith("**/") or "/" not in body.rstrip("/"):
            yield line
        elif body.lstrip("/").startswith(below):
            yield f"{sign}/{body.lstrip('/').removeprefix(below)}"


def _text(path: Path) -> str:
    if not path.is_file():
        return ""
    return path.read_text(encoding="utf-8", errors="surrogateescape")
