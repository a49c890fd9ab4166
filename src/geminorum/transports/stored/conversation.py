"""A conversation in a session that is restored from a store, and saved there after each turn."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from decimal import Decimal
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Protocol, runtime_checkable

import msgspec

from geminorum.detect import version_text
from geminorum.errors import InvalidOptions, StoreError, Unsupported
from geminorum.events import Done, Error, Event, ModelRequest
from geminorum.hints import python_only
from geminorum.options import Options
from geminorum.prompt import Prompt
from geminorum.runtime.off_loop import run_off_loop
from geminorum.sessions.store.log import READ_SECONDS
from geminorum.sessions.store.protocol import SessionStore
from geminorum.sessions.store.session_sync import LEASE_SECONDS, Place, SessionSync
from geminorum.sessions.store.urls import open_store
from geminorum.transports import (
    Conversation,
    PreparesTurns,
    TellsRequests,
    TellsSpending,
    Transport,
    Turn,
)
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.program import find_program
from geminorum.transports.launch.transport import CliTransport
from geminorum.transports.stored.checkpoints import Checkpoints
from geminorum.transports.stored.store_thread import Patience, StoreThread, wait_for
from geminorum.wire.ending import Stop

log = logging.getLogger("geminorum.stores")

_RESTORE_SECONDS, _SAVE_SECONDS, _NOTE_SECONDS, _RELEASE_SECONDS = READ_SECONDS, 30.0, 10.0, 5.0
"""How long a run waits for its store: to read a whole session, to add a turn, and for less."""
_HURRY_SECONDS = 2.0
"""How long a caller who was cancelled still waits for a save."""


@runtime_checkable
class SavesSessions(Protocol):
    """A transport to a CLI, which keeps its sessions in files."""

    def cli_transport(self) -> CliTransport: ...


def open_stored(transport: Transport, options: Options) -> StoredConversation:
    """The conversation that `options` ask for, kept in the store that they name."""
    if not isinstance(transport, SavesSessions):
        raise Unsupported(
            f"{type(transport).__name__} saves no sessions that a store could keep",
            hint=python_only("leave store= out, or use Cli(), Acp() or a Pool"),
        )
    return StoredConversation(transport, transport.cli_transport(), _store_of(options), options)


def _store_of(options: Options) -> SessionStore:
    assert options.store is not None
    store = open_store(options.store)
    if not isinstance(store, SessionStore):
        raise InvalidOptions(
            f"store is a {type(store).__name__}, which is no SessionStore",
            hint=python_only("see geminorum.sessions.store.SessionStore for what it needs"),
        )
    if any(map(_is_async, (store.append, store.load, store.list, store.acquire))):
        raise InvalidOptions(
            f"the methods of {type(store).__name__} are coroutines, and are called from a thread",
            hint=python_only("write `def`, not `async def`"),
        )
    return store


def _is_async(method: object) -> bool:
    return iscoroutinefunction(method) or isasyncgenfunction(method)


class StoredConversation:
    """Turns of another conversation, in a session that a store keeps."""

    def __init__(
        self, transport: Transport, cli: CliTransport, store: SessionStore, options: Options
    ) -> None:
        self._transport, self._cli, self._store = transport, cli, store
        self._options = options
        self._stack = AsyncExitStack()
        self._inner: Conversation | None = None
        self._opening: AbstractAsyncContextManager[Conversation] | None = None
        self._thread = StoreThread(self._renew, LEASE_SECONDS / 3)
        self._sync: SessionSync | None = None
        self._turns = 0
        """That have begun."""
        self.notices: list[Error] = []
        """What is to be said at the head of the next turn."""

    @property
    def phase(self) -> str:
        """What takes the time when this is opened."""
        default = "restoring the session from its store"
        return default if self._opening is None else getattr(self._opening, "phase", default)

    async def __aenter__(self) -> StoredConversation:
        place = await run_off_loop(self._find_place)
        # The store is our affair: to those below, this is a run like any other.
        self._options = self._options.changed(store=None)
        self._sync = SessionSync(self._store, place)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._release)
            if self._options.resume is not None:
                await self._restore(self._options.resume)
            elif self._options.session_id is not None:
                await self._claim(self._options.session_id)
            self._opening = self._transport.open(self._options)
            self._inner = await stack.enter_async_context(self._opening)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def turn(self, prompt: Prompt) -> StoredTurn:
        assert self._inner is not None
        return StoredTurn(self, self._inner.turn(prompt))

    def prepare_turn(self) -> None:
        """Starts the CLI of the next turn ahead of its prompt, where the transport can."""
        if isinstance(self._inner, PreparesTurns):
            self._inner.prepare_turn()

    async def begin_turn(self) -> None:
        """Tells the store; raises SessionBusy if another run has gone on with the session."""
        self._turns += 1
        try:
            self.notices += await self._thread.call(self.sync.begin_turn, _NOTE_SECONDS)
        except StoreError as error:
            self.notices.append(_notice(error))

    def start_saving(self, session: str) -> Future[list[Error]]:
        return self._thread.start(partial(self._save, session, self._turns))

    def _save(self, session: str, turn: int) -> list[Error]:
        # After a call that took long, the next turn may have begun: the CLI writes to the files
        # then, and the save of that turn has all that this one would have had.
        return self.sync.save(session) if turn == self._turns else []

    def checkpoints(self) -> Checkpoints:
        """For one turn; a store says by `checkpoint_seconds` that it wants them."""
        seconds: float | None = getattr(self._store, "checkpoint_seconds", None)
        return Checkpoints(seconds, self._start_checkpoint)

    def _start_checkpoint(self, session: str) -> Future[list[Error]]:
        return self._thread.start(partial(self.sync.save_checkpoint, session))

    @property
    def sync(self) -> SessionSync:
        assert self._sync is not None
        return self._sync

    async def _restore(self, wanted: str) -> None:
        work = partial(self.sync.restore, wanted)
        session, self.notices = await self._thread.call(work, _RESTORE_SECONDS)
        self._options = self._options.changed(resume=session)

    async def _claim(self, session: str) -> None:
        try:
            work = partial(self.sync.claim, session)
            self.notices = await self._thread.call(work, _NOTE_SECONDS)
        except StoreError as error:
            self.notices = [_notice(error)]

    async def _release(self) -> None:
        """Not awaited for long: a lease ends by itself."""
        released = self._thread.finish(self.sync.close)
        with suppress(StoreError):
            await wait_for(released, _RELEASE_SECONDS)

    def _renew(self) -> None:
        if self._sync is not None:
            self._sync.renew()

    def _find_place(self) -> Place:
        context = LaunchContext(self._cli, self._options)
        version = find_program(context).version
        return Place(context.home, context.cwd, version_text(version) if version else None)


class StoredTurn:
    """A turn that ends when the store has it, or has failed to take it."""

    def __init__(
        self, conversation: StoredConversation, turn: AbstractAsyncContextManager[Turn]
    ) -> None:
        self._conversation, self._block = conversation, turn
        self._turn: Turn | None = None
        self._session: str | None = None
        self._ready: list[Event] = []
        """Taken from the turn, and not handed out yet."""
        self._saving: Future[list[Error]] | None = None
        self._patience = Patience(_SAVE_SECONDS, _HURRY_SECONDS)
        self._checkpoints = conversation.checkpoints()

    async def __aenter__(self) -> StoredTurn:
        await self._conversation.begin_turn()
        self._turn = await self._block.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self._block.__aexit__(None, None, None)
        finally:
            if self._saving is None and self._session is not None:
                for notice in await self._save():  # Nobody has read the turn to its end.
                    log.warning("%s", notice.message)

    async def read(self) -> list[Event]:
        if not self._ready:
            self._ready = await self._inner.read()
        self._session = next(
            (one.session_id for one in reversed(self._ready) if one.session_id), self._session
        )
        said = self._take_notices()
        self._checkpoints.see(self._ready, self._session)
        # A caller who is cancelled here finds the events, and the save, when it reads again.
        if self._ready and isinstance(self._ready[-1], Done):
            said += map(self._stamped, await self._save())
        events, self._ready = self._ready, []
        return [*events[:-1], *said, *events[-1:]] if events else []

    async def stop(self, reason: Stop, limit: float | None = None) -> None:
        await self._inner.stop(reason, limit)

    def hurry(self) -> None:
        self._patience.end_soon()
        self._inner.hurry()

    def requests(self) -> Sequence[ModelRequest]:
        return self._inner.requests() if isinstance(self._inner, TellsRequests) else ()

    def spent(self) -> Decimal | None:
        return self._inner.spent() if isinstance(self._inner, TellsSpending) else None

    @property
    def stderr(self) -> str:
        return self._inner.stderr

    @property
    def _inner(self) -> Turn:
        assert self._turn is not None
        return self._turn

    async def _save(self) -> list[Error]:
        if self._session is None:
            return []
        if self._saving is None:
            self._saving = self._conversation.start_saving(self._session)
        try:
            return await self._patience.wait_for(self._saving)
        except StoreError as error:
            return [_notice(error)]
        except asyncio.CancelledError:
            self._patience.end_soon()  # Whoever winds up the turn will wait again.
            raise

    def _take_notices(self) -> list[Event]:
        if not self._ready:
            return []
        notices, self._conversation.notices = self._conversation.notices, []
        return [*map(self._stamped, notices)]

    def _stamped(self, notice: Error) -> Error:
        at = time.time_ns() // 1_000_000
        return msgspec.structs.replace(notice, session_id=self._session, timestamp=at)


def _notice(error: StoreError) -> Error:
    return Error(error.message, error.code, recoverable=True, hint=error.hint)
