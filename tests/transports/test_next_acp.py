"""Warm CLIs that came after this release: what they changed is survived, or named."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from geminorum import (
    Allow,
    Done,
    Error,
    Event,
    Options,
    PermissionDecision,
    PermissionRequest,
    Policy,
    ToolResult,
    ToolUse,
    Unknown,
    ask,
    errors,
    run,
)
from geminorum.views.result import result
from geminorum.wire.acp import protocol as acp
from geminorum.wire.acp.decoder import AcpDecoder

# ---- updates that changed

RECORDINGS = sorted((Path(__file__).parents[1] / "recordings" / "acp").glob("*.jsonl"))
SAID = [json.loads(line) for path in RECORDINGS for line in path.read_text().splitlines()]
UPDATES = [
    row["msg"]["params"]["update"] for row in SAID if row["msg"].get("method") == "session/update"
]
Update = dict[str, Any]
Change = Callable[[Update], list[Update]]


def new_fields(update: Update) -> list[Update]:
    return [{"schemaVersion": 3, **update, "_meta": {"region": ["eu", 1]}, "seq": 7}]


def new_kinds(update: Update) -> list[Update]:
    usage = {"sessionUpdate": "usage_update", "used": 53000, "cost": {"amount": 0.04}}
    return [{"sessionUpdate": "plan", "entries": []}, update, usage]


def content_in_parts(update: Update) -> list[Update]:
    if update["sessionUpdate"].endswith("_chunk"):
        return [{**update, "content": [update["content"]]}]
    return [update]


def typed_content(update: Update) -> list[Update]:
    if update["sessionUpdate"].endswith("_chunk"):
        content = {**update["content"], "type": "markdown", "annotations": {"audience": ["user"]}}
        return [{**update, "content": content}]
    return [update]


def odd_details(update: Update) -> list[Update]:
    """What only people read of a tool call has another shape."""
    if "toolCallId" in update:
        return [{**update, "title": {"text": update.get("title")}, "locations": {"path": "/w"}}]
    return [update]


def decoded(updates: list[Update]) -> list[Event]:
    decoder = AcpDecoder("s")
    return [event for one in updates for event in decoder.update(raw(one), 1)] + decoder.close(2)


def raw(data: object) -> Raw:
    return Raw(msgspec.json.encode(data))


def gist(event: Event) -> tuple[Any, ...]:
    match event:
        case ToolUse():
            return "tool_use", event.name, event.id
        case ToolResult():
            return "tool_result", event.name, event.id, event.status
        case _:
            return event.type, getattr(event, "text", None)


@pytest.mark.parametrize(
    "change",
    [new_fields, new_kinds, content_in_parts, typed_content, odd_details],
    ids=lambda change: change.__name__,
)
def test_updates_of_a_next_version_lose_nothing(change):
    after = decoded([new for one in UPDATES for new in change(one)])
    known = [gist(event) for event in after if not isinstance(event, Unknown)]
    before = [gist(event) for event in decoded(UPDATES) if not isinstance(event, Unknown)]
    assert known == before


FIELDS = ["sessionUpdate", "content", "text", "toolCallId", "status"]


@pytest.mark.parametrize("field", FIELDS)
def test_an_update_without_a_field_is_kept_as_unknown(field):
    """Each update that says something still makes an event, and none that says something else."""
    for update in UPDATES:
        decoder, other = AcpDecoder("s"), AcpDecoder("s")
        expected = decoder.update(raw(update), 1)
        after = other.update(raw(without(update, field)), 1)
        assert bool(after) >= bool(expected), update
        if field in update or field in (update.get("content") or ()):
            said = [gist(event) for event in after if not isinstance(event, Unknown)]
            assert all(one in [gist(event) for event in expected] for one in said), update


def without(update: Update, field: str) -> Update:
    gone = {f"x_{key}" if key == field else key: value for key, value in update.items()}
    if field == "text" and isinstance(update.get("content"), dict):
        block = update["content"]
        return {**update, "content": {f"x_{k}" if k == "text" else k: block[k] for k in block}}
    return gone


@pytest.mark.parametrize("status", ["cancelled", "rejected", "timed_out", "done", None, 3])
def test_a_call_that_ends_in_a_new_way_is_neither_a_success_nor_lost(status):
    decoder = AcpDecoder("s")
    call = {"toolCallId": "read_file__1", "title": "a", "kind": "read"}
    decoder.update(raw({"sessionUpdate": "tool_call", "status": "in_progress", **call}), 1)
    ended = {"sessionUpdate": "tool_call_update", "status": status, **call}
    (event,) = decoder.update(raw(ended), 2)
    assert (type(event), event.kind, event.raw["status"]) == (Unknown, "tool_call_update", status)


@pytest.mark.parametrize("status", ["pending", "in_progress"])
def test_a_call_that_goes_on_says_nothing_new(status):
    update = {"sessionUpdate": "tool_call_update", "toolCallId": "read_file__1", "status": status}
    assert AcpDecoder("s").update(raw(update), 1) == []


# ---- whole turns with a program that is newer

USUAL = {
    "initialize": [
        {
            "id": "$id",
            "result": {"protocolVersion": 1, "agentInfo": {"name": "s", "version": "0.61.0"}},
        }
    ],
    "session/new": [
        {
            "id": "$id",
            "result": {"sessionId": "s-1", "models": {"currentModelId": "gemini-2.5-flash"}},
        }
    ],
}


def update(**fields: Any) -> dict[str, Any]:
    return {"method": "session/update", "params": {"sessionId": "$session", "update": fields}}


def chunk(text: str = "Hello") -> dict[str, Any]:
    return update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})


def reply(result: Any) -> dict[str, Any]:
    return {"id": "$id", "result": result}


HELLO = [chunk(), reply({"stopReason": "end_turn"})]
CALL = {"toolCallId": "write_file__write_file_1_0", "title": "Writing", "kind": "edit"}
OPTIONS = [
    {"optionId": "proceed_once", "kind": "allow_once", "name": "Allow"},
    {"optionId": "cancel", "kind": "reject_once", "name": "Reject"},
]


def question(**params: Any) -> dict[str, Any]:
    asked = {"sessionId": "$session", "toolCall": CALL, "options": OPTIONS, **params}
    return {"id": 7, "method": "session/request_permission", "params": asked}


class Program:
    """A program that answers as its plan says."""

    def __init__(self, stand_in_acp: Callable[..., Any], folder: Path) -> None:
        self._stand_in, self._plan = stand_in_acp, folder / "plan.json"
        self.options = Options(cwd=folder, env={"GEMINI_API_KEY": "k", "HOME": str(folder)})

    async def __call__(
        self, plan: dict[str, Any], *, decide: Any = None, **options: Any
    ) -> list[Event]:
        self._plan.write_text(json.dumps({**USUAL, "session/prompt": HELLO, **plan}))
        via = self._stand_in(f"plan {self._plan}", decide=decide)
        async with asyncio.timeout(20), run("Hi", self.options.changed(**options), via=via) as live:
            return [event async for event in live]

    @property
    def heard(self) -> list[dict[str, Any]]:
        lines = Path(f"{self._plan}.heard").read_text().splitlines()
        return [json.loads(line) for line in lines]

    @property
    def methods(self) -> list[str | None]:
        return [message.get("method") for message in self.heard]


@pytest.fixture
def program(stand_in_acp, tmp_path) -> Program:
    return Program(stand_in_acp, tmp_path)


def failure(events: list[Event]) -> Error:
    assert isinstance(events[-1], Done)
    assert events[-1].status == "error"
    return [event for event in events if isinstance(event, Error)][-1]


def of(kind: type, events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.parametrize(
    "plan",
    [
        {"initialize": [reply({"protocolVersion": 1, "agentInfo": "gemini-cli/0.70"})]},
        {"initialize": [reply({"protocolVersion": 1, "agentInfo": {"version": [0, 70, 0]}})]},
        {"initialize": [reply({"protocolVersion": 1, "agent": {}, "agentCapabilities": []})]},
        {"session/new": [reply({"sessionId": "s-1", "models": ["gemini-9"], "modes": 3})]},
        {"session/new": [reply({"sessionId": "s-1", "configOptions": []})]},
        {"session/set_mode": [reply(None)], "session/set_model": [reply(None)]},
        {"session/set_mode": [reply([])], "session/set_model": [reply("ok")]},
    ],
)
async def test_answers_with_more_or_less_in_them_do_not_cost_the_turn(program, plan):
    events = await program(plan, model="gemini-2.5-flash", approval="yolo")
    assert (result(events).text, events[-1].status) == ("Hello", "success")


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"initialize": [reply({"protocol_version": 1})]}, "no version of the protocol"),
        ({"initialize": [reply({"protocolVersion": "2026-05-01"})]}, "2026-05-01"),
        ({"initialize": [reply({"protocolVersion": 2})]}, "version 2"),
        ({"session/new": [reply({"session_id": "s-1"})]}, "session/new"),
        ({"session/new": [reply({"sessionId": {"id": "s-1"}})]}, "session/new"),
        ({"session/new": [reply(None)]}, "session/new"),
    ],
)
async def test_where_no_session_can_be_opened_the_error_says_why(program, plan, words):
    error = failure(await program(plan))
    assert errors.class_for(error.code) is errors.ProtocolError
    assert words in error.message
    assert "Cli()" in error.hint
    assert "session/prompt" not in program.methods


@pytest.mark.parametrize("method", ["session/set_mode", "session/set_model"])
async def test_a_mode_or_model_that_cannot_be_set_ends_the_turn(program, method):
    """Else a read-only run would write, and another model would be paid."""
    gone = {"id": "$id", "error": {"code": -32601, "message": f'"Method not found": {method}'}}
    error = failure(await program({method: [gone]}, approval="plan", model="gemini-2.5-flash"))
    assert method in error.message
    assert "session/prompt" not in program.methods


@pytest.mark.parametrize(
    "answer",
    [
        {"stopReason": "end_turn", "_meta": {"quota": ["gone"]}},
        {"stopReason": "end_turn", "_meta": "none"},
        {"stopReason": "end_turn", "_meta": {"quota": {"tokenCount": {"input": 5}}}},
        {"stopReason": "end_turn", "_meta": {"quota": {"token_count": {"in": 5, "out": 1}}}},
        {"stopReason": "end_turn", "usage": {"spent": 5}},
    ],
)
async def test_usage_in_a_place_that_nobody_knows_is_no_zero(program, answer):
    events = await program({"session/prompt": [chunk(), reply(answer)]})
    assert (result(events).text, events[-1].status) == ("Hello", "success")
    assert (events[-1].usage, events[-1].cost) == (None, None)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"stop_reason": "end_turn"}, "no stop reason"),
        ({"stopReason": {"kind": "end_turn"}}, "no stop reason"),
        ({"stopReason": "budget"}, "'budget'"),
        (None, "the answer to the prompt"),
        ([1], "the answer to the prompt"),
    ],
)
async def test_an_end_that_nobody_knows_is_no_success_and_keeps_the_text(program, answer, words):
    events = await program({"session/prompt": [chunk(), reply(answer)]})
    error = failure(events)
    assert words in error.message
    assert result(events).text == "Hello"


@pytest.mark.parametrize("error", ["gone", {"code": "GONE", "message": "gone"}, {"why": "gone"}])
async def test_an_error_of_another_shape_ends_the_turn_with_its_words(program, error):
    """A line that is not understood must not leave the turn waiting for its answer."""
    events = await program({"session/prompt": [chunk(), {"id": "$id", "error": error}]})
    assert "gone" in failure(events).message


@pytest.mark.parametrize(
    "content",
    [
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "text", "value": "Hello"},
        [{"type": "image", "data": "aGk="}],
        "Hello",
    ],
)
async def test_an_answer_of_which_nothing_could_be_read_is_named(program, content):
    said = update(sessionUpdate="agent_message_chunk", content=content)
    events = await program({"session/prompt": [said, reply({"stopReason": "end_turn"})]})
    if content == "Hello":
        assert result(events).text == "Hello"
        return
    (kept,) = of(Unknown, events)
    assert kept.raw["content"] == content
    assert "agent_message_chunk" in failure(events).message


async def test_messages_of_a_new_name_are_kept(program):
    """Its own notifications, and requests for which there is no answer."""
    told = {"method": "session/usage", "params": {"sessionId": "$session", "used": 5}}
    asked = {"id": 9, "method": "session/elicit", "params": {"sessionId": "$session", "form": {}}}
    events = await program({"session/prompt": [told, asked, *HELLO]})
    assert [event.kind for event in of(Unknown, events)] == ["session/usage", "session/elicit"]
    assert of(Unknown, events)[0].raw["used"] == 5
    assert program.heard[-1]["error"]["code"] == -32601
    assert events[-1].status == "success"


async def test_an_update_that_names_no_session_is_kept(program):
    nameless = chunk("secret")
    nameless["params"] = {"session_id": "s-1", "update": nameless["params"]["update"]}
    events = await program({"session/prompt": [nameless, *HELLO]})
    (kept,) = of(Unknown, events)
    assert kept.raw["update"]["content"]["text"] == "secret"
    assert result(events).text == "Hello"


# ---- permission


@pytest.mark.parametrize("denied", [True, False])
async def test_a_restriction_that_the_cli_does_not_apply_is_noticed(program, denied):
    begun = update(sessionUpdate="tool_call", status="in_progress", **CALL)
    ended = update(sessionUpdate="tool_call_update", status="completed", **CALL)
    policy = Policy(file_write="deny") if denied else Policy()
    events = await program({"session/prompt": [begun, ended, *HELLO]}, policy=policy)
    if denied:
        assert "although these options deny it" in failure(events).message
        assert "session/cancel" in program.methods
    else:
        assert events[-1].status == "success"


def allow(request: PermissionRequest) -> Allow:
    return Allow()


def outcome(program: Program) -> Any:
    (answer,) = [one for one in program.heard if one.get("id") == 7 and "method" not in one]
    return answer.get("result", answer.get("error"))


async def test_permission_is_given_as_it_is_today(program):
    events = await program({"session/prompt": [question(), *HELLO]}, decide=allow)
    assert outcome(program) == {"outcome": {"outcome": "selected", "optionId": "proceed_once"}}
    assert of(PermissionDecision, events)[0].decision == "allow"


@pytest.mark.parametrize(
    "options",
    [
        [{"optionId": "a", "kind": "allow_session"}, {"optionId": "b", "kind": "reject_once"}],
        [{"optionId": "a", "kind": "allowOnce"}, {"optionId": "b", "kind": "rejectOnce"}],
        [{"optionId": "a", "kind": "allow_always"}],
        [{"optionId": "a", "type": "allow_once"}],
        [],
    ],
)
async def test_where_no_option_means_the_decision_nothing_is_allowed(program, options):
    plan = {"session/prompt": [question(options=options), *HELLO]}
    events = await program(plan, decide=allow)
    refused = {"outcome": {"outcome": "selected", "optionId": "b"}}
    assert outcome(program) == (refused if "reject_once" in str(options) else acp.WITHDRAWN)
    (decision,) = of(PermissionDecision, events)
    assert decision.decision == "deny"
    assert "no option" in decision.reason


@pytest.mark.parametrize(
    "params",
    [
        {"options": [{"id": "proceed_once", "kind": "allow_once"}]},
        {"options": {"allow": "proceed_once"}},
        {"toolCall": {"call_id": "write_file__1"}},
        {"toolCall": None, "call": CALL},
    ],
)
async def test_a_question_that_cannot_be_read_is_withdrawn_and_named(program, params):
    plan = {"session/prompt": [question(**params), *HELLO]}
    events = await program(plan, decide=allow)
    assert outcome(program) == acp.WITHDRAWN
    decisions = [one.decision for one in of(PermissionDecision, events)]
    kept = [one.kind for one in of(Unknown, events)]
    assert (kept, decisions) in ((["session/request_permission"], []), ([], ["deny"]))


async def test_a_question_that_does_not_name_its_tool_is_refused(program):
    """Whoever denies a tool by its name would allow it under an id that he has never seen."""
    asked: list[PermissionRequest] = []
    call = {**CALL, "toolCallId": "call_8c1f"}
    plan = {"session/prompt": [question(toolCall=call), *HELLO]}
    events = await program(plan, decide=lambda one: asked.append(one) or Allow())
    assert (asked, outcome(program)["outcome"].get("optionId")) == ([], "cancel")
    (decision,) = of(PermissionDecision, events)
    assert (decision.decision, "which tool" in decision.reason) == ("deny", True)


async def test_a_question_under_a_new_method_is_refused(program):
    renamed = {**question(), "method": "session/ask_permission"}
    events = await program({"session/prompt": [renamed, *HELLO]}, decide=allow)
    assert outcome(program)["code"] == -32601
    assert [event.kind for event in of(Unknown, events)] == ["session/ask_permission"]


async def test_a_question_that_names_no_session_is_withdrawn_and_named(program):
    nameless = question()
    nameless["params"]["session_id"] = nameless["params"].pop("sessionId")
    events = await program({"session/prompt": [nameless, *HELLO]}, decide=allow)
    assert outcome(program) == acp.WITHDRAWN
    assert [event.kind for event in of(Unknown, events)] == ["session/request_permission"]


async def test_one_ask_raises_the_named_error(program, stand_in_acp):
    await program({"session/new": [reply({"id": "s-1"})]})
    with pytest.raises(errors.ProtocolError, match="session/new"):
        await ask("Hi", program.options, via=stand_in_acp(f"plan {program._plan}"))
