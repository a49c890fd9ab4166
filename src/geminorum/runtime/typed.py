"""msgspec's typed decoding, safe for the threads that first decode a type at the same time.

msgspec (0.22) describes a type to itself when it first decodes one. If two threads do this at the
same time, one of them uses a description that is not complete yet, and the process crashes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import UnionType
from typing import Any, TypeAlias, TypeVar, overload

import msgspec

T = TypeVar("T")
Hook: TypeAlias = Callable[[type, Any], Any]

# Reentrant: the annotations of a caller's type are evaluated meanwhile, and may import a module
# that describes types of its own.
_DESCRIBING = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A fork has no other threads: none that would complete a description, or release the lock.
    os.register_at_fork(
        before=_DESCRIBING.acquire,
        after_in_parent=_DESCRIBING.release,
        after_in_child=_DESCRIBING.release,
    )


@overload
def decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def decoder(kind: UnionType) -> msgspec.json.Decoder[Any]: ...
def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    # msgspec keeps the description with the type, so only the first call for a type takes long.
    with _DESCRIBING:
        return msgspec.json.Decoder(kind)


def msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    with _DESCRIBING:
        return msgspec.msgpack.Decoder(kind)


def decode(data: bytes | str | msgspec.Raw, kind: type[T]) -> T:
    return decoder(kind).decode(data)


@overload
def convert(
    value: object, kind: type[T], *, str_keys: bool = False, dec_hook: Hook | None = None
) -> T: ...
@overload
def convert(
    value: object, kind: UnionType, *, str_keys: bool = False, dec_hook: Hook | None = None
) -> Any: ...
def convert(
    value: object, kind: Any, *, str_keys: bool = False, dec_hook: Hook | None = None
) -> Any:
    decoder(kind)
    return msgspec.convert(value, kind, str_keys=str_keys, dec_hook=dec_hook)
