"""A JSON Schema and plain data in; what is wrong with the data out, in words for a model.

The part of JSON Schema that people give to models. A keyword outside of it is refused when the
schema is given, because passing over it in silence would let wrong answers through.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import Any, TypeAlias
from urllib.parse import unquote

import msgspec

from geminorum.schema_pattern import compiled

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
MOST_PROBLEMS = 5
"""So many are worth telling at once."""
_LONGEST_TOLD = 80


def problems(schema: Schema, data: Any, at: str) -> Iterator[str]:
    """What is wrong, each with its place; `at` is what the data itself is called there.

    The first ones only, `MOST_PROBLEMS`, in time linear in the data: it comes from a model.
    """
    return islice(_problems(schema, data, at, _Document(schema)), MOST_PROBLEMS)


def schema_problems(schema: Any) -> Iterator[str]:
    """What is wrong with the schema itself: malformed, or with keywords that `problems` ignores."""
    try:
        found = list(problems(_META, schema, "schema")) or list(_deeper_problems(schema))
    except RecursionError:
        found = ["schema: nested too deeply"]
    return islice(found, MOST_PROBLEMS)


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


class _Document:
    """A schema whose references lead into itself, and what they were found to say on some data."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._found: dict[tuple[str, int, str], list[str]] = {}

    def referred(self, pointer: str, data: Any, at: str) -> list[str]:
        # Once for each place: alternatives that lead to the same definition would otherwise double
        # the work at every level of the data.
        key = pointer, id(data), at
        if key not in self._found:
            below = _problems(_target(pointer, self._root), data, at, self)
            self._found[key] = list(islice(below, MOST_PROBLEMS))
        return self._found[key]


class _Place(msgspec.Struct):
    at: str
    schema: dict[str, Any]
    """The one that the keyword stands in: some keywords mean something only beside others."""
    document: _Document

    def inside(self, schema: Schema, data: Any, step: str = "") -> Iterator[str]:
        return _problems(schema, data, self.at + step, self.document)


def _problems(schema: Schema, data: Any, at: str, document: _Document) -> Iterator[str]:
    if schema is False:
        yield f"{at}: must not be there"
    if isinstance(schema, dict):
        for keyword, wanted in schema.items():
            if check := _CHECKS.get(keyword):
                yield from check(wanted, data, _Place(at, schema, document))


def _is(data: Any, kind: str) -> bool:
    if isinstance(data, bool):  # to Python a bool is an int
        return kind == "boolean"
    if isinstance(data, float):  # JSON has no NaN, and one kind of number
        whole = kind == "integer" and data.is_integer()
        return whole or (kind == "number" and math.isfinite(data))
    return isinstance(data, _TYPES[kind])


def _shown(data: Any) -> str:
    try:
        return _short(msgspec.json.encode(data).decode())
    except (TypeError, ValueError, RecursionError):  # no JSON, or half a surrogate pair
        return _short(_ascii(data))


def _ascii(data: Any) -> str:
    try:
        return ascii(data)
    except (ValueError, RecursionError):  # a number of thousands of digits
        return f"a {type(data).__name__} that is too long to be shown"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TOLD else text[: _LONGEST_TOLD - 1] + "…"


def _step(name: object) -> str:
    # As it can be sent to a model, which may have made it up.
    return _short(str(name)).encode(errors="replace").decode()


def _spelled(data: Any) -> str:
    """The same text for the same JSON, however its numbers are written; True is not 1."""
    match data:
        case bool() | None | str():
            return json.dumps(data)
        case int() | float():
            return hex(int(data)) if _is(data, "integer") else repr(data)
        case list() | tuple():
            return f"[{','.join(map(_spelled, data))}]"
        case dict():
            pairs = (f"{json.dumps(str(key))}:{_spelled(data[key])}" for key in data)
            return f"{{{','.join(sorted(pairs))}}}"
        case _:
            return repr(data)


def _type(wanted: str | list[str], data: Any, place: _Place) -> Iterator[str]:
    kinds = [wanted] if isinstance(wanted, str) else wanted
    if not any(_is(data, kind) for kind in kinds):
        yield f"{place.at}: expected {' or '.join(kinds)}, got {_shown(data)}"


def _enum(wanted: list[Any], data: Any, place: _Place) -> Iterator[str]:
    spelled = _spelled(data)
    if not any(_spelled(value) == spelled for value in wanted):
        choices = ", ".join(map(_shown, wanted))
        yield f"{place.at}: expected one of {choices}, got {_shown(data)}"


def _const(wanted: Any, data: Any, place: _Place) -> Iterator[str]:
    if _spelled(wanted) != _spelled(data):
        yield f"{place.at}: expected {_shown(wanted)}, got {_shown(data)}"


def _ref(wanted: str, data: Any, place: _Place) -> Iterator[str]:
    yield from place.document.referred(wanted, data, place.at)


def _target(pointer: str, root: Any) -> Any:
    for step in unquote(pointer).removeprefix("#").split("/")[1:]:
        root = root[step.replace("~1", "/").replace("~0", "~")]
    return root


def _properties(wanted: dict[str, Schema], data: Any, place: _Place) -> Iterator[str]:
    for name, schema in wanted.items():
        if isinstance(data, dict) and name in data:
            yield from place.inside(schema, data[name], f".{_step(name)}")


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
            known_names = ", ".join(known) or "none"
            yield f"{place.at}: {_short(repr(name))} is unknown; known are {known_names}"
        else:
            yield from place.inside(wanted, data[name], f".{_step(name)}")


