"""Gemini's capabilities for the agent-cli interface, and where its CLI is."""

from __future__ import annotations

import os
from typing import Any

from geminorum.adapter_parts import cli_path
from geminorum.contracts.agent_cli.routing import TOOL, refuse_others
from geminorum.errors import CliNotFound


def detect_cli() -> str | None:
    """Finds the CLI: GEMINI_CLI_PATH, then PATH, then common locations. Starts nothing."""
    try:
        return str(cli_path(None, os.environ))
    except CliNotFound:
        return None


def get_capabilities(tool: str = TOOL) -> dict[str, Any]:
    """Returns the capabilities. The models are those the interface names; the CLI accepts more."""
    refuse_others(tool)
    path = detect_cli()
    return {
        "supportsSlashCommands": False,
        "supportsModels": True,
        "models": [
            {"id": "gemini-2.5-pro", "name": "Gemini 2.5 Pro"},
            {"id": "gemini-2.5-flash", "name": "Gemini 2.5 Flash"},
        ],
        "supportsWebSearch": True,
        "supportsThinking": True,
        "installed": path is not None,
        "cliPath": path,
    }
