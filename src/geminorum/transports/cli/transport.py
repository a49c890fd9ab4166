"""The headless Gemini CLI as a transport: one process per turn, its stream decoded into events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from geminorum.detect import CliProgram
from geminorum.errors import GeminorumError, InvalidOptions
from geminorum.hints import python_only
from geminorum.options import Options
from geminorum.prompt import Prompt
from geminorum.runtime.off_loop import run_off_loop
from geminorum.transports.callbacks.backchannel import callbacks_of, refuse_unreachable
from geminorum.transports.callbacks.final_answer import FinalAnswer
from geminorum.transports.cli.spares import (
    REFILL_DELAY_AFTER_COLD_SECONDS,
    REFILL_DELAY_SECONDS,
    Spare,
    SpareOrder,
    Spares,
    log,
)
from geminorum.transports.cli.turn import CliTurn
from geminorum.transports.launch.approvals_guard import refuse_reachable_approvals
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.preloads.read_guard import check_folders
from geminorum.transports.launch.preloads.request_gate import refuse_ungated
from geminorum.transports.launch.program import check_listed, find_program
from geminorum.transports.launch.run_policy import refuse_without_hooks
from geminorum.transports.launch.transport import CliTransport, check_seconds
from geminorum.transports.turns.slot import TurnSlot

_MOST_SPARES = 64
_NOT_IN_A_BLOCK = (
    "the run starts cold: Cli(spare=%d) keeps CLIs waiting in a block, `async with Cli(…) as cli`, "
    "and between the turns of a chat"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cli(CliTransport):
    """The Gemini CLI, headless, one process per turn."""

    sandbox: bool | str | None = None
    """True, or the name of the sandbox program ("docker")."""
    relaunch: bool = False
    """Let the CLI relaunch itself, as it does by default; half a second slower."""
    pre_approved: tuple[str, ...] = ()
    """Tools approved in addition to those of the approval mode; unlike `Options.allowed_tools`,
    this does not restrict the others. `run_shell_command(git status)` names a command."""
    spare: int | None = None
    """How many CLIs to start ahead of their prompts, in `async with Cli(spare=…) as cli`. None:
    only `connect()` starts one ahead, for its next turn. 0: none."""
    spare_age: float = 60.0
    """Seconds until a CLI that was started ahead and not used is ended."""
    _spares: Spares | None = field(default=None, init=False, repr=False, compare=False)

    # The headless CLI cannot ask: its hook does, if there is a `decide`.
    interactive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        CliTransport.__post_init__(self)
        check_seconds("spare_age", self.spare_age)
        _check_spare(self.spare)

    def own_settings(self, options: Options) -> Mapping[str, Any]:
        turns = options.max_turns
        return {} if turns is None else {"model": {"maxSessionTurns": turns}}

    def open(self, options: Options) -> CliConversation:
        return CliConversation(self, options, self._spares)

    async def __aenter__(self) -> Cli:
        """Starts CLIs ahead for runs with the same options; leaving the block ends them:

        ```python
        async with Cli(spare=2) as cli:
            first = await ask("Say hello", via=cli)
            second = await ask("Say it again", via=cli)  # starts in a tenth of a second
        ```
        """
        if self._spares is not None:
            raise GeminorumError(
                "this Cli is already open", hint=python_only("make another: Cli(spare=…)")
            )
        count = 1 if self.spare is None else self.spare
        loop = asyncio.get_running_loop()
        spares = Spares(count, self.spare_age, renews=True, loop=loop)
        object.__setattr__(self, "_spares", spares)
        return self

    async def __aexit__(self, *_: object) -> None:
        spares = self._spares
        object.__setattr__(self, "_spares", None)
        if spares is not None:
            await spares.close()


class CliConversation:
    """Turns in one session: each resumes what the one before left."""

    phase = "looking for the CLI"
    """What takes the time when this is opened."""

    def __init__(self, transport: Cli, options: Options, shared: Spares | None = None) -> None:
        self.transport, self._options = transport, options
        self._shared = shared
        """What runs with the same options share."""
        self._own: Spares | None = None
        """For the next turn of this conversation."""
        self.callbacks = callbacks_of(transport, options)
        self._program: CliProgram | None = None
        self._slot = TurnSlot[CliTurn]()

    async def __aenter__(self) -> CliConversation:
        # In a thread: it reads files, and to learn a Node's version a process may have to start.
        self._program = await run_off_loop(self._find_program)
        self._slot.open()
        return self

    def _find_program(self) -> CliProgram:
        """Finds the CLI. Refuses what it cannot do before anything starts."""
        check_listed(self.transport, self._options)
        context = LaunchContext(self.transport, self._options)
        found = find_program(context)
        if self.callbacks:
            refuse_unreachable(self.transport, self._options, found)
        if self.callbacks.asked:
            refuse_without_hooks(context)
        refuse_ungated(context, found)
        check_folders(context, found)
        refuse_reachable_approvals(context)
        return found

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._slot.close()
        finally:
            if self._own is not None:
                await self._own.close()

    @property
    def program(self) -> CliProgram:
        assert self._program is not None
        return self._program

    def new_answer(self) -> FinalAnswer | None:
        """What takes the answer of one turn, if one is wanted."""
        shape = self.callbacks.shape
        return None if shape is None else FinalAnswer(shape, self.transport.answer_attempts)

    def prepare_turn(self) -> None:
        """Starts the CLI of the next turn ahead of its prompt."""
        if self._slot.is_open and self.transport.spare != 0:
            self._own = self._own or Spares(1, self.transport.spare_age, renews=False)
            self._own.refill(self.order_for(self._options))

    async def take_spare(self, options: Options) -> Spare | None:
        """A CLI that was started ahead and would run exactly as one that starts now."""
        own = None if self._own is None else await self._own.take(self.order_for(options))
        if own is not None or self._shared is None:
            if own is None and self.transport.spare:
                log.debug(_NOT_IN_A_BLOCK, self.transport.spare)
            return own
        order = self.order_for(options)
        found = await self._shared.take(order)
        delays = REFILL_DELAY_SECONDS, REFILL_DELAY_AFTER_COLD_SECONDS
        self._shared.refill(order, delays[found is None])
        return found

    def order_for(self, options: Options) -> SpareOrder:
        """What a CLI that is started ahead for these options starts with."""
        return SpareOrder(self.transport, options, self.program, self.callbacks)

    def turn(self, prompt: Prompt) -> CliTurn:
        self._slot.require_open()
        return CliTurn(self, self._options, prompt)

    def begin_turn(self, turn: CliTurn) -> None:
        self._slot.acquire(turn)

    def end_turn(self, turn: CliTurn) -> None:
        """Takes over the session of a turn, once the CLI has really stored it."""
        self._slot.release(turn)
        if self._shared is not None and self._slot.is_open:
            self._shared.refill(self.order_for(self._options))
        if turn.is_rolled_back and self._options.resume != turn.session_id:
            return  # After a first prompt that failed there is nothing to resume.
        if turn.session_id:
            self._options = self._options.changed(resume=turn.session_id, session_id=None)


def _check_spare(count: object) -> None:
    if count is not None and (
        not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= _MOST_SPARES
    ):
        hint = f"a number from 0 to {_MOST_SPARES}; each takes about 200 MB"
        raise InvalidOptions(f"spare={count!r}", hint=hint)
