"""Runs the other examples with a simulated model: no account, no network, no bill.

    python examples/offline.py chat_bot.py

The examples need no changes. Environment variables point the Gemini CLI and the Api transport at
FakeGemini, a local Gemini API that answers from a script: below, one script per example.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

from geminorum.testing import Call, FakeGemini, Request, Say


def main() -> None:
    if not sys.argv[1:] or Path(sys.argv[1]).name not in SCRIPTS:
        sys.exit(f"usage: offline.py EXAMPLE …\nexamples: {', '.join(SCRIPTS)}")
    example = Path(__file__).with_name(Path(sys.argv[1]).name)
    print("offline: the model is simulated", file=sys.stderr)
    with FakeGemini() as fake:
        SCRIPTS[example.name](fake)
        os.environ.update(fake.env, GEMINI_MODEL="gemini-2.5-flash")
        sys.argv = [str(example), *sys.argv[2:]]
        runpy.run_path(str(example), run_name="__main__")


def ci_review(fake: FakeGemini) -> None:
    def finds_and_mends(request: Request) -> Say:
        file = re.findall(r"^\+\+\+ b/(.*)", request.prompt, re.MULTILINE)[0]
        finding = {"file": file, "line": 1, "level": "error", "message": "nobody tests this"}
        calls = calling(request, "final_answer", answer=[finding]).calls
        return Say(calls=(Call("write_file", {"file_path": file, "content": ""}), *calls))

    # The model tries to fix what it found; the policy denies the write.
    fake.whenever().reply(finds_and_mends).say("That is all.")


def label_batch(fake: FakeGemini) -> None:
    def labels(request: Request) -> str:
        config = request.body["generationConfig"]
        known = re.findall(r'"enum": \[([^]]+)', json.dumps(config))[0]
        words = re.findall(r'"([^"]+)"', known)
        named = [word for word in words if word in request.prompt]
        return json.dumps({"label": [*named, words[-1]][0], "confidence": 0.9 if named else 0.3})

    fake.whenever().reply(labels)


def chat_bot(fake: FakeGemini) -> None:
    poem = {"file_path": "poem.txt", "content": "O pipe!\n"}
    fake.whenever("poem").call("write_file", **poem).say("So be it.")
    fake.whenever().say("Ask me for a poem.")


def python_tools(fake: FakeGemini) -> None:
    def looks_up(request: Request) -> Say:
        return calling(request, "find_orders", customer=request.prompt.split()[0])

    def pays_back(request: Request) -> Say:
        return calling(request, "refund", order=1)

    fake.whenever().reply(looks_up).reply(pays_back).say("Done, with apologies.")


def many_agents(fake: FakeGemini) -> None:
    note = {"file_path": "note.md", "content": "Once upon a time\n"}
    look = {"dir_path": "."}
    fake.whenever("story").call("write_file", **note).call("list_directory", **look).hang("Then")
    fake.whenever().call("write_file", **note).say("I may not write.")


def resume_and_fork(fake: FakeGemini) -> None:
    def recalls(request: Request) -> str:
        said = [content for content in request.contents if content["role"] == "user"]
        return "I have heard: " + " / ".join(one["parts"][-1]["text"] for one in said)

    fake.whenever().reply(recalls)


def says_hello(fake: FakeGemini) -> None:
    fake.whenever().say("Hello from ", "a simulated model.")


def calling(request: Request, function: str, **values: object) -> Say:
    # The CLI gives our functions longer names: mcp_geminorum_refund.
    name = next(name for name in request.tools if name.endswith(function))
    return Say(calls=(Call(name, values),))


SCRIPTS: dict[str, Callable[[FakeGemini], None]] = {
    "agent_portal.py": says_hello,
    "chat_bot.py": chat_bot,
    "ci_review.py": ci_review,
    "fastapi_events.py": says_hello,
    "label_batch.py": label_batch,
    "many_agents.py": many_agents,
    "python_tools.py": python_tools,
    "resume_and_fork.py": resume_and_fork,
    "two_transports.py": says_hello,
    "web_embedded.py": says_hello,
}

if __name__ == "__main__":
    main()
