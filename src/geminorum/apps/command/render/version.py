"""What `geminorum --version` says."""

from __future__ import annotations

import platform

from geminorum import __version__
from geminorum.detect import find_cli, version_text
from geminorum.errors import SetupError


def version_lines() -> list[str]:
    """Our version, the Gemini CLI's, Python's."""
    return [
        f"geminorum {__version__}",
        f"Gemini CLI {_cli()}",
        f"Python {platform.python_version()}",
    ]


def _cli() -> str:
    try:
        found = find_cli()
    except SetupError as error:
        return f"not found: {error.message}"
    version = version_text(found.version) if found.version else "of unknown version"
    return f"{version} ({found.path})"
