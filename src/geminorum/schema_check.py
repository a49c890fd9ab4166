"""A JSON Schema and plain data in; what is wrong with the data out, in words for a model.

The part of JSON Schema that people give to models. A keyword outside of it is refused when the
schema is given, because passing over it in silence would let wrong answers through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec

Schema: TypeAlias = dict[str, Any] | bool

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def problems(schema: Schema, data: Any, at: str, root: Schema | None = None) -> Iterator[str]:
    """What is wrong, each with its place; `at` is what the data itself is called there."""
    root = schema if root is None else root
    if schema is False:
        yield f"{at}: must not be there"
    if isinstance(schema, dict):
        for keyword, wanted in schema.items():
            if check := _CHECKS.get(keyword):
                yield from check(wanted, data, _Place(at, schema, root))


def schema_problems(schema: Any) -> Iterator[str]:
    """What is wrong with the schema itself: malformed, or with keywords that `problems` ignores."""
    found = list(problems(_META, schema, "schema"))
    yield from found
    if not found:
        for part in _parts(schema):
            yield from _pattern_problems(part)
            yield from _reference_problems(part, schema)


def whole_numbers(data: Any) -> Any:
    """The same data with 3 for 3.0: JSON knows one kind of number, and the API writes both."""
    match data:
        # Above 2**53 a float does not tell which integer was meant.
        case float() if data.is_integer() and abs(data) <= 2**53:
            return int(data)
        case list() | tuple():
            return [whole_numbers(item) for item in data]
        case dict():
            return {key: whole_numbers(value) for key, value in data.items()}
        case _:
            return data


class _Place(msgspec.Struct):
    at: str
    schema: dict[str, Any]
    """The one that the keyword stands in: some keywords mean something only beside others."""
    root: Schema

    def inside(self, schema: Schema, data: Any, step: str = "") -> Iterator[str]:
        return problems(schema, data, self.at + step, self.root)


def _is(data: Any, kind: str) -> bool:
    if isinstance(data, bool):  # to Python a bool is an int
        return kind == "boolean"
    return isinstance(data, _TYPES[kind])


def _told(data: Any) -> str:
    try:
        text = msgspec.json.encode(data).decode()
    except (TypeError, ValueError):  # no JSON, or half a surrogate pair
        text = ascii(data)
    return text if len(text) <= 80 else text[:79] + "…"


def _same(one: Any, other: Any) -> bool:
    return _spelled(one) == _spelled(other)


def _spelled(data: Any) -> str:
    # Compared as JSON: to Python, True == 1.
    return json.dumps(whole_numbers(data), sort_keys=True, default=repr)


def _type(wanted: str | list[str], data: Any, place: _Place) -> Iterator[str]:
    kinds = [wanted] if isinstance(wanted, str) else wanted
    if not any(_is(data, kind) for kind in kinds):
        yield f"{place.at}: expected {' or '.join(kinds)}, got {_told(data)}"


def _enum(wanted: list[Any], data: Any, place: _Place) -> Iterator[str]:
    if not any(_same(value, data) for value in wanted):
        choices = ", ".join(map(_told, wanted))
        yield f"{place.at}: expected one of {choices}, got {_told(data)}"


def _const(wanted: Any, data: Any, place: _Place) -> Iterator[str]:
    if not _same(wanted, data):
        yield f"{place.at}: expected {_told(wanted)}, got {_told(data)}"


def _ref(wanted: str, data: Any, place: _Place) -> Iterator[str]:
    yield from place.inside(_target(wanted, place.root), data)


def _target(pointer: str, root: Any) -> Any:
    for step in pointer.removeprefix("#").split("/")[1:]:
        root = root[step.replace("~1", "/").replace("~0", "~")]
    return root


def _properties(wanted: dict[str, Schema], data: Any, place: _Place) -> Iterator[str]:
    for name, schema in wanted.items():
        if isinstance(data, dict) and name in data:
            yield from place.inside(schema, data[name], f".{name}")


def _required(wanted: list[str], data: Any, place: _Place) -> Iterator[str]:
    missing = [name for name in wanted if isinstance(data, dict) and name not in data]
    for name in missing:
        part = place.schema.get("properties", {}).get(name, {})
        kind = f" ({part['type']})" if isinstance(part, dict) and "type" in part else ""
        yield f"{place.at}: {name!r}{kind} is missing"


def _additional(wanted: Schema, data: Any, place: _Place) -> Iterator[str]:
    known = place.schema.get("properties", {})
    for name in [key for key in data if key not in known] if isinstance(data, dict) else []:
        if wanted is False:
            yield f"{place.at}: {name!r} is not known; known are {', '.join(known) or 'none'}"
        else:
            yield from place.inside(wanted, data[name], f".{name}")


def _property_names(wanted: Schema, data: Any, place: _Place) -> Iterator[str]:
    for name in data if isinstance(data, dict) else ():
        yield from place.inside(wanted, name, f" (the name {name!r})")


def _prefix_items(wanted: list[Schema], data: Any, place: _Place) -> Iterator[str]:
    for index, schema in enumerate(wanted):
        if isinstance(data, list) and index < len(data):
            yield from place.inside(schema, data[index], f"[{index}]")


def _items(wanted: Schema, data: Any, place: _Place) -> Iterator[str]:
    first = len(place.schema.get("prefixItems", ()))
    for index in range(first, len(data)) if isinstance(data, list) else ():
        yield from place.inside(wanted, data[index], f"[{index}]")


def _unique(wanted: bool, data: Any, place: _Place) -> Iterator[str]:
    if wanted and isinstance(data, list) and len(set(map(_spelled, data))) < len(data):
        yield f"{place.at}: the items must differ from each other"


def _all_of(wanted: list[Schema], data: Any, place: _Place) -> Iterator[str]:
    for schema in wanted:
        yield from place.inside(schema, data)


def _any_of(wanted: list[Schema], data: Any, place: _Place) -> Iterator[str]:
    firsts = [next(place.inside(schema, data), None) for schema in wanted]
    if None not in firsts:
        yield _nearest([text for text in firsts if text], place.at)


def _one_of(wanted: list[Schema], data: Any, place: _Place) -> Iterator[str]:
    yield from _any_of(wanted, data, place)
    fitting = sum(next(place.inside(schema, data), None) is None for schema in wanted)
    if fitting > 1:
        yield f"{place.at}: fits {fitting} of the alternatives, must fit one"


def _nearest(texts: list[str], at: str) -> str:
    # Where one alternative got further than the others, it is the one that was meant.
    deeper = [text for text in texts if not text.startswith(f"{at}: expected")]
    return "; or ".join(dict.fromkeys(deeper or texts))


def _pattern(wanted: str, data: Any, place: _Place) -> Iterator[str]:
    if isinstance(data, str) and not re.search(wanted, data):
        yield f"{place.at}: must match the pattern {wanted}, got {_told(data)}"


def _number(words: str, fits: Callable[[Any, Any], bool]) -> Callable[..., Iterator[str]]:
    def check(wanted: Any, data: Any, place: _Place) -> Iterator[str]:
        if _is(data, "number") and not fits(data, wanted):
            yield f"{place.at}: must be {words} {wanted}, got {_told(data)}"

    return check


def _size(kind: str, words: str, fits: Callable[[int, int], bool]) -> Callable[..., Iterator[str]]:
    def check(wanted: int, data: Any, place: _Place) -> Iterator[str]:
        if _is(data, kind) and not fits(len(data), wanted):
            yield f"{place.at}: must have {words.format(wanted)}, has {len(data)}"

    return check


def _at_least(one: Any, other: Any) -> bool:
    return bool(one >= other)


def _at_most(one: Any, other: Any) -> bool:
    return bool(one <= other)


_CHECKS: dict[str, Callable[..., Iterator[str]]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "$ref": _ref,
    "properties": _properties,
    "required": _required,
    "additionalProperties": _additional,
    "propertyNames": _property_names,
    "prefixItems": _prefix_items,
    "items": _items,
    "uniqueItems": _unique,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "pattern": _pattern,
    "minimum": _number("at least", _at_least),
    "maximum": _number("at most", _at_most),
    "exclusiveMinimum": _number("greater than", lambda data, wanted: data > wanted),
    "exclusiveMaximum": _number("less than", lambda data, wanted: data < wanted),
    "multipleOf": _number(
        "a multiple of", lambda data, wanted: Decimal(str(data)) % Decimal(str(wanted)) == 0
    ),
    "minLength": _size("string", "at least {} characters", _at_least),
    "maxLength": _size("string", "at most {} characters", _at_most),
    "minItems": _size("array", "at least {} items", _at_least),
    "maxItems": _size("array", "at most {} items", _at_most),
    "minProperties": _size("object", "at least {} properties", _at_least),
    "maxProperties": _size("object", "at most {} properties", _at_most),
}

_WITH_ONE_SCHEMA = ("items", "additionalProperties", "propertyNames")
_WITH_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_WITH_NAMED_SCHEMAS = ("properties", "$defs", "definitions")
_ANNOTATIONS = (
    *("title", "description", "default", "format", "example", "examples", "deprecated"),
    *("$schema", "$comment", "readOnly", "writeOnly", "propertyOrdering", "discriminator"),
    *("contentEncoding", "contentMediaType"),
)
_ONE: dict[str, Any] = {"$ref": "#"}
_LIST: dict[str, Any] = {"type": "array", "items": _ONE, "minItems": 1}
_NAMED: dict[str, Any] = {"type": "object", "additionalProperties": _ONE}
_LIMIT = {"type": "number"}
_COUNT = {"type": "integer", "minimum": 0}
_KIND = {"type": "string", "enum": list(_TYPES)}
# The schema of the schemas that we can check, in their own words.
_META: dict[str, Any] = {
    "type": ["object", "boolean"],
    "additionalProperties": False,
    "properties": {
        **dict.fromkeys((*_ANNOTATIONS, "const"), True),
        **dict.fromkeys(_WITH_ONE_SCHEMA, _ONE),
        **dict.fromkeys(_WITH_SCHEMAS, _LIST),
        **dict.fromkeys(_WITH_NAMED_SCHEMAS, _NAMED),
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _LIMIT),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _COUNT),
        **dict.fromkeys(("minProperties", "maxProperties"), _COUNT),
        "multipleOf": {"type": "number", "exclusiveMinimum": 0},
        "type": {"anyOf": [_KIND, {"type": "array", "items": _KIND, "minItems": 1}]},
        "enum": {"type": "array", "minItems": 1},
        "required": {"type": "array", "items": {"type": "string"}},
        "uniqueItems": {"type": "boolean"},
        "pattern": {"type": "string"},
        "$ref": {"type": "string", "pattern": "^#(/|$)"},
    },
}


def _parts(schema: Schema) -> Iterator[dict[str, Any]]:
    """The schema and every schema in it."""
    if not isinstance(schema, dict):
        return
    yield schema
    below = [schema[name] for name in _WITH_ONE_SCHEMA if name in schema]
    below += [part for name in _WITH_SCHEMAS for part in schema.get(name, ())]
    below += [part for name in _WITH_NAMED_SCHEMAS for part in schema.get(name, {}).values()]
    for part in below:
        yield from _parts(part)


def _pattern_problems(part: dict[str, Any]) -> Iterator[str]:
    try:
        re.compile(part.get("pattern", ""))
    except re.error as error:
        yield f"the pattern {part['pattern']!r} cannot be read: {error}"


def _reference_problems(part: Any, root: Schema) -> Iterator[str]:
    passed: list[str] = []
    while isinstance(part, dict) and "$ref" in part:
        pointer = part["$ref"]
        if pointer in passed:
            yield f"$ref {pointer!r} leads back to itself"
            return
        passed.append(pointer)
        part = _found(pointer, root)
        if not isinstance(part, dict | bool):
            yield f"$ref {pointer!r} leads to no schema"


def _found(pointer: str, root: Schema) -> Any:
    try:
        return _target(pointer, root)
    except (LookupError, TypeError):
        return None
