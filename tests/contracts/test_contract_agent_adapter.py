"""The AgentAdapter contract (S0): a framework written against that shape can plug Gemini in."""

import asyncio
import io
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from geminorum import Cli, Options
from geminorum.contracts import agent_adapter
from geminorum.contracts.agent_adapter import (
    EVENT_TYPES,
    TOOL_GROUPS,
    AbortSignal,
    AdapterRegistry,
    AgentAdapter,
    AgentEvent,
    AgentOptions,
    AgentTask,
    GeminiAdapter,
    Parsed,
    PermissionPolicy,
    envelope,
    guarded,
    legacy_flag_mapping,
    map_exit_code,
    parse_ndjson,
    run_agent,
    run_parallel,
)
from geminorum.contracts.agent_adapter.narrator import Narrator
from geminorum.errors import InvalidOptions
from geminorum.events import (
    Done,
    Error,
    Event,
    Init,
    PermissionDecision,
    PermissionRequest,
    Text,
    TextDelta,
    Thinking,
    ToolResult,
    ToolUse,
    Unknown,
    Usage,
    UserMessage,
)
from geminorum.policies import Rules
from recorded import recording, stream

INIT = {"type": "init", "session_id": "s-1", "model": "gemini-2.5-flash"}
HELLO = {"type": "message", "role": "assistant", "content": "Hello"}
SUCCESS = {"type": "result", "status": "success", "stats": {"input_tokens": 3, "output_tokens": 1}}

CALLS = (
    (("write_file", {"file_path": "a.txt"}), ("replace", {"file_path": "a.txt"})),
    (("run_shell_command", {"command": "git show"}),),
    (("google_web_search", {"query": "x"}), ("web_fetch", {"prompt": "x"})),
)
"""Calls of the tools behind each capability, in their order."""


async def told(events: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in events]


def types(events: list[AgentEvent]) -> list[str]:
    return [event.type for event in events]


def payload(event: AgentEvent) -> dict[str, Any]:
    return event.to_dict()["payload"]


# ---- lines


async def arriving(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


CHUNKS = {
    "complete": [b'{"n": 1}\n', b'{"n": 2}\n'],
    "split": [b'{"type": "mess', b'age", "n": 1}\n{"n"', b": 2}\n"],
    "malformed": [b'{"n": 1}\n', b'{"n": \n', b'{"n": 2}\n'],
    "crlf": [b'{"n": \r\n'],
    "blank": [b"\n", b'{"n": 1}\n', b"\r\n", b"  \t\r\n", b'{"n": 2}'],
}
"""Lines, and how they arrive."""


class TestLines:
    async def test_complete_lines_are_data(self):
        """S0-6, S0-8: each complete line gives `ok=True` and its data."""
        assert await told(parse_ndjson(arriving(CHUNKS["complete"]))) == [
            Parsed(True, {"n": 1}),
            Parsed(True, {"n": 2}),
        ]

    async def test_a_line_may_arrive_in_pieces(self):
        """S0-7: a line that is split over chunks is one result."""
        assert await told(parse_ndjson(arriving(CHUNKS["split"]))) == [
            Parsed(True, {"type": "message", "n": 1}),
            Parsed(True, {"n": 2}),
        ]

    @pytest.mark.parametrize("size", [1, 7, 4096])
    @pytest.mark.parametrize("name", ["0.11.3-tour", "0.61.0-at-once"])
    async def test_a_recorded_stream_may_arrive_in_any_pieces(self, name, size):
        """S0-6, S0-7, S0-8: every line of a real CLI, whatever the chunks."""
        data = stream(name).read_bytes()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert await told(parse_ndjson(arriving(pieces))) == [
            Parsed(True, json.loads(line)) for line in data.splitlines()
        ]

    async def test_a_result_does_not_wait_for_the_next_line(self):
        """S0-7, S0-8: a valid line is data as soon as it is complete."""
        asked_again = False

        async def stream() -> AsyncIterator[bytes]:
            nonlocal asked_again
            yield b'{"n": 1}\n{"n":'
            asked_again = True
            yield b" 2}\n"

        results = parse_ndjson(stream())
        assert await anext(results) == Parsed(True, {"n": 1})
        assert not asked_again
        assert await told(results) == [Parsed(True, {"n": 2})]

    async def test_a_malformed_line_is_reported_and_the_stream_continues(self):
        """S0-9: a malformed line gives the error and the raw line; the lines after it are
        parsed."""
        before, bad, after = await told(parse_ndjson(arriving(CHUNKS["malformed"])))
        assert (before.data, after.data) == ({"n": 1}, {"n": 2})
        assert (bad.ok, bad.raw, bad.data) == (False, '{"n": ', None)
        assert "JSON" in bad.error

    async def test_a_carriage_return_is_no_part_of_a_line(self):
        """S0-10: the carriage return of a CRLF line end is removed from the raw line."""
        (bad,) = await told(parse_ndjson(arriving(CHUNKS["crlf"])))
        assert bad.raw == '{"n": '

    async def test_blank_lines_are_skipped_and_the_last_needs_no_newline(self):
        """S0-10: blank lines give no result, and a last line without a newline gives one."""
        results = await told(parse_ndjson(arriving(CHUNKS["blank"])))
        assert [result.data for result in results] == [{"n": 1}, {"n": 2}]

    async def test_plain_iterables_are_streams_too(self):
        """S0-6: `parse_ndjson` takes a list of chunks as well as an async stream."""
        expected = await told(parse_ndjson(arriving(CHUNKS["malformed"])))
        assert await told(parse_ndjson(CHUNKS["malformed"])) == expected

    async def test_a_pipe_may_carry_lines_longer_than_its_own_limit(self):
        """S0-6: asyncio's reader refuses lines over 64 KiB."""
        reader = asyncio.StreamReader()
        line = json.dumps({"text": "é" * 200_000}, ensure_ascii=False).encode()
        reader.feed_data(line + b"\n" + b"[1]")
        reader.feed_eof()
        first, last = await told(parse_ndjson(reader))
        assert (len(first.data["text"]), last.data) == (200_000, [1])

    async def test_chunks_may_be_text(self):
        """S0-6: a stream with an encoding set yields str; whole texts count as one chunk."""
        expected = await told(parse_ndjson(CHUNKS["malformed"]))
        texts = [chunk.decode() for chunk in CHUNKS["malformed"]]
        assert await told(parse_ndjson(texts)) == expected
        assert await told(parse_ndjson(io.StringIO("".join(texts)))) == expected
        assert await told(parse_ndjson("".join(texts))) == expected
        assert await told(parse_ndjson("".join(texts).encode())) == expected

    async def test_half_a_character_in_a_text_costs_only_itself(self):
        """S0-9: a lone surrogate in a text chunk, which cannot be encoded, does not spoil other
        lines."""
        pieces = ['{"a": "caf\u00e9', ' \ud83d"}\n', '{"b": 1}']
        assert await told(parse_ndjson(pieces)) == [
            Parsed(True, {"a": "caf\u00e9 \ufffd"}),
            Parsed(True, {"b": 1}),
        ]

    async def test_hostile_lines_cost_only_themselves(self):
        """S0-9: broken UTF-8 is repaired, and lines that are nested too deep or too long become
        errors."""
        lines = [b'"\xff"\n', b"[" * 100_000 + b"\n", b'"' + b"x" * 300_000 + b'"\n', b"1\n"]
        mended, deep, long, last = await told(parse_ndjson(lines, longest_line=200_000))
        assert (mended.data, last.data) == ("\ufffd", 1)
        assert [deep.ok, long.ok] == [False, False]
        assert "overlong" in long.error


# ---- the adapter


class TestIdentity:
    def test_it_is_an_agent_adapter_for_gemini(self):
        """S0-1: `GeminiAdapter` satisfies the `AgentAdapter` protocol and names its agent
        "gemini"."""
        assert isinstance(GeminiAdapter(), AgentAdapter)
        assert GeminiAdapter.agent == "gemini"

    def test_no_gemini_sdk_is_loaded(self):
        """S0-2: importing and creating the adapter loads no Google, MCP or ACP package."""
        code = (
            "import sys, geminorum.contracts.agent_adapter as a; a.GeminiAdapter();"
            "print([n for n in sys.modules if n.split('.')[0] in ('google', 'mcp', 'acp')])"
        )
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (answer.stdout.strip(), answer.stderr) == ("[]", "")

    def test_the_licence_of_the_shape_is_named(self):
        """S0-37: the source file has the SPDX header and names the Apache-2.0 document."""
        source = Path(agent_adapter.__file__).read_text()
        assert source.startswith("# SPDX-License-Identifier: Apache-2.0\n")
        assert "Apache-2.0 document" in agent_adapter.__doc__


class TestAvailability:
    async def test_a_cli_that_starts_is_available(self, stand_in):
        """S0-3: `is_available` runs `gemini --version` and is True if that succeeds."""
        assert await GeminiAdapter(stand_in()).is_available()
        assert stand_in.call["argv"] == ["--version"]

    async def test_a_cli_that_fails_is_not_available(self, stand_in):
        """S0-3: `is_available` is False if the program exits with an error."""
        assert not await GeminiAdapter(stand_in(exit=1)).is_available()

    async def test_a_missing_cli_is_not_available(self, tmp_path):
        """S0-3: `is_available` is False if the program does not exist."""
        assert not await GeminiAdapter(Cli(executable=tmp_path / "gemini")).is_available()

    async def test_the_cli_is_looked_for_on_path(self, stand_in, tmp_path, monkeypatch):
        """S0-3: without an explicit executable, `is_available` finds `gemini` on PATH."""
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "gemini").symlink_to(stand_in().executable)
        monkeypatch.delenv("GEMINI_CLI_PATH", raising=False)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        assert await GeminiAdapter().is_available()


