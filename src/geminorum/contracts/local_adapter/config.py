"""An agent's config: plain values, stored as JSON, checked, and converted to run options."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_type_hints

import msgspec

from geminorum.adapter_parts import arguments, convert, render
from geminorum.contracts.vocabulary import vocabulary
from geminorum.errors import InvalidOptions
from geminorum.options import Approval, Options

ApprovalMode: TypeAlias = Literal[
    "default", "auto_edit", "yolo", "plan", "acceptEdits", "bypassPermissions"
]
"""The CLI's own modes, and two names that other agents use for them."""

_IN_THE_CLI: Mapping[str, Approval] = {
    "default": "default",
    "auto_edit": "auto_edit",
    "acceptEdits": "auto_edit",
    "yolo": "yolo",
    "bypassPermissions": "yolo",
    "plan": "plan",
}


class ConfigProblem(msgspec.Struct, frozen=True):
    """One problem in a config."""

    key: str
    """Spelled as in the config: "timeoutSec"."""
    message: str
    remedy: str
    """What to write instead."""


class GeminiLocalConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """How one agent runs. In JSON, the fields are camelCase."""

    cwd: str
    """The agent's working folder; created if it does not exist."""
    model: str | None = None
    """A model name or alias. None: the CLI's own choice, by default "auto"."""
    prompt_template: str | None = None
    """A template with `{{variables}}`. None: the prompt as it is."""
    instructions_file_path: str | None = None
    """A Markdown file to put before the prompt; relative to `cwd`."""
    env: dict[str, str] = {}
    """Environment variables for the agent, added to this process's own."""
    timeout_sec: float | None = 120
    """Seconds for a run. None: no limit."""
    grace_sec: float = 5
    """Seconds between asking the process to stop and killing it."""
    yolo: bool = False
    """Let the agent write files and run commands without asking."""
    approval_mode: ApprovalMode | None = None
    """Finer than `yolo`. None: the CLI's default, which allows reading and web search."""
    max_turns: int | None = None
    trust_workspace: bool | None = None
    """True: load the folder's own settings, hooks and servers. The model gets its skills and
    GEMINI.md in any case."""
    executable: str | None = None
    """The CLI to run. None: the installed one."""

    def __post_init__(self) -> None:
        values = msgspec.structs.asdict(self)
        for name, value in values.items():
            if isinstance(value, os.PathLike):
                msgspec.structs.force_setattr(self, name, os.fspath(value))
                values[name] = os.fspath(value)
        if problems := problems_of(values):
            raise refusal(problems)

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({', '.join(shown)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        # Of the variables the names only: keys are among them.
        values = msgspec.structs.asdict(self)
        return list({**values, "env": dict.fromkeys(self.env, "…")}.items())

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON with camelCase keys; defaults are left out."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @property
    def folder(self) -> Path:
        return Path(self.cwd).expanduser().absolute()

    @property
    def instructions_file(self) -> Path | None:
        named = self.instructions_file_path
        return None if named is None else self.folder / Path(named).expanduser()

    @property
    def merged_env(self) -> dict[str, str]:
        """The CLI's environment: this process's plus the config's."""
        return {**os.environ, **self.env}

    def options(self, session_id: str | None = None) -> Options:
        """Returns the run's Options, which resume `session_id` if given."""
        mode = "yolo" if self.yolo else self.approval_mode
        return Options(
            cwd=self.folder,
            model=self.model,
            approval=None if mode is None else _IN_THE_CLI[mode],
            timeout=self.timeout_sec,
            max_turns=self.max_turns,
            resume=session_id,
            env=self.env,
            trust_workspace=self.trust_workspace,
        )


def build_args(config: GeminiLocalConfig, session_id: str | None = None) -> list[str]:
    """Returns the CLI's arguments after `gemini`. The prompt is not among them: it goes to stdin.

    Each value is joined to its flag, so that a value that starts with "-" stays a value. A run adds
    the policy file that it writes.
    """
    return arguments(config.options(session_id))


def problems_of(values: Mapping[str, Any]) -> list[ConfigProblem]:
    """All that is wrong with values under their Python names, in the order of the fields."""
    wrong = {name: found for name in values if (found := _misfit(name, values[name]))}
    if "cwd" not in values:
        wrong["cwd"] = _problem("cwd", "is missing")
    sound = {name: value for name, value in values.items() if name not in wrong}
    return in_order([*wrong.values(), *_misuses(sound)])


def in_order(problems: Iterable[ConfigProblem]) -> list[ConfigProblem]:
    """As the fields stand in the config; settings that it does not have come last."""
    order = [camel_cased(name) for name in GeminiLocalConfig.__struct_fields__]
    return sorted(problems, key=lambda problem: [*order, problem.key].index(problem.key))


def refusal(problems: list[ConfigProblem]) -> InvalidOptions:
    """The exception that tells all of them."""
    told = "; ".join(f"{problem.key} {problem.message}" for problem in problems)
    remedies = "; ".join(f"{problem.key}: {problem.remedy}" for problem in problems)
    return InvalidOptions(f"the config cannot be used: {told}", hint=remedies)


IN_CONFIG = vocabulary(
    {
        "Options.timeout": "timeoutSec",
        "Options.approval": "approvalMode",
        "Options.max_turns": "maxTurns",
        "Options.resume": "sessionId",
        # Behind "leave" and "pass".
        "Options.trust_workspace=None": "trustWorkspace out",
        "Options.trust_workspace=True": "trustWorkspace: true",
        **{f"Options.{name}": name for name in ("cwd", "model", "env")},
        **{f"{transport}.executable": "executable" for transport in ("Cli", "Acp")},
        "Cli.grace": "graceSec",
        ".result": "the result",
        ".stderr": "stderr",
    },
    takes_options=False,
)


def hint_for(hint: str | None) -> str | None:
    """The hint in the keys of the config."""
    return render(hint, IN_CONFIG)


def camel_cased(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_VARIABLE = re.compile(r"[^=\0]+")
_REMEDIES: Mapping[str, str] = {
    "cwd": 'a folder, like "/srv/agents/writer"',
    "model": 'a model\'s name or alias, like "auto" or "gemini-2.5-flash"',
    "prompt_template": 'text with variables, like "You are {{agent.name}}. {{prompt}}"',
    "instructions_file_path": 'a file, like "AGENT.md"',
    "env": 'names and strings, like {"GEMINI_API_KEY": "…"}',
    "timeout_sec": "seconds greater than 0, like 120; null means no limit",
    "grace_sec": "seconds, 0 or more, like 5",
    "yolo": "true or false",
    "approval_mode": "default, auto_edit, yolo or plan",
    "max_turns": "a whole number greater than 0; null means no limit",
    "trust_workspace": "true, false or null",
    "executable": 'a path or a name, like "gemini"',
}


@cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(GeminiLocalConfig)


def _misfit(name: str, value: Any) -> ConfigProblem | None:
    """A name that is not known, or a value of the wrong kind."""
    if name not in GeminiLocalConfig.__struct_fields__:
        near = difflib.get_close_matches(name, GeminiLocalConfig.__struct_fields__, n=1)
        remedy = f"did you mean {camel_cased(near[0])!r}?" if near else "leave it out"
        return ConfigProblem(camel_cased(name), "is not a setting of this adapter", remedy)
    try:
        convert(value, _kinds()[name])
    except msgspec.ValidationError as error:
        return _problem(name, f"cannot be used: {error}")
    return None


def _misuses(values: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    """Values of the right kind that make no sense."""
    for name, value in values.items():
        if isinstance(value, str) and (not value.strip() or "\0" in value):
            yield _problem(name, "is empty" if not value.strip() else "has a NUL character in it")
    cwd = values.get("cwd")
    # Path.is_file() raises for a name that is too long.
    if cwd and "\0" not in cwd:
        yield from _no_folder(cwd)
    yield from _out_of_range(values)
    yield from _unusable_variables(values.get("env") or {})
    mode = values.get("approval_mode") or "yolo"
    if values.get("yolo") and _IN_THE_CLI.get(mode, "yolo") != "yolo":
        message = "says something else than yolo"
        yield ConfigProblem("approvalMode", message, "leave one of the two out")


def _no_folder(cwd: str) -> Iterator[ConfigProblem]:
    try:
        # Path.is_file() raises for a name that is too long.
        is_file = os.path.isfile(Path(cwd).expanduser())  # noqa: PTH113
    except RuntimeError as error:
        yield ConfigProblem("cwd", f"{cwd!r} is no folder: {error}", "write out the folder")
        return
    if is_file:
        yield ConfigProblem("cwd", f"{cwd!r} is a file", "name the folder that it lies in")


def _out_of_range(values: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    for name in ("timeout_sec", "grace_sec", "max_turns"):
        value = values.get(name)
        if value is None:
            continue
        least_is_good = name == "grace_sec"
        if not math.isfinite(value) or value < 0 or (value == 0 and not least_is_good):
            yield _problem(name, f"is {value}")


def _unusable_variables(env: Mapping[str, str]) -> Iterator[ConfigProblem]:
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            yield _problem("env", f"has a variable that no process can have: {name!r}")


def _problem(name: str, message: str) -> ConfigProblem:
    return ConfigProblem(camel_cased(name), message, _REMEDIES[name])
