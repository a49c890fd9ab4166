"""The entries of the navigation, in their order."""

from __future__ import annotations

from typing import NamedTuple


class Tab(NamedTuple):
    """One entry of the navigation. It is the current one on every page below its path."""

    title: str
    route: str
    """The name of the route that it opens."""


TABS = (Tab("Inbox", "inbox"), Tab("Runs", "runs"))
