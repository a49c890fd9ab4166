"""What the pages share while the app runs."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from geminorum.apps.web.runs.runs import Runs
from geminorum.apps.web.runs.watching import Watching
from geminorum.apps.web.settings import WebSettings
from geminorum.errors import SetupError


@dataclass(slots=True)
class Services:
    """Made when the app starts, closed when it ends."""

    settings: WebSettings
    runs: Runs
    watching: Watching
    streams: int = 0
    """Pages that are being followed."""


def services_of(request: Request) -> Services:
    """Those of the app that the request came to."""
    found: Services | None = getattr(request.app.state, "services", None)
    if found is None:
        text = "the page has not been opened"
        raise SetupError(text, hint="async with page.running(): … in the lifespan of your program")
    return found


def settings_of(request: Request) -> WebSettings:
    found: WebSettings = request.app.state.settings
    return found
