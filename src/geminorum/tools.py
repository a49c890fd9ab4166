"""Converts Python functions into tools that a model can be told about and that take JSON."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from geminorum.decisions import invoke, is_ours
from geminorum.errors import InvalidOptions
from geminorum.hints import python_only
from geminorum.runtime.interrupts import error_message
from geminorum.schema import converted, schema_of
from geminorum.schema_check import problems, schema_problems, whole_numbers

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns|Yields|Raises):")
_PARAMETER = re.compile(r"(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


@dataclass(frozen=True)
class Tool:
    """A function and its description for the model. `Tool.of` builds it from the function."""

    name: str
    description: str
    schema: dict[str, Any]
    """JSON Schema of the arguments; an object."""
    function: Callable[..., Any] | None = None
    """None: only declared; the caller answers the calls."""
    arguments: type[msgspec.Struct] | None = field(default=None, repr=False, compare=False)
    """`schema` as a type; None if the schema was written by hand."""

    def __post_init__(self) -> None:
        name: Any = self.name
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            hint = python_only(
                "letters, digits, _ . : - and no more than 64 of them: name='get_weather'"
            )
            raise InvalidOptions(f"{self.name!r} cannot be the name of a tool", hint=hint)
        schema: Any = self.schema
        if not (isinstance(schema, dict) and schema.get("type") == "object"):
            hint = python_only("{'type': 'object', 'properties': {'city': {'type': 'string'}}}")
            raise InvalidOptions(f"the schema of tool {self.name} is not an object's", hint=hint)
        if self.function is not None and self.arguments is None:
            _refuse_what_cannot_be_checked(self)

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> Tool:
        """Builds a tool from a function: arguments from its type hints, texts from its docstring.

        `Annotated[str, "what it is"]` and a docstring's `Args:` describe the arguments.
        """
        _refuse_what_cannot_be_called(function)
        name = _name_of(function) if name is None else name
        text = _docstring(function)
        parameters = _parameters(function, name)
        arguments = _arguments_of(name, parameters)
        schema = _described(_schema_of(name, arguments, parameters), parameters, text)
        told = _summary(text) if description is None else description
        return cls(name, told, schema, function, arguments)


@dataclass(frozen=True)
class ToolOutcome:
    """The outcome of a tool call."""

    status: Literal["success", "error"]
    output: Any = None
    """Plain JSON data, or the error message if it failed."""
    error_type: str | None = None
    """"invalid_arguments": the model can correct them. "tool_failed": the function raised."""

    @property
    def text(self) -> str:
        """The output as text for display."""
        if isinstance(self.output, str):
            return self.output
        return msgspec.json.encode(self.output).decode()


def tools_of(items: Iterable[Tool | Callable[..., Any]]) -> tuple[Tool, ...]:
    """Converts functions and tools to tools. Raises InvalidOptions if two share a name."""
    if isinstance(items, str | bytes | Tool | Mapping) or not isinstance(items, Iterable):
        name = getattr(items, "__name__", "get_weather")
        raise InvalidOptions(f"tools={items!r} is not a list", hint=python_only(f"tools=[{name}]"))
    found: dict[str, Tool] = {}
    for item in items:
        tool = item if isinstance(item, Tool) else Tool.of(item)
        if tool.name in found:
            hint = python_only(f"give one of them another: Tool.of(function, name='{tool.name}_2')")
            raise InvalidOptions(f"two tools have the name {tool.name}", hint=hint)
        found[tool.name] = tool
    return tuple(found.values())


async def call(tool: Tool, arguments: Mapping[str, Any] | None) -> ToolOutcome:
    """Calls the tool with a model's arguments and returns the output or what went wrong.

    Only exceptions that are not the tool's propagate: cancellation of the caller, Ctrl-C.
    """
    if tool.function is None:
        hint = python_only("answer the call yourself, or give it a function")
        raise InvalidOptions(f"tool {tool.name} is only declared", hint=hint)
    try:
        values = _values(tool, {} if arguments is None else arguments)
    except (msgspec.ValidationError, RecursionError) as error:
        return ToolOutcome("error", f"{tool.name}: {error}", "invalid_arguments")
    # A type of the caller's, which may raise anything.
    except (Exception, SystemExit, GeneratorExit) as error:
        return ToolOutcome(
            "error", _printable(f"{tool.name}: {error_message(error)}"), "invalid_arguments"
        )
    try:
        return ToolOutcome("success", _plain(await invoke(tool.function, **values)))
    except asyncio.CancelledError as error:
        if is_ours():
            raise
        return ToolOutcome("error", _printable(error_message(error)), "tool_failed")
    # A parser of arguments ends the program where it does not understand: not this one.
    except (Exception, SystemExit, GeneratorExit) as error:
        return ToolOutcome("error", _printable(error_message(error)), "tool_failed")


def _values(tool: Tool, arguments: Any) -> dict[str, Any]:
    """The arguments as the function wants them; those left out stay out, so its defaults hold."""
    data = whole_numbers(dict(arguments) if isinstance(arguments, Mapping) else arguments)
    if tool.arguments is not None:
        typed = converted(data, tool.arguments, tool.schema, "arguments")
        return {name: getattr(typed, name) for name in data}
    if found := list(problems(tool.schema, data, "arguments")):
        raise msgspec.ValidationError("; ".join(found))
    return dict(data)


def _plain(value: Any) -> Any:
    """As JSON would have it: what has no place there, as text."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_as_builtin))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return _printable(str(value))


