"""The same functions for synchronous code.

Each block runs an event loop in its own thread and passes every call to the asynchronous
implementation there. So time limits hold while the caller's code is busy, and it works where an
event loop is already running, as in a notebook.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from geminorum import client
from geminorum.errors import GeminorumError, InvalidOptions, Unsupported
from geminorum.events import DataT, Event
from geminorum.hints import python_only
from geminorum.options import Options
from geminorum.prompt import Content, Prompt
from geminorum.runtime.lazy import lazy_module
from geminorum.transports import Conversation, Transport
from geminorum.views.result import Result

if TYPE_CHECKING:
    from geminorum.decisions import Decide
    from geminorum.transports.acp.transport import Acp
    from geminorum.transports.cli.transport import Cli
    from geminorum.transports.pool import transport as pool
    from geminorum.transports.pool.transport import PoolReport
else:
    pool = lazy_module("geminorum.transports.pool.transport")

T = TypeVar("T")


def run(
    prompt: Prompt, options: Options[DataT] | None = None, *, via: Transport | None = None
) -> Run[DataT]:
    """Runs a prompt: `with run(…) as live`, iterate over it, then read `live.result`."""
    return Run(client.run(prompt, options, via=via), _loop_of(via))


def ask(
    prompt: Prompt, options: Options[DataT] | None = None, *, via: Transport | None = None
) -> Result[DataT]:
    """Runs a prompt and returns its result, or raises an exception that carries it."""
    if (shared := _loop_of(via)) is not None:
        return shared.call(client.ask(prompt, options, via=via))
    with BackgroundLoop() as loop:
        return loop.call(client.ask(prompt, options, via=via))


def connect(
    options: Options[DataT] | None = None,
    *,
    via: Transport | None = None,
    decide: Decide | None = None,
) -> Chat[DataT]:
    """Opens a conversation of many turns: `with connect() as chat`, then `chat.ask(…)`.

    `decide` answers the permission requests of this conversation instead of the transport's own.
    """
    return Chat(client.connect(options, via=via, decide=decide), _loop_of(via))


def opened(block: AbstractAsyncContextManager[Transport]) -> Opened:
    """Opens a transport whose processes outlive a single run, for any number of runs and threads:

    ```python
    with sync.opened(Cli(spare=2)) as cli:
        first = sync.ask("Say hello", via=cli)
        second = sync.ask("Say it again", via=cli)
    ```
    """
    if not hasattr(block, "__aenter__"):
        kind = type(block).__name__
        hint = python_only(
            f"pass it as it is: via={kind}(); Cli(spare=…), Acp().warm() and Pool() can be opened"
        )
        raise InvalidOptions(f"{kind} has no processes that outlive a run", hint=hint)
    return Opened(block)


class Run(Generic[DataT]):
    """A running prompt, and afterwards its result."""

    def __init__(self, live: client.Run[DataT], loop: BackgroundLoop | None = None) -> None:
        self._live = live
        self._loop = loop or BackgroundLoop()
        self._own_loop = loop is None
        self._entered = False
        self._batch: Iterator[Event] = iter(())

    @property
    def result(self) -> Result[DataT | None]:
        """The result of the run: complete at the end, partial before that or after a failure."""
        return self._live.result

    @property
    def session_id(self) -> str | None:
        return self._live.session_id

    def cancel(self) -> None:
        """Stops the agent. Can be called from another thread."""
        self._loop.call(self._live.cancel())

    def __enter__(self) -> Run[DataT]:
        if self._entered:
            raise GeminorumError(
                "this run has already begun", hint=python_only("call run() once more")
            )
        if self._own_loop:
            self._loop.__enter__()
        try:
            self._loop.call(self._live.__aenter__())
        except BaseException:
            self._leave()
            raise
        self._entered = True
        return self

    def __exit__(self, *_: object) -> None:
        if not self._loop.is_open:
            return  # Python shuts down; exit handlers have ended the agent already.
        try:
            self._loop.call(self._live.__aexit__())
        finally:
            self._leave()

    def __iter__(self) -> Iterator[Event]:
        return self._events() if self._entered else self._whole()

    def _events(self) -> Iterator[Event]:
        while self._loop.is_open:
            yield from self._batch
            # A batch per crossing: threads that pass over single events do little else.
            events = self._loop.call(self._live.read())
            if not events:
                return
            self._batch = iter(events)

    def _whole(self) -> Iterator[Event]:
        with self:
            yield from self._events()

    def _leave(self) -> None:
        if self._own_loop:
            self._loop.__exit__()


class Chat(Generic[DataT]):
    """A conversation: one turn at a time, each with the context of those before."""

    def __init__(self, chat: client.Chat[DataT], loop: BackgroundLoop | None = None) -> None:
        self._chat = chat
        self._loop = loop or BackgroundLoop()
        self._own_loop = loop is None

    def __enter__(self) -> Chat[DataT]:
        if self._own_loop:
            self._loop.__enter__()
        try:
            self._loop.call(self._chat.__aenter__())
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._loop.call(self._chat.__aexit__())
        finally:
            self._leave()

    @property
    def session_id(self) -> str | None:
        """The session id, for a later `resume`. None until the first turn has started."""
        return self._chat.session_id

    @property
    def history(self) -> list[Content]:
        """The conversation so far in the API's JSON format, for a later `Api(history=…)`.

        Only on `Api`. Other transports raise Unsupported: the CLI keeps its own history.
        """
        return self._chat.history

    def turn(self, prompt: Prompt) -> Run[DataT]:
        """The next turn: `with chat.turn(…) as live`, like `run`."""
        return Run(self._chat.turn(prompt), self._loop)

    def ask(self, prompt: Prompt) -> Result[DataT]:
        """Sends the next prompt and returns its result, or raises an exception that carries it."""
        return self._loop.call(self._chat.ask(prompt))

    def _leave(self) -> None:
        if self._own_loop:
            self._loop.__exit__()


class Pool:
    """Warm processes that conversations in any thread share: `with Pool(Acp()) as pool`, then
    `connect(via=pool)` or `ask(…, via=pool)`.
    """

    def __init__(
        self,
        transport: Acp | Cli | None = None,
        *,
        size: int = 4,
        at_once: int = 8,
        wait: float | None = 60.0,
        max_age: float | None = 3600.0,
        max_sessions: int | None = 50,
        max_tool_calls: int | None = 300,
        max_memory_mb: float | None = 600.0,
        spare: bool = True,
    ) -> None:
        """Up to `size` processes, each with `at_once` conversations; `wait` seconds for a place.

        A process that reaches one of the other limits takes no new conversations and ends after its
        last one. `spare` opens a session in advance in the folder used last.
        """
        self._pool = pool.Pool(
            transport,
            size=size,
            at_once=at_once,
            wait=wait,
            max_age=max_age,
            max_sessions=max_sessions,
            max_tool_calls=max_tool_calls,
            max_memory_mb=max_memory_mb,
            spare=spare,
        )
        self.loop = BackgroundLoop()
        """Where its processes are at home, and so all conversations with them."""

    def __enter__(self) -> Pool:
        if self.loop.is_open:
            raise GeminorumError(
                "this pool is already open", hint=python_only("make another: Pool(…)")
            )
        self.loop.__enter__()
        self.loop.call(self._pool.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        if not self.loop.is_open:
            return  # Python shuts down; exit handlers have ended the processes already.
        try:
            self.loop.call(self._pool.__aexit__())
        finally:
            self.loop.__exit__()

    def secrets(self) -> list[str]:
        """Values that must not appear in a run's errors."""
        return self._pool.secrets()

    def open(self, options: Options) -> AbstractAsyncContextManager[Conversation]:
        return self._pool.open(options)

    def deciding(self, decide: Decide) -> Transport:
        return self._pool.deciding(decide)

    def warm(self, options: Options | None = None) -> None:
        """Starts a process for conversations with these options; returns when it is ready."""
        self.loop.call(self._pool.warm(options))

    def report(self) -> PoolReport:
        """Reports the processes, their load and how often they were replaced."""
        return self.loop.call(self._report())

    async def _report(self) -> PoolReport:
        return self._pool.report()


