"""A home with saved sessions, filled as the CLI fills it."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from geminorum import sessions
from geminorum.wire.sessions.records import CONTEXT


class Store:
    """A store in a home of its own."""

    def __init__(self, home: Path, cwd: Path) -> None:
        self.home, self.cwd = home, cwd
        self.tmp = home / ".gemini" / "tmp"
        self.project = self.tmp / "work"
        self.chats = self.project / "chats"
        self.chats.mkdir(parents=True)
        (self.project / ".project_root").write_text(str(cwd))

    def save(
        self,
        session_id: str,
        *said: str,
        day: int = 1,
        folder: Path | None = None,
        parent: str | None = None,
        **top: object,
    ) -> Path:
        """One session: what was said, by turns, by a user and by the model."""
        stamp = f"2026-01-{day:02}T10:00:00.000Z"
        first = {"sessionId": session_id, "projectHash": "p", "startTime": stamp}
        first |= {"lastUpdated": stamp, "kind": "subagent" if parent else "main"} | top
        context = {"id": "ctx", "timestamp": stamp, "type": "user", "content": f"{CONTEXT}\n…"}
        lines = [first, {"$set": {"messages": [context]}}, *map(self._message, range(99), said)]
        name = f"{session_id}.jsonl"
        if not parent:
            name = f"session-2026-01-{day:02}T10-00-{session_id[:8]}.jsonl"
        path = (folder or (self.chats / parent if parent else self.chats)) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def write(self, session_id: str, *lines: dict[str, Any], day: int = 1) -> Path:
        """A session with these lines below its top."""
        path = self.save(session_id, day=day)
        self.append(path, lines)
        return path

    @staticmethod
    def append(path: Path, lines: Iterable[dict[str, Any]]) -> None:
        with path.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    @staticmethod
    def _message(number: int, text: str) -> dict[str, object]:
        kind = "gemini" if number % 2 else "user"
        return {"id": f"m{number}", "type": kind, "content": [{"text": text}]}

    def list(self, *args, **more):
        return sessions.list(*args, home=self.home, **more)

    def ids(self, *args, **more):
        return [info.id for info in self.list(*args, **more)]


def prompt(text: str, at: str, id: str) -> dict[str, Any]:
    """What a person says, as a line of a session file."""
    return {"id": id, "timestamp": at, "type": "user", "content": [{"text": text}]}


def answer(text: str, at: str, id: str, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What the model says and calls."""
    said = {"id": id, "timestamp": at, "type": "gemini", "content": text, **more}
    return {**said, "toolCalls": list(calls)} if calls else said


def call(name: str, ended: str, id: str, output: str = "done", **more: Any) -> dict[str, Any]:
    """A tool call with its result."""
    response = {"functionResponse": {"id": id, "name": name, "response": {"output": output}}}
    told = {"id": id, "name": name, "args": {}, "status": "success", "timestamp": ended}
    return {**told, "result": [response], "resultDisplay": output, **more}