class TestStarting:
    async def test_the_prompt_and_the_model_reach_the_cli(self, stand_in, tmp_path):
        """S0-4, S0-25: the prompt goes to stdin, the model and the session to flags, and the CLI
        runs in `cwd`."""
        adapter = GeminiAdapter(stand_in(INIT, SUCCESS))
        await told(adapter.run("Say hello", AgentOptions(cwd=tmp_path, model="flash", resume="s1")))
        called = stand_in.call
        assert "--output-format=stream-json" in called["argv"]
        assert {"--model=flash", "--resume=s1"} < {*called["argv"]}
        assert (called["stdin"], called["cwd"]) == ("Say hello", str(tmp_path))

    async def test_the_turn_limit_goes_into_the_settings_not_into_a_flag(self, stand_in):
        """S0-26, as B-19 resolves it: the CLI has no flag for the turn limit, so it is in the run's
        settings."""
        adapter = GeminiAdapter(stand_in(INIT, hang=True))
        async with aclosing(adapter.run("hi", AgentOptions(max_turns=3))) as events:
            await anext(events)
            called = stand_in.call
            home = Path(called["env"]["GEMINI_CLI_HOME"])
            settings = json.loads((home / ".gemini/settings.json").read_text())
        assert settings["model"] == {"maxSessionTurns": 3}
        assert legacy_flag_mapping()["max_turns"] == "--max-session-turns"
        assert not any("max-session-turns" in argument for argument in called["argv"])

    def test_the_documents_other_flags(self):
        """S0-25, S0-26: `legacy_flag_mapping` returns the document's flags, including one that the
        CLI lacks."""
        assert legacy_flag_mapping() == {
            "model": "--model",
            "max_turns": "--max-session-turns",
            "permissions": "--allowed-tools",
        }

    async def test_what_the_shape_has_no_word_for_comes_from_the_base(self, stand_in):
        base = Options(env={"COLOUR": "blue"}, model="pro", approval="plan")
        adapter = GeminiAdapter(stand_in(INIT, SUCCESS), base)
        await told(adapter.run("hi", AgentOptions(model="flash")))
        assert stand_in.call["env"]["COLOUR"] == "blue"
        assert {"--model=flash", "--approval-mode=plan"} < {*stand_in.call["argv"]}


# ---- streams, through a real process

EVERY_TYPE = (
    {"type": "init", "sessionId": "s-7", "model": "flash", "cwd": "/poems", "tools": ["wc", "ls"]},
    {"type": "message", "sessionId": "s-7", "content": "I count the words."},
    {"type": "tool_use", "sessionId": "s-7", "id": "wc-1", "name": "wc", "input": {"-w": "a.md"}},
    {
        "type": "tool_result",
        "sessionId": "s-7",
        "toolUseId": "wc-1",
        "toolName": "wc",
        "status": "success",
        "output": {"words": 3},
        "duration_ms": 25,
    },
    {
        "type": "error",
        "sessionId": "s-7",
        "code": "SLOW",
        "message": "the model is slow",
        "recoverable": True,
    },
    {
        "type": "result",
        "sessionId": "s-7",
        "status": "max_turns",
        "result": "Three words.",
        "stats": {"input_tokens": 40, "output_tokens": 9, "tool_uses": 1, "total_cost_usd": 0.5},
        "duration_ms": 300,
    },
)
"""Every type of the document, with the fields that it names and the real CLI does not have."""
READ, FOUND = {"path": "a.md"}, "Pipes are patient"
DIALECTS = {
    "the CLI's": (
        {"tool_name": "read_file", "tool_id": "r-1", "parameters": READ},
        {"tool_id": "r-1", "status": "success", "output": FOUND},
    ),
    "nested": (
        {"functionCall": {"name": "read_file", "id": "r-1", "args": READ}},
        {"functionResponse": {"name": "read_file", "id": "r-1", "response": FOUND}},
    ),
    "in a value": (
        {"value": {"functionCall": {"name": "read_file", "id": "r-1", "args": READ}}},
        {"value": {"functionResponse": {"name": "read_file", "id": "r-1", "response": FOUND}}},
    ),
}
"""The same call and its result in the spellings that the document accepts."""
RECORDED = {
    "0.11.3-reading": ("They are about pipes.", ["read_file"], (9136, 31)),
    "0.11.3-tour": (
        "I write the poem. Is it there? I read it again.What do others write? The poem is done.",
        [
            *("list_directory", "write_file", "list_directory", "read_file"),
            *("google_web_search", "replace"),
        ],
        (37034, 167),
    ),
    "0.29.0-shell": ("I count the words. Three words.", ["run_shell_command"], (9299, 33)),
    "0.61.0-at-once": (
        "Three at once. Two of three went well.",
        ["read_file", "list_directory", "run_shell_command"],
        (16224, 40),
    ),
    "0.61.0-misnamed": ("That did not work.", ["write_file"], (16173, 37)),
}
"""The text, the tools and the tokens of each stream of `fixtures/make.py`."""


@pytest.fixture
def replay(stand_in) -> Callable[..., Any]:
    """The events of a stream, written by a real program that exits with `exit`."""

    async def play(*lines: Any, exit: int = 0, options: AgentOptions | None = None, **how: Any):
        transport = stand_in(*lines, exit=exit, **how)
        return await told(GeminiAdapter(transport).run("hi", options))

    return play


@pytest.fixture
def rerun(replay) -> Callable[..., Any]:
    """The events of a run that a real CLI 0.61.0 ended in its own way."""

    async def play(name: str):
        run = recording("0.61.0", name)
        died = {"signal": -run["exit"]} if run["exit"] < 0 else {"exit": run["exit"]}
        return await replay(run["stdout"].encode(), stderr=run["stderr"], **died)

    return play


