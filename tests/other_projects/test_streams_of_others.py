"""Streams of other projects, and the hostile ones beside them, end as EXPECTED.md states."""

import json
from pathlib import Path

import pytest

from geminorum import Done, Error, Init, Text, ToolResult, ToolUse
from geminorum.views.result import Result, result
from geminorum.wire.causes import cause_of
from geminorum.wire.ending import Ending, status_of_exit
from geminorum.wire.stream_json.decoder import StreamDecoder
from geminorum.wire.stream_json.verdict import last_events, replay


@pytest.fixture
def read(fixtures_folder: Path):
    """A fixture's events, fed in chunks of a chosen size."""

    def events(name: str, exit_code: int | None = 0, *, chunk: int = 1 << 20, stderr: str = ""):
        data = (fixtures_folder / name).read_bytes()
        decoder = StreamDecoder()
        pieces = [data[at : at + chunk] for at in range(0, len(data), chunk)]
        fed = [event for piece in pieces for event in decoder.feed(piece)]
        return [*fed, *last_events(decoder, Ending(exit_code, stderr))]

    return events


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


class TestAdversarial:
    def test_basic(self, read):
        events = read("adversarial/basic.ndjson")
        outcome = result(events)
        (tool,) = of(ToolResult, events)
        (warning,) = of(Error, events)
        assert outcome.text == "Hello world. Done."
        assert (tool.name, tool.status) == ("write_file", "denied")
        assert tool.output == "Tool execution denied by policy."
        assert outcome.files == []
        assert warning.recoverable
        assert of(Init, events)[0].model == "auto-gemini-3"
        assert outcome.model == "gemini-3-pro-preview"
        assert outcome.usage.thoughts == 20

    def test_unicode_in_chunks_of_seven_bytes(self, read):
        text = result(read("adversarial/unicode.ndjson", chunk=7)).text
        assert "🚀 日本語" in text
        assert "\ufffd" not in text

    def test_u2028_does_not_split_a_line(self, read):
        assert "\u2028" in result(read("adversarial/u2028.ndjson")).text

    def test_maxturns(self, read):
        assert read("adversarial/maxturns.ndjson", 53)[-1].status == "max_turns"

    def test_nonobject_lines_do_not_crash(self, read):
        events = read("adversarial/nonobject.ndjson")
        assert result(events).text == "ok"
        assert result(events).status == "success"
        assert len(of(Error, events)) == 4

    @pytest.mark.parametrize("name", ["authword", "hello429"])
    def test_what_the_model_says_never_classifies(self, read, name):
        events = read(f"adversarial/{name}.ndjson")
        assert events[-1].status == "success"
        assert of(Error, events) == []

    @pytest.mark.parametrize("exit_code", [0, -9, -15])
    def test_partial_is_never_a_success_and_keeps_what_arrived(self, read, exit_code):
        outcome = result(read("adversarial/partial.ndjson", exit_code))
        assert (outcome.status, outcome.text) == ("error", "Hello wor")
        assert outcome.errors[-1].code == "MISSING_RESULT"
        assert outcome.errors[-1].recoverable


class TestAgentcmdStreams:
    def test_say_hello(self, read):
        outcome = result(read("agentcmd/streams/01-say-hello.ndjson"))
        assert outcome.text == "Hello! I'm ready to help. What can I do for you?"
        assert outcome.session_id.startswith("2aa2472d-")
        usage = outcome.usage
        assert (usage.input, usage.output, usage.total, usage.thoughts) == (7352, 16, 7386, 18)

    def test_read_file(self, read):
        (tool,) = of(ToolResult, read("agentcmd/streams/02-read-file.ndjson"))
        assert (tool.name, tool.output) == ("read_file", "")

    def test_write_file(self, read):
        events = read("agentcmd/streams/03-write-file.ndjson")
        assert [change.path for change in result(events).files] == ["/tmp/gemini-test/created.txt"]
        assert of(ToolResult, events)[0].output is None

    def test_edit_file(self, read):
        outcome = result(read("agentcmd/streams/04-edit-file.ndjson"))
        assert [c.path for c in outcome.files] == ["/private/tmp/gemini-test/created.txt"]
        assert outcome.usage.tool_calls == 3

    def test_tool_not_registered(self, read):
        types = {
            t.error_type
            for t in of(ToolResult, read("agentcmd/streams/05-tool-not-registered.ndjson"))
        }
        assert types <= {"tool_not_registered", "file_not_found", None}
        assert "tool_not_registered" in types


