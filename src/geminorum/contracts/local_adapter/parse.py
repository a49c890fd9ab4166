"""What the CLI printed to events, and events to the parts of a result."""

from __future__ import annotations

from collections.abc import Iterable

from geminorum.events import Event, Usage
from geminorum.views.result import result
from geminorum.wire.stream_json import StreamDecoder
from geminorum.wire.verdict import Ending, last_events


def parse_ndjson_lines(stdout: str | bytes | Iterable[str | bytes]) -> list[Event]:
    """The events of what was printed: one JSON object a line, bad lines told and passed over.

    A `Done` stands at the end where a `result` was printed, so a run may be read while it goes on.
    """
    lines = [stdout] if isinstance(stdout, str | bytes) else stdout
    seen = StreamDecoder()
    events = [event for line in lines for event in seen.feed(_whole(line))]
    return [*events, *(last_events(seen, Ending(None)) if seen.result else seen.close())]


def extract_session_id(events: Iterable[Event]) -> str | None:
    """The session to go on with later."""
    return result(events).session_id


def extract_output(events: Iterable[Event]) -> str:
    """All that the agent said. The prompt, echoed, is not part of it."""
    return result(events).text


def extract_usage(events: Iterable[Event]) -> Usage | None:
    """The tokens; None where none were told."""
    return result(events).usage


def extract_model_id(events: Iterable[Event]) -> str | None:
    """The model that did most of the work, else the one that was asked for."""
    return result(events).model


def _whole(line: str | bytes) -> bytes:
    data = line.encode("utf-8", "replace") if isinstance(line, str) else line
    return data if data.endswith(b"\n") else data + b"\n"
