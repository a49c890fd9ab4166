"""The sessions and streams of agentcmd give the messages that its own code made of them."""

import json
from pathlib import Path

import pytest
from test_contract_agent_cli import hash_of, project, store
from test_messages import INDIVIDUAL, kinds

from geminorum import events, sessions
from geminorum.contracts.agent_cli import load_session, parse
from geminorum.sessions.reading import load
from geminorum.views.messages import claude, of_saved
from geminorum.wire.sessions.records import message_of
from geminorum.wire.stream_json.decoder import StreamDecoder

__all__ = ["project", "store"]

FULL = (
    "session-2025-10-27T19-55-981c87cb",
    "session-2025-10-29T10-36-453aa339",
    "session-2025-10-29T10-36-9c9a14e1",
    "session-2025-10-29T10-36-f96c76b0",
    "session-2025-10-29T10-39-a63242d9",
    "session-2025-10-29T10-40-359abdd0",
)


@pytest.fixture
def agentcmd(fixtures_folder):
    return fixtures_folder / "agentcmd"


def expected(folder: Path, kind: str, name: str):
    """What the origin's own code made of a file, with S3-23's names for the tokens.

    It wrote inputTokens, outputTokens, totalTokens and, beyond the document, cacheReadTokens.
    """
    told = json.loads((folder / "expected" / f"{kind}-{name}.json").read_text())
    for message in told if isinstance(told, list) else [told]:
        if usage := message.get("usage"):
            message["usage"] = {
                "input_tokens": usage["inputTokens"],
                "output_tokens": usage["outputTokens"],
                "total_tokens": usage["totalTokens"],
            }
    return told


@pytest.mark.parametrize("name", INDIVIDUAL)
def test_every_single_message_is_told_as_its_origin_tells_it(agentcmd, name):
    """S3-44, S3-46, S3-47, S3-13, S3-15, S3-16, S3-17, S3-5: equal, and the original is kept."""
    raw = (agentcmd / "individual" / f"{name}.json").read_bytes()
    told = of_saved(message_of(raw))
    assert told.pop("_original") == json.loads(raw)
    assert told == expected(agentcmd, "individual", name)
    assert (told["role"], told["tool"], told["model"]) == ("assistant", "gemini", "gemini-2.5-pro")


@pytest.mark.parametrize("name", FULL)
def test_every_session_is_told_as_its_origin_tells_it(agentcmd, name):
    """S3-45, S3-1, S3-6, S3-7, S3-8, S3-9, S3-10, S3-11: from the file and from its events."""
    file = agentcmd / "full" / f"{name}.json"
    told = claude(load(file))
    assert [message.pop("_original") for message in told] == json.loads(file.read_text())[
        "messages"
    ]
    assert told == expected(agentcmd, "full", name)


def test_the_session_that_the_document_names(agentcmd):
    """S3-45: three messages; a user, then an assistant that reads."""
    told = claude(load(agentcmd / "full" / f"{FULL[2]}.json"))
    assert [message["role"] for message in told] == ["user", "assistant", "assistant"]
    assert kinds(told[1]) == ["thinking", "thinking", "Read", "tool_result"]


def test_a_cancelled_call_and_a_failed_one_are_errors(agentcmd):
    """S3-46, B-33: by their status, and by the error that the model was told."""
    for name, words in (
        ("tool-result-cancelled", "[Operation Cancelled] Reason: User cancelled the operation."),
        ("tool-result-error", "Path must be absolute: ."),
    ):
        raw = (agentcmd / "individual" / f"{name}.json").read_bytes()
        (result,) = [
            block
            for block in of_saved(message_of(raw))["content"]
            if block["type"] == "tool_result"
        ]
        assert result["is_error"] is True
        assert result["content"] == words


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("01-say-hello", ["text"]),
        ("02-read-file", ["Read", "tool_result"]),
        ("03-write-file", ["Write", "tool_result"]),
        ("04-edit-file", ["Read", "tool_result"]),
        ("05-tool-not-registered", ["tool_result"]),
    ],
)
def test_recorded_streams_give_messages(agentcmd, name, expected):
    """S3-41: the stream's format is another than the file's, its messages are the same."""
    decoder = StreamDecoder()
    stream = [*decoder.feed((agentcmd / "streams" / f"{name}.ndjson").read_bytes())]
    told = claude([*stream, *decoder.close()])
    answers = [message for message in told if message["role"] == "assistant"]
    assert set(expected) <= {kind for answer in answers for kind in kinds(answer)}
    blocks = [block for answer in answers for block in answer["content"]]
    uses = {block["id"] for block in blocks if block["type"] == "tool_use"}
    results = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
    # The last recording is a fragment: results whose calls it leaves out.
    assert results == uses or not uses


@pytest.mark.parametrize("name", FULL)
def test_a_replay_gives_the_very_messages_of_the_file(agentcmd, name):
    """Ids, times and originals too, and after a way through JSON."""
    session = load(agentcmd / "full" / f"{name}.json")
    assert claude(session.events()) == claude(session)
    again = [events.decode(events.encode(event)) for event in session.events()]
    assert claude(again) == claude(session)


def test_every_captured_session_is_told_the_same_both_ways(fixtures_folder):
    """Sessions of six CLI versions: no message raises, and a replay equals the file."""
    files = sorted((fixtures_folder.parent / "captures").rglob("sessions/**/session*.json*"))
    assert len(files) >= 6
    for file in files:
        session = load(file)
        told = claude(session)
        assert claude(session.events()) == [m for m in told if m["content"]], file
        assert all(m["_original"]["id"] == m["id"] for m in told)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *(("981c87cb", 18), ("453aa339", 5), ("9c9a14e1", 3)),
        *(("f96c76b0", 3), ("a63242d9", 2), ("359abdd0", 3)),
    ],
)
def test_sessions_of_the_document_load(fixtures_folder, name, count):
    """S3-35, S3-45: all six, with as many messages as the original counts."""
    (path,) = (fixtures_folder / "agentcmd" / "full").glob(f"*{name}.json")
    session = sessions.load(path)
    assert len(session.messages) == count
    assert session.id.startswith(name)
    for message in session.messages:
        tokens = message.tokens
        if tokens:
            assert tokens.total == tokens.input + tokens.output + tokens.thoughts + tokens.tool


def test_the_fixture_is_loaded_through_the_store(store, project, fixtures_folder):
    """S3-33, S3-35, S3-45: every message of the file, in its order."""
    source = fixtures_folder / "agentcmd/full" / f"{FULL[2]}.json"
    data = json.loads(source.read_text())
    file = store.put(f"{hash_of(project)}/chats", "x", name=source.name)
    file.write_bytes(source.read_bytes())
    told = load_session(project, data["sessionId"])
    assert [message["_original"] for message in told] == data["messages"]
    assert told == [parse(message) for message in data["messages"]]
    assert [message["role"] for message in told] == ["user", "assistant", "assistant"]
    assert "Read" in [block.get("name") for block in told[1]["content"]]
