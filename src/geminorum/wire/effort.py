"""How hard a model shall think, in the words of each family of models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_LEVELS = {
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "HIGH",
    "max": "HIGH",
}
_BUDGETS: Mapping[str, int] = {
    "minimal": 1024,
    "low": 4096,
    "medium": 8192,
    "high": 16384,
    "xhigh": 24576,
    "max": 24576,
}
_LARGEST_OF_PRO = 32768

# An alias or "auto" may become any of these, so all of them are told.
KNOWN_MODELS = (
    *("gemini-3-pro-preview", "gemini-3.1-pro-preview", "gemini-3.1-pro-preview-customtools"),
    *("gemini-3-flash-preview", "gemini-3-flash", "gemini-3.5-flash", "gemini-3.8-flash"),
    *("gemini-3.1-flash-lite", "gemini-3.5-flash-lite"),
    *("gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite"),
)


def thinking(effort: str, model: str) -> dict[str, Any]:
    """The API's thinking configuration: a level from Gemini 3 on, a number of tokens before."""
    if not model.startswith("gemini-2."):
        return {"thinkingLevel": _LEVELS[effort]}
    if effort == "max" and "pro" in model:
        return {"thinkingBudget": _LARGEST_OF_PRO}
    return {"thinkingBudget": _BUDGETS[effort]}


def overrides(effort: str, model: str | None) -> list[dict[str, Any]]:
    """The same for every model that a run may use, as the CLI's settings take it."""
    named = [model] if model is not None and model.startswith("gemini-") else []
    return [_override(effort, name) for name in _once([*named, *KNOWN_MODELS])]


def _override(effort: str, model: str) -> dict[str, Any]:
    config = {"generateContentConfig": {"thinkingConfig": thinking(effort, model)}}
    return {"match": {"model": model}, "modelConfig": config}


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
