"""Every question that is new or changed, as it happens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator

from geminorum.decisions import run_in_thread
from geminorum.errors import InboxUnavailable
from geminorum.inbox.changes import Changes
from geminorum.inbox.question import Question, State
from geminorum.inbox.table import QuestionTable

_PAGE = 500
_TICK_SECONDS = 1.0
"""Between two looks whether an asker is gone, or a deadline has passed: nobody writes that down."""
_RETRY_SECONDS = 1.0


async def watch(
    table: QuestionTable, changes: Changes, after: int | None
) -> AsyncGenerator[Question, None]:
    """First what can be answered, or what has changed since; then all that changes."""
    async with changes.subscribe() as wake:
        known = _Known(after)
        while True:
            try:
                fresh = await run_in_thread(known.read, table)
            except InboxUnavailable:
                if not known.has_read:
                    raise  # An address that is wrong stays wrong.
                await wake.wait(_RETRY_SECONDS)
                continue
            for question in fresh:
                yield question
            await wake.wait(_TICK_SECONDS if known.has_unanswered else None)


class _Known:
    """What a watcher was told."""

    def __init__(self, after: int | None) -> None:
        self._after = after
        self._states: dict[str, State] = {}
        """Of the questions that can be answered."""
        self.has_read = False

    @property
    def has_unanswered(self) -> bool:
        return bool(self._states)

    def read(self, table: QuestionTable) -> list[Question]:
        """What is new. In a thread."""
        changed: list[Question] = []
        if self._after is None:
            self._after = table.revision()
        else:
            changed = list(self._take_changes(table, self._after))
        self._after = max([self._after, *(one.revision for one in changed)])
        # What has changed meanwhile is left for the next time: a watcher that comes back tells us
        # the last revision that it saw, and must have seen all before it.
        known = [one for one in table.unanswered(_PAGE) if one.revision <= self._after]
        self.has_read = True
        return [*changed, *filter(self._is_news, known)]

    def _take_changes(self, table: QuestionTable, after: int) -> Iterator[Question]:
        while page := table.changed(after, _PAGE):
            for question in page:
                self._note(question)
                yield question
            after = page[-1].revision

    def _is_news(self, question: Question) -> bool:
        before = self._states.get(question.id)
        if before is None and not question.is_answerable:
            return False
        self._note(question)
        return before != question.state

    def _note(self, question: Question) -> None:
        if question.is_answerable:
            self._states[question.id] = question.state
        else:
            self._states.pop(question.id, None)
