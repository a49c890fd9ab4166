"""The credentials in an address, the address without them, and the fingerprint of a key."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from geminorum.runtime.lazy import urllib_parse

# By hand: `urlsplit` finds no password that has a "/", a "?" or a "#" in it, and refuses some.
_PASSWORD = re.compile(r"(://[^/@]*?:)(.*)@", re.DOTALL)
_PARAMETER = re.compile(r"([?&][^=&#]*=)([^&#]*)")
_HARMLESS = frozenset(
    {
        *("endpoint", "base_url", "region", "account_name"),
        *("host", "hostaddr", "port", "user", "dbname", "sslmode"),
    }
)
"""Parameters that a message may have to name; every other one may be a key."""
_SHORTEST = 4
"""Letters of a credential; fewer occur in any text."""
_FINGERPRINT_DIGITS = 12


def shown_address(address: str) -> str:
    """The address for people: without its password, and without parameters that may be keys."""
    return _PARAMETER.sub(_shown_parameter, _PASSWORD.sub(r"\1…@", address))


def credentials_in(address: str) -> Iterator[str]:
    """The password of `https://user:password@host`, and keys in `?parameters`; also decoded."""
    for found in _PASSWORD.finditer(address):
        yield from (found[2], urllib_parse.unquote(found[2]))
    for found in _PARAMETER.finditer(address):
        if not _is_harmless(found):
            yield from (found[2], urllib_parse.unquote_plus(found[2]))


def without_credentials(text: str, address: str) -> str:
    """A text about the address, such as a library's error, without what nobody should see."""
    text = text.replace(address, shown_address(address)) if address else text
    for secret in sorted({*credentials_in(address)}, key=len, reverse=True):
        text = text.replace(secret, "…") if len(secret) >= _SHORTEST else text
    return text


def fingerprint_of(key: str) -> str:
    """Tells keys apart, and does not give them away; request_gate.cjs makes the same."""
    return hashlib.sha256(key.encode()).hexdigest()[:_FINGERPRINT_DIGITS]


def _shown_parameter(found: re.Match[str]) -> str:
    return found[0] if _is_harmless(found) else f"{found[1]}…"


def _is_harmless(found: re.Match[str]) -> bool:
    return found[1][1:-1].lower() in _HARMLESS
