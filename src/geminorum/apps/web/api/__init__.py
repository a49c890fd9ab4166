"""JSON for other front ends, with the rights of the pages. Each module here exports `endpoints`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from geminorum.apps.web.api import agents, inbox, runs, sessions, usage
from geminorum.apps.web.api.endpoint import PREFIX, Endpoint
from geminorum.apps.web.api.openapi import document

ENDPOINTS: list[Endpoint] = [
    *runs.endpoints,
    *inbox.endpoints,
    *sessions.endpoints,
    *usage.endpoints,
    *agents.endpoints,
]


async def describe_api(request: Request) -> Response:
    """The OpenAPI document."""
    return JSONResponse(document(ENDPOINTS, str(request.scope.get("root_path", ""))))


ROUTES: list[BaseRoute] = [
    *(endpoint.route() for endpoint in ENDPOINTS),
    Route(f"{PREFIX}/openapi.json", describe_api, name="api.openapi"),
]
