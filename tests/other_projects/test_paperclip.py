"""The streams of paperclip's own tests, through the local_adapter, end as EXPECTED.md states."""

from pathlib import Path

import msgspec
import pytest
from test_contract_local_adapter import asked, kinds

from geminorum.contracts import local_adapter as local
from geminorum.contracts.local_adapter import GeminiLocalConfig


@pytest.fixture
def plain(tmp_path) -> GeminiLocalConfig:
    """An agent for whom `via` chooses the CLI."""
    return GeminiLocalConfig(cwd=str(tmp_path / "workspace"))


class TestParsing:
    def read(self, fixtures_folder: Path, name: str) -> list:
        return local.parse_ndjson_lines((fixtures_folder / "paperclip" / name).read_bytes())

    @pytest.mark.parametrize(
        ("name", "session_id", "output"),
        [
            ("01-basic", "session-1", "hello"),
            ("02-structured-content", "session-2", "first part\n\nsecond part"),
            ("03-non-assistant-roles", None, "visible response"),
            ("04-v038-schema", "session-abc", "hello."),
            ("05-two-assistant-messages", None, "firstsecond"),
            ("06-legacy-assistant-schema", "legacy-session", "legacy hello"),
        ],
    )
    def test_sessions_and_outputs_of_other_peoples_recordings(
        self, fixtures_folder, name, session_id, output
    ):
        """S1-29, S1-35, S1-36, S1-68: one JSON object a line, the prompt is no output."""
        events = self.read(fixtures_folder, f"{name}.ndjson")
        assert local.extract_session_id(events) == session_id
        assert local.extract_output(events) == output

    def test_usage_and_model(self, fixtures_folder):
        """S1-37, S1-68: token counts and the model are extracted from a stream of CLI 0.38."""
        events = self.read(fixtures_folder, "04-v038-schema.ndjson")
        usage = local.extract_usage(events)
        assert (usage.input, usage.cached, usage.output) == (9095, 8132, 29)
        assert local.extract_model_id(events) == "auto-gemini-3"

    def test_the_model_that_answered_goes_before_the_one_asked_for(self, fixtures_folder):
        """S1-68, B-16: `extract_model_id` prefers the model in the stats to the one in `init`."""
        stdout = (fixtures_folder / "adversarial/basic.ndjson").read_text()
        assert (
            local.extract_model_id(local.parse_ndjson_lines(stdout.split("\n")))
            == "gemini-3-pro-preview"
        )

    def test_a_transcript_is_fit_to_show(self, fixtures_folder):
        """S1-68, S1-72: the transcript has every step in order, with inputs, statuses and
        stderr."""
        stdout = (fixtures_folder / "adversarial/basic.ndjson").read_text()
        transcript = local.build_transcript(
            local.parse_ndjson_lines(stdout), "Ripgrep is not available.\nquota is low"
        )
        shown = msgspec.to_builtins(transcript)
        assert kinds(transcript) == [
            *("init", "user", "assistant", "tool_call", "tool_result", "system"),
            *("assistant", "stderr", "result"),
        ]
        assert shown[1]["text"] == "USERPROMPT"
        assert shown[2]["text"] == "Hello world. "
        assert shown[3]["input"] == {"file_path": "/tmp/a.txt", "content": "x"}
        assert (shown[4]["status"], shown[4]["name"]) == ("denied", "write_file")
        assert shown[4]["text"] == "Tool execution denied by policy."
        assert shown[5]["level"] == "warning"
        assert shown[7]["text"] == "quota is low"
        assert shown[8]["status"] == "success"


class TestLimits:
    def test_the_turn_limit_keeps_the_session(self, plain, stand_in, fixtures_folder):
        """S1-50: its message has neither of the two words, and the session is good."""
        recording = fixtures_folder / "paperclip/10-turn-limit-structured.ndjson"
        result = local.execute_sync(plain, asked("Hi"), via=stand_in(recording, exit=1))
        assert (result.status, result.clear_session) == ("max_turns", False)
        assert (result.session_id, result.resumable) == ("gemini-session-1", True)

    def test_text_that_only_speaks_of_limits_is_no_limit(self, plain, stand_in, fixtures_folder):
        """S1-50: a failed run whose text and stderr mention turn limits keeps its session."""
        recording = fixtures_folder / "paperclip/11-turn-limit-only-text.ndjson"
        transport = stand_in(recording, exit=1, stderr="the max turns limit was reached.")
        result = local.execute_sync(plain, asked("Hi"), via=transport)
        assert (result.status, result.clear_session) == ("error", False)
