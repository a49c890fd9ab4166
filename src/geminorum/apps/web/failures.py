"""What goes wrong, as a page or as JSON, and what to do next."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from geminorum.apps.web.agents.book import AgentChanged
from geminorum.apps.web.rendering import path_below, render
from geminorum.errors import (
    FleetUnavailable,
    GeminorumError,
    InboxUnavailable,
    InvalidOptions,
    SessionBusy,
    SetupError,
)


class Problem(msgspec.Struct, frozen=True):
    """What the JSON API answers if it cannot do what was asked."""

    code: str
    """That of the exception, or HTTP_404 and the like."""
    message: str
    hint: str | None = None


class Failure(msgspec.Struct, frozen=True):
    error: Problem


def failure(
    request: Request, status: int, title: str, message: str = "", hint: str | None = None
) -> Response:
    """The answer to a request that cannot be served."""
    if is_for_scripts(request):
        return json_failure(status, message or title, hint)
    return render(request, "error.html", status, title=title, message=message, hint=hint)


def json_failure(
    status: int, message: str, hint: str | None = None, code: str | None = None
) -> Response:
    problem = Problem(code or f"HTTP_{status}", message, hint)
    return Response(msgspec.json.encode(Failure(problem)), status, media_type="application/json")


def is_for_scripts(request: Request) -> bool:
    """Is it a request to the API, which answers in JSON?"""
    return path_below(request).startswith("/api/")


async def _show_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    message = "" if error.detail == phrase else error.detail
    title = _TITLES.get(error.status_code, phrase)
    answer = failure(request, error.status_code, title, message)
    answer.headers.update(error.headers or {})
    return answer


async def _show_our_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, GeminorumError)
    if is_for_scripts(request):
        return json_failure(status_of(error), error.message, error.hint, error.code)
    return failure(request, status_of(error), "That did not work", error.message, error.hint)


def status_of(error: GeminorumError) -> int:
    """The HTTP status that says whose mistake it was."""
    if isinstance(error, SetupError | InboxUnavailable | FleetUnavailable):
        return 503
    if isinstance(error, SessionBusy | AgentChanged):
        return 409
    return 422 if isinstance(error, InvalidOptions) else 400


_TITLES = {
    404: "There is no such page",
    405: "That cannot be done here",
    409: "That cannot be done now",
    503: "Not now",
}
HANDLERS: Any = {HTTPException: _show_http_error, GeminorumError: _show_our_error}
