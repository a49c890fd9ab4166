"""The policies of the user: files and settings in, one list of rules out; before a run starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from geminorum.decisions import Decide
from geminorum.errors import ConfigError
from geminorum.hints import advice
from geminorum.system.regular_file import read_text
from geminorum.wire.callbacks.mcp import own_name
from geminorum.wire.policy.toml_reader import policy_problems
from geminorum.wire.policy.toml_writer import OwnTools
from geminorum.wire.policy.user_rules import UserPolicy, user_policy


def read_user_policy(home: Path, cwd: Path, settings: Mapping[str, Any]) -> UserPolicy:
    """What the user says; ConfigError for a file that the CLI would drop."""
    texts = []
    for file in policy_files(home, cwd, settings):
        text = _text(file)
        if problems := policy_problems(text):
            hint = f"fix the policy file {file.name}: the CLI would run without it"
            raise ConfigError(f"{file.name}: {problems[0]}", hint=hint)
        texts.append(text)
    return user_policy(texts, settings)


def policy_files(home: Path, cwd: Path, settings: Mapping[str, Any]) -> Iterator[Path]:
    """The files that a plain `gemini` would read: those that settings name, or the usual folder."""
    named = settings.get("policyPaths")
    paths = [path for path in named if isinstance(path, str)] if isinstance(named, list) else []
    places = [_place(cwd, path) for path in paths]
    for place in places or [home / ".gemini" / "policies"]:
        if _is_folder(place):
            yield from sorted(place.glob("*.toml"))
        elif paths:
            yield place


def _place(cwd: Path, path: str) -> Path:
    try:
        return cwd / Path(path).expanduser()
    except RuntimeError:  # The home of a user who is not there.
        return cwd / path


def _is_folder(place: Path) -> bool:
    try:
        return place.is_dir()
    except OSError:  # A name that is too long, for one; to read it will say so.
        return False


def _text(file: Path) -> str:
    try:
        return read_text(file)
    except (OSError, ValueError) as error:
        hint = "fix the file, or take it out of ~/.gemini/policies and of `policyPaths`"
        text = f"cannot read the policy file {str(file)!r}: {error}"
        raise ConfigError(text, hint=hint) from error


class _Asking(Protocol):
    @property
    def interactive(self) -> bool: ...
    @property
    def decide(self) -> Decide | None: ...


def refuse_denied_functions(
    transport: _Asking, users: UserPolicy, own: OwnTools, asked: Sequence[str] = ()
) -> None:
    """The caller's functions must not be denied by the user: the agent could only fail.

    "ask" denies, too, where nobody is asked: headless, only a hook asks, and about `asked`.
    """
    for tool in (*own.unasked, *own.asked, *own.answer):
        word = users.word_on(tool, interactive=transport.interactive)
        is_asked = transport.decide is not None and (transport.interactive or tool in asked)
        if word == "deny" or (word == "ask_user" and not is_asked):
            _refuse(own_name(tool), "denies" if word == "deny" else "asks about")


def _refuse(tool: str, does: str) -> None:
    raise ConfigError(
        f"a policy or a setting of the user's {does} {tool}, which this run needs",
        hint=advice(
            "add a rule that allows {tool} to ~/.gemini/policies, above the one that {does} it"
            "[, or pass {Options.home=…} to run without the user's policies]",
            tool=tool,
            does=does,
        ),
    )
