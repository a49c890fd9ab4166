"""The questions of the inbox that somebody may be looking at, kept up to date."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from geminorum.apps.web.runs.change_signal import ChangeSignal
from geminorum.errors import GeminorumError
from geminorum.inbox import Inbox, Question

_RETRY_SECONDS = 3.0
_KEPT = 500
"""Questions that were answered or closed; what falls off is found in the inbox."""


class KnownQuestions:
    """Watches the inbox while `running`."""

    def __init__(self, inbox: Inbox, changes: ChangeSignal) -> None:
        self.inbox = inbox
        self._changes = changes
        self._known: OrderedDict[str, Question] = OrderedDict()
        self.problem: GeminorumError | None = None
        """Why the inbox cannot be read at the moment."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._watch(), name="inbox")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def open(self) -> list[Question]:
        """Those that can be answered, the oldest first."""
        found = [question for question in self._known.values() if question.is_answerable]
        return sorted(found, key=lambda question: question.asked_at)

    def changed_since(self, revision: int) -> list[Question]:
        return [question for question in self._known.values() if question.revision > revision]

    @property
    def revision(self) -> int:
        return max((question.revision for question in self._known.values()), default=0)

    def put(self, question: Question) -> None:
        """Takes in what is known of a question."""
        before = self._known.get(question.id)
        if before is not None and before.revision > question.revision:
            return
        self._known[question.id] = question
        self._known.move_to_end(question.id)
        closed = [one.id for one in self._known.values() if not one.is_answerable]
        for id in closed[:-_KEPT]:
            del self._known[id]
        self._changes.announce()

    async def _watch(self) -> None:
        while True:
            try:
                async with aclosing(self.inbox.watch()) as changes:
                    self.problem = None
                    async for question in changes:
                        self.put(question)
            except GeminorumError as error:
                self.problem = error
            await asyncio.sleep(_RETRY_SECONDS)
