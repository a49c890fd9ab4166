"""Sessions in object storage: S3 and what speaks its protocol, Google Cloud Storage, Azure.

Each entry is an object of its own, which is created and never changed; the storage itself refuses
to create one twice. `pip install 'geminorum[stores]'` brings obstore, which does the talking.
"""

from __future__ import annotations

import os
import re
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from geminorum.credentials import shown_address, without_credentials
from geminorum.errors import InvalidOptions, SetupError, StoreConflict, StoreError
from geminorum.runtime import typed
from geminorum.runtime.lazy import lazy_module
from geminorum.sessions.store.failures import explain_failures
from geminorum.sessions.store.protocol import MAX_ENTRY_BYTES, Listing

if TYPE_CHECKING:
    import obstore
    from obstore import ObjectMeta, UpdateVersion
    from obstore import exceptions as refusals
    from obstore import store as backends
else:
    obstore = lazy_module("obstore")
    refusals = lazy_module("obstore.exceptions")
    backends = lazy_module("obstore.store")

_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""The kinds of storage, and the variables that may say where it is."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
_ENTRIES, _LEASES, _CLOCK = "entries", "leases", "clock"
_READERS = 32
"""Objects that are read at the same time: each takes a round trip."""
_CLIENT = {"timeout": "20s", "connect_timeout": "5s"}
_RETRY = {"max_retries": 2}
_MAX_LEASE_BYTES = 4096
_MAX_REASON = 300
_ROUNDS = 5
"""Of taking a lease that others take at the same moment."""


class Lease(msgspec.Struct, frozen=True):
    """Begins when the storage wrote it, by the storage's clock."""

    holder: str
    seconds: float
    mark: str = ""
    """Another in each: two with the same bytes would have the same tag, and one who is too late
    could replace the second instead of the first."""


_NO_LEASE, _LONG_AGO = Lease("", 0.0), datetime(1970, 1, 1, tzinfo=UTC)


