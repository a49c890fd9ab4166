"""The inbox for synchronous code: `from geminorum.inbox import sync`, then `sync.Inbox()`."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from geminorum import sync
from geminorum.decisions import Approvals, Ask, Decision, Place
from geminorum.events import PermissionRequest
from geminorum.inbox import client
from geminorum.inbox.client import A_DAY_SECONDS, AN_HOUR_SECONDS
from geminorum.inbox.question import Question
from geminorum.options import Options
from geminorum.transports import Transport

T = TypeVar("T")


class Inbox(Approvals):
    """A `decide` that stores each permission request until somebody answers it, anywhere.

    The arguments are those of `geminorum.inbox.Inbox`.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        deadline: float | None = A_DAY_SECONDS,
        patience: float | None = None,
        remind: str | Sequence[str] | None = None,
        remind_every: float | None = AN_HOUR_SECONDS,
    ) -> None:
        self._inbox = client.Inbox(
            store, deadline=deadline, patience=patience, remind=remind, remind_every=remind_every
        )

    def __repr__(self) -> str:
        return repr(self._inbox)

    def questions(
        self, *, include_closed: bool = False, session_id: str | None = None, limit: int = 200
    ) -> list[Question]:
        """Returns the questions that can be answered, the oldest first.

        `include_closed`: all of them, the latest first.
        """
        return _call(
            self._inbox.questions(include_closed=include_closed, session_id=session_id, limit=limit)
        )

    def question(self, id: str) -> Question:
        """Returns the question with this id, or the only one whose id begins so."""
        return _call(self._inbox.question(id))

    def answer(self, id: str, decision: Decision, *, by: str | None = None) -> Question:
        """Answers a question. The first answer counts; all others raise AlreadyAnswered."""
        return _call(self._inbox.answer(id, decision, by=by))

    def watch(self, after: int | None = None) -> Generator[Question, None, None]:
        """Yields the questions that can be answered, then each one that is new or has changed."""
        with sync.BackgroundLoop() as loop:
            questions = self._inbox.watch(after)
            try:
                while True:
                    yield loop.call(_next(questions))
            finally:
                loop.call(questions.aclose())

    def resume(
        self,
        question: Question,
        prompt: str | None = None,
        options: Options | None = None,
        *,
        via: Transport | None = None,
    ) -> sync.Run[None]:
        """Runs the session of an answered question again: `with inbox.resume(…) as live`."""
        loop = via.loop if isinstance(via, sync.Pool | sync.Opened) else None
        return sync.Run(self._inbox.resume(question, prompt, options, via=via), loop)

    def prune(self, older_than: timedelta) -> int:
        """Removes questions that are closed and were asked so long ago; returns how many."""
        return _call(self._inbox.prune(older_than))

    def leaving_questions(self) -> AbstractContextManager[None]:
        """Within the block, runs that are stopped leave their questions in the state `waiting`."""
        return self._inbox.leaving_questions()

    async def __call__(self, request: PermissionRequest) -> Decision:
        return await self._inbox(request)

    def open(self, place: Place) -> Ask:
        return self._inbox.open(place)

    def refuse_within(self, folders: Sequence[Path]) -> None:
        self._inbox.refuse_within(folders)


def _call(work: Coroutine[Any, Any, T]) -> T:
    with sync.BackgroundLoop() as loop:
        return loop.call(work)


async def _next(questions: AsyncGenerator[Question, None]) -> Question:
    return await anext(questions)
