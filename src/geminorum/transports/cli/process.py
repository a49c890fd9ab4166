"""One headless CLI: started in an overlay home of its own, and gone with all of it at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack

from geminorum.detect import CliProgram
from geminorum.runtime.off_loop import run_off_loop
from geminorum.sessions.lock import SessionLock
from geminorum.system.owned_folder import temporary_folder
from geminorum.system.reserve import RESERVE
from geminorum.transports.callbacks.backchannel import Backchannel
from geminorum.transports.launch.command import headless_command
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.preloads.network_log import NetworkLog
from geminorum.transports.launch.prepared import PreparedLaunch
from geminorum.transports.launch.resuming import remove_strays
from geminorum.transports.process.full_disk import blaming
from geminorum.transports.process.tree import Child, OpenInput


class CliProcess:
    """A process, its overlay home, the lock of its session, and its way back to us."""

    def __init__(self, program: CliProgram, back: Backchannel) -> None:
        self._program, self.back = program, back
        self._stack = AsyncExitStack()
        self._made = ExitStack()
        """What was made for it in threads, and is unmade in one."""
        self._session = ExitStack()
        """The hold on its session; let go when all else is unmade."""
        self._made.callback(self._session.close)

    async def start(self, launch: Callable[[CliProcess], None]) -> None:
        """Has `launch` call `prepare` and `launch` of this object, in a thread."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.back)
            stack.push_async_callback(run_off_loop, self._made.close)
            await run_off_loop(lambda: launch(self), undo=lambda _: self.child.discard())
            await stack.enter_async_context(self.child)
            stack.push_async_callback(self.withdraw)
            self._stack = stack.pop_all()

    def lock_session(self, context: LaunchContext) -> SessionLock | None:
        """Locks the session, if its name is known; raises SessionBusy if another run holds it."""
        options, home = context.options, context.home
        session = options.resume or options.session_id
        if session is None:
            return None
        lock = self._session.enter_context(SessionLock(home, session))
        if options.resume is not None:
            # A file that the CLI began and left empty is its reason to delete the session.
            self._session.callback(remove_strays, home, context.cwd, session)
        return lock

    def prepare(self, context: LaunchContext, *, records_start: bool = False) -> None:
        """Makes what the process needs: its home, settings and policies."""
        self._made.enter_context(RESERVE.keep())
        with blaming(temporary_folder()):
            prepared = self._prepared(context, records_start=records_start)
            self.prepared = self._made.enter_context(prepared)

    def launch(
        self,
        context: LaunchContext,
        stdin: bytes | OpenInput,
        words: Sequence[str] = (),
        lock: SessionLock | None = None,
    ) -> None:
        """Starts the process that was prepared. `lock` is held as long as it lives."""
        with blaming(temporary_folder()):
            self.child = Child(
                [*self.prepared.plan.command, *words],
                cwd=context.cwd,
                env=self.prepared.plan.env,
                stdin=stdin,
                grace=context.transport.grace,
                kept=[one.fileno() for one in (lock, self.prepared) if one is not None],
            )

    async def close(self) -> None:
        await self._stack.aclose()

    def release_session(self) -> None:
        """Lets other runs have the session while the process waits."""
        self._session.close()

    @property
    def network(self) -> NetworkLog:
        return self.prepared.network

    def stderr(self) -> str:
        """What it complained about, without secrets."""
        return self.child.stderr(self.prepared.clean)

    async def withdraw(self) -> None:
        """Ends the process, and then refuses what it asks.

        In this order: a question that nobody answers any more is a no, and an agent that heard it
        would go on with the next request.
        """
        self.child.begin_stop()
        try:
            if self.back.hold():
                await self.child.wait_signalled()
        finally:
            self.back.withdraw()

    def _prepared(self, context: LaunchContext, *, records_start: bool) -> PreparedLaunch:
        return PreparedLaunch(
            context,
            self._program,
            make_command=headless_command,
            reachable=self.back.reachable,
            announce=self.back.write_settings,
            records_start=records_start,
        )
