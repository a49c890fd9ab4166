"""The headless Gemini CLI as a door: one process per turn, its stream decoded into events."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geminorum import cost
from geminorum.detect import CliProgram, find_cli
from geminorum.errors import InvalidOptions, Unsupported
from geminorum.events import Event
from geminorum.options import Options
from geminorum.prompt import encoded
from geminorum.redaction import redacted, secrets_in
from geminorum.transports.home import merged, overlaid, selected_auth
from geminorum.transports.process import Child, spawned
from geminorum.wire.argv import arguments, missing_flags
from geminorum.wire.stream_json import StreamDecoder
from geminorum.wire.verdict import Ending, Stop, last_events

_NOT_YET = (
    "policy",
    "allowed_tools",
    "disallowed_tools",
    "max_budget_usd",
    "system_prompt",
    "replace_system_prompt",
    "effort",
    "output_schema",
)

_QUIET_SETTINGS: Mapping[str, Any] = {
    "general": {
        "enableAutoUpdate": False,
        "enableAutoUpdateNotification": False,
        # The CLI would otherwise delete resumed and parallel sessions at its start.
        "sessionRetention": {"enabled": False},
    },
    "privacy": {"usageStatisticsEnabled": False},
}


@dataclass(frozen=True, slots=True)
class Cli:
    """The Gemini CLI, headless, one process per turn."""

    executable: str | os.PathLike[str] | None = None
    """A path or a name; None: what GEMINI_CLI_PATH, PATH and the usual places hold."""
    grace: float = 5.0
    """Seconds between asking the process tree to end and ending it."""
    sandbox: bool | str | None = None
    """True, or the name of the sandbox program ("docker")."""
    extra_args: tuple[str, ...] = ()
    start_timeout: float | None = 60.0
    """Seconds until the first sign of life; None waits for ever."""
    relaunch: bool = False
    """Let the CLI start itself a second time, as it does by hand: half a second slower."""
    heap_mb: int | None = None
    """Memory for the CLI's heap; None: half of the machine's, as the CLI itself would take."""

    @asynccontextmanager
    async def open(self, options: Options) -> AsyncIterator[CliConversation]:
        _refuse_unsupported(options)
        program = await asyncio.to_thread(find_cli, self.executable, _environment(options))
        if missing := missing_flags(options, program.version):
            raise Unsupported(
                f"this CLI is too old for {', '.join(missing)}",
                hint="update it with `npm install -g @google/gemini-cli@latest`",
            )
        yield CliConversation(self, options, program)


class CliConversation:
    """Turns in one session: each resumes what the one before left."""

    def __init__(self, door: Cli, options: Options, program: CliProgram) -> None:
        self._door, self._options, self._program = door, options, program

    @asynccontextmanager
    async def turn(self, prompt: str) -> AsyncIterator[CliTurn]:
        options, door = self._options, self._door
        stdin = encoded(prompt, literal=options.literal)
        cwd, env = _folder(options), _environment(options)
        base = _home(options, env)
        settings = _settings(options, env, selected_auth(base))
        with overlaid(base, settings) as home:
            env |= _variables(door, options, self._program, home)
            command = _command(door, options, self._program)
            async with spawned(command, cwd=cwd, env=env, stdin=stdin, grace=door.grace) as child:
                cost.warm_up()
                turn = CliTurn(child, door, cwd, secrets_in(env))
                try:
                    yield turn
                finally:
                    turn.release()
        if turn.session_id:
            self._options = options.changed(resume=turn.session_id, session_id=None)


class CliTurn:
    """A running process and what its output says."""

    def __init__(self, child: Child, door: Cli, cwd: Path, secrets: list[str]) -> None:
        self._child, self._grace, self._secrets = child, door.grace, secrets
        self._decoder = StreamDecoder(cwd=str(cwd))
        self._began = time.monotonic()
        self._stop: Stop | None = None
        self._limit: float | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._ended = False
        self._deadline = _later(door.start_timeout, self._never_spoke)

    @property
    def session_id(self) -> str | None:
        return self._decoder.session_id

    @property
    def stderr(self) -> str:
        return redacted(self._child.stderr(), self._secrets)

    async def read(self) -> list[Event]:
        while not self._ended:
            chunk = await self._child.read()
            events = self._decoder.feed(chunk) if chunk else self._last_events()
            if events:
                # A consumer that never waits would otherwise keep every other task waiting.
                await asyncio.sleep(0)
                return events
        return []

    async def stop(self, reason: Stop, limit: float | None = None) -> None:
        self._begin_stop(reason, limit)
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    def release(self) -> None:
        """Let go of timers and tasks; the process is the block's to end."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self._stopping is not None:
            self._stopping.cancel()

    def _begin_stop(self, reason: Stop, limit: float | None) -> None:
        if self._stop is not None or self._ended:
            return
        if reason != "cancel" and self._child.exit_code is not None:
            return  # It ended by itself before its time was up.
        self._stop, self._limit = reason, limit
        self._stopping = asyncio.create_task(self._child.stop(self._grace))

    def _never_spoke(self, limit: float) -> None:
        if not self._child.has_spoken:
            self._begin_stop("start_timeout", limit)

    def _last_events(self) -> list[Event]:
        self._ended = True
        return last_events(
            self._decoder,
            Ending(self._child.exit_code, self.stderr, self._stop, self._limit),
            at=time.time_ns() // 1_000_000,
            duration=time.monotonic() - self._began,
            price=cost.cost_of,
        )


