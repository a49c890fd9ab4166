"""The command `geminorum`: arguments in, an exit code out."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; never raises for what a user can do wrong. The codes are in `exits`."""
    from geminorum.apps.command.app import called

    return called(argv)