class TestRecordings:
    @pytest.mark.parametrize("name", RECORDED)
    async def test_runs_of_three_cli_versions(self, replay, name):
        """S0-11 … S0-16, S0-30, S0-31: recordings of three versions give the same text, calls with
        results, tokens and session."""
        text, tools, tokens = RECORDED[name]
        events = await replay(stream(name))
        first = json.loads(stream(name).read_text().splitlines()[0])
        assert (types(events)[0], types(events)[-1]) == ("init", "done")
        assert {event.session_id for event in events} == {first["session_id"]}
        assert payload(events[0])["model"] == first["model"]
        uses = [payload(event) for event in events if event.type == "tool_use"]
        results = [payload(event) for event in events if event.type == "tool_result"]
        assert [use["toolName"] for use in uses] == [r["toolName"] for r in results] == tools
        assert [use["toolUseId"] for use in uses] == [r["toolUseId"] for r in results]
        done = payload(events[-1])
        assert (done["status"], done["result"]) == ("success", text)
        assert done["resumeToken"] == first["session_id"]
        usage = done["usage"]
        assert (usage["inputTokens"], usage["outputTokens"]) == tokens
        assert usage["toolUses"] == len(tools)

    async def test_calls_that_failed_in_a_recorded_run(self, replay):
        """S0-14: a failed call in a recording has its status and its reason."""
        events = await replay(stream("0.61.0-misnamed"))
        (result,) = [payload(event) for event in events if event.type == "tool_result"]
        assert (result["status"], result["output"]) == (
            "error",
            "params must have required property 'file_path'",
        )

    async def test_every_native_event_type(self, replay):
        """S0-5, S0-11 … S0-16, S0-31: one frame of each type becomes the interface's event, with
        all its fields."""
        events = await replay(*EVERY_TYPE)
        assert types(events) == ["init", "text", "tool_use", "tool_result", "error", "done"]
        assert {event.session_id for event in events} == {"s-7"}
        init, text, call, answer, error, done = map(payload, events)
        assert init == {
            "model": "flash",
            "cwd": "/poems",
            "tools": ["wc", "ls"],
            "capabilities": {"toolsKnown": True, "toolsSource": "stream"},
        }
        assert text == {"content": "I count the words."}
        assert call == {"toolName": "wc", "toolUseId": "wc-1", "input": {"-w": "a.md"}}
        assert answer == {
            "toolUseId": "wc-1",
            "toolName": "wc",
            "status": "success",
            "output": {"words": 3},
            "durationMs": 25,
        }
        assert error == {"code": "SLOW", "message": "the model is slow", "recoverable": True}
        assert done == {
            "status": "max_turns",
            "result": "Three words.",
            "resumeToken": "s-7",
            "usage": {"inputTokens": 40, "outputTokens": 9, "toolUses": 1, "totalCostUsd": 0.5},
            "durationMs": 300,
        }

    async def test_an_empty_allowlist_leaves_no_tool_whatever_the_stream_names(self, replay):
        """S0-24, S0-36: the configured tools count, not those that the stream names."""
        options = AgentOptions(allowed_tools=[])
        init, done = await replay(EVERY_TYPE[0], SUCCESS, options=options)
        assert init.payload["tools"] == []
        assert init.payload["capabilities"] == {"toolsKnown": True, "toolsSource": "configured"}
        assert done.payload["usage"]["toolUses"] == 0

    @pytest.mark.parametrize("name", ["sigterm_group_tool", "sigkill_norelaunch_tool"])
    async def test_tools_are_counted_without_a_result(self, rerun, name):
        """S0-31: a run that was ended in mid-call reports no usage, and is no success."""
        events = await rerun(name)
        error, done = map(payload, events[-2:])
        assert done["usage"]["toolUses"] == 1
        assert (done["status"], events[-2].type) == ("error", "error")
        assert error["message"] == done["result"]
        assert events[-1].metadata["usageReported"] is False

    @pytest.mark.parametrize("dialect", DIALECTS)
    async def test_tool_frames_of_any_dialect(self, replay, dialect):
        """S0-13, S0-14: nested and wrapped function parts mean the same."""
        used, answered = DIALECTS[dialect]
        frames = {"type": "tool_use", **used}, {"type": "tool_result", **answered}
        _, call, answer, done = map(payload, await replay(INIT, *frames, SUCCESS))
        assert call == {"toolName": "read_file", "toolUseId": "r-1", "input": READ}
        assert (answer["toolName"], answer["toolUseId"]) == ("read_file", "r-1")
        assert (answer["status"], answer["output"]) == ("success", FOUND)
        assert (done["status"], done["usage"]["toolUses"]) == ("success", 1)

    async def test_a_malformed_line_is_a_recoverable_error(self, replay):
        """S0-17: the error event quotes the malformed line, and the stream continues."""
        events = await replay(INIT, '{"type": "mess', HELLO, SUCCESS)
        assert types(events) == ["init", "error", "text", "done"]
        error = events[1].payload
        assert (error["code"], error["recoverable"]) == ("NDJSON_PARSE_ERROR", True)
        assert 'raw: {"type": "mess' in error["message"]
        assert events[-1].payload["status"] == "success"

    async def test_a_result_that_says_why_it_failed(self, rerun):
        """S0-16: a refused key, as CLI 0.61.0 reports it, is in the error and in `done`."""
        events = await rerun("err401")
        assert types(events) == ["init", "gemini:user_message", "error", "done"]
        error, done = map(payload, events[-2:])
        assert "fake 401 UNAUTHENTICATED" in error["message"]
        assert (error["recoverable"], error["code"]) == (False, "AUTH")
        assert (done["status"], done["result"]) == ("error", error["message"])
        assert "GEMINI_API_KEY" in events[-2].metadata["hint"]

    async def test_a_result_that_does_not_say_why_it_failed(self, replay):
        """S0-16: without a reason the message shows the frame, and geminorum's own code is in
        `metadata`."""
        events = await replay(INIT, {"type": "result", "status": "error"}, exit=1)
        assert types(events) == ["init", "error", "done"]
        error = events[1].payload
        assert error["code"] == "GEMINI_RESULT_ERROR"
        assert events[1].metadata == {"code": "RUN_FAILED"}
        assert "Gemini result error" in error["message"]
        assert '"status": "error"' in error["message"]

    @pytest.mark.parametrize(("exit", "ours"), [(1, "MISSING_RESULT"), (42, "INPUT")])
    async def test_an_exit_code_that_means_failure(self, replay, exit, ours):
        """S0-19, S0-20: without a `result`, exit 1 and 42 end the run with an error that names the
        code."""
        events = await replay(INIT, HELLO, exit=exit)
        assert types(events) == ["init", "text", "error", "done"]
        error, done = map(payload, events[-2:])
        assert (error["code"], events[-2].metadata["code"]) == ("GEMINI_EXIT_ERROR", ours)
        assert (done["status"], done["result"]) == ("error", error["message"])
        assert f"code {exit}" in error["message"]
        assert events[-1].metadata["exitCode"] == exit

    async def test_an_exit_code_that_means_the_turn_limit(self, replay):
        """S0-21: exit 53 without a `result` gives the status `max_turns`."""
        events = await replay(INIT, HELLO, exit=53)
        assert types(events) == ["init", "text", "done"]
        assert events[-1].payload["status"] == "max_turns"

    async def test_a_recorded_run_that_reached_its_turn_limit(self, rerun):
        """S0-16, S0-21: CLI 0.61.0 reports an error and exits with 53; the status is
        `max_turns`."""
        done = (await rerun("maxturns"))[-1].payload
        assert (done["status"], done["usage"]["toolUses"]) == ("max_turns", 2)

    async def test_exit_0_without_a_result_is_no_success(self, rerun):
        """S0-18 as overridden: a CLI that was ended by a signal may exit with 0; the run is an
        error."""
        events = await rerun("sigterm_group_stream")
        error, done = map(payload, events[-2:])
        assert (error["code"], error["recoverable"]) == ("MISSING_RESULT", True)
        assert done["status"] == "error"

    async def test_a_stream_without_an_init_gets_one(self, replay, tmp_path):
        """S0-29: the generated `init` has the requested model and folder, and an id."""
        options = AgentOptions(model="gemini-3-pro", cwd=tmp_path)
        failed = {"status": "error", "error": {"code": "NO_LEVEL", "message": "no such level"}}
        events = await replay({"type": "result", **failed}, exit=1, options=options)
        assert types(events) == ["init", "error", "done"]
        assert payload(events[0]) == {
            "model": "gemini-3-pro",
            "cwd": str(tmp_path),
            "tools": [],
            "capabilities": {"toolsKnown": False, "toolsSource": "unavailable"},
        }
        assert events[1].payload["code"] == "NO_LEVEL"
        assert len({event.session_id for event in events} - {""}) == 1

    async def test_without_a_session_there_is_none_to_resume(self, replay):
        """S0-30: without a session id there is no resume token; text and duration of the result
        count."""
        nameless = {"type": "init", "model": "gemini-2.5-flash"}
        done = payload((await replay(nameless, {**SUCCESS, "result": "ok", "durationMs": 70}))[-1])
        assert "resumeToken" not in done
        assert (done["result"], done["durationMs"]) == ("ok", 70)

    async def test_usage_of_several_models_is_added_up(self, replay):
        """S0-31: the tokens of the router's model and of the one that answered are added."""
        models = json.loads(stream("0.61.0-at-once").read_text().splitlines()[-1])["stats"][
            "models"
        ]
        done = (await replay(stream("0.61.0-at-once")))[-1]
        assert len(models) == 2
        assert done.payload["usage"]["inputTokens"] == sum(
            share["input_tokens"] for share in models.values()
        )

    @pytest.mark.parametrize(
        ("code", "status"), [(0, "success"), (1, "error"), (42, "error"), (53, "max_turns")]
    )
    def test_the_bare_exit_code_table(self, code, status):
        """S0-18 … S0-21: `map_exit_code` maps the code alone, so exit 0 is a success there."""
        assert map_exit_code(code) == status


