"""Keeps the place where questions are answered out of the folders that the agent may write to."""

from __future__ import annotations

from geminorum.decisions import Approvals
from geminorum.transports.launch.context import LaunchContext


def refuse_reachable_approvals(context: LaunchContext) -> None:
    """Raises InvalidOptions if the agent could answer its own questions with a file tool."""
    if isinstance(context.transport.decide, Approvals):
        context.transport.decide.refuse_within(context.agent_folders)