class Opened:
    """A transport whose processes live as long as the block; see `opened`."""

    def __init__(self, block: AbstractAsyncContextManager[Transport]) -> None:
        self._block = block
        self._transport: Transport | None = None
        """The last that was open; runs ask for its secrets on their way out, too."""
        self._is_open = False
        self.loop = BackgroundLoop()
        """Where its processes are at home, and so all conversations with them."""

    def __enter__(self) -> Opened:
        if self.loop.is_open:
            raise GeminorumError(
                "it is already open", hint=python_only("open another: sync.opened(…)")
            )
        self.loop.__enter__()
        try:
            self._transport = self.loop.call(self._enter())
        except BaseException:
            self.loop.__exit__()
            raise
        self._is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        if not self.loop.is_open:
            return  # Python shuts down; exit handlers have ended the processes already.
        try:
            self.loop.call(self._leave())
        finally:
            self.loop.__exit__()

    def secrets(self) -> list[str]:
        """Values that must not appear in a run's errors."""
        return list(getattr(self._transport, "secrets", tuple)())

    def open(self, options: Options) -> AbstractAsyncContextManager[Conversation]:
        return self._open().open(options)

    def deciding(self, decide: Decide) -> Transport:
        """Returns the transport with another `decide`."""
        transport = self._open()
        if (deciding := getattr(transport, "deciding", None)) is None:
            raise Unsupported(f"{type(transport).__name__} has nobody to ask")
        return cast("Transport", deciding(decide))

    def _open(self) -> Transport:
        if self._transport is None or not self._is_open:
            text = "this transport is not open"
            raise GeminorumError(
                text, hint=python_only("use it inside of its block: with sync.opened(…) as …")
            )
        return self._transport

    async def _enter(self) -> Transport:
        return await self._block.__aenter__()

    async def _leave(self) -> None:
        self._is_open = False
        await self._block.__aexit__(None, None, None)


