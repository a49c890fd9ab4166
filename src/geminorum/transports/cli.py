"""The headless Gemini CLI as a transport: one process per turn, its stream decoded into events."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from geminorum.cost import PriceBook
from geminorum.decisions import Decide, Decisions
from geminorum.detect import CliProgram, find_cli
from geminorum.errors import GeminorumError, InvalidOptions, Unsupported
from geminorum.off_loop import off_loop
from geminorum.options import Options
from geminorum.permissions import check_listed
from geminorum.prompt import Prompt
from geminorum.redaction import secrets_in_settings
from geminorum.tools import Tool, tools_of
from geminorum.transports import require_no_turn, require_open
from geminorum.transports.backchannel import own_tools, reach_of, refuse_unreachable
from geminorum.transports.cli_turn import CliTurn
from geminorum.transports.keeper import KEEPERS
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.policies import refuse_without_hooks
from geminorum.transports.launch.read_guard import check_folders
from geminorum.transports.newer_cli import warn_if_newer
from geminorum.transports.spares import (
    REFILL_DELAY_AFTER_COLD_SECONDS,
    REFILL_DELAY_SECONDS,
    Spare,
    SpareOrder,
    Spares,
    log,
)
from geminorum.transports.watch import StallTimeout
from geminorum.wire.argv import missing_flags

_MOST_SPARES = 64
_NOT_IN_A_BLOCK = (
    "the run starts cold: Cli(spare=%d) keeps CLIs waiting in a block, `async with Cli(…) as cli`, "
    "and between the turns of a chat"
)


@dataclass(frozen=True, slots=True)
class Cli:
    """The Gemini CLI, headless, one process per turn."""

    executable: str | os.PathLike[str] | None = None
    """A path or name. None: search GEMINI_CLI_PATH, PATH and the common locations."""
    grace: float = 5.0
    """Seconds between asking the process tree to stop and killing it."""
    sandbox: bool | str | None = None
    """True, or the name of the sandbox program ("docker")."""
    extra_args: tuple[str, ...] = ()
    start_timeout: float | None = 60.0
    """Seconds until the first output. None: wait forever."""
    stall_timeout: StallTimeout = "auto"
    """Seconds of silence that end a run. "auto": 600, with no limit while a tool runs or a
    permission request is open. None: no limit."""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """CLI settings for these runs; they override the user's and geminorum's: `{"mcpServers": {…}}`,
    `{"general": {"maxAttempts": 1}}`."""
    fresh_if_lost: bool = False
    """If the session to resume is gone, continue in a new one and report that in the stream."""
    prices: PriceBook | None = None
    """The price book. None: the list prices of the day."""
    relaunch: bool = False
    """Let the CLI relaunch itself, as it does by default; half a second slower."""
    heap_mb: int | None = None
    """Heap size of the CLI. None: half of the machine's memory, the CLI's own default."""
    plan_tools: bool = False
    """Offer the tools with which a model in plan mode approves its own plan and goes on in yolo."""
    dotenv: bool = False
    """Read the folder's `.env`, which may send the API key elsewhere."""
    secrets_in_tools: bool = False
    """Let shell tools see keys and tokens in the environment."""
    gemini_folder: bool = False
    """Let file tools write to `.gemini/` and `.agents/`, which affect later runs."""
    outside_links: bool = False
    """Also send context files (GEMINI.md) and skills that the folder links to outside the
    project."""
    shared_tmp: bool = False
    """Let the CLI leave its error reports, which hold whole conversations, in the system's
    temporary folder. Otherwise the run has its own, which is removed at the end."""

    pre_approved: tuple[str, ...] = ()
    """Tools approved in addition to those of the approval mode; unlike `Options.allowed_tools`,
    this does not restrict the others. `run_shell_command(git status)` names a command."""
    tools: Sequence[Callable[..., Any] | Tool] = ()
    """Functions of this process that the agent may call during a run; `decide` is asked about
    them."""
    decide: Decide | None = None
    """Answers permission requests. None: they are denied."""
    decide_timeout: float | None = 300.0
    """Seconds until an unanswered request is denied."""
    answer_attempts: int = 3
    """How often the agent may try to match `output_schema`."""
    spare: int | None = None
    """How many CLIs to start ahead of their prompts, in `async with Cli(spare=…) as cli`. None:
    only `connect()` starts one ahead, for its next turn. 0: none."""
    spare_age: float = 60.0
    """Seconds until a CLI that was started ahead and not used is ended."""
    _spares: Spares | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_door(self, ("start_timeout", "stall_timeout", "grace", "spare_age"))
        _check_spare(self.spare)
        # Once and for all: what was passed may be an iterator.
        object.__setattr__(self, "tools", tools_of(self.tools))
        check_callbacks(self)

    # The CLI itself asks nobody: its hook does, where there is somebody to decide.
    interactive: ClassVar[bool] = False

    def own_settings(self, options: Options) -> Mapping[str, Any]:
        """Settings that this transport needs; the caller's settings override them."""
        turns = options.max_turns
        return {} if turns is None else {"model": {"maxSessionTurns": turns}}

    def secrets(self) -> list[str]:
        """Values that must not appear in a run's errors."""
        return list(secrets_in_settings(self.settings))

    def deciding(self, decide: Decide) -> Cli:
        """Returns a copy with another `decide`."""
        return replace(self, decide=decide)

    def open(self, options: Options) -> CliConversation:
        return CliConversation(self, options, self._spares)

    async def __aenter__(self) -> Cli:
        """Starts CLIs ahead for runs with the same options; leaving the block ends them:

        ```python
        async with Cli(spare=2) as cli:
            first = await ask("Say hello", via=cli)
            second = await ask("Say it again", via=cli)  # starts in a tenth of a second
        ```
        """
        if self._spares is not None:
            raise GeminorumError("this Cli is already open", hint="make another: Cli(spare=…)")
        count = 1 if self.spare is None else self.spare
        loop = asyncio.get_running_loop()
        spares = Spares(count, self.spare_age, renews=True, loop=loop)
        object.__setattr__(self, "_spares", spares)
        return self

    async def __aexit__(self, *_: object) -> None:
        spares = self._spares
        object.__setattr__(self, "_spares", None)
        if spares is not None:
            await spares.close()


