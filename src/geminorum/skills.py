"""Folders in, the skills out that the CLI would find there, and why it would pass over the rest."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from geminorum.errors import InvalidOptions
from geminorum.regular_file import UnfitFile, read_bytes

Tier: TypeAlias = Literal["workspace", "user", "extension"]

FILE = "SKILL.md"
_HINT = "begin the file with ---, then `name: …`, `description: …` and --- on lines of their own"
_FRONTMATTER = re.compile(r"---\r?\n([\s\S]*?)\r?\n---(?:\r?\n([\s\S]*))?")
_NOT_IN_NAMES = re.compile(r'[:\\/<>*?"|]')


@dataclass(frozen=True)
class Skill:
    """What the CLI tells the model at the start; the rest is read when it is asked for."""

    name: str
    description: str
    path: Path
    """The SKILL.md."""
    tier: Tier
    shadowed_by: Path | None = None
    """The SKILL.md that wins this name; None for the winner itself."""

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def body(self) -> str:
        """The instructions below the frontmatter, read from the file each time."""
        return _parts(_text(self.path))[1]

    @property
    def assets(self) -> list[Path]:
        """Every other file in the folder and below it; links to folders are not followed."""
        below = (Path(root, name) for root, _, names in os.walk(self.folder) for name in names)
        return sorted(path for path in below if path != self.path)


def discover(
    cwd: str | Path | None = None,
    home: str | Path | None = None,
    *,
    extensions: Iterable[str | Path] | None = None,
) -> list[Skill]:
    """Every skill of every tier, the weakest first.

    `extensions` are the folders of extensions, by default all that the home has installed. The
    CLI itself reads the workspace's skills only in a trusted folder, and leaves out what the
    settings disable; neither is looked at here. Its built-in skills are not listed.
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
    """The winner of each name."""
    found = discover(cwd, home, extensions=extensions)
    return {skill.name: skill for skill in found if skill.shadowed_by is None}


def read(path: str | Path) -> Skill:
    """The skill in a folder or in a SKILL.md; InvalidOptions where the CLI would ignore it."""
    file = _file(path)
    return _read(file, _tier_of(file))


def validate(path: str | Path) -> list[str]:
    """What is wrong with the skill in a folder or in a SKILL.md, in plain words."""
    file = _file(path)
    problems = list(_place_problems(file))
    try:
        skill = _read(file, "workspace")
    except InvalidOptions as error:
        return [*problems, error.message]
    return [*problems, *_content_problems(skill)]


def _all(cwd: Path, home: Path, extensions: Iterable[str | Path] | None) -> Iterator[Skill]:
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
            try:
                yield _read(file, tier)
            except InvalidOptions:
                continue  # as silent as the CLI; `validate` says why


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
    """The CLI's YAML reader would refuse this, or not see a string."""


_KEY = re.compile(
    r"""(?P<quote>["']?)(?P<key>[^\s"'#:][^"'#:]*)(?P=quote) ?:(?:\s+(?P<rest>.*))?"""
)
_BLOCK = re.compile(r"([|>])(?:([1-9])?([-+])?|([-+])([1-9]))(?:\s+#.*)?\s*")
_NOT_A_STRING = re.compile(
    r"~|null|Null|NULL|true|True|TRUE|false|False|FALSE"
    r"|[-+]?(?:0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)"
    r"|[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
    r"|\d{4}-\d\d-\d\d|\d{4}-\d\d?-\d\d?(?:[Tt]|\s+)\d\d?:\d\d:\d\d.*"
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.|$)", re.S)
_ESCAPES = dict(zip('ntr0abefv "/\\_', '\n\t\r\0\a\b\x1b\f\v "/\\\xa0', strict=True))


def _fields(frontmatter: str) -> dict[str, str]:
    """The name and the description, as far as they are there."""
    lines = re.split(r"\r?\n", frontmatter)
    if not lines[-1]:
        lines.pop()  # what follows a closing line break is no line
    try:
        found = _yaml(lines)
    except _NotYaml:
        found = {}
    if "name" in found and "description" in found:
        return found
    return _loose(lines)


