"""Checks whether a run can work; each problem comes with its fix."""

from __future__ import annotations

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
    options = options or Options()
    env = environment_of(options)
    executable = via.executable if via else None
    checks = [
        found_check(executable, env),
        node_check(executable, env),
        version_check(executable, env, options),
        auth_check(options, env),
        base_url_check(options, env),
        trust_check(options, env),
        cwd_check(options.cwd),
        settings_check(options, env),
        policies_check(options, env),
        state_check(options, env),
    ]
    return [*checks, live_check(options, via, live_timeout)] if live else checks
