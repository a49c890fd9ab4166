"""Describes a form for the config, and builds a config from the submitted form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from geminorum.adapter_parts import snake_case
from geminorum.contracts.local_adapter.catalogue import (
    DEFAULT_MODEL,
    MODEL_ALIASES,
    MODELS,
    Choice,
)
from geminorum.contracts.local_adapter.config import (
    ConfigProblem,
    GeminiLocalConfig,
    camel_cased,
    in_order,
    problems_of,
    refusal,
)

FieldKind: TypeAlias = Literal["text", "textarea", "path", "number", "checkbox", "select", "env"]


class ConfigField(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One field of the form."""

    key: str
    """Spelled as in the config: "timeoutSec"."""
    label: str
    kind: FieldKind
    """ "env" is a list of names and values, or text with NAME=value lines, as in a `.env` file."""
    help: str
    default: Any = None
    required: bool = False
    choices: tuple[Choice, ...] = ()
    """Values to offer. A "text" field with choices accepts other values too."""
    placeholder: str | None = None
    secret: bool = False
    """Do not show or log the value."""
    advanced: bool = False
    """Show it only under "more"."""


CONFIG_FIELDS: tuple[ConfigField, ...] = (
    ConfigField(
        key="cwd",
        label="Working folder",
        kind="path",
        required=True,
        help="Where the agent works. It is created if it does not exist.",
        placeholder="/srv/agents/writer",
    ),
    ConfigField(
        key="model",
        label="Model",
        kind="text",
        default=DEFAULT_MODEL,
        choices=(*MODEL_ALIASES, *MODELS),
        help="An alias, which the CLI resolves, or the name of any Gemini model.",
        placeholder=DEFAULT_MODEL,
    ),
    ConfigField(
        key="promptTemplate",
        label="Prompt template",
        kind="textarea",
        help="Text with {{prompt}}, {{agentId}}, {{agent.name}}, {{tenantId}}, {{tenant.name}} "
        "and {{runId}}. Without one, the prompt is sent as it is.",
        placeholder="You are {{agent.name}} of {{tenant.name}}. {{prompt}}",
    ),
    ConfigField(
        key="instructionsFilePath",
        label="Instructions file",
        kind="path",
        help="A Markdown file that stands before every prompt; relative to the working folder.",
        placeholder="AGENT.md",
    ),
    ConfigField(
        key="env",
        label="Environment",
        kind="env",
        default={},
        secret=True,
        help="Variables for this agent alone, such as its API key.",
        placeholder="GEMINI_API_KEY=…",
    ),
    ConfigField(
        key="timeoutSec",
        label="Time limit in seconds",
        kind="number",
        default=120,
        help="A run that takes longer is stopped; what has arrived is kept.",
        placeholder="120",
    ),
    ConfigField(
        key="graceSec",
        label="Grace in seconds",
        kind="number",
        default=5,
        help="How long a stopped run may take to clean up.",
        placeholder="5",
        advanced=True,
    ),
    ConfigField(
        key="yolo",
        label="Act without asking (yolo)",
        kind="checkbox",
        default=False,
        help="Without it the agent reads files and searches the web. With it, it also writes "
        "files, runs any command with the rights of this user, and uses the skills of the folder.",
    ),
    ConfigField(
        key="approvalMode",
        label="Approval mode",
        kind="select",
        choices=(
            Choice("default", "Read", "It reads and searches the web."),
            Choice(
                "auto_edit", "Edit", "It reads, searches the web, fetches pages and writes files."
            ),
            Choice("plan", "Plan", "It reads, searches the web and writes nothing but its plan."),
            Choice(
                "yolo",
                "Everything",
                "It searches the web, fetches pages, writes files, runs commands: all, as yolo.",
            ),
        ),
        help="Finer than yolo; set only one of the two.",
        advanced=True,
    ),
    ConfigField(
        key="maxTurns",
        label="Maximum turns",
        kind="number",
        help="Ends a run after this many answers from the model.",
        advanced=True,
    ),
    ConfigField(
        key="trustWorkspace",
        label="Trust the working folder",
        kind="checkbox",
        help="Load the settings, hooks and servers that lie in the folder. The model reads its "
        "GEMINI.md and the descriptions of its skills also without this.",
        advanced=True,
    ),
    ConfigField(
        key="executable",
        label="Gemini CLI",
        kind="path",
        help="Which CLI to run; without it, the one that is installed.",
        placeholder="gemini",
        advanced=True,
    ),
)


def build_config(values: Mapping[str, Any]) -> GeminiLocalConfig:
    """Builds a config from a form or stored JSON. InvalidOptions lists all problems.

    Numbers and checkboxes may be text, as browsers send them. An empty field counts as left out.
    """
    if problems := validate_config(values):
        raise refusal(problems)
    read, _ = _read(values)
    return GeminiLocalConfig(**read)


def validate_config(values: Mapping[str, Any]) -> list[ConfigProblem]:
    """Returns all problems in the input of `build_config`, in the order of the form."""
    read, problems = _read(values)
    unreadable = {problem.key for problem in problems}
    problems += [problem for problem in problems_of(read) if problem.key not in unreadable]
    return in_order(problems)


def _read(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[ConfigProblem]]:
    """The values under their Python names, typed; and what cannot be read as its kind."""
    read: dict[str, Any] = {}
    problems: list[ConfigProblem] = []
    for key, typed in values.items():
        name = snake_case(key)
        if typed == "" or (typed is None and name not in _MAY_BE_NULL):
            continue
        try:
            read[name] = _READERS.get(_KINDS.get(camel_cased(name), "text"), _as_it_is)(typed)
        except ValueError as error:
            problems.append(ConfigProblem(camel_cased(name), "cannot be read", str(error)))
    return read, problems


def _as_it_is(typed: Any) -> Any:
    return typed


def _number(typed: Any) -> Any:
    if not isinstance(typed, str):
        return typed
    try:
        number = float(typed)
    except ValueError:
        raise ValueError(f"a number instead of {typed!r}") from None
    return int(number) if number.is_integer() else number


def _tick(typed: Any) -> Any:
    if not isinstance(typed, str):
        return typed
    if typed.lower() not in _TICKS:
        raise ValueError(f"true or false instead of {typed!r}")
    return _TICKS[typed.lower()]


def _loaded(typed: str) -> Any:
    try:
        return json.loads(typed)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _variables(typed: Any) -> Any:
    """A mapping, or text: a JSON object, or NAME=value lines as in a `.env` file."""
    if not isinstance(typed, str):
        return typed
    if typed.lstrip().startswith("{"):
        return _loaded(typed)
    lines = [line.strip() for line in typed.splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    if not all(separator for _, separator, _ in pairs):
        # The line itself is not repeated: it may be a key that was pasted without its name.
        raise ValueError("NAME=value on every line")
    return {_EXPORT.sub("", name.rstrip()): _unquoted(value.strip()) for name, _, value in pairs}


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


_EXPORT = re.compile(r"^export\s+")
_TICKS = {
    **dict.fromkeys(("true", "on", "yes", "1"), True),
    **dict.fromkeys(("false", "off", "no", "0"), False),
}
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "number": _number,
    "checkbox": _tick,
    "env": _variables,
}
_KINDS = {field.key: field.kind for field in CONFIG_FIELDS}
_MAY_BE_NULL = ("timeout_sec",)
"""Null means something else here than left out: no limit."""
