"""Half an emoji: JSON can hold half of a surrogate pair, and a chunk of an answer may end there."""

import asyncio
import json
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminorum import Acp, Api, Cli, Done, Options, Pool, Text, TextDelta, ask, events, run
from geminorum.testing import FakeGemini
from geminorum.wire.acp import protocol as acp
from geminorum.wire.acp.decoder import AcpDecoder
from geminorum.wire.callbacks import hook, mcp
from geminorum.wire.genai.answer import ModelAnswer
from geminorum.wire.stream_json.decoder import StreamDecoder
from geminorum.wire.surrogates import PairJoiner, whole

SMILE = "\U0001f600"
FIRST, SECOND = "\ud83d", "\ude00"
CHUNKS = {
    (f"smile {FIRST}", f"{SECOND}!"): f"smile {SMILE}!",
    (FIRST, SECOND): SMILE,
    (f"a{FIRST}", "b"): "a\ufffdb",
    (f"a{FIRST}", f"{FIRST}{SECOND}"): f"a\ufffd{SMILE}",
    (f"{SECOND}a", "b"): "\ufffdab",
    (f"to the end {FIRST}",): "to the end \ufffd",
    (f"one{SECOND}{FIRST}two", "three"): "one\ufffd\ufffdtwothree",
    ("whole", f" {SMILE}"): f"whole {SMILE}",
}


def read_stream(*chunks: str) -> list[Any]:
    decoder = StreamDecoder()
    frames = [{"type": "message", "role": "assistant", "content": c, "delta": True} for c in chunks]
    told = [decoder.feed(json.dumps(frame).encode() + b"\n") for frame in frames]
    return [*chain(*told), *decoder.close()]


def read_stream_at_once(*chunks: str) -> list[Any]:
    decoder = StreamDecoder()
    frames = [{"type": "message", "role": "assistant", "content": c, "delta": True} for c in chunks]
    data = b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)
    return [*decoder.feed(data), *decoder.close()]


def read_updates(*chunks: str) -> list[Any]:
    decoder, told = AcpDecoder("s"), []
    for chunk in chunks:
        content = {"type": "text", "text": chunk}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        line = {"method": "session/update", "params": {"sessionId": "s", "update": update}}
        message = acp.message_of(json.dumps(line).encode())
        assert message is not None
        raw = msgspec.json.decode(message.params, type=acp.Told).update
        told += decoder.update(raw, 0, message.halved)
    return [*told, *decoder.close(0)]


def read_answer(*chunks: str) -> list[Any]:
    answer = ModelAnswer()
    told = [answer.add(json.dumps(chunk_of_api(chunk)).encode()) for chunk in chunks]
    told.append(answer.close())
    # It is sent back with the next request.
    assert json.dumps(answer.parts, ensure_ascii=False).encode()
    assert answer.text == "".join(e.text for e in chain(*told) if isinstance(e, Text))
    return [*chain(*told)]


def chunk_of_api(text: str, **more: Any) -> dict[str, Any]:
    content = {"role": "model", "parts": [{"text": text}]}
    counts = {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}
    candidate = {"content": content, **more}
    return {"candidates": [candidate], "usageMetadata": counts, "modelVersion": "gemini-2.5-flash"}


def say_in_chunks(fake: FakeGemini, *chunks: str) -> None:
    bodies = [chunk_of_api(chunk) for chunk in chunks[:-1]]
    bodies.append(chunk_of_api(chunks[-1], finishReason="STOP"))
    stream = b"".join(b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies)
    fake.raw(stream, headers={"Content-Type": "text/event-stream"}).always()


@pytest.mark.parametrize("read", [read_stream, read_stream_at_once, read_updates, read_answer])
@pytest.mark.parametrize(("chunks", "text"), CHUNKS.items(), ids=[ascii(c) for c in CHUNKS])
def test_halves_are_joined_and_a_lone_one_costs_one_character(read, chunks, text):
    """The same text whichever way it came; every event can be written down."""
    told = read(*chunks)
    assert "".join(event.text for event in told if isinstance(event, Text)) == text
    assert "".join(event.text for event in told if isinstance(event, TextDelta)) == text
    for event in told:
        assert events.decode(events.encode(event)) == event


