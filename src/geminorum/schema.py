"""A type, or a JSON Schema, in; the shape that an answer shall have out, and the typed answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import GenericAlias, UnionType
from typing import Any, get_origin

import msgspec

from geminorum.errors import InvalidAnswer, InvalidOptions
from geminorum.hints import advice
from geminorum.runtime import typed
from geminorum.schema_check import ANNOTATIONS, problems, schema_problems, whole_numbers

_HINT = advice(
    "{pass a class (msgspec.Struct, dataclass, TypedDict, Enum, pydantic model), a type such as "
    "list[int], or a JSON Schema as a dict}"
)
_FENCED = re.compile(r"\s*```(?:json|JSON)?[ \t]*\r?\n(.*)\n[ \t]*```\s*", re.S)
_NAMELESS = "answer"


class Shape:
    """What an answer shall look like; `shape_of` makes one."""

    def __init__(self, name: str, schema: dict[str, Any], typed: Callable[[Any], Any]) -> None:
        self.name = name
        self.schema = schema
        """A JSON Schema whose root is written out, with references into its own `$defs` only."""
        self._typed = typed

    def __repr__(self) -> str:
        return f"Shape({self.name!r})"

    def read(self, data: Any) -> Any:
        """The typed value. `data` is the answer's text, JSON, or already plain data.

        InvalidAnswer says what is wrong in words that can be sent back to the model. A text that
        is fenced as a whole, as models like to do, is read too.
        """
        return self.typed(parsed(data) if isinstance(data, str | bytes | bytearray) else data)

    def typed(self, plain: Any) -> Any:
        """The typed value of plain data, in which a text is a text."""
        try:
            return self._typed(whole_numbers(plain))
        except msgspec.ValidationError as error:
            raise _invalid(f"the answer does not fit: {error}") from error
        except RecursionError as error:
            raise _invalid("the answer is nested too deeply") from error


def shape_of(wanted: Any) -> Shape:
    """The shape that a type or a JSON Schema describes; InvalidOptions where it describes none."""
    if isinstance(wanted, dict):
        return _from_schema(wanted)
    if wanted is None or isinstance(wanted, str | bytes) or not _is_type(wanted):
        raise InvalidOptions(f"{_named(wanted)} cannot describe an answer", hint=_HINT)
    try:
        schema = schema_of(wanted)
    except TypeError as error:
        text = f"no JSON Schema can be made of {wanted!r}: {error}"
        raise InvalidOptions(text, hint=_HINT) from error
    name = getattr(wanted, "__name__", None) if isinstance(wanted, type) else None
    return Shape(name or _NAMELESS, schema, lambda data: converted(data, wanted, schema, "answer"))


def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a type, its root written out; TypeError where there can be none."""
    theirs: dict[str, Any] = {}

    def of_others(custom: type) -> dict[str, Any]:
        if not is_pydantic(custom):
            raise NotImplementedError
        schema: dict[str, Any] = custom.model_json_schema()  # type: ignore[attr-defined]
        theirs.update(schema.pop("$defs", {}))
        return schema

    try:
        schema = msgspec.json.schema(kind, schema_hook=of_others)
    except (NameError, RuntimeError) as error:  # a name that leads nowhere; pydantic's refusals
        raise TypeError(str(error)) from error
    ours = schema.pop("$defs", {})
    if clash := sorted(ours.keys() & theirs.keys()):
        raise TypeError(f"two types are called {clash[0]}; rename one")
    mended: dict[str, Any] = _mended(_rooted(schema, {**ours, **theirs}))
    return mended


def converted(data: Any, kind: Any, schema: dict[str, Any], at: str) -> Any:
    """Plain data as the type; msgspec.ValidationError lists what is wrong, not just the first."""
    try:
        # Strict: "3" is no number, and 1 is not a date. `str_keys`, because JSON has no others.
        return typed.convert(data, kind, str_keys=True, dec_hook=_validated)
    except (msgspec.ValidationError, UnicodeError) as error:  # half a surrogate pair
        text = "; ".join(problems(schema, data, at)) or str(error).replace("`$", f"`{at}")
        raise msgspec.ValidationError(text) from error


def is_pydantic(kind: Any) -> bool:
    """By what it can do: pydantic is not ours to import."""
    able = ("model_json_schema", "model_validate_json")
    return isinstance(kind, type) and all(hasattr(kind, name) for name in able)