class TestOwnStreams:
    async def test_the_text_of_a_success_is_its_result(self, stand_in):
        delta = {**HELLO, "content": "lo", "delta": True}
        transport = stand_in(
            INIT, {**HELLO, "role": "user", "content": "hi"}, HELLO, delta, SUCCESS
        )
        events = await told(GeminiAdapter(transport).run("hi"))
        assert types(events) == [
            *("init", "gemini:user_message", "text", "text_delta", "text", "done"),
        ]
        assert payload(events[-1])["result"] == "Hellolo"
        assert all(event.timestamp > 1_600_000_000_000 for event in events)
        assert {event.session_id for event in events} == {"s-1"}

    async def test_an_init_that_comes_late_is_not_a_second_one(self, stand_in):
        """S0-29: older CLIs print a greeting first; a late `init` becomes `gemini:init`."""
        events = await told(GeminiAdapter(stand_in("Loaded credentials.", INIT, SUCCESS)).run("hi"))
        assert types(events) == ["init", "error", "gemini:init", "done"]
        assert payload(events[2])["model"] == "gemini-2.5-flash"
        assert payload(events[-1])["resumeToken"] == "s-1"

    async def test_stderr_says_why_and_the_exit_code_is_named(self, stand_in):
        transport = stand_in(exit=41, stderr="Please set an Auth method in your settings.json")
        init, error, done = await told(GeminiAdapter(transport).run("hi"))
        assert init.type == "init"
        assert error.payload["message"] == (
            "Please set an Auth method in your settings.json (exit code 41)"
        )
        assert (error.payload["code"], error.metadata["code"]) == ("GEMINI_EXIT_ERROR", "AUTH")
        assert done.payload["result"] == error.payload["message"]

    async def test_a_time_limit_of_ours_keeps_its_code(self, stand_in):
        adapter = GeminiAdapter(stand_in(INIT, hang=True), Options(timeout=0.3))
        events = await told(adapter.run("hi"))
        assert types(events) == ["init", "error", "done"]
        assert (events[1].payload["code"], events[2].payload["status"]) == ("TIMEOUT", "error")

    async def test_an_error_told_in_the_stream_is_the_result_of_the_failure(self, stand_in):
        error = {"type": "error", "severity": "error", "message": "blocked for safety"}
        transport = stand_in(INIT, error, {"type": "result", "status": "error"}, exit=1)
        events = await told(GeminiAdapter(transport).run("hi"))
        assert types(events) == ["init", "error", "done"]
        assert events[-1].payload["result"] == "blocked for safety"

    async def test_a_resumed_session_stays_resumable_when_the_cli_names_none(self, stand_in):
        events = await told(GeminiAdapter(stand_in()).run("hi", AgentOptions(resume="s-0")))
        assert {event.session_id for event in events} == {"s-0"}
        assert payload(events[-1])["resumeToken"] == "s-0"

    async def test_exit_0_without_a_result_is_the_error_that_the_page_names(self, stand_in):
        """S0-18 as overridden: text that arrived is kept."""
        events = await told(GeminiAdapter(stand_in(INIT, HELLO, exit=0)).run("hi"))
        assert types(events) == ["init", "text", "error", "done"]
        code, status = events[2].payload["code"], events[3].payload["status"]
        page = Path(__file__).parents[2] / "docs/agent-adapter.md"
        assert f"`error({code})` and `done({status})`" in page.read_text()

    async def test_a_lost_session_is_not_offered_for_resuming(self, stand_in):
        """S0-30, B-22: after SESSION_LOST there is no resume token, because the next run would fail
        with it again."""
        transport = stand_in(
            stderr='Error resuming session: Invalid session identifier "s-0"', exit=42
        )
        events = await told(GeminiAdapter(transport).run("hi", AgentOptions(resume="s-0")))
        assert types(events) == ["init", "error", "done"]
        assert events[1].metadata["code"] == "SESSION_LOST"
        assert "resumeToken" not in payload(events[-1])

    def test_the_session_that_replaces_a_lost_one_can_be_resumed(self, tmp_path):
        """S0-30: after a lost session, the resume token is the id of the new one."""
        narrator = Narrator(AgentOptions(resume="s-0"), tmp_path)
        lost = Error("the session is lost", "SESSION_LOST", recoverable=True)
        stream = [lost, Init(session_id="s-1"), Text("Hello"), Done("success", resume="s-1")]
        events = [event for core in stream for event in narrator.tell(core)]
        assert payload(events[-1])["resumeToken"] == "s-1"

    def test_errors_of_a_transport_on_the_way_are_told_in_order(self, tmp_path):
        """A transport that complains in mid-run is not withheld once the run goes on."""
        narrator = Narrator(AgentOptions(), tmp_path)
        stream = [Init(), Error("one", "API"), Error("two", "API"), Text("on"), Done("success")]
        events = [event for core in stream for event in narrator.tell(core)]
        assert types(events) == ["init", "error", "error", "text", "done"]
        assert [event.payload["message"] for event in events[1:3]] == ["one", "two"]


