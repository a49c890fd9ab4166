"""A request and its answer: tried again while nothing was said, given up when nothing comes."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import msgspec

from geminorum import errors
from geminorum.events import Error, ModelRequest
from geminorum.hints import advice
from geminorum.transports.api.client import Failed
from geminorum.transports.gates import Consumed, Settle
from geminorum.transports.turns.network import announcement_of
from geminorum.transports.turns.outbox import Outbox, now
from geminorum.transports.turns.request_gate import TurnGate
from geminorum.wire.callbacks.request_gate import limit_error
from geminorum.wire.ending import Ending, stopped
from geminorum.wire.genai.answer import ModelAnswer
from geminorum.wire.genai.request import Content
from geminorum.wire.genai.verdict import failure, remark

if TYPE_CHECKING:
    from geminorum.transports.api.transport import ApiConversation

_FIRST_PAUSE, _LONGEST_PAUSE, _DOUBLINGS = 1.0, 30.0, 5
_SHORTEST_NETWORK_PAUSE, _LONGEST_NETWORK_PAUSE = 0.1, 5.0
"""A network that has come back is not to be missed for long, and to ask for it costs nothing."""
_CONNECT_NOTICE_SECONDS = 3.0
"""Seconds without a connection until the reader learns of it."""


class Exchange:
    """The requests of one turn, one after the other."""

    def __init__(self, talk: ApiConversation, out: Outbox) -> None:
        self._talk, self._out = talk, out
        self.answer = ModelAnswer()
        """The last one, whatever became of it."""
        self.requests: list[ModelRequest] = []
        """What each try consumed; those that came to nothing are billed, too."""
        self._unreached_since: float | None = None
        """When the first of the tries began that did not get through."""
        self._gate = self._new_gate()

    def _new_gate(self) -> TurnGate | None:
        gate, prices = self._talk.transport.gate, self._talk.transport.prices
        return None if gate is None else TurnGate(gate, prices, self._out.put)

    async def request_answer(self, contents: list[Content]) -> ModelAnswer:
        """The answer. Raises Failed."""
        attempt = 0
        while True:
            self.answer = ModelAnswer(self._talk.session_id)
            settle = await self._admit(contents)
            try:
                await self._try(self.answer, contents, settle)
                self._unreached_since = None
                return self.answer
            except Failed as failed:
                pause = self._pause(failed.error, attempt)
                if failed.error.code != errors.NetworkError.code:
                    self._unreached_since = None
                # What was said cannot be unsaid: a second answer would stand behind half a first.
                if pause is None or self.answer.said:
                    raise
                self._out.put(_announced(failed.error, pause))
            await asyncio.sleep(pause)
            attempt += 1

    async def _admit(self, contents: list[Content]) -> Settle:
        """Returns when the request may be sent. Raises Failed, which no other try follows."""
        if self._gate is None:
            return _ignore
        talk, began = self._talk, asyncio.get_running_loop().time()
        try:
            size = len(msgspec.json.encode((contents, talk.config), enc_hook=repr))
            return await self._gate.admit(talk.model, talk.client.key, size)
        except errors.LimitReached as error:
            after = error.retry_after if error.retryable else None
            raise Failed(limit_error(error.message, after)) from error
        finally:
            if self._unreached_since is not None:
                # The network is not to blame for this wait.
                self._unreached_since += asyncio.get_running_loop().time() - began

    async def _try(self, answer: ModelAnswer, contents: list[Content], settle: Settle) -> None:
        try:
            await self._stream(answer, contents)
        finally:
            self._out.put(*answer.close(now()))
            if (request := answer.request(self._talk.model, now())) is not None:
                self.requests.append(request)
            self._settle(settle, request)
        if (wrong := failure(answer)) is not None:
            raise Failed(wrong)
        if (word := remark(answer)) is not None:
            self._out.put(word)

    def _settle(self, settle: Settle, request: ModelRequest | None) -> None:
        if self._gate is not None and request is not None:
            settle(self._gate.consumed(request))
        elif self._talk.client.is_connected and self.answer.chunks:
            settle(None)
        else:
            settle(Consumed())

    async def _stream(self, answer: ModelAnswer, contents: list[Content]) -> None:
        talk, limit = self._talk, self._talk.transport.idle_timeout
        connecting = asyncio.timeout_at(self._deadline())
        notice = asyncio.get_running_loop().call_later(
            _CONNECT_NOTICE_SECONDS, self._announce_waiting
        )

        def on_connected() -> None:
            notice.cancel()
            connecting.reschedule(None)

        try:
            async with asyncio.timeout(limit) as silence, connecting:
                await talk.client.send(
                    talk.model,
                    contents,
                    talk.config,
                    lambda data: self._take(answer, data, silence),
                    on_connected,
                )
        except TimeoutError as error:
            unreached = connecting.expired()
            raise Failed(self._unreached() if unreached else _silent(limit or 0)) from error
        finally:
            notice.cancel()

    def _deadline(self) -> float | None:
        """When to give up a network that does not answer."""
        now, limit = asyncio.get_running_loop().time(), self._talk.options.network_timeout
        if self._unreached_since is None:
            self._unreached_since = now
        return None if limit is None else self._unreached_since + limit

    def _announce_waiting(self) -> None:
        trouble = f"no connection after {_CONNECT_NOTICE_SECONDS:g} s"
        limit = self._talk.options.network_timeout
        text = f"cannot reach {self._talk.client.address}: {trouble}"
        self._out.put(announcement_of(text, limit))

    def _unreached(self) -> Error:
        limit = self._talk.options.network_timeout or 0
        trouble = f"cannot reach {self._talk.client.address}: no connection"
        error = stopped(Ending(None, stop="network", limit=limit, network=trouble)).error
        assert error is not None
        return error

    async def _take(self, answer: ModelAnswer, data: bytes, silence: asyncio.Timeout) -> None:
        """One chunk: its events go out, and the clock of the silence starts again."""
        if events := answer.add(data, now()):
            self._out.put_ready(events)
        if self._out.is_full:
            silence.reschedule(None)
            await self._out.has_room()
        if (limit := self._talk.transport.idle_timeout) is not None:
            silence.reschedule(asyncio.get_running_loop().time() + limit)

    def _pause(self, error: Error, attempt: int) -> float | None:
        """Seconds to wait before the next try; None: there shall be none."""
        transport, deadline = self._talk.transport, self._deadline()
        is_network = error.code == errors.NetworkError.code and deadline is not None
        # A network that is away has `network_timeout` to come back, as on the other transports;
        # a request that got through may have been billed.
        is_unreached = is_network and not self._talk.client.is_connected
        is_last = attempt >= transport.retries and not (is_unreached and transport.retries)
        if not error.retryable or is_last:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= transport.patience else None
        # Jitter over nearly all of it, so that many clients do not come back in step.
        longest = min(
            _LONGEST_PAUSE, transport.patience, _FIRST_PAUSE * 2 ** min(attempt, _DOUBLINGS)
        )
        pause = random.uniform(longest / 10, longest)  # nosec B311  # a pause is no secret
        if not is_network or deadline is None:
            return pause
        pause = min(max(pause, _SHORTEST_NETWORK_PAUSE), _LONGEST_NETWORK_PAUSE)
        left = deadline - asyncio.get_running_loop().time()
        return pause if pause < left else None


def _ignore(consumed: Consumed | None) -> None:
    """Nobody counts."""


def _announced(error: Error, pause: float) -> Error:
    text = f"{error.message}; trying again in {pause:.1f} s"
    return msgspec.structs.replace(error, message=text, recoverable=True)


def _silent(limit: float) -> Error:
    text = f"no data from the API for {limit:g} s"
    hint = advice("a model that thinks long needs {Api.idle_timeout=…}[, {None} waits forever]")
    return Error(text, errors.Stalled.code, hint=hint, retryable=True)
