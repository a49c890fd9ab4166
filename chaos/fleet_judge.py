"""What a job of the fleet must be like when all is over, whatever happened meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from geminorum import Done, Event, TextDelta
from geminorum.fleet import JobInfo

Numbered = list[tuple[tuple[int, int], Event]]


class Row(NamedTuple):
    """An attempt in the database."""

    number: int
    ending: str | None
    checkpoints: int


@dataclass
class Told:
    """All that is known of a job."""

    whole: str
    """The text of an agent that was not disturbed."""
    live: Numbered = field(default_factory=list)
    later: Numbered = field(default_factory=list)
    info: JobInfo | None = None
    status: str = ""
    """What `result()` has returned or raised."""
    text: str = ""
    was_cancelled: bool = False
    attempts: list[Row] = field(default_factory=list)
    diary: list[dict[str, Any]] = field(default_factory=list)


def violations(told: Told) -> list[str]:
    return [
        *_wrong_events(told.later),
        *_wrong_ending(told),
        *_wrong_texts(told),
        *_wrong_agents(told),
        *([] if told.live == told.later else ["events read live are not those read afterwards"]),
    ]


def _wrong_events(numbered: Numbered) -> Iterator[str]:
    cursors = [cursor for cursor, _ in numbered]
    if cursors != sorted(set(cursors)):
        yield f"cursors are not strictly increasing: {cursors}"
    for attempt, group in itertools.groupby(cursors, key=lambda cursor: cursor[0]):
        numbers = [number for _, number in group]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"attempt {attempt} lacks events: {numbers}"
    dones = [place for place, (_, event) in enumerate(numbered) if isinstance(event, Done)]
    if dones != [len(numbered) - 1]:
        yield f"Done is at {dones} of {len(numbered)} events"


def _wrong_ending(told: Told) -> Iterator[str]:
    allowed = {"success", "interrupted"} if told.was_cancelled else {"success"}
    done = told.later[-1][1] if told.later else None
    found = {told.status, told.info.status if told.info else None, getattr(done, "status", None)}
    if len(found) != 1 or not found <= allowed:
        yield f"it ended as {found}"
    endings = [row.ending for row in told.attempts]
    if None in endings or endings.count("success") != (told.status == "success"):
        yield f"attempts ended as {endings}"
    if "success" in endings[:-1]:
        yield f"an attempt came after the result: {endings}"


def _wrong_texts(told: Told) -> Iterator[str]:
    texts = _texts(told.later)
    for attempt, text in texts.items():
        if not told.whole.startswith(text):
            yield f"attempt {attempt} said {text!r}"
    if told.status != "success":
        return
    last = texts.get(max((row.number for row in told.attempts), default=0))
    if (last, told.text) != (told.whole, told.whole):
        yield f"the last attempt said {last!r}, the result {told.text!r}"


def _texts(numbered: Numbered) -> dict[int, str]:
    groups = itertools.groupby(numbered, key=lambda pair: pair[0][0])
    return {attempt: _text(event for _, event in group) for attempt, group in groups}


def _text(events: Iterator[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def _wrong_agents(told: Told) -> Iterator[str]:
    starts = [note for note in told.diary if note["what"] == "start"]
    finishes = [note for note in told.diary if note["what"] == "finish"]
    yield from (f"agents at the same time: {n}" for n in told.diary if n["what"] == "overlap")
    if len(starts) > len(told.attempts):
        yield f"{len(starts)} agents for {len(told.attempts)} attempts"
    if told.status == "success" and not finishes:
        yield "a success without an agent that came to its end"
    yield from _repeated_prompts(told.attempts, starts)


def _repeated_prompts(attempts: Sequence[Row], starts: list[dict[str, Any]]) -> Iterator[str]:
    """What has a checkpoint is resumed: only agents before the first one got the prompt."""
    fresh = [note for note in starts if note["resumed"] is None]
    first = next((row.number for row in attempts if row.checkpoints), None)
    if first is not None and len(fresh) > first:
        yield f"{len(fresh)} agents got the prompt, and attempt {first} had saved its session"
