"""Checks the provider's configuration and converts it to geminorum's options."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Mapping
from typing import Any

from geminorum.adapter_parts import rule_of
from geminorum.options import Options

CONFIG_KEYS = (
    *("model", "sandbox", "approval_mode", "include_directories", "allowed_tools"),
    *("working_dir", "timeout"),
)
APPROVAL_MODES = ("auto_edit", "default", "yolo")
DEFAULT_TIMEOUT = 600
"""Seconds for a whole answer if no limit is set."""

_OURS = {
    "model": "model",
    "approval_mode": "approval",
    "include_directories": "include_directories",
}


def given_in(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of what is really set: None counts as left out."""
    if config is not None and not isinstance(config, Mapping):
        raise ValueError(f"config must be a dict, got: {type(config).__name__}")
    return {key: value for key, value in (config or {}).items() if value is not None}


def check(config: Mapping[str, Any], *, stacklevel: int = 3) -> None:
    """Warns of unknown keys; raises ValueError for an impossible value."""
    for key in config.keys() - {*CONFIG_KEYS}:
        warnings.warn(_unknown(str(key)), stacklevel=stacklevel)
    check_seconds("timeout", config.get("timeout"))
    mode = config.get("approval_mode")
    if mode is not None and mode not in APPROVAL_MODES:
        raise ValueError(f"approval_mode must be one of {[*APPROVAL_MODES]}, got: {mode!r}")
    for key in ("include_directories", "allowed_tools"):
        _check_list(key, config.get(key, []))
    for tool in config.get("allowed_tools", []):
        rule_of(tool)
    _check_kind("model", config, str)
    _check_kind("sandbox", config, bool | str)
    _check_kind("working_dir", config, str | os.PathLike)


def check_seconds(name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number of seconds, got: {type(value).__name__}")
    # Not `<= 0`, which "not a number" would pass.
    if not value > 0:
        raise ValueError(f"{name} must be > 0")


def options_of(
    config: Mapping[str, Any],
    context: Mapping[str, Any],
    base: Options,
    response_timeout: float | None = None,
) -> Options:
    """The run's options: the configuration goes before the context, the call and `base`.

    `response_timeout` comes last but for the default: engines pass the metadata's 600 with every
    call, and that must not undo a limit that somebody chose.
    """
    wanted = {ours: config[theirs] for theirs, ours in _OURS.items() if theirs in config}
    folder = config.get("working_dir") or context.get("project_root") or base.cwd
    seconds = config.get("timeout") or base.timeout or response_timeout or DEFAULT_TIMEOUT
    return base.changed(cwd=folder, timeout=seconds, **wanted)


def _check_list(key: str, value: Any) -> None:
    if not isinstance(value, list):
        raise ValueError(f"{key} must be a list, got: {type(value).__name__}")
    paths = key == "include_directories"
    for item in value:
        if not isinstance(item, str | os.PathLike if paths else str):
            raise ValueError(f"{key} must hold strings, got: {type(item).__name__}")


def _check_kind(key: str, config: Mapping[str, Any], kind: Any) -> None:
    if key in config and not isinstance(config[key], kind):
        names = {bool | str: "True, False or the name of a sandbox program"}.get(kind, "a string")
        raise ValueError(f"{key} must be {names}, got: {type(config[key]).__name__}")


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key, CONFIG_KEYS, n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(CONFIG_KEYS)}"
    return f"unknown config key {key!r} is ignored; {advice}"