def _as_builtin(value: Any) -> Any:
    """The nearest that JSON has: msgspec takes no subclasses, and nothing of other libraries."""
    match value:
        case type():
            return str(value)
        case int() | float() | str():
            return next(kind(value) for kind in (int, float, str) if isinstance(value, kind))
        case Mapping():
            return dict(value)
        case Sequence() | Set():
            return list(value)
    if hasattr(value, "model_dump"):  # pydantic
        return value.model_dump(mode="json")
    return value.tolist() if hasattr(value, "tolist") else _printable(str(value))  # numpy


def _printable(text: str) -> str:
    # Half a surrogate pair (file names have them) cannot be sent to anybody.
    return text.encode(errors="replace").decode()


def _refuse_what_cannot_be_checked(tool: Tool) -> None:
    if found := list(schema_problems(tool.schema)):
        text = f"the schema of tool {tool.name} cannot be checked: {'; '.join(found)}"
        raise InvalidOptions(text, hint=python_only("fix it, or let Tool.of(function) write it"))


def _refuse_what_cannot_be_called(function: Any) -> None:
    if not callable(function):
        raise InvalidOptions(
            f"{function!r} is not a function", hint=python_only("tools=[get_weather]")
        )
    if isinstance(function, type):
        text = f"{function.__name__} is a class"
        raise InvalidOptions(text, hint=python_only("pass a function, or the method of an object"))
    forms = (function, type(function).__call__)
    if any(inspect.isgeneratorfunction(form) or inspect.isasyncgenfunction(form) for form in forms):
        text = f"{function!r} is a generator, a tool gives one result"
        raise InvalidOptions(text, hint=python_only("return a list"))


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", "")
    if not name or name == "<lambda>":
        hint = python_only("Tool.of(function, name='get_weather')")
        raise InvalidOptions(f"{function!r} has no name of its own", hint=hint)
    return str(name)


def _source(function: Any) -> Any:
    """Where the hints and the docstring stand."""
    if isinstance(function, partial):
        return _source(function.func)
    if hasattr(function, "__wrapped__"):
        return _source(function.__wrapped__)
    return function if inspect.isroutine(function) else type(function).__call__


def _docstring(function: Any) -> str:
    given = function.func if isinstance(function, partial) else function
    # Not inspect.getdoc(): for an object that is called it finds Python's own words on calling.
    described = _source(given).__doc__ or given.__doc__
    return inspect.cleandoc(described or "")


@dataclass(frozen=True)
class _Parameter:
    name: str
    hint: Any
    default: Any

    @property
    def description(self) -> str | None:
        texts = get_args(self.hint)[1:] if hasattr(self.hint, "__metadata__") else ()
        return next((text for text in texts if isinstance(text, str)), None)

    @property
    def optional(self) -> bool:
        return self.default is not inspect.Parameter.empty


def _parameters(function: Any, name: str) -> list[_Parameter]:
    hints = _hints(function, name)
    found = []
    for parameter in _signature(function, name).parameters.values():
        _refuse_what_cannot_be_passed(parameter, hints, name)
        found.append(_Parameter(parameter.name, hints[parameter.name], parameter.default))
    return found


