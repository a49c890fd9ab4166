"""Runs an agent of the page: its config as options, its prompt filled in, its session resumed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import NamedTuple

from geminorum import Cli, Options, Transport, run
from geminorum.apps.web.agents.book import Agent, AgentBook
from geminorum.apps.web.agents.form import AgentForm
from geminorum.apps.web.runs.info import RunInfo, RunLimits, new_id, now_ms
from geminorum.apps.web.runs.runs import Runs
from geminorum.apps.web.settings import WebSettings
from geminorum.contracts.local_adapter import (
    AdapterExecutionContext,
    GeminiLocalConfig,
    build_prompt,
)
from geminorum.errors import InvalidOptions


class AgentRunner(NamedTuple):
    """What it takes to run agents."""

    settings: WebSettings
    runs: Runs
    agents: AgentBook

    async def start(self, agent: Agent, prompt: str) -> RunInfo:
        """Starts a run of the agent, which resumes its session; raises InvalidOptions."""
        config = AgentForm.saved(agent.name, agent.config).config
        session = await self.session_of(agent, config)
        options = self._options(config, session)
        info = RunInfo(
            id=new_id(),
            prompt=prompt,
            folder=str(config.folder),
            via="cli",
            model=config.model,
            approval=config.options().approval,
            started=now_ms(),
            resumes=session,
            agent=agent.id,
            limits=RunLimits.of(options),
        )
        text = await asyncio.to_thread(_prepare, agent, config, prompt, info.id)
        live = run(text, options, via=self._transport(config, options))
        # Before it starts: of two who press the button at once, one is told.
        changes = {"last_run": info.id, "session": session, "is_fresh": False}
        await asyncio.to_thread(lambda: self.agents.change(agent, **changes))
        return await self.runs.start_prepared(live, info)

    async def session_of(self, agent: Agent, config: GeminiLocalConfig) -> str | None:
        """The session that its next run goes on with. A session belongs to its folder."""
        if agent.is_fresh or agent.last_run is None:
            return None
        last = await self.runs.find(agent.last_run)
        if last is None:
            return agent.session
        return (last.session_id or agent.session) if last.folder == str(config.folder) else None

    def _options(self, config: GeminiLocalConfig, session: str | None) -> Options:
        """The agent's, on top of what all runs of the page have."""
        own, page = config.options(session), self.settings.options
        return page.changed(
            cwd=own.cwd,
            model=own.model or page.model,
            approval=own.approval,
            timeout=own.timeout,
            max_turns=own.max_turns,
            resume=own.resume,
            env={**page.env, **own.env},
            trust_workspace=own.trust_workspace,
        )

    def _transport(self, config: GeminiLocalConfig, options: Options) -> Transport:
        usual = self.settings.transports.get("cli")
        base = usual if isinstance(usual, Cli) else Cli(decide_timeout=None)
        own = replace(
            base,
            executable=config.executable or base.executable,
            grace=config.grace_sec,
            # A session that is gone must not stop an agent for good; the stream reports it.
            fresh_if_lost=True,
        )
        return self.runs.asking(own, options)


def _prepare(agent: Agent, config: GeminiLocalConfig, prompt: str, run_id: str) -> str:
    """Makes the folder, and returns the prompt as it goes out. Blocks."""
    try:
        config.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text = f"cannot create the working folder {str(config.folder)!r}: {error}"
        raise InvalidOptions(text, hint="choose another working folder") from error
    context = AdapterExecutionContext(
        agent_id=agent.id, agent_name=agent.name, run_id=run_id, prompt=prompt
    )
    return build_prompt(config, context).text
