"""The warm door: one process for many turns, somebody who is asked, and whatever goes wrong."""

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from geminorum import (
    Acp,
    Allow,
    AllowAlways,
    Cli,
    Deny,
    Done,
    Error,
    Init,
    Options,
    PermissionRequest,
    Policy,
    Rule,
    Text,
    TextDelta,
    Thinking,
    ToolResult,
    ToolUse,
    Unknown,
    UserMessage,
    ask,
    connect,
    errors,
    run,
    sync,
)
from geminorum.testing import FakeGemini, Tokens
from geminorum.wire.acp_events import NOBODY_TO_ASK

MODEL = "gemini-2.5-flash"
BOGUS = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def options(fake_gemini: FakeGemini, tmp_path: Path) -> Options:
    cwd = tmp_path / "work"
    cwd.mkdir()
    return Options(cwd=cwd, model=MODEL, env=fake_gemini.env, home=fake_gemini.home)


@pytest.fixture
def door(real_cli_door: Cli) -> Acp:
    return Acp(executable=real_cli_door.executable)


@pytest.fixture
def acp(real_cli_door: Cli) -> Any:
    """Doors with something special about them."""
    return lambda **how: Acp(executable=real_cli_door.executable, **how)


@pytest.fixture
def stand_in_acp(tmp_path: Path) -> Any:
    """Doors to a program that speaks the protocol, but for one bad habit."""

    def door(habit: str, **how: Any) -> Acp:
        program = tmp_path / "gemini-stand-in"
        script = Path(__file__).with_name("stand_in_acp.py")
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -SE "{script}" "{habit}" "$@"\n')
        program.chmod(0o755)
        return Acp(executable=program, **{"grace": 0.5, **how})

    return door


async def told(live: Any) -> list[Any]:
    async with live:
        return [event async for event in live]


def of(kind: type, events: list[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def last(events: list[Any]) -> Done:
    """The Done; there is one, and it is the last."""
    assert [type(event) for event in events].count(Done) == 1
    assert isinstance(events[-1], Done)
    return events[-1]


def agents(fake: FakeGemini) -> list[psutil.Process]:
    """The CLI's processes that talk to this API."""
    mine = fake.env["GOOGLE_GEMINI_BASE_URL"]
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "--acp" in process.cmdline() and mine in process.environ().values():
                found.append(process)
        except psutil.Error:
            continue
    return found


def history(fake: FakeGemini) -> str:
    """All that the model was told in the last request."""
    return json.dumps(fake.requests[-1].body["contents"])


# ---- side by side


def scripted(fake: FakeGemini) -> None:
    """Text, a thought, a write, a shell command, a denied tool, an unknown tool."""
    # Counts of its own: the two doors send different instructions to the model.
    counts = {"tokens": Tokens(prompt=1000, cached=200, output=10, thoughts=25)}

    def step(*said: str, tool: str, thoughts: list[str] | None = None, **args: Any) -> None:
        part = {"functionCall": {"name": tool, "args": args}}
        fake.say(*said, part, thoughts=thoughts or [], **counts)

    step("I write. ", tool="write_file", file_path="a.txt", content="hi", thoughts=["**Plan** Do"])
    step(tool="run_shell_command", command="touch b.txt; echo hello", description="Greets")
    step(tool="run_shell_command", command="git push", description="Sends it away")
    step(tool="read_file", file_path="missing.txt")
    step(tool="no_such_tool", x=1)
    fake.say("All ", "done.", **counts)


def essence(events: list[Any]) -> list[Any]:
    """What the two doors agree in: everything but ids, times, frames and process numbers."""
    names: dict[str, str] = {}
    return [shape for event in events if (shape := _shape(event, names)) is not None]


def _shape(event: Any, names: dict[str, str]) -> Any:
    match event:
        case Init():
            return "init", event.model, event.cwd
        case UserMessage() | Text() | Thinking() | TextDelta():
            return event.type, event.text
        case ToolUse():
            return "tool_use", event.name, event.input
        case ToolResult():
            content = re.sub(r"PGID: \d+", "PGID: N", event.content or "")
            return "tool_result", event.name, event.status, event.output, content
        case Done():
            usage = event.usage
            counts = (usage.input, usage.output, usage.cached, usage.thoughts, usage.total)
            return "done", event.status, counts, usage.tool_calls, usage.exact, event.cost.usd
        case _:
            return event.type


def without_differences(events: list[Any]) -> list[Any]:
    """Without what docs/acp.md says is different: when a thought is told, the words of a failure,
    and what is known of a tool that does not exist."""
    kept = []
    for shape in essence(events):
        match shape:
            case ("tool_use", "no_such_tool", _):
                kept.append(shape[:2])
            case ("tool_result", _, "error" | "denied", *_):
                kept.append(shape[:3])
            case ("thinking", _):
                pass
            case _:
                kept.append(shape)
    return kept


async def test_one_conversation_through_both_doors(
    fake_gemini, options, real_cli_door, door, tmp_path
):
    """S0-34, B-15: equal but for what docs/acp.md names, usage and cost exact on both."""
    careful = options.changed(
        policy=Policy("allow", "allow", rules=(Rule("run_shell_command", "deny", "git push"),))
    )
    streams = []
    for via in (real_cli_door, door):
        (cwd := tmp_path / type(via).__name__ / "same").mkdir(parents=True)
        scripted(fake_gemini)
        events = await told(run("Do it all", careful.changed(cwd=cwd), via=via))
        plain = json.dumps(without_differences(events), default=str)
        streams.append(json.loads(plain.replace(str(cwd), "CWD")))
        assert not fake_gemini.unused
        assert (cwd / "b.txt").exists()
        assert last(events).usage.exact
        assert [event.text for event in of(Thinking, events)] == ["Plan: Do"]
    cli, warm = streams
    assert warm == cli
