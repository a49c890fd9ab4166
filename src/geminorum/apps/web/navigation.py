"""The entries of the navigation, in their order."""

from __future__ import annotations

from typing import NamedTuple


class Tab(NamedTuple):
    """One entry of the navigation. It is the current one on every page below its path."""

    title: str
    route: str
    """The name of the route that it opens."""
    needs_fleet: bool = False
    """Is it shown only where there is a fleet?"""


TABS = (
    Tab("Inbox", "inbox"),
    Tab("Runs", "runs"),
    Tab("Sessions", "sessions"),
    Tab("Usage", "usage"),
    Tab("Agents", "agents"),
    Tab("Fleet", "fleet", needs_fleet=True),
    Tab("Doctor", "doctor"),
)
