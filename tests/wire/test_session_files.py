"""Session files of every CLI version: what is in them, however they are broken."""

import json
import shutil
import tracemalloc
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminorum import events, sessions
from geminorum.errors import SessionUnreadable
from geminorum.sessions.reading import Session, index_of, messages_at
from geminorum.wire.sessions.records import (
    CONTEXT,
    SavedMessage,
    is_context,
    message_of,
    record_of,
    text_of,
)
from recorded import OURS
from recorded import RECORDINGS as RUNS

RECORDINGS = RUNS / "sessions"
WIPED = RECORDINGS / "0.61.0/same_minute_resume_then_wiped.jsonl"
TOOLS = RECORDINGS / "0.61.0/session-2026-11-15T19-18-8e0e914b.jsonl"
TOP = {"sessionId": "s", "projectHash": "p", "startTime": "2026-01-01T00:00:00.000Z"}


def log(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def said(id: str, text: object, kind: str = "user", **more: object) -> dict[str, object]:
    return {"id": id, "timestamp": "2026-01-01T00:00:01.000Z", "type": kind, "content": text} | more


def folded(data: bytes) -> list[SavedMessage]:
    index = index_of(BytesIO(data))
    return list(messages_at(BytesIO(data), index.places.values())) if index else []


def texts(data: bytes) -> list[str]:
    return [text_of(message.content) for message in folded(data)]


@pytest.fixture
def session(tmp_path):
    def write(data: bytes, name: str = "session-x.jsonl") -> Session:
        (tmp_path / name).write_bytes(data)
        return sessions.load(tmp_path / name)

    return write


# ---- what real CLIs wrote


@pytest.mark.parametrize(
    ("name", "messages", "requests", "tokens", "calls", "title"),
    [
        ("0.11.3/session-2026-11-15T19-18-51286bac.json", 5, 4, 520, 4, "[[calls read_file"),
        ("0.11.3/session-2026-11-15T19-18-fec5a2a0.json", 2, 1, 130, 0, "hello"),
        ("0.29.0/session-2026-11-15T19-19-cdf813c0.json", 5, 4, 520, 4, "[[calls read_file"),
        ("0.29.0/session-2026-11-15T19-19-a2148b75.json", 2, 1, 130, 0, "hello"),
        ("0.40.1/session-2026-11-15T19-19-2c3a5614.jsonl", 5, 4, 520, 4, "[[calls read_file"),
        ("0.40.1/session-2026-11-15T19-19-dc42d41f.jsonl", 2, 1, 130, 0, "hello"),
        ("0.61.0/after_api_error.jsonl", 1, 0, 0, 0, ""),
        ("0.61.0/after_sigterm.jsonl", 2, 0, 0, 0, "[[slow 9]]"),
        ("0.61.0/at_file_expanded.jsonl", 3, 1, 130, 0, "explain @notes.txt via stdin"),
        ("0.61.0/session-2026-11-15T19-18-8e0e914b.jsonl", 11, 5, 650, 5, "[[calls read_file"),
        ("0.61.0/session_id_prefix_collision.jsonl", 5, 2, 260, 0, "PONG"),
        ("0.61.0/subagent/session-2026-11-15T19-18-86c3ef34.jsonl", 5, 2, 260, 1, "[[call invoke"),
        ("0.61.0/same_minute_resume_then_wiped.jsonl", 17, 8, 1040, 4, "[[calls read_file"),
    ],
)
def test_every_recording_loads(name, messages, requests, tokens, calls, title):
    """S3-6, S3-7, S3-8, S3-9, S3-10, S3-11, B-5: documents and logs of four CLI versions."""
    session = sessions.load(RECORDINGS / name)
    assert len(session.messages) == len(list(session.messages)) == messages
    assert len(session.requests) == requests
    assert (session.usage.total, session.usage.tool_calls) == (tokens, calls)
    assert session.title.startswith(title)
    assert bool(session.title) == bool(title)
    assert session.usage.exact
    assert 0 < session.started <= session.updated


@pytest.mark.parametrize(
    "path", sorted(RECORDINGS.rglob("*.json*")), ids=lambda path: path.stem[-12:]
)
def test_every_recording_is_a_stream_of_events(path):
    """B-5: Init first, one Done at the end, nothing without a word but the CLI's own context."""
    told = list(sessions.load(path).events())
    assert isinstance(told[0], events.Init)
    assert [event for event in told if isinstance(event, events.Done)] == [told[-1]]
    assert {e.kind for e in told if isinstance(e, events.Unknown)} <= {"session_context"}
    for event in told:
        assert events.decode(events.encode(event)) == event


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *(("0.11.3-reading.json", 3), ("0.11.3-tour.json", 8), ("0.29.0-cancelled.json", 4)),
        *(("0.29.0-shell.json", 3), ("0.61.0-at-once.jsonl", 4), ("0.61.0-misnamed.jsonl", 4)),
    ],
)
def test_sessions_of_known_scripts_load(name, count):
    """S3-35, S3-45: all six, with the results that newer CLIs save as messages; tokens add up."""
    path = OURS / "full" / name
    session = sessions.load(path)
    assert len([m for m in session.messages if not is_context(m)]) == count
    assert f'"sessionId": "{session.id}"' in path.read_text().replace('":"', '": "')
    counted = [message.tokens for message in session.messages if message.tokens]
    assert counted
    for tokens in counted:
        assert tokens.total == tokens.input + tokens.output + tokens.thoughts + tokens.tool


