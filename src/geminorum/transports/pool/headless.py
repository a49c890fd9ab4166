"""Headless runs that share a machine: a limit on their number, and a CLI started ahead for each."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from geminorum.errors import PoolBusy
from geminorum.options import Options
from geminorum.transports.cli.spares import Spare, Spares
from geminorum.transports.cli.transport import Cli, CliConversation
from geminorum.transports.cli.turn import CliTurn


class HeadlessSlots:
    """Places for conversations of a `Cli`, and the CLIs that wait for them."""

    def __init__(self, transport: Cli, size: int, wait: float | None) -> None:
        self.transport = transport
        self._wait = wait
        self._free = asyncio.Semaphore(size)
        self._spare_count = size if transport.spare is None else transport.spare
        self._spares, self._started_before = self._new_spares(), 0
        self.waiting = self.conversations = self.turns = 0

    def open(self, options: Options, transport: Cli) -> _Slot:
        return _Slot(self, options, transport)

    async def warm(self, options: Options) -> None:
        """Starts a CLI for each place; returns when they are ready."""
        async with CliConversation(self.transport, options) as conversation:
            await self._spares.warm(conversation.order_for(options))

    def begin(self) -> None:
        """For a block, perhaps another one, and perhaps in another event loop."""
        self._started_before = self.started
        self._spares = self._new_spares()

    async def close(self) -> None:
        await self._spares.close()

    def _new_spares(self) -> Spares:
        return Spares(self._spare_count, self.transport.spare_age, renews=True)

    @property
    def spares(self) -> list[Spare]:
        """The CLIs that wait for a prompt."""
        return self._spares.waiting

    @property
    def started(self) -> int:
        """How many CLIs were started ahead."""
        return self._started_before + self._spares.started

    async def acquire(self) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout(self._wait):
                await self._free.acquire()
        except TimeoutError as error:
            raise PoolBusy(f"no place in the pool after {self._wait:g} s") from error
        finally:
            self.waiting -= 1

    def release(self) -> None:
        self._free.release()

    def open_conversation(self, options: Options, transport: Cli) -> _SlotConversation:
        self.conversations += 1
        return _SlotConversation(self, transport, options, self._spares)


class _Slot:
    """A place for one conversation, from its opening to its end."""

    phase = "waiting for a place in the pool"

    def __init__(self, slots: HeadlessSlots, options: Options, transport: Cli) -> None:
        self._slots, self._options, self._transport = slots, options, transport
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> CliConversation:
        await self._slots.acquire()
        async with AsyncExitStack() as stack:
            stack.callback(self._slots.release)
            self.phase = CliConversation.phase
            conversation = self._slots.open_conversation(self._options, self._transport)
            await stack.enter_async_context(conversation)
            self._stack = stack.pop_all()
        return conversation

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


class _SlotConversation(CliConversation):
    """A conversation whose turns are counted."""

    def __init__(
        self, slots: HeadlessSlots, transport: Cli, options: Options, spares: Spares
    ) -> None:
        super().__init__(transport, options, spares)
        self._slots = slots

    def end_turn(self, turn: CliTurn) -> None:
        super().end_turn(turn)
        self._slots.turns += 1
