"""The events of a run to the pieces that a reader sees, each with the number of its last change."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from geminorum.events import (
    Done,
    Error,
    Event,
    PermissionDecision,
    PermissionRequest,
    Text,
    TextDelta,
    Thinking,
    ToolResult,
    ToolUse,
    UserMessage,
)
from geminorum.views.diffs import SHOWN_BY_DIFF, diff_of
from geminorum.views.transcript import TranscriptCall

MAX_PIECES = 3_000
"""Of the longest runs, the earlier ones are left out."""
Kind: TypeAlias = Literal["prompt", "text", "thought", "call", "permission", "problem", "end"]


class Piece(msgspec.Struct, kw_only=True):
    """One thing that was said, done or asked."""

    number: int
    changed: int
    """The number of the event that changed it last."""
    kind: Kind
    at: int
    text: str = ""
    is_open: bool = False
    """Is more of its text to come?"""
    call: TranscriptCall | None = None
    request: PermissionRequest | None = None
    decision: PermissionDecision | None = None
    error: Error | None = None
    done: Done | None = None

    @property
    def id(self) -> str:
        return f"p{self.number}"

    @property
    def diff(self) -> str | None:
        return diff_of(self.call) if self.call else None

    @property
    def hidden_arguments(self) -> frozenset[str]:
        """Arguments that the diff shows already."""
        return SHOWN_BY_DIFF if self.diff else frozenset()


class RunPieces:
    """Takes in the events of one run in their order."""

    def __init__(self) -> None:
        self.seq = 0
        """The number of the last event that was taken in."""
        self.pieces: list[Piece] = []
        self.left_out = 0
        self._open: Piece | None = None
        self._calls: dict[str | None, Piece] = {}
        """Calls without a result, by id."""
        self._asked: dict[str | None, Piece] = {}

    def add(self, seq: int, event: Event) -> None:
        self.seq = seq
        if not isinstance(event, Text | TextDelta):
            self._close_text()
        match event:
            case TextDelta():
                self._add_text(event)
            case Text():
                self._complete_text(event)
            case ToolResult():
                self._add_result(event)
            case PermissionDecision():
                self._add_decision(event)
            case _:
                self._add_simple(event)

    def changed_since(self, seq: int) -> list[Piece]:
        return [piece for piece in self.pieces if piece.changed > seq]

    def _add_simple(self, event: Event) -> None:
        match event:
            case UserMessage():
                # The CLI repeats the prompt, which stands there already.
                if not any(piece.kind == "prompt" for piece in self.pieces):
                    self._new("prompt", event, text=event.text)
            case Thinking():
                self._new("thought", event, text=event.text)
            case ToolUse():
                self._calls[event.id] = self._new("call", event, call=TranscriptCall(event))
            case PermissionRequest():
                self._asked[event.id] = self._new("permission", event, request=event)
            case Error():
                self._new("problem", event, error=event)
            case Done():
                self._new("end", event, done=event)

    def _add_text(self, delta: TextDelta) -> None:
        if self._open is None:
            self._open = self._new("text", delta, is_open=True)
        self._open.text += delta.text
        self._open.changed = self.seq

    def _complete_text(self, event: Text) -> None:
        piece = self._open or self._new("text", event)
        piece.text = event.text
        self._close_text(piece)

    def _close_text(self, piece: Piece | None = None) -> None:
        piece = piece or self._open
        if piece is not None:
            piece.is_open, piece.changed = False, self.seq
        self._open = None

    def _add_result(self, result: ToolResult) -> None:
        piece = self._calls.pop(result.id, None)
        if piece is None:
            use = ToolUse(result.name or "unknown tool", result.id, timestamp=result.timestamp)
            piece = self._new("call", result, call=TranscriptCall(use))
        assert piece.call is not None
        piece.call.result, piece.changed = result, self.seq

    def _add_decision(self, decision: PermissionDecision) -> None:
        piece = self._asked.pop(decision.id, None) or self._new("permission", decision)
        piece.decision, piece.changed = decision, self.seq

    def _new(self, kind: Kind, event: Event, **parts: object) -> Piece:
        number = len(self.pieces) + self.left_out + 1
        piece = Piece(number=number, changed=self.seq, kind=kind, at=event.timestamp, **parts)  # type: ignore[arg-type]
        self.pieces.append(piece)
        if len(self.pieces) > MAX_PIECES:
            del self.pieces[0]
            self.left_out += 1
        return piece
