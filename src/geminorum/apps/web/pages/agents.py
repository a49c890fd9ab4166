"""Agents: create, edit, duplicate and delete them; preview, test and run them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminorum.apps.web.agents.book import Agent, AgentBook
from geminorum.apps.web.agents.form import AgentForm
from geminorum.apps.web.agents.preview import SAMPLE_PROMPT, Preview, preview_of
from geminorum.apps.web.agents.running import AgentRunner
from geminorum.apps.web.checking import check_rows, one_by_one
from geminorum.apps.web.rendering import is_fragment, redirect, render
from geminorum.apps.web.services import services_of, settings_of
from geminorum.apps.web.streaming import stream_rows
from geminorum.contracts.local_adapter import AGENT_CONFIGURATION_DOC, environment_checks

T = TypeVar("T")
_RUNS_LOOKED_AT, _RUNS_SHOWN = 500, 10


async def list_agents(request: Request) -> Response:
    agents = await _in_thread(request, AgentBook.list)
    return render(request, "agents/list.html", agents=agents)


async def new_agent(request: Request) -> Response:
    return _form(request, AgentForm.blank(settings_of(request).folder))


async def create_agent(request: Request) -> Response:
    typed = await request.form()
    form = AgentForm.read(typed, {})
    if "preview" in typed or form.problems:
        return _form(request, form, typed=typed)
    config = form.config.to_dict()
    agent = await _in_thread(request, lambda book: book.add(form.name, config))
    return redirect(request, "agents.show", id=agent.id)


async def show_agent(request: Request) -> Response:
    return await _show(request, await find_agent(request))


async def _show(
    request: Request, agent: Agent, status: int = 200, *, prompt: str = "", problem: str = ""
) -> Response:
    form = AgentForm.saved(agent.name, agent.config)
    runs = await services_of(request).runs.list(limit=_RUNS_LOOKED_AT)
    session = None if form.problems else await runner_of(request).session_of(agent, form.config)
    return render(
        request,
        "agents/show.html",
        status,
        agent=agent,
        form=form,
        preview=_preview(form, SAMPLE_PROMPT),
        runs=[one for one in runs if one.agent == agent.id][:_RUNS_SHOWN],
        session=session,
        prompt=prompt,
        problem=problem,
    )


async def edit_agent(request: Request) -> Response:
    agent = await find_agent(request)
    return _form(request, AgentForm.saved(agent.name, agent.config), agent)


async def save_agent(request: Request) -> Response:
    agent, typed = await find_agent(request), await request.form()
    form = AgentForm.read(typed, agent.config)
    if "preview" in typed or form.problems:
        return _form(request, form, agent, typed=typed)
    if str(typed.get("revision", "")) != str(agent.revision):
        text = "somebody else has changed this agent meanwhile; what you typed is not saved yet"
        return _form(request, form, agent, typed=typed, status=409, notice=text)
    changes = {"name": form.name, "config": form.config.to_dict()}
    await _in_thread(request, lambda book: book.change(agent, **changes))
    return redirect(request, "agents.show", id=agent.id)


async def duplicate_agent(request: Request) -> Response:
    agent = await find_agent(request)
    name = f"{agent.name[:70]} (copy)"
    copy = await _in_thread(request, lambda book: book.add(name, agent.config))
    return redirect(request, "agents.edit", id=copy.id)


async def ask_before_deleting(request: Request) -> Response:
    return render(request, "agents/delete.html", agent=await find_agent(request))


async def delete_agent(request: Request) -> Response:
    agent = await find_agent(request)
    await _in_thread(request, lambda book: book.remove(agent.id))
    return redirect(request, "agents")


async def run_agent(request: Request) -> Response:
    agent, typed = await find_agent(request), await request.form()
    prompt = str(typed.get("prompt", "")).strip()
    if not prompt:
        text = "say what the agent should do"
        return await _show(request, agent, 422, problem=text)
    info = await runner_of(request).start(agent, prompt)
    return redirect(request, "runs.show", id=info.id)


async def check_agent(request: Request) -> Response:
    """The page fills while the checks are made."""
    agent, typed = await find_agent(request), await request.form()
    config = AgentForm.saved(agent.name, agent.config).config
    checks = environment_checks(config, live="live" in typed)
    rows = check_rows(request, one_by_one(checks))
    return stream_rows(request, "agents/check.html", rows, agent=agent)


async def reset_session(request: Request) -> Response:
    agent = await find_agent(request)
    changes = {"is_fresh": True, "session": None}
    await _in_thread(request, lambda book: book.change(agent, **changes))
    return redirect(request, "agents.show", id=agent.id)


async def find_agent(request: Request) -> Agent:
    """The agent that the path names; there may be none."""
    id = str(request.path_params["id"])
    agent = await _in_thread(request, lambda book: book.get(id))
    if agent is None:
        raise HTTPException(404, f"there is no agent {id!r}; it may have been deleted")
    return agent


def runner_of(request: Request) -> AgentRunner:
    services = services_of(request)
    return AgentRunner(services.settings, services.runs, services.agents)


def _form(
    request: Request,
    form: AgentForm,
    agent: Agent | None = None,
    *,
    typed: Any = None,
    status: int | None = None,
    notice: str = "",
) -> Response:
    """The form with what is wrong; a preview is no mistake."""
    is_preview = typed is not None and "preview" in typed
    prompt = str((typed or {}).get("sample", "")).strip() or SAMPLE_PROMPT
    template = "agents/_preview.html" if is_fragment(request) else "agents/edit.html"
    return render(
        request,
        template,
        status or (422 if typed is not None and form.problems and not is_preview else 200),
        agent=agent,
        form=form,
        preview=_preview(form, prompt),
        sample=prompt,
        notice=notice,
        has_lost_secrets=typed is not None and form.has_new_secrets,
        guide=AGENT_CONFIGURATION_DOC,
    )


def _preview(form: AgentForm, prompt: str) -> Preview | None:
    """None while something is wrong."""
    wrong = form.problems.keys() - {"name"}
    return None if wrong else preview_of(form.without_name_problem.config, form.name, prompt)


async def _in_thread(request: Request, work: Callable[[AgentBook], T]) -> T:
    return await asyncio.to_thread(work, services_of(request).agents)


routes = [
    Route("/agents", list_agents, name="agents"),
    Route("/agents", create_agent, methods=["POST"], name="agents.create"),
    Route("/agents/new", new_agent, name="agents.new"),
    Route("/agents/{id}", show_agent, name="agents.show"),
    Route("/agents/{id}", save_agent, methods=["POST"], name="agents.save"),
    Route("/agents/{id}/edit", edit_agent, name="agents.edit"),
    Route("/agents/{id}/duplicate", duplicate_agent, methods=["POST"], name="agents.duplicate"),
    Route("/agents/{id}/delete", ask_before_deleting, name="agents.ask_delete"),
    Route("/agents/{id}/delete", delete_agent, methods=["POST"], name="agents.delete"),
    Route("/agents/{id}/run", run_agent, methods=["POST"], name="agents.run"),
    Route("/agents/{id}/check", check_agent, methods=["POST"], name="agents.check"),
    Route("/agents/{id}/reset", reset_session, methods=["POST"], name="agents.reset"),
]