def _later(seconds: float | None, callback: Any) -> asyncio.TimerHandle | None:
    if seconds is None:
        return None
    return asyncio.get_running_loop().call_later(seconds, callback, seconds)


def _refuse_unsupported(options: Options) -> None:
    default = Options()
    wanted = [name for name in _NOT_YET if getattr(options, name) != getattr(default, name)]
    if wanted:
        raise Unsupported(
            f"the Cli door cannot honour {', '.join(wanted)} yet",
            hint="leave it out; the changelog says when it arrives",
        )


def _folder(options: Options) -> Path:
    cwd = Path(options.cwd or ".").absolute()
    if not cwd.is_dir():
        raise InvalidOptions(f"cwd {str(cwd)!r} is not a folder", hint=f"mkdir -p {cwd}")
    for extra in options.include_directories:
        if not (cwd / extra).is_dir():
            raise InvalidOptions(f"include_directories: {str(extra)!r} is not a folder")
    return cwd


def _environment(options: Options) -> dict[str, str]:
    return {**os.environ, **options.env}


def _home(options: Options, env: Mapping[str, str]) -> Path:
    return Path(options.home or env.get("GEMINI_CLI_HOME") or Path.home()).absolute()


def _settings(options: Options, env: Mapping[str, str], selected: str | None) -> dict[str, Any]:
    settings = dict(_QUIET_SETTINGS)
    if options.max_turns is not None:
        settings = merged(settings, {"model": {"maxSessionTurns": options.max_turns}})
    if selected is None and _means_api_key(env):
        # With a base URL and no choice made, the CLI would take the URL for a gateway and refuse.
        settings = merged(settings, {"security": {"auth": {"selectedType": "gemini-api-key"}}})
    return settings


def _means_api_key(env: Mapping[str, str]) -> bool:
    others = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA")
    return bool(env.get("GEMINI_API_KEY")) and not any(env.get(name) for name in others)


def _variables(door: Cli, options: Options, program: CliProgram, home: Path) -> dict[str, str]:
    variables = {"GEMINI_CLI_HOME": str(home), "NO_COLOR": "1", "NO_BROWSER": "true"}
    if not door.relaunch:
        # The first process would only start a second one, and swallow the signals meant for it.
        variables["GEMINI_CLI_NO_RELAUNCH"] = "true"
    if options.trust_workspace or (options.trust_workspace is None and _predates_flag(program)):
        variables["GEMINI_CLI_TRUST_WORKSPACE"] = "true"
    if isinstance(door.sandbox, str):
        variables["GEMINI_SANDBOX"] = door.sandbox
    if program.node is not None and program.node.version >= (22, 0, 0):
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


def _command(door: Cli, options: Options, program: CliProgram) -> list[str]:
    command = list(program.command)
    if program.node is not None and (heap := door.heap_mb or _half_of_memory()):
        command.insert(1, f"--max-old-space-size={heap}")
    extra = ["--sandbox", *door.extra_args] if door.sandbox is True else door.extra_args
    return [*command, *arguments(options, version=program.version, extra=extra)]


def _half_of_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**21
    except (AttributeError, ValueError, OSError):
        return None
