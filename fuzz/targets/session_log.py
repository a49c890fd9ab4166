"""A session file, to a session, a line in a listing, a bill and a tail."""

from __future__ import annotations

from fuzz.scratch import scratch_file
from fuzz.seeds import session_recordings
from fuzz.soundness import require_one_done, require_sound
from fuzz.target import Target
from geminorum import sessions
from geminorum.errors import SessionUnreadable
from geminorum.sessions.summary import info_of
from geminorum.sessions.tailing import FileTail
from geminorum.usage.billing import bill_of
from geminorum.wire.sessions.events import events_of

_WORDS = (
    b'{"$rewindTo":"a"}\n',
    b'{"$set":{"messages":[]}}\n',
    b'"functionResponse"',
    b"_response",
)

_RECORDS = (
    b'{"id":"m@@","type":"user","content":"x"}\n',
    b'{"id":"z","type":"user","content":"x"}\n{"$rewindTo":"z"}\n',
    b'{"id":"m@@","type":"gemini","content":"y","model":"m@@","tokens":{"input":1}}\n',
    b'{"$set":{"messages":[{"id":"m@@","type":"user","content":"x"}]}}\n',
    b'{"id":"m@@","type":"gemini","toolCalls":[{"id":"c@@","name":"t","result":[{"a":1}]}]}\n',
    b'{"$rewindTo":"m@@"}\n',
)


def run(data: bytes) -> None:
    for suffix in (".jsonl", ".json"):
        file = scratch_file("session", f"session-2026-01-01T00-00-abcdef12{suffix}", data)
        info_of(file, file.parent)
        bill_of(file)
        for message in FileTail(file).messages():
            require_sound(events_of(message))
    try:
        session = sessions.load(file)
    except SessionUnreadable:
        return
    events = list(session.events())
    require_one_done(events)
    require_sound(events)
    repr((session.title, session.usage, session.subagents))


TARGET = Target(
    "session-log", run, session_recordings(), (SessionUnreadable,), words=_WORDS, repeated=_RECORDS
)
