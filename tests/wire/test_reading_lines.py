"""Bytes arrive in any pieces; the events are the same."""

import itertools
import json
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geminorum import Error, Text, TextDelta, ToolUse, Unknown
from geminorum.wire.lines import Lines
from geminorum.wire.stream_json.decoder import StreamDecoder
from geminorum.wire.stream_json.verdict import replay

STAMP = "2026-11-15T18:53:57.261Z"


def delta(text: str) -> dict:
    return {
        "type": "message",
        "timestamp": STAMP,
        "role": "assistant",
        "content": text,
        "delta": True,
    }


def stream(*frames: dict) -> bytes:
    return b"".join(json.dumps(frame, ensure_ascii=False).encode() + b"\n" for frame in frames)


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def lines_of(pieces: list[bytes], **limits: int) -> list[bytes]:
    lines = Lines(**limits)
    return [*(line for piece in pieces for line in lines.feed(piece)), lines.rest()]


@given(st.binary(), st.lists(st.integers(0, 1000), max_size=12))
@example(b"a\r\nb\r", [1, 2, 3])
@example(b"\n\n", [1])
def test_lines_are_the_same_however_the_bytes_are_cut(data, cuts):
    """S0-7: any split of the bytes into chunks gives the same lines."""
    assert lines_of(in_pieces(data, cuts)) == lines_of([data])


@given(st.binary())
def test_lines_end_at_newlines_only_and_lose_nothing_but_carriage_returns(data):
    """S0-10: only `\\n` ends a line, and only the carriage return before it is removed."""
    expected = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    assert lines_of([data]) == expected


odd_lines = st.sampled_from(
    [
        *(b"", b"   ", b"garbage", b"42", b"null", b'"text"', b"[1]", b"{}", b"\xff\xfe"),
        *(b'{"type":', b'"init","session_id":"z"}', b' {"type":"init","session_id":"x"} '),
        b'{"type":"init","session_id":"x"}{"type":"init","session_id":"y"}',
        b'{"type":"new"}',
        b'{"type":"message","content":{"text":"x"}}',
        b'{"type":"tool_use"}',
    ]
)
frame_lines = st.builds(
    lambda frame: json.dumps(frame, ensure_ascii=False).encode(),
    st.builds(delta, st.text(st.characters(exclude_categories=["Cs"]))),
)


@given(st.lists(odd_lines | frame_lines), st.lists(st.integers(0, 5000), max_size=12))
def test_events_are_the_same_however_the_stream_is_cut(lines, cuts):
    data = b"\n".join(lines)
    whole, cut = StreamDecoder(), StreamDecoder()
    expected = [*whole.feed(data), *whole.close()]
    pieces = [event for piece in in_pieces(data, cuts) for event in cut.feed(piece)]
    assert [*pieces, *cut.close()] == expected


@given(st.binary())
def test_no_bytes_whatever_can_break_the_decoder(data):
    events = replay(data)
    assert [event.type for event in events].count("done") == 1
    assert events[-1].type == "done"


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":\n"init","session_id":"x"}\n',
        b'{"type":"init","session_id":"x"} {"type":"init","session_id":"y"}\n',
        b'{"type":"init","session_id":"x"} {"type":\n"init","session_id":"y"}\n',
    ],
)
def test_a_frame_is_one_line_and_a_line_one_frame(data):
    at_once, cut = StreamDecoder(), StreamDecoder()
    in_bytes = [event for byte in data for event in cut.feed(bytes([byte]))]
    assert at_once.feed(data) == in_bytes
    assert {event.type for event in in_bytes} == {"error"}


def test_a_character_cut_in_two_arrives_whole():
    """D-9: seven bytes at a time."""
    data = stream(delta("héllo 🚀 日本語 ✓" * 20))
    decoder = StreamDecoder()
    events = [e for at in range(0, len(data), 7) for e in decoder.feed(data[at : at + 7])]
    assert events[0].text == "héllo 🚀 日本語 ✓" * 20


def test_line_separators_inside_json_do_not_split_it():
    """D-11: U+2028 and U+0085 are raw in the CLI's output."""
    data = stream(delta("one\u2028two\u0085three"))
    assert replay(data)[0].text == "one\u2028two\u0085three"


def test_bytes_that_are_not_utf8_cost_one_character_not_the_message():
    data = stream(delta("caf?")).replace(b"caf?", b"caf\xe9")
    assert replay(data)[0].text == "caf\ufffd"


def test_half_a_surrogate_pair_costs_one_character_not_the_message():
    data = stream(delta("smile ?")).replace(b"smile ?", b"smile \\ud83d")
    told = replay(data)
    assert [event.text for event in told if isinstance(event, TextDelta)] == ["smile ", "\ufffd"]
    assert [event.text for event in told if isinstance(event, Text)] == ["smile \ufffd"]