PAPERCLIP_TEXTS = {
    "01-basic": ("session-1", "hello"),
    "02-structured-content": ("session-2", "first part\n\nsecond part"),
    "03-non-assistant-roles": (None, "visible response"),
    "04-v038-schema": ("session-abc", "hello."),
    # Plain concatenation, as seed 001 demands.
    "05-two-assistant-messages": (None, "firstsecond"),
    "06-legacy-assistant-schema": ("legacy-session", "legacy hello"),
}


class TestPaperclip:
    @pytest.mark.parametrize("name", PAPERCLIP_TEXTS)
    def test_text_and_session(self, read, name):
        outcome = result(read(f"paperclip/{name}.ndjson"))
        assert (outcome.session_id, outcome.text) == PAPERCLIP_TEXTS[name]

    def test_usage_with_cached_tokens(self, read):
        usage = result(read("paperclip/04-v038-schema.ndjson")).usage
        assert (usage.input, usage.cached, usage.output) == (9095, 8132, 29)

    def test_an_error_told_as_a_string(self, read):
        """S1-34, B-21: a `result` whose error is a plain string gives that string as the
        message."""
        assert _failure(read("paperclip/07-result-error-string.ndjson", 1)) == "boom"

    def test_an_error_after_the_result_wins(self, read):
        events = read("paperclip/08-usage-cost-late-error.ndjson")
        outcome = result(events)
        assert (outcome.status, _failure(events)) == ("error", "model access denied")
        assert (outcome.usage.input, outcome.usage.cached, outcome.usage.output) == (12, 3, 7)
        assert str(outcome.cost.usd) == "0.00123"

    def test_a_structured_question_stays_reachable(self, read):
        (said,) = of(Text, read("paperclip/09-structured-question.ndjson", 1))
        question = said.raw["message"]["content"][1]
        assert said.text == "I have a question."
        assert (question["prompt"], len(question["choices"])) == ("Which model?", 2)

    def test_a_turn_limit_told_by_structure(self, read):
        assert read("paperclip/10-turn-limit-structured.ndjson", 1)[-1].status == "max_turns"

    def test_a_turn_limit_told_by_text_alone_is_none(self, read):
        stderr = "the max turns limit was reached."
        done = read("paperclip/11-turn-limit-only-text.ndjson", 1, stderr=stderr)[-1]
        assert done.status == "error"

    def test_the_cli_s_own_phrases_are_recognised(self, fixtures_folder):
        """B-22, B-23, D-17: paperclip's list of CLI messages is classified as lost session, auth,
        quota or network."""
        phrases = json.loads((fixtures_folder / "paperclip/classifier-strings.json").read_text())
        ours = phrases["real_cli_0_61_additions_ours"]
        expected = {
            "SESSION_LOST": ours["session_unrecoverable_true"],
            "AUTH": [*phrases["auth_required"]["true"], *ours["auth_required_true"]],
            "QUOTA": phrases["quota"]["true"],
            "NETWORK": phrases["transient_network"]["true"],
        }
        for code, texts in expected.items():
            assert {cause_of(text).code for text in texts} == {code}
        lost = {cause_of(text).code for text in phrases["session_unrecoverable"]["true"]}
        assert lost == {"SESSION_LOST", "CONTEXT_OVERFLOW"}
        for text in [*ours["quota_false"], "Some other error", "written by the author"]:
            assert cause_of(text) is None

    def test_turn_limits_are_read_from_structure_only(self, fixtures_folder):
        phrases = json.loads((fixtures_folder / "paperclip/classifier-strings.json").read_text())
        for wanted, cases in phrases["turn_limit"].items():
            for frame, exit_code in cases:
                line = json.dumps({"type": "result", **frame}).encode() if frame else b""
                limited = replay(line, exit_code or 0)[-1].status == "max_turns"
                assert limited == (wanted == "true"), (frame, exit_code)


def _failure(events: list) -> str:
    return result(events).exception().message


AIWF = {
    "01-single-message": ("Hello world", []),
    "02-two-messages": ("Part 1. Part 2.", []),
    "03-user-ignored": ("Response", []),
    "04-write-file": (None, ["/path/to/file.txt"]),
    "05-replace": (None, ["/path/to/edit.txt"]),
    "06-two-writes": (None, None),
    "07-failed-write-not-tracked": (None, ["/path/success.txt"]),
    "08-malformed-line": ("Valid end", []),
    "09-truncated-tail": ("Complete", []),
    "10-empty": ("", []),
    "11-blank-lines": ("Hello", []),
    "12-mixed": ("Creating file... Done!", ["/path/file.txt"]),
    "13-read-file-not-tracked": (None, []),
    "14-adr-sample-no-tool-id": ("...", []),
}


