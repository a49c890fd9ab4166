"""The stand-in for the Gemini CLI: tells its story word by word, headless or over ACP.

Started as `storyteller.py FOLDER [the CLI's own arguments]`. `FOLDER/story.json` is the story; it
is read anew for each prompt. After each word that was written, its number is in `FOLDER/told-N`,
where N stands in the prompt ("Story N"); a line in `FOLDER/finished-N` says that it came to its
end.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
LONGEST_LIFE = 120
MODEL = "gemini-2.5-flash"
JOBS = {
    "session": ["sleep", str(LONGEST_LIFE)],
    "bare": ["sleep", str(LONGEST_LIFE)],
    "stubborn": ["sh", "-c", f"trap '' TERM; sleep {LONGEST_LIFE} & wait; wait"],
}
Say = Callable[[str], None]


class Cancelled(Exception):
    """The client has cancelled."""


def write(data: bytes, fd: int = 1) -> None:
    while data:
        data = data[os.write(fd, data) :]


def tell(prompt: str, say: Say, is_cancelled: Callable[[], bool] = lambda: False) -> None:
    """The story of `story.json`, with its bad habit."""
    story = json.loads((FOLDER / "story.json").read_text())
    number = found[1] if (found := re.search(r"Story (\d+)", prompt)) else "0"
    if story["ignores_term"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for kind in story["tools"]:
        start_job(kind)
    journal = os.open(FOLDER / f"told-{number}", os.O_WRONLY | os.O_CREAT)
    for index in range(story["words"] + 1):
        if story["habit"] and index == story["habit_at"]:
            HABITS[story["habit"]]()
        if index == story["words"]:
            break
        if story["heeds_cancel"] and is_cancelled():
            raise Cancelled
        say(f"w{index} ")
        os.pwrite(journal, b"%8d" % (index + 1), 0)
        time.sleep(story["pace"])
    os.close(journal)
    with Path(FOLDER, f"finished-{number}").open("a") as finished:
        finished.write(f"{time.time()}\n")


def start_job(kind: str) -> None:
    env = {"PATH": os.defpath} if kind == "bare" else None
    null = subprocess.DEVNULL
    subprocess.Popen(
        JOBS[kind], start_new_session=True, env=env, stdin=null, stdout=null, stderr=null
    )


def sleep_on() -> None:
    time.sleep(LONGEST_LIFE)
    os._exit(3)


def cut_stdout() -> None:
    os.close(1)
    sleep_on()


def break_off() -> None:
    write(b'{"type":"message","role":"assistant","content":"never')
    os._exit(1)


def babble() -> None:
    write(b"\x00\xff\xfe not a message\n[1, 2]\n{}\nnull\n" + b"x" * 70_000 + b"\n")


def flood() -> None:
    write(b"noise on the error channel\n" * 150_000, 2)


HABITS: dict[str, Callable[[], None]] = {
    "cut stdout": cut_stdout,
    "half a line": break_off,
    "garbage": babble,
    "flood stderr": flood,
    "early exit": lambda: os._exit(1),
    "hang": sleep_on,
}


def print_frame(**frame: object) -> None:
    write(json.dumps(frame).encode() + b"\n")


def tell_headless() -> None:
    prompt = " ".join(sys.argv[2:]) + sys.stdin.read()
    session = f"{os.getpid():08d}-1111-4222-8333-444444444444"
    if "--session-id" in sys.argv:
        session = sys.argv[sys.argv.index("--session-id") + 1]
    print_frame(type="init", session_id=session, model=MODEL)
    tell(
        prompt,
        lambda text: print_frame(type="message", role="assistant", content=text, delta=True),
    )
    print_frame(type="result", status="success", stats={})


class Incoming:
    """Messages from the client, read without a buffer of anybody else's: `select` must see them."""

    def __init__(self) -> None:
        self._rest = b""
        self._postponed: deque[dict[str, Any]] = deque()

    def next(self) -> dict[str, Any]:
        return self._postponed.popleft() if self._postponed else self._read()

    def is_cancelled(self) -> bool:
        """Does the client cancel? Whatever else it says has to wait."""
        while b"\n" in self._rest or select.select([0], [], [], 0)[0]:
            message = self._read()
            if message.get("method") == "session/cancel":
                return True
            self._postponed.append(message)
        return False

    def _read(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            if not (data := os.read(0, 65_536)):
                os._exit(0)
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return dict(json.loads(line))


def serve_acp() -> None:
    incoming, numbers = Incoming(), itertools.count()
    while True:
        request = incoming.next()
        match request.get("method"):
            case "initialize":
                reply(request, protocolVersion=1, agentInfo={"name": "s", "version": "0.61.0"})
            case "session/new":
                session = f"{os.getpid():08d}-1111-4222-8333-{next(numbers):012d}"
                reply(request, sessionId=session, models={"currentModelId": MODEL})
            case "session/prompt":
                answer_prompt(request, incoming)
            case _ if "id" in request and "method" in request:
                reply(request)


def reply(request: dict[str, Any], **result: object) -> None:
    print_frame(jsonrpc="2.0", id=request["id"], result=result)


def answer_prompt(request: dict[str, Any], incoming: Incoming) -> None:
    session = request["params"]["sessionId"]

    def say(text: str) -> None:
        content = {"type": "text", "text": text}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        params = {"sessionId": session, "update": update}
        print_frame(jsonrpc="2.0", method="session/update", params=params)

    try:
        tell(json.dumps(request["params"]["prompt"]), say, incoming.is_cancelled)
        reply(request, stopReason="end_turn")
    except Cancelled:
        reply(request, stopReason="cancelled")


if __name__ == "__main__":
    if "--acp" in sys.argv or "--experimental-acp" in sys.argv:
        serve_acp()
    else:
        tell_headless()
