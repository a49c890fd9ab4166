"""A script that Node loads ahead of the CLI: it asks us before each request to a model."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from geminorum.auth import auth_mode
from geminorum.detect import CliProgram
from geminorum.errors import Unsupported
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.preloads.scripts import script_text

_SCRIPT, _ADDRESS = "request_gate.cjs", "request_gate.json"
_NOT_BY_FETCH = ("google_account", "compute")
"""Logins whose requests the CLI sends in another way."""


class GateAddress(NamedTuple):
    """Where the script asks, and how it shows who it is."""

    port: int
    path: str
    token: str


class RequestGateScript:
    """The script and its address, in the home of a run."""

    def __init__(self, home: Path, address: GateAddress) -> None:
        self._home, self._address = home, address

    @property
    def node_flag(self) -> str:
        return f"--import={(self._home / _SCRIPT).as_uri()}"

    @property
    def files(self) -> dict[str, str]:
        return {_SCRIPT: script_text(_SCRIPT), _ADDRESS: json.dumps(self._address._asdict())}


def hide_address(home: Path) -> None:
    """Takes the token off the disk before a tool can run: the script knows it."""
    with suppress(OSError):
        (home / _ADDRESS).unlink()


def refuse_ungated(context: LaunchContext, program: CliProgram) -> None:
    """Raises Unsupported where every request has to be counted, and cannot be."""
    gate = context.transport.gate
    if gate is None or not gate.is_strict:
        return
    if program.node is None or context.transport.sandbox:
        raise Unsupported(
            "the fleet has limits, and only requests of the npm package's CLI, without a sandbox, "
            "can be counted",
            hint="install that CLI on the worker: npm install -g @google/gemini-cli",
        )
    if (mode := auth_mode(context.options, context.env).mode) in _NOT_BY_FETCH:
        raise Unsupported(
            f"the fleet has limits, and requests with this login ({mode}) cannot be counted",
            hint="give the worker an API key (GEMINI_API_KEY) or Vertex AI",
        )
