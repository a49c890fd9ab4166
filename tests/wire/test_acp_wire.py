"""The protocol: our frames against its official schema, what the real CLI said into events."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from geminorum import Done, Error, PermissionRequest, Text, TextDelta, Thinking, ToolResult, ToolUse
from geminorum.decisions import Allow, AllowAlways, Deny
from geminorum.events import ModelRequest, Unknown
from geminorum.wire.acp import protocol as acp
from geminorum.wire.acp.decoder import AcpDecoder, told_input
from geminorum.wire.acp.verdict import (
    Round,
    TurnEnding,
    ended_early,
    fits,
    judge,
    last_events,
    reported,
    was_cut,
)
from geminorum.wire.ending import Ending

RECORDINGS = sorted((Path(__file__).parents[1] / "recordings" / "acp").glob("*.jsonl"))
ALL = [json.loads(line) for path in RECORDINGS for line in path.read_text().splitlines()]
SAID = [row["msg"] for row in ALL if row["dir"] == "in"]
OPTIONS = [
    acp.Option("proceed_always", "allow_always"),
    acp.Option("proceed_once", "allow_once"),
    acp.Option("cancel", "reject_once"),
]


@pytest.fixture
def schema() -> Any:
    """The official package; a part of the development tools, and never of geminorum itself."""
    return pytest.importorskip("acp.schema", reason="pip install agent-client-protocol")


def raw(data: object) -> Raw:
    return Raw(msgspec.json.encode(data))


def chunk(text: str, kind: str = "agent_message_chunk") -> Raw:
    return raw({"sessionUpdate": kind, "content": {"type": "text", "text": text}})


def call(update: str, **fields: Any) -> Raw:
    return raw({"sessionUpdate": update, "toolCallId": "read_file__1", **fields})


def question(**call: Any) -> acp.Question:
    data = {"toolCallId": "run_shell_command__1", "kind": "execute", "title": "rm x", **call}
    return acp.Question("s", msgspec.convert(data, acp.ToolCallUpdate), OPTIONS)


def updates() -> Iterator[dict[str, Any]]:
    for message in SAID:
        if message.get("method") == "session/update":
            yield message["params"]["update"]


# ---- against the schema


def test_what_we_send_is_what_the_protocol_asks_for(schema):
    """Each of our frames is valid, and none has a field that the schema does not know."""
    cases = [
        (schema.InitializeRequest, acp.initialize("1.0")),
        (schema.NewSessionRequest, {"cwd": "/w", "mcpServers": []}),
        (schema.LoadSessionRequest, {"cwd": "/w", "mcpServers": [], "sessionId": "s"}),
        (schema.PromptRequest, acp.prompt("s", "Hi", literal=True)),
        (schema.SetSessionModeRequest, {"sessionId": "s", "modeId": "yolo"}),
        (schema.CancelNotification, {"sessionId": "s"}),
        (schema.RequestPermissionResponse, acp.choice(question(), Allow())),
        (schema.RequestPermissionResponse, acp.choice(question(), None)),
    ]
    for model, ours in cases:
        parsed = model.model_validate(json.loads(json.dumps(ours)))
        kept = parsed.model_dump(by_alias=True, exclude_unset=True)
        assert set(ours) <= set(kept), model.__name__


def test_what_the_cli_said_is_read_as_the_schema_reads_it(schema):
    """The same fields, the same values, for every update that a real CLI was heard to send."""
    told = [message for message in SAID if message.get("method") == "session/update"]
    assert len(told) > 100
    for message in told:
        theirs = schema.SessionNotification.model_validate(message["params"]).update
        ours = acp.update_of(raw(message["params"]["update"]))
        assert not isinstance(ours, str), ours
        if isinstance(ours, acp.Chunk | acp.ThoughtChunk):
            assert ours.content.text == theirs.content.text
        if isinstance(ours, acp.ToolCallUpdate):
            assert ours.tool_call_id == theirs.tool_call_id
            assert ours.status == theirs.status
            assert ours.title == (theirs.title or "")


def test_questions_and_answers_are_read_as_the_schema_reads_them(schema):
    asked = [m for m in SAID if m.get("method") == "session/request_permission"]
    assert asked
    for message in asked:
        theirs = schema.RequestPermissionRequest.model_validate(message["params"])
        ours = msgspec.convert(message["params"], acp.Question)
        assert [o.option_id for o in ours.options] == [o.option_id for o in theirs.options]
        assert [o.kind for o in ours.options] == [str(o.kind) for o in theirs.options]
        assert ours.tool_call.tool_call_id == theirs.tool_call.tool_call_id
    ended = [m["result"] for m in SAID if "stopReason" in m.get("result", {})]
    assert ended
    for result in ended:
        theirs = schema.PromptResponse.model_validate(result)
        ours = msgspec.convert(result, acp.Prompted)
        assert ours.stop_reason == theirs.stop_reason


# ---- lines


@pytest.mark.parametrize("line", [b"not json", b"[]", b"42", b"null", b"\xff\xfe", b'"x"', b""])
def test_a_line_that_is_no_message_is_none(line):
    assert acp.message_of(line) is None


@pytest.mark.parametrize("message", SAID[:200], ids=range(len(SAID[:200])))
def test_every_recorded_message_is_read_whole(message):
    found = acp.message_of(json.dumps(message).encode())
    assert found is not None
    assert (found.id, found.method) == (message.get("id"), message.get("method"))
    if "error" in message:
        assert found.error.code == message["error"]["code"]
    elif "result" in message:
        assert msgspec.json.decode(found.result) == message["result"]


def test_a_request_is_one_line_whatever_is_in_it():
    line = acp.request(1, "session/prompt", acp.prompt("s", "a\nb\r\u2028c", literal=True))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")


@pytest.mark.parametrize(
    ("text", "disarmed"),
    [
        ("/help", True),
        ("  /help", True),
        ("\ufeff/help", True),
        ("$HOME", True),
        ("What is /help?", False),
        ("@file", False),
    ],
)
def test_a_prompt_that_looks_like_a_command_is_disarmed(text, disarmed):
    """And only such a one; what the model reads is otherwise to the letter."""
    for literal in (True, False):
        sent = acp.prompt("s", text, literal=literal)["prompt"][0]["text"]
        assert (sent == text) is not (disarmed and literal)
        assert sent.endswith(text)


def test_only_an_option_that_was_offered_is_chosen():
    def chosen(decision, options):
        return acp.choice(
            acp.Question("s", acp.ToolCallUpdate(tool_call_id="x"), options), decision
        )

    assert chosen(Allow(), OPTIONS)["outcome"]["optionId"] == "proceed_once"
    assert chosen(AllowAlways(), OPTIONS)["outcome"]["optionId"] == "proceed_once"
    assert chosen(Deny("no"), OPTIONS)["outcome"]["optionId"] == "cancel"
    assert chosen(None, OPTIONS) == chosen(Allow(), OPTIONS[:1]) == acp.WITHDRAWN


# ---- updates to events


def test_no_update_of_a_real_cli_is_unknown():
    decoder = AcpDecoder("s")
    events = [event for update in updates() for event in decoder.update(raw(update), 1)]
    kinds = {event.kind for event in events if isinstance(event, Unknown)}
    # Replays of old conversations are forgotten before they get here.
    assert kinds <= {"mode_update", "user_message_chunk"}
    assert {TextDelta, Text, Thinking, ToolUse, ToolResult} <= {type(event) for event in events}


def test_chunks_make_a_text_and_a_tool_ends_it():
    decoder = AcpDecoder("s")
    events = [*decoder.update(chunk("Hel"), 1), *decoder.update(chunk("lo"), 2)]
    events += decoder.update(call("tool_call", status="in_progress", kind="read"), 3)
    assert events[:3] == [
        TextDelta("Hel", timestamp=1, session_id="s", frame=chunk("Hel")),
        TextDelta("lo", timestamp=2, session_id="s", frame=chunk("lo")),
        Text("Hello", timestamp=3, session_id="s"),
    ]
    assert (events[3].name, events[3].id) == ("read_file", "read_file__1")


def test_a_change_of_mode_is_not_agent_text():
    decoder = AcpDecoder("s")
    (event,) = decoder.update(chunk("[MODE_UPDATE] yolo"), 1)
    assert (type(event), event.kind) == (Unknown, "mode_update")
    assert decoder.flush(2) == []
    assert not decoder.spoke_last


@pytest.mark.parametrize(
    ("wire", "text"),
    [("**Plan**\nGo on", "Plan: Go on"), ("****\nGo on", "Go on"), ("Warning: x", "Warning: x")],
)
def test_a_thought_reads_as_it_does_on_the_other_transport(wire, text):

    (event,) = AcpDecoder("s").update(chunk(wire, "agent_thought_chunk"), 1)
    assert (type(event), event.text) == (Thinking, text)


def test_a_call_that_begins_with_its_failure_is_told_whole():
    failed = call("tool_call_update", status="failed", content=[
        {"type": "content", "content": {"type": "text", "text": "Tool … denied by policy."}}
    ])  # fmt: skip
    use, result = AcpDecoder("s").update(failed, 1)
    assert isinstance(use, ToolUse)
    assert (result.id, result.status, result.output) == (
        "read_file__1",
        "denied",
        "Tool … denied by policy.",
    )


def test_an_update_of_another_time_is_kept_whole():
    (event,) = AcpDecoder("s").update(raw({"sessionUpdate": "weather", "sky": "blue"}), 1)
    assert (event.kind, event.raw["sky"]) == ("weather", "blue")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {
                "content": [
                    {
                        "type": "content",
                        "content": {
                            "type": "text",
                            "text": "[current working directory /w] (why) [background]",
                        },
                    }
                ]
            },
            {"command": "rm x", "description": "why"},
        ),
        ({}, {"command": "rm x"}),
        (
            {
                "toolCallId": "write_file__1",
                "kind": "edit",
                "content": [{"type": "diff", "path": "/w/a", "oldText": "", "newText": "hi"}],
            },
            {"file_path": "/w/a", "content": "hi"},
        ),
        (
            {
                "toolCallId": "replace__1",
                "kind": "edit",
                "content": [{"type": "diff", "path": "/w/a", "oldText": "ha", "newText": "hi"}],
            },
            {"file_path": "/w/a", "old_content": "ha", "new_content": "hi"},
        ),
        (
            {
                "toolCallId": "mcp_py_add__1",
                "kind": "other",
                "content": [
                    {"type": "content", "content": {"type": "text", "text": '{"a":1,"b":2}'}}
                ],
            },
            {"a": 1, "b": 2},
        ),
        (
            {
                "toolCallId": "read_file__1",
                "kind": "read",
                "locations": [{"path": "/w/a"}],
            },
            {"file_path": "/w/a"},
        ),
    ],
)
def test_whoever_decides_sees_what_the_wire_tells(fields, told):
    asked = question(**fields)
    request = AcpDecoder("s").question(asked, raw({}), 1)
    assert (request.input, request.reason) == (told, "rm x")


def test_a_refused_call_has_its_result_when_the_model_is_told():
    decoder = AcpDecoder("s")
    request = decoder.question(question(), raw({}), 1)
    assert decoder.open_request(request, 2) == [request]
    asked, use = decoder.close_request(request, Deny("not today"), 2)
    assert (asked.decision, use.name) == ("deny", "run_shell_command")
    (result,) = decoder.add_unseen(request.id, request.name, "was canceled", True, 3)
    assert (result.status, result.output, result.content) == ("denied", "not today", "was canceled")
    assert decoder.close(4) == []


def test_a_call_that_was_asked_about_has_the_frame_of_the_question():
    decoder = AcpDecoder("s")
    request = decoder.question(question(), raw({"asked": "this"}), 1)
    decoder.open_request(request, 2)
    _, use = decoder.close_request(request, Allow(), 2)
    assert use.raw == {"asked": "this"}


def test_a_question_that_was_withdrawn_says_so():
    decoder = AcpDecoder("s")
    request = decoder.question(question(), raw({}), 1)
    decoder.open_request(request, 2)
    decision, _use, result = decoder.close(3)
    assert (decision.id, decision.decision) == (request.id, "deny")
    assert decision.reason == "cancelled before it was decided"
    assert result.status == "denied"
    assert decoder.close_request(request, Deny("too late"), 4) == []


def test_where_nobody_is_asked_the_stream_says_so_once():
    decoder = AcpDecoder("s")
    events = []
    for number in range(2):
        request = decoder.question(question(toolCallId=f"write_file__{number}"), raw({}), 1)
        events += decoder.open_request(request, 2)
        events += decoder.close_request(request, Deny("nobody"), 2, asked=False)
    assert [event.code for event in events if isinstance(event, Error)] == ["NOBODY_TO_ASK"]
    assert len([event for event in events if isinstance(event, PermissionRequest)]) == 2


def test_a_tool_that_only_the_file_knows_of_is_told_once():
    decoder = AcpDecoder("s", is_refused=lambda tool: tool == "web_fetch")
    use, result = decoder.add_unseen("nosuch__1", "nosuch", "not found in registry", True, 1)
    assert (use.name, result.status, result.error_type) == (
        "nosuch",
        "error",
        "tool_not_registered",
    )
    assert decoder.add_unseen("nosuch__1", "nosuch", "", True, 2) == []
    assert (
        decoder.add_unseen("web_fetch__1", "web_fetch", "not found", True, 2)[1].status == "denied"
    )


# ---- the verdict


def ending(**fields: Any) -> TurnEnding:
    return TurnEnding(Ending(None), **fields)


def prompted(reason: str = "end_turn", tokens: tuple[int, int] = (10, 1)) -> acp.Prompted:
    count = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
    usage = [{"model": "m", "token_count": count}] if tokens[0] else []
    meta = {"quota": {"token_count": count, "model_usage": usage}}
    return msgspec.convert({"stopReason": reason, "_meta": meta}, acp.Prompted)


def spoken() -> AcpDecoder:
    decoder = AcpDecoder("s")
    decoder.update(chunk("Hello"), 1)
    return decoder


def rounds(*tokens: tuple[int, int]) -> list[Round]:
    return [Round((ModelRequest(i, o, total=i + o, model="m"),)) for i, o in tokens]


@pytest.mark.parametrize(
    ("decoder", "reply", "status", "code"),
    [
        (spoken(), prompted(), "success", None),
        (AcpDecoder("s"), prompted(), "error", "INVALID_ANSWER"),
        (spoken(), prompted("cancelled"), "interrupted", None),
        (spoken(), prompted("max_turn_requests"), "error", "LOOP"),
        (AcpDecoder("s"), prompted("max_tokens"), "error", "CONTEXT_OVERFLOW"),
        (spoken(), prompted("refusal"), "error", "INVALID_ANSWER"),
    ],
)
def test_how_a_turn_ended(decoder, reply, status, code):
    """S0-21: each stop reason of ACP maps to a status and an error code."""
    verdict = judge(decoder, ending(reply=reply))
    assert (verdict.status, verdict.error.code if verdict.error else None) == (status, code)


def test_a_limit_of_turns_in_the_settings_is_told_from_a_loop():
    reached = ending(reply=prompted("max_turn_requests"), has_turn_limit=True)
    assert judge(spoken(), reached).status == "max_turns"


def test_an_answer_that_the_cli_did_not_count_was_cut():
    quota = prompted(tokens=(10, 1)).quota
    assert was_cut(quota, rounds((10, 1), (12, 2)))
    assert not was_cut(quota, rounds((10, 1)))
    assert was_cut(prompted(tokens=(0, 0)).quota, rounds((10, 1)))
    assert not was_cut(prompted(tokens=(22, 3)).quota, rounds((10, 1), (12, 2)))
    # Where it was asked again, the last answer is the one that counted.
    twice = [Round((ModelRequest(9, 9), ModelRequest(10, 1)))]
    assert not was_cut(quota, twice)
    assert fits(quota, twice)
    verdict = judge(spoken(), ending(reply=prompted(), rounds=rounds((10, 1), (12, 2))))
    assert verdict.error.code == "INVALID_ANSWER"
    assert "cut off" in verdict.error.message


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (acp.RpcError(400, '{"error":{"code":400,"message":"Bad"}}'), "API"),
        (acp.RpcError(401, "API key invalid"), "AUTH"),
        (acp.RpcError(429, "Rate limit exceeded. Try again later."), "QUOTA"),
        (acp.RpcError(503, "The model is overloaded"), "SERVER"),
        (acp.RpcError(404, "gone"), "MODEL_NOT_FOUND"),
        (acp.RpcError(500, "models/x is not found for API version v1beta"), "MODEL_NOT_FOUND"),
        (acp.RpcError(-32000, "Authentication required."), "AUTH"),
        (acp.RpcError(-32603, "Internal error", {"details": "fetch failed"}), "NETWORK"),
        (acp.RpcError(500, "exception TypeError: fetch failed sending request"), "NETWORK"),
        (acp.RpcError(500, '{"error":{"code":500,"message":"fetch failed"}}'), "SERVER"),
        (acp.RpcError(-32603, "Internal error", {"details": "boom"}), "RUN_FAILED"),
    ],
)
def test_an_error_of_the_protocol_has_the_type_of_its_cause(error, code):

    verdict = reported(error, Ending(None))
    assert (verdict.status, verdict.error.code) == ("error", code)
    status_is_known = error.code != 500 or code == "SERVER"
    if error.code > 0 and status_is_known:
        assert str(error.code) in verdict.error.message


def test_usage_is_exact_where_file_and_wire_agree():
    """B-15: cached tokens and thoughts come from the session file; ACP does not report them."""
    request = ModelRequest(10, 1, cached=4, thoughts=3, total=14, model="m")
    whole = ending(reply=prompted(), rounds=[Round((request,))], requests=[request])
    usage = last_events(spoken(), whole)[-1].usage
    assert (usage.exact, usage.cached, usage.thoughts) == (True, 4, 3)
    unseen = TurnEnding(Ending(None), prompted(), None, whole.rounds, [request], True)
    assert not last_events(spoken(), unseen)[-1].usage.exact
    without_file = last_events(spoken(), ending(reply=prompted()))[-1].usage
    assert (without_file.exact, without_file.total) == (False, 11)
    assert last_events(spoken(), ending(reply=prompted(tokens=(0, 0))))[-1].usage is None


def test_the_last_events_end_with_one_done():
    events = last_events(spoken(), ending(reply=prompted()), at=5, duration=1.5)
    assert [type(event) for event in events] == [Text, Done]
    assert (events[-1].resume, events[-1].duration) == ("s", 1.5)


def test_a_process_that_ended_early_says_why():

    old = ended_early(Ending(1, "Unknown argument: acp\n\nUsage: gemini [options]"))
    assert old.error.code == "CLI_TOO_OLD"
    assert "Cli()" in old.error.hint
    assert ended_early(Ending(41, "no key")).error.code == "AUTH"
    assert ended_early(Ending(-9)).error.code == "MISSING_RESULT"


def test_a_name_with_two_underscores_is_told_whole():
    """The CLI's ids repeat the name; a cut one would let one tool pass for another."""
    id = "mcp_crm_contacts__read__mcp_crm_contacts__read_1731740000000_0"
    assert acp.ToolCallUpdate(tool_call_id=id).name == "mcp_crm_contacts__read"
    assert acp.ToolCallUpdate(tool_call_id="write_file__write_file_17_0").name == "write_file"
    assert acp.ToolCallUpdate(tool_call_id="glob-17").name == "glob-17"


def test_whoever_decides_is_told_where_a_command_runs():
    call = acp.ToolCallUpdate(
        tool_call_id="run_shell_command__run_shell_command_1_0", kind="execute"
    )
    told = {"type": "content", "content": {"type": "text", "text": "[in sub] (Tidies up)"}}
    call.title, call.content = "git clean -fdx", [msgspec.convert(told, acp.Piece)]
    wanted = {"command": "git clean -fdx", "dir_path": "sub", "description": "Tidies up"}
    assert told_input(call) == wanted
