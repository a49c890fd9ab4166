"""Runs a config and a context: one prompt through the CLI, with its session managed."""

from __future__ import annotations

import asyncio
import inspect
import time
from dataclasses import dataclass
from typing import NamedTuple

import geminorum
from geminorum import Transport, run
from geminorum.adapter_parts import BackgroundLoop
from geminorum.contracts.local_adapter.config import GeminiLocalConfig
from geminorum.contracts.local_adapter.context import AdapterExecutionContext, render_template
from geminorum.contracts.local_adapter.result import LocalResult, local_result, not_started
from geminorum.cost import PriceBook, Prices, price_book
from geminorum.errors import GeminorumError, InvalidOptions, InvalidPrompt, SessionLost
from geminorum.events import Event, TextDelta
from geminorum.prompt import instructed
from geminorum.store import AgentSessions, StoredSession, folder_of


async def execute(
    config: GeminiLocalConfig,
    context: AdapterExecutionContext,
    *,
    store: AgentSessions | None = None,
    retry_fresh: bool = False,
    via: Transport | None = None,
    prices: Prices = None,
) -> LocalResult:
    """Runs the agent to its end. Failures are in the result; only cancellation raises.

    With a `store`, the agent resumes its session in this folder. With `retry_fresh`, a lost session
    leads to a second attempt without it, which the result reports; each attempt has the full time
    limit. `via` replaces the transport, and with it `executable` and `grace_sec`. `prices` replaces
    today's list prices: a PriceBook, or "2026-04" for the document's table.
    """
    try:
        plan = _planned(config, context, store, via, prices)
        session_id = await _find_session(plan)
    except GeminorumError as error:
        return not_started(error, config, resumed=context.session_id)
    result = await _attempt(plan, session_id)
    if session_id is not None and result.clear_session:
        result = await _forget_session(plan, session_id, result)
        if retry_fresh and not result.did_something:
            result = _afresh(session_id, result, await _attempt(plan, None))
    return await _remember(plan, result)


def execute_sync(
    config: GeminiLocalConfig,
    context: AdapterExecutionContext,
    *,
    store: AgentSessions | None = None,
    retry_fresh: bool = False,
    via: Transport | None = None,
    prices: Prices = None,
) -> LocalResult:
    """`execute` for synchronous code."""
    with BackgroundLoop() as loop:
        work = execute(
            config, context, store=store, retry_fresh=retry_fresh, via=via, prices=prices
        )
        return loop.call(work)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What both attempts have in common."""

    config: GeminiLocalConfig
    context: AdapterExecutionContext
    store: AgentSessions | None
    transport: Transport
    prices: PriceBook | None
    prompt: str
    warnings: tuple[str, ...]


def _planned(
    config: GeminiLocalConfig,
    context: AdapterExecutionContext,
    store: AgentSessions | None,
    via: Transport | None,
    prices: Prices,
) -> _Plan:
    book = price_book(prices)
    _make_folder(config)
    prompt = build_prompt(config, context)
    transport = via or geminorum.Cli(executable=config.executable, grace=config.grace_sec)
    return _Plan(config, context, store, transport, book, prompt.text, tuple(prompt.warnings))


def _make_folder(config: GeminiLocalConfig) -> None:
    try:
        config.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOptions(
            f"cannot create the working folder {str(config.folder)!r}: {error}",
            hint="choose a cwd that this user may create",
        ) from error


class BuiltPrompt(NamedTuple):
    """A prompt as it goes out."""

    text: str
    warnings: list[str]
    """What should be said about it: a template without {{prompt}}, an unreadable file."""


def build_prompt(config: GeminiLocalConfig, context: AdapterExecutionContext) -> BuiltPrompt:
    """Fills in the template, and puts the instructions file before it. `execute` does that."""
    template, warnings = config.prompt_template, []
    if template is None:
        text = context.prompt
    else:
        text = render_template(template, context)
        if context.prompt and context.prompt not in text:
            warnings.append("the prompt was not sent: promptTemplate has no {{prompt}}")
    try:
        text = instructed(text, config.instructions_file)
    except InvalidPrompt as error:
        # An agent without its manners is better than none; the health check is the place to fail.
        warnings.append(error.message)
    return BuiltPrompt(text, warnings)


async def _find_session(plan: _Plan) -> str | None:
    if plan.context.session_id is not None or plan.store is None:
        return plan.context.session_id
    agent, cwd = plan.context.store_key, folder_of(plan.config.folder)
    stored = await asyncio.to_thread(plan.store.get, agent, cwd)
    return None if stored is None else stored.session_id


async def _attempt(plan: _Plan, session_id: str | None) -> LocalResult:
    events: list[Event] = []
    config = plan.config
    try:
        await _refuse_another_folder(plan, session_id)
        async with run(plan.prompt, config.options(session_id), via=plan.transport) as live:
            async for event in live:
                # Each delta comes again in its whole message.
                if not isinstance(event, TextDelta):
                    events.append(event)
                await _tell(plan.context, event)
    except GeminorumError as error:
        return not_started(error, config, resumed=session_id, warnings=plan.warnings)
    return local_result(
        live.result,
        events,
        config,
        resumed=session_id,
        prices=plan.prices,
        warnings=plan.warnings,
    )


async def _refuse_another_folder(plan: _Plan, session_id: str | None) -> None:
    """The CLI would look for the session in this folder's own history, and not find it."""
    if plan.store is None or session_id is None:
        return
    here = folder_of(plan.config.folder)
    known = await asyncio.to_thread(plan.store.list, plan.context.store_key)
    homes = [stored.cwd for stored in known if stored.session_id == session_id]
    if homes and here not in homes:
        raise SessionLost(f"session {session_id} began in {homes[0]!r}, and cwd is {here!r}")


async def _tell(context: AdapterExecutionContext, event: Event) -> None:
    if context.on_event is not None:
        answer = context.on_event(event)
        if inspect.isawaitable(answer):
            await answer


def _afresh(lost: str, first: LocalResult, second: LocalResult) -> LocalResult:
    note = f"session {lost} could not be resumed ({first.error}); a new one was started"
    return second.changed(
        fresh_session=True,
        # Where the second attempt left no session either, the old one is still to be forgotten.
        clear_session=second.clear_session or not second.resumable,
        warnings=[*first.warnings, note],
    )


async def _forget_session(plan: _Plan, session_id: str, result: LocalResult) -> LocalResult:
    if plan.store is None:
        return result
    agent, cwd = plan.context.store_key, folder_of(plan.config.folder)
    try:
        await asyncio.to_thread(plan.store.forget, agent, cwd, session_id)
    except GeminorumError as error:
        return result.changed(warnings=[*result.warnings, error.message])
    return result


async def _remember(plan: _Plan, result: LocalResult) -> LocalResult:
    """The result, once its session is in the store; a full disk must not cost what was paid for."""
    started = result.status != "not_started"
    if plan.store is None or result.session_id is None or not (started and result.resumable):
        return result
    run = StoredSession(
        agent=plan.context.store_key,
        cwd=folder_of(plan.config.folder),
        session_id=result.session_id,
        last_run=time.time_ns() // 1_000_000,
        model=result.model,
        tokens=result.usage.total if result.usage else 0,
        cost_usd=result.cost_usd,
    )
    try:
        await asyncio.to_thread(plan.store.record, run)
    except GeminorumError as error:
        return result.changed(warnings=[*result.warnings, error.message])
    return result
