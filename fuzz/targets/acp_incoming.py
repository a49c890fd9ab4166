"""What a warm CLI says, to events and to the answers that it gets."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fuzz.seeds import acp_recordings
from fuzz.soundness import Unsound, require_one_done, require_sound
from fuzz.target import Target
from geminorum.decisions import CANCELLED, Allow, Decision, Deny
from geminorum.events import Event
from geminorum.wire.acp import protocol as acp
from geminorum.wire.acp.decoder import AcpDecoder, omits_input
from geminorum.wire.acp.verdict import TurnEnding, last_events, reported
from geminorum.wire.ending import Ending
from geminorum.wire.lines import Lines

_DECISIONS: tuple[Decision | None, ...] = (Allow(), Deny("no"), None)


def run(data: bytes) -> None:
    lines = Lines()
    messages = [acp.message_of(line) for line in [*lines.feed(data), lines.rest()]]
    decoder, reply, error = AcpDecoder("s", own=("add",)), None, None
    events: list[Event] = []
    for message in filter(None, messages):
        events += _events(decoder, message)
        error = message.error or error
        reply = _reply(message) or reply
    ending = TurnEnding(Ending(None), reply, error)
    events += last_events(decoder, ending)
    require_one_done(events)
    require_sound(events)


def _events(decoder: AcpDecoder, message: acp.Message) -> Iterator[Event]:
    if message.method == "session/update":
        if (told := acp.decoded(message.params, acp.Told)) is not None:
            yield from decoder.update(told.update, 0)
    elif message.method == "session/request_permission":
        if (question := acp.decoded(message.params, acp.Question)) is not None:
            yield from _asked(decoder, message, question)
    elif message.method is not None and message.id is not None:
        _require_line(acp.refusal(message.id, message.method), message.id)


def _asked(decoder: AcpDecoder, message: acp.Message, question: acp.Question) -> Iterator[Event]:
    assert isinstance(message.params, msgspec.Raw)
    request = decoder.question(question, message.params, 0)
    omits_input(question.tool_call)
    for decision in _DECISIONS:
        _require_line(acp.answer(message.id, acp.choice(question, decision)), message.id)
        yield from decoder.open_request(request, 0)
        yield from decoder.close_request(request, decision or CANCELLED, 0, asked=False)
    yield from decoder.add_unseen(question.tool_call.tool_call_id, "read_file", "told", True, 0)


def _reply(message: acp.Message) -> acp.Prompted | None:
    if message.method is not None:
        return None
    for kind in (acp.Opened, acp.Initialized):
        answer = acp.decoded(message.result, kind)
        if isinstance(answer, acp.Initialized):
            acp.version_of(answer)
    if message.error is not None:
        reported(message.error, Ending(None, ""))
    try:
        return acp.prompted_of(message)
    except msgspec.MsgspecError:
        return None


def _require_line(line: bytes, number: int | str | None) -> None:
    """An answer is one line, and goes to whoever asked."""
    again = acp.message_of(line)
    if line.count(b"\n") != 1 or again is None or again.id != number:
        raise Unsound(f"an answer that is none: {line[:200]!r}")


TARGET = Target("acp-incoming", run, acp_recordings("in"), words=(b"__", b"[in ] (", b"mcp_"))