def _property_names(wanted: Schema, data: Any, place: _Place) -> Iterator[str]:
    for name in data if isinstance(data, dict) else ():
        yield from place.inside(wanted, name, f" (the name {_short(repr(name))})")


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
    firsts = _firsts(wanted, data, place)
    if None not in firsts:
        yield _nearest([text for text in firsts if text], place.at)


def _one_of(wanted: list[Schema], data: Any, place: _Place) -> Iterator[str]:
    firsts = _firsts(wanted, data, place)
    fitting = firsts.count(None)
    if not fitting:
        yield _nearest([text for text in firsts if text], place.at)
    elif fitting > 1:
        yield f"{place.at}: fits {fitting} of the alternatives, must fit one"


def _firsts(wanted: list[Schema], data: Any, place: _Place) -> list[str | None]:
    """What is first wrong by each of them; None for one that the data fits."""
    return [next(place.inside(schema, data), None) for schema in wanted]


def _nearest(texts: list[str], at: str) -> str:
    # Where one alternative got further than the others, it is the one that was meant.
    deeper = [text for text in texts if not text.startswith(f"{at}: expected")]
    return "; or ".join(dict.fromkeys(deeper or texts))


def _pattern(wanted: str, data: Any, place: _Place) -> Iterator[str]:
    if not isinstance(data, str) or len(data) > place.schema.get("maxLength", len(data)):
        return  # A pattern may take its time, and a text that is too long is refused anyway.
    if not _regex(wanted).search(data):
        yield f"{place.at}: must match the pattern {wanted}, got {_shown(data)}"


@lru_cache(maxsize=256)
def _regex(pattern: str) -> re.Pattern[str]:
    try:
        return compiled(pattern)
    except ValueError:
        return re.compile(pattern)  # Of a type's own hints: nobody has refused it.


def _number(words: str, fits: Callable[[Any, Any], bool]) -> Callable[..., Iterator[str]]:
    def check(wanted: Any, data: Any, place: _Place) -> Iterator[str]:
        if isinstance(data, int | float) and not isinstance(data, bool) and not fits(data, wanted):
            yield f"{place.at}: must be {words} {wanted}, got {_shown(data)}"

    return check


def _size(kind: str, words: str, fits: Callable[[int, int], bool]) -> Callable[..., Iterator[str]]:
    def check(wanted: int, data: Any, place: _Place) -> Iterator[str]:
        if _is(data, kind) and not fits(len(data), wanted):
            yield f"{place.at}: must have {words.format(wanted)}, has {len(data)}"

    return check


def _is_multiple(data: float, wanted: float) -> bool:
    # As they are written, not as they are stored: 0.3 is a multiple of 0.1.
    is_number = isinstance(data, int) or math.isfinite(data)
    return is_number and _exact(data) % _exact(wanted) == 0


def _exact(number: float) -> Fraction:
    return Fraction(number if isinstance(number, int) else repr(number))


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
    "multipleOf": _number("a multiple of", _is_multiple),
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
ANNOTATIONS = (
    *("title", "description", "default", "format", "example", "examples", "deprecated"),
    *("$comment", "readOnly", "writeOnly", "propertyOrdering", "discriminator"),
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
        **dict.fromkeys((*ANNOTATIONS, "const"), True),
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
        # Those of others may say that keywords mean nothing, or something else.
        "$schema": {"pattern": r"^https?://(json-schema\.org|spec\.openapis\.org)/"},
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


def _deeper_problems(schema: Schema) -> Iterator[str]:
    parts, followed = list(_parts(schema)), set[int]()
    known = {*map(id, parts)}
    for part in parts:
        yield from _pattern_problems(part)
        yield from _reference_problems(part, schema, known)
        yield from _loops(part, schema, set(), followed)


def _pattern_problems(part: dict[str, Any]) -> Iterator[str]:
    try:
        compiled(part.get("pattern", ""))
    except ValueError as error:
        yield f"the pattern {part['pattern']!r} cannot be read: {error}"


def _reference_problems(part: dict[str, Any], root: Schema, known: set[int]) -> Iterator[str]:
    target = _found(part["$ref"], root) if "$ref" in part else True
    # What stands in a `const` or a `default` only looks like a schema.
    if not isinstance(target, bool) and id(target) not in known:
        yield f"$ref {part['$ref']!r} leads to no schema"


def _loops(part: Any, root: Schema, above: set[int], done: set[int]) -> Iterator[str]:
    """References that lead back to where they stand without a step into the data."""
    if not isinstance(part, dict) or id(part) in done:
        return
    above.add(id(part))
    for target in _in_place(part, root):
        if id(target) in above:
            yield f"$ref {part.get('$ref')!r} leads back to itself"
        else:
            yield from _loops(target, root, above, done)
    above.discard(id(part))
    done.add(id(part))


def _in_place(part: dict[str, Any], root: Schema) -> Iterator[Any]:
    """The schemas that the same data is held against."""
    if "$ref" in part:
        yield _found(part["$ref"], root)
    for name in ("allOf", "anyOf", "oneOf"):
        yield from part.get(name, ())


def _found(pointer: str, root: Schema) -> Any:
    try:
        return _target(pointer, root)
    except (LookupError, TypeError):
        return None