class TestSetupErrors:
    async def test_a_missing_cli_is_an_event_that_says_what_to_type(self, tmp_path):
        """S0-34: a missing CLI is an error event with a hint; no exception leaves the adapter."""
        events = await told(GeminiAdapter(Cli(executable=tmp_path / "gemini")).run("hi"))
        assert types(events) == ["init", "error", "done"]
        error = events[1].payload
        assert (error["code"], error["recoverable"]) == ("CLI_NOT_FOUND", False)
        assert "npm install" not in error["message"]
        assert "npm install" in events[1].metadata["hint"]
        assert events[2].payload["status"] == "error"
        assert events[2].payload["result"] == error["message"]

    @pytest.mark.parametrize(
        ("options", "code", "names"),
        [
            (AgentOptions(allowed_tools=["no tool"]), "INVALID_OPTIONS", "no tool"),
            (AgentOptions(max_budget_usd=-1.5), "INVALID_OPTIONS", "max_budget_usd"),
            (AgentOptions(max_turns=0), "INVALID_OPTIONS", "max_turns"),
            (AgentOptions(cwd="/no/such/folder"), "INVALID_OPTIONS", "/no/such/folder"),
        ],
    )
    async def test_what_cannot_be_honoured_is_refused_before_the_start(
        self, stand_in, options, code, names
    ):
        """S0-33: an impossible option is an error event that names it, and no process is
        started."""
        events = await told(GeminiAdapter(stand_in(INIT, SUCCESS)).run("hi", options))
        assert types(events) == ["init", "error", "done"]
        assert events[1].payload["code"] == code
        assert names in events[1].payload["message"]
        with pytest.raises(FileNotFoundError):
            _ = stand_in.call

    async def test_plain_dicts_are_options(self, stand_in, tmp_path):
        """S0-33: `run` takes a plain dict in the document's camelCase."""
        signal = AbortSignal()
        plain = {
            "cwd": str(tmp_path),
            "model": "gemini-2.5-pro",
            "allowedTools": ["glob"],
            "abortSignal": signal,
        }
        adapter = GeminiAdapter(stand_in(INIT, HELLO, SUCCESS))
        for run in (adapter.run, partial(run_agent, adapter)):
            events = await told(run("hi", plain))
            assert events[0].payload["tools"] == ["glob"]
            assert events[-1].payload["status"] == "success"
            assert stand_in.call["cwd"] == str(tmp_path)
            assert "--model=gemini-2.5-pro" in stand_in.call["argv"]
        signal.abort()
        for run in (adapter.run, partial(run_agent, adapter)):
            (done,) = await told(run("hi", plain))
            assert done.payload["status"] == "interrupted"

    async def test_parallel_tasks_take_plain_dicts(self, stand_in):
        """S0-34: `run_parallel` accepts options as dicts; a wrong one fails only its own task."""
        adapter = GeminiAdapter(stand_in(INIT, HELLO, SUCCESS))
        tasks = [AgentTask(adapter, "hi", {"maxTurns": turns}) for turns in (3, 0)]
        events = await told(run_parallel(tasks))
        statuses = [event.payload["status"] for event in events if event.type == "done"]
        assert sorted(statuses) == ["error", "success"]

    @pytest.mark.parametrize(
        ("options", "names"),
        [
            ({"maxTurns": "many"}, "max_turns"),
            ({"permissions": {"fileWrite": "maybe"}}, "maybe"),
            ({"permissions": "allow"}, "permissions"),
            ({"abortSignal": "now"}, "abort_signal"),
            ({3: 4}, "3"),
            (["model"], "list"),
            ("flash", "str"),
        ],
        ids=str,
    )
    async def test_options_that_cannot_be_meant_are_an_event(self, stand_in, options, names):
        """S0-33, S0-34: invalid options are an error event; `run` raises nothing."""
        adapter = GeminiAdapter(stand_in(INIT, SUCCESS))
        events = await told(adapter.run("hi", options))
        assert types(events) == ["init", "error", "done"]
        engine_events = await told(run_agent(adapter, "hi", options))
        assert types(engine_events) == ["error", "done"]
        for error in (events[1], engine_events[0]):
            assert error.payload["code"] == "INVALID_OPTIONS"
            assert names in error.payload["message"]
        with pytest.raises(FileNotFoundError):
            _ = stand_in.call

    async def test_permissions_and_tools_reach_the_cli_as_a_policy(self, stand_in):
        """S0-22, S0-23, S0-24: permissions and tool lists are passed to the CLI as a policy
        file."""
        options = AgentOptions(
            permissions=PermissionPolicy("allow", "deny"), disallowed_tools=["web_fetch"]
        )
        events = await told(GeminiAdapter(stand_in(INIT, SUCCESS)).run("hi", options))
        assert events[-1].payload["status"] == "success"
        assert [a for a in stand_in.call["argv"] if a.startswith("--policy=")]

    async def test_configured_tools_are_known_before_the_start(self, stand_in):
        """S0-11, S0-33: `init` lists `allowed_tools` without the disallowed ones."""
        options = AgentOptions(allowed_tools=["glob", "replace"], disallowed_tools=["replace"])
        init, *_ = await told(GeminiAdapter(stand_in(INIT, SUCCESS)).run("hi", options))
        assert init.payload["tools"] == ["glob"]
        assert init.payload["capabilities"] == {"toolsKnown": True, "toolsSource": "configured"}


# ---- abort


class TestAbort:
    @pytest.mark.parametrize("signal", [AbortSignal, asyncio.Event])
    async def test_the_signal_ends_the_process_tree(self, stand_in, signal):
        """S0-27, S0-28: abort sends SIGTERM to the CLI and its children; the run ends as
        interrupted and can be resumed."""
        abort = signal()
        transport = stand_in(INIT, hang=True, stderr="something broke", grandchildren=("tool",))
        events = []
        async for event in GeminiAdapter(transport).run("hi", AgentOptions(abort_signal=abort)):
            events.append(event)
            abort.set()
        assert types(events) == ["init", "done"]
        done = payload(events[-1])
        assert (done["status"], done["resumeToken"]) == ("interrupted", "s-1")
        assert "result" not in done
        assert events[-1].metadata["exitCode"] == -15

    async def test_a_process_that_ignores_the_signal_is_killed(self, stand_in):
        """S0-27: abort kills a process that ignores SIGTERM; conftest.py fails this test if one is
        left."""
        abort = AbortSignal()
        transport = stand_in(INIT, hang=True, ignore_term=True, grace=0.1)
        async for event in GeminiAdapter(transport).run("hi", AgentOptions(abort_signal=abort)):
            abort.abort()
            last = event
        assert (last.type, last.payload["status"]) == ("done", "interrupted")

    async def test_the_signal_is_heard_while_nothing_is_read(self, stand_in):
        """S0-27: abort ends a run whose consumer waits for an event that never comes."""
        abort = AbortSignal()
        events = GeminiAdapter(stand_in(INIT, hang=True)).run(
            "hi", AgentOptions(abort_signal=abort)
        )
        assert (await anext(events)).type == "init"
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        abort.abort()
        assert (await waiting).payload["status"] == "interrupted"
        assert await told(events) == []

    async def test_an_abort_wins_over_a_result_that_had_arrived(self, stand_in):
        """S0-28: a run that is aborted before its result is read ends as interrupted."""
        abort = AbortSignal()
        events = []
        adapter = GeminiAdapter(stand_in(INIT, HELLO, SUCCESS))
        async for event in adapter.run("hi", AgentOptions(abort_signal=abort)):
            events.append(event)
            abort.abort()
        assert types(events) == ["init", "done"]
        assert events[-1].payload["status"] == "interrupted"
        assert "result" not in events[-1].payload

    def test_an_abort_wins_over_a_done_that_was_not_read(self, tmp_path):
        """S0-28: after an abort, later texts and errors are dropped and the status is
        interrupted."""
        abort = AbortSignal()
        narrator = Narrator(AgentOptions(abort_signal=abort), tmp_path)
        assert types(narrator.tell(Init())) == ["init"]
        abort.abort()
        stream = [Text("late"), Error("broken", "API"), Done("error")]
        (done,) = [event for core in stream for event in narrator.tell(core)]
        assert done.payload["status"] == "interrupted"
        assert "result" not in done.payload

    async def test_an_aborted_signal_starts_nothing(self, stand_in):
        """S0-34: with a signal that is already set, the only event is an interrupted `done`; no
        process starts."""
        abort = AbortSignal()
        abort.abort()
        assert abort.aborted
        adapter = GeminiAdapter(stand_in(INIT, SUCCESS))
        (done,) = await told(adapter.run("hi", AgentOptions(abort_signal=abort)))
        assert (done.type, done.payload["status"]) == ("done", "interrupted")
        with pytest.raises(FileNotFoundError):
            _ = stand_in.call

    async def test_a_signal_that_never_fires_leaves_no_task_behind(self, stand_in):
        options = AgentOptions(abort_signal=AbortSignal())
        events = await told(GeminiAdapter(stand_in(INIT, SUCCESS)).run("hi", options))
        assert events[-1].payload["status"] == "success"
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def test_leaving_the_stream_ends_the_process(self, stand_in):
        """The watch over processes in conftest.py fails this test if one is left."""
        adapter = GeminiAdapter(stand_in(INIT, hang=True, grandchildren=("tool",)))
        async with aclosing(adapter.run("hi")) as events:
            assert (await anext(events)).type == "init"
        assert asyncio.all_tasks() == {asyncio.current_task()}


