"""What to type on the command line for what a hint of the library names."""

from __future__ import annotations

import shlex

from geminorum.apps.command.flags.table import (
    CLI_PATH,
    OPTIONS_FLAGS,
    STALL_TIMEOUT,
    START_TIMEOUT,
)

_FLAGS = {
    **{f"Options.{name}": flag for name, flag in OPTIONS_FLAGS.items()},
    **{f"{transport}.executable": CLI_PATH for transport in ("Cli", "Acp")},
    **{f"{transport}.start_timeout": START_TIMEOUT for transport in ("Cli", "Acp")},
    **{f"{transport}.stall_timeout": STALL_TIMEOUT for transport in ("Cli", "Acp")},
}
_WORDS = {
    "install": "geminorum setup",
    "set_key": "export GEMINI_API_KEY=…",
    "offline": ", or try it without one: geminorum run --offline",
    "unset": "leave it out for",
    "sessions.list": "`geminorum sessions list`",
    "sessions.new_id": "--id",
    "via.cli": "--via cli",
    "doctor.untrusted": "leave --no-trust-workspace out",
    "writing.denied": "--policy file_write=deny",
    "Api.tools": "the API",
    "fleet.fingerprint": "--key-of VARIABLE",
    "fleet.key": "--key",
    "fleet.resume": "--resume ID",
    "fleet.workspace": "--workspace FOLDER",
    # Behind "leave".
    "Options.trust_workspace=None": "--trust-workspace out",
    "Options.literal=True": "--no-literal out",
}
_WORKSPACE = {
    "max_bytes": "--max-bytes N",
    "submodules": "--submodules",
    "lfs_pointers": "--lfs-pointers",
    "control_files": "--control-files",
    "exclude": "--exclude",
    "skip": "--skip",
    "extract": "--conflicts-to FOLDER",
    "base": "name the pack: geminorum workspace diff PACK FOLDER",
}
_PATHS = ("Options.cwd", "Options.home")


def in_flags(name: str, value: str) -> str | None:
    """The flag or the command for a name in a hint; None if only Python has it."""
    if name == "doctor.live_timeout":
        return f"geminorum doctor --live --timeout {value}"
    if name.startswith("workspace."):
        flag = _WORKSPACE[name.removeprefix("workspace.")]
        joint = "=" if value.startswith("-") else " "  # Otherwise it would be a flag itself.
        return f"{flag}{joint}{shlex.quote(value)}" if value not in ("", "…") else flag
    if word := _WORDS.get(f"{name}={value}") or _WORDS.get(name):
        return word
    if name not in _FLAGS:
        return None
    flag = _FLAGS[name].names[0].partition("/")[0]
    if _FLAGS[name] is CLI_PATH and value:
        return f"{flag} PATH"
    is_path = name in _PATHS and value not in ("", "…")
    return f"{flag} {shlex.quote(value)}" if is_path else flag
