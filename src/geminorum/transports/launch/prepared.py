"""A launch on disk: an overlay home and the plan that it was made by, ready to be started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from geminorum.detect import CliProgram
from geminorum.redaction import redacted, secrets_in
from geminorum.transports.launch.command import Preload
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.control_place import place_outside
from geminorum.transports.launch.overlay import Overlay
from geminorum.transports.launch.plan import CommandMaker, LaunchPlan, Reachable, plan_launch
from geminorum.transports.launch.preloads.network_log import NetworkLog
from geminorum.transports.launch.preloads.read_guard import ReadGuard
from geminorum.transports.launch.preloads.request_gate import RequestGateScript
from geminorum.transports.launch.preloads.start_record import StartRecorder
from geminorum.transports.launch.run_policy import refuse_exposed
from geminorum.transports.launch.unrecorded import look_around
from geminorum.wire.launch.settings_file import merged

Announce = Callable[[Mapping[str, Any], Path], Mapping[str, Any]]
"""Settings and a home in, more settings out: those that lead the CLI to our server."""


class PreparedLaunch:
    """Makes the overlay home; leaving the block removes it."""

    def __init__(
        self,
        context: LaunchContext,
        program: CliProgram,
        *,
        make_command: CommandMaker,
        reachable: Reachable,
        announce: Announce,
        records_start: bool = False,
    ) -> None:
        """`records_start`: the CLI starts ahead of its prompt, and notes what it looks at."""
        self._program, self._make_command, self._reachable = program, make_command, reachable
        self._base = context.home
        self._overlay = Overlay(context.home, place_outside(context.agent_folders))
        try:
            self.guard = self._guard_for(context)
            self.network = NetworkLog(self.home)
            self.recorder = StartRecorder(self.home) if records_start else None
            self.plan = self.plan_for(context)
            refuse_exposed(context, [self.home], self.plan.policy)
        except BaseException:
            self._overlay.remove()
            raise
        settings = self.plan.home.settings
        self.settings = merged(settings, announce(settings, self.home))
        self._overlay.write(replace(self.plan.home, settings=self.settings))
        self._secrets = secrets_in(self.plan.env)

    @property
    def home(self) -> Path:
        """The overlay."""
        return self._overlay.path

    def fileno(self) -> int:
        """The lock that keeps the overlay while it is in use."""
        return self._overlay.fileno()

    def plan_for(self, context: LaunchContext) -> LaunchPlan:
        """What would be started now, in these surroundings, in the same overlay."""
        plan = plan_launch(
            context,
            self._program,
            self.home,
            make_command=self._make_command,
            preloads=self._preloads(context),
            reachable=self._reachable,
        )
        if self.recorder is None:
            return plan
        return replace(plan, unrecorded=look_around(context, plan.home.settings, plan.env))

    def _preloads(self, context: LaunchContext) -> list[Preload]:
        loaded: list[Preload] = [self._guard_for(context), self.network]
        if (address := self._reachable.gate) is not None:
            loaded.append(RequestGateScript(self.home, address))
        return loaded if self.recorder is None else [*loaded, self.recorder]

    def _guard_for(self, context: LaunchContext) -> ReadGuard:
        return ReadGuard(self.home, context.transport, context.folders)

    def clean(self, text: str) -> str:
        """The text without secrets, and with the user's home in place of the overlay."""
        # The overlay is gone when somebody reads this; what it stood for is not.
        return redacted(text.replace(str(self.home), str(self._base)), self._secrets)

    def __enter__(self) -> PreparedLaunch:
        return self

    def __exit__(self, *_: object) -> None:
        self._overlay.remove()
