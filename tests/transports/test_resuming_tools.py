"""Sessions with tool calls, resumed as Google's API accepts them: one response for each call.

FakeGemini refuses any other count with HTTP 400, as Google does (gemini-cli#16984).
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from geminorum import Acp, Cli, Options, ToolResult, ToolUse, ask, connect, errors, sessions
from geminorum import run as start
from geminorum.sessions.repairing import repair_file, repaired_copy
from geminorum.testing import FakeGemini
from geminorum.transports.launch.resuming import files_of
from geminorum.wire.sessions.repair import _without_told, repaired
from shared_acp import Sessions, SharedAcp, on_shared, shared_acp

READ_A = ("read_file", {"file_path": "a.txt"})
READ_B = ("read_file", {"file_path": "b.txt"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(real_transport, tmp_path_factory) -> AsyncIterator[SharedAcp]:
    """One process for all warm sessions; headless runs find its home, so either resumes both."""
    transport = Acp(executable=real_transport.executable)
    folder = tmp_path_factory.mktemp("process")
    async with shared_acp(transport, folder, approval="yolo") as shared:
        yield shared


@pytest.fixture
def shared(process, tmp_path) -> SharedAcp:
    cwd = tmp_path / "work"
    cwd.mkdir()
    for name in ("a", "b"):
        (cwd / f"{name}.txt").write_text(f"content of {name}")
    return process.afresh(cwd)


@pytest.fixture
def fake_gemini(shared) -> FakeGemini:
    return shared.fake


@pytest.fixture
def options(shared) -> Options:
    return shared.options


@pytest.fixture
def warm(shared) -> Sessions:
    return shared.via()


@pytest.fixture(params=["cli", "acp"])
def any_transport(request, real_transport, warm) -> Cli | Sessions:
    """A headless CLI, or the warm one of all these tests."""
    return real_transport if request.param == "cli" else warm


@pytest.fixture
def other_transport(any_transport, real_transport, warm) -> Cli | Sessions:
    """The way that `any_transport` is not."""
    return warm if any_transport is real_transport else real_transport


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


@on_shared
async def test_a_session_with_tools_is_resumed(
    fake_gemini, options, any_transport, other_transport, warm
):
    """Twice, by either transport: each call stands in its own turn, with one response. So in a
    fork of it."""
    session = await with_tools(fake_gemini, options, any_transport)
    copy = sessions.fork(session, home=fake_gemini.home)
    again = options.changed(resume=session)
    fake_gemini.call(READ_B[0], **READ_B[1]).say("Once more.").say("Thrice.").say("In the copy.")
    assert (await ask("Again", again, via=any_transport)).text == "Once more."
    assert (await ask("And again", again, via=other_transport)).text == "Thrice."
    assert turns(fake_gemini) == [
        *EXPECTED,
        ["Again"],
        ["call read_file b.txt"],
        ["response content of b"],
        ["Once more."],
        ["And again"],
    ]
    # The original has gone on meanwhile.
    copied = await ask("Copy", options.changed(resume=copy.id), via=warm)
    assert copied.text == "In the copy."
    assert turns(fake_gemini) == [*EXPECTED, ["Copy"]]


@on_shared
async def test_a_chat_goes_on_after_a_tool_that_was_cancelled_and_one_before_a_failure(
    fake_gemini, options, any_transport
):
    """The CLI keeps the cancelled call without a response in memory; the next turns are accepted
    anyway, in the same chat and in a resumed session. So are those after a request that the API
    refused behind a tool.

    S1-49: `Done` carries what to resume, also after a cancel. B-37: a second run that learns the
    generated session id cannot resume it before that.
    """
    fake_gemini.call("run_shell_command", command="touch begun; sleep 250")
    fake_gemini.call(READ_A[0], **READ_A[1]).fail(400, "Too warm today.")
    fake_gemini.say("Better.").say("Resumed.")
    begun = Path(options.cwd) / "begun"
    async with connect(options, via=any_transport) as chat:
        async with chat.turn("Sleep") as live:
            async for event in live:
                if isinstance(event, ToolUse):
                    break
            while not begun.exists():
                await asyncio.sleep(0.01)
            with pytest.raises(errors.SessionBusy):
                await ask("Hi", options.changed(resume=live.session_id), via=any_transport)
            await live.cancel()
        with pytest.raises(errors.ApiError, match="Too warm"):
            await chat.ask("Read")
        assert (await chat.ask("And now?")).text == "Better."
    session = live.result.session_id
    resumed = await ask("Resume", options.changed(resume=session), via=any_transport)
    assert (resumed.text, resumed.session_id) == ("Resumed.", session)
    told = turns(fake_gemini)
    assert [text for turn in told for text in turn if text in ("Sleep", "Read")] == [
        "Sleep",
        "Read",
    ]
    called = told.index(["call read_file a.txt"])
    assert told[called + 1][0] == "response content of a"


@on_shared
async def test_an_answer_asked_for_again_after_tools_is_accepted(fake_gemini, options, warm):
    """`output_schema` asks once more in the same session when the answer did not arrive; headless:
    test_structured_output.py."""
    fake_gemini.call(READ_A[0], **READ_A[1]).say("Forgot to answer.").always()
    wanted = options.changed(output_schema={"type": "object", "properties": {}})
    async with start("Answer", wanted, via=warm) as live:
        events = [event async for event in live]
    assert sum(isinstance(event, ToolUse) for event in events) == 1
    assert live.result.errors[-1].code == errors.InvalidAnswer.code
    assert errors.ApiError.code not in {one.code for one in live.result.errors}
    assert len(fake_gemini.requests) >= 3


@on_shared
async def test_a_session_reads_the_same_after_it_was_repaired(fake_gemini, options, warm):
    """No call, result, text or token is lost from the file, and the list stays in order."""
    session = await with_tools(fake_gemini, options, warm)
    before = sessions.load(session, home=fake_gemini.home)
    told = [event for event in before.events() if isinstance(event, ToolResult)]
    [path] = files_of(fake_gemini.home, Path(options.cwd), session)
    usage, stamp, broken = before.usage, path.stat().st_mtime_ns, path.read_bytes()
    repair_file(path)
    assert path.read_bytes() != broken
    after = sessions.load(session, home=fake_gemini.home)
    results = [event for event in after.events() if isinstance(event, ToolResult)]
    assert {one.id for one in told} <= {one.id for one in results}
    assert len(results) == 4
    assert (after.usage.total, path.stat().st_mtime_ns) == (usage.total, stamp)
    unchanged = path.read_bytes()
    repair_file(path)
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


# ---- files that this version does not understand


def doubled(**changes) -> list[bytes]:
    """A session whose response stands twice: with its call, and as a message."""
    call = {**call_of("c", [response("c")]), **changes.pop("call", {})}
    reply = {"id": "3", "type": "user", "content": [response("c")], **changes.pop("reply", {})}
    spoken = {"id": "2", "type": "gemini", "content": "", "toolCalls": [call], **changes}
    return [TOP, line(**spoken), line(**reply)]


def renamed(record: dict, **names: str) -> dict:
    return {names.get(key, key): value for key, value in record.items()}


SNAKE = {"function_response": response("c")["functionResponse"]}
CALLS = [call_of("c", [response("c")])]


def test_what_is_understood_is_repaired():
    assert len(repaired(doubled())) == 2
    assert len(repaired([*doubled(), line(id="9", type="telemetry", content={"spans": [1]})])) == 3


@pytest.mark.parametrize(
    "lines",
    [
        doubled(type="model"),
        doubled(type=None),
        doubled(call={"id": None}),
        doubled(toolCalls=[renamed(CALLS[0], id="callId")]),
        doubled(toolCalls=[renamed(CALLS[0], result="response_parts")]),
        doubled(toolCalls={"c": CALLS[0]}),
        doubled(tool_calls=CALLS),
        doubled(turn={"toolCalls": CALLS}),
        doubled(reply={"type": "tool"}),
        doubled(reply={"content": response("c")}),
        doubled(reply={"content": [SNAKE]}),
        doubled(reply={"content": [{"functionResponse": {"callId": "c"}}]}),
        doubled(reply={"content": "", "parts": [response("c")]}),
        [*doubled(), line(**{"$checkpoint": {"hash": "abc"}})],
        [*doubled(), line(**{"$set": {"summary": "x"}, "$unset": {"messages": 1}})],
        [*doubled(), line(uuid="7", type="gemini", toolCalls=CALLS)],
        [*doubled(), line(**{"$set": {"conversation": {"messages": [{"toolCalls": CALLS}]}}})],
    ],
)
def test_a_file_that_is_not_understood_is_left_as_it_is(lines, tmp_path):
    """Half a repair would tell the model that a call was interrupted, or drop its output."""
    assert repaired(lines) is None
    path = tmp_path / "session-1.jsonl"
    path.write_bytes(b"".join(lines))
    repair_file(path)
    with repaired_copy(path) as copy:
        assert copy == path
    assert path.read_bytes() == b"".join(lines)
    assert names_in(tmp_path) == [path.name]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Counted(dict):
    """A part that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return super().__eq__(other)

    __hash__ = None


