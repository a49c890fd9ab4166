"""Where the permission requests of a conversation come from, for those who answer elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geminorum.decisions import Approvals, Decisions, Place
from geminorum.options import Options
from geminorum.transports.secrets import redactor_of


def decisions_of(transport: Any, options: Options) -> Decisions:
    """What asks the transport's `decide` for one conversation."""
    if not isinstance(transport.decide, Approvals):
        return Decisions(transport.decide, transport.decide_timeout)
    place = Place(
        cwd=str(Path(options.cwd or ".").expanduser().absolute()),
        transport=type(transport).__name__.lower(),
        redact=redactor_of(options, transport).text,
    )
    return Decisions(transport.decide, transport.decide_timeout, place)
