"""One endpoint of the JSON API: what it takes, what it answers, and the route that serves it.

The OpenAPI document is made from the same facts, so it cannot say anything else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminorum.apps.web.failures import json_failure

JSON = "application/json"
SSE = "text/event-stream"
PREFIX = "/api"


class Invalid(Exception):
    """What was sent is not what the endpoint takes."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`handle(request, query, body)` gets what is declared here, decoded, and returns a value that
    is encoded, or a response of its own."""

    method: str
    path: str
    """Below `/api`."""
    handle: Callable[..., Awaitable[Any]]
    summary: str
    query: type[msgspec.Struct] | None = None
    body: Any = None
    returns: Any = None
    """The type of the answer; None: there is nothing to say."""
    status: int = 200
    media_type: str = JSON
    failures: tuple[int, ...] = ()
    """Statuses of what may go wrong, besides what may go wrong everywhere."""

    @property
    def name(self) -> str:
        return self.handle.__name__

    def route(self) -> Route:
        methods = [self.method]
        return Route(f"{PREFIX}{self.path}", self._serve, methods=methods, name=f"api.{self.name}")

    async def _serve(self, request: Request) -> Response:
        try:
            given = [*self._query(request), *await self._body(request)]
        except Invalid as error:
            return json_failure(error.status, error.message)
        value = await self.handle(request, *given)
        if isinstance(value, Response):
            return value
        data = b"" if self.returns is None else msgspec.json.encode(value)
        return Response(data, self.status, media_type=JSON if data else None)

    def _query(self, request: Request) -> list[Any]:
        if self.query is None:
            return []
        given = dict(request.query_params)
        try:
            return [msgspec.convert(given, self.query, strict=False)]
        except msgspec.ValidationError as error:
            raise Invalid(422, f"the query is not understood: {error}") from error

    async def _body(self, request: Request) -> list[Any]:
        if self.body is None:
            return []
        if request.headers.get("content-type", "").split(";")[0].strip() != JSON:
            raise Invalid(415, f"send {JSON}")
        try:
            return [msgspec.json.decode(await request.body(), type=self.body)]
        except msgspec.ValidationError as error:
            raise Invalid(422, f"the body is not understood: {error}") from error
        except (msgspec.DecodeError, RecursionError) as error:
            raise Invalid(400, f"the body is no JSON: {error}") from error
