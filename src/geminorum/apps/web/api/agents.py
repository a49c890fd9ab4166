"""Agents of the page: list, show, create, change, delete, run, begin a new session."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request

from geminorum.apps.web.agents.book import Agent, AgentBook
from geminorum.apps.web.agents.form import KEPT, AgentForm
from geminorum.apps.web.api.endpoint import Endpoint
from geminorum.apps.web.pages.agents import find_agent, runner_of
from geminorum.apps.web.runs.info import RunInfo
from geminorum.apps.web.services import services_of


class SavedAgent(msgspec.Struct):
    id: str
    name: str
    config: dict[str, Any]
    """With the keys of the `local_adapter` contract. Of `env` the names only: each value is
    "(unchanged)", which keeps the saved one when it is sent back."""
    revision: int
    """To be sent back with a change."""
    changed: int
    """Milliseconds since 1970."""
    last_run: str | None


class AgentList(msgspec.Struct):
    agents: list[SavedAgent]


class NewAgent(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=80)]
    config: dict[str, Any]


class ChangedAgent(NewAgent, forbid_unknown_fields=True):
    revision: Annotated[int, Meta(ge=1, le=2**53)]
    """That of the agent that was read: if somebody else has changed it since, nothing happens."""


class AgentPrompt(msgspec.Struct, forbid_unknown_fields=True):
    prompt: Annotated[str, Meta(min_length=1)]


async def list_agents(request: Request) -> AgentList:
    return AgentList([_shown(one) for one in await asyncio.to_thread(_book(request).list)])


async def show_agent(request: Request) -> SavedAgent:
    return _shown(await find_agent(request))


async def create_agent(request: Request, new: NewAgent) -> SavedAgent:
    form = AgentForm.checked(new.name, new.config, {})
    return _shown(await asyncio.to_thread(_book(request).add, form.name, form.config.to_dict()))


async def change_agent(request: Request, new: ChangedAgent) -> SavedAgent:
    agent = await find_agent(request)
    form = AgentForm.checked(new.name, new.config, agent.config)
    config = form.config.to_dict()
    read = msgspec.structs.replace(agent, revision=new.revision)
    change = _book(request).change
    return _shown(await asyncio.to_thread(lambda: change(read, name=form.name, config=config)))


async def delete_agent(request: Request) -> None:
    agent = await find_agent(request)
    await asyncio.to_thread(_book(request).remove, agent.id)


async def run_agent(request: Request, wanted: AgentPrompt) -> RunInfo:
    return await runner_of(request).start(await find_agent(request), wanted.prompt)


async def reset_agent(request: Request) -> SavedAgent:
    agent, change = await find_agent(request), _book(request).change
    return _shown(await asyncio.to_thread(lambda: change(agent, is_fresh=True, session=None)))


def _book(request: Request) -> AgentBook:
    return services_of(request).agents


def _shown(agent: Agent) -> SavedAgent:
    config = dict(agent.config)
    if "env" in config:
        config["env"] = dict.fromkeys(config["env"], KEPT)
    return SavedAgent(agent.id, agent.name, config, agent.revision, agent.changed, agent.last_run)


endpoints = [
    Endpoint("GET", "/agents", list_agents, "List agents", returns=AgentList),
    Endpoint(
        "POST",
        "/agents",
        create_agent,
        "Create an agent",
        body=NewAgent,
        returns=SavedAgent,
        status=201,
        failures=(400,),
    ),
    Endpoint("GET", "/agents/{id}", show_agent, "Show an agent", returns=SavedAgent),
    Endpoint(
        "PUT",
        "/agents/{id}",
        change_agent,
        "Change an agent",
        body=ChangedAgent,
        returns=SavedAgent,
        failures=(409,),
    ),
    Endpoint("DELETE", "/agents/{id}", delete_agent, "Delete an agent", status=204),
    Endpoint(
        "POST",
        "/agents/{id}/run",
        run_agent,
        "Run an agent",
        body=AgentPrompt,
        returns=RunInfo,
        status=201,
        failures=(400, 409, 422),
    ),
    Endpoint(
        "POST",
        "/agents/{id}/reset",
        reset_agent,
        "Let an agent begin a new session with its next run",
        returns=SavedAgent,
        failures=(409,),
    ),
]
