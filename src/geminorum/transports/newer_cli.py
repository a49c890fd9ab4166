"""A word about a CLI that came after this release of geminorum."""

from __future__ import annotations

import warnings

from geminorum.detect import Version, version_text
from geminorum.errors import NewerCliWarning

NEWEST_TRIED: Version = (0, 61, 0)
"""The newest CLI in docs/versions.md; the same as `install.PINNED_CLI`, which is slow to import."""

_warned: set[Version] = set()


def warn_if_newer(version: Version | None) -> None:
    """Warns once per version; None is a program whose version nobody knows."""
    if version is None or version[:2] <= NEWEST_TRIED[:2] or version in _warned:
        return
    _warned.add(version)
    newer, newest = version_text(version), version_text(NEWEST_TRIED)
    text = (
        f"Gemini CLI {newer} is newer than {newest}, the newest that geminorum was tested with; "
        "`geminorum doctor --try` tests it in seconds, offline"
    )
    warnings.warn(text, NewerCliWarning, stacklevel=2)
