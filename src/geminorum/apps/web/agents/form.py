"""The form of an agent, from the fields that the `local_adapter` contract describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from geminorum.contracts.local_adapter import (
    CONFIG_FIELDS,
    ConfigField,
    GeminiLocalConfig,
    build_config,
    validate_config,
)
from geminorum.errors import InvalidOptions

KEPT = "(unchanged)"
"""Stands in the form for a secret that is saved: the form never has the secret itself."""
_MAX_NAME, _NONE = 80, "none"
_ENV = "env"


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of the form with its value."""

    about: ConfigField
    value: str
    problem: str | None = None

    @property
    def name(self) -> str:
        return self.about.key

    @property
    def is_ticked(self) -> bool:
        return self.value == "true"


@dataclass(frozen=True, slots=True)
class AgentForm:
    """What somebody typed, or what is saved."""

    name: str
    values: dict[str, Any]
    """By the key of the config. Holds secrets."""
    problems: dict[str, str] = field(default_factory=dict)
    has_new_secrets: bool = False
    """Secrets were typed that cannot be shown again."""

    @classmethod
    def blank(cls, folder: str) -> AgentForm:
        return cls("", {"cwd": folder})

    @classmethod
    def saved(cls, name: str, config: Mapping[str, Any]) -> AgentForm:
        """What is kept. It may have become wrong since: a folder may be a file today."""
        values = dict(config)
        return cls(name, values, _problems(values))

    @classmethod
    def read(cls, typed: Mapping[str, Any], kept: Mapping[str, Any]) -> AgentForm:
        """What a browser sent; `kept` is the saved config, which has the secrets."""
        values = {one.key: _typed(one, str(typed.get(one.key, ""))) for one in CONFIG_FIELDS}
        return cls.checked(str(typed.get("name", "")), values, kept)

    @classmethod
    def checked(cls, name: str, given: Mapping[str, Any], kept: Mapping[str, Any]) -> AgentForm:
        """Values by the key of the config, with what is wrong with them."""
        name, values = name.strip(), dict(given)
        problems, has_new = _problems(values), False
        if _ENV not in problems and values.get(_ENV):
            env = build_config({"cwd": "/", _ENV: values[_ENV]}).env
            has_new = any(value != KEPT for value in env.values())
            values[_ENV] = _with_kept(env, kept.get(_ENV, {}), problems)
        return cls(name, values, _name_problem(name) | problems, has_new)

    @property
    def config(self) -> GeminiLocalConfig:
        """Raises InvalidOptions if anything is wrong."""
        if self.problems:
            told = "; ".join(f"{key}: {text}" for key, text in self.problems.items())
            raise InvalidOptions(f"the agent cannot be saved: {told}")
        return build_config(self.values)

    @property
    def without_name_problem(self) -> AgentForm:
        """For a preview, which needs no name yet."""
        rest = {key: text for key, text in self.problems.items() if key != "name"}
        return replace(self, problems=rest)

    @property
    def fields(self) -> list[FormField]:
        return [
            FormField(one, self._shown(one), self.problems.get(one.key)) for one in CONFIG_FIELDS
        ]

    @property
    def has_open_details(self) -> bool:
        """Is there something to see among the advanced fields?"""
        return any(one.about.advanced and (one.value or one.problem) for one in self.fields)

    def _shown(self, about: ConfigField) -> str:
        value = self.values.get(about.key)
        if about.key == _ENV:
            names = value if isinstance(value, Mapping) else {}
            return "\n".join(f"{name}={KEPT}" for name in names)
        if value is None and about.key in self.values:
            return _NONE  # It says something else than an empty field: no limit.
        if about.secret or value is None:
            return ""
        return str(value).lower() if isinstance(value, bool) else str(value)


def _typed(about: ConfigField, text: str) -> str | None:
    """A browser sends nothing for a box without a tick, and other line ends than ours."""
    if about.kind == "checkbox":
        return "true" if text else ""
    if about.kind == "number" and text.strip().lower() == _NONE:
        return None
    return text.replace("\r\n", "\n") if about.kind == "textarea" else text.strip()


def _problems(values: Mapping[str, Any]) -> dict[str, str]:
    """By field, with what to write instead."""
    found: dict[str, str] = {}
    for problem in validate_config(values):
        found.setdefault(problem.key, f"{problem.message}: {problem.remedy}")
    return found


def _name_problem(name: str) -> dict[str, str]:
    if not name:
        return {"name": "is missing: say what to call it"}
    return {"name": f"is too long: {_MAX_NAME} letters at most"} if len(name) > _MAX_NAME else {}


def _with_kept(
    given: Mapping[str, str], kept: Mapping[str, str], problems: dict[str, str]
) -> dict[str, str]:
    """The variables, each marked one with the value that is saved."""
    unknown = [name for name, value in given.items() if value == KEPT and name not in kept]
    if unknown:
        problems[_ENV] = f"has nothing saved for {unknown[0]!r}: write its value"
    return {name: kept.get(name, "") if value == KEPT else value for name, value in given.items()}
