"""Gemini as an agent-cli integration: prompts and saved sessions to Claude-format messages.

The interface comes from an MIT document: the Gemini integration of agentcmd, (c) 2025 Sourceborn.
The code is our own. The types of the CLI's files stay inside `geminorum.wire`.
"""

from geminorum.contracts.agent_cli.capabilities import detect_cli, get_capabilities
from geminorum.contracts.agent_cli.executing import (
    PERMISSION_MODES,
    ExecuteResult,
    PermissionMode,
    execute,
    execute_sync,
)
from geminorum.contracts.agent_cli.loading import (
    find_session,
    load_messages,
    load_session,
    parse,
)
from geminorum.views.messages import Block, Message, MessageUsage

__all__ = [
    "PERMISSION_MODES",
    "Block",
    "ExecuteResult",
    "Message",
    "MessageUsage",
    "PermissionMode",
    "detect_cli",
    "execute",
    "execute_sync",
    "find_session",
    "get_capabilities",
    "load_messages",
    "load_session",
    "parse",
]
