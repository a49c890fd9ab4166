"""Finds the skills that the CLI would find in its folders, and says why it would skip others."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import yaml

from geminorum.errors import InvalidOptions
from geminorum.system.regular_file import UnfitFile, read_bytes

Tier: TypeAlias = Literal["workspace", "user", "extension"]

FILE = "SKILL.md"
_HINT = "begin the file with ---, then `name: …`, `description: …` and --- on lines of their own"
_FRONTMATTER = re.compile(r"---\r?\n([\s\S]*?)\r?\n---(?:\r?\n([\s\S]*))?")
_NOT_IN_NAMES = re.compile(r'[:\\/<>*?"|]')


@dataclass(frozen=True)
class Skill:
    """The part that the CLI gives the model at startup; the rest is read on demand."""

    name: str
    description: str
    path: Path
    """Its SKILL.md."""
    tier: Tier
    shadowed_by: Path | None = None
    """The SKILL.md that takes precedence for this name; None for the active skill itself."""

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def body(self) -> str:
        """The instructions below the frontmatter; read from the file each time."""
        return _parts(_text(self.path))[1]

    @property
    def assets(self) -> list[Path]:
        """All other files in the folder and its subfolders; links to folders are not followed."""
        below = (Path(root, name) for root, _, names in os.walk(self.folder) for name in names)
        return sorted(path for path in below if path != self.path)


@dataclass(frozen=True)
class BrokenSkill:
    """A SKILL.md that the CLI skips."""

    path: Path
    tier: Tier
    problem: str


def discover(
    cwd: str | Path | None = None,
    home: str | Path | None = None,
    *,
    extensions: Iterable[str | Path] | None = None,
) -> list[Skill]:
    """Returns the skills of all tiers, lowest precedence first.

    `extensions` are extension folders; by default, all that are installed in the home. The CLI
    itself reads a workspace's skills only in a trusted folder and skips disabled ones; this
    function checks neither. Built-in skills are not listed.
    """
    # By path: where the home is the workspace, one file is found in two tiers and is the same.
    found = {skill.path: skill for skill in _all(_folder(cwd), _home(home), extensions)}
    winners = {skill.name: skill.path for skill in found.values()}
    return [_under(skill, winners[skill.name]) for skill in found.values()]


def active(
    cwd: str | Path | None = None,
    home: str | Path | None = None,
    *,
    extensions: Iterable[str | Path] | None = None,
) -> dict[str, Skill]:
    """Returns the active skill for each name."""
    found = discover(cwd, home, extensions=extensions)
    return {skill.name: skill for skill in found if skill.shadowed_by is None}


def broken(
    cwd: str | Path | None = None,
    home: str | Path | None = None,
    *,
    extensions: Iterable[str | Path] | None = None,
) -> list[BrokenSkill]:
    """Returns the SKILL.md files that the CLI silently skips, and why."""
    places = dict(_places(_folder(cwd), _home(home), extensions))
    return [bad for file, tier in places.items() if (bad := _broken(file, tier))]


def read(path: str | Path) -> Skill:
    """Reads the skill in a folder or SKILL.md. Raises InvalidOptions if the CLI would ignore it."""
    file = _file(path)
    return _read(file, _tier_of(file))


def validate(path: str | Path) -> list[str]:
    """Returns what is wrong with the skill in a folder or SKILL.md, in plain words."""
    file = _file(path)
    problems = list(_place_problems(file))
    try:
        skill = _read(file, "workspace")
    except InvalidOptions as error:
        return [*problems, error.message]
    return [*problems, *_content_problems(skill)]


def _all(cwd: Path, home: Path, extensions: Iterable[str | Path] | None) -> Iterator[Skill]:
    for file, tier in _places(cwd, home, extensions):
        try:
            yield _read(file, tier)
        except InvalidOptions:
            continue  # as silent as the CLI; `broken` and `validate` say why


def _broken(file: Path, tier: Tier) -> BrokenSkill | None:
    try:
        _read(file, tier)
    except InvalidOptions as error:
        return BrokenSkill(file, tier, error.message)
    return None


def _places(
    cwd: Path, home: Path, extensions: Iterable[str | Path] | None
) -> Iterator[tuple[Path, Tier]]:
    """Every SKILL.md that the CLI looks at, the weakest tier first."""
    given = _installed(home) if extensions is None else map(_folder, extensions)
    tiers: list[tuple[Tier, Path]] = [
        *(("extension", folder / "skills") for folder in given),
        ("user", home / ".gemini" / "skills"),
        ("user", home / ".agents" / "skills"),
        ("workspace", cwd / ".gemini" / "skills"),
        ("workspace", cwd / ".agents" / "skills"),
    ]
    for tier, folder in tiers:
        for file in _files(folder):
            yield file, tier


def _installed(home: Path) -> list[Path]:
    # The CLI skips a folder without a manifest.
    folders = _children(home / ".gemini" / "extensions")
    return [folder for folder in folders if "gemini-extension.json" in _names(folder)]


def _files(folder: Path) -> list[Path]:
    # The CLI reads the folders at once, so that two of one name in one tier race. Backwards is
    # how it was seen to end; what matters is that the answer is always the same.
    below = [child for child in reversed(_children(folder)) if not _passed_over(child.name)]
    return [place / FILE for place in [*below, folder] if FILE in _names(place)]


def _passed_over(name: str) -> bool:
    return name.startswith(".") or name == "node_modules"


def _children(folder: Path) -> list[Path]:
    return [folder / name for name in _names(folder)]


def _names(folder: Path) -> list[str]:
    # A listing keeps the case of names, which a file system may ignore when it is asked for one.
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except (OSError, ValueError):
        return []


def _under(skill: Skill, winner: Path) -> Skill:
    return skill if skill.path == winner else replace(skill, shadowed_by=winner)


def _folder(path: str | Path | None) -> Path:
    # Absolute but not resolved: a link keeps its own name, and a loop of links does no harm.
    return Path(path or ".").expanduser().absolute()


def _home(home: str | Path | None) -> Path:
    return _folder(home or os.environ.get("GEMINI_CLI_HOME") or Path.home())


def _file(path: str | Path) -> Path:
    given = _folder(path)
    return given if given.name.lower() == FILE.lower() else given / FILE


def _tier_of(file: Path) -> Tier:
    home = _home(None)
    if file.is_relative_to(home / ".gemini" / "extensions"):
        return "extension"
    own = (home / ".gemini" / "skills", home / ".agents" / "skills")
    return "user" if any(file.is_relative_to(folder) for folder in own) else "workspace"


def _read(file: Path, tier: Tier) -> Skill:
    fields = _fields(_parts(_text(file))[0])
    missing = [key for key in ("name", "description") if key not in fields]
    if missing:
        raise InvalidOptions(f"the frontmatter has no {' and no '.join(missing)}", hint=_HINT)
    name = _NOT_IN_NAMES.sub("-", fields["name"])
    return Skill(name, fields["description"], file, tier)


def _text(file: Path) -> str:
    # Bytes that are not UTF-8 become U+FFFD, as in the CLI.
    return _bytes(file).decode("utf-8", "replace")


def _bytes(file: Path) -> bytes:
    try:
        return read_bytes(file)
    except UnfitFile as error:
        hint = "a skill is a text file, SKILL.md"
        raise InvalidOptions(f"{file} cannot be read: {error}", hint=hint) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        hint = "name a SKILL.md that can be read, or the folder around it"
        raise InvalidOptions(f"{file} cannot be read: {why}", hint=hint) from error


def _parts(text: str) -> tuple[str, str]:
    """The frontmatter and the instructions."""
    if match := _FRONTMATTER.match(text):
        return match[1], (match[2] or "").strip()
    if text.startswith("\ufeff"):
        why = "the file begins with a byte order mark; the first bytes must be ---"
    elif not re.match(r"---\r?\n", text):
        why = "the first line must be ---, with nothing before or after it"
    else:
        why = "the frontmatter is not closed by a line that begins with ---"
    raise InvalidOptions(why, hint=_HINT)


def _place_problems(file: Path) -> Iterator[str]:
    names = _names(file.parent)
    other = next((name for name in names if name.lower() == FILE.lower()), FILE)
    if FILE not in names and other != FILE:
        yield f"the file is called {other}; the CLI reads only {FILE}"
    if _passed_over(file.parent.name):
        yield f"the CLI does not look into a folder called {file.parent.name}"


def _content_problems(skill: Skill) -> Iterator[str]:
    try:
        _bytes(skill.path).decode()
    except UnicodeDecodeError as error:
        yield f"byte {error.start} is not UTF-8; the CLI reads it as \ufffd"
    for key, value in (("name", skill.name), ("description", skill.description)):
        if not value.strip():
            yield f"the {key} is empty"
    if "\n" in skill.name:
        yield "the name has a line break in it"


class _NotYaml(Exception):
    """js-yaml, which the CLI reads frontmatter with, would refuse this."""


_LONGEST_YAML = 16 * 1024
"""Characters; a longer frontmatter would take PyYAML seconds, and is read line by line."""
_NOT_A_STRING = re.compile(
    r"(?:~?|null|Null|NULL|true|True|TRUE|false|False|FALSE"
    r"|[-+]?(?:0b[01_]*[01]|0o[0-7_]*[0-7]|0x[0-9a-fA-F_]*[0-9a-fA-F])"
    r"|(?:[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9_]+)(?:[eE][-+]?[0-9]+)?(?<!_)"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
    r"|\d{4}-\d\d-\d\d"
    r"|\d{4}-\d\d?-\d\d?(?:[Tt]|[ \t]+)\d\d?:\d\d:\d\d(?:\.\d*)?"
    r"(?:[ \t]*(?:Z|[-+]\d\d?(?::\d\d)?))?)\Z",
    re.ASCII,
)
_TAG = "tag:yaml.org,2002:"
_STRING = f"{_TAG}str"
_KNOWN_TAGS = {
    f"{_TAG}{name}"
    for name in ("str", "seq", "map", "null", "bool", "int", "float", "timestamp", "merge")
} | {f"{_TAG}{name}" for name in ("binary", "omap", "pairs", "set")}
# PyYAML ends lines at them, js-yaml does not; so they stand in as letters of no meaning.
_BREAKS = dict(zip(map(ord, "\x85\u2028\u2029"), "\ue085\ue028\ue029", strict=True))
_BREAKS_BACK = {ord(stand_in): chr(real) for real, stand_in in _BREAKS.items()}


def _fields(frontmatter: str) -> dict[str, str]:
    """The name and the description, as far as they are there."""
    try:
        found = _yaml(frontmatter)
    except _NotYaml:
        found = {}
    if "name" in found and "description" in found:
        return found
    return _loose(re.split(r"\r?\n", frontmatter))


def _yaml(text: str) -> dict[str, str]:
    """The top-level strings of a YAML mapping."""
    if len(text) > _LONGEST_YAML:
        raise _NotYaml
    if not text.endswith(("\n", "\r")):
        text += "\n"  # As js-yaml adds one, which the end of a block scalar shows.
    try:
        root = yaml.compose(text.translate(_BREAKS), _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _NotYaml from error
    _check(root)
    if not isinstance(root, yaml.MappingNode):
        return {}
    return {
        key.value: _whole(value.value.translate(_BREAKS_BACK))
        for key, value in root.value
        if isinstance(key, yaml.ScalarNode) and value.tag == _STRING
    }


class _Loader(yaml.SafeLoader):
    """Takes for strings what js-yaml 4 takes for strings: `yes` and `1:30` are."""

    def scan_to_next_token(self) -> None:
        """Over tabs too, which PyYAML refuses everywhere and js-yaml only as indentation."""
        super().scan_to_next_token()
        while self.peek() == "\t" and not self._is_at_indentation():
            self.forward()
            super().scan_to_next_token()

    def _is_at_indentation(self) -> bool:
        return not self.buffer[self.pointer - self.column : self.pointer].strip()


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver(f"{_TAG}null", _NOT_A_STRING, [None, ""])


def _check(root: yaml.Node | None) -> None:
    """Refuses unknown tags and doubled keys, as js-yaml does; a node may be met by many aliases."""
    seen, rest = set[int](), [root] if root else []
    while rest:
        node = rest.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.tag not in _KNOWN_TAGS:
            raise _NotYaml
        rest += _children_of(node)


def _children_of(node: yaml.Node) -> list[yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        return node.value if isinstance(node, yaml.SequenceNode) else []
    keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
    if len(set(keys)) < len(keys):
        raise _NotYaml
    return [child for pair in node.value for child in pair]


def _whole(text: str) -> str:
    # Two escapes may be the halves of one character; half of one alone could not be printed.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _loose(lines: list[str]) -> dict[str, str]:
    """What the CLI falls back on: the rest of each line, as it stands."""
    found: dict[str, str] = {}
    rest = deque(lines)
    while rest:
        # Where a dot of JavaScript ends, a line does not, and so the CLI finds nothing.
        match = re.match(r"\s*(name|description):\s*([^\r\u2028\u2029]*)\Z", rest.popleft())
        if match is None:
            continue
        words = [match[2].strip()]
        while match[1] == "description" and rest and re.match(r"[ \t]+\S", rest[0]):
            words.append(rest.popleft().strip())
        found[match[1]] = " ".join(filter(None, words))
    return found
