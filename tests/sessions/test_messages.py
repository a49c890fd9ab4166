"""Saved sessions and live runs as Claude-format messages (S3): the same run, the same messages."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from geminorum import Event, Options, events, sync
from geminorum.events import (
    Done,
    Error,
    Init,
    ModelRequest,
    Text,
    TextDelta,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
    UserMessage,
)
from geminorum.sessions.reading import Session, load
from geminorum.testing import FakeGemini
from geminorum.views.messages import (
    claude,
    claude_input,
    claude_name,
    of_saved,
    usage_of,
    without_origin,
)
from geminorum.wire.sessions.records import message_of
from geminorum.wire.stream_json.decoder import StreamDecoder
from recorded import OURS, RECORDINGS
from shared_run import private_place

INDIVIDUAL = (
    *("tool-read_file", "tool-write-file", "tool-replace", "tool-run_shell_command"),
    *("tool-google_web_search", "tool-list_directory", "tool-result-error"),
    *("tool-result-cancelled", "tool-result-success", "gemini-with-thoughts"),
)
SAVED = sorted((RECORDINGS / "sessions").rglob("*.json*"))
POEM, NOTES = "/tmp/geminorum-fixtures/poems/poem.txt", "/tmp/geminorum-fixtures/poems/notes.md"
CONTEXT = "<session_context>\nToday is Monday.\n</session_context>"


def saved(content="", type="gemini", **rest):
    """One message of a session file, in Claude's format."""
    return of_saved(message_of(json.dumps(record(content, type, **rest)).encode()))


def record(content="", type="gemini", id="m-1", **rest):
    stamp = "2025-10-29T10:36:00.123Z"
    return {"id": id, "timestamp": stamp, "type": type, "content": content, **rest}


def call(name="read_file", args=None, *responses, status="success", id="t-1"):
    result = [{"functionResponse": {"id": id, "name": name, "response": r}} for r in responses]
    return {"id": id, "name": name, "args": args or {}, "result": result, "status": status}


def log(folder: Path, *records) -> Path:
    """A session file as the CLI writes it since 0.39."""
    top = {"sessionId": "s-1", "projectHash": "h", "startTime": "", "lastUpdated": ""}
    file = folder / "session-2026-01-01T00-00-s-1.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in (top, *records)))
    return file


def kinds(message) -> list[str]:
    return [block.get("name") or block["type"] for block in message["content"]]


# ---- our own fixtures: recorded by `fixtures/make.py` from real CLIs of three versions

SINGLE = {
    "gemini-with-thoughts": (1, "Glob", {"pattern": "*", "path": f"{POEM[:-9]}"}, "notes.md"),
    "tool-google_web_search": (0, "WebSearch", {"query": "poems about pipes"}, "Few people write"),
    "tool-list_directory": (1, "Glob", {"pattern": "*", "path": f"{POEM[:-9]}"}, "notes.md"),
    "tool-read_file": (0, "Read", {"file_path": POEM}, "A pipe holds so much,"),
    "tool-replace": (
        *(2, "Edit"),
        {"file_path": POEM, "old_string": "it waits", "new_string": "it waits and waits"},
        "Successfully modified file",
    ),
    "tool-result-cancelled": (
        *(0, "Bash", {"command": "python3", "description": "Start Python"}),
        "[Operation Cancelled] Reason: Operation cancelled",
    ),
    "tool-result-error": (0, "Glob", {"pattern": "*", "path": "."}, "Path must be absolute: ."),
    "tool-result-success": (2, "Read", {"file_path": NOTES}, "Pipes are patient"),
    "tool-run_shell_command": (
        *(1, "Bash", {"command": "wc -w notes.md", "description": "Count the words"}),
        "3 notes.md",
    ),
    "tool-write-file": (
        *(2, "Write"),
        {"file_path": POEM, "content": "A pipe holds so much,\nthen it waits for a reader.\n"},
        "Successfully created",
    ),
}
"""How many thoughts each message has, Claude's name for its tool, the input, and the result."""
SESSIONS = {
    "0.11.3-reading": ["text", "thinking thinking Read tool_result", "text"],
    "0.11.3-tour": [
        "text",
        "thinking Glob tool_result",
        "thinking thinking Write tool_result text",
        "Glob tool_result! text",
        "Read tool_result text",
        "WebSearch tool_result text",
        "thinking thinking Edit tool_result",
        "thinking text",
    ],
    "0.29.0-cancelled": ["text", "thinking text", "text", "Bash tool_result!"],
    "0.29.0-shell": ["text", "thinking Bash tool_result text", "text"],
    "0.61.0-at-once": [
        "text",
        "Read tool_result Glob tool_result Bash tool_result text",
        "thinking text",
    ],
    "0.61.0-misnamed": ["text", "thinking Write tool_result!", "text"],
}
"""The blocks of each message; `!` marks an error."""


