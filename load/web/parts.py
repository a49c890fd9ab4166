"""What the measurements share: where they run, and what they measure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from load.web.browser import MeasuredBrowser


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a measurement takes place."""

    place: Path
    stand_in: Path
    """A program that plays the CLI."""
    browser: MeasuredBrowser
