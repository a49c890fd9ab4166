"""Local server for one turn: the caller's functions, permission callback and final answer."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geminorum.decisions import Decisions
from geminorum.detect import CliProgram
from geminorum.errors import Unsupported
from geminorum.events import Event
from geminorum.hints import advice
from geminorum.options import Options
from geminorum.permissions import KNOWN_TOOLS
from geminorum.runtime.interrupts import OnInterrupt, ignore_interrupt
from geminorum.schema import Shape, shape_of
from geminorum.tools import Tool
from geminorum.transports.callbacks.final_answer import NAME as FINAL_ANSWER
from geminorum.transports.callbacks.final_answer import FinalAnswer
from geminorum.transports.callbacks.gate_server import GateServer
from geminorum.transports.callbacks.loopback import Loopback
from geminorum.transports.callbacks.permission_hook import PermissionHook
from geminorum.transports.callbacks.tool_server import ToolServer, to_served
from geminorum.transports.launch.overlay import replace_file
from geminorum.transports.launch.plan import Reachable
from geminorum.transports.launch.preloads.request_gate import GateAddress, hide_address
from geminorum.transports.launch.transport import CliTransport
from geminorum.transports.turns.asking_place import decisions_of
from geminorum.transports.turns.request_gate import TurnGate
from geminorum.wire.callbacks.hook import hook_command, hook_script, hook_settings, matcher
from geminorum.wire.callbacks.mcp import PREFIX, SERVER, check_names, full_name
from geminorum.wire.ending import Stop
from geminorum.wire.launch.argv import HOOKS, has
from geminorum.wire.policy.toml_writer import (
    OwnTools,
    asked_functions,
    asked_tools,
    is_denied_function,
    unasked_tools,
)

_FUNCTIONS, _QUESTIONS, _REQUESTS = "/mcp", "/decide", "/request"
_FOREVER = 2**31 - 1
"""Milliseconds. The run has limits of its own; a tool may take its time."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What the CLI of a conversation can call: functions, `decide`, and the final answer."""

    tools: tuple[Tool, ...] = ()
    decisions: Decisions | None = None
    shape: Shape | None = None
    asked: tuple[str, ...] = ()
    """The tools that `decide` is asked about, as policies name them."""
    pattern: str = ""
    """The same for the hook."""
    is_gated: bool = False
    """Is somebody asked before each request to a model?"""

    def __bool__(self) -> bool:
        return bool(self.tools or self.asked or self.shape)

    @property
    def offers(self) -> tuple[object, ...]:
        """What the CLI is told of it. Equal where the shape to answer in comes from equal types."""
        return self.tools, self.asked, self.pattern, self.is_gated


def tools_and_schema(
    transport: CliTransport, options: Options
) -> tuple[tuple[Tool, ...], Shape | None]:
    """The functions that the options allow, and the shape of the answer. Raises InvalidOptions if
    one cannot be declared to a model."""
    tools = tuple(tool for tool in transport.own_tools if _is_wanted(tool, options))
    shape = None if options.output_schema is None else shape_of(options.output_schema)
    taken = KNOWN_TOOLS | {FINAL_ANSWER} if shape else KNOWN_TOOLS
    check_names([tool.name for tool in tools], taken)
    return tools, shape


def callbacks_of(transport: CliTransport, options: Options) -> Callbacks:
    """InvalidOptions where a function, or a shape, cannot be told to a model."""
    tools, shape = tools_and_schema(transport, options)
    is_gated = transport.gate is not None
    if transport.decide is None:
        return Callbacks(tools, None, shape, is_gated=is_gated)
    asked, own = asked_tools(options), _asked_functions(tools, options)
    if not asked and not own:
        text = "decide is never called: these options already allow or refuse everything"
        warnings.warn(text, stacklevel=2)
    names = [tool.name for tool in tools] + ([FINAL_ANSWER] if shape else [])
    pattern = matcher(asked, unasked_tools(options), own, [full_name(name) for name in names])
    decisions = decisions_of(transport, options)
    return Callbacks(tools, decisions, shape, (*asked, *own), pattern, is_gated)


