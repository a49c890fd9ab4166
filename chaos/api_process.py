"""A simulated Gemini API as a process of its own, which can be killed: `api_process.py STORY`.

Prints where it is as a line of JSON, and ends with its stdin.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from chaos.plan import word
from geminorum.testing import FakeGemini

JOBS = "(setsid sleep 120 & env -i setsid sleep 120 &) > /dev/null 2>&1; sleep 2"


def serve(story: dict[str, Any]) -> None:
    with FakeGemini() as fake:
        if story["tools"]:
            fake.call("run_shell_command", command=JOBS)
        fake.say(*map(word, range(story["words"])), drip=story["pace"]).always()
        where = {"pid": os.getpid(), "env": fake.env, "home": str(fake.home)}
        sys.stdout.write(json.dumps(where) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
