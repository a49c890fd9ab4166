"""The secrets that a run knows, wherever its options and its transport write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from geminorum.credentials import credentials_in
from geminorum.environment import environment_of, home_of
from geminorum.options import Options
from geminorum.redaction import Redactor, secrets_in, secrets_in_settings
from geminorum.runtime.lazy import lazy_module
from geminorum.system.reserve import RESERVE
from geminorum.transports import Transport

if TYPE_CHECKING:
    from geminorum import auth
else:
    # Settings are read when there is something to hide, and not before.
    auth = lazy_module("geminorum.auth")


def redactor_of(options: Options, transport: Transport) -> Redactor:
    """Knows the environment of this moment; the files are read when there is something to hide."""
    return Redactor(_secrets(options, environment_of(options), transport))


def _secrets(options: Options, env: Mapping[str, str], transport: Transport) -> Iterator[str]:
    yield from secrets_in(env)
    yield from _passwords(env)
    yield from getattr(transport, "secrets", tuple)()
    if isinstance(options.store, str):
        yield from credentials_in(options.store)
    found: list[str] = []
    # What cannot be read is not known to the run either; what was read before that is.
    with suppress(OSError, ImportError), RESERVE.spend():  # The module may have to be loaded yet.
        found.extend(_written(options, env))
    yield from found


def _written(options: Options, env: Mapping[str, str]) -> Iterator[str]:
    """The secrets in settings and `.env` files."""
    for file in auth.settings_files(options, env):
        try:
            yield from secrets_in_settings(auth.read_settings(file))
        except (OSError, ValueError, RecursionError):
            continue
    written = auth.dotenv_variables(options, home_of(options, env))
    yield from secrets_in({name: value for name, (value, _) in written.items()})


def _passwords(env: Mapping[str, str]) -> Iterator[str]:
    for name, value in env.items():
        if name.upper().endswith("_PROXY"):
            yield from credentials_in(value)
