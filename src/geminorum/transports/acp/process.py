"""One warm `gemini --acp`: started once, shared by many sessions, ended with its block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw

from geminorum._version import __version__
from geminorum.detect import CliProgram, Version, version_text
from geminorum.errors import CliTooOld, ConfigError, ProtocolError, Unsupported
from geminorum.hints import advice, python_only
from geminorum.options import Options
from geminorum.runtime.off_loop import run_off_loop
from geminorum.sessions.lock import SessionLock
from geminorum.system.owned_folder import temporary_folder
from geminorum.system.reserve import RESERVE
from geminorum.transports.acp.tools import own_tools_of
from geminorum.transports.callbacks.backchannel import admitting
from geminorum.transports.callbacks.process_gate import ProcessGate
from geminorum.transports.launch.command import NO_COMPILE_CACHE, warm_command
from geminorum.transports.launch.context import SETTINGS_FILE, LaunchContext
from geminorum.transports.launch.dotenv import refuse_strange_dotenv
from geminorum.transports.launch.overlay import replace_file
from geminorum.transports.launch.plan import Reachable
from geminorum.transports.launch.preloads.network_log import NetworkLog
from geminorum.transports.launch.preloads.request_gate import GateAddress
from geminorum.transports.launch.prepared import PreparedLaunch
from geminorum.transports.launch.run_policy import POLICY_FILE, refuse_denied_answer, refuse_exposed
from geminorum.transports.process.full_disk import blaming
from geminorum.transports.process.piped import PipedChild
from geminorum.transports.turns.request_gate import TurnGate
from geminorum.wire.acp import protocol as acp
from geminorum.wire.launch.argv import ACP, has
from geminorum.wire.lines import Lines

if TYPE_CHECKING:
    from geminorum.transports.acp.transport import Acp

_STRUCT = TypeVar("_STRUCT", bound=msgspec.Struct)
OTHER_PROTOCOL = advice("update geminorum[, or use {via.cli|Cli()}]")
"""What helps where a CLI answers in another protocol than this one."""


class ProcessEnded(Exception):
    """The process ended before it answered. Never leaves the package."""


class Refused(Exception):
    """The process answered with an error. Never leaves the package."""

    def __init__(self, error: acp.RpcError) -> None:
        super().__init__(error.message)
        self.error = error


class SessionHandler(Protocol):
    """Receives the messages of one session while it is registered; usually a turn."""

    def on_update(self, update: Raw, halved: str | None) -> None: ...

    def on_permission_request(self, number: int | str | None, params: Raw) -> None: ...

    def on_unknown_method(self, method: str, params: Raw) -> None:
        """A message with a method that this version does not know."""

    def on_invalid_line(self, line: bytes) -> None:
        """A line that is no message; its session cannot be known."""


Reply: TypeAlias = Callable[[acp.Message | None], None]
"""Takes the answer; None: there will be none."""

_EACH_ITS_OWN = (
    *("cwd", "timeout", "resume", "max_budget_usd", "max_turns", "literal", "output_schema"),
    "network_timeout",
)


def process_wide(options: Options) -> Options:
    """What of the options belongs to the process, so that sessions which agree in it may share
    one: environment, settings, policies. The rest each session has for itself."""
    default = Options()
    own = {name: getattr(default, name) for name in _EACH_ITS_OWN}
    if options.approval not in ("plan", "auto_edit"):
        own["approval"] = None
    if options.effort is None:
        own["model"] = None
    return options.changed(**own)


class AcpProcess:
    """A supervised process and the wire to it. `async with` starts it; `wait_until_ready` waits for
    the handshake."""

    def __init__(
        self,
        transport: Acp,
        options: Options,
        program: CliProgram,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.transport, self.program = transport, program
        self._context = LaunchContext(transport, options, env)
        self._made = ExitStack()
        """What was made for it in a thread, and is unmade in one."""
        self._control: Mapping[Path, bytes] = {}
        self._lines = Lines()
        self._replies: dict[int, Reply] = {}
        self._handlers: dict[str, SessionHandler] = {}
        self._number = 0
        self._stack = AsyncExitStack()
        self._handshake: asyncio.Task[None] | None = None
        self.gate = _gate_of(transport, program)
        """Where it asks before each request to a model; None: it does not."""
        self.opening = asyncio.Lock()
        """One session is opened at a time: at once, they take ten times as long."""
        self.gone = False
        self.when_gone: Callable[[], None] | None = None
        """Called once, when the process has ended, however it did."""
        self.heard = 0
        """How often it has said something, however much at once."""

    async def __aenter__(self) -> AcpProcess:
        async with AsyncExitStack() as stack:
            if self.gate is not None:
                await stack.enter_async_context(self.gate)
            stack.push_async_callback(run_off_loop, self._made.close)
            child = await run_off_loop(self._launch_child, undo=PipedChild.discard)
            self._child = await stack.enter_async_context(child)
            self._handshake = asyncio.create_task(self._shake_hands())
            stack.push_async_callback(self._drop_handshake)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def options(self) -> Options:
        """Those that it was started with."""
        return self._context.options

    async def wait_until_ready(self) -> None:
        """Returns when sessions can be opened; raises what went wrong before that."""
        assert self._handshake is not None
        try:
            await asyncio.shield(self._handshake)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._handshake.cancelled() or (task is not None and task.cancelling()):
                raise  # It is the caller who was cancelled, perhaps with all other tasks.
            raise ProcessEnded("initialize") from None

    def check(self, options: Options) -> None:
        """Refuses a session that this process cannot have, and makes it ready for any other. Reads
        and writes files: for a thread."""
        ours, theirs = process_wide(options), process_wide(self.options)
        if ours != theirs:
            names = [n for n in ours.__struct_fields__ if getattr(ours, n) != getattr(theirs, n)]
            raise Unsupported(
                f"{', '.join(names)} cannot differ between the sessions of one process",
                hint=python_only("open it through an Acp() of its own"),
            )
        context = LaunchContext(self.transport, options)
        refuse_strange_dotenv(context, self.program, self._launch.plan.env)
        self._refuse_exposed(context, hint=python_only("open it through an Acp() of its own"))
        self._refuse_strange_steering(context)
        self._launch.guard.admit(context.folders)

    def refuse_denied_answer(self, options: Options) -> None:
        """Refuses a session whose answer the user's policies would not let through."""
        if options.output_schema is not None:
            refuse_denied_answer(LaunchContext(self.transport, options), self._launch.settings)

    def restore_control_files(self) -> None:
        """For the session that is to be opened: each reads them anew, and a command that another
        was allowed may have rewritten them."""
        try:
            for file, content in self._control.items():
                replace_file(file, content)
        except OSError as error:
            text = f"the settings and policies of this process cannot be written again: {error}"
            raise ConfigError(text, hint=python_only("open another Acp()")) from error

    def hold(self, lock: SessionLock) -> None:
        """Keeps a session locked while the process lives, even if we do not."""
        self._child.hold(lock.fileno())

    def release(self, lock: SessionLock) -> None:
        self._child.release(lock.fileno())

    def _refuse_exposed(self, context: LaunchContext, **how: str) -> None:
        """What steers the process was laid outside of the folders that it was started for."""
        plan, control = self._launch.plan, [self._launch.home]
        compiled = plan.env.get("NODE_COMPILE_CACHE")
        if compiled and NO_COMPILE_CACHE not in plan.env:
            control.append(Path(compiled))
        refuse_exposed(context, control, plan.policy, **how)

    def _refuse_strange_steering(self, context: LaunchContext) -> None:
        """The policy of the process knows the ways into the folders that it was started for."""
        if context.cwd == self._context.cwd:
            return
        known, found = self._context.steering, context.steering
        strange = (found.files - known.files) | (found.links - known.links)
        strange |= found.misread - known.misread
        if strange or known.is_complete > found.is_complete:
            what = repr(min(strange)) if strange else "a link among so many files perhaps"
            raise Unsupported(
                f"{what} steers runs in {str(context.cwd)!r}, and the policy of this process does "
                "not protect it",
                hint=python_only(
                    "open it through an Acp() of its own, or allow it: Acp(gemini_folder=True)"
                ),
            )

    # ---- speaking

    async def request(self, method: str, params: object, kind: type[_STRUCT]) -> _STRUCT:
        """The answer; raises Refused, ProcessEnded or ProtocolError where there is none."""
        reply = await self.await_reply(method, params)
        if (found := acp.decoded(reply.result, kind)) is None:
            text = f"an answer to {method} that is none: {_sample(reply.result)}"
            raise ProtocolError(text, hint=OTHER_PROTOCOL)
        return found

    async def await_reply(self, method: str, params: object) -> acp.Message:
        """Returns when it is done, whatever is said to it; raises Refused or ProcessEnded."""
        future: asyncio.Future[acp.Message | None] = asyncio.get_running_loop().create_future()
        number = self.call(method, params, partial(_settle, future))
        try:
            reply = await future
        finally:
            self._replies.pop(number, None)
        if reply is None:
            raise ProcessEnded(method)
        if reply.error is not None:
            raise Refused(reply.error)
        return reply

    async def ping(self) -> None:
        """Returns when the process has answered something, or has ended."""
        # The protocol has no such request; that there is none is an answer, too.
        with suppress(Refused, ProcessEnded):
            await self.await_reply("_geminorum/ping", {})

    def call(self, method: str, params: object, reply: Reply) -> int:
        """Sends a request; `reply` is called once with its answer."""
        self._number += 1
        if self.gone:
            reply(None)
        else:
            self._replies[self._number] = reply
            self._child.write(acp.request(self._number, method, params))
        return self._number

    def forget(self, number: int) -> None:
        """Drops a request: its answer is no longer wanted."""
        self._replies.pop(number, None)

    def notify(self, method: str, params: object) -> None:
        self._child.write(acp.notification(method, params))

    def answer(self, number: int | str | None, result: object) -> None:
        self._child.write(acp.answer(number, result))

    # ---- handlers of sessions

    def add_handler(self, session_id: str, handler: SessionHandler) -> None:
        self._handlers[session_id] = handler

    def remove_handler(self, session_id: str, handler: SessionHandler) -> None:
        if self._handlers.get(session_id) is handler:
            del self._handlers[session_id]

    @property
    def env(self) -> Mapping[str, str]:
        """The environment that it was started with."""
        return self._context.env

    @property
    def home(self) -> Path:
        """The user's home."""
        return self._context.home

    @property
    def network(self) -> NetworkLog:
        return self._launch.network

    @property
    def shaken_hands(self) -> bool:
        task = self._handshake
        over = task is not None and task.done() and not task.cancelled()
        return task is not None and over and task.exception() is None

    @property
    def exit_code(self) -> int | None:
        return self._child.exit_code

    @property
    def is_lapsed(self) -> bool:
        """Was it killed because our lease over it has passed?"""
        return self._child.is_lapsed

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def log_size(self) -> int:
        return self._child.log_size()

    def stderr(self, start: int = 0) -> str:
        """What it complained about, redacted, and with the user's home in place of the overlay."""
        return self._child.stderr(self._launch.clean, start)

    async def stop(self, grace: float) -> None:
        """Ends the process and all that it started, with so much grace at most."""
        self._child.shorten_grace(grace)
        await self._child.stop()

    def drain(self) -> None:
        """Hears what it has said by now."""
        self._child.drain()

    def kill(self) -> None:
        """Ends them now, without waiting for manners."""
        self._child.kill()

    def _launch_child(self) -> PipedChild:
        """Makes what the process needs, and starts it. In a thread: it reads and writes files."""
        made, context = self._made, self._context
        made.enter_context(RESERVE.keep())
        own = own_tools_of(self.transport, self.options, asks=self.transport.decide is not None)
        with blaming(temporary_folder()):
            launch = made.enter_context(
                PreparedLaunch(
                    context,
                    self.program,
                    make_command=warm_command,
                    reachable=Reachable(own, admit=admitting, gate=self._gate_address),
                    announce=lambda settings, _: admitting(settings),
                )
            )
            self._launch = launch
            if self.gate is not None:
                self.gate.home = launch.home
            self._refuse_exposed(context)
            self._control = _contents_of(launch)
            return PipedChild(
                launch.plan.command,
                cwd=context.cwd,
                env=launch.plan.env,
                grace=self.transport.grace,
                kept=[launch.fileno()],
                hear=self._hear,
                ended=self._on_exit,
            )

    @property
    def _gate_address(self) -> GateAddress | None:
        return None if self.gate is None else self.gate.address

    async def _shake_hands(self) -> None:
        hello = await self.request("initialize", acp.initialize(__version__), acp.Initialized)
        if hello.protocol_version != acp.PROTOCOL:
            told = f"version {hello.protocol_version}"
            spoken = "no version" if hello.protocol_version is None else told
            text = f"this CLI speaks {spoken} of the protocol, not {acp.PROTOCOL}"
            raise ProtocolError(text, hint=OTHER_PROTOCOL)
        refuse_older(acp.version_of(hello), "at the other end")

    async def _drop_handshake(self) -> None:
        task = self._handshake
        assert task is not None
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # Nobody may have asked; asyncio would complain.

    def _hear(self, data: bytes) -> None:
        self.heard += 1
        for line in self._lines.feed(data):
            self._take(line)
        if self._lines.overlong:
            self._lines.overlong = 0
            self._dispatch_invalid(b"(a line that is too long)")

    def _take(self, line: bytes) -> None:
        if (message := acp.message_of(line)) is not None:
            self._dispatch(message)
        elif line.strip():
            self._dispatch_invalid(line)

    def _dispatch_invalid(self, line: bytes) -> None:
        for handler in [*self._handlers.values()]:
            handler.on_invalid_line(line)

    def _dispatch(self, message: acp.Message) -> None:
        if message.method is None:
            # Their ids and ours are numbers from two different rows; only an answer has no method.
            reply = self._replies.pop(message.id, None) if isinstance(message.id, int) else None
            if reply is not None:
                reply(message)
        elif message.method == "session/update":
            self._dispatch_update(message)
        elif message.method == "session/request_permission":
            self._dispatch_request(message)
        else:
            if message.id is not None:
                self._child.write(acp.refusal(message.id, message.method))
            self._keep(message, message.method)

    def _dispatch_update(self, message: acp.Message) -> None:
        told = acp.decoded(message.params, acp.Told)
        if told is None:
            self._keep(message, "session/update")
        elif (handler := self._handlers.get(told.session_id)) is not None:
            handler.on_update(told.update, message.halved)

    def _keep(self, message: acp.Message, method: str) -> None:
        """For the turn that it belongs to, as an event; one of several turns is never guessed."""
        if isinstance(message.params, msgspec.UnsetType):
            return
        named = acp.decoded(message.params, acp.Named)
        if named is not None:
            handlers = [self._handlers.get(named.session_id)]
        else:
            handlers = [*self._handlers.values()]
        for handler in filter(None, handlers):
            if len(handlers) == 1:
                handler.on_unknown_method(method, message.params)
            else:
                handler.on_invalid_line(f"{method} that names no session".encode())

    def _dispatch_request(self, message: acp.Message) -> None:
        named = acp.decoded(message.params, acp.Named)
        handler = self._handlers.get(named.session_id) if named else None
        if handler is not None and not isinstance(message.params, msgspec.UnsetType):
            handler.on_permission_request(message.id, message.params)
        else:
            self.answer(message.id, acp.WITHDRAWN)  # Nobody is there any more.
            if named is None:
                self._keep(message, "session/request_permission")

    def _on_exit(self) -> None:
        self._take(self._lines.rest())  # A last line that nobody ended.
        self.gone = True
        replies, self._replies = self._replies, {}
        for reply in replies.values():
            reply(None)
        if self.when_gone is not None:
            self.when_gone()