def _asked_functions(tools: Sequence[Tool], options: Options) -> tuple[str, ...]:
    if options.approval == "yolo":
        return ()
    return asked_functions(options, [full_name(tool.name) for tool in tools])


def _is_wanted(tool: Tool, options: Options) -> bool:
    """By the lists of the options, which mean every tool; as the caller writes it, or the CLI."""
    names = {tool.name, full_name(tool.name), f"{PREFIX}*"}
    listed = options.allowed_tools is None or not names.isdisjoint(options.allowed_tools)
    if not listed or not names.isdisjoint(options.disallowed_tools):
        return False
    # Who has the token can call what is offered, whatever the CLI hides from the model.
    return not is_denied_function(options, [full_name(tool.name), tool.name])


def refuse_unreachable(transport: CliTransport, options: Options, program: CliProgram) -> None:
    """Where the CLI could not reach us; before anything starts, since nobody would be asked."""
    if not has(program.version, HOOKS):
        raise Unsupported(
            "this CLI is too old for tools, decide and output_schema",
            hint="update it with `npm install -g @google/gemini-cli@latest`",
        )
    if transport.sandbox:
        hint = advice("leave out {Cli.sandbox=…}[, or {tools, decide and output_schema}]")
        raise Unsupported("from inside a sandbox this process cannot be reached", hint=hint)


