"""A home with saved sessions in it, as the Gemini CLI 0.61 writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

A, B, C = (f"{letter * 8}-0000-4000-8000-000000000000" for letter in "abc")


class SavedHome:
    """`save` adds a session; `env` sends the command there."""

    def __init__(self, home: Path, cwd: Path) -> None:
        self.home, self.cwd = home, cwd
        cwd.mkdir(exist_ok=True)

    @property
    def env(self) -> dict[str, str]:
        return {"GEMINI_CLI_HOME": str(self.home)}

    def save(
        self,
        session_id: str,
        *said: str,
        day: int = 1,
        calls: tuple[tuple[str, dict[str, Any]], ...] = (),
        model: str = "gemini-2.5-flash",
        cwd: Path | None = None,
        parent: str | None = None,
        tokens: int = 1000,
    ) -> Path:
        """What was said by turns, by a person and by the model; the last answer called tools."""
        stamp = f"2026-01-{day:02}T10:00:00.000Z"
        top = {"sessionId": session_id, "projectHash": "p", "startTime": stamp}
        top |= {"lastUpdated": stamp, "kind": "subagent" if parent else "main"}
        lines: list[dict[str, Any]] = [top]
        for number, text in enumerate(said):
            lines.append(self._message(session_id, number, text, stamp, model, tokens))
        if calls:
            lines[-1]["toolCalls"] = [_call(number, *call) for number, call in enumerate(calls)]
        path = self._chats(cwd or self.cwd, parent) / (
            f"{session_id}.jsonl"
            if parent
            else f"session-2026-01-{day:02}T10-00-{session_id[:8]}.jsonl"
        )
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def _chats(self, cwd: Path, parent: str | None) -> Path:
        project = self.home / ".gemini" / "tmp" / cwd.name
        chats = project / "chats" / parent if parent else project / "chats"
        chats.mkdir(parents=True, exist_ok=True)
        (project / ".project_root").write_text(str(cwd))
        return chats

    @staticmethod
    def _message(
        session_id: str, number: int, text: str, stamp: str, model: str, tokens: int
    ) -> dict[str, Any]:
        name = f"{session_id[:8]}-{number}"
        if number % 2 == 0:
            return {"id": name, "type": "user", "timestamp": stamp, "content": [{"text": text}]}
        used = {"input": tokens, "output": 100, "cached": 0, "thoughts": 0, "tool": 0}
        told = {"id": name, "type": "gemini", "timestamp": stamp, "content": text}
        return {**told, "model": model, "tokens": {**used, "total": tokens + 100}}


def _call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"{name}-{number}",
        "name": name,
        "args": arguments,
        "status": "success",
        "resultDisplay": "It worked.",
        "result": [],
    }
