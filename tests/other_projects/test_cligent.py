"""The streams of cligent's own tests, through the agent_adapter, end as its tests expect."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_contract_agent_adapter import payload, told, types

from geminorum.contracts.agent_adapter import AgentOptions, GeminiAdapter, Parsed, parse_ndjson


@pytest.fixture
def chunks(fixtures_folder: Path) -> dict[str, list[bytes]]:
    cases = json.loads((fixtures_folder / "cligent/ndjson-chunks.json").read_text())
    return {name: [text.encode() for text in texts] for name, texts in cases.items()}


class TestLines:
    async def test_complete_lines_are_data(self, chunks):
        """S0-6, S0-8: each complete line of cligent's chunks is decoded to its data."""
        assert await told(parse_ndjson(chunks["complete"])) == [
            Parsed(True, {"type": "message", "content": "hello"}),
            Parsed(True, {"type": "message", "content": "world"}),
        ]

    async def test_a_line_may_arrive_in_pieces(self, chunks):
        """S0-7: lines that cligent's chunks cut in two are joined before they are decoded."""
        assert await told(parse_ndjson(chunks["split"])) == [
            Parsed(True, {"type": "message", "content": "split"}),
            Parsed(True, {"type": "tool_use", "id": "1", "name": "bash"}),
        ]

    @pytest.mark.parametrize("name", ["malformed", "crlf_malformed"])
    async def test_a_malformed_line_is_reported_without_its_line_end(self, chunks, name):
        """S0-9, S0-10: the raw line has no carriage return."""
        (bad,) = [line for line in await told(parse_ndjson(chunks[name])) if not line.ok]
        assert bad.raw == "{bad json}"
        assert "JSON" in bad.error

    async def test_blank_lines_are_skipped_and_the_last_needs_no_newline(self, chunks):
        """S0-10: blank lines give no result, and a last line without a newline gives one."""
        results = await told(parse_ndjson(chunks["blank_and_no_final_newline"]))
        assert [result.data["content"] for result in results] == ["first", "last"]


@pytest.fixture
def replay(fixtures_folder: Path, stand_in) -> Callable[..., Any]:
    """A recording's events, told by a real program that leaves with `exit`."""

    async def play(name: str, exit: int = 0, options: AgentOptions | None = None, **how: Any):
        transport = stand_in(fixtures_folder / f"cligent/{name}.ndjson", exit=exit, **how)
        return await told(GeminiAdapter(transport).run("hi", options))

    return play


