"""Events are values that turn to JSON and back without loss."""

import pickle
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geminorum
from geminorum import errors
from geminorum import events as vocabulary
from geminorum.events import (
    Cost,
    CostLine,
    Done,
    Error,
    Init,
    ModelCost,
    ModelRequest,
    PermissionDecision,
    PermissionRequest,
    Text,
    TextDelta,
    Thinking,
    Tokens,
    ToolResult,
    ToolUse,
    Unknown,
    Usage,
    UserMessage,
    decode,
    encode,
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
maybe = st.none() | text
count = st.integers(0, 2**53)
seconds = st.floats(0, 1e9, allow_nan=False)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
mapping = st.dictionaries(text, plain, max_size=3)
money = st.decimals(0, 10**6, allow_nan=False, places=9)
frame = st.just(msgspec.UNSET) | mapping.map(lambda data: msgspec.Raw(msgspec.json.encode(data)))
envelope = {"agent": text, "timestamp": count, "session_id": maybe, "frame": frame}
tokens = st.builds(Tokens, *[count] * 6)
shares = st.dictionaries(text, tokens, max_size=2)
requests = st.lists(st.builds(ModelRequest, *[count] * 6, text, count), max_size=2).map(tuple)
usage = st.builds(
    Usage,
    *[count] * 6,
    by_model=shares,
    tool_calls=count,
    exact=st.booleans(),
    requests=requests,
)
kinds = st.sampled_from(["input", "cached", "output", "thoughts"])
lines = st.lists(st.builds(CostLine, kinds, count, money), max_size=2).map(tuple)
cost = st.builds(
    Cost,
    usd=money,
    by_model=st.dictionaries(text, st.builds(ModelCost, money, tokens, lines), max_size=2),
    exact=st.booleans(),
    billing=st.sampled_from([None, "api_key", "vertex", "google_account"]),
)
event = st.one_of(
    st.builds(Init, model=maybe, cwd=maybe, tools=st.none() | st.lists(text), **envelope),
    *(st.builds(kind, text=text, **envelope) for kind in (TextDelta, Text, Thinking, UserMessage)),
    st.builds(ToolUse, name=text, id=maybe, input=mapping, **envelope),
    st.builds(
        ToolResult,
        id=maybe,
        name=maybe,
        status=st.sampled_from(["success", "error", "denied"]),
        output=plain,
        error_type=maybe,
        duration=st.none() | seconds,
        **envelope,
    ),
    st.builds(PermissionRequest, name=text, id=maybe, input=mapping, reason=maybe, **envelope),
    st.builds(
        PermissionDecision,
        name=text,
        decision=st.sampled_from(["allow", "allow_always", "deny"]),
        id=maybe,
        reason=maybe,
        **envelope,
    ),
    st.builds(Error, message=text, code=maybe, recoverable=st.booleans(), hint=maybe, **envelope),
    st.builds(Unknown, kind=maybe, **envelope),
    st.builds(
        Done,
        status=st.sampled_from(["success", "error", "interrupted", "max_turns", "max_budget"]),
        usage=st.none() | usage,
        cost=st.none() | cost,
        duration=seconds,
        resume=maybe,
        exit_code=st.none() | st.integers(-64, 255),
        **envelope,
    ),
)


@given(event)
def test_encoding_and_decoding_any_event_is_the_identity(one):
    line = encode(one)
    assert b"\n" not in line
    assert decode(line) == one


@given(event)
def test_any_event_survives_pickling(one):
    assert pickle.loads(pickle.dumps(one)) == one


@given(event)
def test_every_event_says_its_type_agent_time_and_session(one):
    """S0-29: every encoded event has the fields of the envelope."""
    data = msgspec.json.decode(encode(one))
    assert data["type"] == one.type
    assert {"agent", "timestamp", "session_id"} <= set(data)


def test_there_are_the_nine_kinds_of_event_of_the_contract_and_three_more():
    """S0-29: the prompt's echo, the answer to a permission request, and what is unknown."""
    kinds = {kind.__struct_config__.tag for kind in vocabulary.Event.__args__}
    assert kinds == {
        *("init", "text", "text_delta", "tool_use", "tool_result", "thinking", "error"),
        *("permission_request", "permission_decision", "done", "user_message", "unknown"),
    }


def test_events_cannot_be_changed():
    with pytest.raises(AttributeError, match="immutable"):
        Text("hello").text = "bye"


def test_an_event_shows_what_it_says_and_hides_its_envelope():
    assert repr(Text("hi", timestamp=5, session_id="s")) == "Text(text='hi')"
    assert "session_id='s'" in repr(Init("flash", session_id="s"))


def test_the_raw_frame_is_reachable():
    one = Text("hi", frame=msgspec.Raw(b'{"type":"message","new_field":1}'))
    assert one.raw["new_field"] == 1
    assert Text("hi").raw is None


def test_a_bill_explains_itself():
    line = CostLine("input", 1_000_000, Decimal("0.30"))
    share = ModelCost(line.usd, Tokens(input=1_000_000), (line,))
    assert Cost(line.usd, {"flash": share}).explain().splitlines() == [
        "flash",
        "    1,000,000 input    * $0.30/M = $0.30",
        "total: $0.30 (estimate)",
    ]


def test_a_bill_that_nobody_is_sent_says_so():
    """S1-57: a Google account is not charged for tokens."""
    free = Cost(Decimal("0.3"), billing="google_account")
    assert (free.usd, free.billed_usd) == (Decimal("0.3"), Decimal("0.00"))
    assert "not billed" in free.explain()
    assert Cost(Decimal("0.3"), billing="api_key").billed_usd == Decimal("0.3")


def test_a_newer_event_type_is_refused_clearly():
    with pytest.raises(errors.InvalidEvent, match="Invalid value 'hologram'"):
        decode(b'{"type":"hologram"}')


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"\xff", "\ud800", b"[]", b"{}", b'{"type":"text"}', b'{"type":"text","text":3}'],
)
def test_a_line_that_is_no_event_raises_our_error_which_is_a_value_error(line):
    with pytest.raises(errors.InvalidEvent) as caught:
        decode(line)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, errors.GeminorumError)


def test_the_events_are_exported_at_the_top():
    for kind in vocabulary.Event.__args__:
        assert getattr(geminorum, kind.__name__) is kind
