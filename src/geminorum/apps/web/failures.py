"""What goes wrong, as a page or as JSON, and what to do next."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from geminorum.apps.web.rendering import render
from geminorum.errors import GeminorumError, InvalidOptions


def failure(
    request: Request, status: int, title: str, message: str = "", hint: str | None = None
) -> Response:
    """The answer to a request that cannot be served."""
    return render(request, "error.html", status, title=title, message=message, hint=hint)


async def _show_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    message = "" if error.detail == phrase else error.detail
    return failure(request, error.status_code, _TITLES.get(error.status_code, phrase), message)


async def _show_our_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, GeminorumError)
    status = 422 if isinstance(error, InvalidOptions) else 400
    return failure(request, status, "That did not work", error.message, error.hint)


async def _show_bug(request: Request, error: Exception) -> Response:
    return failure(request, 500, "Something went wrong here", f"{type(error).__name__}", _BUG)


_TITLES = {404: "There is no such page", 405: "That cannot be done here"}
_BUG = "the terminal that runs `geminorum web` shows the details"
HANDLERS: Any = {
    HTTPException: _show_http_error,
    GeminorumError: _show_our_error,
    Exception: _show_bug,
}
