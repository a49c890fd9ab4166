"""The questions on a page, and how many there are in all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from geminorum.apps.web.live.stream import Message
from geminorum.apps.web.questions.known import KnownQuestions
from geminorum.inbox import Question


class QuestionsView:
    """Questions that are new to the reader, or have changed since they were drawn."""

    def __init__(
        self,
        known: KnownQuestions,
        is_shown: Callable[[Question], bool],
        since: int,
        draw: Callable[[Question], str],
    ) -> None:
        """`since` is the revision of the inbox that the reader's page shows."""
        self._known, self._is_shown, self._draw = known, is_shown, draw
        self._since = since
        self._sent: dict[str, int] = {}
        self._count: int | None = None

    async def messages(self) -> Sequence[Message]:
        count = len(self._known.open)
        cards = [self._card(question) for question in self._changed_questions()]
        if not cards and count == self._count:
            return []
        self._count = count
        return [Message("questions", {"count": count, "cards": cards})]

    def _changed_questions(self) -> list[Question]:
        """Those that can be answered, and those that no longer can since they were drawn."""
        shown = [one for one in self._known.open if self._is_shown(one)]
        closed = [one for one in self._known.changed_since(self._since) if self._was_shown(one)]
        return [one for one in [*shown, *closed] if self._sent.get(one.id) != one.revision]

    def _was_shown(self, question: Question) -> bool:
        return not question.is_answerable and self._is_shown(question)

    def _card(self, question: Question) -> dict[str, object]:
        self._sent[question.id] = question.revision
        html = self._draw(question)
        return {"id": question.id, "revision": question.revision, "html": html}
