"""Checks whether a run can work; each problem comes with its fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from geminorum.doctor.files import policies_check, settings_check
from geminorum.doctor.finding import Check, Level
from geminorum.doctor.folders import cwd_check, instructions_check, state_check
from geminorum.doctor.live import live_check
from geminorum.doctor.login import auth_check, base_url_check
from geminorum.doctor.mending import Remedy, remedy_for
from geminorum.doctor.program import cli_check, found_check, node_check, version_check
from geminorum.doctor.trust import trust_check
from geminorum.doctor.trying import try_cli
from geminorum.environment import environment_of
from geminorum.options import Options

if TYPE_CHECKING:
    from geminorum.transports.cli.transport import Cli

__all__ = [
    "Check",
    "Level",
    "Remedy",
    "auth_check",
    "base_url_check",
    "check",
    "checks",
    "cli_check",
    "cwd_check",
    "found_check",
    "instructions_check",
    "live_check",
    "node_check",
    "policies_check",
    "remedy_for",
    "settings_check",
    "state_check",
    "trust_check",
    "try_cli",
    "version_check",
]


def check(
    options: Options | None = None,
    live: bool = False,
    *,
    via: Cli | None = None,
    live_timeout: float = 20.0,
) -> list[Check]:
    """Runs all checks, always in the same order. A broken setup is a finding, not an exception.

    Writes nothing to the user's folders. `live` also sends a short prompt to the model.
    """
    return list(checks(options, live, via=via, live_timeout=live_timeout))


def checks(
    options: Options | None = None,
    live: bool = False,
    *,
    via: Cli | None = None,
    live_timeout: float = 20.0,
) -> Iterator[Check]:
    """The same, one by one: each check runs when you ask for it, and may take a second."""
    options = options or Options()
    env = environment_of(options)
    executable = via.executable if via else None
    steps: list[Callable[[], Check]] = [
        partial(found_check, executable, env),
        partial(node_check, executable, env),
        partial(version_check, executable, env, options),
        partial(auth_check, options, env),
        partial(base_url_check, options, env),
        partial(trust_check, options, env),
        partial(cwd_check, options.cwd),
        partial(settings_check, options, env),
        partial(policies_check, options, env),
        partial(state_check, options, env),
    ]
    if live:
        steps.append(partial(live_check, options, via, live_timeout))
    return (step() for step in steps)
