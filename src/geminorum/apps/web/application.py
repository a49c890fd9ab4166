"""The ASGI app: its routes, its gate, and what it starts and ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from geminorum.apps.web.failures import HANDLERS
from geminorum.apps.web.pages import ROUTES
from geminorum.apps.web.runs.runs import Runs
from geminorum.apps.web.runs.watching import Watching
from geminorum.apps.web.security.gate import Gate
from geminorum.apps.web.services import Services
from geminorum.apps.web.settings import WebSettings

_STATIC = Path(__file__).parent / "static"


class WebApp(Starlette):
    """The page. It mounts in any ASGI program, which keeps it open with `running()`."""

    def __init__(self, settings: WebSettings) -> None:
        super().__init__(
            routes=[*ROUTES, Mount("/static", StaticFiles(directory=_STATIC), name="static")],
            middleware=[Middleware(Gate, settings=settings)],
            exception_handlers=HANDLERS,
            lifespan=lambda _: self.running(),
        )
        self.state.settings = settings

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Opens what the pages need, and ends every run at the end.

        A program that mounts the app enters it in its own lifespan: frameworks do not do that for
        mounted apps.
        """
        settings: WebSettings = self.state.settings
        runs = Runs(settings)
        async with runs.running():
            self.state.services = Services(settings, runs, Watching(runs.book))
            try:
                yield
            finally:
                del self.state.services


def app(**settings: object) -> WebApp:
    """Returns the page as an ASGI app; the keywords are those of WebSettings."""
    return WebApp(WebSettings(**settings))  # type: ignore[arg-type]
