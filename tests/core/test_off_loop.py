"""Blocking work in threads: what an interrupt, a fork or another thread's changes may not break."""

import _thread
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from geminorum import Cli
from geminorum.environment import environment_of
from geminorum.options import Options
from geminorum.runtime.off_loop import run_off_loop, soon
from geminorum.transports.launch import overlay
from geminorum.transports.launch.preloads import read_guard
from geminorum.transports.launch.preloads.read_guard import ReadGuard
from geminorum.transports.process.tree import OpenInput


async def test_interrupts_while_threads_start_cost_none_of_them(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_thread, "start_new_thread", interrupted)
    for _ in range(8):
        with pytest.raises(KeyboardInterrupt):
            await run_off_loop(os.getpid)
    monkeypatch.undo()
    async with asyncio.timeout(30):
        assert await run_off_loop(threading.get_ident) != threading.get_ident()


async def test_work_that_fails_unheard_costs_no_thread():
    for _ in range(8):
        soon(partial(os.close, -1))
    async with asyncio.timeout(30):
        assert await run_off_loop(os.getpid) == os.getpid()


async def test_programs_that_do_not_read_their_prompts_keep_nobody_else_waiting():
    inputs = [OpenInput(b"\n") for _ in range(8)]
    sending = [asyncio.ensure_future(one.send(b"x" * 300_000)) for one in inputs]
    try:
        await asyncio.sleep(0)
        assert await run_off_loop(lambda: [task.done() for task in sending]) == [False] * 8
    finally:
        for task in sending:
            task.cancel()
        await asyncio.wait(sending)
        for one in inputs:
            one.close()


async def test_a_long_prompt_arrives_whole_at_a_program_that_reads_later():
    prompt = os.urandom(1_000_000)
    stdin = OpenInput(b"\n")
    reader = os.dup(stdin.reader)  # As a child has it: ours is closed with the pipe.
    stdin.close_reader()
    sending = asyncio.ensure_future(stdin.send(prompt))
    received = bytearray()
    while piece := await asyncio.to_thread(os.read, reader, 70_000):
        received += piece
    await sending
    os.close(reader)
    assert bytes(received) == b"\n" + prompt


# A fork inherits the pipe. Where it kept it open, the CLI would wait for the rest of its prompt.
FORK = """
import asyncio, os, time
from geminorum.transports.process.tree import OpenInput

stdin = OpenInput(b"")
reader = os.dup(stdin.reader)
until_told, tell = os.pipe()
if os.fork() == 0:
    os.close(tell)
    os.read(until_told, 1)
    os._exit(0)
asyncio.run(stdin.send(b"prompt"))
os.set_blocking(reader, False)
received = b""
for _ in range(3000):
    try:
        piece = os.read(reader, 100)
    except BlockingIOError:
        time.sleep(0.01)
        continue
    received += piece
    if not piece:
        break
else:
    raise SystemExit("the pipe has no end")
print(received.decode())
os.close(tell)
os.wait()
"""


def test_a_fork_does_not_keep_a_prompt_from_ending():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True)
    assert done.stdout == "prompt\n", done.stderr


def test_a_variable_that_another_thread_removes_is_no_error(monkeypatch):
    class Changing(dict):
        def __iter__(self):
            return iter([*super().__iter__(), "JUST_REMOVED"])

        keys = __iter__

    monkeypatch.setattr(os, "environ", Changing(os.environ, HOME="/home/me"))
    found = environment_of(Options())
    assert found["HOME"] == "/home/me"
    assert "JUST_REMOVED" not in found


def test_what_several_threads_admit_at_once_is_all_admitted(tmp_path, monkeypatch):
    """The file that is written last has to have them all."""
    folders = [tmp_path / str(number) for number in range(8)]
    guard = ReadGuard(tmp_path, Cli(), [tmp_path])
    all_at_once = threading.Barrier(len(folders), timeout=0.5)

    def slow_replace(file, content):
        with contextlib.suppress(threading.BrokenBarrierError):
            all_at_once.wait()
            time.sleep(20 / len(content))  # Whoever knows of the fewest writes last.
        overlay.replace_file(file, content)

    monkeypatch.setattr(read_guard, "replace_file", slow_replace)
    threads = [threading.Thread(target=guard.admit, args=([folder],)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    admitted = json.loads((tmp_path / "read_guard.json").read_text())["projects"]
    assert {str(folder) for folder in folders} <= {path for paths in admitted for path in paths}