def test_many_results_in_one_message_are_not_compared_pairwise():
    parts = [Counted(response(f"c{number}")) for number in range(200)]
    told = {f"c{number}": [Counted(part)] for number, part in enumerate(parts)}
    assert _without_told({"id": "3", "content": parts}, told, set()) is None
    assert Counted.compared <= len(parts)


# ---- a repair that is killed

KILLED = """
import os, signal, sys
from pathlib import Path
from geminorum.sessions import repairing
with repairing.repaired_copy(Path(sys.argv[1])) as copy:
    print(copy.name, flush=True)
    os.kill(os.getpid(), signal.SIGKILL) if sys.argv[2] == "die" else sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="by its age there")
def test_what_a_killed_repair_left_is_removed_by_the_next(tmp_path):
    path = tmp_path / "session-1.jsonl"
    path.write_bytes(b"".join(doubled()))
    foreign = tmp_path / ".repaired-folder"
    foreign.mkdir()
    run = [sys.executable, "-c", KILLED, path]
    left = subprocess.run([*run, "die"], capture_output=True, text=True).stdout.strip()
    assert (tmp_path / left).exists()
    with subprocess.Popen([*run, "live"], stdin=-1, stdout=-1, text=True) as writer:
        alive = writer.stdout.readline().strip()
        assert names_in(tmp_path) == sorted([foreign.name, alive, path.name])
        repair_file(path)
        assert names_in(tmp_path) == sorted([foreign.name, alive, path.name])
        writer.communicate()
    assert names_in(tmp_path) == [foreign.name, path.name]