def test_a_malformed_line_is_reported_and_the_stream_goes_on():
    """S0-9, S0-17, S4-37: a malformed line becomes a recoverable error that quotes it; decoding
    continues."""
    events = replay(b"{bad json\r\n" + stream(delta("after")))
    assert isinstance(events[0], Error)
    assert (events[0].code, events[0].recoverable) == ("NDJSON_PARSE_ERROR", True)
    assert "raw: {bad json" in events[0].message
    assert isinstance(events[1], TextDelta)


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"type":' * 100_000])
def test_a_line_nested_beyond_reason_is_reported_like_any_other(line):
    events = replay(line + b"\n" + stream(delta("after")))
    assert [event.type for event in events[:2]] == ["error", "text_delta"]


def test_a_frame_from_the_future_is_kept_whole():
    """S0-29: consumers pass over what they do not know."""
    events = replay(stream({"type": "hologram", "depth": 3}))
    assert isinstance(events[0], Unknown)
    assert (events[0].kind, events[0].raw) == ("hologram", {"type": "hologram", "depth": 3})


def test_deltas_are_followed_by_the_whole_message():
    """S0-12, S1-32, S1-35, B-8: text chunks arrive as deltas, and the joined message follows before
    the next tool call."""
    call = {"type": "tool_use", "tool_name": "glob", "tool_id": "1", "parameters": {}}
    events = replay(stream(delta("Hel"), delta("lo"), call, delta("Bye")))[:6]
    assert [(event.type, getattr(event, "text", None)) for event in events] == [
        ("text_delta", "Hel"),
        ("text_delta", "lo"),
        ("text", "Hello"),
        ("tool_use", None),
        ("text_delta", "Bye"),
        ("text", "Bye"),
    ]


def test_a_message_that_comes_whole_is_a_text():
    """S0-12: an assistant message without `delta` becomes one `Text`."""
    events = replay(stream({"type": "message", "role": "assistant", "content": "All at once"}))
    assert isinstance(events[0], Text)
    assert events[0].text == "All at once"


def test_a_tool_call_without_arguments_is_no_trouble():
    """D-12: `"parameters": null` decodes to an empty input."""
    events = replay(b'{"type":"tool_use","tool_name":"glob","tool_id":"x","parameters":null}\n')
    assert isinstance(events[0], ToolUse)
    assert events[0].input == {}


def test_time_stamps_become_milliseconds():
    """S0-29: ISO timestamps of any zone become epoch milliseconds; an unreadable one repeats the
    last."""
    stamps = [STAMP, "2026-11-15T18:53:57.999Z", "2026-11-15T19:53:58+01:00", "nonsense"]
    events = replay(stream(*({**delta("x"), "timestamp": stamp} for stamp in stamps)))[:4]
    assert [event.timestamp - 1794768837000 for event in events] == [261, 999, 1000, 1000]


def test_a_line_beyond_the_guard_is_dropped_and_said_so():
    decoder = StreamDecoder(longest_line=100)
    data = stream(delta("x" * 500), {"type": "init"})
    events = [*decoder.feed(data[:200]), *decoder.feed(data[200:])]
    assert [(e.type, getattr(e, "code", None)) for e in events] == [
        ("init", None),
        ("error", "LINE_TOO_LONG"),
    ]


@example([b"0123456789\r"], [1])
@given(st.lists(st.binary(max_size=30)), st.lists(st.integers(0, 200), max_size=6))
def test_the_guard_holds_however_the_bytes_are_cut(lines, cuts):
    data = b"".join(line.replace(b"\n", b"") + b"\n" for line in lines)
    whole, cut = Lines(limit=10), Lines(limit=10)
    expected = whole.feed(data)
    assert [line for piece in in_pieces(data, cuts) for line in cut.feed(piece)] == expected
    assert cut.overlong == whole.overlong == sum(len(line) > 10 for line in data.split(b"\n"))


@pytest.mark.parametrize("chunk", [1, 3, 4096])
def test_a_long_line_is_joined_from_any_chunks(chunk):
    body = "".join(random.Random(7).choices("abc \u00e9", k=20_000))
    data = stream(delta(body))
    decoder = StreamDecoder()
    events = [e for at in range(0, len(data), chunk) for e in decoder.feed(data[at : at + chunk])]
    assert events[0].text == body


@pytest.mark.parametrize(("then", "looped"), [([], True), ([{"content": "Done."}], False)])
def test_a_loop_ends_a_run_only_where_nothing_is_said_after_it(then, looped):
    said = {"type": "message", "role": "assistant", "delta": True, "content": "Again"}
    warning = {"type": "error", "severity": "warning", "message": "Loop detected, stopping"}
    ending = {"type": "result", "status": "success", "stats": {}}
    lines = [said, warning, *({**said, **more} for more in then), ending]
    decoder = StreamDecoder()
    decoder.feed(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert decoder.looped is looped