class ObjectStore:
    """A `SessionStore` in a bucket: `ObjectStore("s3://bucket/folder")`.

    Credentials, region and endpoint come from the usual variables (`AWS_ACCESS_KEY_ID`,
    `AWS_ENDPOINT_URL`, …) or from the machine's role; `?region=…&endpoint=…` in the URL comes
    first. Leases end by the clock of the storage.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            self._bucket: Any = _opened(url)
        except ImportError as error:
            hint = "install it: pip install 'geminorum[stores]'"
            raise SetupError("object storage needs the package obstore", hint=hint) from error

    def __repr__(self) -> str:
        return f"ObjectStore({shown_address(self._url)!r})"

    def append(self, session: str, number: int, data: bytes) -> None:
        with explain_failures(self._url):
            is_next = number == 1 or (number > 1 and self._has(_entry(session, number - 1)))
            try:
                if is_next:
                    obstore.put(self._bucket, _entry(session, number), data, mode="create")
                    return
            except refusals.AlreadyExistsError:
                pass
        raise StoreConflict(f"entry {number} is not the next of session {session!r}")

    def load(self, session: str, after: int = 0) -> Iterator[bytes]:
        with explain_failures(self._url):
            # Names sort like numbers. What lies behind a gap is not part of the log.
            found = [name for number, name in self._named(session, after) if number > after]
            numbered = enumerate(found, after + 1)
            names = [name for place, name in numbered if name.endswith(f"/{place:010}")]
            for data in self._read_ahead(names):
                if data is None:
                    return  # It is being deleted, the last entry first.
                yield data

    def list(self) -> Listing:
        last: dict[str, int] = {}
        with explain_failures(self._url):
            for page in obstore.list(self._bucket, prefix=f"{_ENTRIES}/"):
                for one in page:
                    session, number = _parsed(one["path"])
                    if session:
                        last[session] = max(number, last.get(session, 0))
        return [*last.items()]

    def delete(self, session: str) -> None:
        with explain_failures(self._url):
            # The last one first: whoever reads meanwhile finds a log that is only shorter.
            names = [name for _, name in self._named(session, 0)]
            for name in [*reversed(names), _lease(session)]:
                self._delete(name)

    def acquire(self, session: str, holder: str, seconds: float) -> str:
        with explain_failures(self._url):
            for _ in range(_ROUNDS):
                known, written, version = self._lease_of(session)
                if known.holder not in ("", holder) and not self._has_ended(known, written):
                    return known.holder
                if self._put_lease(session, Lease(holder, seconds, uuid.uuid4().hex), version):
                    return holder
        raise StoreError(f"the lease of session {session!r} changes again and again")

    def release(self, session: str, holder: str) -> None:
        # Replaced and not deleted: no storage deletes only what is still the same.
        with explain_failures(self._url):
            known, _, version = self._lease_of(session)
            if known.holder == holder:
                self._put_lease(session, _NO_LEASE, version)

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

    def _read_ahead(self, names: Sequence[str]) -> Iterator[bytes | None]:
        """In order; while one is looked at, those that follow are on their way."""
        readers, ahead = ThreadPoolExecutor(_READERS), deque[Future[bytes | None]]()
        try:
            for name in names:
                ahead.append(readers.submit(self._read, name))
                if len(ahead) == _READERS:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            readers.shutdown(cancel_futures=True)

    def _read(self, name: str) -> bytes | None:
        try:
            found = obstore.get(self._bucket, name)
            if found.meta["size"] > MAX_ENTRY_BYTES:
                return b""  # Nobody who follows the protocol has written it: it is damaged.
            return bytes(found.bytes())
        except FileNotFoundError:
            return None

    def _delete(self, name: str) -> None:
        try:
            obstore.delete(self._bucket, name)
        except FileNotFoundError:
            return  # Another deletes it, too; S3 itself does not mind.

    def _lease_of(self, session: str) -> tuple[Lease, datetime, UpdateVersion | None]:
        """The lease, when it was written, and which version of its object it is."""
        try:
            found = obstore.get(self._bucket, _lease(session))
        except FileNotFoundError:
            return _NO_LEASE, _LONG_AGO, None
        meta = found.meta
        written, version = meta["last_modified"], _version(meta)
        if meta["size"] > _MAX_LEASE_BYTES:
            return _NO_LEASE, written, version
        try:
            return typed.decode(bytes(found.bytes()), Lease), written, version
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return _NO_LEASE, written, version

    def _has_ended(self, lease: Lease, written: datetime) -> bool:
        """By the clock of the storage: those of two machines may differ by an hour."""
        obstore.put(self._bucket, _CLOCK, b"")
        now: datetime = obstore.head(self._bucket, _CLOCK)["last_modified"]
        return (now - written).total_seconds() >= lease.seconds

    def _put_lease(self, session: str, lease: Lease, version: UpdateVersion | None) -> bool:
        """False if another was quicker."""
        mode: Any = "create" if version is None else version
        try:
            obstore.put(self._bucket, _lease(session), msgspec.json.encode(lease), mode=mode)
        except (refusals.AlreadyExistsError, refusals.PreconditionError):
            return False
        except FileNotFoundError:
            if version is None:
                raise  # There is no such bucket.
            return False
        return True


def _version(meta: ObjectMeta) -> UpdateVersion:
    """S3 and Azure tell versions apart by the tag, Google by a number."""
    version: UpdateVersion = {"e_tag": meta["e_tag"]}
    if meta["version"] is not None:
        version["version"] = meta["version"]
    return version


def _opened(url: str) -> Any:
    parts, shown = urlsplit(url), shown_address(url)
    if parts.scheme not in _ENDPOINTS or not parts.netloc:
        raise InvalidOptions(
            f"{shown!r} names no bucket", hint="s3://bucket/folder, gs://…, az://…"
        )
    if "@" in parts.netloc:
        hint = "put keys into the environment, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        raise InvalidOptions(f"{shown!r} has keys, which are not read there", hint=hint)
    config: dict[str, Any] = dict(parse_qsl(parts.query))
    if parts.scheme == "gs" and "endpoint" in config:
        config["base_url"] = config.pop("endpoint")  # The same by another name.
    client = {**_CLIENT, "allow_http": _endpoint(parts.scheme, config).startswith("http:")}
    how: dict[str, Any] = {"client_options": client, "retry_config": _RETRY, "config": config}
    try:
        return backends.from_url(parts._replace(query="").geturl(), **how)
    except (refusals.BaseError, ValueError, TypeError) as error:
        why = without_credentials(str(error), url)[:_MAX_REASON]
        raise InvalidOptions(f"{shown!r} cannot be opened: {why}") from None


def _endpoint(scheme: str, config: Mapping[str, str]) -> str:
    """Where to talk to; whoever names an address without encryption wants that."""
    named = [config.get(name) for name in ("endpoint", "endpoint_url", "aws_endpoint", "base_url")]
    return next(filter(None, (*named, *map(os.environ.get, _ENDPOINTS[scheme]))), None) or ""


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