def _signature(function: Any, name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError as error:
        hint = python_only("wrap it in a function of your own with type hints")
        raise InvalidOptions(f"{name} does not tell its parameters", hint=hint) from error


def _hints(function: Any, name: str) -> dict[str, Any]:
    source = _source(function)
    code, cells = getattr(source, "__code__", None), getattr(source, "__closure__", None) or ()
    # A hint that is text may name a class of the function around it, where it is used inside.
    nearby = dict(zip(getattr(code, "co_freevars", ()), cells, strict=False))
    try:
        known = {word: cell.cell_contents for word, cell in nearby.items()}
        return get_type_hints(source, localns=known or None, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError, ValueError) as error:
        hint = python_only(
            "define the types that it names at the top of the module, and import them there"
        )
        raise InvalidOptions(f"the type hints of {name}: {error}", hint=hint) from error


def _refuse_what_cannot_be_passed(
    parameter: inspect.Parameter, hints: dict[str, Any], name: str
) -> None:
    shown = f"parameter {parameter} of {name}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        hint = python_only("name each argument, or take one list: `cities: list[str]`")
        raise InvalidOptions(f"{shown}: a model must know what to send", hint=hint)
    if parameter.kind is parameter.POSITIONAL_ONLY:
        text = f"{shown} is positional only, and a model names its arguments"
        raise InvalidOptions(text, hint=python_only("take the `/` out of the signature"))
    if parameter.name not in hints:
        hint = python_only(f"`{parameter.name}: str`, for example")
        if parameter.name in ("self", "cls"):
            hint = python_only("pass the method of an object: Tool.of(weather.now)")
        raise InvalidOptions(f"{shown} has no type hint", hint=hint)


def _arguments_of(name: str, parameters: list[_Parameter]) -> type[msgspec.Struct]:
    # The defaults stay with the function: `_values` passes on only what was sent.
    fields = [
        (one.name, one.hint, msgspec.UNSET) if one.optional else (one.name, one.hint)
        for one in parameters
    ]
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


def _schema_of(
    name: str, arguments: type[msgspec.Struct], parameters: list[_Parameter]
) -> dict[str, Any]:
    try:
        schema = schema_of(arguments)
    except TypeError as error:
        raise _unusable(name, parameters, error) from error
    return {key: value for key, value in schema.items() if key != "title"}


def _unusable(name: str, parameters: list[_Parameter], error: TypeError) -> InvalidOptions:
    """The refusal that names the parameter, not the whole function."""
    hint = "str, int, float, bool, list, dict, Literal, Enum, a dataclass or a msgspec.Struct"
    for one in parameters:
        try:
            schema_of(one.hint)
        except TypeError as its_error:
            text = f"parameter {one.name} of {name}: {_first_line(its_error)} ({one.hint!r})"
            return InvalidOptions(
                text, hint=python_only(f"`{one.name}: str`, for example; possible are {hint}")
            )
    return InvalidOptions(f"{name}: {_first_line(error)}", hint=python_only(f"possible are {hint}"))


def _first_line(error: TypeError) -> str:
    # msgspec goes on with advice about its own hooks.
    words = str(error)
    return "this type has no JSON Schema" if "schema_hook" in words else words.partition("\n")[0]


def _described(
    schema: dict[str, Any], parameters: list[_Parameter], docstring: str
) -> dict[str, Any]:
    written = _written(docstring)
    properties = dict(schema["properties"])
    for one in parameters:
        part = properties[one.name]
        if text := one.description or part.get("description") or written.get(one.name):
            properties[one.name] = _with(part, "description", text)
        if one.optional and one.default is not None and _is_plain(one.default):
            properties[one.name] = _with(properties[one.name], "default", one.default)
    return {**schema, "properties": properties}


def _with(part: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    # Gemini wants nothing beside a `$ref`.
    return {**({"anyOf": [part]} if "$ref" in part else part), key: value}


def _is_plain(value: Any) -> bool:
    return type(value) in (str, int, bool) or (type(value) is float and math.isfinite(value))


def _summary(docstring: str) -> str:
    lines = docstring.splitlines()
    end = next((at for at, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    return "\n".join(lines[:end]).strip()


def _written(docstring: str) -> dict[str, str]:
    """What the docstring's `Args:` says about each parameter."""
    found: dict[str, str] = {}
    current, indent = "", 0
    for line in _section(docstring.splitlines()):
        depth = len(line) - len(line.lstrip())
        indent = indent or depth
        match = _PARAMETER.match(line.strip()) if depth <= indent else None
        if match:
            current, line = match[1], match[2]
        if current:
            found[current] = f"{found.get(current, '')} {line.strip()}".strip()
    return found


def _section(lines: list[str]) -> list[str]:
    starts = [
        at for at, line in enumerate(lines) if re.match(r"(Args|Arguments|Parameters):", line)
    ]
    below = lines[starts[0] + 1 :] if starts else []
    end = next((at for at, line in enumerate(below) if line[:1].strip()), len(below))
    return [line for line in below[:end] if line.strip()]