def test_what_a_resumption_wiped_is_still_told():
    """The CLI forgets tools, thoughts and tokens of a session resumed within its minute."""
    session = sessions.load(WIPED)
    asked = [text_of(m.content)[:7] for m in session.messages if m.type == "user"]
    assert [text for text in asked if text][1:] == [
        "[[calls",
        "second ",
        "third",
        "fourth",
        "fifth",
    ]
    calls = [call for m in session.messages for call in m.tool_calls or ()]
    assert [call.name for call in calls] == [
        *("read_file", "run_shell_command", "write_file", "read_file")
    ]
    assert all(call.result for call in calls)
    assert all(m.model and m.tokens for m in session.messages if m.type == "gemini")
    assert sum(len(m.thoughts or ()) for m in session.messages) == 3
    # Five starts, and it began with the first.
    assert session.started == 1794770064018


# ---- the fold of a log

KEYS = st.sampled_from(["a", "b", "c", "a_response"])
CONTEXTS = st.just(said("ctx", f"{CONTEXT}\nToday's date"))
CHECKPOINTS = st.lists(
    st.builds(said, KEYS, st.just("from a checkpoint")) | CONTEXTS | st.just({"type": "user"}),
    max_size=4,
)
RECORDS = st.one_of(
    st.builds(said, KEYS, st.text(max_size=3)),
    st.builds(lambda key: {"$rewindTo": key}, KEYS | st.just("unknown")),
    st.builds(lambda messages: {"$set": {"messages": messages}}, CHECKPOINTS),
    st.builds(lambda messages: {"$set": {"messages": messages}}, st.lists(CONTEXTS, max_size=1)),
    st.builds(lambda text: {"$set": {"summary": text}}, st.text(max_size=3)),
    st.builds(lambda text: TOP | {"lastUpdated": text}, st.text(max_size=3)),
    st.builds(lambda text: TOP | {"startTime": text}, st.text(max_size=3)),
    st.builds(lambda messages: TOP | {"messages": messages}, CHECKPOINTS),
    st.sampled_from([7, None, [], "text", {}, {"$set": {}}]),
)


