"""The short names of models, to the names that the API knows."""

from __future__ import annotations

from collections.abc import Mapping

ALIASES: Mapping[str, str] = {
    "pro": "gemini-3.1-pro-preview",
    "flash": "gemini-3.8-flash",
    "flash-lite": "gemini-3.5-flash-lite",
}
"""As CLI 0.61.0, the newest one tried, resolves them with an API key."""


def is_routed(name: str) -> bool:
    """Does this name leave the choice to the CLI's router? No model of the API is called so."""
    return name == "auto" or name.startswith("auto-gemini-")
