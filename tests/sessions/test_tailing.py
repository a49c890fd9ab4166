"""The session file as a second channel: followed live, and joined into the stream of a run."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import pytest

from geminorum import Event, Options, Result, Thinking, ToolResult, ToolUse, sessions
from geminorum import run as start
from geminorum.errors import SessionBusy
from geminorum.sessions import tail
from geminorum.testing import FakeGemini
from shared_run import private_place


def works(fake_gemini) -> None:
    """A model that thinks, runs two commands at once, writes a file, reads it and says so."""
    shell = [("run_shell_command", {"command": f"echo {word}"}) for word in ("hi", "ho")]
    fake_gemini.calls(*shell, thoughts=["**Plan** Two echoes."])
    fake_gemini.call("write_file", file_path="a.txt", content="alpha\n")
    fake_gemini.call("read_file", file_path="a.txt")
    fake_gemini.say("All done.", thoughts=["**Check** It is fine."])


async def followed(path: Path, last: str) -> list:
    events = []
    async with aclosing(tail(path)) as told:
        async for event in told:
            events.append(event)
            if getattr(event, "text", None) == last:
                return events
    return events


async def appeared(folder: Path) -> Path:
    while not (found := [*folder.glob("*/chats/session-*.jsonl")]):
        await asyncio.sleep(0.01)
    return found[0]


class Followed(NamedTuple):
    """A run that was read in tiny waits, and followed from outside meanwhile."""

    events: list[Event]
    result: Result
    outside: list[Event]
    deleted: list[str]
    """What came of deleting the session while the agent was at work, and afterwards."""
    named: list[str | None]
    """What a tail says first that is given the session's id, or the session as it was found."""


def what_comes_of_deleting(session: str | None, home: Path) -> str:
    try:
        return "deleted" if sessions.delete(str(session), home=home) else "nothing"
    except SessionBusy:
        return "busy"


@pytest.fixture(scope="module")
def work(real_transport, tmp_path_factory) -> Followed:
    async def follow(fake: FakeGemini, options: Options) -> Followed:
        events: list[Event] = []
        deleted: list[str] = []

        async def watch() -> list[Event]:
            return await followed(await appeared(fake.home / ".gemini" / "tmp"), "All done.")

        watching = asyncio.create_task(watch())
        async with asyncio.timeout(120), start("Go", options, via=real_transport) as live:
            while not events or events[-1].type != "done":
                try:
                    events += await asyncio.wait_for(live.read(), 0.003)
                except TimeoutError:
                    continue
                if not deleted and "tool_use" in [event.type for event in events]:
                    deleted.append(what_comes_of_deleting(live.session_id, fake.home))
            outside = await watching
        first = []
        for named in (live.session_id, sessions.find(options.cwd, home=fake.home)):
            async with aclosing(tail(named, home=fake.home)) as told:
                first.append((await anext(told)).session_id)
        deleted.append(what_comes_of_deleting(live.session_id, fake.home))
        return Followed(events, live.result, outside, deleted, first)

    with private_place(tmp_path_factory) as cwd, FakeGemini() as fake:
        works(fake)
        options = Options(cwd=cwd, model="gemini-2.5-flash", env=fake.env, approval="yolo")
        return asyncio.run(follow(fake, options))


def test_thoughts_and_what_the_model_was_told_join_the_stream(work):
    """The CLI prints neither; both stand in its session file."""
    events = work.events
    thoughts = [event.text for event in events if isinstance(event, Thinking)]
    assert thoughts == ["Plan: Two echoes.", "Check: It is fine."]
    results = {event.name: event for event in events if isinstance(event, ToolResult)}
    assert results["read_file"].content == "alpha\n"
    assert results["read_file"].output == ""
    assert "Successfully created" in results["write_file"].content
    assert "Output: ho" in results["run_shell_command"].content
    assert results["run_shell_command"].output == "ho"
    kinds = [event.type for event in events]
    # Each thought stands in the message that it led to.
    assert kinds.index("thinking") < kinds.index("tool_result")
    assert kinds[-2:] == ["thinking", "done"]


def test_a_reader_that_is_cancelled_while_it_waits_loses_nothing(work):
    assert [event.type for event in work.events].count("tool_result") == 4
    assert [event.type for event in work.events].count("thinking") == 2
    assert work.result.text == "All done."


def test_a_real_run_at_work_keeps_its_session(work):
    assert work.deleted == ["busy", "deleted"]


