"""Doctor: is everything in place, and what to do where it is not."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminorum import Cli, doctor
from geminorum.apps.web.checking import as_told, check_rows, one_by_one
from geminorum.apps.web.rendering import render
from geminorum.apps.web.services import settings_of
from geminorum.apps.web.streaming import stream_rows
from geminorum.doctor import Check, Remedy

_TRY_SECONDS = 60.0


async def show_doctor(request: Request) -> Response:
    return _stream_checks(request, live=False)


async def check_live(request: Request) -> Response:
    """Also sends a short prompt to the model, which costs a few tokens."""
    return _stream_checks(request, live=True)


def _stream_checks(request: Request, *, live: bool) -> Response:
    settings = settings_of(request)
    checks = doctor.checks(settings.options.changed(cwd=settings.folder), live, via=_cli(request))
    rows = check_rows(request, one_by_one(checks), can_fix=not settings.read_only)
    return stream_rows(request, "doctor/show.html", rows, what="live" if live else "setup")


async def try_cli(request: Request) -> Response:
    """Tries each feature on the installed CLI, with a simulated model."""
    options = settings_of(request).options
    work = partial(doctor.try_cli, options, via=_cli(request), timeout=_TRY_SECONDS)
    rows = check_rows(request, as_told(lambda say: work(on_check=say)))
    return stream_rows(request, "doctor/show.html", rows, what="try")


async def ask_before_fixing(request: Request) -> Response:
    check, remedy = await _find_remedy(request, request.query_params.get("check", ""))
    return render(request, "doctor/fix.html", check=check, remedy=remedy, done="")


async def fix(request: Request) -> Response:
    typed = await request.form()
    check, remedy = await _find_remedy(request, str(typed.get("check", "")))
    if typed.get("what") != remedy.what:  # The machine has changed since the question was asked.
        return render(request, "doctor/fix.html", 409, check=check, remedy=remedy, done="")
    done = await asyncio.to_thread(remedy.apply)
    return render(request, "doctor/fix.html", check=check, remedy=remedy, done=done)


async def _find_remedy(request: Request, name: str) -> tuple[Check, Remedy]:
    """Looks again: what is done follows from the machine, never from what a browser sends."""
    settings = settings_of(request)
    options = settings.options.changed(cwd=settings.folder)
    async for check in one_by_one(doctor.checks(options, via=_cli(request))):
        if check.name == name and (remedy := doctor.remedy_for(check)) is not None:
            return check, remedy
    raise HTTPException(404, f"there is nothing to fix automatically about {name!r} any more")


def _cli(request: Request) -> Cli | None:
    usual = settings_of(request).transports.get("cli")
    return usual if isinstance(usual, Cli) else None


routes = [
    Route("/doctor", show_doctor, name="doctor"),
    Route("/doctor/live", check_live, methods=["POST"], name="doctor.live"),
    Route("/doctor/try", try_cli, methods=["POST"], name="doctor.try"),
    Route("/doctor/fix", ask_before_fixing, name="doctor.ask_fix"),
    Route("/doctor/fix", fix, methods=["POST"], name="doctor.fix"),
]
