"""The pages: each is a module that exports `routes`. To add one: its routes here, and its entry in
`navigation.TABS`."""

from __future__ import annotations

from starlette.routing import BaseRoute

from geminorum.apps.web.pages import agents, doctor, fleet, inbox, live, runs, sessions, usage

ROUTES: list[BaseRoute] = [
    *inbox.routes,
    *runs.routes,
    *live.routes,
    *sessions.routes,
    *usage.routes,
    *agents.routes,
    *fleet.routes,
    *doctor.routes,
]