def _yaml(lines: list[str]) -> dict[str, str]:
    """The top-level strings of flat YAML; deeper structures are passed over."""
    found: dict[str, str | None] = {}
    for first, more in _entries(lines):
        match = _KEY.fullmatch(first.strip())
        if match is None or match["key"].strip() in found:
            raise _NotYaml
        found[match["key"].strip()] = _value((match["rest"] or "").strip(), more)
    return {key: value for key, value in found.items() if value is not None}


def _entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Each line with a key, and the lines that belong to it."""
    margin: int | None = None
    first, more = "", list[str]()
    for line in lines:
        deep = margin is not None and (_indent(line) > margin or re.match(r"\s*- ", line))
        if deep or not line.strip():
            more.append(line)
        elif not line.lstrip().startswith("#"):
            if first:
                yield first, more
            margin = _indent(line) if margin is None else margin
            if _indent(line) != margin:
                raise _NotYaml
            first, more = line, []
    if first:
        yield first, more


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _value(rest: str, more: list[str]) -> str | None:
    """The string, or None for what is something else."""
    if block := _BLOCK.fullmatch(rest):
        return _block(block[1], block[3] or block[4] or "", block[2] or block[5], more)
    begun = [] if rest.startswith("#") else [rest]
    text = _folded([*begun, *more])
    if not rest and (text.startswith("- ") or any(_KEY.fullmatch(line.strip()) for line in more)):
        return None
    if text.startswith(('"', "'")):
        return _quoted(text)
    return _plain([*begun, *more])


def _block(style: str, chomp: str, indent: str | None, lines: list[str]) -> str:
    margin = int(indent) if indent else next((_indent(x) for x in lines if x.strip()), 0)
    cut = [line[margin:] if line.strip() else "" for line in lines]
    while cut and not cut[-1]:
        cut.pop()
    tail = "\n" * (len(lines) - len(cut))
    text = "\n".join(cut) if style == "|" else _block_folded(cut)
    return {"-": text, "+": f"{text}\n{tail}"}.get(chomp, f"{text}\n" if text else "")


def _block_folded(lines: list[str]) -> str:
    # Lines that are indented further keep their breaks, and so do their neighbours.
    text = "\n".join(lines)
    return re.sub(r"(?<=[^\n])\n(\n*)(?=[^\n])", lambda m: _break(m, text), text)


def _break(match: re.Match[str], text: str) -> str:
    before = text[text.rfind("\n", 0, match.start()) + 1]
    if before in " \t" or text[match.end()] in " \t":
        return match[0]
    return match[1] or " "


def _folded(lines: list[str]) -> str:
    text = "\n".join(line.strip() for line in lines).strip()
    return re.sub(r"\n(\n*)", lambda match: match[1] or " ", text)


def _quoted(text: str) -> str:
    single = re.fullmatch(r"'((?:[^']|'')*)'(?:\s+#.*)?", text, re.S)
    if single:
        return single[1].replace("''", "'")
    double = re.fullmatch(r'"((?:[^"\\]|\\.)*)"(?:\s+#.*)?', text, re.S)
    if double is None:
        raise _NotYaml
    text = _ESCAPE.sub(_unescaped, double[1])
    # Two escapes may be the halves of one character; half of one alone could not be printed.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number < 0x110000 else "\ufffd"
    if code not in _ESCAPES:
        raise _NotYaml
    return _ESCAPES[code]


def _plain(lines: list[str]) -> str | None:
    text = _folded([re.sub(r"(^|\s)#.*", "", line) for line in lines])
    if text[:1] in ("[", "{", "&", "*", "!"):
        return None
    if text[:1] in tuple("|>@`%,]}") or re.search(r":(\s|$)", text) or re.match(r"[-?] ", text):
        raise _NotYaml
    return None if not text or _NOT_A_STRING.fullmatch(text) else text


def _loose(lines: list[str]) -> dict[str, str]:
    """What the CLI falls back on: the rest of each line, as it stands."""
    found: dict[str, str] = {}
    rest = deque(lines)
    while rest:
        match = re.match(r"\s*(name|description):\s*(.*)$", rest.popleft())
        if match is None:
            continue
        words = [match[2].strip()]
        while match[1] == "description" and rest and re.match(r"[ \t]+\S", rest[0]):
            words.append(rest.popleft().strip())
        found[match[1]] = " ".join(filter(None, words))
    return found