class TestStreams:
    async def test_every_native_event_type(self, replay):
        """S0-5, S0-11 … S0-16, S0-31: fixture 01 has one frame of each type; each becomes the event
        that cligent expects, with all fields."""
        events = await replay("01-canonical-all-types")
        assert types(events) == ["init", "text", "tool_use", "tool_result", "error", "done"]
        assert {event.session_id for event in events} == {"gemini-session-1"}
        init, text, call, answer, error, done = map(payload, events)
        assert init == {
            "model": "gemini-2.5-pro",
            "cwd": "/repo",
            "tools": ["edit", "ShellTool"],
            "capabilities": {"toolsKnown": True, "toolsSource": "stream"},
        }
        assert text == {"content": "Hello from Gemini"}
        assert call == {"toolName": "ShellTool", "toolUseId": "tool-1", "input": {"command": "ls"}}
        assert answer == {
            "toolUseId": "tool-1",
            "toolName": "ShellTool",
            "status": "success",
            "output": {"stdout": "file.txt"},
            "durationMs": 10,
        }
        assert error == {"code": "TRANSIENT", "message": "temporary error", "recoverable": True}
        assert done == {
            "status": "max_turns",
            "result": "summary",
            "resumeToken": "gemini-session-1",
            "usage": {
                "inputTokens": 12,
                "outputTokens": 34,
                "toolUses": 1,
                "totalCostUsd": 0.02,
            },
            "durationMs": 222,
        }

    async def test_the_tools_that_the_stream_names(self, replay):
        """S0-11: fixture 02, without an allowlist."""
        init, done = await replay("02-empty-allowlist-broader-stream-tools")
        assert init.payload["tools"] == ["replace", "run_shell_command"]
        assert done.payload["usage"]["toolUses"] == 0

    async def test_an_empty_allowlist_leaves_no_tool_whatever_the_stream_names(self, replay):
        """S0-24, S0-36: fixture 02; `init` lists the configured tools, here none, not those of the
        stream."""
        options = AgentOptions(allowed_tools=[])
        init, done = await replay("02-empty-allowlist-broader-stream-tools", options=options)
        assert init.payload["tools"] == []
        assert init.payload["capabilities"] == {"toolsKnown": True, "toolsSource": "configured"}
        assert done.payload["usage"]["toolUses"] == 0

    async def test_tools_are_counted_without_a_result(self, replay):
        """S0-31: fixture 03, whose exit 0 without a result is no success."""
        events = await replay("03-no-result-tool-use-counted")
        assert types(events) == ["init", "tool_use", "error", "done"]
        error, done = map(payload, events[-2:])
        assert done["usage"]["toolUses"] == 1
        assert (done["status"], error["code"]) == ("error", "MISSING_RESULT")
        assert events[-1].metadata["usageReported"] is False

    @pytest.mark.parametrize(
        ("name", "tool", "id", "arguments", "output"),
        [
            (
                "04-snake-case-tool-fields",
                "Read",
                "read-42",
                {"file_path": "/repo/file.txt"},
                "file contents",
            ),
            (
                "05-nested-functionCall-functionResponse",
                "Read",
                "call-99",
                {"path": "/a"},
                "file contents here",
            ),
            (
                "06-value-wrapped-function-parts",
                "Bash",
                "bash-1",
                {"command": "ls"},
                "file1.txt\nfile2.txt",
            ),
        ],
    )
    async def test_tool_frames_of_any_dialect(self, replay, name, tool, id, arguments, output):
        """S0-13, S0-14: fixtures 04, 05, 06; nested and wrapped tool frames give the same call and
        result."""
        _, call, answer, done = map(payload, await replay(name))
        assert call == {"toolName": tool, "toolUseId": id, "input": arguments}
        assert (answer["toolName"], answer["toolUseId"]) == (tool, id)
        assert (answer["status"], answer["output"]) == ("success", output)
        assert (done["status"], done["usage"]["toolUses"]) == ("success", 1)

    async def test_a_malformed_line_is_a_recoverable_error(self, replay):
        """S0-17: fixture 07; the error quotes the raw line, and the run still succeeds."""
        events = await replay("07-malformed-line-then-continue")
        assert types(events) == ["init", "error", "text", "done"]
        error = events[1].payload
        assert (error["code"], error["recoverable"]) == ("NDJSON_PARSE_ERROR", True)
        assert "raw: {bad json" in error["message"]
        assert events[-1].payload["status"] == "success"

    async def test_a_result_that_says_why_it_failed(self, replay):
        """S0-16: fixture 08; the message of the failed result is in the error and in `done`."""
        events = await replay("08-result-error-with-message", 1)
        _, error, done = map(payload, events)
        assert types(events) == ["init", "error", "done"]
        assert error["message"] == "API key not valid. Please pass a valid API key."
        assert (error["recoverable"], error["code"]) == (False, "AUTH")
        assert (done["status"], done["result"]) == ("error", error["message"])
        assert "GEMINI_API_KEY" in events[1].metadata["hint"]

    async def test_a_result_that_does_not_say_why_it_failed(self, replay):
        """S0-16: fixture 09; our own code stays in the metadata."""
        events = await replay("09-result-error-bare", 1)
        assert types(events) == ["init", "error", "done"]
        error = events[1].payload
        assert error["code"] == "GEMINI_RESULT_ERROR"
        assert events[1].metadata == {"code": "RUN_FAILED"}
        assert "Gemini result error" in error["message"]
        assert '"status":"error"' in error["message"]

    @pytest.mark.parametrize(("exit", "ours"), [(1, "MISSING_RESULT"), (42, "INPUT")])
    async def test_an_exit_code_that_means_failure(self, replay, exit, ours):
        """S0-19, S0-20: fixture 10; without a `result`, exit 1 and 42 end the run with an error
        that names the code."""
        events = await replay("10-no-result-exit-code", exit)
        assert types(events) == ["init", "text", "error", "done"]
        error, done = map(payload, events[-2:])
        assert (error["code"], events[-2].metadata["code"]) == ("GEMINI_EXIT_ERROR", ours)
        assert (done["status"], done["result"]) == ("error", error["message"])
        assert f"code {exit}" in error["message"]
        assert events[-1].metadata["exitCode"] == exit

    async def test_an_exit_code_that_means_the_turn_limit(self, replay):
        """S0-21: fixture 10; without a `result`, exit 53 means `max_turns`."""
        events = await replay("10-no-result-exit-code", 53)
        assert types(events) == ["init", "text", "done"]
        assert events[-1].payload["status"] == "max_turns"

    async def test_exit_0_without_a_result_is_no_success(self, replay):
        """S0-18 as overridden: fixture 10."""
        events = await replay("10-no-result-exit-code", 0)
        assert types(events) == ["init", "text", "error", "done"]
        error, done = map(payload, events[-2:])
        assert (error["code"], error["recoverable"]) == ("MISSING_RESULT", True)
        assert done["status"] == "error"

    async def test_a_stream_without_an_init_gets_one(self, replay, tmp_path):
        """S0-29: fixture 11; `init` is made from the options, because consumers rely on it."""
        options = AgentOptions(model="gemini-3-pro", cwd=tmp_path)
        events = await replay("11-result-error-code", 1, options)
        assert types(events) == ["init", "error", "done"]
        assert payload(events[0]) == {
            "model": "gemini-3-pro",
            "cwd": str(tmp_path),
            "tools": [],
            "capabilities": {"toolsKnown": False, "toolsSource": "unavailable"},
        }
        assert events[1].payload["code"] == "UNSUPPORTED_THINKING_LEVEL"
        assert len({event.session_id for event in events} - {""}) == 1

    async def test_the_session_to_resume(self, replay):
        """S0-30: fixtures 12 and 13; the resume token is the session id of the stream, or
        absent."""
        *_, told_id = await replay("12-resume-token-from-session")
        *_, no_id = await replay("13-no-session-id")
        assert payload(told_id)["resumeToken"] == "gemini-session-new"
        assert (payload(told_id)["result"], payload(told_id)["durationMs"]) == ("done", 100)
        assert "resumeToken" not in payload(no_id)

    @pytest.mark.parametrize(
        ("name", "tokens"),
        [
            ("14-usage-complete", (120, 20, 5)),
            ("15-usage-two-models-dup", (15, 5, 7)),
            ("16-usage-partial-api-error", (1, 2, 0)),
            ("17-usage-partial-zero-model", (1, 2, 0)),
        ],
    )
    async def test_usage_as_far_as_the_stream_tells(self, replay, name, tokens):
        """S0-31: fixtures 14 … 17, without their telemetry."""
        usage = (await replay(name))[-1].payload["usage"]
        assert (usage["inputTokens"], usage["outputTokens"], usage["toolUses"]) == tokens
