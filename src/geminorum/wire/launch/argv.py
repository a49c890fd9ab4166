"""Options to the command line of the Gemini CLI."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from geminorum.wire.policy.legacy_tools import legacy_tools, unsayable
from geminorum.wire.policy.toml_writer import approval_mode

if TYPE_CHECKING:
    from geminorum.options import Options

Version: TypeAlias = tuple[int, int, int]

# The first version that was seen to have each flag, variable or setting. A program whose version
# cannot be told is taken for a new one.
_RESUME: Version = (0, 15, 0)
OWN_HOME: Version = (0, 26, 0)
# Before, it looked for the sessions of a folder under a hash of its path.
STORES: Version = (0, 29, 0)
# 0.30 has `--policy` too, but when headless it removes the tools that need approval all the same
# (until 0.33), and shell commands that a rule allows are denied (0.34; why was not found).
POLICY: Version = (0, 35, 0)
SKIP_TRUST: Version = (0, 39, 0)
HOOKS: Version = (0, 40, 0)
SESSION_ID: Version = (0, 41, 0)
IGNORE_DOTENV: Version = (0, 42, 0)
# 0.40 speaks the protocol too, but its ids do not tell which tool a question is about.
ACP: Version = (0, 51, 0)


def arguments(
    options: Options,
    *,
    version: Version | None = None,
    policies: Sequence[str] = (),
    pre_approved: Sequence[str] = (),
) -> list[str]:
    """Everything behind the program's name. The prompt is not among it: that goes by stdin.

    One `--flag=value` token each, never two: on its own, a value that begins with "-" would be
    read as another flag.
    """
    flags = ["--output-format=stream-json"]
    if options.trust_workspace is None and has(version, SKIP_TRUST):
        flags.append("--skip-trust")
    flags += _named("model", options.model)
    flags += _named("approval-mode", approval_mode(options, pre_approved))
    flags += _named("resume", options.resume)
    flags += _named("session-id", options.session_id)
    for folder in options.include_directories:
        flags.append(f"--include-directories={folder}")
    flags += [f"--policy={path}" for path in policies]
    if not has(version, POLICY):
        flags += legacy_tools(options, pre_approved=pre_approved).flags
    return flags


def acp_arguments(options: Options, *, policies: Sequence[str] = ()) -> list[str]:
    """The same for a warm process: what its sessions have in common, and nothing of their own."""
    trust = ["--skip-trust"] if options.trust_workspace is None else []
    folders = [f"--include-directories={folder}" for folder in options.include_directories]
    return ["--acp", *trust, *folders, *(f"--policy={path}" for path in policies)]


def missing_flags(
    options: Options, version: Version | None, pre_approved: Sequence[str] = ()
) -> list[str]:
    """What these options ask for and this version of the CLI cannot be told."""
    wanted = {
        "resume": (options.resume, _RESUME),
        "session_id": (options.session_id, SESSION_ID),
        # Before, it took every folder for a trusted one when nobody was there to ask.
        "trust_workspace=False": (options.trust_workspace is False, SKIP_TRUST),
        # Before, it looked for its settings in the user's home and nowhere else.
        "home": (options.home, OWN_HOME),
        "store": (options.store is not None, STORES),
        "a system prompt behind its own": (_adds_instructions(options), OWN_HOME),
    }
    missing = [name for name, (value, since) in wanted.items() if value and not has(version, since)]
    return missing if has(version, POLICY) else [*missing, *unsayable(options, pre_approved)]


def _adds_instructions(options: Options) -> bool:
    return bool(options.system_prompt) and not options.replace_system_prompt


def has_session_id(version: Version | None) -> bool:
    """Can a new session be given an id of our choice?"""
    return has(version, SESSION_ID)


def imported_file(words: Sequence[str]) -> str | None:
    """The session file that these arguments tell the CLI to begin with."""
    for word, following in pairwise([*words, ""]):
        flag, equals, value = word.partition("=")
        if flag in ("--session-file", "--sessionFile"):
            return value if equals else following
    return None


def has(version: Version | None, since: Version) -> bool:
    return version is None or version >= since


def _named(flag: str, value: str | None) -> list[str]:
    return [] if value is None else [f"--{flag}={value}"]
