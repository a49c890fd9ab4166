"""The only way in: who asks, from where, and whether that may change anything."""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from geminorum.apps.web.failures import failure, is_for_scripts, json_failure
from geminorum.apps.web.rendering import path_below, render
from geminorum.apps.web.security.headers import HardenedSend
from geminorum.apps.web.security.origin import SAFE_METHODS, is_from_elsewhere, is_our_name
from geminorum.apps.web.security.signing import Signer
from geminorum.apps.web.security.visit import BodyTooLarge, LoggedOut, Visit
from geminorum.apps.web.settings import WebSettings
from geminorum.apps.web.words import traceback_of
from geminorum.views.plain_text import printable_line

_log = logging.getLogger(__name__)


class Gate:
    """Lets requests through to the app, or answers them itself."""

    def __init__(self, app: ASGIApp, settings: WebSettings) -> None:
        self._app = app
        self._settings = settings
        self._signer = Signer(settings.token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        # There is no WebSocket here: the server closes a connection that nobody accepts.
        if scope["type"] != "http":
            return None
        request = Request(scope, receive)
        visit = Visit(request, self._settings, self._signer)
        return await self._answer(request, visit, HardenedSend(visit.keeping_session(send)))

    async def _answer(self, request: Request, visit: Visit, send: HardenedSend) -> None:
        """Answers a request; a mistake of ours becomes a page like any other, with its headers."""
        try:
            answer = self._turn_away(request) or await self._check(request, visit) or self._app
            return await answer(request.scope, visit.receive, visit.while_let_in(send))
        except LoggedOut:
            return None
        except Exception as error:
            if send.has_started:
                raise
            page = _answer_failure(request, error)
        return await page(request.scope, visit.receive, send)

    def _turn_away(self, request: Request) -> Response | None:
        """The answer to requests that no page of ours would make a browser send."""
        host = request.headers.get("host", "")
        if not is_our_name(host, self._settings.allowed_hosts):
            return failure(request, 421, "Not by this name", _UNKNOWN_HOST, _ALLOW_HOST)
        if is_from_elsewhere(request.method, request.headers):
            return failure(request, 403, "That came from another page", _ELSEWHERE, _USE_PAGE)
        return None

    async def _check(self, request: Request, visit: Visit) -> Response | None:
        """The answer to whoever may not do what they ask for; None lets them in."""
        if _is_public(request):
            return None
        if "token" in request.query_params and request.method in SAFE_METHODS:
            return await self._log_in(request, visit)
        if not visit.has_session and (answer := _led_back(request)):
            return answer
        if not await visit.identify():
            return _login(request, 401)
        if request.method in SAFE_METHODS:
            return None
        return await self._check_change(request, visit)

    async def _log_in(self, request: Request, visit: Visit) -> Response:
        """Turns a link with the token into a session, and leads on without the token."""
        if self._signer.is_token(request.query_params["token"]):
            visit.start_session()
        elif not await visit.identify():
            return _login(request, 403, is_stale=True)
        return RedirectResponse(_without_token(request), 303)

    async def _check_change(self, request: Request, visit: Visit) -> Response | None:
        if self._settings.read_only:
            return failure(request, 403, "This page is read-only", _READ_ONLY, _START_AGAIN)
        if not await visit.has_csrf_token():
            return failure(request, 403, "This form is out of date", _OLD_FORM, _RELOAD)
        return None


def _answer_failure(request: Request, error: Exception) -> Response:
    if isinstance(error, BodyTooLarge):
        return failure(request, 413, "That is too long", _TOO_LARGE)
    path = printable_line(request.scope["path"])
    _log.error("%s %s failed\n%s", request.method, path, traceback_of(error))
    return failure(request, 500, "Something went wrong here", type(error).__name__, _LOOK)


def _is_public(request: Request) -> bool:
    """Styles and scripts: the same for everybody, and the login needs them."""
    return path_below(request).startswith("/static/") and request.method in SAFE_METHODS


def _login(request: Request, status: int, *, is_stale: bool = False) -> Response:
    if is_for_scripts(request):
        return json_failure(status, "the token is missing or wrong", hint=_BEARER)
    return render(request, "login.html", status, is_stale=is_stale)


def _led_back(request: Request) -> Response | None:
    """The answer to a link from elsewhere: browsers keep the session from it, and give it to the
    same request once a page of ours makes it."""
    is_link = request.headers.get("sec-fetch-mode") == "navigate"
    if not is_link or request.headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return None
    if request.method not in SAFE_METHODS:
        return None
    return render(request, "led_back.html", address=_without_token(request))


def _without_token(request: Request) -> str:
    url = request.url.remove_query_params("token")
    # Relative, and never `//elsewhere`, which would lead to another host.
    path = "/" + url.path.lstrip("/")
    return f"{path}?{url.query}" if url.query else path


_BEARER = "send the header `Authorization: Bearer TOKEN`, with the token of the printed link"
_LOOK = "the terminal that runs `geminorum web` shows what"
_UNKNOWN_HOST = "The page was reached by a name that it does not know."
_ALLOW_HOST = "open the link that `geminorum web` printed, or start it with --allow-host NAME"
_ELSEWHERE = "Another web page tried to use this one."
_USE_PAGE = "use the forms of this page"
_READ_ONLY = "Nothing can be started, stopped, answered or changed."
_START_AGAIN = "start `geminorum web` without --read-only"
_OLD_FORM = "It belongs to a session that is over, so nothing was done."
_RELOAD = "go back, reload the page and send it again"
_TOO_LARGE = "A prompt may have 8 MiB."
