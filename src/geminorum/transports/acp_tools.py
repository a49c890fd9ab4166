"""What a warm session can reach in this process: the caller's functions, a place for the answer."""

from __future__ import annotations

from typing import Any

from geminorum.errors import ConfigError, TrustError
from geminorum.options import Options
from geminorum.transports.backchannel import Offering, offers_of
from geminorum.transports.final_answer import INSTRUCTIONS, FinalAnswer
from geminorum.transports.final_answer import NAME as FINAL_ANSWER
from geminorum.transports.loopback import Loopback
from geminorum.transports.tool_server import Served, ToolServer, served
from geminorum.wire.mcp import SERVER, full_name, own_name
from geminorum.wire.policy_toml import OwnTools, asked_functions


def own_tools_of(door: Offering, options: Options, *, asks: bool) -> OwnTools:
    """The tools that a process may be offered, for its policy, whatever its sessions want."""
    tools, _shape = offers_of(door, options.changed(output_schema=None))
    # One by one: of a server that comes with a session, the policy does not know the family.
    names = [full_name(tool.name) for tool in tools]
    asked = asked_functions(options, names) if asks else ()
    unasked = tuple(name for name in names if name not in asked)
    return OwnTools(unasked, asked, answer=(full_name(FINAL_ANSWER),))


class SessionTools:
    """Serves one session for one block. Where it has nothing to offer, it is not there."""

    def __init__(self, door: Offering, options: Options, attempts: int) -> None:
        tools, shape = offers_of(door, options)
        self._shape, self._attempts = shape, attempts
        self._renames = bool(door.tools or shape)
        self._answer: FinalAnswer | None = None
        offered = [served(tool) for tool in tools]
        if shape is not None:
            offered.append(Served(FinalAnswer(shape, 1).served.declared, self._take))
        self.names = tuple(tool.declared.name for tool in offered)
        # Told by the server and not by the process, which other sessions share.
        self._tools = ToolServer(offered, INSTRUCTIONS if shape else "")
        self._server: Loopback | None = None

    async def __aenter__(self) -> SessionTools:
        if self.names:
            self._server = await Loopback({"/mcp": self._tools.answer}).__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self._server.__aexit__()

    @property
    def servers(self) -> list[dict[str, Any]]:
        """For `session/new`."""
        if self._server is None:
            return []
        token = {"name": "Authorization", "value": f"Bearer {self._server.token}"}
        url = f"{self._server.url}/mcp"
        return [{"type": "http", "name": SERVER, "url": url, "headers": [token]}]

    def check_known(self, options: Options) -> None:
        """Raises where the CLI, which says nothing of it, has opened a session without us."""
        if not self.names or self._tools.was_read:
            return
        text = "the CLI did not ask for the tools of this process"
        if options.trust_workspace is False:
            hint = "it does not in a folder that is not trusted: Options(trust_workspace=True)"
            raise TrustError(text, hint=hint)
        hint = f"look for {SERVER!r}, `mcp` and `admin` in its settings"
        raise ConfigError(text, hint=hint)

    def named(self, tool: str) -> str:
        """A tool as the caller knows it."""
        return own_name(tool) if self._renames else tool

    def new_answer(self) -> FinalAnswer | None:
        """What the turn that begins is to answer; every turn has an answer of its own."""
        shape = self._shape
        self._answer = None if shape is None else FinalAnswer(shape, self._attempts)
        return self._answer

    def cancel(self) -> None:
        """Ends every call that runs: nobody waits for its result any more."""
        self._tools.cancel()

    async def _take(self, arguments: dict[str, Any]) -> tuple[str, bool]:
        if self._answer is None:
            return "there is nothing to be answered", False
        return await self._answer.served.call(arguments)
