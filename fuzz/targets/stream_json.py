"""What a headless CLI prints, to events."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.seeds import stream_recordings
from fuzz.soundness import require_one_done, require_same_in_pieces, require_sound
from fuzz.target import Target
from geminorum.events import Event
from geminorum.wire.ending import Ending
from geminorum.wire.stream_json.decoder import StreamDecoder
from geminorum.wire.stream_json.verdict import last_events


def run(data: bytes) -> None:
    for exit_code in (0, 1):
        events = require_same_in_pieces(lambda pieces: _read(pieces, exit_code), data)  # noqa: B023
    require_one_done(events)
    require_sound(events)


def _read(pieces: Iterable[bytes], exit_code: int) -> list[Event]:
    decoder = StreamDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return [*events, *last_events(decoder, Ending(exit_code, "Error: quota"))]


TARGET = Target("stream-json", run, stream_recordings())
