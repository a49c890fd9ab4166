"""The token that every form carries: only a page of ours can know it."""

from __future__ import annotations

from starlette.requests import Request

FIELD = "csrf"
"""The field of a form."""
HEADER = "x-csrf-token"
"""The header of a script."""
SCOPE_KEY = "geminorum.csrf"
"""Where the gate leaves the token of the session for the templates."""


def csrf_token(request: Request) -> str:
    """The token for the forms of this page; empty if nobody is logged in."""
    return str(request.scope.get(SCOPE_KEY, ""))