class CliConversation:
    """Turns in one session: each resumes what the one before left."""

    phase = "looking for the CLI"
    """What takes the time when this is opened."""

    def __init__(self, door: Cli, options: Options, shared: Spares | None = None) -> None:
        self._door, self._options = door, options
        self._shared = shared
        """What runs with the same options share."""
        self._own = Spares(1, door.spare_age, renews=False)
        """For the next turn of this conversation."""
        self.reach = reach_of(door, options)
        self._program: CliProgram | None = None
        self._turn: CliTurn | None = None

    async def __aenter__(self) -> CliConversation:
        # In a thread: it reads files, and to learn a Node's version a process may have to start.
        self._program = await off_loop(self._checked_program)
        return self

    def _checked_program(self) -> CliProgram:
        """Finds the CLI. Refuses what it cannot do before anything starts."""
        door, options = self._door, self._options
        own = {tool.name for tool in own_tools(door)}
        check_listed((*(options.allowed_tools or ()), *options.disallowed_tools), own, stacklevel=2)
        KEEPERS.prepare()
        context = LaunchContext(door, options)
        found = find_cli(door.executable, context.env)
        warn_if_newer(found.version)
        if missing := missing_flags(options, found.version, door.pre_approved):
            raise Unsupported(
                f"this CLI is too old for {', '.join(missing)}",
                hint="update it with `npm install -g @google/gemini-cli@latest`",
            )
        if self.reach:
            refuse_unreachable(door, options, found)
        if self.reach.asked:
            refuse_without_hooks(context)
        check_folders(context, found)
        return found

    async def __aexit__(self, *_: object) -> None:
        self._program = None
        try:
            if self._turn is not None:
                await self._turn.stop("cancel")
        finally:
            await self._own.close()

    def prepare_turn(self) -> None:
        """Starts the CLI of the next turn ahead of its prompt."""
        if self._program is not None and self._door.spare != 0:
            self._own.refill(self.order_for(self._options))

    async def take_spare(self, options: Options) -> Spare | None:
        """A CLI that was started ahead and would run exactly as one that starts now."""
        order = self.order_for(options)
        if (found := await self._own.take(order)) is not None or self._shared is None:
            if found is None and self._door.spare:
                log.debug(_NOT_IN_A_BLOCK, self._door.spare)
            return found
        found = await self._shared.take(order)
        delays = REFILL_DELAY_SECONDS, REFILL_DELAY_AFTER_COLD_SECONDS
        self._shared.refill(order, delays[found is None])
        return found

    def order_for(self, options: Options) -> SpareOrder:
        """What a CLI that is started ahead for these options starts with."""
        assert self._program is not None
        return SpareOrder(self._door, options, self._program, self.reach)

    def turn(self, prompt: Prompt) -> CliTurn:
        require_open(is_open=self._program is not None)
        assert self._program is not None
        return CliTurn(self, self._door, self._options, self._program, prompt)

    def begun(self, turn: CliTurn) -> None:
        require_no_turn(self._turn)
        self._turn = turn

    def ended(self, turn: CliTurn) -> None:
        """Takes over the session of a turn, once the CLI has really stored it."""
        if self._turn is turn:
            self._turn = None
        if self._shared is not None and self._program is not None:
            self._shared.refill(self.order_for(self._options))
        if turn.is_rolled_back and self._options.resume != turn.session_id:
            return  # After a first prompt that failed there is nothing to resume.
        if turn.session_id:
            self._options = self._options.changed(resume=turn.session_id, session_id=None)