class BackgroundLoop:
    """An event loop in a thread, running as long as the block."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._calls: set[Future[Any]] = set()
        self._is_over = False
        self._killer: BaseException | None = None
        """What ended the loop before its block did: an interrupt that nobody caught."""

    def __enter__(self) -> BackgroundLoop:
        self._calls, self._is_over, self._killer = set(), False, None
        ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        # A daemon: at interpreter exit Python would wait for any other kind, while the children
        # it waits for are ended by exit handlers that run only afterwards.
        self._thread = threading.Thread(
            target=self._serve, args=(ready,), name="geminorum-sync", daemon=True
        )
        self._thread.start()
        self._loop, self._ended = ready.result()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_open and self._loop and self._ended and self._thread:
            # Not where the loop has died a moment ago.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()
        self._loop = None

    def _serve(self, ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        try:
            with asyncio.Runner() as runner:
                try:
                    runner.run(_wait_until_ended(ready))
                except BaseException as error:
                    self._killer = error  # Known before the runner cancels what was called.
        except BaseException as error:
            self._killer = self._killer or error
        finally:
            # Nobody waits for a loop that is gone; `call` looks here after it has entered itself.
            self._is_over = True
            for call in self._calls.copy():
                call.cancel()

    @property
    def is_open(self) -> bool:
        # While Python shuts down, the thread stands still and would never answer.
        return self._loop is not None and not self._is_over and not sys.is_finalizing()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        future = self._begin(work)
        try:
            value, interrupt = future.result()
        except BaseException:
            # Ctrl-C lands here, in the caller's thread; the work in the other must hear of it.
            future.cancel()
            self._raise_killer()
            raise
        finally:
            self._calls.discard(future)
        if interrupt is not None:
            raise interrupt
        return value  # type: ignore[return-value]  # None only where T is None

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[tuple[T | None, BaseException | None]]:
        guarded = _catch_interrupt(work)
        try:
            if self._loop is None or not self.is_open:
                raise RuntimeError
            future = asyncio.run_coroutine_threadsafe(guarded, self._loop)
        except RuntimeError:  # asyncio's own, where the loop has died a moment ago
            guarded.close()
            work.close()
            raise GeminorumError("not open", hint=python_only("use it in a `with` block")) from None
        self._calls.add(future)
        if self._is_over:
            future.cancel()
        return future

    def _raise_killer(self) -> None:
        if self._killer is not None and self._thread is not None:
            self._thread.join()  # It ends what was running.
            raise self._killer


def _loop_of(transport: Transport | None) -> BackgroundLoop | None:
    """The loop that this transport is bound to; None: any will do."""
    return transport.loop if isinstance(transport, Pool | Opened) else None


async def _catch_interrupt(
    work: Coroutine[Any, Any, T],
) -> tuple[T | None, BaseException | None]:
    """Returns an interrupt as a value: a task that raises one would end its loop."""
    try:
        return await work, None
    except (KeyboardInterrupt, SystemExit) as interrupt:
        return None, interrupt


async def _wait_until_ended(ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    ended = asyncio.Event()
    ready.set_result((asyncio.get_running_loop(), ended))
    await ended.wait()
