"""Streams of the CLI, of older shapes and of hostile ones: the events, and how the run ended.

Recorded runs where a real CLI writes such a stream, our own lines where none does.
"""

import json

import pytest

from geminorum import Done, Error, Init, Text, ToolResult, ToolUse
from geminorum.views.result import result
from geminorum.wire.causes import cause_of
from geminorum.wire.ending import Ending, status_of_exit
from geminorum.wire.stream_json.decoder import StreamDecoder
from geminorum.wire.stream_json.verdict import judge, last_events, replay
from recorded import recording, stream

INIT = {"type": "init", "session_id": "s-1", "model": "auto"}
HELLO = {"type": "message", "role": "assistant", "content": "Hello", "delta": True}
SUCCESS = {"type": "result", "status": "success", "stats": {"models": {"flash": {}}}}
POEM = "/tmp/geminorum-fixtures/poems/poem.txt"


def lines(*frames: object) -> bytes:
    texts = [json.dumps(frame, ensure_ascii=False) for frame in frames]
    return "".join(f"{text}\n" for text in texts).encode()


def in_chunks(data: bytes, size: int) -> list:
    decoder = StreamDecoder()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    fed = [event for piece in pieces for event in decoder.feed(piece)]
    return [*fed, *last_events(decoder, Ending(0, ""))]


def rerun(name: str) -> list:
    run = recording("0.61.0", name)
    return replay(run["stdout"].encode(), run["exit"], run["stderr"])


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def failure(events: list) -> str:
    return result(events).exception().message


class TestRecorded:
    @pytest.mark.parametrize(
        ("name", "calls", "files", "total"),
        [
            ("0.11.3-reading", 1, [], 9184),
            ("0.11.3-tour", 6, [POEM, POEM], 37297),
            ("0.29.0-shell", 1, [], 9339),
            ("0.61.0-at-once", 3, [], 16270),
            ("0.61.0-misnamed", 1, [], 16215),
        ],
    )
    def test_calls_files_and_tokens(self, name, calls, files, total):
        """S4-19 … S4-23: each successful write is a file change, and nothing else is."""
        events = replay(stream(name).read_bytes())
        outcome = result(events)
        assert outcome.status == "success"
        assert len(of(ToolUse, events)) == len(of(ToolResult, events)) == calls
        assert [change.path for change in outcome.files] == files
        assert (outcome.usage.total, outcome.usage.tool_calls) == (total, calls)

    @pytest.mark.parametrize("size", [1, 7, 64])
    def test_chunks_of_any_size_give_the_same_events(self, size):
        """S0-7: a recorded stream decodes alike in chunks of any size."""
        data = stream("0.61.0-at-once").read_bytes()
        assert in_chunks(data, size) == in_chunks(data, len(data))

    def test_a_call_that_was_denied(self):
        """B-7: its result says why, and its file is not among those written."""
        events = rerun("buildfile_policy")
        denied, done = of(ToolResult, events)
        assert (denied.name, denied.status, done.status) == ("write_file", "denied", "success")
        assert denied.output.startswith("Tool execution denied by policy.")
        assert [change.path for change in result(events).files] == ["ok.txt"]

    def test_the_model_that_answered_and_its_thoughts(self):
        """B-16: the init has what was asked for, the stats have what answered."""
        events = replay(stream("0.61.0-at-once").read_bytes())
        assert of(Init, events)[0].model == "auto"
        assert result(events).model == "gemini-3.8-flash"
        assert rerun("model_flash")[-1].usage.thoughts == 130 - 100 - 10

    def test_an_unknown_tool_and_a_missing_file(self):
        """S0-14: the CLI's own names for what went wrong, in lower case."""
        for name, kind in (
            ("tool_unknown", "tool_not_registered"),
            ("tool_fail_notfound", "file_not_found"),
            ("tool_fail_params", "invalid_tool_params"),
        ):
            (failed,) = of(ToolResult, rerun(name))
            assert (failed.status, failed.error_type) == ("error", kind)

    def test_the_turn_limit(self):
        """S0-21: exit 53, with a result and without one."""
        assert rerun("maxturns")[-1].status == "max_turns"
        assert rerun("maxturns_text")[-1].status == "max_turns"
        assert replay(b"", 53)[-1].status == "max_turns"