def single(name: str) -> bytes:
    return (OURS / "individual" / f"{name}.json").read_bytes()


def full(name: str) -> Path:
    (file,) = (OURS / "full").glob(f"{name}.json*")
    return file


def shown(message) -> str:
    marks = ("!" if block.get("is_error") else "" for block in message["content"])
    return " ".join(map("".join, zip(kinds(message), marks, strict=True)))


def test_the_fixtures_are_those_that_the_document_names():
    """S3-44, S3-45: ten single messages and six sessions, of three CLI versions."""
    assert {file.stem for file in (OURS / "individual").iterdir()} == {*SINGLE} == {*INDIVIDUAL}
    assert {file.stem for file in (OURS / "full").iterdir()} == {*SESSIONS}
    assert len(SESSIONS) == 6


@pytest.mark.parametrize("name", SINGLE)
def test_every_single_message_has_its_blocks(name):
    """S3-44, S3-5, S3-13, S3-15, S3-16, S3-47: thoughts, a call, its result, the text."""
    thoughts, tool, arguments, result = SINGLE[name]
    original = json.loads(single(name))
    told = of_saved(message_of(single(name)))
    assert (told["role"], told["tool"], told["model"]) == ("assistant", "gemini", original["model"])
    assert told["_original"] == original
    *thinking, use, answer = told["content"][: thoughts + 2]
    assert [block["thinking"] for block in thinking] == [
        f"{thought['subject']}: {thought['description']}" for thought in original["thoughts"]
    ]
    assert (use["type"], use["name"], use["input"]) == ("tool_use", tool, arguments)
    assert use["id"] == answer["tool_use_id"] == original["toolCalls"][0]["id"]
    assert result in answer["content"]
    text = [{"type": "text", "text": original["content"]}] if original["content"] else []
    assert told["content"][thoughts + 2 :] == text


@pytest.mark.parametrize("name", SINGLE)
def test_a_failed_call_and_a_cancelled_one_are_errors(name):
    """S3-17, S3-46, B-33: and no other is."""
    (answer,) = [
        block
        for block in of_saved(message_of(single(name)))["content"]
        if block["type"] == "tool_result"
    ]
    assert answer["is_error"] is (name in ("tool-result-error", "tool-result-cancelled"))


@pytest.mark.parametrize("name", SINGLE)
def test_every_single_message_has_the_tokens_of_its_request(name):
    """S3-11, S3-23: input with the cached ones, output, total; nothing where none were saved."""
    tokens = json.loads(single(name)).get("tokens")
    told = of_saved(message_of(single(name)))
    assert told.get("usage") == (
        tokens and {f"{key}_tokens": tokens[key] for key in ("input", "output", "total")}
    )


@pytest.mark.parametrize("name", SESSIONS)
def test_every_session_has_its_messages(name):
    """S3-45, S3-1, S3-6, S3-7, S3-8, S3-9, S3-10: documents and logs alike."""
    told = claude(load(full(name)))
    assert [shown(message) for message in told] == SESSIONS[name]
    assert told[0]["role"] == "user"
    assert {message["role"] for message in told[1:]} <= {"assistant", "system"}


def test_a_session_with_one_call_is_three_messages():
    """S3-45: a user, then an assistant that reads, then its answer."""
    told = claude(load(full("0.11.3-reading")))
    assert [message["role"] for message in told] == ["user", "assistant", "assistant"]
    assert told[1]["content"][2]["input"] == {"file_path": NOTES}


def test_a_misnamed_argument_is_kept_in_the_original():
    """S3-25, S3-5: the input has what Claude's tool takes, `_original` has all."""
    told = claude(load(full("0.61.0-misnamed")))[1]
    (use,) = [block for block in told["content"] if block["type"] == "tool_use"]
    assert use["input"].keys() == {"content"}
    assert told["_original"]["toolCalls"][0]["args"]["path"] == "poem.txt"


