"""A launch as data: two equal plans start the same process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from geminorum.detect import CliProgram
from geminorum.errors import InvalidOptions
from geminorum.options import Options
from geminorum.transports.launch.command import (
    SCRATCH_FOLDER,
    SYSTEM_PROMPT_FILE,
    Preload,
    replaced_prompt,
    variables,
    without_proxy,
)
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.overlay import HomePlan, plan_home, selected_auth
from geminorum.transports.launch.preloads.request_gate import GateAddress
from geminorum.transports.launch.run_policy import POLICY_FILE, with_policy
from geminorum.transports.launch.settings import run_settings
from geminorum.transports.launch.transport import CliTransport
from geminorum.transports.launch.unrecorded import Unrecorded
from geminorum.wire.policy.toml_writer import OwnTools

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """All that the start of a CLI fixes."""

    command: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    home: HomePlan
    settings: str
    """Those of the home as text. In Python, 1 equals True; the CLI tells them apart."""
    unrecorded: Unrecorded | None = None
    """For a CLI that is started ahead, which notes all else that its start depends on."""

    @property
    def policy(self) -> str | None:
        """The text of the policy file; None for an older CLI, which has none."""
        return self.home.files.get(POLICY_FILE)

    def difference(self, other: LaunchPlan) -> str | None:
        """In words; None if there is none."""
        names = [name for name in self.__slots__ if getattr(self, name) != getattr(other, name)]
        if names == ["unrecorded"] and self.unrecorded and other.unrecorded:
            return self.unrecorded.difference(other.unrecorded)
        return f"{', '.join(names)} would be different" if names else None


class CommandMaker(Protocol):
    """`headless_command` or `warm_command`."""

    def __call__(
        self,
        transport: CliTransport,
        options: Options,
        program: CliProgram,
        policies: Sequence[str],
        preloads: Sequence[Preload],
    ) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Reachable:
    """What the CLI can reach in this process."""

    own: OwnTools
    asked: Sequence[str] = ()
    """The tools that `decide` is asked about, as policies name them."""
    admit: Callable[[Settings], Settings] = lambda theirs: {}
    """What lets the CLI connect to our server, beside the settings that it has."""
    connects: bool = True
    gate: GateAddress | None = None
    """Where it asks before each request to a model; None: nowhere."""


def plan_launch(
    context: LaunchContext,
    program: CliProgram,
    home: Path,
    *,
    make_command: CommandMaker,
    preloads: Sequence[Preload],
    reachable: Reachable,
) -> LaunchPlan:
    """Works out what to start with an overlay at `home`. Writes nothing there."""
    options = context.options
    plan = with_policy(
        _planned_home(context, preloads),
        context,
        program,
        admit=reachable.admit,
        asked=reachable.asked,
        own=reachable.own,
    )
    policies = [str(home / POLICY_FILE)] if POLICY_FILE in plan.files else []
    command = make_command(context.transport, options, program, policies, preloads)
    env = {**context.env, **variables(context, program, home)}
    if reachable.connects:
        env |= without_proxy(context.env)
    text = _settings_text(plan)
    # What the caller changes from now on is for the next launch: the plan is to have its own.
    plan = replace(plan, settings=json.loads(text))
    return LaunchPlan(tuple(command), context.cwd, env, plan, text)


def _settings_text(plan: HomePlan) -> str:
    try:
        return json.dumps(plan.settings)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOptions(f"settings: {error}", hint="what JSON can say, no more") from error


def _planned_home(context: LaunchContext, preloads: Sequence[Preload]) -> HomePlan:
    options = context.options
    settings = run_settings(context, selected_auth(context.home))
    instructions = None if options.replace_system_prompt else options.system_prompt
    plan = plan_home(context.home, settings, instructions)
    files = {name: text for script in preloads for name, text in script.files.items()}
    if (prompt := replaced_prompt(options)) is not None:
        files[SYSTEM_PROMPT_FILE] = prompt
    scratch = () if context.transport.shared_tmp else (SCRATCH_FOLDER,)
    return replace(plan.with_files(files), folders=scratch)
