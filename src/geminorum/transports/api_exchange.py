"""A request and its answer: tried again while nothing was said, given up when nothing comes."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import msgspec

from geminorum import errors
from geminorum.events import Error, ModelRequest
from geminorum.transports.genai_client import Failed
from geminorum.transports.outbox import Outbox, now
from geminorum.wire.genai import Answer
from geminorum.wire.genai_request import Content
from geminorum.wire.genai_verdict import failure, remark

if TYPE_CHECKING:
    from geminorum.transports.api import ApiConversation

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class Exchange:
    """The requests of one turn, one after the other."""

    def __init__(self, talk: ApiConversation, out: Outbox) -> None:
        self._talk, self._out = talk, out
        self.answer = Answer()
        """The last one, whatever became of it."""
        self.requests: list[ModelRequest] = []
        """What each try consumed; those that came to nothing are billed, too."""

    async def answered(self, contents: list[Content]) -> Answer:
        """The answer. Raises Failed."""
        attempt = 0
        while True:
            self.answer = Answer(self._talk.session_id)
            try:
                await self._try(self.answer, contents)
                return self.answer
            except Failed as failed:
                pause = self._pause(failed.error, attempt)
                # What was said cannot be unsaid: a second answer would stand behind half a first.
                if pause is None or self.answer.said:
                    raise
                self._out.put(_announced(failed.error, pause))
            await asyncio.sleep(pause)
            attempt += 1

    async def _try(self, answer: Answer, contents: list[Content]) -> None:
        try:
            await self._stream(answer, contents)
        finally:
            self._out.put(*answer.close(now()))
            if (request := answer.request(self._talk.model, now())) is not None:
                self.requests.append(request)
        if (wrong := failure(answer)) is not None:
            raise Failed(wrong)
        if (word := remark(answer)) is not None:
            self._out.put(word)

    async def _stream(self, answer: Answer, contents: list[Content]) -> None:
        talk, limit = self._talk, self._talk.door.idle_timeout
        try:
            async with asyncio.timeout(limit) as silence:
                await talk.client.send(
                    talk.model,
                    contents,
                    talk.config,
                    lambda data: self._take(answer, data, silence),
                )
        except TimeoutError as error:
            raise Failed(_silent(limit or 0)) from error

    async def _take(self, answer: Answer, data: bytes, silence: asyncio.Timeout) -> None:
        """One chunk: its events go out, and the clock of the silence starts again."""
        if events := answer.add(data, now()):
            self._out.put_ready(events)
        if self._out.is_full:
            silence.reschedule(None)
            await self._out.has_room()
        if (limit := self._talk.door.idle_timeout) is not None:
            silence.reschedule(asyncio.get_running_loop().time() + limit)

    def _pause(self, error: Error, attempt: int) -> float | None:
        """Seconds to wait before the next try; None: there shall be none."""
        door = self._talk.door
        if not error.retryable or attempt >= door.retries:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= door.patience else None
        # Jitter over the whole of it, so that many clients do not come back in step.
        longest = min(_LONGEST_PAUSE, door.patience, _FIRST_PAUSE * 2**attempt)
        return random.uniform(0, longest)  # nosec B311  # a pause is no secret


def _announced(error: Error, pause: float) -> Error:
    text = f"{error.message}; trying again in {pause:.1f} s"
    return msgspec.structs.replace(error, message=text, recoverable=True)


def _silent(limit: float) -> Error:
    text = f"not a word from the API in {limit:g} s"
    hint = "a model that thinks long needs Api(idle_timeout=…), None waits for ever"
    return Error(text, errors.Stalled.code, hint=hint, retryable=True)
