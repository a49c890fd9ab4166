"""Sessions with tool calls, resumed as Google's API accepts them: one response for each call.

FakeGemini refuses any other count with HTTP 400, as Google does (gemini-cli#16984).
"""

import asyncio
import json
from pathlib import Path

import pytest

from geminorum import Acp, Cli, Options, ToolResult, ToolUse, ask, connect, errors, sessions
from geminorum import run as start
from geminorum.testing import FakeGemini
from geminorum.transports.resuming import files_of
from geminorum.wire.session_repair import repaired

READ_A = ("read_file", {"file_path": "a.txt"})
READ_B = ("read_file", {"file_path": "b.txt"})


@pytest.fixture
def options(fake_gemini, tmp_path) -> Options:
    cwd = tmp_path / "work"
    cwd.mkdir()
    for name in ("a", "b"):
        (cwd / f"{name}.txt").write_text(f"content of {name}")
    return Options(cwd=cwd, model="gemini-2.5-flash", env=fake_gemini.env, approval="yolo")


@pytest.fixture(params=[Cli, Acp], ids=["cli", "acp"])
def other_transport(request, real_cli_door) -> Cli | Acp:
    return request.param(executable=real_cli_door.executable)


def turns(fake_gemini: FakeGemini) -> list[list[str]]:
    """What the last request held: per content its texts, called tools and responses."""
    return [
        [_told(part) for part in content["parts"]] for content in fake_gemini.requests[-1].contents
    ]


def _told(part: dict) -> str:
    match part:
        case {"functionCall": call}:
            return f"call {call['name']} {call.get('args', {}).get('file_path', '')}".rstrip()
        case {"functionResponse": response}:
            return f"response {response['response'].get('output', 'error')}"
        case _:
            return "context" if "<session_context>" in part["text"] else part["text"]


async def with_tools(fake_gemini, options, transport) -> str:
    """A session with one call, two calls at once, and a call of an unknown tool; its id."""
    fake_gemini.call(READ_A[0], **READ_A[1])
    fake_gemini.calls(READ_A, READ_B).call("no_such_tool", x=1).say("Read.")
    return (await ask("Read them", options, via=transport)).session_id


EXPECTED = [
    ["context", "Read them"],
    ["call read_file a.txt"],
    ["response content of a"],
    ["call read_file a.txt", "call read_file b.txt"],
    ["response content of a", "response content of b"],
    ["call no_such_tool"],
    ["response error"],
    ["Read."],
]


async def test_a_session_with_tools_is_resumed(fake_gemini, options, any_door, other_transport):
    """Twice, by either transport: each call stands in its own turn, with one response."""
    session = await with_tools(fake_gemini, options, any_door)
    again = options.changed(resume=session)
    fake_gemini.call(READ_B[0], **READ_B[1]).say("Once more.").say("Thrice.")
    assert (await ask("Again", again, via=other_transport)).text == "Once more."
    assert (await ask("And again", again, via=any_door)).text == "Thrice."
    assert turns(fake_gemini) == [
        *EXPECTED,
        ["Again"],
        ["call read_file b.txt"],
        ["response content of b"],
        ["Once more."],
        ["And again"],
    ]


async def test_a_fork_with_tools_is_resumed(fake_gemini, options, any_door):
    session = await with_tools(fake_gemini, options, any_door)
    copy = sessions.fork(session, home=fake_gemini.home)
    fake_gemini.say("In the copy.").say("In the original.")
    await ask("Copy", options.changed(resume=copy.id), via=any_door)
    assert turns(fake_gemini) == [*EXPECTED, ["Copy"]]
    await ask("Original", options.changed(resume=session), via=any_door)
    assert turns(fake_gemini) == [*EXPECTED, ["Original"]]


async def test_a_chat_goes_on_after_a_cancelled_tool(fake_gemini, options, any_door):
    """The CLI keeps the call without a response in memory; the next turn is accepted anyway."""
    fake_gemini.call("run_shell_command", command="touch begun; sleep 250")
    fake_gemini.say("Gone on.").say("Resumed.")
    begun = Path(options.cwd) / "begun"
    async with connect(options, via=any_door) as chat:
        async with chat.turn("Sleep") as live:
            while not begun.exists():
                await asyncio.sleep(0.01)
            await live.cancel()
        assert (await chat.ask("Go on")).text == "Gone on."
    session = live.result.session_id
    resumed = await ask("Resume", options.changed(resume=session), via=any_door)
    assert (resumed.text, resumed.session_id) == ("Resumed.", session)
    assert [text for turn in turns(fake_gemini) for text in turn if text == "Go on"]


async def test_a_chat_goes_on_after_the_api_failed_behind_a_tool(fake_gemini, options, any_door):
    """Tried again by hand: in the same chat, and in a resumed session."""
    fake_gemini.call(READ_A[0], **READ_A[1]).fail(400, "Too warm today.")
    fake_gemini.say("Better.").say("Resumed.")
    async with connect(options, via=any_door) as chat:
        with pytest.raises(errors.ApiError, match="Too warm") as caught:
            await chat.ask("Read")
        assert (await chat.ask("Again")).text == "Better."
    session = caught.value.result.session_id
    assert (await ask("More", options.changed(resume=session), via=any_door)).text == "Resumed."
    [_, called, responded, *_] = turns(fake_gemini)
    assert (called, responded[0]) == (["call read_file a.txt"], "response content of a")