# ---- the engine around any adapter


def event(kind: str, agent: str = "other") -> AgentEvent:
    return AgentEvent(type=kind, agent=agent, timestamp=1, session_id="o-1", payload={})


class Other:
    """An adapter of somebody else."""

    def __init__(self, *script: AgentEvent | BaseException, agent: str = "other") -> None:
        self.agent = agent
        self._script = script
        self.closed = False

    async def is_available(self) -> bool:
        return True

    async def run(
        self, prompt: str, options: AgentOptions | None = None
    ) -> AsyncIterator[AgentEvent]:
        try:
            for step in self._script:
                if isinstance(step, BaseException):
                    raise step
                yield step
        finally:
            self.closed = True


class Unrunnable(Other):
    def run(self, prompt: str, options: AgentOptions | None = None) -> AsyncIterator[AgentEvent]:
        raise RuntimeError("no run today")


class TestGuard:
    async def test_an_orderly_stream_passes_unchanged(self):
        """S0-34: `run_agent` passes the events of a well-behaved adapter through as they are."""
        script = [event("init"), event("other:custom"), event("done")]
        assert await told(run_agent(Other(*script), "hi")) == script

    async def test_nothing_comes_after_the_done(self):
        """S0-34: events after the first `done` are dropped, and the adapter's stream is closed."""
        adapter = Other(event("init"), event("done"), event("text"), event("done"))
        assert types(await told(run_agent(adapter, "hi"))) == ["init", "done"]
        assert adapter.closed

    async def test_the_adapter_is_closed_when_the_done_arrives(self):
        adapter = Other(event("init"), event("done"), event("text"))
        seen = {e.type: adapter.closed async for e in run_agent(adapter, "hi")}
        assert seen == {"init": False, "done": True}

    async def test_an_exception_is_an_error_and_a_done(self):
        """S0-34: an exception in an adapter becomes an ADAPTER_ERROR event and a failed `done`."""
        events = await told(run_agent(Other(event("init"), ValueError("boom")), "hi"))
        assert types(events) == ["init", "error", "done"]
        assert payload(events[1]) == {
            "code": "ADAPTER_ERROR",
            "message": "ValueError: boom",
            "recoverable": False,
        }
        assert payload(events[2]) == {
            "status": "error",
            "usage": {"inputTokens": 0, "outputTokens": 0, "toolUses": 0},
            "durationMs": pytest.approx(0, abs=60_000),
        }
        assert {(e.agent, e.session_id) for e in events} == {("other", "o-1")}

    async def test_an_adapter_that_raises_at_once(self):
        """S0-34: an adapter whose `run` itself raises still gives an error and a `done`."""
        error, done = await told(run_agent(Unrunnable(), "hi"))
        assert (error.payload["code"], done.payload["status"]) == ("ADAPTER_ERROR", "error")
        assert error.session_id == done.session_id != ""

    async def test_a_stream_without_a_done_is_told_so(self):
        """S0-34: a stream that ends without `done` gets a MISSING_DONE error and a failed
        `done`."""
        events = await told(guarded(Other(event("init")).run("hi"), agent="other"))
        assert types(events) == ["init", "error", "done"]
        error, done = map(payload, events[1:])
        assert (error["code"], error["recoverable"]) == ("MISSING_DONE", False)
        assert done["status"] == "error"

    async def test_an_exception_after_the_done_is_swallowed(self):
        """S0-34: an exception while the stream is closed does not reach the consumer."""

        async def stream() -> AsyncIterator[AgentEvent]:
            try:
                yield event("done")
            finally:
                raise RuntimeError("in the clearing-up")

        assert types(await told(guarded(stream()))) == ["done"]

    async def test_an_adapter_that_cancels_itself_does_not_cancel_us(self):
        """S0-34: a CancelledError raised by an adapter is an ADAPTER_ERROR; the consumer's task
        goes on."""
        events = await told(run_agent(Other(asyncio.CancelledError()), "hi"))
        assert types(events) == ["error", "done"]
        assert events[0].payload["code"] == "ADAPTER_ERROR"

    async def test_a_cancellation_of_ours_goes_through(self):
        started = asyncio.Event()

        async def stream() -> AsyncIterator[AgentEvent]:
            started.set()
            await asyncio.sleep(60)
            yield event("done")

        task = asyncio.create_task(told(guarded(stream())))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_an_aborted_signal_does_not_start_any_adapter(self):
        """S0-34: `run_agent` checks the signal first: an adapter that would raise is not called."""
        abort = AbortSignal()
        abort.abort()
        options = AgentOptions(abort_signal=abort)
        (done,) = await told(run_agent(Unrunnable(), "hi", options))
        assert (done.agent, done.payload["status"]) == ("other", "interrupted")

    async def test_an_iterator_that_cannot_be_closed_is_a_stream_too(self):
        class Counted:
            def __init__(self) -> None:
                self.left = [event("done"), event("init")]

            def __aiter__(self) -> "Counted":
                return self

            async def __anext__(self) -> AgentEvent:
                return self.left.pop()

        assert types(await told(guarded(Counted()))) == ["init", "done"]


