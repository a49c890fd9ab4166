"""One run, as its page follows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from geminorum.apps.web.live.facts import facts_of
from geminorum.apps.web.live.stream import Message
from geminorum.apps.web.runs.info import RunInfo
from geminorum.apps.web.runs.pieces import Piece
from geminorum.apps.web.runs.runs import Runs
from geminorum.apps.web.runs.watching import WatchedRun
from geminorum.views.html.prose import visible


class RunView:
    """The pieces and facts of a run that the reader does not have."""

    def __init__(
        self, runs: Runs, id: str, watched: WatchedRun, after: int, draw: Callable[[Piece], str]
    ) -> None:
        """`after` is the number of the last event that the reader has seen."""
        self._runs, self._id, self._watched, self._draw = runs, id, watched, draw
        self._after = after
        self._open = ("", 0)
        """The text that is being written, and how much of it the reader has."""
        self._info: RunInfo | None = None

    async def messages(self) -> Sequence[Message]:
        await self._watched.catch_up()
        pieces = self._watched.pieces
        changed = pieces.changed_since(self._after)
        messages = [self._message(piece) for piece in changed]
        if messages:
            # Only with the last one: a connection that breaks in between starts again before them.
            messages[-1] = messages[-1]._replace(id=pieces.seq)
        self._after = pieces.seq
        return [*messages, *await self._facts()]

    def _message(self, piece: Piece) -> Message:
        id, known = self._open
        if piece.is_open:
            self._open = (piece.id, len(piece.text))
            if piece.id == id:
                return Message("more", {"id": piece.id, "text": visible(piece.text[known:])})
        return Message("piece", {"id": piece.id, "html": self._draw(piece)})

    async def _facts(self) -> list[Message]:
        info = await self._runs.find(self._id)
        if info is None or info == self._info:
            return []
        self._info = info
        return [Message("run", facts_of(info))]
