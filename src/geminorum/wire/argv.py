"""Options to the command line of the Gemini CLI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from geminorum.options import Options

Version: TypeAlias = tuple[int, int, int]

# The first version that was seen to have each flag. A program whose version cannot be told is
# taken for a new one.
_RESUME: Version = (0, 15, 0)
POLICY: Version = (0, 30, 0)
_SKIP_TRUST: Version = (0, 39, 0)
_SESSION_ID: Version = (0, 41, 0)


def arguments(
    options: Options,
    *,
    version: Version | None = None,
    policies: Sequence[str] = (),
    extra: Sequence[str] = (),
) -> list[str]:
    """Everything behind the program's name. The prompt is not among it: that goes by stdin.

    One `--flag=value` token each, never two: on its own, a value that begins with "-" would be
    read as another flag.
    """
    flags = ["--output-format=stream-json"]
    if options.trust_workspace is None and _has(version, _SKIP_TRUST):
        flags.append("--skip-trust")
    flags += _named("model", options.model)
    flags += _named("approval-mode", options.approval)
    flags += _named("resume", options.resume)
    flags += _named("session-id", options.session_id)
    for folder in options.include_directories:
        flags.append(f"--include-directories={folder}")
    flags += [f"--policy={path}" for path in policies]
    return [*flags, *extra]


def missing_flags(options: Options, version: Version | None) -> list[str]:
    """The options that this version of the CLI has no flag for."""
    tools = options.policy or options.allowed_tools is not None or options.disallowed_tools
    wanted = {
        "policy, allowed_tools and disallowed_tools": (tools, POLICY),
        "resume": (options.resume, _RESUME),
        "session_id": (options.session_id, _SESSION_ID),
    }
    return [name for name, (value, since) in wanted.items() if value and not _has(version, since)]


def _has(version: Version | None, since: Version) -> bool:
    return version is None or version >= since


def _named(flag: str, value: str | None) -> list[str]:
    return [] if value is None else [f"--{flag}={value}"]
