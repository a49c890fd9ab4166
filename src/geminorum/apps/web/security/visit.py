"""One request of a browser: its session, and the body that may hold the form's token."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import get_args
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Send

from geminorum.apps.web.security import csrf
from geminorum.apps.web.security.signing import SessionKind, Signer, is_same
from geminorum.apps.web.settings import WebSettings

MAX_BODY_BYTES = 9 * 1024 * 1024
"""A little more than the longest prompt that a CLI reads."""
_FORM = "application/x-www-form-urlencoded"


_ASK_AGAIN_SECONDS = 10.0
"""While a stream goes on: whoever watches may be logged out meanwhile."""


class BodyTooLarge(Exception):
    """More than MAX_BODY_BYTES were sent."""


class LoggedOut(Exception):
    """Whoever is served is no longer let in by the program around the page."""


class Visit:
    """Who asks, what their session is, and what they send."""

    def __init__(self, request: Request, settings: WebSettings, signer: Signer) -> None:
        self._request, self._settings, self._signer = request, settings, signer
        self._is_new_session = False
        self._is_bearer = False
        self._body: bytes | None = None
        self._received = 0
        self._session = request.cookies.get(signer.cookie, "")
        self._authorized_at: float | None = None
        """When the program around the page has let them in; None: somebody else has."""

    @property
    def has_session(self) -> bool:
        """Has the browser sent a session of either kind? It may count for nothing."""
        return any(self._signer.is_session(self._session, kind) for kind in get_args(SessionKind))

    async def identify(self) -> bool:
        """Is it somebody who may come in: by session, by the token in a header, by a proxy, by
        the program around the page?"""
        scheme, _, token = self._request.headers.get("authorization", "").partition(" ")
        self._is_bearer = scheme.lower() == "bearer" and self._signer.is_token(token)
        if self._signer.is_session(self._session, "session"):
            self._offer_csrf_token()
        # Each time anew: whoever is logged out there is out here, too.
        elif self._has_passed_proxy():
            self._welcome_guest()
        elif await self._is_authorized():
            self._welcome_guest()
            self._authorized_at = time.monotonic()
        else:
            return self._is_bearer
        return True

    def start_session(self, kind: SessionKind = "session") -> None:
        self._session, self._is_new_session = self._signer.new_session(kind), True
        self._offer_csrf_token()

    def _welcome_guest(self) -> None:
        if self._signer.is_session(self._session, "guest"):
            self._offer_csrf_token()
        else:
            self.start_session("guest")

    async def has_csrf_token(self) -> bool:
        """May it change anything? A token in a header is nothing that browsers send unasked."""
        if self._is_bearer:
            return True
        given = self._request.headers.get(csrf.HEADER)
        if given is None and self._request.headers.get("content-type", "").startswith(_FORM):
            given = parse_qs((await self._read_body()).decode("utf-8", "replace")).get(
                csrf.FIELD, [""]
            )[0]
        return given is not None and is_same(given, self._signer.csrf_of(self._session))

    async def receive(self) -> Message:
        """What the app receives: the body that was read here, or what is still to come."""
        if self._body is None:
            message = await self._request.receive()
            self._count(len(message.get("body", b"")))
            return message
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    def keeping_session(self, send: Send) -> Send:
        """Sends the cookie of a session that has just begun."""

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and self._is_new_session:
                message["headers"] = [*message["headers"], *self._cookie().raw_headers]
            await send(message)

        return send_with_cookie

    def while_let_in(self, send: Send) -> Send:
        """Sends until the program around the page says that they are out; raises LoggedOut then."""

        async def send_while_let_in(message: Message) -> None:
            if self._is_to_be_asked_about() and not await self._is_authorized():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                raise LoggedOut
            await send(message)

        return send_while_let_in

    def _is_to_be_asked_about(self) -> bool:
        now = time.monotonic()
        if self._authorized_at is None or now - self._authorized_at < _ASK_AGAIN_SECONDS:
            return False
        self._authorized_at = now
        return True

    def _offer_csrf_token(self) -> None:
        self._request.scope[csrf.SCOPE_KEY] = self._signer.csrf_of(self._session)

    def _has_passed_proxy(self) -> bool:
        name = self._settings.proxy_header
        return name is not None and bool(self._request.headers.get(name, "").strip())

    async def _is_authorized(self) -> bool:
        if self._settings.authorize is None:
            return False
        answer = self._settings.authorize(self._request)
        # Nothing but a plain yes: an object that means no may be truthy.
        return (await answer if isinstance(answer, Awaitable) else answer) is True

    async def _read_body(self) -> bytes:
        body = bytearray()
        async for piece in self._request.stream():
            self._count(len(piece))
            body += piece
        self._body = bytes(body)
        return self._body

    def _count(self, size: int) -> None:
        self._received += size
        if self._received > MAX_BODY_BYTES:
            raise BodyTooLarge

    @property
    def _is_secure(self) -> bool:
        """Did it come by TLS, at least to a proxy? Who lies about it locks out nobody else."""
        told = self._request.headers.get("x-forwarded-proto", self._request.url.scheme)
        return told.partition(",")[0].strip().lower() == "https"

    def _cookie(self) -> Response:
        carrier = Response()
        del carrier.headers["content-length"]
        carrier.set_cookie(
            self._signer.cookie,
            self._session,
            path=self._request.scope.get("root_path") or "/",
            httponly=True,
            samesite="strict",
            secure=self._is_secure,
        )
        return carrier
