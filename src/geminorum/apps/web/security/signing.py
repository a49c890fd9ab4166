"""Keys made from the page's token, and what they sign: sessions and forms."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Literal, TypeAlias

SessionKind: TypeAlias = Literal["session", "guest"]
"""That of a browser that has shown the token; or of one that somebody else lets in, and that is
worth nothing unless they do."""


class Signer:
    """Signs what a browser keeps for us. A page with another token accepts none of it."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._key = hmac.digest(token.encode(), b"geminorum web", "sha256")

    @property
    def cookie(self) -> str:
        """The name of the session's cookie. Browsers share cookies between ports, so each page
        needs a name of its own."""
        return f"geminorum_{hashlib.sha256(self._key).hexdigest()[:12]}"

    def is_token(self, given: str) -> bool:
        return is_same(given, self._token)

    def new_session(self, kind: SessionKind) -> str:
        nonce = secrets.token_urlsafe(24)
        return f"{nonce}.{self._signed(kind, nonce)}"

    def is_session(self, value: str, kind: SessionKind) -> bool:
        nonce, _, signature = value.partition(".")
        return is_same(signature, self._signed(kind, nonce))

    def csrf_of(self, session: str) -> str:
        """What the forms of this session carry."""
        return self._signed("csrf", session)

    def _signed(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}:{text}".encode(), "sha256").hexdigest()


def is_same(given: str, expected: str) -> bool:
    """Compares secrets; takes equally long wherever they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