PHRASES = {
    "resume_bad_uuid": "SESSION_LOST",
    "resume_uuid_otherproject": "SESSION_LOST",
    "auth_none": "AUTH",
    "auth_missing_key": "AUTH",
    "err401": "AUTH",
    "err404": "MODEL_NOT_FOUND",
    "err429daily": "QUOTA",
    "conn_refused": "NETWORK",
}
"""What runs of CLI 0.61.0 that failed said on stderr, and the cause."""


class TestCauses:
    @pytest.mark.parametrize("name", PHRASES)
    def test_the_cli_s_own_phrases_are_recognised(self, name):
        """B-22, B-23, D-17: the CLI's messages are classified on stderr and in a result."""
        run = recording("0.61.0", name)
        assert cause_of(run["stderr"]).code == PHRASES[name]
        said = [json.loads(line) for line in run["stdout"].splitlines() if '"result"' in line]
        assert {cause_of(frame["error"]["message"]).code for frame in said} <= {PHRASES[name]}

    @pytest.mark.parametrize("text", ["", "no luck today", "an author of 429 poems", "quotation"])
    def test_other_words_are_no_cause(self, text):
        """B-22, B-23: numbers and parts of words do not count as a cause."""
        assert cause_of(text) is None


class TestHostile:
    def test_unicode_in_chunks_of_seven_bytes(self):
        text = result(in_chunks(lines(INIT, {**HELLO, "content": "🚀 日本語"}, SUCCESS), 7)).text
        assert text == "🚀 日本語"

    @pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b"])
    def test_only_a_newline_ends_a_line(self, separator):
        data = lines(INIT, {**HELLO, "content": f"a{separator}b"}, SUCCESS)
        assert result(replay(data)).text == f"a{separator}b"

    def test_lines_that_are_no_objects_do_not_crash(self):
        """S0-9, S0-17: each JSON line that is not an object is a recoverable error."""
        call = {"type": "tool_use", "tool_name": "ls", "tool_id": "1", "parameters": None}
        events = replay(lines(INIT, 42, "text", None, [1], call, HELLO, SUCCESS))
        assert (result(events).text, result(events).status) == ("Hello", "success")
        assert [error.recoverable for error in of(Error, events)] == [True] * 4

    @pytest.mark.parametrize("words", ["401 unauthorized", "quota exceeded", "max turns reached"])
    def test_what_the_model_says_never_classifies(self, words):
        """B-22, B-23: neither text of the model nor a duration that looks like an HTTP status
        counts as a cause."""
        stats = {"duration_ms": 429, "models": {"flash": {}}}
        events = replay(lines(INIT, {**HELLO, "content": words}, {**SUCCESS, "stats": stats}))
        assert (events[-1].status, of(Error, events)) == ("success", [])

    @pytest.mark.parametrize("exit_code", [0, -9, -15])
    def test_a_stream_without_its_end_is_never_a_success(self, exit_code):
        """S0-18 as overridden, B-10: and it keeps what arrived."""
        outcome = result(replay(lines(INIT, HELLO) + b'{"type": "mess', exit_code))
        assert (outcome.status, outcome.text) == ("error", "Hello")
        assert outcome.errors[-1].code == "MISSING_RESULT"
        assert outcome.errors[-1].recoverable

    def test_an_empty_success_is_the_context_overflow(self):
        """Facts §0.4: nothing said, nothing called, no model in the stats."""
        line = b'{"type":"result","status":"success","stats":{"models":{}}}'
        assert replay(line)[-2].code == "CONTEXT_OVERFLOW"

    def test_a_cancel_of_ours_wins_over_a_buffered_result(self):
        """S0-28: a cancelled run is interrupted even if a success arrived unread."""
        decoder = StreamDecoder()
        decoder.feed(b'{"type":"result","status":"success"}\n')
        assert judge(decoder, Ending(0, stop="cancel")).status == "interrupted"


