"""Options: settings that mean the same on every transport, checked before anything starts."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, get_args, get_type_hints

import msgspec

from geminorum.credentials import shown_address
from geminorum.errors import InvalidOptions
from geminorum.events import DataT
from geminorum.hints import advice, python_only
from geminorum.permissions import Policy, rule_of
from geminorum.runtime import typed
from geminorum.runtime.lazy import difflib
from geminorum.spelling import snake_case

if TYPE_CHECKING:
    from geminorum.sessions.store import SessionStore

    StrPath: TypeAlias = str | os.PathLike[str]
    Store: TypeAlias = SessionStore | str
else:
    # msgspec has no unions with classes of others; plain data holds strings anyway.
    StrPath = str
    Store = str

Approval: TypeAlias = Literal["default", "auto_edit", "yolo", "plan"]
ClaudeApproval: TypeAlias = Literal["acceptEdits", "bypassPermissions"]
Effort: TypeAlias = Literal["minimal", "low", "medium", "high", "xhigh", "max"]
_APPROVALS = "default, auto_edit, yolo or plan"
_CLAUDES_WORDS = {"acceptEdits": "auto_edit", "bypassPermissions": "yolo"}
_SESSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


class _OptionsType(msgspec.StructMeta):
    """Adds the nearest name to Python's own complaint about an unknown keyword."""

    if not TYPE_CHECKING:  # Checkers would take this signature for that of the constructor.

        def __call__(cls, *args: Any, **given: Any) -> Any:
            try:
                return super().__call__(*args, **given)
            except TypeError as error:
                unknown = [name for name in given if name not in cls.__struct_fields__]
                if not unknown:
                    raise
                advice = _nearest(unknown[0], cls.__struct_fields__)
                raise TypeError(f"Options has no {unknown[0]!r}{advice}") from error