def check_door(door: Any, seconds: tuple[str, ...]) -> None:
    """Refuses fields that cannot be meant so."""
    if isinstance(door.extra_args, str):
        raise InvalidOptions("extra_args takes a tuple", hint=f"({door.extra_args!r},)")
    if door.prices is not None and not isinstance(door.prices, PriceBook):
        raise InvalidOptions(f"prices={door.prices!r}", hint="prices=PriceBook({…})")
    for name in seconds:
        _check_seconds(name, getattr(door, name))
    if not isinstance(door.settings, Mapping):
        # Only its kind: it may hold keys.
        kind = type(door.settings).__name__
        raise InvalidOptions(f"settings is a {kind}", hint='settings={"mcpServers": {…}}')
    try:
        json.dumps(door.settings)
    except (TypeError, ValueError) as error:
        raise InvalidOptions(f"settings: {error}", hint="what JSON can say, no more") from error


def _check_spare(count: object) -> None:
    if count is not None and (
        not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= _MOST_SPARES
    ):
        hint = f"a number from 0 to {_MOST_SPARES}; each takes about 200 MB"
        raise InvalidOptions(f"spare={count!r}", hint=hint)


def _check_seconds(name: str, value: object) -> None:
    if (value is None and name not in ("grace", "spare_age")) or (
        name == "stall_timeout" and value == "auto"
    ):
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise InvalidOptions(f"{name}={value!r}", hint="a number of seconds, 0 or more")


def check_callbacks(door: Any) -> None:
    """Refuses functions, and whoever decides, that cannot be called."""
    for tool in own_tools(door):
        if tool.function is None:
            hint = "give it a function: nobody else can answer the CLI"
            raise InvalidOptions(f"tool {tool.name} is only declared", hint=hint)
    Decisions(door.decide, door.decide_timeout)
    attempts: object = door.answer_attempts
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise InvalidOptions(f"answer_attempts={attempts!r}", hint="a number, 1 or more")
