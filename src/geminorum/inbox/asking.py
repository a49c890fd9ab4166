"""One conversation's questions: asked, waited for, and each answer taken once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec

from geminorum.decisions import Decision, Deny, Place, run_in_thread
from geminorum.errors import GeminorumError, InboxUnavailable, WaitingForAnswer
from geminorum.events import PermissionRequest
from geminorum.inbox.changes import Changes, Subscription
from geminorum.inbox.drafting import draft_of
from geminorum.inbox.question import Question
from geminorum.inbox.reminders import Reminders
from geminorum.inbox.table import LEASE_SECONDS, QuestionTable
from geminorum.runtime.interrupts import OnInterrupt
from geminorum.sessions.store.holder import new_holder
from geminorum.views.plain_text import printable_line

log = logging.getLogger("geminorum.inbox")

_RENEW_SECONDS = LEASE_SECONDS / 3
_RETRY_SECONDS = 1.0
"""Between two looks at a store that does not answer."""
_STORE_ABSENCE_SECONDS = 60.0
"""How long a store may be away while a question waits in it."""
_LAST_WORD_SECONDS = 2.0
"""For a note in a store that may not answer, when a run is stopped."""
_MOMENT_SECONDS = 0.02
"""The clock of the store, which judges, may be a little behind ours."""


class Limits(msgspec.Struct, frozen=True):
    """How long a question waits, in seconds; None: forever."""

    deadline: float | None = None
    """Until the answer is no."""
    patience: float | None = None
    """Until the run ends, and the question remains."""


class Asker:
    """Asks for one conversation, about any number of calls at once."""

    def __init__(
        self,
        table: QuestionTable,
        changes: Changes,
        place: Place,
        limits: Limits,
        reminders: Reminders,
        leaves_questions: Callable[[], bool],
    ) -> None:
        """`leaves_questions`: do questions remain if the run is stopped now?"""
        self._table, self._changes, self._place = table, changes, place
        self._limits, self._reminders = limits, reminders
        self._leaves_questions = leaves_questions
        self._asked = 0
        """How many questions are open."""
        self._is_leaving = False
        """Does the run end with its questions unanswered?"""

    @cached_property
    def _name(self) -> str:
        """By this, others know whether the process lives."""
        return new_holder()

    async def ask(self, request: PermissionRequest, on_interrupt: OnInterrupt) -> Decision:
        """Returns the answer. A store that fails is a no."""
        self._is_leaving = self._is_leaving and self._asked > 0  # Not of the turn before.
        self._asked += 1
        try:
            return await self._ask(request, on_interrupt)
        except WaitingForAnswer:
            raise
        except GeminorumError as error:
            # A terminal may show it.
            name, why = printable_line(request.name), printable_line(error.message)
            log.warning("a call of %s is denied: %s", name, why)
            return Deny(error.message)
        finally:
            self._asked -= 1

    async def _ask(self, request: PermissionRequest, on_interrupt: OnInterrupt) -> Decision:
        opening = asyncio.ensure_future(run_in_thread(self._open, request))
        opening.add_done_callback(_note_outcome)
        try:
            question = await asyncio.shield(opening)
            if question.used_at is not None and question.answer is not None:
                return question.answer.as_decision()
            async with self._changes.subscribe() as changes, self._reminders.about(question):
                return await self._await_answer(question.id, changes, on_interrupt)
        except asyncio.CancelledError:
            closing = asyncio.ensure_future(self._let_go(opening))
            closing.add_done_callback(_note_outcome)
            await asyncio.wait([closing], timeout=_LAST_WORD_SECONDS)
            raise

    def _open(self, request: PermissionRequest) -> Question:
        """In a thread: it reads files."""
        draft = draft_of(request, self._place)
        return self._table.ask(draft, self._name, self._limits.deadline)

    async def _let_go(self, opening: asyncio.Future[Question]) -> None:
        """The run is stopped: nobody waits any more."""
        is_left = self._is_leaving or self._leaves_questions()
        question = await opening
        if is_left:
            await run_in_thread(self._table.leave, question.id, self._name)
        else:
            await run_in_thread(self._table.close, question.id, self._name, "withdrawn")

    async def _await_answer(
        self, id: str, changes: Subscription, on_interrupt: OnInterrupt
    ) -> Decision:
        clock = _Clock(self._limits)
        while True:
            try:
                decision = await run_in_thread(self._look, id, clock)
                clock.note_success()
            except InboxUnavailable:
                if clock.has_given_up:
                    raise
                decision = None
            if decision is not None:
                return decision
            if self._is_leaving:
                self._end_run(id, on_interrupt)
                await asyncio.Future[Any]()  # Until the run is stopped, which cancels this.
            await changes.wait(clock.seconds_to_next)

    def _end_run(self, id: str, on_interrupt: OnInterrupt) -> None:
        text = f"question {id[:8]} is not answered yet: the run ends, and the question waits"
        on_interrupt(WaitingForAnswer(text, question_id=id))

    def _look(self, id: str, clock: _Clock) -> Decision | None:
        """The answer, taken for this run; None while there is none. In a thread."""
        question = self._table.own(id, self._name)
        if question.answer is not None:
            self._table.use(id, self._name)
            return question.answer.as_decision()
        if question.state == "expired" and self._table.close(id, self._name, "expired"):
            return Deny(f"nobody answered in {self._limits.deadline:g} s")
        if question.state == "withdrawn":
            return Deny("the question was withdrawn")
        if clock.is_out_of_patience and self._table.leave(id, self._name):
            self._is_leaving = True
        elif clock.needs_renewal:
            self._table.renew(id, self._name)
            clock.note_renewal()
        return None


class _Clock:
    """When to look at a question again, and what for."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._began = limits, time.monotonic()
        self._renewed = self._succeeded = self._began

    @property
    def is_out_of_patience(self) -> bool:
        patience = self._limits.patience
        return patience is not None and time.monotonic() - self._began >= patience

    @property
    def needs_renewal(self) -> bool:
        return time.monotonic() - self._renewed >= _RENEW_SECONDS

    def note_renewal(self) -> None:
        self._renewed = time.monotonic()

    def note_success(self) -> None:
        self._succeeded = time.monotonic()

    @property
    def has_given_up(self) -> bool:
        """Was the store away for too long?"""
        return time.monotonic() - self._succeeded >= _STORE_ABSENCE_SECONDS

    @property
    def seconds_to_next(self) -> float:
        now = time.monotonic()
        limits = [self._limits.deadline, self._limits.patience]
        ends = [self._began + limit + _MOMENT_SECONDS for limit in limits if limit is not None]
        is_away = self._succeeded < now - _RETRY_SECONDS
        ends.append(now + _RETRY_SECONDS if is_away else self._renewed + _RENEW_SECONDS)
        return max(min(ends) - now, _MOMENT_SECONDS)


def _note_outcome(task: asyncio.Future[Any]) -> None:
    """Python complains about a failure that nobody has looked at."""
    if not task.cancelled():
        task.exception()
