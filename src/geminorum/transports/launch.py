"""A door and options to what is started: folder, environment, settings, policies, command line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geminorum.detect import CliProgram
from geminorum.errors import InvalidOptions
from geminorum.options import Options
from geminorum.transports.home import merged
from geminorum.wire.argv import POLICY, arguments
from geminorum.wire.effort import overrides
from geminorum.wire.policy_toml import policy_toml

if TYPE_CHECKING:
    from geminorum.transports.cli import Cli

_QUIET_SETTINGS: Mapping[str, Any] = {
    "general": {
        "enableAutoUpdate": False,
        "enableAutoUpdateNotification": False,
        # The CLI would otherwise delete resumed and parallel sessions at its start.
        "sessionRetention": {"enabled": False},
    },
    "privacy": {"usageStatisticsEnabled": False},
}


def working_folder(options: Options) -> Path:
    cwd = Path(options.cwd or ".").expanduser().absolute()
    if not cwd.is_dir():
        hint = "name the folder it lies in" if cwd.exists() else f"mkdir -p {cwd}"
        raise InvalidOptions(f"cwd {str(cwd)!r} is not a folder", hint=hint)
    for extra in options.include_directories:
        if not (cwd / extra).is_dir():
            raise InvalidOptions(f"include_directories: {str(extra)!r} is not a folder")
    return cwd


def environment(options: Options) -> dict[str, str]:
    return {**os.environ, **options.env}


def home_of(options: Options, env: Mapping[str, str]) -> Path:
    # The environment's home before our own: one process may serve many tenants.
    named = options.home or env.get("GEMINI_CLI_HOME") or env.get("HOME") or Path.home()
    return Path(named).expanduser().absolute()


def settings_of(
    door: Cli, options: Options, env: Mapping[str, str], selected: str | None
) -> dict[str, Any]:
    """The run's own settings: quiet, safe, as the options ask, and at last as the door says."""
    settings = merged(_QUIET_SETTINGS, _safety(door, options))
    if options.max_turns is not None:
        settings = merged(settings, {"model": {"maxSessionTurns": options.max_turns}})
    if options.effort is not None:
        thinking = overrides(options.effort, options.model)
        settings = merged(settings, {"modelConfigs": {"customOverrides": thinking}})
    if selected is None and _means_api_key(env):
        # With a base URL and no choice made, the CLI would take the URL for a gateway and refuse.
        settings = merged(settings, {"security": {"auth": {"selectedType": "gemini-api-key"}}})
    return merged(settings, door.settings)


def _safety(door: Cli, options: Options) -> dict[str, Any]:
    """Each hole that the CLI leaves open, closed; each has a name on the door to open it by."""
    return {
        "general": {"plan": {"enabled": door.plan_tools or options.approval == "plan"}},
        "advanced": {"ignoreLocalEnv": not door.dotenv},
        "security": {"environmentVariableRedaction": {"enabled": not door.secrets_in_tools}},
    }


def policies_of(door: Cli, options: Options, program: CliProgram, home: Path) -> list[str]:
    if program.version is not None and program.version < POLICY:
        return []
    ours = home / "policy.toml"
    ours.write_text(policy_toml(options, plan_tools=door.plan_tools), encoding="utf-8")
    # The flag replaces the user's own policies; naming their folder brings them back.
    theirs = home / ".gemini" / "policies"
    return [str(ours), *([str(theirs)] if theirs.is_dir() else [])]


def _means_api_key(env: Mapping[str, str]) -> bool:
    others = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA")
    return bool(env.get("GEMINI_API_KEY")) and not any(env.get(name) for name in others)


def variables_of(door: Cli, options: Options, program: CliProgram, home: Path) -> dict[str, str]:
    variables = {"GEMINI_CLI_HOME": str(home), "NO_COLOR": "1", "NO_BROWSER": "true"}
    if not door.relaunch:
        # The first process would only start a second one, and swallow the signals meant for it.
        variables["GEMINI_CLI_NO_RELAUNCH"] = "true"
    if options.trust_workspace or (options.trust_workspace is None and _predates_flag(program)):
        variables["GEMINI_CLI_TRUST_WORKSPACE"] = "true"
    if options.replace_system_prompt and options.system_prompt:
        instructions = home / "system.md"
        instructions.write_text(options.system_prompt, encoding="utf-8")
        variables["GEMINI_SYSTEM_MD"] = str(instructions)
    if not door.shared_tmp:
        scratch = home / "tmp"
        scratch.mkdir(mode=0o700)
        variables["TMPDIR"] = str(scratch)
    if isinstance(door.sandbox, str):
        variables["GEMINI_SANDBOX"] = door.sandbox
    if program.node is not None and program.node.version >= (22, 0, 0):
        # A cache only: where it cannot be written, the CLI starts a little later.
        with suppress(OSError):
            variables["NODE_COMPILE_CACHE"] = str(_compile_cache())
    return variables


def _predates_flag(program: CliProgram) -> bool:
    return program.version is not None and program.version < (0, 39, 0)


def _compile_cache() -> Path:
    """Where Node keeps compiled code: ours alone, since what lies there is run."""
    import platformdirs

    folder = platformdirs.user_cache_path("geminorum") / "node-compile-cache"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def command_of(
    door: Cli, options: Options, program: CliProgram, policies: Sequence[str]
) -> list[str]:
    command = list(program.command)
    if program.node is not None and (heap := door.heap_mb or _half_of_memory()):
        command.insert(1, f"--max-old-space-size={heap}")
    extra = ["--sandbox", *door.extra_args] if door.sandbox is True else door.extra_args
    flags = arguments(options, version=program.version, policies=policies, extra=extra)
    return [*command, *flags]


def _half_of_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**21
    except (AttributeError, ValueError, OSError):
        return None
