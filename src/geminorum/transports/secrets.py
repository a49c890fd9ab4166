"""The options and the door of a run to the secrets that it knows, wherever they are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit

from geminorum.auth import dotenv_variables, read_settings, settings_files
from geminorum.options import Options
from geminorum.redaction import Redactor, secrets_in, secrets_in_settings
from geminorum.surroundings import environment, home_of
from geminorum.transports import Transport


def redactor_of(options: Options, door: Transport) -> Redactor:
    """Knows the environment of this moment; the files are read when there is something to hide."""
    return Redactor(_secrets(options, environment(options), door))


def _secrets(options: Options, env: Mapping[str, str], door: Transport) -> Iterator[str]:
    yield from secrets_in(env)
    yield from _passwords(env)
    yield from getattr(door, "secrets", tuple)()
    for file in settings_files(options, env):
        try:
            yield from secrets_in_settings(read_settings(file))
        except (OSError, ValueError, RecursionError):
            continue  # What cannot be read is not known to the run either.
    written = dotenv_variables(options, home_of(options, env))
    yield from secrets_in({name: value for name, (value, _) in written.items()})


def _passwords(env: Mapping[str, str]) -> Iterator[str]:
    for name, value in env.items():
        if name.upper().endswith("_PROXY"):
            yield from password_in(value)


def password_in(address: str) -> Iterator[str]:
    """The password of an address: `https://user:password@host`."""
    try:
        password = urlsplit(address).password
    except ValueError:
        return
    if password:
        yield from (password, unquote(password))
