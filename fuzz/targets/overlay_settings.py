"""The user's settings file, to the overlay home of a run."""

from __future__ import annotations

import json
from contextlib import suppress

from fuzz.scratch import scratch_folder
from fuzz.target import Target
from fuzz.targets.settings_file import SEEDS, WORDS
from geminorum.auth import read_settings
from geminorum.errors import ConfigError
from geminorum.transports.launch.overlay import Overlay, selected_auth

_OURS = {"hooks": {"BeforeTool": []}, "tools": {"exclude": ["x"]}, "context": {"fileName": "A.md"}}


def run(data: bytes) -> None:
    home = scratch_folder("home")
    file = home / ".gemini" / "settings.json"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    with suppress(ValueError, OSError):
        read_settings(file)
    selected_auth(home)
    for settings in ({}, _OURS):
        place = scratch_folder("overlays")
        with Overlay.create(home, settings, "instructions", place) as overlay:
            json.loads((overlay / ".gemini" / "settings.json").read_bytes())


TARGET = Target("overlay-settings", run, SEEDS, (ConfigError,), words=WORDS)
