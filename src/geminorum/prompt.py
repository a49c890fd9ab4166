"""Renders templates and files into prompts, and encodes prompts for the CLI."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

import msgspec

from geminorum.errors import InvalidPrompt
from geminorum.hints import advice, python_only
from geminorum.system.regular_file import read_text
from geminorum.wire.literal import guarded

LARGEST_PROMPT = 8 * 1024 * 1024
"""The CLI reads this many bytes and drops the rest; its event stream does not say so."""

_VARIABLE = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")
_REFERENCE = re.compile(r"(?<!\\)@(?=\S)")
_ENDS_REFERENCE = re.compile(r"""[\s,;!?()\[\]{}"\\]""")
_ORDER = "Process the prompt in"


class Blob(msgspec.Struct, frozen=True):
    """Bytes to send with a prompt: an image, audio, a PDF."""

    data: bytes
    mime_type: str


class Link(msgspec.Struct, frozen=True):
    """A file that the API fetches itself, from its Files API or from Google's storage."""

    uri: str
    mime_type: str | None = None


Piece: TypeAlias = str | os.PathLike[str] | Blob | Link
Prompt: TypeAlias = str | Sequence[Piece] | Mapping[str, Any]
"""Text. On `Api` also texts and files in order, `["What is this?", Path("a.png")]`, or a whole
Content in the API's format."""


class Content(TypedDict):
    """One message in the API's JSON format."""

    role: Literal["user", "model"]
    parts: list[dict[str, Any]]


class PromptFile(str):
    """A prompt that tells the agent to follow a file: `run(PromptFile("task.md"))`.

    The file may have any length; geminorum does not read it. The `Cli` transport passes the
    instruction as a CLI argument and writes to stdin only the text before it, if any.
    """

    path: str
    order: str
    before: str

    __slots__ = ("before", "order", "path")

    def __new__(cls, path: str | os.PathLike[str], before: str = "") -> PromptFile:
        order = f"{_ORDER} {os.fspath(path)}"
        self = super().__new__(cls, f"{before}\n\n{order}" if before else order)
        self.path, self.order, self.before = os.fspath(path), order, before
        return self


def delivered(prompt: Prompt, *, literal: bool) -> tuple[bytes, tuple[str, ...]]:
    """Returns what goes to the CLI's stdin and what into its arguments. The CLI joins the two."""
    if not isinstance(prompt, PromptFile):
        return encoded(prompt, literal=literal), ()
    order = _literal_order(prompt) if literal else prompt.order
    # One token: on its own, a text that begins with "-" would be read as another flag.
    before = encoded(prompt.before, literal=literal) if prompt.before else b""
    return before, (f"--prompt={order}",)


def encoded(prompt: Prompt, *, literal: bool) -> bytes:
    """Encodes the prompt for the CLI's stdin. Raises if the CLI would cut or ignore it."""
    if not isinstance(prompt, str):
        hint = python_only("pass a string; files as part of a prompt go through via=Api()")
        raise InvalidPrompt(f"the prompt is a {type(prompt).__name__}", hint=hint)
    if not prompt.strip():
        raise InvalidPrompt(
            "the prompt is empty", hint=advice("pass some text[ to {run() or ask()}]")
        )
    data = (as_text(prompt) if literal else prompt).encode("utf-8", "replace")
    if len(data) > LARGEST_PROMPT:
        raise InvalidPrompt(
            f"the prompt has {len(data):,} bytes; the CLI reads {LARGEST_PROMPT:,}",
            hint="put the material into a file in cwd and ask the agent to read it",
        )
    return data


def render(template: str, variables: Mapping[str, Any], *, strict: bool = False) -> str:
    """Replaces each `{{name}}` and `{{name.of.part}}` in the template with its value.

    Values are not rendered again: braces in a value stay braces. Missing names become empty, or
    raise InvalidPrompt if `strict`.
    """
    return _VARIABLE.sub(lambda found: _value(found[1], variables, strict), template)


def instructed(prompt: str, instructions: str | os.PathLike[str] | None) -> str:
    """Returns the prompt with the text of an instructions file in front."""
    if instructions is None:
        return prompt
    try:
        text = read_text(instructions)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidPrompt(
            f"cannot read the instructions file {os.fspath(instructions)!r}: {error}",
            hint="check the path, or leave it out",
        ) from error
    return f"{text.rstrip()}\n\n{prompt}"


def _value(name: str, variables: Mapping[str, Any], strict: bool) -> str:
    found: Any = variables
    for part in [name] if name in variables else name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if found is None and strict:
        known = ", ".join(sorted(variables)) or "none"
        raise InvalidPrompt(f"the template asks for {name!r}", hint=f"there are: {known}")
    if found is None or isinstance(found, str):
        return found or ""
    return json.dumps(found, ensure_ascii=False)


def _literal_order(prompt: PromptFile) -> str:
    """The order with the `@` in its path disarmed, and without a backslash where that is possible.

    The CLI takes all from an `@` to the next space or bracket for the name of a file. A closing
    quote makes it the name of no file, and then the CLI leaves the text alone.
    """
    _, at, tail = prompt.path.partition("@")
    if at and tail and not _ENDS_REFERENCE.search(tail):
        return f'{_ORDER} "{prompt.path}"'
    return as_text(prompt.order)


def as_text(prompt: str) -> str:
    """Disarms `/commands` and `@files` in the prompt, so that the CLI sends them as text.

    It adds a backslash before an at-sign, and a space without width (U+200B) before a slash or a
    question mark at the start, which would drop out of the history. Both reach the model.
    """
    return guarded(_REFERENCE.sub(r"\\@", prompt))
