"""Sessions that the CLI saved: list, show, read."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request

from geminorum import sessions
from geminorum.apps.web.api.endpoint import Endpoint
from geminorum.apps.web.services import settings_of
from geminorum.apps.web.sessions.exports import MAX_DOCUMENT_BYTES
from geminorum.errors import InvalidOptions
from geminorum.sessions import SessionInfo
from geminorum.views import messages

Moment = Annotated[int, Meta(ge=0, le=2**53)]
"""Milliseconds since 1970."""


class SessionsQuery(msgspec.Struct):
    folder: str | None = None
    """Only those of this folder."""
    text: Annotated[str, Meta(min_length=1)] | None = None
    """Only those that contain it."""
    since: Moment | None = None
    until: Moment | None = None
    kind: Literal["main", "subagent", "all"] = "main"
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    offset: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class SavedSession(msgspec.Struct):
    id: str
    title: str
    kind: str
    folder: str | None
    started: int
    """Milliseconds since 1970."""
    updated: int
    size: int
    """Bytes."""
    problem: str | None
    """Why it cannot be read."""


class SessionList(msgspec.Struct):
    sessions: list[SavedSession]
    """The last updated first."""
    total: int


class SessionText(msgspec.Struct):
    session: SavedSession
    messages: list[dict[str, Any]]
    """In Claude's format: roles, and blocks of text, thoughts and tools."""


async def list_sessions(request: Request, query: SessionsQuery) -> SessionList:
    home = settings_of(request).options.home
    chosen = {name: getattr(query, name) for name in ("since", "until", "text", "kind")}
    found = await asyncio.to_thread(sessions.list, query.folder, home=home, **chosen)
    shown = found[query.offset : query.offset + query.limit]
    return SessionList([_saved(info) for info in shown], len(found))


async def show_session(request: Request) -> SavedSession:
    return _saved(await asyncio.to_thread(_found, request))


async def read_session(request: Request) -> SessionText:
    return await asyncio.to_thread(_text, request)


def _found(request: Request) -> SessionInfo:
    id = request.path_params["id"]
    info = sessions.find(session_id=id, home=settings_of(request).options.home)
    if info is None:
        raise HTTPException(404, f"there is no session {id!r}")
    return info


def _text(request: Request) -> SessionText:
    info = _found(request)
    if info.size > MAX_DOCUMENT_BYTES:
        raise InvalidOptions(
            "the session is too long for one answer",
            hint="/sessions/ID/export?format=jsonl has all of it, one event after the other",
        )
    said: list[Any] = messages.claude(sessions.load(info))
    return SessionText(_saved(info), said)


def _saved(info: SessionInfo) -> SavedSession:
    return SavedSession(
        info.id,
        info.title,
        info.kind,
        str(info.cwd) if info.cwd else None,
        info.started,
        info.updated,
        info.size,
        info.problem,
    )


endpoints = [
    Endpoint(
        "GET",
        "/sessions",
        list_sessions,
        "List saved sessions",
        query=SessionsQuery,
        returns=SessionList,
    ),
    Endpoint(
        "GET",
        "/sessions/{id}",
        show_session,
        "Show a session",
        returns=SavedSession,
        failures=(422,),
    ),
    Endpoint(
        "GET",
        "/sessions/{id}/messages",
        read_session,
        "Read a session",
        returns=SessionText,
        failures=(400, 422),
    ),
]
