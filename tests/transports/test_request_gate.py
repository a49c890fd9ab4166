"""The script before the requests of a CLI: it asks, reads along and reports."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress

import pytest

from geminorum.credentials import fingerprint_of
from geminorum.detect import find_node
from geminorum.errors import LimitReached
from geminorum.transports.callbacks.gate_server import GateServer
from geminorum.transports.callbacks.process_gate import ProcessGate
from geminorum.transports.gates import Consumed
from geminorum.transports.launch.preloads.request_gate import RequestGateScript
from geminorum.transports.turns.request_gate import TurnGate

KEY = "a-key-of-nobody"
PRELUDE = """
const url = (model, method) => `${process.env.BASE}/v1beta/models/${model}:${method}`;
const body = JSON.stringify({ contents: [{ role: "user", parts: [{ text: "hi" }] }] });
const headers = { "x-goog-api-key": process.env.KEY, "Content-Type": "application/json" };
const ask = (more, method = "streamGenerateContent?alt=sse") =>
  fetch(url("gemini-2.5-flash", method), { method: "POST", headers, body, ...more });
"""


class Counter:
    """A gate that keeps what it is asked and told, and lets through what its `admitting` does."""

    scope, is_strict = "x", True

    def __init__(self):
        self.calls, self.settled = [], []
        self.has_left = asyncio.Event()

    async def admitting(self, call):
        """Lets everything through."""

    async def admit(self, call, on_wait):
        self.calls.append(call)
        try:
            await self.admitting(call)
        except asyncio.CancelledError:
            self.has_left.set()
            raise
        return self.settled.append


@pytest.fixture
def gate():
    return Counter()


@asynccontextmanager
async def gated(gate, folder):
    """A server for the script, with its files in a folder; the flag for Node."""
    async with ProcessGate(TurnGate(gate, None, lambda notice: None)) as process:
        script = RequestGateScript(folder, process.address)
        for name, text in script.files.items():
            (folder / name).write_text(text)
        process.home = folder
        yield script.node_flag


async def node(flag, fake, program, until=None):
    """What a program in Node prints, as JSON; its stdin ends when the event is set."""
    env = {"BASE": fake.url, "KEY": KEY}
    pipe = asyncio.subprocess.PIPE
    command = [str(find_node().path), flag, "-e", PRELUDE + program]
    pipes = {"stdin": pipe, "stdout": pipe, "stderr": pipe}
    process = await asyncio.create_subprocess_exec(*command, **pipes, env=env)
    try:
        async with asyncio.timeout(60):
            if until is not None:
                await until.wait()
            out, errors = await process.communicate(b"")
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    assert out, errors.decode()
    return json.loads(out)


async def test_each_request_is_asked_for_and_its_tokens_are_reported(gate, fake_gemini, tmp_path):
    fake_gemini.say("One ", "two.").say("Three.").fail(503, "busy")
    program = """
    (async () => {
      const streamed = await (await ask()).text();
      const whole = (await (await ask({}, "generateContent")).json()).candidates[0];
      const failed = await ask();
      const other = await fetch(`${process.env.BASE}/v1beta/models`);
      const word = whole.content.parts[0].text;
      console.log(JSON.stringify([streamed.length > 100, word, failed.status, other.status]));
    })();
    """
    async with gated(gate, tmp_path) as flag:
        printed = await node(flag, fake_gemini, program)
    assert printed == [True, "Three.", 503, 200]
    assert len(fake_gemini.log) == 3
    assert [call.model for call in gate.calls] == ["gemini-2.5-flash"] * 3
    assert {call.key for call in gate.calls} == {fingerprint_of(KEY)}
    assert [one.tokens > 0 for one in gate.settled] == [True, True, False]
    assert gate.settled[2] == Consumed()
    assert not (tmp_path / "request_gate.json").exists()


async def test_a_request_that_waits_is_withdrawn_when_the_agent_is_stopped(
    gate, fake_gemini, tmp_path
):
    """It takes no place from others, and nothing is sent."""

    is_asked = asyncio.Event()

    async def wait_forever(call):
        is_asked.set()
        await asyncio.Event().wait()

    gate.admitting = wait_forever
    program = """
    const stopping = new AbortController();
    process.stdin.on("end", () => stopping.abort()).resume();
    ask({ signal: stopping.signal }).catch((error) => console.log(JSON.stringify(error.name)));
    """
    async with gated(gate, tmp_path) as flag:
        assert await node(flag, fake_gemini, program, is_asked) == "AbortError"
        await asyncio.wait_for(gate.has_left.wait(), 60)
    assert fake_gemini.log == []


async def test_an_answer_that_is_left_in_the_middle_is_reported_and_ended(
    gate, fake_gemini, tmp_path
):
    fake_gemini.say("One ", "two ", "three.", drip=30)
    program = """
    (async () => {
      const reader = (await ask()).body.getReader();
      await reader.read();
      await reader.cancel();
      console.log("true");
    })();
    """
    async with gated(gate, tmp_path) as flag:
        assert await node(flag, fake_gemini, program)
    assert len(gate.settled) == 1


async def test_a_refusal_is_an_answer_that_no_cli_repeats(gate, fake_gemini, tmp_path):
    async def refuse(call):
        raise LimitReached("the limit of 3 is reached")

    gate.admitting = refuse
    program = """
    (async () => {
      const response = await ask();
      console.log(JSON.stringify([response.status, await response.json()]));
    })();
    """
    async with gated(gate, tmp_path) as flag:
        status, answer = await node(flag, fake_gemini, program)
    assert (status, answer["error"]["message"]) == (
        400,
        "[limit reached] the limit of 3 is reached [refused]",
    )
    assert fake_gemini.log == []


async def test_nothing_is_sent_if_nobody_can_be_asked(gate, fake_gemini, tmp_path):
    async with gated(gate, tmp_path) as flag:
        pass
    program = "ask().catch((error) => console.log(JSON.stringify(error.code)));"
    assert await node(flag, fake_gemini, program) == "ECONNREFUSED"
    assert fake_gemini.log == []


@pytest.mark.parametrize("size", [-(10**9), 10**12])
async def test_a_request_of_an_impossible_size_takes_nothing_of_a_limit(gate, size):
    """Whoever has got hold of the token could use it up for years, or give others' back."""
    server = GateServer(lambda: None, TurnGate(gate, None, lambda notice: None))
    ask = {"what": "ask", "id": "1", "model": "gemini-2.5-flash", "size": size}
    assert b"did not understand" in await server.answer(json.dumps(ask).encode())
    assert gate.calls == []


async def test_a_report_of_impossible_tokens_leaves_what_was_taken(gate):
    server = GateServer(lambda: None, TurnGate(gate, None, lambda notice: None))
    ask = {"what": "ask", "id": "1", "model": "gemini-2.5-flash", "size": 400}
    report = {"what": "report", "id": "1", "usage": {"totalTokenCount": 10**15}}
    for message in (ask, report):
        await server.answer(json.dumps(message).encode())
    assert gate.settled == [None]
