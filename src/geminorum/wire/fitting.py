"""A JSON object to a Struct of the fields that fit: one odd field must not cost the others."""

from __future__ import annotations

from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Raw

from geminorum.runtime import typed

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_S = TypeVar("_S", bound=msgspec.Struct)


def fitting(kind: type[_S], raw: bytes | Raw) -> _S:
    """Raises one of UNREADABLE for what is no object, and where a required field is missing."""
    pieces = typed.decode(raw, dict[str, Raw])
    found: dict[str, Any] = {}
    for place in msgspec.structs.fields(kind):
        if place.encode_name in pieces:
            try:
                found[place.name] = _piece(pieces[place.encode_name], place.type)
            except UNREADABLE:
                if place.required:
                    raise
        elif place.required:
            raise msgspec.ValidationError(f"there is no field `{place.encode_name}`")
    return kind(**found)


def _piece(raw: Raw, kind: Any) -> Any:
    try:
        return typed.decode(raw, kind)
    except UNREADABLE:
        struct, is_list = _struct_in(kind)
        if struct is None:
            raise
    if not is_list:
        return fitting(struct, raw)
    return [fitting(struct, one) for one in typed.decode(raw, list[Raw])]


def _struct_in(kind: Any) -> tuple[type[msgspec.Struct] | None, bool]:
    """The Struct in `X`, `X | None` or `list[X] | None`, and whether it is in a list."""
    for option in get_args(kind) if isinstance(kind, UnionType) else (kind,):
        inner = get_args(option)[0] if get_origin(option) is list else option
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            return inner, inner is not option
    return None, False