def _validated(kind: type, data: Any) -> Any:
    if not is_pydantic(kind):
        raise TypeError(f"nothing makes a {kind.__name__} of it")
    try:
        # From JSON and not from Python values: a strict model takes a date as text only there.
        return kind.model_validate_json(msgspec.json.encode(data))  # type: ignore[attr-defined]
    except ValueError as error:
        raise ValueError(_error_message(error)) from error


def _error_message(error: Any) -> str:
    """A pydantic error without its advertisement."""
    if not hasattr(error, "errors"):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())


def _rooted(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """With the root written out: the API wants to see its `type`."""
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    if isinstance(definitions.get(name), dict):
        schema = _merged(definitions[name], {k: v for k, v in schema.items() if k != "$ref"})
        others = {key: value for key, value in definitions.items() if key != name}
        # A type that contains itself is still referred to.
        if not _refers_to(name, [schema, others]):
            definitions = others
    return {**schema, "$defs": definitions} if definitions else schema


def _merged(definition: dict[str, Any], beside: dict[str, Any]) -> dict[str, Any]:
    """A definition, and what stands beside the reference to it: both hold."""
    if {*beside} <= {*ANNOTATIONS, "$schema", "definitions"}:
        return {**definition, **beside}
    # One keyword may have something to say on both sides, or on its neighbours.
    told = {"type": definition["type"]} if "type" in definition else {}
    return {**told, **beside, "allOf": [definition, *beside.get("allOf", ())]}


def _refers_to(name: str, part: Any) -> bool:
    if isinstance(part, dict):
        pointer = f"{part.get('$ref')}/"
        return pointer.startswith(f"#/$defs/{name}/") or _refers_to(name, list(part.values()))
    return isinstance(part, list) and any(_refers_to(name, item) for item in part)


def _mended(part: Any) -> Any:
    """As Gemini wants it: a `$ref` stands alone, an enum tells its type, there is no `const`."""
    if isinstance(part, list):
        return [_mended(item) for item in part]
    if not isinstance(part, dict):
        return part
    part = {key: _mended(value) for key, value in part.items()}
    if isinstance(part.get("$ref"), str) and len(part) > 1:
        return {"anyOf": [{"$ref": part.pop("$ref")}], **part}
    if isinstance(part.get("const"), str | int):
        part["enum"] = [part.pop("const")]
    if isinstance(part.get("enum"), list) and "type" not in part:
        kinds = {_ENUM_TYPES.get(type(value)) for value in part["enum"]}
        return {"type": kinds.pop(), **part} if len(kinds) == 1 and None not in kinds else part
    return part


_ENUM_TYPES = {str: "string", int: "integer"}


def _from_schema(schema: dict[str, Any]) -> Shape:
    if found := list(schema_problems(schema)):
        hint = advice(
            "leave the keyword out[, or {pass a type} and let geminorum write the schema]"
        )
        raise InvalidOptions(f"the JSON Schema cannot be checked: {'; '.join(found)}", hint=hint)
    title = schema.get("title")
    rooted = _rooted({k: v for k, v in schema.items() if k != "$defs"}, schema.get("$defs", {}))

    def checked(data: Any) -> Any:
        if found := list(problems(rooted, data, "answer")):
            raise msgspec.ValidationError("; ".join(found))
        return data

    return Shape(title if isinstance(title, str) and title else _NAMELESS, rooted, checked)


def parsed(text: str | bytes | bytearray) -> Any:
    """The plain data that an answer's text stands for."""
    try:
        words = text if isinstance(text, str) else text.decode()
        fenced = _FENCED.fullmatch(words)
        return msgspec.json.decode(fenced[1] if fenced else words)
    except RecursionError as error:
        raise _invalid("the answer is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise _invalid(f"the answer is not JSON: {error}") from error


def _invalid(text: str) -> InvalidAnswer:
    return InvalidAnswer(text, hint="ask again, and send this message along")


def _is_type(wanted: Any) -> bool:
    if hasattr(wanted, "__supertype__") or hasattr(wanted, "__value__"):
        return True  # NewType("Celsius", float); `type Celsius = float`
    return isinstance(wanted, type | GenericAlias | UnionType) or get_origin(wanted) is not None


def _named(wanted: Any) -> str:
    if callable(wanted) and hasattr(wanted, "__name__"):
        return f"the function {wanted.__name__}"
    kind = type(wanted)
    return repr(wanted) if kind.__module__ == "builtins" else f"an object of class {kind.__name__}"
