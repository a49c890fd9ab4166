"""Parses the CLI's output into events, and extracts the parts of a result from them."""

from __future__ import annotations

from collections.abc import Iterable

from geminorum.adapter_parts import Ending, StreamDecoder, last_events
from geminorum.events import Event, Usage
from geminorum.views.result import result


def parse_ndjson_lines(stdout: str | bytes | Iterable[str | bytes]) -> list[Event]:
    """Parses output of one JSON object per line into events; bad lines are reported and skipped.

    The last event is a `Done` if there was a `result`, so you can parse a run in progress.
    """
    lines = [stdout] if isinstance(stdout, str | bytes) else stdout
    seen = StreamDecoder()
    events = [event for line in lines for event in seen.feed(_whole(line))]
    return [*events, *(last_events(seen, Ending(None)) if seen.result else seen.close())]


def extract_session_id(events: Iterable[Event]) -> str | None:
    """Returns the session to resume later."""
    return result(events).session_id


def extract_output(events: Iterable[Event]) -> str:
    """Returns all text of the agent, without the echoed prompt."""
    return result(events).text


def extract_usage(events: Iterable[Event]) -> Usage | None:
    """Returns the tokens; None if none were reported."""
    return result(events).usage


def extract_model_id(events: Iterable[Event]) -> str | None:
    """Returns the model that did most of the work, else the one requested."""
    return result(events).model


def _whole(line: str | bytes) -> bytes:
    data = line.encode("utf-8", "replace") if isinstance(line, str) else line
    return data if data.endswith(b"\n") else data + b"\n"
