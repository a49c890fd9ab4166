"""Runs: list, start, follow, stop, remove."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import StreamingResponse

from geminorum import Options
from geminorum.apps.web.api.endpoint import SSE, Endpoint
from geminorum.apps.web.api.event_stream import stream_events
from geminorum.apps.web.pages.runs import find_run
from geminorum.apps.web.runs.info import RunInfo
from geminorum.apps.web.runs.runs import RunRequest
from geminorum.apps.web.services import services_of, settings_of
from geminorum.errors import InvalidOptions

Seq = Annotated[int, Meta(ge=0, le=2**53)]
"""A number that JavaScript can hold."""


class RunsQuery(msgspec.Struct):
    before: Seq | None = None
    """The start of the last run that was seen, in milliseconds."""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class RunList(msgspec.Struct):
    runs: list[RunInfo]
    """The newest first."""


class NewRun(msgspec.Struct, forbid_unknown_fields=True):
    prompt: Annotated[str, Meta(min_length=1)]
    via: str = "cli"
    options: dict[str, Any] = {}
    """As `Options.from_dict` takes them; `geminorum config schema` prints their schema."""


class EventsQuery(msgspec.Struct):
    after: Seq = 0
    """The id of the last event that was seen; `Last-Event-ID` counts more."""
    follow: bool = True
    """False: end with the last event that is there."""


async def list_runs(request: Request, query: RunsQuery) -> RunList:
    return RunList([*await services_of(request).runs.list(query.before, query.limit)])


async def start_run(request: Request, new: NewRun) -> RunInfo:
    settings = settings_of(request)
    options = settings.options.changed(**{"cwd": settings.folder, **_options(new.options)})
    wanted = RunRequest(prompt=new.prompt, options=options, via=new.via)
    return await services_of(request).runs.start(wanted)


async def show_run(request: Request) -> RunInfo:
    return await find_run(request)


async def stop_run(request: Request) -> RunInfo:
    info = await find_run(request)
    if not await services_of(request).runs.stop(info.id) and info.is_live:
        raise HTTPException(409, "another `geminorum web` has started it; stop it there")
    return await find_run(request)


async def remove_run(request: Request) -> None:
    info = await find_run(request)
    if not await services_of(request).runs.remove(info.id):
        raise HTTPException(409, "it goes on; stop it first")


async def follow_run(request: Request, query: EventsQuery) -> StreamingResponse:
    info = await find_run(request)
    return _stream(request, info.id, query)


async def follow_all(request: Request, query: EventsQuery) -> StreamingResponse:
    return _stream(request, None, query)


def _stream(request: Request, run: str | None, query: EventsQuery) -> StreamingResponse:
    last = request.headers.get("last-event-id", "")
    after = int(last) if last.isdecimal() and len(last) < 16 else query.after
    services = services_of(request)
    services.require_free_stream()
    events = stream_events(services, run, after, follow=query.follow)
    return StreamingResponse(events, media_type=SSE)


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Those that were given, checked; a key that nobody knows is an error here."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            options = Options.from_dict(given)
        except UserWarning as warning:
            raise InvalidOptions(str(warning)) from warning
    plain = msgspec.structs.asdict(Options())
    return {
        name: value
        for name, value in msgspec.structs.asdict(options).items()
        if value != plain[name]
    }


endpoints = [
    Endpoint("GET", "/runs", list_runs, "List runs", query=RunsQuery, returns=RunList),
    Endpoint("POST", "/runs", start_run, "Start a run", body=NewRun, returns=RunInfo, status=201),
    Endpoint("GET", "/runs/{id}", show_run, "Show a run", returns=RunInfo),
    Endpoint("DELETE", "/runs/{id}", remove_run, "Forget a run", status=204, failures=(409,)),
    Endpoint("POST", "/runs/{id}/stop", stop_run, "Stop a run", returns=RunInfo, failures=(409,)),
    Endpoint(
        "GET",
        "/runs/{id}/events",
        follow_run,
        "Follow the events of a run",
        query=EventsQuery,
        media_type=SSE,
    ),
    Endpoint(
        "GET",
        "/events",
        follow_all,
        "Follow the events of all runs: each with the id of its run",
        query=EventsQuery,
        media_type=SSE,
    ),
]
