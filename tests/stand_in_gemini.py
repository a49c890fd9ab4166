"""A stand-in for the Gemini CLI: a real program that does what its plan says.

Started as `stand_in_gemini.py PLAN [the CLI's own arguments]`; see `StandIn` in conftest.py for
what a plan may ask. It writes down how it was called beside the plan.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# Ends, whatever happens to the test that started it.
LONGEST_LIFE = 300


def main() -> None:
    plan_path = Path(sys.argv[1])
    plan = json.loads(plan_path.read_text())
    if plan["ignore_term"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    children = [start_grandchild(kind) for kind in plan["grandchildren"]]
    stdin = sys.stdin.buffer.read() if plan["read_stdin"] else b""
    call = {
        "argv": sys.argv[2:],
        "stdin": stdin.decode(errors="replace"),
        "cwd": str(Path.cwd()),
        "env": dict(os.environ),
        "pid": os.getpid(),
        "children": children,
    }
    # Several of one plan may run at once.
    unfinished = plan_path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(call))
    unfinished.rename(plan_path.with_suffix(".call"))
    complain(plan)
    time.sleep(plan["sleep"])
    speak(Path(plan["stdout"]).read_bytes(), plan)
    plan_path.with_suffix(".said").touch()
    if plan["hang"]:
        time.sleep(LONGEST_LIFE)
    if plan["signal"]:
        os.kill(os.getpid(), plan["signal"])
    os._exit(plan["exit"])


def start_grandchild(kind: str) -> int:
    """`tool` moves to a session of its own, as shell tools do; `stubborn` ignores TERM as well,
    and `bare` has an empty environment."""
    command = ["sleep", str(LONGEST_LIFE)]
    if kind == "stubborn":
        command = ["sh", "-c", f"trap '' TERM; sleep {LONGEST_LIFE} & wait; wait"]
    env = {} if kind == "bare" else None
    out = subprocess.DEVNULL
    return subprocess.Popen(command, start_new_session=True, stdout=out, env=env).pid


def complain(plan: dict) -> None:
    os.write(2, plan["stderr"].encode())
    line = b"noise on the error channel\n"
    for _ in range(plan["stderr_bytes"] // len(line)):
        os.write(2, line)


def speak(data: bytes, plan: dict) -> None:
    size = plan["chunk"] or len(data) or 1
    for start in range(0, len(data), size):
        piece = data[start : start + size]
        while piece:
            piece = piece[os.write(1, piece) :]
        if plan["delay"]:
            time.sleep(plan["delay"])


if __name__ == "__main__":
    main()
