"""A folder to the names that travel: what git tracks, and what it does not ignore."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from geminorum.errors import WorkspaceError
from geminorum.hints import advice
from geminorum.system.regular_file import read_text
from geminorum.workspace import beneath
from geminorum.workspace.git import (
    Repository,
    find_repository,
    ignored_among,
    ignored_names,
    is_bare,
    tracked_names,
    user_ignore_file,
)
from geminorum.workspace.names import (
    is_excluded,
    is_staging,
    is_vcs,
    listed,
    parents_of,
    problem_with,
    shown,
)
from geminorum.workspace.tree import mode_of, without_parents

_LONGEST_SHOWN = 200
_MAX_PATTERN_PARTS = 1000


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
    if is_bare(folder):
        hint = f"pack what is in it, at a ref: git+{folder.as_uri()}@HEAD"
        raise WorkspaceError(f"{folder} is a bare git repository", hint=hint)
    listing, rules, links = _list_tracked(folder, exclude)
    modules = sorted({*listing.nested, *links})
    if modules and not submodules:
        raise _nested(modules)
    for module in modules:
        if module in links or _is_repository(folder, module):
            _add_module(listing, folder, module, exclude)
    listing.names = sorted(without_parents(listing.names))
    return listing, rules


def list_here(folder: Path) -> tuple[Listing, Rules]:
    """Lists a folder for a comparison with itself later on: repositories in it are folders."""
    listing, rules, _ = _list_tracked(folder, ())
    return listing, rules


def _list_tracked(folder: Path, exclude: Collection[str]) -> tuple[Listing, Rules, list[str]]:
    """What travels, by which rules, and the submodules in the index."""
    repository = find_repository(folder)
    rules = Rules(repository is not None, _patterns_outside(repository, folder), tuple(exclude))
    tracked = _tracked_below(repository, folder) if repository else {}
    listing = list_names(folder, rules, [name for name in tracked if not tracked[name]])
    links = [name for name in tracked if tracked[name] and not is_excluded(name, exclude)]
    # An index may come from anybody: one with `../lib` would pack a neighbour's files.
    return listing, rules, [name for name in links if problem_with(name) is None]


def list_names(folder: Path, rules: Rules, known: Collection[str]) -> Listing:
    """Lists the names of a folder. `known` ones travel even if they are ignored."""
    ignored = ignored_names(folder, rules.ignore) if rules.uses_git else set()
    listing = Listing()
    _walk(folder, "", _Filter(rules, ignored), listing)
    if rules.uses_git and listing.nested:
        _drop_ignored_in_nested(folder, rules, listing)
    found = set(listing.names)
    more = (name for name in known if name not in found and not is_excluded(name, rules.exclude))
    listing.names += [name for name in more if _is_there(folder, name)]
    listing.names = sorted(without_parents(listing.names))
    return listing


def _drop_ignored_in_nested(folder: Path, rules: Rules, listing: Listing) -> None:
    """Git does not look into a repository within the folder, unless it is asked for each name."""
    nested = {*listing.nested}
    below = [name for name in listing.names if not nested.isdisjoint(parents_of(name))]
    ignored = ignored_among(folder, rules.ignore, below)
    listing.names = [name for name in listing.names if name not in ignored]
    listing.left_out += sorted(ignored)


@dataclass(frozen=True, slots=True)
class _Filter:
    rules: Rules
    ignored: Collection[str]

    def drops(self, name: str) -> bool:
        is_ignored = name in self.ignored or f"{name}/" in self.ignored
        return is_ignored or is_excluded(name, self.rules.exclude)


def _walk(folder: Path, below: str, chosen: _Filter, listing: Listing) -> None:
    before = len(listing.names)
    for entry in _entries(folder, below):
        name = f"{below}/{entry.name}" if below else entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_vcs(entry.name) or is_staging(name):
            _note_repository(listing, below, name)
        elif chosen.drops(name):
            listing.left_out.append(f"{name}/" if is_folder else name)
        elif problem := problem_with(name):
            raise _unfit(name, problem)
        elif is_folder:
            _walk(folder, name, chosen, listing)
        elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
            listing.names.append(name)
        else:
            listing.left_out.append(name)  # A pipe, a socket or a device.
    if below and len(listing.names) == before:
        listing.names.append(below)


def _entries(folder: Path, below: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder / below) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        if not below:
            raise WorkspaceError(f"{folder} is gone", hint="name a folder that exists") from None
        return []  # Removed since it was listed.
    except PermissionError as error:
        raise _unfit(below or ".", f"cannot be read: {error.strerror}") from error


def _unfit(name: str, problem: str) -> WorkspaceError:
    top = name.partition("/")[0]
    hint = advice(
        "remove it, or leave it out of the pack: {workspace.exclude=name|exclude}",
        name=top,
        exclude=f"exclude={[top]}",
    )
    first = name if len(name) < _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}…"
    return WorkspaceError(f"{shown(first)} {problem}", paths=[name], hint=hint)


def _note_repository(listing: Listing, below: str, name: str) -> None:
    # That of the folder itself stays where it is, always.
    if below:
        listing.left_out.append(name)
        listing.nested.append(below)


def _is_there(folder: Path, name: str) -> bool:
    return problem_with(name) is None and mode_of(folder, name) is not None


def _nested(modules: list[str]) -> WorkspaceError:
    return WorkspaceError(
        f"other git repositories (submodules) are in the folder: {listed(modules)}",
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
    if not _is_repository(folder, module):
        raise _not_checked_out(module)
    below = f"{module}/"
    inner = [name.removeprefix(below) for name in exclude if name.startswith(below)]
    own, _ = list_origin(folder / module, inner, submodules=True)
    listing.names = [name for name in listing.names if not f"{name}/".startswith(below)]
    listing.names += [below + name for name in own.names]
    listing.left_out += [below + name for name in own.left_out]


def _is_repository(folder: Path, module: str) -> bool:
    # A link may lead to a repository that is somewhere else.
    return beneath.stat_of(folder, f"{module}/.git") is not None


def _not_checked_out(module: str) -> WorkspaceError:
    return WorkspaceError(
        f"the submodule {shown(module)} is not checked out",
        paths=[module],
        hint=advice(
            "leave it out: {workspace.exclude=name|exclude}; or, in a clone of your own, "
            "git submodule update --init",
            name=module,
            exclude=f"exclude={[module]}",
        ),
    )


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
    own = _own_patterns(repository.shared / "info/exclude")
    below = _parts_below(repository.top, folder)
    anchored = [line for text in (user, own) for line in _moved(text, below)]
    above = [place for place in reversed(folder.parents) if _is_in(place, repository.top)]
    lines = [line for place in above for line in _rebased(place, folder)]
    return "\n".join([*anchored, *lines, ""])


def _own_patterns(path: Path) -> str:
    """The repository's own rules. They travel, so they must not be a link to somebody's secrets."""
    if path.is_symlink():
        text = f"{path} is a link, and what it leads to would travel"
        raise WorkspaceError(text, hint="put a file in its place")
    return _text(path)


def _is_in(place: Path, top: Path) -> bool:
    return place == top or top in place.parents


def _rebased(place: Path, folder: Path) -> Iterator[str]:
    path = place / ".gitignore"
    # Git does not follow such a link, either.
    text = "" if path.is_symlink() else _text(path)
    return _moved(text, _parts_below(place, folder))


def _parts_below(place: Path, folder: Path) -> tuple[str, ...]:
    return folder.relative_to(place).parts


def _moved(text: str, below: tuple[str, ...]) -> Iterator[str]:
    """Patterns for a folder as patterns for one below it.

    A pattern without a slash applies at any depth. One with a slash applies to one place, which
    may be outside of the folder below.
    """
    for line in text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"):
        sign, body = ("!", line[1:]) if line.startswith("!") else ("", line)
        if not body or body.startswith("#"):
            continue
        if "/" not in body.rstrip("/"):
            yield line
            continue
        end = "/" if body.endswith("/") else ""
        for rest in _remainders(_parts_of(body), below):
            yield f"{sign}/{'/'.join(rest)}{end}"


def _parts_of(pattern: str) -> list[str]:
    """One `**` for several in a row. A pattern that is deeper than any path has no parts at all."""
    parts = pattern.strip("/").split("/")
    pairs = zip(parts, ["", *parts], strict=False)
    parts = [part for part, before in pairs if not part == before == "**"]
    return parts if len(parts) <= _MAX_PATTERN_PARTS else []


def _remainders(pattern: Sequence[str], below: Sequence[str]) -> Iterator[Sequence[str]]:
    """What is left of a pattern in each way that its beginning matches the folders below."""
    # Places in the pattern, not ways to them: of those, a few `**` have billions.
    places = _past_stars(pattern, {0})
    for folder in below:
        here = [place for place in places if place < len(pattern)]
        stay = {place for place in here if pattern[place] == "**"}
        pass_on = {place + 1 for place in here if fnmatchcase(folder, pattern[place])}
        places = _past_stars(pattern, stay | pass_on)
    # At its end, it matches the folder itself, which somebody wants to pack.
    return (pattern[place:] for place in sorted(places) if place < len(pattern))


def _past_stars(pattern: Sequence[str], places: Collection[int]) -> set[int]:
    """These places, and those behind each `**`, which may match no folder at all."""
    found = {*places}
    for place, part in enumerate(pattern):
        if place in found and part == "**":
            found.add(place + 1)
    return found


def _text(path: Path) -> str:
    try:
        return read_text(path, errors="surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be read: {error}") from error