class Model:
    """What a session file means, as simply as it can be said."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, dict]] = []
        self.full: dict[str, dict] = {}
        self.top: dict[str, str] = {}
        self.top_came_last = False

    def add(self, record: object) -> None:
        if not isinstance(record, dict):
            return
        if "$rewindTo" in record:
            self.rewind(record["$rewindTo"])
        elif "id" in record:
            self.put(record["id"], record)
            self.full[record["id"]] = record
        else:
            self.change(record.get("$set", record), anew="$set" in record)
        self.top_came_last = "id" not in record and "sessionId" in record

    def rewind(self, key: str) -> None:
        keys = [known for known, _ in self.messages]
        self.messages = self.messages[: keys.index(key) if key in keys else 0]

    def put(self, key: str, message: dict) -> None:
        keys = [known for known, _ in self.messages]
        if key in keys:
            self.messages[keys.index(key)] = (key, message)
        else:
            self.messages.append((key, message))

    def change(self, said: dict, anew: bool) -> None:
        started = self.top.get("startTime")
        self.top |= {key: value for key, value in said.items() if value and key != "messages"}
        if started:
            self.top["startTime"] = started
        messages = said.get("messages")
        if messages is None:
            return
        only_context = all(str(m.get("content", "")).startswith(CONTEXT) for m in messages)
        if self.top_came_last and self.messages and only_context:
            return
        if anew:
            self.messages = []
        for number, message in enumerate(messages):
            key = message.get("id", f"#{number}")
            answers = key.endswith("_response") and key[: -len("_response")] in self.full
            if not answers:
                self.put(key, self.full.get(key, message))


@given(st.lists(RECORDS, max_size=12))
def test_folding_a_log_is_what_the_simple_model_says(records):
    """B-5: replace by id, checkpoints, rewinds, stubs, and the fuller record kept."""
    model = Model()
    for record in records:
        model.add(record)
    data = log(*records)
    index = index_of(BytesIO(data))
    found = list(messages_at(BytesIO(data), index.places.values())) if index else []
    assert [json.loads(bytes(m.raw)) for m in found] == [message for _, message in model.messages]
    if index:
        for name in ("start_time", "last_updated", "summary", "session_id"):
            key = {"start_time": "startTime", "last_updated": "lastUpdated"}.get(name, name)
            key = "sessionId" if name == "session_id" else key
            assert (getattr(index.top, name) or "") == model.top.get(key, "")


@given(st.integers(min_value=0, max_value=TOOLS.stat().st_size))
def test_a_log_that_is_cut_loses_at_most_the_torn_record(cut):
    """B-5: at any byte."""
    whole = TOOLS.read_bytes()
    torn = whole[:cut]
    kept = torn[: torn.rfind(b"\n") + 1]
    if whole[cut : cut + 1] == b"\n":
        kept = whole[: cut + 1]  # Cut before the line end, the record is whole.
    assert [bytes(m.raw) for m in folded(torn)] == [bytes(m.raw) for m in folded(kept)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(["text", "id", "name"]), inner)
    ),
    max_leaves=6,
)
FIELDS = [
    *("timestamp", "type", "content", "displayContent", "model", "tokens", "thoughts", "toolCalls"),
    *("kind", "summary", "messages", "$set", "directories", "sessionId"),
]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON), JSON)
def test_odd_types_in_any_field_never_raise(odd, anything):
    """B-5: what does not fit is left out, the rest is kept."""
    good = said("good", "fine")
    data = log(TOP, {"id": "odd", **odd}, {"$set": anything}, {"$rewindTo": 7} | good)
    messages = folded(data)
    assert text_of(messages[-1].content) == "fine"
    index = index_of(BytesIO(data))
    session = Session(Path("x"), index)
    session.messages = messages
    assert isinstance(session.title, str)
    for event in session.events():
        assert events.decode(events.encode(event)).type == event.type


def test_one_odd_field_costs_only_itself():
    """B-5: a message keeps its text, a call its name, the top its id."""
    message = message_of(
        json.dumps(
            said("m", "hello", "gemini", tokens={"input": "many", "output": 3}, model=[])
            | {"toolCalls": [{"name": "glob", "args": "odd"}, {"name": "read_file", "id": "1"}]}
        ).encode()
    )
    assert (message.content, message.tokens.output) == ("hello", 3)
    assert [call.name for call in message.tool_calls] == ["glob", "read_file"]
    assert record_of(json.dumps(TOP | {"directories": 7, "summary": {}}).encode()).session_id == "s"
    assert texts(log(TOP, said("m", "kept", summary=["odd"]))) == ["kept"]


@pytest.mark.parametrize("half", [rb"half \ud83d of a pair", b"half \xed\xa0\xbd of a pair"])
def test_half_a_character_does_not_cost_the_message(half):
    """The CLI shortens what tools put out, in the middle of a pair too."""
    line = b'{"id":"m","type":"user","content":"' + half + b'"}\n'
    (message,) = folded(log(TOP) + line)
    assert message.content.startswith("half \ufffd")
    assert json.loads(bytes(message.raw))["content"] == message.content


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ([{"text": "two "}, {"text": "parts"}], "two parts"),
        ({"text": "one part"}, "one part"),
        ([{"text": "thinking", "thought": True}, {"text": "said"}], "said"),
        ([{"functionCall": {"name": "glob"}}, "bare", {"inlineData": {}}], "bare"),
        (None, ""),
        (7, ""),
    ],
)
def test_content_may_be_a_string_or_parts(content, text):
    """B-5: the text of a saved message is read from a string or joined from parts."""
    assert text_of(content) == text


# ---- files that are no good, or not yet


def test_a_log_without_a_header_is_read(session):
    """B-5: its name is all it has for an id."""
    found = session(log(said("a", "hello")), "session-lost.jsonl")
    assert (found.id, found.title) == ("session-lost", "hello")


def test_a_document_with_an_empty_object_in_it_is_read_as_one(session):
    """A line of it that is JSON by itself must not pass for a record."""
    document = TOP | {"messages": [said("a", [{}, {"text": "hello"}])]}
    found = session(json.dumps(document, indent=2).encode(), "session-x.json")
    assert (found.id, found.title) == ("s", "hello")


def test_broken_lines_are_passed_over(session):
    """B-5: malformed and truncated lines of a session log are skipped; the rest loads."""
    data = log(TOP) + b"{bad\n\n\xff\xfe\n[1]\n" + log(said("a", "hello")) + b'{"id":"b","ty'
    assert [text_of(m.content) for m in session(data).messages] == ["hello"]


@pytest.mark.parametrize("data", [b"", b"{bad json", b"[]", b"{}", b"\x00\xff", b"[" * 100_000])
def test_a_file_that_holds_no_session_says_so(session, data):
    with pytest.raises(SessionUnreadable, match="holds no session"):
        session(data)


def test_what_is_no_file_is_not_opened(tmp_path):
    import os

    os.mkfifo(tmp_path / "session-pipe.jsonl")
    (tmp_path / "session-folder.jsonl").mkdir()
    for name in ("session-pipe.jsonl", "session-folder.jsonl", "session-none.jsonl"):
        with pytest.raises(SessionUnreadable):
            sessions.load(tmp_path / name)


def test_a_file_being_written_to_is_read_as_far_as_it_goes(session):
    first = session(log(TOP, said("a", "hello")) + b'{"id":"b",')
    assert len(first.messages) == 1
    with first.path.open("ab") as file:
        file.write(b'"type":"gemini","content":"hi"}\n' + log(said("a", "hello again")))
    # What was loaded stays as it was: the log only grows.
    assert [text_of(m.content) for m in first.messages] == ["hello"]
    later = [text_of(m.content) for m in sessions.load(first.path).messages]
    assert later == ["hello again", "hi"]


def test_messages_are_read_when_they_are_asked_for(session):
    found = session(log(TOP, said("a", "one"), said("b", "two"), said("c", "three")))
    found.path.rename(found.path.with_name("moved"))
    assert len(found.messages) == 3
    with pytest.raises(SessionUnreadable, match="cannot read"):
        next(iter(found.messages))
    shutil.copy(found.path.with_name("moved"), found.path)
    assert text_of(found.messages[-1].content) == "three"
    assert [text_of(m.content) for m in found.messages[:2]] == ["one", "two"]


def test_a_long_session_does_not_have_to_fit_in_memory(session):
    """One message at a time: 20 MB are read in less than two."""
    data = log(TOP, *(said(f"m{number}", "x" * 100_000) for number in range(200)))
    found = session(data)
    del data
    tracemalloc.start()
    again = sessions.load(found.path)
    assert sum(len(m.content) for m in again.messages) == 20_000_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
