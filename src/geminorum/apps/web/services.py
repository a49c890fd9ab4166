"""What the pages share while the app runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException
from starlette.requests import Request

from geminorum.apps.web.agents.book import AgentBook
from geminorum.apps.web.fleet.link import FleetLink
from geminorum.apps.web.questions.known import KnownQuestions
from geminorum.apps.web.runs.runs import Runs
from geminorum.apps.web.runs.watching import Watching
from geminorum.apps.web.settings import WebSettings
from geminorum.errors import SetupError
from geminorum.sessions import Catalogue
from geminorum.usage import Ledger

MAX_STREAMS = 200


@dataclass(slots=True)
class Services:
    """Made when the app starts, closed when it ends."""

    settings: WebSettings
    runs: Runs
    watching: Watching
    questions: KnownQuestions
    catalogue: Catalogue
    ledger: Ledger
    agents: AgentBook
    fleet: FleetLink
    streams: int = 0
    """Open ones, of pages and of the API."""
    resuming: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever starts a run that takes an answer."""

    @contextmanager
    def open_stream(self) -> Iterator[None]:
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    def require_free_stream(self) -> None:
        if self.streams >= MAX_STREAMS:
            raise HTTPException(503, f"{MAX_STREAMS} pages are open already; close some")


def services_of(request: Request) -> Services:
    """Those of the app that the request came to."""
    found: Services | None = getattr(request.app.state, "services", None)
    if found is None:
        # In the message: it is for whoever wrote the program, and the page shows no Python hints.
        text = "the page is not open: `async with page.running(): …` in your program's lifespan"
        raise SetupError(text)
    return found


def settings_of(request: Request) -> WebSettings:
    found: WebSettings = request.app.state.settings
    return found


def waiting_questions(request: Request) -> int:
    """How many wait for an answer."""
    services: Services | None = getattr(request.app.state, "services", None)
    return len(services.questions.open) if services else 0
