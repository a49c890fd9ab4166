"""One turn through the API: answers, the caller's functions in between, and what may stop it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from geminorum import cost, errors
from geminorum.errors import InvalidAnswer
from geminorum.events import (
    Cost,
    Done,
    Error,
    Event,
    Init,
    ModelRequest,
    Status,
    Tokens,
    Usage,
    UserMessage,
    total_of,
)
from geminorum.prompt import Prompt
from geminorum.runtime.interrupts import Interrupt, error_message, is_interrupt
from geminorum.schema import parsed
from geminorum.transports.api.client import Failed
from geminorum.transports.api.exchange import Exchange
from geminorum.transports.api.prompt import content_of
from geminorum.transports.api.tools import ToolRunner
from geminorum.transports.turns.bill import price_of, usd_of
from geminorum.transports.turns.outbox import Outbox
from geminorum.transports.turns.stop_checks import BudgetGuard
from geminorum.wire.ending import Ending, Stop, stopped
from geminorum.wire.genai.answer import ModelAnswer
from geminorum.wire.genai.request import Content, model, prompt_text, response_of, results

if TYPE_CHECKING:
    from geminorum.transports.api.transport import ApiConversation

_MOST_ANSWERS = 100
"""In one turn, where the caller set no limit: a model can call functions forever."""
_HURRY_SECONDS = 0.3
"""For a function to end once the caller was cancelled and will not wait."""


class ApiTurn:
    """A task that talks to the API, and the events that it leaves for the reader."""

    def __init__(self, conversation: ApiConversation, prompt: Prompt) -> None:
        self._talk = conversation
        self._prompt = content_of(prompt, Path(conversation.options.cwd or "."))
        self._pending: list[Content] = [self._prompt]
        """What the next answer completes; only then is it history."""
        self._out = Outbox(conversation.session_id)
        self._exchange = Exchange(conversation, self._out)
        self._interrupt = Interrupt(self._begin_stop)
        self._tools = ToolRunner(conversation, self._out, self._interrupt.take)
        self._stop: Stop | None = None
        self._limit: float | None = None
        self._parted = asyncio.Event()
        """The worker has ended, or nobody waits for it any more."""
        self._began = time.monotonic()

    @property
    def stderr(self) -> str:
        return ""

    async def __aenter__(self) -> ApiTurn:
        self._talk.begin_turn(self)
        cost.warm_up()
        # A task of its own: a limit holds while the consumer is busy, and to cancel it closes
        # the connection at once.
        self._worker = asyncio.create_task(self._work())
        self._worker.add_done_callback(lambda _: self._parted.set())
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop("cancel")
        finally:
            self._talk.end_turn(self)

    async def read(self) -> list[Event]:
        events = await self._out.read()
        if not events:
            self._interrupt.pass_on()
        return events

    async def stop(self, reason: Stop, limit: float | None = None) -> None:
        if self._worker.done():
            return
        self._begin_stop(reason, limit)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._talk.transport.grace):
                await self._parted.wait()
        # A task that had not begun does not say goodbye; a tool may refuse to be cancelled.
        if not self._out.is_closed:
            self._out.close(self._last_word(self._put_down(self._stop or reason), None))

    def hurry(self) -> None:
        self._begin_stop()
        asyncio.get_running_loop().call_later(_HURRY_SECONDS, self._parted.set)

    def _begin_stop(self, reason: Stop = "cancel", limit: float | None = None) -> None:
        if self._stop is None:
            self._stop, self._limit = reason, limit
        self._worker.cancel()

    async def _work(self) -> None:
        """Ends with a Done, whatever happens."""
        status: Status = "error"
        data: Any = None
        try:
            status, data = await self._converse()
        except asyncio.CancelledError:
            status = self._put_down(self._stop or "cancel")
        except Failed as failed:
            self._out.put(failed.error)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            self._out.put(Error(text, errors.RunFailed.code, hint="this is a bug in geminorum"))
        except BaseException as error:
            self._interrupt.take(error)
            status = self._put_down("cancel")
        finally:
            self._out.close(self._last_word(status, data))

    async def _converse(self) -> tuple[Status, Any]:
        talk = self._talk
        names = [tool.name for tool in talk.tools]
        self._out.put(Init(model=talk.model, tools=names), UserMessage(prompt_text(self._prompt)))
        for number in range(talk.options.max_turns or _MOST_ANSWERS):
            if (reason := self._overspent(number)) is not None:
                return self._put_down(reason), None
            answer = await self._exchange.request_answer([*talk.history, *self._pending])
            if not answer.calls or self._tools.leaves_to_caller(answer.calls):
                return "success", self._conclude(answer)
            await self._use_tools(answer)
        return "max_turns", None

    def _conclude(self, answer: ModelAnswer) -> Any:
        """Takes the last answer into the history; its data, where it was to have a shape."""
        data, shape = None, self._talk.shape
        if shape is not None and not answer.calls:
            try:
                data = parsed(answer.text)
                shape.typed(data)
            except InvalidAnswer as error:
                wrong = Error(error.message, error.code, hint=error.hint, retryable=True)
                raise Failed(wrong) from error
        self._talk.history += [*self._pending, model(answer.parts)]
        return data

    async def _use_tools(self, answer: ModelAnswer) -> None:
        """Calls the functions, and makes the round a part of the history."""
        try:
            await self._tools.run(answer.calls)
        finally:
            # Also where it is cancelled: what a tool has done stays done.
            outcomes = [self._tools.outcome_of(call) for call in answer.calls]
            told = zip(answer.calls, map(response_of, outcomes), strict=True)
            self._talk.history += [*self._pending, model(answer.parts), results(told)]
            self._pending = []

    def _overspent(self, answers: int) -> Stop | None:
        """May the next request be sent? Not without knowing what it, and those before it, cost."""
        talk, requests = self._talk, self._exchange.requests
        if talk.options.max_budget_usd is None:
            return None
        if not talk.has_price or len(requests) < answers:
            return "no_price"
        found = BudgetGuard(
            lambda: requests, talk.options.max_budget_usd, talk.transport.prices
        ).look()
        return found and found[0]

    def _put_down(self, reason: Stop) -> Status:
        question = self._interrupt.question
        verdict = stopped(Ending(None, stop=reason, limit=self._limit, question=question))
        if verdict.error is not None:
            self._out.put(verdict.error)
        return verdict.status

    def _last_word(self, status: Status, data: Any) -> Done:
        try:
            return self._done(status, data)
        except BaseException as error:  # Prices of the caller's may do anything.
            if is_interrupt(error):
                self._interrupt.take(error)
            return Done(status, cost_note=error_message(error), data=data)

    def _done(self, status: Status, data: Any) -> Done:
        answer = self._exchange.answer
        usage = self._usage(whole=status not in ("interrupted", "error"))
        price = self._price(usage)
        return Done(
            status,
            usage=usage,
            cost=price if isinstance(price, Cost) else None,
            cost_note=price if isinstance(price, str) else None,
            duration=time.monotonic() - self._began,
            stop_reason=answer.blocked or answer.finish,
            data=data,
            frame=msgspec.Raw(answer.last_chunk) if answer.last_chunk else msgspec.UNSET,
        )

    def requests(self) -> list[ModelRequest]:
        return self._exchange.requests

    def spent(self) -> Decimal | None:
        return usd_of(self.requests(), self._talk.transport.prices)

    def _usage(self, *, whole: bool) -> Usage | None:
        requests = self._exchange.requests
        if not requests:
            return None
        by_model = _shares(requests)
        total = total_of(list(by_model.values()))
        counts = {name: getattr(total, name) for name in Tokens.__struct_fields__}
        return Usage(
            **counts,
            by_model=by_model,
            tool_calls=self._tools.count,
            exact=whole,
            requests=tuple(requests),
        )

    def _price(self, usage: Usage | None) -> Cost | str:
        transport = self._talk.transport
        tier = self._exchange.answer.counts.get("serviceTier") or "standard"
        if tier != "standard":
            return f"there is no price for the service tier {tier!r}"
        return price_of(usage, transport.prices, "vertex" if transport.vertex else "api_key")


def _shares(requests: Sequence[ModelRequest]) -> dict[str, Tokens]:
    names = dict.fromkeys(request.model for request in requests)
    return {name: total_of([one for one in requests if one.model == name]) for name in names}