class Backchannel:
    """Serves tools and answers questions for one block. Where there are none, it is not there."""

    def __init__(self, reach: Callbacks, answer: FinalAnswer | None) -> None:
        self._on_change: Callable[[], None] = _ignore_change
        self._on_interrupt: OnInterrupt = ignore_interrupt
        offered = [to_served(tool) for tool in reach.tools]
        if answer is not None:
            offered.append(answer.served)
        functions = [tool.name for tool in reach.tools]
        asked = [name for name in functions if full_name(name) in reach.asked]
        self._offers = bool(offered)
        self._tools = ToolServer(
            offered,
            asked=asked,
            on_read=self._hide_token,
            on_interrupt=lambda error: self._on_interrupt(error),
        )
        self._asking: PermissionHook | None = None
        if reach.decisions is not None and reach.asked:
            own = {FINAL_ANSWER, *functions}
            self._asking = PermissionHook(
                reach.decisions,
                reach.pattern,
                lambda: self._on_change(),
                own,
                self._tools.allow_once,
                lambda error: self._on_interrupt(error),
            )
        self._answer, self._pattern, self._asked = answer, reach.pattern, reach.asked
        self._functions = reach.tools
        self._home: Path | None = None
        self.requests = GateServer(self._hide_gate) if reach.is_gated else None
        """Where the CLI asks before each request to a model; None: it does not."""
        self._settings_file: Path | None = None
        """Where the CLI finds the token for functions; None: nowhere."""
        self._stack = AsyncExitStack()
        self._server: Loopback | None = None

    async def __aenter__(self) -> Backchannel:
        routes = {}
        if self._offers:
            routes[_FUNCTIONS] = self._tools.answer
        if self._asking is not None:
            routes[_QUESTIONS] = self._asking.answer
        if self.requests is not None:
            routes[_REQUESTS] = self.requests.answer
        if routes:
            server = Loopback(routes, revocable=[_REQUESTS])
            self._server = await self._stack.enter_async_context(server)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def serve(
        self, on_change: Callable[[], None], on_interrupt: OnInterrupt, gate: TurnGate | None = None
    ) -> None:
        """Names the turn that is served: `on_change` is called when there is something for its
        stream that the CLI did not say, `on_interrupt` with what a function of the caller's raised
        for the whole program; `gate` is asked about its requests to models."""
        self._on_change, self._on_interrupt = on_change, on_interrupt
        if self.requests is not None and gate is not None:
            self.requests.enter("", gate)

    def completed(self, events: list[Event], *, is_caught_up: bool) -> list[Event]:
        """The events with the permission requests, their decisions and the final answer among them.

        `is_caught_up`: the CLI has printed nothing that was not read.
        """
        if events:
            self._hide_token()  # A CLI that speaks has read its settings.
        if self._asking is not None:
            events = self._asking.placed(events, is_caught_up)
        return events if self._answer is None else self._answer.judged(events)

    @property
    def trouble(self) -> Stop | None:
        """Why the run cannot go on, if so."""
        if self._asking is not None and self._asking.evaded:
            return "unasked"
        return "no_answer" if self._answer is not None and self._answer.is_exhausted else None

    @property
    def is_asking(self) -> bool:
        """Is a permission request undecided?"""
        return self._asking is not None and self._asking.is_open

    @property
    def is_holding(self) -> bool:
        """Does a request to a model wait to be let through?"""
        return self.requests is not None and self.requests.is_waiting

    def hold(self) -> bool:
        """Leaves what is asked from now on unanswered until `withdraw`; False if nothing can be
        asked."""
        if self._asking is not None:
            self._asking.hold()
        return self._asking is not None

    def withdraw(self) -> None:
        """Refuses what is open. To be called before the CLI is ended: it would take the end of a
        question for a yes."""
        if self._asking is not None:
            self._asking.stop()

    @property
    def own_tools(self) -> OwnTools:
        """None of them is for the CLI to ask about: where somebody is asked, the hook does it."""
        answer = (full_name(FINAL_ANSWER),) if self._answer else ()
        return OwnTools(tuple(full_name(tool.name) for tool in self._functions), answer=answer)

    @property
    def reachable(self) -> Reachable:
        """What the policy and the settings of the CLI depend on."""
        admit = admitting if self._offers else _admit_nobody
        connects = self._server is not None
        return Reachable(self.own_tools, self._asked, admit, connects, self._gate_address())

    def _gate_address(self) -> GateAddress | None:
        if self._server is None or self.requests is None:
            return None
        return GateAddress(self._server.port, _REQUESTS, self._server.token_for(_REQUESTS))

    def write_settings(self, theirs: Mapping[str, Any], home: Path) -> dict[str, Any]:
        """Writes the key of the hook and returns the settings that lead the CLI to this server."""
        if self._server is None:
            return {}
        self._home, settings = home, {}
        if self._offers:
            settings = _mcp_settings(theirs, self._server)
            self._settings_file = home / ".gemini" / "settings.json"
        if self._asking is not None:
            key = home / "key"
            key.write_text(f"{self._server.token_for(_QUESTIONS)}\n")
            command = hook_command(hook_script(self._server.port, str(key)))
            # A name that nobody can have switched off beforehand.
            name = f"geminorum-{secrets.token_hex(4)}"
            settings |= hook_settings(theirs, command, self._pattern, name)
        return settings

    def _hide_gate(self) -> None:
        if self._home is not None:
            hide_address(self._home)

    def _hide_token(self) -> None:
        """Takes the token for functions off the disk before a tool can run: the CLI knows it."""
        file, self._settings_file = self._settings_file, None
        if file is None or self._server is None:
            return
        with suppress(OSError):  # The home may be gone, and the token with it.
            token = self._server.token_for(_FUNCTIONS).encode()
            replace_file(file, file.read_bytes().replace(token, b""))


def _ignore_change() -> None:
    pass


def admitting(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Where the user named the servers to start, ours is one more."""
    chosen = theirs.get("mcp")
    if isinstance(chosen, dict) and isinstance(chosen.get("allowed"), list):
        return {"mcp": {"allowed": [*chosen["allowed"], SERVER]}}
    return {}


def _admit_nobody(theirs: Mapping[str, Any]) -> dict[str, Any]:
    return {}


def _mcp_settings(theirs: Mapping[str, Any], server: Loopback) -> dict[str, Any]:
    entry = {
        "httpUrl": f"{server.url}{_FUNCTIONS}",
        "headers": {"Authorization": f"Bearer {server.token_for(_FUNCTIONS)}"},
        "timeout": _FOREVER,
        "trust": True,
    }
    return {"mcpServers": {SERVER: entry}, **admitting(theirs)}