@pytest.mark.parametrize("name", SESSIONS)
def test_a_replay_of_our_sessions_gives_the_very_messages_of_the_file(name):
    """S3-41, B-34: ids, times and originals too, and after a way through JSON."""
    session = load(full(name))
    assert claude(session.events()) == claude(session)
    again = [events.decode(events.encode(event)) for event in session.events()]
    assert claude(again) == claude(session)


@pytest.mark.parametrize("name", [name for name in SESSIONS if "cancelled" not in name])
def test_our_streams_give_the_messages_of_their_sessions(name):
    """S3-41: two formats, the same calls with the same results' fate, and the same texts."""

    def gist(messages):
        blocks = [block for message in messages for block in message["content"]]
        used = [(b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"]
        failed = [block["is_error"] for block in blocks if block["type"] == "tool_result"]
        return used, failed, [block["text"].strip() for block in blocks if block["type"] == "text"]

    decoder = StreamDecoder()
    stream = [*decoder.feed((OURS / "streams" / f"{name}.ndjson").read_bytes())]
    assert gist(claude([*stream, *decoder.close()])) == gist(claude(load(full(name))))


def test_a_cancelled_call_without_an_error_text_is_an_error():
    """S3-46, B-33: by its status alone."""
    told = saved(toolCalls=[call("x", {}, {"output": "half"}, status="cancelled")])
    assert told["content"][1]["is_error"] is True


# ---- one message


def test_thoughts_come_first_then_calls_with_results_then_text():
    """S3-3, S3-4, S3-13, S3-14: each call is followed by its own result."""
    message = saved(
        "Done.",
        thoughts=[{"subject": "Plan", "description": "read: then write"}],
        toolCalls=[
            call("read_file", {"file_path": "a"}, {"output": "A"}, id="t-1"),
            call("write_file", {"file_path": "b", "content": ""}, {"output": "B"}, id="t-2"),
        ],
    )
    assert message["content"] == [
        {"type": "thinking", "thinking": "Plan: read: then write"},
        {"type": "tool_use", "id": "t-1", "name": "Read", "input": {"file_path": "a"}},
        {"type": "tool_result", "tool_use_id": "t-1", "content": "A", "is_error": False},
        {
            "type": "tool_use",
            "id": "t-2",
            "name": "Write",
            "input": {"file_path": "b", "content": ""},
        },
        {"type": "tool_result", "tool_use_id": "t-2", "content": "B", "is_error": False},
        {"type": "text", "text": "Done."},
    ]


def test_calls_that_share_an_id_keep_their_own_results():
    calls = [call("glob", {}, {"output": text}, id="") for text in ("first", "second")]
    told = saved(toolCalls=calls)["content"]
    assert [block.get("content") for block in told] == [None, "first", None, "second"]


@pytest.mark.parametrize(
    ("responses", "status", "content", "is_error"),
    [
        ([{"output": "yes"}], "success", "yes", False),
        ([{"output": ""}], "success", "", False),
        ([{}], "success", "", False),
        ([{"error": "no"}], "success", "no", True),
        ([{"output": "", "error": "no"}], "success", "no", True),
        ([{"output": "half"}], "error", "half", True),
        ([{"output": "one"}, {"output": "two"}], "success", "one\ntwo", False),
        ([{"output": {"n": 1}}], "success", '{"n":1}', False),
    ],
)
def test_a_result_is_what_the_model_received(responses, status, content, is_error):
    """S3-16, S3-17, B-32: output, else error, else nothing; all parts of it."""
    block = saved(toolCalls=[call("x", {}, *responses, status=status)])["content"][1]
    assert block == {
        "type": "tool_result",
        "tool_use_id": "t-1",
        "content": content,
        "is_error": is_error,
    }


@pytest.mark.parametrize("result", [None, []])
@pytest.mark.parametrize("status", ["success", "error", "cancelled", "executing", None])
def test_a_call_without_a_result_has_none(result, status):
    """S3-16: no tool_result block for an empty result, whatever the status says."""
    told = saved(toolCalls=[{"id": "t-1", "name": "x", "status": status, "result": result}])
    assert kinds(told) == ["x"]


def test_other_parts_of_a_result_stand_beside_the_text():
    """B-32: an image is kept, as JSON."""
    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    parts = [{"functionResponse": {"response": {"output": "see"}}}, image]
    told = saved(toolCalls=[{"id": "t-1", "name": "x", "status": "success", "result": parts}])
    assert told["content"][1]["content"].splitlines()[0] == "see"
    assert "image/png" in told["content"][1]["content"]


@pytest.mark.parametrize("text", ["Hi", "  Hi \n\n"])
def test_a_text_is_kept_with_the_space_around_it(text):
    """S3-18: leading and trailing space of a text block is not trimmed."""
    assert saved(text)["content"] == [{"type": "text", "text": text}]


@pytest.mark.parametrize("text", ["", " \n", "\ufeff\u2003"])
def test_without_any_block_the_content_is_the_text_itself(text):
    """S3-18, S3-20: what JavaScript's trim leaves nothing of is no block."""
    assert saved(text, thoughts=[])["content"] == text


def test_a_user_message_with_no_thoughts_is_one_text_block():
    """S3-19, S3-20: a plain user message becomes role user with one text block."""
    told = saved("Hello", "user", thoughts=[])
    assert told["role"] == "user"
    assert told["content"] == [{"type": "text", "text": "Hello"}]


def test_an_empty_subject_is_kept_as_the_document_keeps_it(tmp_path):
    """S3-14: subject, colon, description; from the file and from its events."""
    thoughts = [{"subject": "", "description": "hm"}]
    assert saved("Hi", thoughts=thoughts)["content"][0]["thinking"] == ": hm"
    session = load(log(tmp_path, record("Hi", thoughts=thoughts, model="m")))
    assert claude(session.events()) == claude(session)
    (thought,) = [event for event in session.events() if isinstance(event, Thinking)]
    (live,) = claude([thought, Text("Hi")])
    assert live["content"] == claude(session)[0]["content"]


def test_thoughts_and_calls_of_a_user_message_are_blocks_too():
    """S3-13, S3-19: the document transforms each message alike; only the role differs."""
    thoughts = [{"subject": "Plan", "description": "ask"}]
    told = saved("Hello", "user", thoughts=thoughts, toolCalls=[call("x", {}, {"output": "o"})])
    assert told["role"] == "user"
    assert kinds(told) == ["thinking", "x", "tool_result", "text"]
    assert told["content"][-1] == {"type": "text", "text": "Hello"}


def test_the_envelope_of_a_message():
    """S3-5, S3-21, S3-22, S3-23: id, role, milliseconds, tool, model, usage, original."""
    tokens = {"input": 10, "output": 3, "cached": 8, "thoughts": 2, "tool": 0, "total": 15}
    original = record("Hi", model="gemini-3", tokens=tokens, note={"kept": [1, None]})
    assert of_saved(message_of(json.dumps(original).encode())) == {
        "id": "m-1",
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi"}],
        "timestamp": 1761734160123,
        "tool": "gemini",
        "model": "gemini-3",
        "usage": {"input_tokens": 10, "output_tokens": 3, "total_tokens": 15},
        "_original": original,
    }


def test_unknown_values_are_absent():
    """S3-22, S3-23: no model and no usage, rather than nothing under their names."""
    assert saved("Hi", tokens=None).keys() & {"model", "usage"} == set()


def test_parts_are_one_text():
    """B-5: a list of parts is flattened, and stays whole in the original."""
    parts = [{"text": "one "}, {"inlineData": {"data": "AA"}}, {"text": "two"}]
    told = saved(parts, "user")
    assert told["content"] == [{"type": "text", "text": "one two"}]
    assert told["_original"]["content"] == parts
    assert saved(parts[1:2], "user")["content"] == ""


def test_a_prompt_is_told_as_it_was_typed():
    """What `@files` were expanded to is in the original; a live run echoes the prompt too."""
    told = saved(
        [{"text": "Explain @a.txt\n--- Content ---"}],
        "user",
        displayContent=[{"text": "Explain @a.txt"}],
    )
    assert told["content"] == [{"type": "text", "text": "Explain @a.txt"}]


def test_a_message_that_the_cli_rebuilt_still_has_its_blocks():
    """B-5: after a resume, calls and thoughts may stand in the content alone."""
    parts = [
        {"text": "hm", "thought": True},
        {"text": "Reading."},
        {"functionCall": {"id": "t-1", "name": "read_file", "args": {"file_path": "a"}}},
    ]
    assert kinds(saved(parts)) == ["thinking", "Read", "text"]


# ---- tools


@pytest.mark.parametrize(
    ("tool", "arguments", "name", "expected"),
    [
        ("read_file", {"absolute_path": "/a"}, "Read", {"file_path": "/a"}),
        ("read_file", {"file_path": "a", "limit": 3}, "Read", {"file_path": "a"}),
        ("read_file", {"absolute_path": None, "file_path": "a"}, "Read", {"file_path": "a"}),
        ("read_file", {"absolute_path": "", "file_path": "a"}, "Read", {"file_path": "a"}),
        ("read_file", {"absolute_path": "", "file_path": ""}, "Read", {"file_path": ""}),
        (
            "write_file",
            {"content": "", "file_path": "a"},
            "Write",
            {"file_path": "a", "content": ""},
        ),
        ("write_file", {"path": "a", "content": "x"}, "Write", {"content": "x"}),
        (
            "replace",
            {"file_path": "a", "instruction": "i", "old_string": "o", "new_string": ""},
            "Edit",
            {"file_path": "a", "old_string": "o", "new_string": ""},
        ),
        ("list_directory", {"path": "/a"}, "Glob", {"pattern": "*", "path": "/a"}),
        ("list_directory", {"dir_path": "a"}, "Glob", {"pattern": "*", "path": "a"}),
        (
            "run_shell_command",
            {"command": "ls", "description": "d", "directory": "x"},
            "Bash",
            {"command": "ls", "description": "d"},
        ),
        ("run_shell_command", {"command": "ls"}, "Bash", {"command": "ls"}),
        ("google_web_search", {"query": "q", "n": 1}, "WebSearch", {"query": "q", "n": 1}),
        ("save_memory", {"fact": "f"}, "save_memory", {"fact": "f"}),
        ("mcp_docs_find", {"q": [1]}, "mcp_docs_find", {"q": [1]}),
    ],
)
def test_tools_have_the_documents_names_and_inputs(tool, arguments, name, expected):
    """S3-2, S3-24, S3-25, S3-26, S3-27, S3-28, S3-29, S3-30, S3-47: each Gemini tool gets its
    Claude name and transformed input; other tools pass through."""
    block = saved(toolCalls=[call(tool, arguments)])["content"][0]
    assert (block["name"], block["input"]) == (name, expected)
    assert (claude_name(tool), claude_input(tool, arguments)) == (name, expected)


@pytest.mark.parametrize(
    ("tool", "arguments", "name", "expected"),
    [
        ("glob", {"pattern": "*.py", "dir_path": "s"}, "Glob", {"pattern": "*.py", "path": "s"}),
        (
            "search_file_content",
            {"pattern": "x", "path": "s", "include": "*.py"},
            "Grep",
            {"pattern": "x", "path": "s", "glob": "*.py"},
        ),
        (
            "grep_search",
            {"pattern": "x", "include_pattern": "*.py"},
            "Grep",
            {"pattern": "x", "glob": "*.py"},
        ),
        ("web_fetch", {"prompt": "p"}, "WebFetch", {"prompt": "p"}),
        ("read_many_files", {"paths": ["a"]}, "Read", {"paths": ["a"]}),
        (
            "write_todos",
            {"todos": [{"description": "d", "status": "pending"}, "odd"]},
            "TodoWrite",
            {
                "todos": [
                    {"content": "d", "activeForm": "d", "description": "d", "status": "pending"},
                    "odd",
                ]
            },
        ),
        ("write_todos", {"todos": None}, "TodoWrite", {"todos": []}),
    ],
)
def test_more_tools_than_the_document_names(tool, arguments, name, expected):
    """S3-30, B-14: six more tools get Claude's names; events and `_original` keep Gemini's."""
    assert (claude_name(tool), claude_input(tool, arguments)) == (name, expected)


# ---- which messages are told


def test_only_the_conversation_is_told(tmp_path):
    """S3-19, B-5: without the injected context and tool answers; the CLI's notes are `system`."""
    answer = {"functionResponse": {"name": "x", "response": {"output": "o"}}}
    file = log(
        tmp_path,
        {"$set": {"messages": [record([{"text": CONTEXT}], "user", "c")]}},
        record([{"text": "Hi"}], "user", "u"),
        record("Hello", "gemini", "g"),
        record([answer, answer], "user", "t"),
        record([answer, {"inlineData": {}}], "user", "t2"),
        record([answer, {"text": "and my own words"}], "user", "u2"),
        *(record(f"a {kind}", kind, kind) for kind in ("info", "warning", "error", "novelty")),
    )
    told = claude(load(file))
    assert [message["id"] for message in told] == [
        *("u", "g", "u2", "info", "warning", "error", "novelty")
    ]
    assert {message["role"] for message in told[3:]} == {"system"}
    assert told[3]["content"] == [{"type": "text", "text": "a info"}]
    assert [message["role"] for message in told[:3]] == ["user", "assistant", "user"]


def test_the_context_is_there_for_who_asks_and_is_marked(tmp_path):
    """B-5: an option brings in the injected context."""
    first = {"$set": {"messages": [record([{"text": CONTEXT}], "user", "c")]}}
    session = load(log(tmp_path, first, record("Hi", "user", "u")))
    context, said = claude(session, context=True)
    assert (context["isMeta"], context["role"]) == (True, "user")
    assert context["content"] == [{"type": "text", "text": CONTEXT}]
    assert "isMeta" not in said
    assert claude(session.events(), context=True) == [context, said]


def test_messages_that_are_none_are_left_out(tmp_path):
    file = tmp_path / "session-x.json"
    file.write_text(json.dumps({"sessionId": "s", "messages": [7, record("Hi"), None]}))
    assert [message["id"] for message in claude(load(file))] == ["m-1"]


# ---- from events

USE_A = ToolUse("read_file", "a", {"file_path": "x"})
USE_B = ToolUse("glob", "b", {"pattern": "*"})


def test_a_stream_is_grouped_as_the_file_is():
    """S3-41, B-34: parallel calls are one message; what comes after their results is the next."""
    told = claude(
        [
            Init("auto"),
            UserMessage("Do it\n"),
            TextDelta("Two at "),
            Text("\nTwo at once. "),
            USE_A,
            USE_B,
            Thinking("Plan: both"),
            ToolResult(id="b", output="B"),
            ToolResult(id="a", output="A"),
            Error("careful", recoverable=True),
            Thinking("End: say so"),
            TextDelta("Done."),
            Text("Done."),
            Done("success"),
        ]
    )
    assert [message["role"] for message in told] == ["user", "assistant", "assistant"]
    assert told[0]["content"] == [{"type": "text", "text": "Do it\n"}]
    assert kinds(told[1]) == ["thinking", "Read", "tool_result", "Glob", "tool_result", "text"]
    assert [block.get("content") for block in told[1]["content"][1:5]] == [None, "A", None, "B"]
    assert told[1]["content"][-1]["text"] == "Two at once."
    assert kinds(told[2]) == ["thinking", "text"]


@pytest.mark.parametrize("next_event", [Text("x"), Thinking("x"), USE_B], ids=lambda e: e.type)
def test_a_message_begins_after_a_result_and_after_a_prompt(next_event):
    told = claude([UserMessage("p"), USE_A, ToolResult(id="a"), next_event, UserMessage("q")])
    assert [message["role"] for message in told] == ["user", "assistant", "assistant", "user"]


@pytest.mark.parametrize(
    ("result", "content", "is_error"),
    [
        (ToolResult(id="a", output="shown", content="told"), "told", False),
        (ToolResult(id="a", output="shown", content=""), "", False),
        (ToolResult(id="a", output={"n": 1}), '{"n":1}', False),
        (ToolResult(id="a"), "", False),
        (ToolResult(id="a", status="error", output="no"), "no", True),
        (ToolResult(id="a", status="denied", output="no"), "no", True),
    ],
)
def test_a_streamed_result_is_what_the_model_received_if_known(result, content, is_error):
    """S3-16, S3-17: a tool result has the content sent to the model, else the output; errors and
    denials are marked."""
    (told,) = claude([USE_A, result])
    assert (told["content"][1]["content"], told["content"][1]["is_error"]) == (content, is_error)


def test_a_result_whose_call_was_not_seen_is_kept():
    (told,) = claude([ToolResult(id="z", output="late"), ToolResult(id="y", output="later")])
    assert [block["tool_use_id"] for block in told["content"]] == ["z", "y"]


def test_each_answer_has_the_model_and_usage_of_its_own_request():
    """S3-22, S3-23, B-34: with one request per answer, each answer carries that request's model and
    tokens."""
    requests = (
        ModelRequest(input=5, output=2, total=7, model="flash"),
        ModelRequest(input=9, output=1, total=12, model="pro"),
    )
    stream = [UserMessage("p"), USE_A, ToolResult(id="a"), Text("t")]
    told = claude([*stream, Done("success", usage=Usage(requests=requests))])
    assert [message.get("model") for message in told] == [None, "flash", "pro"]
    assert told[2]["usage"] == {"input_tokens": 9, "output_tokens": 1, "total_tokens": 12}
    assert usage_of(requests[1]) == told[2]["usage"]
    for known in (requests[:1], (*requests, *requests)):
        unsure = claude([*stream, Done("success", usage=Usage(requests=known))])
        assert not any({"usage", "model"} & message.keys() for message in unsure)


def test_a_streamed_message_says_where_it_comes_from():
    """S3-5, S3-21, S3-22: its events are its original, and can be read again."""
    (told,) = claude([Text("Hi", timestamp=1761734160123, session_id="s-1")])
    assert (told["id"], told["timestamp"], told["tool"]) == ("s-1:0", 1761734160123, "gemini")
    (original,) = told["_original"]
    assert events.decode(json.dumps(original)) == Text(
        "Hi", timestamp=1761734160123, session_id="s-1"
    )
    assert json.loads(json.dumps(told)) == told


def test_a_replay_of_which_a_part_was_taken_tells_that_part(tmp_path):
    thoughts = [{"subject": "Plan", "description": "x"}]
    session = load(log(tmp_path, record("Hi", thoughts=thoughts, model="m")))
    (told,) = claude(event for event in session.events() if not isinstance(event, Thinking))
    assert (kinds(told), told["id"]) == (["text"], "m-1")


def test_saved_notes_are_told_by_a_replay_too(tmp_path):
    kinds_of_note = ("info", "warning", "error")
    session = load(log(tmp_path, *(record(f"a {kind}", kind, kind) for kind in kinds_of_note)))
    assert claude(session.events()) == claude(session)
    assert len(claude(session)) == 3


def test_answers_in_a_row_stay_apart_in_a_replay(tmp_path):
    session = load(log(tmp_path, record("one", id="m-1"), record("two", id="m-2")))
    assert claude(session.events()) == claude(session)
    assert len(claude(session)) == 2


async def test_a_session_that_is_followed_gives_its_messages(tmp_path):
    """A record is written again when its tools have answered; both make one message."""
    from geminorum.sessions import tail

    first = record("Reading.", id="g", thoughts=[{"subject": "Plan", "description": "x"}])
    file = log(
        tmp_path,
        record("Hi", "user", "u"),
        first,
        {**first, "toolCalls": [call("read_file", {"file_path": "a"}, {"output": "A"})]},
        record("Done.", id="g2"),
    )
    seen = []
    async for event in tail(file):
        seen.append(event)
        if len(seen) == 6:
            break
    assert claude(seen) == claude(load(file))


def test_a_live_answer_takes_its_thoughts_from_the_file_and_its_text_from_the_stream(tmp_path):
    """The record in the file may be an early one; the id and the tokens in it are right already."""
    early = record("Rea", thoughts=[{"subject": "Plan", "description": "x"}])
    session = load(log(tmp_path, early | {"model": "m", "tokens": {"input": 4, "total": 4}}))
    (thought,) = [event for event in session.events() if isinstance(event, Thinking)]
    (told,) = claude([Text("Reading."), thought])
    assert told["content"][-1] == {"type": "text", "text": "Reading."}
    assert (told["id"], told["model"], told["usage"]["input_tokens"]) == ("m-1", "m", 4)


def test_without_origin_leaves_what_both_ways_share():
    told = without_origin([saved("Hi", model="m")])
    assert told == [
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Hi"}],
            "tool": "gemini",
            "model": "m",
        }
    ]


@pytest.mark.parametrize("file", SAVED, ids=lambda file: f"{file.parent.name}-{file.stem[-12:]}")
def test_every_recorded_session_gives_the_same_messages_both_ways(file):
    """S3-41: sessions of four CLI versions; no message raises, and a replay equals the file."""
    session = load(file)
    told = claude(session)
    assert [message["id"] for message in told if message["role"] == "assistant"] == [
        message.id for message in session.messages if message.type == "gemini"
    ]
    assert claude(session.events()) == [message for message in told if message["content"]]
    assert all(message["_original"]["id"] == message["id"] for message in told)


# ---- the real CLI: live and loaded


def live_events(prompt, fake, transport, **options):
    with sync.run(prompt, Options(env=fake.env, **options), via=transport) as live:
        return list(live)


def loaded(fake, session_id):
    files = Path(fake.home).rglob(f"session-*-{session_id[:8]}.jsonl")
    # A resume in a later minute leaves a second file, with nothing in it.
    return max(map(load, files), key=lambda session: len(session.messages))


class Kept(NamedTuple):
    """Runs in one session, as they were told live, and the session as it was saved."""

    streams: list[list[Event]]
    session: Session


@pytest.fixture(scope="module")
def keep(real_transport, tmp_path_factory) -> Iterator[Callable[..., Kept]]:
    """Makes runs for several tests, each with its options and behind the one before."""

    def make(script: Callable[[FakeGemini], object], *prompts: tuple[str, dict]) -> Kept:
        with private_place(tmp_path_factory) as cwd:
            fake = stack.enter_context(FakeGemini())
            (cwd / "a.txt").write_text("alpha\n")
            script(fake)
            streams, resume = [], None
            for prompt, options in prompts:
                options = {"cwd": cwd, "resume": resume, **options}
                streams.append(live_events(prompt, fake, real_transport, **options))
                resume = streams[0][0].session_id
            return Kept(streams, loaded(fake, resume))

    # A session is read from its file when it is looked at.
    with ExitStack() as stack:
        yield make


@pytest.fixture(scope="module")
def resumed(keep) -> Kept:
    """Three runs: text, thoughts, reading, writing, a shell, a refusal, calls at once; a prompt
    with signs that the CLI takes for orders; and one that read a file by the prompt's own order,
    then one by itself, then failed."""
    read = {"functionCall": {"name": "read_file", "args": {"file_path": "a.txt"}}}
    change = {"file_path": "b.txt", "instruction": "i", "old_string": "hi", "new_string": "ho"}

    def script(fake: FakeGemini) -> None:
        fake.say("\nI read ", "it. ", read, thoughts=["**Plan** I read it", "**Then** I write"])
        fake.calls(
            ("write_file", {"file_path": "b.txt", "content": "hi\n"}),
            ("run_shell_command", {"command": "echo out; exit 3", "description": "Try"}),
            ("read_file", {"file_path": "missing.txt"}),
            ("google_web_search", {"query": "pipes"}),
            text="Several at once. ",
        )
        fake.calls(("replace", change), ("list_directory", {"dir_path": "."}))
        fake.say("Done", " now.\n\n", thoughts=["**End** nothing is left"])
        fake.call("read_file", file_path="a.txt").say("It is alpha.")
        fake.call("read_file", file_path="a.txt").fail(400, "no more")

    chosen = {"approval": "yolo", "disallowed_tools": ["google_web_search"]}
    prompts = (("/help @a.txt  ", {"literal": True}), ("What is @a.txt ?", {"literal": False}))
    return keep(script, ("Do it\n", chosen), *prompts)


@pytest.mark.gemini_cli
def test_a_run_reads_the_same_live_and_loaded(resumed):
    """S3-1, S3-41, B-34: live, loaded, and loaded as events."""
    told = claude(resumed.streams[0])
    saved = claude(resumed.session)
    assert without_origin(told) == without_origin(saved)[: len(told)]
    assert claude(resumed.session.events()) == saved
    assert [kinds(message) for message in told] == [
        ["text"],
        ["thinking", "thinking", "Read", "tool_result", "text"],
        [
            *("Write", "tool_result", "Bash", "tool_result", "Read", "tool_result"),
            *("WebSearch", "tool_result", "text"),
        ],
        ["Edit", "tool_result", "Glob", "tool_result"],
        ["thinking", "text"],
    ]
    errors = [block["is_error"] for block in told[2]["content"] if "is_error" in block]
    assert errors == [False, False, True, True]
    assert all(message["usage"]["input_tokens"] > 0 for message in told[1:])
    assert len(saved) > len(told)


@pytest.mark.gemini_cli
def test_a_prompt_with_signs_that_the_cli_takes_for_orders_reads_the_same(resumed):
    saved = without_origin(claude(resumed.session))
    first, *others = (without_origin(claude(stream)) for stream in resumed.streams)
    begin = len(first)
    for told in others:
        assert told == saved[begin : begin + len(told)]
        assert told[0]["role"] == "user"
        assert "@a.txt" in told[0]["content"][0]["text"]
        assert "alpha" not in told[0]["content"][0]["text"]
        begin += len(told)


@pytest.mark.gemini_cli
def test_a_failed_run_reads_the_same_as_far_as_it_went(resumed):
    """S3-46: the stream of a failed run and its session file give the same messages."""
    told = without_origin(claude(resumed.streams[-1]))
    assert [message["role"] for message in told] == ["user", "assistant"]
    assert told == without_origin(claude(resumed.session))[-2:]


@pytest.mark.gemini_cli
def test_a_resumed_session_is_its_runs_one_behind_the_other(resumed):
    told = without_origin([message for one in resumed.streams for message in claude(one)])
    assert told == without_origin(claude(resumed.session))
