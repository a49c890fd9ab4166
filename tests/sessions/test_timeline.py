"""The tool calls of a conversation on a scale of time."""

import pytest

from geminorum.events import Text, ToolResult, ToolUse, Unknown, UserMessage
from geminorum.views.timeline import timeline
from geminorum.views.transcript import transcript_of

HOUR = 3_600_000


def line(*events):
    return timeline(transcript_of(events))


def use(id, at, name="ls", **input):
    return ToolUse(name, id, input, timestamp=at)


def result(id, at, **more):
    return ToolResult(id, timestamp=at, **more)


def test_a_call_begins_when_it_was_made_and_ends_with_its_result():
    drawn = line(
        UserMessage("Go", timestamp=1000),
        use("a", 3000, "run_shell_command", command="make"),
        result("a", 7500),
        Text("Done", timestamp=8000),
    )
    (span,) = drawn.spans
    assert (span.start, span.end, span.seconds) == (2000, 6500, 4.5)
    assert (span.name, span.about, span.status) == ("run_shell_command", "make", "success")
    assert (span.at, span.entry) == (3000, 2)
    assert drawn.prompts == [0]
    assert drawn.length == 7000


def test_a_saved_call_is_as_long_as_it_says():
    (span,) = line(use("a", 1000), result("a", 1000, duration=2.5)).spans
    assert (span.start, span.end) == (0, 2500)


@pytest.mark.parametrize("status", ["success", "error", "denied"])
def test_a_call_has_its_status(status):
    (span,) = line(use("a", 1000), result("a", 1001, status=status)).spans
    assert span.status == status


def test_a_call_without_a_result_is_unanswered_and_has_no_length():
    (span,) = line(use("a", 1000)).spans
    assert (span.status, span.seconds) == ("unanswered", 0)


def test_calls_at_the_same_time_lie_beside_each_other():
    drawn = line(use("a", 1000), use("b", 1000), result("a", 3000), result("b", 2000))
    assert [(span.start, span.end) for span in drawn.spans] == [(0, 2000), (0, 1000)]


def test_a_pause_of_hours_is_cut_and_the_order_stays():
    drawn = line(
        UserMessage("First", timestamp=HOUR),
        use("a", HOUR + 1000),
        result("a", HOUR + 2000),
        UserMessage("Next day", timestamp=25 * HOUR),
        use("b", 25 * HOUR + 500),
        result("b", 25 * HOUR + 1500),
    )
    assert [(span.start, span.end) for span in drawn.spans] == [(1000, 2000), (22_500, 23_500)]
    assert drawn.prompts == [0, 22_000]
    assert drawn.length == 23_500


def test_a_call_of_hours_keeps_its_length():
    drawn = line(use("a", 1000), result("a", 1000 + 2 * HOUR))
    assert drawn.length == 2 * HOUR


def test_a_conversation_without_calls_has_no_spans():
    assert line(UserMessage("Hi", timestamp=5), Text("Hi", timestamp=6)).spans == []
    assert line().length == 0


def test_what_the_cli_noted_before_does_not_count():
    drawn = line(Unknown(kind="session_context", timestamp=HOUR), use("a", 9 * HOUR))
    assert (drawn.spans[0].start, drawn.length) == (0, 0)


def test_calls_without_a_time_are_left_out():
    assert line(use("a", 0), result("a", 0)).spans == []


def test_a_clock_that_goes_backwards_does_no_harm():
    drawn = line(use("a", 9000), result("a", 4000), use("b", 2000), result("b", 1000))
    assert [(span.start, span.end) for span in drawn.spans] == [(7000, 7000), (0, 0)]
