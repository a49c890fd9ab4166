"""What a job takes along: a prompt and options as plain data; what cannot travel is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import msgspec

from geminorum._version import __version__
from geminorum.errors import (
    GeminorumError,
    Interrupted,
    InvalidOptions,
    SetupError,
    Unsupported,
    class_for,
)
from geminorum.events import Done, Error, Event
from geminorum.hints import advice, python_only
from geminorum.options import Options
from geminorum.redaction import is_secret_variable
from geminorum.runtime.lazy import lazy_module
from geminorum.views.result import Result

if TYPE_CHECKING:
    from geminorum import schema
else:
    schema = lazy_module("geminorum.schema")

Via: TypeAlias = Literal["cli", "acp", "api"]
VIAS: tuple[Via, ...] = get_args(Via)
_TITLE_LETTERS = 120
# Escapes are whole: the bytes may end in the middle of one.
_PROMPT = re.compile(rb'\{"prompt":"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*)')


_TRAVEL = advice(
    "give an absolute path that exists there, or let a folder of yours travel: "
    '{fleet.workspace|submit(…, workspace="folder")}'
)
_NAME_SESSION = advice("name the session: {fleet.resume|resume=result.session_id}")


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it stands in the database."""

    prompt: str
    options: dict[str, Any] = {}
    """As `Options.from_dict` takes them; paths are those of the worker."""
    source: str | None = None
    """The git address of the workspace, if it is not a pack."""
    has_pack: bool = False


def spec_of(prompt: object, options: Options, source: str | None, *, has_pack: bool) -> JobSpec:
    """The plain data of a job; raises Unsupported about what cannot travel."""
    if type(prompt) is not str:
        hint = python_only("submit text, and let the workspace carry the files")
        raise Unsupported(f"a {type(prompt).__name__} cannot be a job's prompt", hint=hint)
    if options.cwd is not None and (source or has_pack):
        raise InvalidOptions("cwd and workspace exclude each other", hint="leave one of them out")
    return JobSpec(prompt=prompt, options=plain(options), source=source, has_pack=has_pack)


def title_in(beginning: bytes) -> str:
    """The first words of a job's prompt, from the first bytes of its spec in JSON."""
    found = _PROMPT.match(beginning)
    whole = found[1].decode("utf-8", "ignore") if found else ""
    try:
        text = str(msgspec.json.decode(f'"{whole}"'))
    except (msgspec.MsgspecError, ValueError):
        return ""  # Another version, or somebody else, has written it.
    return " ".join(text.split())[:_TITLE_LETTERS]


def options_of(spec: JobSpec) -> Options[Any]:
    return Options.from_dict(spec.options)


def refuse_unknown_words(data: bytes) -> None:
    """Raises SetupError about a job in words that only another version knows.

    They may forbid something, so they cannot be left out; a worker of that version can take it.
    """
    spec = msgspec.json.decode(data)
    unknown = {*spec} - {*JobSpec.__struct_fields__}
    unknown |= {*spec.get("options", ())} - {*Options.__struct_fields__}
    if unknown:
        text = f"geminorum {__version__} does not know {min(unknown)!r}, which the job asks for"
        hint = "update the worker: pip install --upgrade 'geminorum[fleet]'"
        raise SetupError(text, hint=hint)


def plain(options: Options) -> dict[str, Any]:
    """Options as plain data, without those that have their default."""
    default = Options()
    given = {
        name: value
        for name in options.__struct_fields__
        if (value := getattr(options, name)) != getattr(default, name)
    }
    return {name: _PLAIN.get(name, _as_is)(name, value) for name, value in given.items()}


def _as_is(name: str, value: Any) -> Any:
    return msgspec.to_builtins(value)


def _path(name: str, value: Any) -> str:
    path = str(os.fspath(value))
    if not Path(path).is_absolute():
        text = f"{name}={path!r} is a folder of this machine, and the job runs on another"
        raise Unsupported(text, hint=_TRAVEL)
    return path


def _paths(name: str, value: Any) -> list[str]:
    return [_path(name, one) for one in value]


def _variables(name: str, value: Mapping[str, str]) -> dict[str, str]:
    secret = [variable for variable in value if is_secret_variable(variable, value[variable])]
    if secret:
        hint = "set it in the environment of the workers; the database keeps no keys"
        raise Unsupported(f"env has a secret, {secret[0]}, which must not travel", hint=hint)
    return dict(value)


def _session(name: str, value: str) -> str:
    if value == "latest":
        raise Unsupported('resume="latest" means nothing on another machine', hint=_NAME_SESSION)
    return value


def _store(name: str, value: object) -> Any:
    hint = "leave store out: the fleet keeps the sessions of its jobs in its own database"
    raise Unsupported("a job cannot have a session store of its own", hint=hint)


def _schema(name: str, value: Any) -> dict[str, Any]:
    described: dict[str, Any] = schema.shape_of(value).schema
    return described


_PLAIN: dict[str, Callable[[str, Any], Any]] = {
    "cwd": _path,
    "home": _path,
    "include_directories": _paths,
    "env": _variables,
    "resume": _session,
    "store": _store,
    "output_schema": _schema,
}


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An exception that ended a job before there were events, as plain data."""

    code: str
    message: str
    hint: str | None = None
    retryable: bool = False
    status: int | None = None

    @classmethod
    def of(cls, error: GeminorumError) -> Failure:
        return cls(
            code=error.code,
            message=error.message,
            hint=error.hint,
            retryable=error.retryable,
            status=error.status,
        )

    def exception(self) -> GeminorumError:
        details: dict[str, Any] = {"hint": self.hint, "status": self.status}
        return class_for(self.code)(self.message, retryable=self.retryable, **details)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended: the result of its run, or what kept it from starting."""

    result: Result[Any] = Result()
    failure: Failure | None = None


def ended_by(error: GeminorumError) -> tuple[list[Event], Outcome]:
    """The last events and the outcome of a job that an exception ended."""
    said = error_event(error)
    done = Done(status="interrupted" if isinstance(error, Interrupted) else "error")
    result: Result[Any] = Result(status=done.status, errors=[said])
    return [said, done], Outcome(result=result, failure=Failure.of(error))


def error_event(error: GeminorumError, *, recoverable: bool = False) -> Error:
    return Error(
        error.message,
        error.code,
        recoverable=recoverable,
        hint=error.hint,
        status=error.status,
        retryable=error.retryable,
    )