def _gate_of(transport: Acp, program: CliProgram) -> ProcessGate | None:
    if transport.gate is None or program.node is None:
        return None
    return ProcessGate(TurnGate(transport.gate, transport.prices, lambda notice: None))


def _contents_of(launch: PreparedLaunch) -> dict[Path, bytes]:
    """What steers the process, by file."""
    files = [launch.home / SETTINGS_FILE, *launch.home.glob(POLICY_FILE)]
    return {file: file.read_bytes() for file in files}


def refuse_older(version: Version | None, where: str) -> None:
    """Raises CliTooOld for a CLI without ACP; one that does not tell its version counts as new."""
    if version is not None and not has(version, ACP):
        raise CliTooOld(
            f"Gemini CLI {version_text(version)} {where} is too old for Acp: "
            f"{version_text(ACP)} is the first that it was tried with",
            hint=advice(
                "update it with `npm install -g @google/gemini-cli@latest`"
                "[, or use {via.cli|Cli()}]"
            ),
        )


def _settle(future: asyncio.Future[acp.Message | None], reply: acp.Message | None) -> None:
    if not future.done():
        future.set_result(reply)


def _sample(raw: Any) -> str:
    return "nothing" if raw is UNSET else bytes(raw)[:200].decode("utf-8", "replace")