@given(st.text(), st.lists(st.integers(0, 200), max_size=8))
def test_a_text_is_whole_wherever_it_is_cut(text, cuts):
    units = whole(text).encode("utf-16-le")
    edges = [0, *sorted(2 * cut for cut in cuts if 2 * cut < len(units)), len(units)]
    pieces = [units[a:b].decode("utf-16-le", "surrogatepass") for a, b in pairwise(edges)]
    joiner = PairJoiner()
    assert "".join([*map(joiner.add, pieces), joiner.take_rest()]) == whole(text)


def test_a_half_before_a_tool_is_not_joined_across_it():
    answer = ModelAnswer()
    told = answer.add(json.dumps(chunk_of_api(f"a{FIRST}")).encode())
    call = {"functionCall": {"name": "look", "args": {"at": f"b{SECOND}"}}}
    told += answer.add(json.dumps({"candidates": [{"content": {"parts": [call]}}]}).encode())
    assert [event.text for event in told if isinstance(event, Text)] == ["a\ufffd"]
    assert answer.calls[0].arguments == {"at": "b\ufffd"}


def test_what_the_cli_asks_us_may_hold_a_half():
    """Its hook and its calls of our functions: the question is asked, the function is called."""
    call = {"tool_name": "write_file", "tool_input": {"content": f"a{FIRST}"}}
    asked = hook.hook_call(json.dumps(call).encode())
    assert asked is not None
    assert asked.tool_input == {"content": "a\ufffd"}
    request = {"id": 1, "method": "tools/call", "params": {"arguments": {"x": f"a{FIRST}"}}}
    assert mcp.message_of(json.dumps(request).encode()).params == {"arguments": {"x": "a\ufffd"}}


# ---- the transports


async def test_every_transport_tells_the_same_text(
    fake_gemini: FakeGemini, real_transport: Cli, tmp_path: Path
):
    """The real CLI passes on what the API sends it."""
    say_in_chunks(fake_gemini, f"smile {FIRST}", f"{SECOND} and half {FIRST}", " of one")
    options = Options(cwd=tmp_path, model="gemini-2.5-flash", env=fake_gemini.env)
    at_home = options.changed(home=fake_gemini.home)
    program = real_transport.executable
    texts = {
        "cli": (await ask("Hi", at_home, via=Cli(executable=program))).text,
        "acp": (await ask("Hi", at_home, via=Acp(executable=program))).text,
        "api": (await ask("Hi", options, via=Api())).text,
    }
    assert set(texts.values()) == {f"smile {SMILE} and half \ufffd of one"}, texts


@pytest.mark.parametrize("habit", ["halved", "refusing in halves"])
@pytest.mark.parametrize("pooled", [False, True], ids=["acp", "pool"])
async def test_half_a_character_in_any_message_of_a_warm_process_has_one_done(
    stand_in_acp: Callable[..., Acp], tmp_path: Path, habit: str, pooled: bool
):
    """In an update, in a question, in the answer to the prompt."""
    options = Options(cwd=tmp_path, home=tmp_path)
    transport = stand_in_acp(
        habit, decide=lambda request: request.input == {"file_path": "a\ufffd"}
    )
    told: list[Any] = []
    async with asyncio.timeout(30), Pool(transport) as pool:
        live = run("Hi", options, via=pool if pooled else transport)
        told = [event async for event in live]
    assert [type(event) for event in told].count(Done) == 1
    if habit == "halved":
        assert live.result.text == f"smile {SMILE} proceed_once"
        assert live.result.status == "success"
    else:
        assert "no \ufffd" in str(live.result.exception())


async def test_half_a_character_in_a_frame_of_a_headless_run(stand_in, tmp_path):
    frames = [
        json.dumps({"type": "init", "session_id": "s", "model": "m"}),
        *(
            json.dumps({"type": "message", "role": "assistant", "content": text, "delta": True})
            for text in (f"smile {FIRST}", f"{SECOND}")
        ),
        json.dumps({"type": "result", "status": "success", "stats": {}}),
    ]
    result = await ask("Hi", Options(cwd=tmp_path, home=tmp_path), via=stand_in(*frames))
    assert result.text == f"smile {SMILE}"