class TestShapes:
    """What the documents accept and no CLI of today writes."""

    def test_structured_content_is_joined_and_reachable(self):
        """S1-35: the texts of structured content are joined; other parts stay in the raw frame."""
        parts = [
            {"type": "output_text", "text": "One thing."},
            {"type": "question", "prompt": "Which?", "choices": [{"key": "a"}, {"key": "b"}]},
        ]
        events = replay(lines({"type": "assistant", "message": {"content": parts}}), 1)
        (said,) = of(Text, events)
        assert said.text == "One thing."
        assert said.raw["message"]["content"][1]["prompt"] == "Which?"

    @pytest.mark.parametrize(
        "error", ["out of luck", {"message": "out of luck"}, {"error": {"message": "out of luck"}}]
    )
    def test_an_error_in_any_shape(self, error):
        """S1-34, B-21: the message is found in a string, an object, or a nested object."""
        line = lines({"type": "result", "status": "error", "error": error})
        assert failure(replay(line, 1)) == "out of luck"

    def test_an_error_after_the_result_wins(self):
        """S1-34: the run failed, and the tokens and the cost of the result are kept."""
        stats = {"input_tokens": 20, "cached_input_tokens": 5, "output_tokens": 6}
        late = {"type": "error", "message": "no access to this model"}
        end = {**SUCCESS, "stats": stats, "total_cost_usd": 0.025}
        outcome = result(replay(lines(INIT, HELLO, end, late)))
        assert (outcome.status, outcome.exception().message) == ("error", late["message"])
        assert (outcome.usage.input, outcome.usage.cached, outcome.usage.output) == (20, 5, 6)
        assert str(outcome.cost.usd) == "0.025"

    def test_a_warning_is_recoverable(self):
        """S0-15: an `error` frame with the severity of a warning does not end the run."""
        warning = {"type": "error", "severity": "warning", "message": "this may take a while"}
        events = replay(lines(INIT, warning, HELLO, SUCCESS))
        assert [(error.message, error.recoverable) for error in of(Error, events)] == [
            ("this may take a while", True)
        ]
        assert events[-1].status == "success"

    def test_a_result_error_with_a_code_of_its_own(self):
        """S0-16: the error code of a failed result is kept."""
        error = {"code": "NO_SUCH_LEVEL", "message": "no such level"}
        events = replay(lines({"type": "result", "status": "error", "error": error}), 1)
        assert result(events).errors[-1].code == "NO_SUCH_LEVEL"

    @pytest.mark.parametrize(
        ("frame", "exit_code", "status"),
        [
            ({"status": "turn_limit"}, 1, "max_turns"),
            ({"status": "max_turns"}, 0, "max_turns"),
            ({"status": "error", "error": "the turn limit was reached"}, 1, "error"),
        ],
    )
    def test_turn_limits_are_read_from_structure_only(self, frame, exit_code, status):
        """S1-50, B-22: the status reveals a turn limit; text about one, also on stderr, does
        not."""
        events = replay(lines(INIT, {"type": "result", **frame}), exit_code, "max turns reached")
        assert events[-1].status == status

    @pytest.mark.parametrize(
        ("exit_code", "status"), [(1, "error"), (42, "error"), (53, "max_turns")]
    )
    def test_without_a_result_the_exit_code_decides(self, exit_code, status):
        """S0-19 … S0-21: the exit code gives the status, and the text that arrived is kept."""
        events = replay(lines(INIT, HELLO), exit_code)
        assert isinstance(events[-1], Done)
        assert (events[-1].status, result(events).text) == (status, "Hello")
        assert status_of_exit(exit_code) == status

    def test_the_session_to_resume(self):
        """S0-30: the session to resume is that of `init`, or none."""
        assert replay(lines(INIT, SUCCESS))[-1].resume == "s-1"
        assert replay(lines(HELLO, SUCCESS))[-1].resume is None
