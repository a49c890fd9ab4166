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
    async with changes.subscribe() as news:
        known = _Known(after)
        while True:
            try:
                fresh = await run_in_thread(known.read, table)
            except InboxUnavailable:
                if not known.has_read:
                    raise  # An address that is wrong stays wrong.
                await news.wait(_RETRY_SECONDS)
                continue
            for question in fresh:
                yield question
            await news.wait(_TICK_SECONDS if known.has_unanswered else None)


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
        # In this order: what changes in between is read once more, rather than not at all.
        start = table.revision() if self._after is None else self._after
        changed = [] if self._after is None else list(self._changed(table, start))
        unanswered = [one for one in table.unanswered(_PAGE) if self._is_news(one)]
        self._after = max([start, *(one.revision for one in changed)])
        self.has_read = True
        told = {one.id for one in changed}
        return [*changed, *(one for one in unanswered if one.id not in told)]

    def _changed(self, table: QuestionTable, after: int) -> Iterator[Question]:
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