class TestAiwf:
    @pytest.mark.parametrize("name", AIWF)
    def test_text_and_written_files(self, read, name):
        """S4-18 … S4-23, S4-37: only a write that succeeded counts."""
        outcome: Result = result(read(f"aiwf/{name}.ndjson"))
        text, files = AIWF[name]
        if text is not None:
            assert outcome.text == text
        if files is None:
            assert len(outcome.files) == 2
        else:
            assert [change.path for change in outcome.files] == files


class TestCligent:
    def test_every_native_event_type(self, read):
        """S0-11 … S0-16: the core decodes one frame of each type with all its fields."""
        events = read("cligent/01-canonical-all-types.ndjson")
        init, text, call, answer, error, done = events
        assert isinstance(done, Done)
        assert (init.model, init.cwd, init.tools) == (
            "gemini-2.5-pro",
            "/repo",
            ["edit", "ShellTool"],
        )
        assert init.session_id == "gemini-session-1"
        assert text.text == "Hello from Gemini"
        assert (call.name, call.id, call.input) == ("ShellTool", "tool-1", {"command": "ls"})
        assert (answer.status, answer.output) == ("success", {"stdout": "file.txt"})
        assert answer.duration == 0.01
        assert (error.code, error.recoverable) == ("TRANSIENT", True)
        assert (done.status, done.raw["result"]) == ("max_turns", "summary")

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
    def test_tool_frames_of_any_dialect(self, read, name, tool, id, arguments, output):
        events = read(f"cligent/{name}.ndjson")
        (call,), (answer,) = of(ToolUse, events), of(ToolResult, events)
        assert (call.name, call.id, call.input) == (tool, id, arguments)
        assert (answer.name, answer.id, answer.output, answer.status) == (
            tool,
            id,
            output,
            "success",
        )

    def test_a_malformed_line_in_between(self, read):
        """S0-9, S0-17: a malformed line becomes an error that quotes it, and decoding continues."""
        events = read("cligent/07-malformed-line-then-continue.ndjson")
        assert [event.type for event in events] == ["init", "error", "text", "done"]
        assert "raw: {bad json" in events[1].message

    def test_a_result_error_with_its_message(self, read):
        events = read("cligent/08-result-error-with-message.ndjson", 1)
        assert [event.type for event in events] == ["init", "error", "done"]
        assert _failure(events) == "API key not valid. Please pass a valid API key."

    def test_a_bare_result_error_shows_the_frame(self, read):
        events = read("cligent/09-result-error-bare.ndjson", 1)
        assert "Gemini result error" in _failure(events)
        assert '"status":"error"' in _failure(events)

    @pytest.mark.parametrize(
        ("exit_code", "status"), [(1, "error"), (42, "error"), (53, "max_turns")]
    )
    def test_without_a_result_the_exit_code_decides(self, read, exit_code, status):
        """S0-19 … S0-21: the status follows the exit code, and the text that arrived is kept."""
        events = read("cligent/10-no-result-exit-code.ndjson", exit_code)
        assert events[-1].status == status
        assert result(events).text == "no result event"

    def test_exit_0_without_a_result_is_not_a_success(self, read):
        """S0-18 as overridden: the bare table says success, the verdict says MISSING_RESULT."""
        outcome = result(read("cligent/10-no-result-exit-code.ndjson", 0))
        assert status_of_exit(0) == "success"
        assert (outcome.status, outcome.errors[-1].code) == ("error", "MISSING_RESULT")

    def test_a_result_error_with_a_code_of_its_own(self, read):
        outcome = result(read("cligent/11-result-error-code.ndjson", 1))
        assert outcome.errors[-1].code == "UNSUPPORTED_THINKING_LEVEL"

    def test_the_session_to_resume(self, read):
        assert (
            read("cligent/12-resume-token-from-session.ndjson")[-1].resume == "gemini-session-new"
        )
        assert read("cligent/13-no-session-id.ndjson")[-1].resume is None

    def test_usage_per_model(self, read):
        usage = read("cligent/15-usage-two-models-dup.ndjson")[-1].usage
        assert {name: share.total for name, share in usage.by_model.items()} == {
            "gemini-2.5-pro": 14,
            "gemini-2.5-flash": 7,
        }
        assert (usage.input, usage.output, usage.cached, usage.thoughts) == (15, 5, 2, 1)