async def test_an_answer_asked_for_again_after_tools_is_accepted(fake_gemini, options, any_door):
    """`output_schema` asks once more in the same session when the answer did not arrive."""
    fake_gemini.call(READ_A[0], **READ_A[1]).say("Forgot to answer.").always()
    wanted = options.changed(output_schema={"type": "object", "properties": {}})
    async with start("Answer", wanted, via=any_door) as live:
        events = [event async for event in live]
    assert sum(isinstance(event, ToolUse) for event in events) == 1
    assert live.result.errors[-1].code == errors.InvalidAnswer.code
    assert errors.ApiError.code not in {one.code for one in live.result.errors}
    assert len(fake_gemini.requests) >= 3


async def test_a_session_reads_the_same_after_it_was_repaired(fake_gemini, options, any_door):
    """No call, result, text or token is lost from the file, and the list stays in order."""
    session = await with_tools(fake_gemini, options, any_door)
    before = sessions.load(session, home=fake_gemini.home)
    told = [event for event in before.events() if isinstance(event, ToolResult)]
    [path] = files_of(fake_gemini.home, Path(options.cwd), session)
    usage, stamp = before.usage, path.stat().st_mtime_ns
    from geminorum.transports.resuming import repair_session

    repair_session(fake_gemini.home, Path(options.cwd), session)
    after = sessions.load(session, home=fake_gemini.home)
    results = [event for event in after.events() if isinstance(event, ToolResult)]
    assert {one.id for one in told} <= {one.id for one in results}
    assert len(results) == 4
    assert (after.usage.total, path.stat().st_mtime_ns) == (usage.total, stamp)
    unchanged = path.read_bytes()
    repair_session(fake_gemini.home, Path(options.cwd), session)
    assert path.read_bytes() == unchanged


# ---- the repair itself, line by line


def line(**record) -> bytes:
    return json.dumps(record).encode() + b"\n"


TOP = line(sessionId="s", projectHash="p")


def response(call: str, output: str = "done") -> dict:
    return {"functionResponse": {"id": call, "name": "t", "response": {"output": output}}}


def gemini(name: str, *calls: dict, content: object = "") -> bytes:
    return line(id=name, type="gemini", content=content, toolCalls=list(calls))


def call_of(name: str, result: object = None) -> dict:
    return {"id": name, "name": "t", "args": {}, "result": result, "status": "success"}


def test_a_session_without_doubled_responses_is_left_alone():
    asked = line(id="1", type="user", content=[{"text": "Hi"}])
    lines = [TOP, asked, gemini("2", call_of("c", [response("c")])), b"torn {\n"]
    assert repaired(lines) is None


def test_a_call_that_was_cut_short_gets_a_response_that_says_so():
    lines = [TOP, gemini("2", call_of("c")), line(id="3", type="user", content=[{"text": "Hi"}])]
    mended = repaired(lines)
    [call] = json.loads(mended[1])["toolCalls"]
    [part] = call["result"]
    assert part["functionResponse"]["id"] == "c"
    assert "no result" in part["functionResponse"]["response"]["error"]
    assert mended[2:] == lines[2:]


def test_a_picture_that_a_tool_returned_stands_once():
    picture = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    parts = [response("c"), picture]
    words = {"text": "And this is new."}
    asked = line(id="3", type="user", content=[*parts, words])
    mended = repaired([TOP, gemini("2", call_of("c", parts)), asked])
    assert json.loads(mended[2])["content"] == [words]
    assert json.loads(mended[1])["toolCalls"][0]["result"] == parts


def test_calls_that_stand_in_the_content_are_answered_once():
    """So the CLI writes a conversation that it has rebuilt."""
    content = [{"functionCall": {"id": "c", "name": "t", "args": {}}}]
    other = call_of("d", [response("d")])
    rebuilt = [
        {"id": "2", "type": "gemini", "content": content, "toolCalls": [call_of("c"), other]},
        {"id": "2_response", "type": "user", "content": [response("c")]},
        {"id": "3", "type": "gemini", "content": ""},
        {"id": "4", "type": "user", "content": [response("d")]},
    ]
    [_, mended] = repaired([TOP, line(**{"$set": {"messages": rebuilt}})])
    first, second = json.loads(mended)["$set"]["messages"]
    assert first == {**rebuilt[0], "toolCalls": [call_of("c", [response("c")])]}
    assert second == {**rebuilt[2], "toolCalls": [other]}


def test_calls_of_one_turn_do_not_share_their_responses():
    """The CLI does so where it rebuilds a turn: each call gets the responses of all."""
    picture = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    every = [response("c"), picture, response("d")]
    [_, mended] = repaired([TOP, gemini("2", call_of("c", every), call_of("d", every))])
    first, second = json.loads(mended)["toolCalls"]
    assert (first["result"], second["result"]) == ([response("c"), picture], [response("d")])


def test_messages_that_were_taken_back_are_left_alone():
    taken_back = [gemini("2", call_of("c")), line(**{"$rewindTo": "2"})]
    assert repaired([TOP, *taken_back]) is None
