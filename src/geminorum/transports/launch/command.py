"""The program to start: its words and its variables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from geminorum.detect import COMPILE_CACHE_NODE, CliProgram
from geminorum.options import Options
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.control_place import is_within
from geminorum.transports.launch.dotenv import disarming_variables
from geminorum.transports.launch.transport import CliTransport
from geminorum.wire.launch.argv import OWN_HOME, SKIP_TRUST, acp_arguments, arguments, has

NO_COMPILE_CACHE = "NODE_DISABLE_COMPILE_CACHE"
SYSTEM_PROMPT_FILE, SCRATCH_FOLDER = "system.md", "tmp"


class Preload(Protocol):
    """A script that Node loads ahead of the CLI."""

    @property
    def node_flag(self) -> str: ...

    @property
    def files(self) -> Mapping[str, str]:
        """What it needs in the home of the run, itself included."""


def headless_command(
    transport: CliTransport,
    options: Options,
    program: CliProgram,
    policies: Sequence[str] = (),
    preloads: Sequence[Preload] = (),
) -> list[str]:
    """One headless turn; the prompt is not among it."""
    approved = transport.pre_approved
    flags = arguments(options, version=program.version, policies=policies, pre_approved=approved)
    return _command(transport, program, preloads, flags)


def warm_command(
    transport: CliTransport,
    options: Options,
    program: CliProgram,
    policies: Sequence[str] = (),
    preloads: Sequence[Preload] = (),
) -> list[str]:
    """A process that stays."""
    return _command(transport, program, preloads, acp_arguments(options, policies=policies))


def _command(
    transport: CliTransport,
    program: CliProgram,
    preloads: Sequence[Preload],
    flags: Sequence[str],
) -> list[str]:
    command = list(program.command)
    if program.node is not None:
        heap = transport.heap_mb or _half_of_memory()
        memory = [f"--max-old-space-size={heap}"] if heap else []
        command[1:1] = [*memory, *(script.node_flag for script in preloads)]
    sandbox = ["--sandbox"] if transport.sandbox is True else []
    return [*command, *flags, *sandbox, *transport.extra_args]


def variables(context: LaunchContext, program: CliProgram, home: Path) -> dict[str, str]:
    """What the CLI is given beside the caller's own variables; `home` is the overlay."""
    transport, options = context.transport, context.options
    given = disarming_variables(context, program)
    given |= {"GEMINI_CLI_HOME": str(home), "NO_COLOR": "1", "NO_BROWSER": "true"}
    if not transport.relaunch:
        # The first process would only start a second one, and swallow the signals meant for it.
        given["GEMINI_CLI_NO_RELAUNCH"] = "true"
    if not has(program.version, OWN_HOME):
        # It knows no home but the user's; the settings of the system are above that one's.
        given["GEMINI_CLI_SYSTEM_SETTINGS_PATH"] = str(home / ".gemini" / "settings.json")
    predates_flag = not has(program.version, SKIP_TRUST)
    if options.trust_workspace or (options.trust_workspace is None and predates_flag):
        given["GEMINI_CLI_TRUST_WORKSPACE"] = "true"
    if replaced_prompt(options) is not None:
        given["GEMINI_SYSTEM_MD"] = str(home / SYSTEM_PROMPT_FILE)
    if not transport.shared_tmp:
        given["TMPDIR"] = str(home / SCRATCH_FOLDER)
    if isinstance(transport.sandbox, str):
        given["GEMINI_SANDBOX"] = transport.sandbox
    if program.node is not None and program.node.version >= (COMPILE_CACHE_NODE, 0, 0):
        given |= _compile_cache_variables(context.agent_folders)
    return given


def replaced_prompt(options: Options) -> str | None:
    """The system prompt that takes the place of the CLI's own."""
    return (options.system_prompt or None) if options.replace_system_prompt else None


def without_proxy(env: Mapping[str, str]) -> dict[str, str]:
    """No proxy stands between the CLI and this process."""
    names = ("NO_PROXY", "no_proxy")
    known = next((env[name] for name in names if env.get(name)), "")
    return dict.fromkeys(names, f"{known},127.0.0.1" if known else "127.0.0.1")


def compile_cache() -> Path:
    """Where Node keeps compiled code: ours alone, since what lies there is run."""
    import platformdirs

    return platformdirs.user_cache_path("geminorum") / "node-compile-cache"


def _compile_cache_variables(folders: Sequence[Path]) -> dict[str, str]:
    """A cache only: where it cannot be written, or the agent could, the CLI starts a little
    later."""
    folder = compile_cache()
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_within(folder, folders):
            return {NO_COMPILE_CACHE: "1"}
        return {"NODE_COMPILE_CACHE": str(folder)}
    return {}


def _half_of_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**21
    except (AttributeError, ValueError, OSError):
        return None
