"""What a warm CLI is told: prompts and requests of any content, to lines that it can read."""

from __future__ import annotations

import json

from fuzz.seeds import acp_recordings
from fuzz.soundness import Unsound
from fuzz.target import Target
from geminorum.errors import InvalidPrompt
from geminorum.prompt import encoded
from geminorum.wire.acp import protocol as acp


def run(data: bytes) -> None:
    for line in data.split(b"\n"):
        _require_request(line.decode("utf-8", "surrogateescape"))
        _require_request(_text_in(line))


def _require_request(text: str) -> None:
    try:
        encoded(text, literal=False)
    except InvalidPrompt:
        return
    # A lone surrogate cannot be sent; the turn puts a question mark in its place.
    sent = text.encode("utf-8", "replace").decode()
    for literal in (True, False):
        line = acp.request(1, "session/prompt", acp.prompt("s", sent, literal=literal))
        if line.count(b"\n") != 1 or _told(line) not in (sent, f"\u200b{sent}"):
            raise Unsound(f"a prompt that arrives as another: {line[:200]!r}")


def _told(line: bytes) -> str:
    told: str = json.loads(line)["params"]["prompt"][0]["text"]
    return told


def _text_in(line: bytes) -> str:
    """The prompt in a recorded request, where the line still is one."""
    try:
        return str(json.loads(line)["params"]["prompt"][0]["text"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""


TARGET = Target(
    "acp-outgoing", run, acp_recordings("out"), words=(b"/", b"$", b"@", b"\xe2\x80\x8b")
)