class Options(
    msgspec.Struct,
    Generic[DataT],
    metaclass=_OptionsType,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """Settings of a run. A transport that cannot honour one raises Unsupported before it starts."""

    cwd: StrPath | None = None
    """The agent's working folder. None: the current one."""
    model: str | None = None
    """A model name or alias ("flash"). None: the model in the user's settings."""
    approval: Approval | ClaudeApproval | None = None
    """What the agent may do without asking. None: the CLI's default, which allows reading and web
    search. Claude's "acceptEdits" and "bypassPermissions" are accepted."""
    yolo: bool = False
    """Shorthand for approval="yolo"; sets `approval`."""
    policy: Policy | None = None
    """What the agent may do without asking, by capability."""
    allowed_tools: tuple[str, ...] | list[str] | None = None
    """Restrict the agent to these tools and pre-approve them. None: no restriction.
    `run_shell_command(git status)` allows commands that start with `git status`."""
    disallowed_tools: tuple[str, ...] | list[str] = ()
    """Tools the agent may never use."""
    max_turns: int | None = None
    """Maximum number of model responses; then the run ends with TurnLimit. None: the transport's
    own limit."""
    max_budget_usd: float | None = None
    """Maximum cost in US dollars at list prices; then the run ends with BudgetExceeded. None: no
    limit."""
    timeout: float | None = None
    """Seconds for the whole run, startup included. None: no limit. In a conversation, it applies to
    the opening and to each turn."""
    network_timeout: float | None = 50.0
    """Seconds of network failure until the run ends with NetworkError. None: as long as the
    transport itself retries."""
    resume: str | None = None
    """The id of the session to resume, or "latest"."""
    session_id: str | None = None
    """The id for a new session."""
    store: Store | None = None
    """Where to keep the session, so that another machine can resume it: a URL, or a store of your
    own (`geminorum.sessions.store`). None: only on this machine."""
    env: Mapping[str, str] = {}
    """Environment variables for the agent, added to this process's own."""
    include_directories: Sequence[StrPath] = ()
    """More folders that the agent may work in, besides `cwd`."""
    system_prompt: str | None = None
    """Instructions for the agent, added to its own."""
    replace_system_prompt: bool = False
    """Use `system_prompt` instead of the agent's own."""
    effort: Effort | None = None
    """How hard the model should think."""
    output_schema: type[DataT] | UnionType | Mapping[str, Any] | None = None
    """The type of the answer, `result.data`: a dataclass, a msgspec Struct, a TypedDict, a pydantic
    model, a type like `list[int]`, or a JSON Schema."""
    trust_workspace: bool | None = None
    """None: run without the folder's own settings. True: load them. False: let the CLI decide."""
    home: StrPath | None = None
    """None: an overlay of the user's home. A path: that home instead, isolated."""
    literal: bool = True
    """Treat `/` and `@` in the prompt as text. False: the CLI runs commands and reads files."""

    def __post_init__(self) -> None:
        for name, kind in _kinds().items():
            value = _converted(name, getattr(self, name), kind)
            msgspec.structs.force_setattr(self, name, value)
        if self.yolo:
            _fold_yolo(self)
        for text, hint in _problems(self):
            raise InvalidOptions(text, hint=hint)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Options:
        """Builds Options from plain data: paths as strings, camelCase accepted.

        For an unknown key, the error suggests the nearest one.
        """
        known: dict[str, Any] = {}
        for key, value in data.items():
            name = _SYNONYMS.get(name := snake_case(key), name)
            if name in cls.__struct_fields__:
                known[name] = _plain_value(name, value)
            else:
                warnings.warn(_unknown_key(key, cls.__struct_fields__), stacklevel=2)
        return cls(**known)

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({', '.join(shown)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        hidden = {"env": _without_values(self.env), "store": _without_credentials(self.store)}
        return list({**values, **hidden}.items())

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """The JSON Schema of the plain data that `from_dict` takes."""
        kinds = _kinds() | {"policy": Policy | None, "store": str | None}
        fields = msgspec.structs.fields(Options)
        plain = [(field.name, kinds[field.name], _default(field)) for field in fields]
        return msgspec.json.schema(msgspec.defstruct("Options", plain))

    def changed(self, **values: Any) -> Options[DataT]:
        """Returns a copy with some values replaced."""
        return msgspec.structs.replace(self, **values)


_SYNONYMS = {"permission_mode": "approval", "approval_mode": "approval"}


_CHECKED_AS: dict[str, Any] = {
    "approval": Approval | None,
    "policy": Any,
    "allowed_tools": tuple[str, ...] | None,
    "disallowed_tools": tuple[str, ...],
    "include_directories": tuple[str, ...],
    "output_schema": Any,
    "store": Any,
}
"""Kinds of plain data, where callers may pass more than that."""


@cache
def _kinds() -> dict[str, Any]:
    """The type of each option in plain data."""
    return get_type_hints(Options) | _CHECKED_AS


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is msgspec.NODEFAULT:
        return field.default
    return msgspec.field(default_factory=field.default_factory)


def _plain_value(name: str, value: Any) -> Any:
    if name == "policy" and isinstance(value, Mapping):
        return Policy.from_dict(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _converted(name: str, value: Any, kind: Any) -> Any:
    """The value as its type wants it: a list becomes a tuple, and a path stays a path."""
    if isinstance(value, os.PathLike):
        return value
    if name == "approval" and isinstance(value, str):
        value = _CLAUDES_WORDS.get(value, value)
    plain = dict(value) if isinstance(value, Mapping) else _spelled_out(value)
    try:
        right = typed.convert(plain, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # Half an emoji.
        shown = f"{name}={_without_values(value)!r}" if name == "env" else f"{name}={value!r}"
        choices = {"approval": _APPROVALS, "effort": ", ".join(get_args(Effort))}
        advice = f"; write {choices[name]}" if name in choices else ""
        raise InvalidOptions(f"{shown}: {error}{advice}") from error
    return tuple(value) if isinstance(value, list | tuple) else right


def _without_values(variables: object) -> object:
    """Their names only: keys are among them."""
    return dict.fromkeys(variables, "…") if isinstance(variables, Mapping) else "…"


def _without_credentials(store: object) -> object:
    return shown_address(store) if isinstance(store, str) else store


def _fold_yolo(options: Options) -> None:
    if options.approval not in (None, "yolo"):
        text = f"yolo=True and approval={options.approval!r} exclude each other"
        raise InvalidOptions(text, hint="leave one of them out")
    msgspec.structs.force_setattr(options, "approval", "yolo")
    # One place for it: a copy with another approval must not find it here again.
    msgspec.structs.force_setattr(options, "yolo", False)


def _spelled_out(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    return [os.fspath(item) if isinstance(item, os.PathLike) else item for item in value]


def _problems(options: Options) -> Iterator[tuple[str, str | None]]:
    """What is wrong, each with what to do about it."""
    for name in ("timeout", "network_timeout", "max_turns", "max_budget_usd"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            yield f"{name} must be greater than 0, not {value!r}", _NO_LIMIT
    if options.model is not None and not options.model.strip():
        yield "model is empty", _USERS_OWN
    yield from _session_problems(options)
    if options.policy is not None and not isinstance(options.policy, Policy):
        yield f"policy is a {type(options.policy).__name__}", python_only("write Policy(…)")
    elif options.approval == "yolo" and options.policy is not None:
        yield "approval='yolo' allows everything, policy does not", "leave one of them out"
    for spec in (*(options.allowed_tools or ()), *options.disallowed_tools):
        rule_of(spec)
    if options.replace_system_prompt and not options.system_prompt:
        yield "replace_system_prompt needs a system_prompt to put in its place", None


_NO_LIMIT = advice("{unset|None means} no limit")
_USERS_OWN = advice("{unset|None means} what the user's own settings say")


def _session_problems(options: Options) -> Iterator[tuple[str, str | None]]:
    for name in ("resume", "session_id"):
        value = getattr(options, name)
        if value is not None and not _SESSION.fullmatch(value):
            rule = f"{name} may hold letters, digits, - and _, and not begin with -"
            yield f"{rule}: {value!r}", None
        elif value is not None and value.isdecimal():
            text = f"{name}={value!r}: the CLI takes a number for a place in its list"
            yield text, "write more of the id, with its hyphens" if name == "resume" else None
    if options.resume and options.session_id:
        yield "resume and session_id exclude each other: a resumed session keeps its id", None


def _unknown_key(key: str, names: tuple[str, ...]) -> str:
    return f"unknown option {key!r} is ignored{_nearest(key, names)}"


def _nearest(name: str, names: tuple[str, ...]) -> str:
    if name in _ELSEWHERE:
        return f"; {_ELSEWHERE[name]}"
    near = difflib.get_close_matches(snake_case(name), names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


_ELSEWHERE = {
    # The nearest name would be `trust_workspace`, which is no harmless guess.
    "workspace": "open one with `with Workspace.opened(source) as there`, and pass cwd=there.folder"
}
"""What a run does not have, and what to do instead."""