class TestParallel:
    async def test_streams_are_merged_as_they_come(self, stand_in):
        """S0-34: a quick run is done while a slow one still runs."""
        abort = AbortSignal()
        slow = GeminiAdapter(stand_in({**INIT, "session_id": "slow"}, hang=True))
        quick = GeminiAdapter(stand_in({**INIT, "session_id": "quick"}, HELLO, SUCCESS))
        tasks = [AgentTask(slow, "hi", AgentOptions(abort_signal=abort)), AgentTask(quick, "hi")]
        begun, endings = set(), []
        async for told_event in run_parallel(tasks):
            begun.add(told_event.session_id)
            if told_event.type == "done":
                endings.append((told_event.session_id, told_event.payload["status"]))
            # The slow one is ended only when it has said who it is and the quick one is done.
            if "slow" in begun and endings:
                abort.abort()
        assert endings == [("quick", "success"), ("slow", "interrupted")]

    async def test_each_stream_keeps_its_order(self, stand_in):
        """S0-34: `run_parallel` may interleave the streams, but keeps the order of each."""
        transports = [stand_in({**INIT, "session_id": f"s-{n}"}, HELLO, SUCCESS) for n in range(3)]
        events = await told(
            run_parallel(AgentTask(GeminiAdapter(transport), "hi") for transport in transports)
        )
        for n in range(3):
            mine = [e for e in events if e.session_id == f"s-{n}"]
            assert types(mine) == ["init", "text", "done"]

    async def test_a_failing_task_does_not_stop_the_others(self, stand_in):
        """S0-34: tasks that raise, end early or cancel themselves fail alone; the last one
        succeeds."""
        adapters = [
            Unrunnable(agent="a"),
            Other(event("init", agent="b"), ValueError("boom"), agent="b"),
            Other(event("init", agent="c"), agent="c"),
            Other(asyncio.CancelledError(), agent="d"),
            GeminiAdapter(stand_in(INIT, HELLO, SUCCESS)),
        ]
        events = await told(run_parallel(AgentTask(adapter, "hi") for adapter in adapters))
        assert {e.agent: e.payload["status"] for e in events if e.type == "done"} == {
            **dict.fromkeys("abcd", "error"),
            "gemini": "success",
        }
        assert {e.agent: e.payload["code"] for e in events if e.type == "error"} == {
            **dict.fromkeys("abd", "ADAPTER_ERROR"),
            "c": "MISSING_DONE",
        }

    async def test_leaving_early_ends_all_of_them(self, stand_in):
        """S0-34: leaving `run_parallel` ends all processes; conftest.py fails this test if one is
        left."""
        transports = [stand_in(INIT, hang=True, grandchildren=("tool",)) for _ in range(2)]
        tasks = [AgentTask(GeminiAdapter(transport), "hi") for transport in transports]
        async with aclosing(run_parallel(tasks)) as events:
            assert [(await anext(events)).type for _ in range(2)] == ["init", "init"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def test_a_cancelled_consumer_ends_all_of_them(self, stand_in):
        transports = [stand_in(INIT, hang=True) for _ in range(2)]
        begun = asyncio.Semaphore(0)

        async def consume() -> None:
            async for _ in run_parallel(
                AgentTask(GeminiAdapter(transport), "hi") for transport in transports
            ):
                begun.release()

        consumer = asyncio.create_task(consume())
        await begun.acquire()
        await begun.acquire()
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def test_an_adapter_is_not_asked_for_more_than_is_taken(self):
        given = 0

        class Eager(Other):
            async def run(self, prompt, options=None):
                nonlocal given
                for given in range(1, 1000):  # noqa: B007
                    yield event("text")

        async with aclosing(run_parallel([AgentTask(Eager(), "hi")])) as events:
            for _ in range(3):
                await anext(events)
            await asyncio.sleep(0)
        assert given < 10

    async def test_no_tasks_are_no_events(self):
        assert await told(run_parallel([])) == []


class TestRegistry:
    def test_adapters_are_found_by_their_agents_name(self):
        """S0-35: `get` and `list` use the adapter's agent name; an unknown name gives None."""
        registry, gemini, other = AdapterRegistry(), GeminiAdapter(), Other()
        registry.register(gemini)
        registry.register(other)
        assert registry.list() == ["gemini", "other"]
        assert (registry.get("gemini"), registry.get("other")) == (gemini, other)
        assert registry.get("nobody") is None

    def test_a_name_is_taken_once(self):
        """S0-35: registering a second adapter under the same name raises and keeps the first."""
        registry, first = AdapterRegistry(), GeminiAdapter()
        registry.register(first)
        with pytest.raises(ValueError, match="'gemini' is already registered"):
            registry.register(GeminiAdapter())
        assert registry.get("gemini") is first

    def test_unregistering_says_whether_there_was_one(self):
        """S0-35: `unregister` returns True for a registered name and False otherwise."""
        registry = AdapterRegistry()
        registry.register(GeminiAdapter())
        assert registry.unregister("gemini") is True
        assert registry.unregister("gemini") is False
        assert registry.list() == []


# ---- events and options as plain data

SAMPLES: list[tuple[Event, str, dict[str, Any]]] = [
    (
        Init("flash", "/repo"),
        "init",
        {
            "model": "flash",
            "cwd": "/repo",
            "tools": [],
            "capabilities": {"toolsKnown": False, "toolsSource": "unavailable"},
        },
    ),
    (Text("all of it"), "text", {"content": "all of it"}),
    (TextDelta("a bit"), "text_delta", {"delta": "a bit"}),
    (Thinking("hm"), "thinking", {"summary": "hm"}),
    (
        ToolUse("glob", "g-1", {"pattern": "*"}),
        "tool_use",
        {"toolName": "glob", "toolUseId": "g-1", "input": {"pattern": "*"}},
    ),
    (
        ToolResult(id="g-1", name="glob", status="denied", output=None, duration=0.25),
        "tool_result",
        {
            "toolUseId": "g-1",
            "toolName": "glob",
            "status": "denied",
            "output": None,
            "durationMs": 250,
        },
    ),
    (
        PermissionRequest("replace", "r-1", {"file_path": "a"}, "writes a file"),
        "permission_request",
        {
            "toolName": "replace",
            "toolUseId": "r-1",
            "input": {"file_path": "a"},
            "reason": "writes a file",
        },
    ),
    (
        PermissionDecision("replace", "deny", "r-1", "not now"),
        "gemini:permission_decision",
        {"toolName": "replace", "toolUseId": "r-1", "decision": "deny", "reason": "not now"},
    ),
    (Error("oh", recoverable=True), "error", {"message": "oh", "recoverable": True}),
    (
        Done("success", usage=Usage(input=5, output=2, tool_calls=1), duration=1.5, resume="s-1"),
        "done",
        {
            "status": "success",
            "resumeToken": "s-1",
            "usage": {"inputTokens": 5, "outputTokens": 2, "toolUses": 1},
            "durationMs": 1500,
        },
    ),
    (UserMessage("hi"), "gemini:user_message", {"content": "hi"}),
    (Unknown(kind="retry"), "gemini:unknown", {"kind": "retry", "frame": None}),
]


class TestEnvelope:
    @pytest.mark.parametrize(
        ("ours", "kind", "body"), SAMPLES, ids=[kind for _, kind, _ in SAMPLES]
    )
    def test_each_kind_of_event_has_its_payload(self, ours, kind, body):
        """S0-29, S0-30, S0-31: every core event becomes an envelope with the interface's type and
        payload fields."""
        assert envelope(ours).payload == body
        plain = envelope(ours).to_dict()
        plain.pop("metadata", None)
        assert plain == {
            "type": kind,
            "agent": "gemini",
            "timestamp": 0,
            "sessionId": "",
            "payload": body,
        }

    def test_no_kind_of_event_is_left_out(self):
        """S0-29: nine types of the shape's; the others are namespaced."""
        assert {type(ours) for ours, _, _ in SAMPLES} == {*get_args(Event)}
        names = {kind for _, kind, _ in SAMPLES}
        assert {kind for kind in names if ":" not in kind} == {*EVENT_TYPES}
        assert len(EVENT_TYPES) == 9

    def test_what_only_this_agent_knows_is_metadata(self):
        """S0-29: hints and error types go into `metadata`, not into the payload that all agents
        share."""
        stamped = {"timestamp": 7, "session_id": "s-1"}
        assert envelope(Error("oh", "AUTH", hint="log in", **stamped)).to_dict() == {
            "type": "error",
            "agent": "gemini",
            "timestamp": 7,
            "sessionId": "s-1",
            "payload": {"code": "AUTH", "message": "oh", "recoverable": False},
            "metadata": {"hint": "log in"},
        }
        assert envelope(ToolResult(error_type="disk")).metadata == {"errorType": "disk"}
        assert "metadata" not in envelope(Text("hi")).to_dict()

    def test_events_are_plain_json(self):
        """S0-29: every event survives `json.dumps` and `json.loads` unchanged."""
        for ours, _, _ in SAMPLES:
            plain = envelope(ours).to_dict()
            assert json.loads(json.dumps(plain)) == plain


class TestOptions:
    def test_plain_data_in_either_spelling(self):
        """S0-33: `from_dict` accepts all nine options in camelCase and in snake_case."""
        signal = AbortSignal()
        camel = {
            "cwd": "repo",
            "model": "flash",
            "permissions": {"fileWrite": "allow"},
            "maxTurns": 3,
            "maxBudgetUsd": 1.5,
            "resume": "s-1",
            "abortSignal": signal,
            "allowedTools": ["glob", "replace"],
            "disallowedTools": ["replace"],
        }
        snake = {
            "cwd": Path("repo"),
            "model": "flash",
            "permissions": PermissionPolicy("allow"),
            "max_turns": 3,
            "max_budget_usd": 1.5,
            "resume": "s-1",
            "abort_signal": signal,
            "allowed_tools": ("glob", "replace"),
            "disallowed_tools": ("replace",),
        }
        assert AgentOptions.from_dict(camel) == AgentOptions.from_dict(snake)
        assert AgentOptions.from_dict(camel) == AgentOptions(**{**snake, "cwd": "repo"})

    def test_what_is_none_counts_as_left_out(self):
        """S0-33: an option that is None gets its default."""
        assert AgentOptions.from_dict({"model": None, "disallowedTools": None}) == AgentOptions()

    def test_an_unknown_option_warns(self):
        """S0-33: an unknown option is ignored with a warning that suggests the nearest name."""
        with pytest.warns(UserWarning, match="'reasoning_effort' is ignored"):
            assert AgentOptions.from_dict({"reasoningEffort": "high"}) == AgentOptions()
        with pytest.warns(UserWarning, match="did you mean 'permissions'"):
            assert AgentOptions.from_dict({"permisions": {}}) == AgentOptions()

    @pytest.mark.parametrize(
        ("data", "says"),
        [
            ({"maxTurns": "many"}, "max_turns='many'"),
            ({"maxTurns": -1}, "max_turns must be greater than 0"),
            ({"allowedTools": "glob"}, "allowed_tools='glob'"),
            ({"permissions": {"fileWrite": "maybe"}}, "maybe"),
            ({"permissions": {"fileDelete": "deny"}}, "file_delete"),
        ],
    )
    def test_a_wrong_value_is_named(self, data, says):
        """S0-32, S0-33: a value of the wrong type or range raises InvalidOptions, which names
        it."""
        with pytest.raises(InvalidOptions, match=says):
            AgentOptions.from_dict(data)

    def test_a_policy_asks_by_default(self):
        """S0-32: every capability that a policy leaves out is "ask"."""
        assert PermissionPolicy() == PermissionPolicy("ask", "ask", "ask")
        policy = PermissionPolicy.from_dict({"shellExecute": "deny", "network_access": "allow"})
        assert policy == PermissionPolicy("ask", "deny", "allow")

    def test_each_capability_stands_for_tools_of_the_cli(self):
        """S0-32: `TOOL_GROUPS` maps each capability to the CLI's current tool names."""
        assert TOOL_GROUPS == {
            "file_write": ("replace", "write_file"),
            "shell_execute": ("run_shell_command",),
            "network_access": ("google_web_search", "web_fetch"),
        }
        assert {*TOOL_GROUPS, "rules"} == {*PermissionPolicy.__struct_fields__}

    @pytest.mark.parametrize("approval", ["yolo", "auto_edit", "default", None])
    @pytest.mark.parametrize("levels", [*product(("allow", "ask", "deny"), repeat=3)])
    def test_a_runs_own_policy_replaces_the_approval_of_the_base(self, levels, approval):
        """All 27 over each base: what was asked for is what counts."""
        written = dict(zip(("fileWrite", "shellExecute", "networkAccess"), levels, strict=True))
        options = AgentOptions.from_dict({"permissions": written}).over(Options(approval=approval))
        rules, calls = Rules.of(options), [tool for group in CALLS for tool in group]
        found = [rules.verdict(*call).decision for call in calls]
        said = [level for level, group in zip(levels, CALLS, strict=True) for _ in group]
        assert found == said

    @pytest.mark.parametrize("approval", ["yolo", "auto_edit", "default", None])
    @pytest.mark.parametrize("written", [{}, {"networkAccess": "ask"}])
    def test_a_policy_that_only_asks_is_a_policy(self, written, approval):
        """S0-32: what is not named is asked about, too."""
        options = AgentOptions.from_dict({"permissions": written}).over(Options(approval=approval))
        rules = Rules.of(options)
        found = {rules.verdict(*call).decision for group in CALLS for call in group}
        assert found == {"ask"}

    def test_a_plan_of_the_base_stays_a_plan(self):
        """It writes nothing, and no run's policy loosens that."""
        base = Options(approval="plan")
        options = AgentOptions(permissions=PermissionPolicy("allow", "allow", "allow")).over(base)
        assert options.approval == "plan"
        assert Rules.of(options).verdict("run_shell_command", {"command": "ls"}).decision != "allow"

    def test_without_a_policy_the_base_decides(self):
        base = Options(approval="yolo")
        assert AgentOptions(model="flash").over(base).approval == "yolo"


# ---- the real thing


@pytest.mark.gemini_cli
@pytest.mark.parametrize(
    ("written", "approval", "ran"),
    [
        ({"networkAccess": "ask"}, "yolo", []),
        ({"networkAccess": "ask"}, "default", []),
        ({"fileWrite": "allow", "shellExecute": "deny"}, "auto_edit", ["write_file"]),
    ],
)
async def test_a_runs_own_policy_holds_on_the_real_cli(
    real_transport, fake_gemini, tmp_path, written, approval, ran
):
    calls = [
        ("write_file", {"file_path": "a.txt", "content": "x"}),
        ("run_shell_command", {"command": "touch made"}),
        ("google_web_search", {"query": "geminorum"}),
    ]
    fake_gemini.calls(*calls).say("Done.").always()
    base = Options(env=fake_gemini.env, cwd=tmp_path, model="gemini-2.5-flash", approval=approval)
    adapter = GeminiAdapter(real_transport, base)
    options = AgentOptions.from_dict({"permissions": written})
    events = await told(adapter.run("Go", options))
    results = [payload(event) for event in events if event.type == "tool_result"]
    assert [one["toolName"] for one in results if one["status"] == "success"] == ran
    assert len(results) == len(calls)
    assert not (tmp_path / "made").exists()
    assert not fake_gemini.side_calls


@pytest.mark.gemini_cli
async def test_the_real_cli_behind_the_shape(real_transport, fake_gemini, tmp_path):
    """S0-4, S0-5, S0-11 … S0-16, S0-25, S0-29, S0-31: a real CLI run with a tool call gives the
    interface's events, in order and with all fields."""
    (tmp_path / "note.txt").write_text("the secret word is pomegranate")
    fake_gemini.call("read_file", file_path="note.txt").say("It is pomegranate.")
    adapter = GeminiAdapter(real_transport, Options(env=fake_gemini.env))
    options = AgentOptions(cwd=tmp_path, model="gemini-2.5-flash", max_turns=5)
    events = await told(adapter.run("What is the secret word?", options))
    assert types(events)[:3] == ["init", "gemini:user_message", "tool_use"]
    assert types(events)[-2:] == ["text", "done"]
    by_type = {told_event.type: payload(told_event) for told_event in events}
    assert (by_type["init"]["model"], by_type["init"]["cwd"]) == ("gemini-2.5-flash", str(tmp_path))
    assert by_type["tool_use"]["toolName"] == by_type["tool_result"]["toolName"] == "read_file"
    assert by_type["tool_result"]["status"] == "success"
    done = by_type["done"]
    assert (done["status"], done["result"]) == ("success", "It is pomegranate.")
    assert (done["usage"]["toolUses"], done["usage"]["inputTokens"] > 0) == (1, True)
    assert done["resumeToken"] == events[0].session_id == events[-1].session_id
