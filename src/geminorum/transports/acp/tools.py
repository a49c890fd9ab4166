"""What a warm session can reach in this process: the caller's functions, a place for the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geminorum.errors import ConfigError, TrustError
from geminorum.events import PermissionRequest
from geminorum.hints import advice
from geminorum.options import Options
from geminorum.runtime.interrupts import OnInterrupt, ignore_interrupt
from geminorum.tools import Tool
from geminorum.transports.callbacks.backchannel import tools_and_schema
from geminorum.transports.callbacks.final_answer import INSTRUCTIONS, FinalAnswer
from geminorum.transports.callbacks.final_answer import NAME as FINAL_ANSWER
from geminorum.transports.callbacks.grants import Ask
from geminorum.transports.callbacks.loopback import Loopback
from geminorum.transports.callbacks.tool_server import Served, ToolServer, to_served
from geminorum.transports.launch.transport import CliTransport
from geminorum.wire.callbacks.mcp import SERVER, full_name, own_name
from geminorum.wire.policy.toml_writer import OwnTools, approval_mode, asked_functions

_PATH = "/mcp"


def own_tools_of(transport: CliTransport, options: Options, *, asks: bool) -> OwnTools:
    """The tools that a process may be offered, for its policy, whatever its sessions want."""
    tools, _shape = tools_and_schema(transport, options.changed(output_schema=None))
    # One by one: of a server that comes with a session, the policy does not know the family.
    names = [full_name(tool.name) for tool in tools]
    asked = asked_functions(options, names) if asks else ()
    unasked = tuple(name for name in names if name not in asked)
    return OwnTools(unasked, asked, answer=(full_name(FINAL_ANSWER),))


def _asked_names(options: Options, tools: Sequence[Tool]) -> tuple[str, ...]:
    if approval_mode(options, interactive=True) == "yolo":
        return ()
    return tuple(map(own_name, asked_functions(options, [full_name(tool.name) for tool in tools])))


class SessionTools:
    """Serves one session for one block. Where it has nothing to offer, it is not there."""

    def __init__(
        self,
        transport: CliTransport,
        options: Options,
        attempts: int,
        *,
        asks: bool = False,
        on_interrupt: OnInterrupt = ignore_interrupt,
    ) -> None:
        """`asks`: `decide` is asked about functions, unless the options say otherwise."""
        tools, shape = tools_and_schema(transport, options)
        self._shape, self._attempts = shape, attempts
        self._renames = bool(transport.tools or shape)
        self._answer: FinalAnswer | None = None
        offered = [to_served(tool) for tool in tools]
        if shape is not None:
            offered.append(Served(FinalAnswer(shape, 1).served.declared, self._take))
        self.names = tuple(tool.declared.name for tool in offered)
        self._asked = _asked_names(options, tools) if asks else ()
        # Told by the server and not by the process, which other sessions share.
        self._tools = ToolServer(
            offered,
            INSTRUCTIONS if shape else "",
            asked=self._asked,
            on_interrupt=on_interrupt,
        )
        self._server: Loopback | None = None

    async def __aenter__(self) -> SessionTools:
        if self.names:
            self._server = await Loopback({_PATH: self._tools.answer}).__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self._server.__aexit__()

    @property
    def servers(self) -> list[dict[str, Any]]:
        """For `session/new`."""
        if self._server is None:
            return []
        token = {"name": "Authorization", "value": f"Bearer {self._server.token_for(_PATH)}"}
        url = f"{self._server.url}{_PATH}"
        return [{"type": "http", "name": SERVER, "url": url, "headers": [token]}]

    def check_known(self, options: Options) -> None:
        """Raises where the CLI, which says nothing of it, has opened a session without us."""
        if not self.names or self._tools.was_read:
            return
        text = "the CLI did not ask for the tools of this process"
        if options.trust_workspace is False:
            hint = advice(
                "it does not in a folder that is not trusted[: {Options.trust_workspace=True}]"
            )
            raise TrustError(text, hint=hint)
        hint = f"look for {SERVER!r}, `mcp` and `admin` in its settings"
        raise ConfigError(text, hint=hint)

    def named(self, tool: str) -> str:
        """A tool as the caller knows it."""
        return own_name(tool) if self._renames else tool

    def start_answer(self) -> FinalAnswer | None:
        """Returns a new answer for the turn that begins; each turn has its own."""
        shape = self._shape
        self._answer = None if shape is None else FinalAnswer(shape, self._attempts)
        return self._answer

    def allow_once(self, request: PermissionRequest) -> None:
        """Allows one call, which `decide` approved."""
        self._tools.allow_once(request.name, request.input)

    def ask_at_call(self, request: PermissionRequest, ask: Ask) -> bool:
        """Has somebody asked when the call comes, where the tool is one that runs only if
        allowed; False: it is not."""
        if request.name not in self._asked:
            return False
        self._tools.ask_at_call(request.name, ask)
        return True

    def cancel(self) -> None:
        """Ends every running call and every grant: the results are no longer wanted."""
        self._tools.cancel()

    async def _take(self, arguments: dict[str, Any]) -> tuple[str, bool]:
        if self._answer is None:
            return "there is nothing to be answered", False
        return await self._answer.served.call(arguments)