def test_a_live_run_can_be_followed_from_outside(work):
    """Every tool call appears with its arguments and what came of it, once."""
    events, result = work.outside, work.result
    calls = [event for event in events if isinstance(event, ToolUse)]
    assert [call.name for call in calls] == ["run_shell_command"] * 2 + ["write_file", "read_file"]
    assert calls[2].input["content"] == "alpha\n"
    results = {event.id: event for event in events if isinstance(event, ToolResult)}
    assert list(results) == [call.id for call in calls]
    assert results[calls[3].id].content == "alpha\n"
    assert events[-1].session_id == result.session_id
    assert [event.type for event in events].count("thinking") == 2
    assert work.named == [result.session_id] * 2


async def test_a_program_without_a_session_file_is_not_waited_for(stand_in):
    via = stand_in(
        {"type": "init", "session_id": "s", "model": "m"},
        {"type": "tool_use", "tool_name": "read_file", "tool_id": "1", "parameters": {}},
        {"type": "tool_result", "tool_id": "1", "status": "success", "output": "x"},
        {"type": "message", "role": "assistant", "content": "Hi"},
        {"type": "result", "status": "success"},
    )
    async with start("Hi", via=via) as live:
        (result,) = [event async for event in live if isinstance(event, ToolResult)]
    assert (result.output, result.content) == ("x", None)


def line(number: int, text: str) -> str:
    said = {"id": f"m{number}", "type": "gemini", "content": text}
    return json.dumps({**said, "timestamp": "2026-01-01T00:00:00.000Z"}) + "\n"


async def test_a_tail_survives_torn_lines_truncation_and_replacement(tmp_path):
    file = tmp_path / "session-x.jsonl"
    file.write_text(line(1, "one") + line(2, "two")[:20])
    seen: list[str] = []

    async def watch() -> None:
        async with aclosing(tail(file)) as told:
            async for event in told:
                seen.append(event.text)

    async def until(count: int) -> None:
        while len(seen) < count:
            await asyncio.sleep(0.002)

    watcher = asyncio.create_task(watch())
    async with asyncio.timeout(20):
        await until(1)
        with file.open("a") as log:
            log.write(line(2, "two")[20:])
        await until(2)
        file.write_text(line(3, "three"))  # Shorter than before.
        await until(3)
        fresh = tmp_path / "other"
        fresh.write_text(line(1, "one") + line(3, "three") + line(4, "four"))
        fresh.replace(file)
        await until(4)
        file.unlink()
        await asyncio.sleep(0.05)
        file.write_text(line(5, "five"))
        await until(5)
    watcher.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watcher
    assert seen == ["one", "two", "three", "four", "five"]


async def test_an_old_document_is_followed_too(tmp_path):
    """B-5: `tail` follows session files that older CLIs rewrite as a whole."""
    file = tmp_path / "session-x.json"
    messages = [json.loads(line(1, "one"))]
    file.write_text(json.dumps({"sessionId": "s", "messages": messages}, indent=2))
    async with asyncio.timeout(20), aclosing(tail(file)) as told:
        assert (await anext(told)).text == "one"
        messages.append(json.loads(line(2, "two")))
        file.write_text(json.dumps({"sessionId": "s", "messages": messages}, indent=2))
        event = await anext(told)
    assert (event.text, event.session_id) == ("two", "s")


async def test_messages_without_an_id_and_texts_that_grow_are_told(tmp_path):
    file = tmp_path / "session-x.jsonl"
    anonymous = json.dumps({"messages": [{"type": "gemini", "content": text} for text in "abc"]})
    file.write_text(anonymous + "\n" + line(1, "half") + line(1, "half and half"))
    async with asyncio.timeout(20), aclosing(tail(file)) as told:
        texts = [(await anext(told)).text for _ in range(5)]
    assert texts == ["a", "b", "c", "half", "half and half"]


async def test_a_log_rewritten_in_place_is_read_anew(tmp_path):
    """Even where it is longer than before."""
    file = tmp_path / "session-x.jsonl"
    file.write_text(line(1, "one"))
    async with asyncio.timeout(20), aclosing(tail(file)) as told:
        assert (await anext(told)).text == "one"
        file.write_text(line(7, "seven") + line(8, "eight"))
        assert [(await anext(told)).text for _ in range(2)] == ["seven", "eight"]
