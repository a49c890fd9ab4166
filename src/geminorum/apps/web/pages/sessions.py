"""Sessions: everything that the CLI saved, to be searched, read, exported, forked and deleted."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

import geminorum
from geminorum.apps.web.rendering import is_fragment, path_for, redirect, render
from geminorum.apps.web.services import services_of
from geminorum.apps.web.sessions.conversation import open_conversation
from geminorum.apps.web.sessions.exports import export_of
from geminorum.apps.web.sessions.finds import finds_in
from geminorum.apps.web.sessions.names import is_session_id
from geminorum.apps.web.sessions.query import SessionQuery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from os import PathLike

    from geminorum.sessions import SessionInfo, SessionPage

_LIST_SECONDS, _SEARCH_SECONDS = 0.3, 2.0
"""How long a page may read files; what is left is read when it is asked for again."""


async def list_sessions(request: Request) -> Response:
    query = SessionQuery.read(request.query_params)
    page = await asyncio.to_thread(_find_page, request, query)
    finds = await asyncio.to_thread(finds_in, page.sessions, query.text) if query.text else {}
    template = "sessions/_results.html" if is_fragment(request) else "sessions/list.html"
    return render(
        request,
        template,
        422 if query.problems else 200,
        query=query,
        page=page,
        finds=finds,
        is_deleted="deleted" in request.query_params,
    )


def _find_page(request: Request, query: SessionQuery) -> SessionPage:
    return services_of(request).catalogue.page(
        query.number,
        project=query.project or None,
        since=query.first_moment,
        until=query.last_moment,
        text=query.text or None,
        seconds=_SEARCH_SECONDS if query.text else _LIST_SECONDS,
    )


async def show_session(request: Request) -> Response:
    info = await _find(request)
    if info.id != request.path_params["id"]:  # The beginning of an id is enough to find it.
        return RedirectResponse(path_for(request, "sessions.show", id=info.id), 303)
    given = request.query_params.get("from", "")
    start = int(given) if re.fullmatch("[0-9]{1,9}", given) else 0
    conversation = await asyncio.to_thread(open_conversation, info, start)
    return render(request, "sessions/show.html", conversation=conversation, info=info)


async def download(request: Request) -> Response:
    info = await _find(request)
    export = export_of(info, request.query_params.get("format", "markdown"))
    # The first piece before anything is sent: what cannot be read is a page, not half a file.
    chunks = iter(export.chunks)
    first = await run_in_threadpool(next, chunks, b"")

    async def body() -> AsyncIterator[bytes]:
        yield first
        async for chunk in iterate_in_threadpool(chunks):
            yield chunk

    headers = {"content-disposition": f"attachment; filename*=utf-8''{quote(export.name)}"}
    return StreamingResponse(body(), media_type=export.media_type, headers=headers)


async def fork(request: Request) -> Response:
    info = await _find(request)
    copy = await asyncio.to_thread(geminorum.sessions.fork, info, home=_home(request))
    return redirect(request, "sessions.show", id=copy.id)


async def ask_before_deleting(request: Request) -> Response:
    return render(request, "sessions/delete.html", info=await _find(request))


async def delete(request: Request) -> Response:
    info = await _find(request)
    await asyncio.to_thread(geminorum.sessions.delete, info, home=_home(request))
    return RedirectResponse(f"{path_for(request, 'sessions')}?deleted", 303)


async def _find(request: Request) -> SessionInfo:
    name = str(request.path_params["id"])
    if not is_session_id(name):
        raise HTTPException(404, "an id of a session has letters, digits, - and _ only")
    find = partial(geminorum.sessions.find, session_id=name, home=_home(request))
    info = await asyncio.to_thread(find)
    if info is None:
        raise HTTPException(404, f"there is no session {name!r}; it may have been deleted")
    return info


def _home(request: Request) -> str | PathLike[str] | None:
    """The folder that holds `.gemini`; None: the CLI's own choice."""
    return services_of(request).settings.options.home


routes = [
    Route("/sessions", list_sessions, name="sessions"),
    Route("/sessions/{id}", show_session, name="sessions.show"),
    Route("/sessions/{id}/export", download, name="sessions.export"),
    Route("/sessions/{id}/fork", fork, methods=["POST"], name="sessions.fork"),
    Route("/sessions/{id}/delete", ask_before_deleting, name="sessions.ask_delete"),
    Route("/sessions/{id}/delete", delete, methods=["POST"], name="sessions.delete"),
]
