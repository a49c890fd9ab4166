"""What a run says about itself, without the secrets that it knows: texts, events, exceptions.

What the model says, and what tools are given and give back, is left as it is: it may be written
back to files.
"""

from __future__ import annotations

import base64
import json
import os
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import msgspec
from msgspec.structs import replace

from geminorum import hints
from geminorum.events import Done, Error, Event, Unknown
from geminorum.runtime.lazy import urllib_parse

MARK = "[redacted]"
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH(?!OR(?!I[SZ]))|COOKIE", re.I)
_PLACE_NAME = re.compile(r"(?:SOCK|FILE|PATH|DIR)$|^GOOGLE_APPLICATION_CREDENTIALS$", re.I)
"""Such a variable says where something lies, which a message may have to name."""
_SHAPES = (
    r"AIza[0-9A-Za-z_-]{30,}"
    r"|ya29\.[0-9A-Za-z_-]{20,}"
    r"|1//0[0-9A-Za-z_-]{20,}"
    r"|eyJ[0-9A-Za-z_-]{10,}\.eyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]*"
    r"|(?<=Bearer )[0-9A-Za-z._~+/-]{16,}=*"
    r"|(?<=[?&]key=)[0-9A-Za-z_-]{8,}"
)
_SHORTEST = 8
"""Shorter values ("1", "true", "none") are no secrets, and taking them out would tear the text."""
_OF_THE_RUN: frozenset[type] = frozenset({Error, Done, Unknown})
"""Events that neither the model nor a tool has made."""


def secrets_in(env: Mapping[str, str]) -> list[str]:
    """The values of variables whose names speak of secrets, the longest first."""
    values = {value for name, value in env.items() if is_secret_variable(name, value)}
    return sorted(values, key=len, reverse=True)


def own_secrets() -> Iterator[str]:
    """Those of this process, which are looked for when the first is asked for."""
    yield from secrets_in(os.environ)


def secrets_in_settings(settings: object, name: str = "") -> Iterator[str]:
    """The same in settings of any depth: keys, tokens, the headers and variables of servers."""
    match settings:
        case Mapping():
            for key, value in settings.items():
                yield from secrets_in_settings(value, str(key))
        case list() | tuple():
            for value in settings:
                yield from secrets_in_settings(value, name)
        case str() if is_secret_variable(name, settings):
            yield settings
            # "Bearer abc": a server may repeat the second word only.
            yield from (word for word in settings.split()[1:] if len(word) >= _SHORTEST)


def redacted(text: str, secrets: Iterable[str]) -> str:
    """The text with each secret, and everything that looks like a Google key, blacked out."""
    return Redactor(secrets).text(text)


class Redactor:
    """Blacks out some secrets, however they are written, and what looks like a Google key.

    The secrets are looked at when there is a text: most runs have nothing to hide.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = secrets

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        known = {secret for secret in self._secrets if len(secret) >= _SHORTEST}
        forms = {form for secret in known for form in _forms(secret) if len(form) >= _SHORTEST}
        words = map(re.escape, sorted(forms, key=len, reverse=True))
        return re.compile("|".join([*words, _SHAPES]))

    def text(self, text: str) -> str:
        return self._pattern.sub(MARK, text) if text else text

    def events(self, events: list[Event]) -> list[Event]:
        # Deltas are the bulk of every stream, and this passes them all.
        if _OF_THE_RUN.isdisjoint(map(type, events)):
            return events
        return [self.event(event) for event in events]

    def event(self, event: Event) -> Event:
        """An `Error`, a `Done` or an `Unknown` without them; any other event as it is."""
        match event:
            case Error():
                hint = hints.changed(event.hint, self.text) if event.hint else None
                return self._changed(replace(event, hint=hint), "message", "frame")
            case Done() if event.status != "success":
                return self._changed(event, "cost_note", "stop_reason", "frame")
            case Unknown():
                return self._changed(event, "frame")
            case _:
                return event

    def _changed(self, event: Event, *names: str) -> Event:
        clean = {name: self._clean(getattr(event, name)) for name in names}
        return replace(event, **clean)

    def _clean(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case list() | tuple():
                return type(value)(map(self._clean, value))  # Notes, for example.
            case dict():
                return {self._clean(key): self._clean(item) for key, item in value.items()}
            case bytes():
                return self.text(value.decode("latin-1")).encode("latin-1")
            case msgspec.Raw():
                return msgspec.Raw(self.text(bytes(value).decode("utf-8", "replace")).encode())
            case _:
                return value

    @contextmanager
    def exceptions(self) -> Iterator[None]:
        """Blacks them out of whatever is raised within."""
        try:
            yield
        except Exception as error:
            self.exception(error)
            raise

    def exception(self, error: BaseException) -> None:
        """Blacks them out of an exception, its notes and its causes, in place."""
        links = list(_chain(error))
        for link in links:
            self._clean_exception(link)
        for link in links:
            for name in ("__cause__", "__context__"):
                below = getattr(link, name)
                # Some exceptions write their text themselves: without them rather than with it.
                if below is not None and self._shows(below):
                    setattr(link, name, None)

    def _clean_exception(self, error: BaseException) -> None:
        error.args = tuple(map(self._clean, error.args))
        for name, value in list(vars(error).items()):
            if isinstance(value, str | list | tuple | dict | bytes):
                clean = self._clean(value)
                if name == "hint" and isinstance(value, str):
                    clean = hints.changed(value, self.text)
                with suppress(AttributeError, TypeError):  # One that cannot be changed.
                    setattr(error, name, clean)

    def _shows(self, error: BaseException) -> bool:
        text = "".join(traceback.format_exception_only(error)) + repr(error)
        return self.text(text) != text


def is_secret_variable(name: str, value: str) -> bool:
    is_named = _SECRET_NAME.search(name) is not None and _PLACE_NAME.search(name) is None
    return is_named and len(value) >= _SHORTEST


def _forms(secret: str) -> Iterator[str]:
    """As it is, and as it stands in an address, in JSON and in a header."""
    quoted = (urllib_parse.quote(secret, safe=""), urllib_parse.quote_plus(secret))
    yield from (secret, secret.strip(), *quoted)
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    data = secret.encode(errors="surrogateescape")
    for encoded in (base64.b64encode(data), base64.urlsafe_b64encode(data)):
        yield encoded.decode().rstrip("=")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, and all that it came from."""
    ahead, seen = [error], set[int]()
    while ahead:
        link = ahead.pop()
        if id(link) not in seen:
            seen.add(id(link))
            yield link
            ahead += [one for one in (link.__cause__, link.__context__) if one is not None]
            ahead += getattr(link, "exceptions", ())  # The members of a group.
