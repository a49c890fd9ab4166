"""A line of saved events, to the event."""

from __future__ import annotations

from fuzz.seeds import stream_recordings
from fuzz.soundness import require_sound
from fuzz.target import Target
from geminorum.events import decode, encode
from geminorum.wire.stream_json.verdict import replay

_SEEDS = tuple(
    {type(event): encode(event) for text in stream_recordings() for event in replay(text)}.values()
)


def run(data: bytes) -> None:
    for line in data.split(b"\n"):
        try:
            event = decode(line)
        except ValueError:
            continue
        require_sound([event])


TARGET = Target("event-lines", run, _SEEDS)
