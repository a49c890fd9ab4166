"""A long session in parts: no more in memory than a part, nothing torn, nothing twice."""

import json

import pytest

from geminorum import Text, ToolResult, ToolUse, UserMessage, sessions
from saved_sessions import Store, answer, call, prompt

ID = "aaaaaaaa-0000-4000-8000-000000000000"
AT = "2026-01-01T10:00:00.000Z"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "home", tmp_path)


def turns(count: int, length: int = 1):
    for number in range(count):
        yield prompt(f"Question {number}", AT, f"u{number}")
        yield answer("x" * length, AT, f"g{number}")


def said(session) -> list[str]:
    return [event.text for event in session.events() if isinstance(event, UserMessage)]


def test_an_excerpt_is_a_session_of_some_messages(store):
    session = sessions.load(store.write(ID, *turns(5)))
    part = session.excerpt(3, 7)  # The first message is the CLI's own.
    assert said(part) == ["Question 1", "Question 2"]
    assert (part.id, part.title, len(part.messages)) == (ID, "Question 1", 4)
    assert said(session) == [f"Question {number}" for number in range(5)]
    assert len(session.excerpt().messages) == len(session.messages) == 11
    assert len(session.excerpt(99).messages) == 0


def test_an_excerpt_counts_its_own_tokens(store):
    tokens = {"input": 1, "output": 2, "total": 3}
    lines = [answer("x", AT, f"g{n}", model="m", tokens=tokens) for n in range(4)]
    session = sessions.load(store.write(ID, *lines))
    assert session.usage.total == 12
    assert session.excerpt(1, 3).usage.total == 6
    assert session.usage.total == 12


def test_an_excerpt_is_as_long_as_its_bytes_allow_and_never_empty(store):
    session = sessions.load(store.write(ID, *turns(10, length=1000)))
    sizes = [len(session.excerpt(start, max_bytes=2600).messages) for start in (1, 3, 19)]
    assert sizes == [5, 5, 2]  # An answer has about a thousand, a question a hundred.
    assert len(session.excerpt(2, max_bytes=1).messages) == 1


def test_in_a_document_every_message_has_its_share_of_the_bytes(store):
    path = store.chats / "session-2026-01-01T10-00-aaaaaaaa.json"
    path.write_text(json.dumps({"sessionId": ID, "messages": list(turns(10, length=1000))}))
    session = sessions.load(path)
    assert len(session.messages) == 20
    assert 2 < len(session.excerpt(max_bytes=3000).messages) < 10


def test_parts_one_after_the_other_are_the_whole(store):
    session = sessions.load(store.write(ID, *turns(20, length=300)))
    start, parts = 0, []
    while start < len(session.messages):
        part = session.excerpt(start, start + 7, max_bytes=1500)
        parts += [event.text for event in part.events() if isinstance(event, UserMessage | Text)]
        start += len(part.messages)
    whole = [event.text for event in session.events() if isinstance(event, UserMessage | Text)]
    assert parts == whole


def test_a_tool_s_answer_stays_with_its_call(store):
    told = {"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "done"}}}
    lines = [
        prompt("Look", AT, "u1"),
        answer("", AT, "g1", call("ls", AT, "c1", args={"path": "."})),
        {"id": "u2", "timestamp": AT, "type": "user", "content": [told]},
        answer("There", AT, "g2"),
    ]
    session = sessions.load(store.write(ID, *lines))
    first = session.excerpt(0, 3)
    assert len(first.messages) == 4
    rest = session.excerpt(len(first.messages))
    events = [*first.events(), *rest.events()]
    assert [event.input for event in events if isinstance(event, ToolUse)] == [{"path": "."}]
    assert len([event for event in events if isinstance(event, ToolResult)]) == 1


@pytest.mark.parametrize(
    ("ended", "seconds"),
    [("2026-01-01T10:00:02.500Z", 2.5), (AT, None), ("2025-01-01T10:00:00Z", None), ("", None)],
)
def test_a_saved_call_says_how_long_it_took(store, ended, seconds):
    session = sessions.load(store.write(ID, answer("", AT, "g1", call("ls", ended, "c1"))))
    (result,) = [event for event in session.events() if isinstance(event, ToolResult)]
    assert result.duration == seconds
