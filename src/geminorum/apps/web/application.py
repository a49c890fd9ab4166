"""The ASGI app: its routes, its gate, and what it starts and ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from geminorum.apps.web import api, pages
from geminorum.apps.web.agents.book import AgentBook
from geminorum.apps.web.failures import HANDLERS
from geminorum.apps.web.fleet.link import FleetLink
from geminorum.apps.web.questions.known import KnownQuestions
from geminorum.apps.web.runs.database import open_database
from geminorum.apps.web.runs.info import RunInfo
from geminorum.apps.web.runs.runs import Runs
from geminorum.apps.web.runs.watching import Watching
from geminorum.apps.web.security.gate import Gate
from geminorum.apps.web.services import Services
from geminorum.apps.web.settings import WebSettings
from geminorum.inbox import Inbox
from geminorum.sessions import Catalogue
from geminorum.usage import Ledger

_STATIC = Path(__file__).parent / "static"
_ASSETS = Mount("/static", StaticFiles(directory=_STATIC), name="static")


class WebApp(Starlette):
    """The page. It mounts in any ASGI program, which keeps it open with `running()`."""

    def __init__(self, settings: WebSettings) -> None:
        super().__init__(
            routes=[
                *pages.ROUTES,
                *api.ROUTES,
                Mount("/static", StaticFiles(directory=_STATIC), name="static"),
            ],
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
        async with AsyncExitStack() as stack:
            self.state.services = await self._open_services(stack)
            try:
                yield
            finally:
                del self.state.services

    async def _open_services(self, stack: AsyncExitStack) -> Services:
        settings = self.settings
        database = open_database(settings.db)
        inbox = settings.inbox or Inbox(settings.db)
        runs, fleet = Runs(settings, database, inbox), FleetLink(settings.db)
        questions, agents = KnownQuestions(inbox, runs.changes), AgentBook(database)
        await stack.enter_async_context(runs.running())
        await stack.enter_async_context(questions.running())
        stack.push_async_callback(fleet.close)
        await asyncio.to_thread(agents.open)
        return Services(
            settings,
            runs,
            Watching(runs.book),
            questions,
            Catalogue(settings.options.home),
            Ledger(settings.options.home),
            agents,
            fleet,
        )

    @property
    def settings(self) -> WebSettings:
        settings: WebSettings = self.state.settings
        return settings

    def link(self, address: str) -> str:
        """What lets a browser in, for a page that is served or mounted at this address."""
        return f"{address.rstrip('/')}/?token={quote(self.settings.token, safe='')}"

    @property
    def live_runs(self) -> Sequence[RunInfo]:
        """The runs that go on now."""
        return self.state.services.runs.board.live if hasattr(self.state, "services") else ()

    def end(self) -> None:
        """Ends the streams of all open pages; leaving `running()` ends the runs."""
        if hasattr(self.state, "services"):
            self.state.services.runs.changes.end()


def app(**settings: Any) -> WebApp:
    """Returns the page as an ASGI app; the keywords are those of WebSettings."""
    return WebApp(WebSettings(**settings))
