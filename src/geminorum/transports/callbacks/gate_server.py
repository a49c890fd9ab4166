"""Where the script in a CLI asks before each request to a model: passes it on to the gate."""

from __future__ import annotations

from collections.abc import Callable

from geminorum.errors import GeminorumError
from geminorum.transports.gates import Consumed, Settle
from geminorum.transports.turns.request_gate import TurnGate
from geminorum.wire.callbacks.request_gate import GO, Ask, Report, message_of, refusal
from geminorum.wire.usage import request_of

_NOT_UNDERSTOOD = "geminorum did not understand the question of its own script"
_NOBODY = "the run was stopped"
_MOST_TOKENS = 64 * 1024 * 1024
"""Of one request: no model has so many. A report of more would use up a limit for years."""


class GateServer:
    """The requests of one process; `answer` is a handler for a `Loopback`.

    Which session of a warm process sends a request, nobody can tell: any turn of it may ask, since
    the gates of all have the same scope.
    """

    def __init__(self, on_first: Callable[[], None], resident: TurnGate | None = None) -> None:
        """`on_first` is called when the script has shown that it knows its token; `resident` is
        asked while there is no turn."""
        self._on_first: Callable[[], None] | None = on_first
        self._resident = resident
        self._turns: dict[str, TurnGate] = {}
        self._sent: dict[str, tuple[TurnGate, str, Settle]] = {}
        self._arriving = 0

    def enter(self, session: str, turn: TurnGate) -> None:
        """From now on the turn of this session asks for the process."""
        self._turns[session] = turn

    def leave(self, session: str) -> None:
        self._turns.pop(session, None)

    @property
    def is_waiting(self) -> bool:
        """Does a request wait to be let through?"""
        return self._arriving > 0

    async def answer(self, body: bytes) -> bytes | None:
        if self._on_first is not None:
            self._on_first()
            self._on_first = None
        match message_of(body):
            case Ask() as ask:
                return await self._let_through(ask)
            case Report() as report:
                self._settle(report)
                return None
            case None:
                return refusal(_NOT_UNDERSTOOD)

    async def _let_through(self, ask: Ask) -> bytes:
        if (turn := self._turn()) is None:
            return refusal(_NOBODY)
        self._arriving += 1
        try:
            settle = await turn.admit(ask.model, ask.key, ask.size)
        except GeminorumError as error:
            return refusal(error.message, error.retry_after if error.retryable else None)
        except Exception as error:  # Whatever became of the gate, it has not allowed this.
            return refusal(f"the gate failed: {type(error).__name__}: {error}")
        finally:
            self._arriving -= 1
        self._sent[ask.id] = turn, ask.model, settle
        return GO

    def _turn(self) -> TurnGate | None:
        """One that may be the sender; at a tool, a turn sends nothing, unless all are."""
        turns = sorted(self._turns.values(), key=lambda turn: turn.is_busy())
        return turns[0] if turns else self._resident

    def _settle(self, report: Report) -> None:
        """What was sent once is settled once."""
        found = self._sent.pop(report.id, None)
        if found is None:
            return
        turn, model, settle = found
        request = request_of(report.usage or {}, report.model or model)
        if request is not None and request.total <= _MOST_TOKENS:
            settle(turn.consumed(request))
        else:
            settle(Consumed() if report.is_refused and request is None else None)
