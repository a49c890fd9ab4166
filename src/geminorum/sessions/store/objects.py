"""Sessions in object storage: S3 and what speaks its protocol, Google Cloud Storage, Azure.

Each entry is an object of its own, which is created and never changed; the storage itself refuses
to create one twice. `pip install 'geminorum[stores]'` brings obstore, which does the talking.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from geminorum.errors import InvalidOptions, SetupError, StoreConflict, StoreError
from geminorum.runtime import typed
from geminorum.runtime.lazy import lazy_module
from geminorum.sessions.store.protocol import Listing

if TYPE_CHECKING:
    import obstore
    from obstore import exceptions as refusals
    from obstore import store as backends
else:
    obstore = lazy_module("obstore")
    refusals = lazy_module("obstore.exceptions")
    backends = lazy_module("obstore.store")

SCHEMES = ("s3", "gs", "az")
_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
_ENTRIES, _LEASES = "entries", "leases"
_MAX_ENTRY_BYTES = 8 * 1024 * 1024
_READERS = 8
"""Objects that are read at the same time: each takes a round trip."""
_CLIENT = {"timeout": "20s", "connect_timeout": "5s"}
_RETRY = {"max_retries": 2}
_ROUNDS = 5
"""Of taking a lease that others take at the same moment."""


class Lease(msgspec.Struct, frozen=True):
    holder: str
    until: float
    """Seconds since 1970, by the clock of its holder."""


class ObjectStore:
    """A `SessionStore` in a bucket: `ObjectStore("s3://bucket/folder")`.

    Credentials, region and endpoint come from the usual variables (`AWS_ACCESS_KEY_ID`,
    `AWS_ENDPOINT_URL`, …) or from the machine's role; `?region=…&endpoint=…` in the URL comes
    first. The clocks of the machines that share it should agree within a few seconds.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            self._bucket: Any = _opened(url)
        except ImportError as error:
            hint = "install it: pip install 'geminorum[stores]'"
            raise SetupError("object storage needs the package obstore", hint=hint) from error

    def __repr__(self) -> str:
        return f"ObjectStore({urlsplit(self._url)._replace(query='').geturl()!r})"

    def append(self, session: str, number: int, data: bytes) -> None:
        is_next = number == 1 or (number > 1 and self._has(_entry(session, number - 1)))
        try:
            if is_next:
                obstore.put(self._bucket, _entry(session, number), data, mode="create")
                return
        except refusals.AlreadyExistsError:
            pass
        raise StoreConflict(f"entry {number} is not the next of session {session!r}")

    def load(self, session: str, after: int = 0) -> Iterator[bytes]:
        # Names sort like numbers. What lies behind a gap is not part of the log.
        found = [name for number, name in self._named(session, after) if number > after]
        names = [
            name for place, name in enumerate(found, after + 1) if name.endswith(f"/{place:010}")
        ]
        with ThreadPoolExecutor(_READERS) as readers:
            for start in range(0, len(names), _READERS):
                yield from readers.map(self._read, names[start : start + _READERS])

    def list(self) -> Listing:
        last: dict[str, int] = {}
        for page in obstore.list(self._bucket, prefix=f"{_ENTRIES}/"):
            for one in page:
                session, number = _parsed(one["path"])
                if session:
                    last[session] = max(number, last.get(session, 0))
        return [*last.items()]

    def delete(self, session: str) -> None:
        # The last one first: whoever reads meanwhile finds a log that is only shorter.
        names = [name for _, name in self._named(session, 0)]
        for name in [*reversed(names), _lease(session)]:
            obstore.delete(self._bucket, name)

    def acquire(self, session: str, holder: str, seconds: float) -> str:
        for _ in range(_ROUNDS):
            known, tag = self._lease_of(session)
            if known is not None and known.holder != holder and known.until > time.time():
                return known.holder
            if self._put_lease(session, Lease(holder, time.time() + seconds), tag):
                return holder
        raise StoreError(f"the lease of session {session!r} changes again and again")

    def release(self, session: str, holder: str) -> None:
        # Replaced and not deleted: no storage deletes only what is still the same.
        known, tag = self._lease_of(session)
        if known is not None and known.holder == holder:
            self._put_lease(session, Lease("", 0.0), tag)

    def _has(self, name: str) -> bool:
        try:
            obstore.head(self._bucket, name)
        except FileNotFoundError:
            return False
        return True

    def _named(self, session: str, after: int) -> Sequence[tuple[int, str]]:
        prefix, offset = f"{_ENTRIES}/{_checked(session)}/", _entry(session, after)
        pages = obstore.list(self._bucket, prefix=prefix, offset=offset)
        named = [(_parsed(one["path"]), one["path"]) for page in pages for one in page]
        return sorted((number, path) for (name, number), path in named if name == session)

    def _read(self, name: str) -> bytes:
        found = obstore.get(self._bucket, name)
        if found.meta["size"] > _MAX_ENTRY_BYTES:
            return b""  # Nobody who follows the protocol has written it: it is damaged.
        return bytes(found.bytes())

    def _lease_of(self, session: str) -> tuple[Lease | None, str | None]:
        try:
            found = obstore.get(self._bucket, _lease(session))
        except FileNotFoundError:
            return None, None
        try:
            return typed.decode(bytes(found.bytes()), Lease), found.meta["e_tag"]
        except msgspec.MsgspecError:
            return None, found.meta["e_tag"]

    def _put_lease(self, session: str, lease: Lease, tag: str | None) -> bool:
        """False if another was quicker."""
        mode: Any = "create" if tag is None else {"e_tag": tag}
        try:
            obstore.put(self._bucket, _lease(session), msgspec.json.encode(lease), mode=mode)
        except (refusals.AlreadyExistsError, refusals.PreconditionError):
            return False
        except FileNotFoundError:
            if tag is None:
                raise  # There is no such bucket.
            return False
        return True


def _opened(url: str) -> Any:
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not parts.netloc:
        raise InvalidOptions(f"{url!r} names no bucket", hint="s3://bucket/folder, gs://…, az://…")
    config: dict[str, Any] = dict(parse_qsl(parts.query))
    client = {**_CLIENT, "allow_http": config.get("endpoint", "").startswith("http:")}
    how: dict[str, Any] = {"client_options": client, "retry_config": _RETRY, **config}
    return backends.from_url(parts._replace(query="").geturl(), **how)


def _checked(session: str) -> str:
    if not _ID.fullmatch(session):
        raise InvalidOptions(f"{session!r} is not a session id")
    return session


def _entry(session: str, number: int) -> str:
    return f"{_ENTRIES}/{_checked(session)}/{number:010}"


def _lease(session: str) -> str:
    return f"{_LEASES}/{_checked(session)}"


def _parsed(path: str) -> tuple[str, int]:
    """The session and the number of an entry; empty for what is none."""
    found = re.fullmatch(rf"{_ENTRIES}/({_ID.pattern})/(\d{{10}})", path)
    return (found[1], int(found[2])) if found else ("", 0)
