"""A disk without room: the folder that is full is named, and what is lost is said.

A really full disk takes an administrator; here the same error comes from the calls that would
meet it, in this process and in the CLI.
"""

import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from geminorum import Error, Options, ask, run
from geminorum.errors import MissingResult, SetupError

INIT = {"type": "init", "session_id": "s-1", "model": "flash"}
NO_ROOM_FOR_SESSIONS = """
"use strict";
const fs = require("node:fs");
const { syncBuiltinESMExports } = require("node:module");

function refuse(owner, name) {
  const write = owner[name];
  owner[name] = function (file, ...rest) {
    if (String(file).includes(`${require("node:path").sep}chats`)) {
      const text = "ENOSPC: no space left on device, write";
      throw Object.assign(new Error(text), { code: "ENOSPC", errno: -28, syscall: "write" });
    }
    return write.call(this, file, ...rest);
  };
}

for (const name of ["writeFileSync", "appendFileSync"]) refuse(fs, name);
for (const name of ["writeFile", "appendFile"]) refuse(fs.promises, name);
syncBuiltinESMExports();
"""


@pytest.fixture
def full_disk(monkeypatch):
    """Every disk is full, for those who ask."""
    usage = shutil.disk_usage(Path.cwd())._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)


@pytest.fixture(params=["settings.json", "policy.toml", "network.jsonl"])
def no_room_for(request, monkeypatch):
    """Writing one of the files that steer a run finds no room."""

    def refuse(call):
        def write(path, *given, **named):
            if path.name == request.param and "geminorum-kept-home" in str(path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(path, *given, **named)

        return write

    for name in ("write_text", "touch"):
        monkeypatch.setattr(Path, name, refuse(getattr(Path, name)))


@pytest.mark.parametrize("kind", ["cli", "acp"])
async def test_a_full_temporary_folder_is_not_blamed_on_the_home(
    kind, no_room_for, stand_in, stand_in_acp, tmp_path
):
    transport = stand_in(INIT) if kind == "cli" else stand_in_acp("well_behaved")
    with pytest.raises(SetupError, match="no room for the files of a run") as caught:
        await ask("Hi", Options(cwd=tmp_path), via=transport)
    assert tempfile.gettempdir() in caught.value.message
    assert "TMPDIR" in caught.value.hint
    assert "home" not in str(caught.value).lower()
    assert not list(Path(tempfile.gettempdir()).glob(f"geminorum-kept-home-{os.getpid()}-*"))


async def test_output_that_found_no_room_is_said_to_be_lost(stand_in, full_disk):
    with pytest.raises(MissingResult, match=r"no room is left in .*, where its output goes"):
        await ask("Hi", via=stand_in(INIT, exit=1))


async def test_a_success_that_is_not_saved_says_so(any_transport, fake_gemini, full_disk, tmp_path):
    script = tmp_path / "no_room.cjs"
    script.write_text(NO_ROOM_FOR_SESSIONS)
    fake_gemini.say("Hello")
    env = {**fake_gemini.env, "NODE_OPTIONS": f"--require={script}"}
    async with run("Hi", Options(cwd=tmp_path, env=env), via=any_transport) as live:
        events = [event async for event in live]
    assert (live.result.status, live.result.text) == ("success", "Hello")
    warnings = [one for one in events if isinstance(one, Error) and one.code == "NOT_SAVED"]
    assert [one.recoverable for one in warnings] == [True]
    assert str(fake_gemini.home) in warnings[0].message


async def test_what_is_saved_is_not_warned_of(any_transport, fake_gemini, full_disk, tmp_path):
    fake_gemini.say("Hello")
    async with run("Hi", Options(cwd=tmp_path, env=fake_gemini.env), via=any_transport) as live:
        events = [event async for event in live]
    assert not [event for event in events if isinstance(event, Error)]


async def test_a_shared_process_without_room_for_another_guest_says_so(
    stand_in_acp, tmp_path, monkeypatch
):
    """The rules for what it may read are written anew for each folder."""

    def no_room(path: Path, _: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    async with stand_in_acp("well_behaved").warm(Options(cwd=tmp_path)) as via:
        (tmp_path / "other").mkdir()
        monkeypatch.setattr(Path, "write_bytes", no_room)
        with pytest.raises(SetupError, match="no room is left on the disk for") as caught:
            await ask("Hi", Options(cwd=tmp_path / "other"), via=via)
    assert "TMPDIR" in caught.value.hint
