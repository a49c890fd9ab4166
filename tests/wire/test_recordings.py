"""What real CLI versions printed becomes known events, whole, with one verdict at the end."""

from collections.abc import Iterator
from typing import Any

import pytest

from geminorum import Done, Error, Init, Text, ToolResult, Unknown, UserMessage
from geminorum.views.result import result
from geminorum.wire.stream_json.verdict import replay
from recorded import RECORDINGS, recording, runs


def recordings() -> Iterator[Any]:
    for path in sorted(RECORDINGS.glob("*.jsonl")):
        for row in runs(path.stem):
            yield pytest.param(row, id=f"{path.stem}-{row['name']}")


ROWS = list(recordings())


def events_of(row: dict[str, Any]) -> list[Any]:
    return replay(row["stdout"].encode("utf-8", "surrogateescape"), row["exit"], row["stderr"])


@pytest.mark.parametrize("row", ROWS)
def test_every_recording_decodes_to_known_events_with_one_done_at_its_end(row):
    """S0-11 … S0-16, S0-34: recordings of every CLI version decode without `Unknown` and end with
    the only `Done`."""
    events = events_of(row)
    assert [type(event) for event in events].count(Done) == 1
    assert isinstance(events[-1], Done)
    assert not [event for event in events if isinstance(event, Unknown)]


def test_no_recording_without_a_result_is_a_success():
    """B-10: exit 0 alone says nothing."""
    cut = [row.values[0] for row in ROWS if '"type":"result"' not in row.values[0]["stdout"]]
    assert len(cut) > 20
    assert [row["name"] for row in cut if events_of(row)[-1].status == "success"] == []


EXPECTED = {
    # name: (status, code of the last error)
    "err400": ("error", "API"),
    "err401": ("error", "AUTH"),
    "err429daily": ("error", "QUOTA"),
    "auto_status_503_auto": ("error", "SERVER"),
    "err404": ("error", "MODEL_NOT_FOUND"),
    "conn_refused": ("error", "NETWORK"),
    "auth_none": ("error", "AUTH"),
    "auth_gateway": ("error", "AUTH"),
    "auth_missing_key": ("error", "AUTH"),
    "trust_none": ("error", "TRUST"),
    "settings_badjson": ("error", "CONFIG"),
    "sandbox_cmd_missing": ("error", "SANDBOX"),
    "nospace": ("error", "TOOL_FAILED"),
    "no_prompt": ("error", "INPUT"),
    "resume_bad_uuid": ("error", "SESSION_LOST"),
    "resume_after_wipe": ("error", "SESSION_LOST"),
    "sid_dup": ("error", "INVALID_OPTIONS"),
    "emptyresp": ("error", "INVALID_ANSWER"),
    "hangup": ("error", "INVALID_ANSWER"),
    "ctrl_c_tty_tool": ("interrupted", None),
    "loop": ("error", "LOOP"),
    "bad_mode": ("error", "INVALID_OPTIONS"),
    "flag_max_session_turns": ("error", "INVALID_OPTIONS"),
    "sigterm_child_stream": ("error", "MISSING_RESULT"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_ending_of_the_real_cli_has_its_own_verdict(name):
    """B-9, B-22, B-23: by the result, stderr and exit code, never by what the model wrote."""
    status, code = EXPECTED[name]
    events = events_of(recording("0.61.0", name))
    errors = [event for event in events if isinstance(event, Error)]
    assert (events[-1].status, errors[-1].code if errors else None) == (status, code)


@pytest.mark.parametrize("row", [row for row in ROWS if row.values[0]["exit"] == 53])
def test_exit_53_is_the_turn_limit_whatever_the_result_says(row):
    """S0-21, B-9: the real CLI reports an error and exits with 53; the status is `max_turns`."""
    assert events_of(row)[-1].status == "max_turns"


def test_every_failure_says_what_to_type_next():
    silent = [
        row.id
        for row in ROWS
        for event in events_of(row.values[0])
        if isinstance(event, Error) and not event.recoverable and event.code not in OWN_WORDS
        if not event.hint
    ]
    assert silent == []


# The message itself is the CLI's, and says what is wrong with the request.
OWN_WORDS = {"API", "RUN_FAILED", "INVALID_ANSWER"}


def test_the_echoed_prompt_is_not_agent_text():
    """S0-12, S1-31, B-8: the echo of the prompt is a `UserMessage` and not part of the result's
    text."""
    row = recording("0.61.0", "positional")
    events = events_of(row)
    echoed = [event.text for event in events if isinstance(event, UserMessage)]
    assert len(echoed) == 1
    assert echoed[0] not in result(events).text


def test_a_tool_result_carries_the_name_of_its_tool():
    """S0-14, B-7: the CLI sends an id only."""
    events = events_of(recording("0.61.0", "tool_shell_fail"))
    results = [event for event in events if isinstance(event, ToolResult)]
    assert [(event.name, event.output) for event in results] == [("run_shell_command", "out\nerr")]


def test_a_denied_tool_is_told_apart_from_a_failed_one():
    events = events_of(recording("0.61.0", "policy_p1_default"))
    statuses = {event.status for event in events if isinstance(event, ToolResult)}
    assert "denied" in statuses


def test_the_oldest_schema_still_gives_text_session_and_usage():
    """S1-30, S1-33, S1-35 … S1-37: version 0.11 has neither `cached` nor `models`."""
    events = events_of(recording("0.11.3", "basic"))
    outcome = result(events)
    assert isinstance(events[0], Init)
    assert outcome.session_id
    assert outcome.text == "".join(event.text for event in events if isinstance(event, Text))
    assert outcome.usage.input > 0
    assert outcome.usage.by_model == {}
