"""What Gemini can do behind the agent-cli shape, and where its CLI is."""

from __future__ import annotations

import os
from typing import Any

from geminorum import detect
from geminorum.contracts.agent_cli.routing import TOOL, refuse_others
from geminorum.errors import CliNotFound


def detect_cli() -> str | None:
    """Where the CLI lies: GEMINI_CLI_PATH, then PATH, then the usual places. Starts nothing."""
    try:
        return str(detect.cli_path(None, os.environ))
    except CliNotFound:
        return None


def get_capabilities(tool: str = TOOL) -> dict[str, Any]:
    """In the shape's own words. The models are those it names; the CLI takes others too."""
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
