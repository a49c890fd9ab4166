"""Warnings and advice about a CLI that came after this release of geminorum."""

from __future__ import annotations

import warnings

from geminorum.detect import Version, version_text
from geminorum.errors import NewerCliWarning

NEWEST_TRIED: Version = (0, 61, 0)
"""The newest CLI in docs/versions.md; the same as `install.PINNED_CLI`, which is slow to import."""

_warned: set[Version] = set()


def warn_if_newer(version: Version | None) -> None:
    """Warns once per version; None is a program of unknown version."""
    if version is None or not is_newer(version) or version in _warned:
        return
    _warned.add(version)
    text = f"{_comparison(version)}; `geminorum doctor --try` tests it in seconds, offline"
    warnings.warn(text, NewerCliWarning, stacklevel=2)


def is_newer(version: Version | None) -> bool:
    return version is not None and version[:2] > NEWEST_TRIED[:2]


def advice_if_newer(version: Version | None) -> str:
    """What to do where it refuses what we say; empty for a version that was tried."""
    if version is None or not is_newer(version):
        return ""
    return (
        f"{_comparison(version)}: update geminorum, or install that one with "
        f"`npm install -g @google/gemini-cli@{version_text(NEWEST_TRIED)}`"
    )


def _comparison(version: Version) -> str:
    newer, newest = version_text(version), version_text(NEWEST_TRIED)
    return f"Gemini CLI {newer} is newer than {newest}, the newest that geminorum was tested with"
