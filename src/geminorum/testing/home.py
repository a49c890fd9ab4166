"""A private home for the Gemini CLI, and the environment that sends it there."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from geminorum.system.owned_folder import OwnedFolder

API_KEY = "fake-gemini-key"

_SETTINGS: dict[str, Any] = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {
        "enableAutoUpdate": False,
        "enableAutoUpdateNotification": False,
        "sessionRetention": {"enabled": False},
    },
}


def make_private_home(settings: Mapping[str, Any]) -> OwnedFolder:
    """Makes a directory that only we can read, with settings that keep the CLI offline."""
    home = OwnedFolder("fake-gemini-kept-")
    folder = home.path / ".gemini"
    folder.mkdir(mode=0o700)
    Path(folder, "settings.json").write_bytes(msgspec.json.encode(_merged(_SETTINGS, settings)))
    return home


def environment(url: str, home: Path) -> dict[str, str]:
    """What a child needs on top of its own environment."""
    return {
        "GEMINI_API_KEY": API_KEY,
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_CLI_HOME": str(home),
        **_no_proxy(),
    }


def _no_proxy() -> dict[str, str]:
    # Both spellings, because clients differ in which one they read first.
    theirs = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    value = ",".join(filter(None, (theirs, "127.0.0.1", "localhost")))
    return {"NO_PROXY": value, "no_proxy": value}


def _merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    found = {**ours, **theirs}
    for name in ours.keys() & theirs.keys():
        if isinstance(ours[name], Mapping) and isinstance(theirs[name], Mapping):
            found[name] = _merged(ours[name], theirs[name])
    return found
