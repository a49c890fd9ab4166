"""The CLI that a transport starts, and whether it can do what is asked of it."""

from __future__ import annotations

from geminorum import permissions
from geminorum.detect import CliProgram, find_cli
from geminorum.errors import Unsupported
from geminorum.options import Options
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.newer_cli import warn_if_newer
from geminorum.transports.launch.transport import CliTransport
from geminorum.transports.process.keeper import KEEPERS
from geminorum.wire.launch.argv import missing_flags


def find_program(context: LaunchContext) -> CliProgram:
    """Raises Unsupported where it cannot do what the options ask. Blocks: to learn a Node's
    version, a process may have to start."""
    transport = context.transport
    KEEPERS.prepare()
    found = find_cli(transport.executable, context.env)
    transport.refuse_program(found)
    warn_if_newer(found.version)
    if missing := missing_flags(context.options, found.version, transport.pre_approved):
        raise Unsupported(
            f"this CLI is too old for {', '.join(missing)}",
            hint="update it with `npm install -g @google/gemini-cli@latest`",
        )
    return found


def check_listed(transport: CliTransport, options: Options) -> None:
    """Warns of unknown tools in the options."""
    own = {tool.name for tool in transport.own_tools}
    listed = (*(options.allowed_tools or ()), *options.disallowed_tools)
    permissions.check_listed(listed, own, stacklevel=3)
