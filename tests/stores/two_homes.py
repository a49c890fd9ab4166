"""Two machines on this one: homes and folders of their own, and a store between them."""

import json
from pathlib import Path
from typing import NamedTuple

from geminorum.sessions.store.local_files import find_main_files
from geminorum.sessions.store.session_sync import Place, SessionSync

SESSION = "0f1e2d3c-4b5a-4697-8899-aabbccddeeff"
STARTED = "2026-01-02T10:00:00.000Z"


class Machine(NamedTuple):
    home: Path
    cwd: Path

    def sync(self, store, version: str = "0.61.0") -> SessionSync:
        return SessionSync(store, Place(self.home, self.cwd, version))

    def say(self, *words: str, session: str = SESSION) -> None:
        """A turn of a CLI: it begins the file, or adds to it."""
        files = find_main_files(self.home, self.cwd, session)
        path = files[0] if files else self.new_file(session)
        with path.open("ab") as file:
            for word in words:
                file.write(line({"id": word, "type": "user", "content": [{"text": word}]}))

    def new_file(self, session: str = SESSION, suffix: str = ".jsonl") -> Path:
        project = self.home / ".gemini/tmp" / self.cwd.name
        (project / "chats").mkdir(parents=True, exist_ok=True)
        (project / ".project_root").write_text(str(self.cwd))
        path = project / "chats" / f"session-2026-01-02T10-00-{session[:8]}{suffix}"
        path.write_bytes(line({"sessionId": session, "projectHash": "0", "startTime": STARTED}))
        return path

    @property
    def path(self) -> Path:
        return find_main_files(self.home, self.cwd, SESSION)[0]

    @property
    def heard(self) -> list[str]:
        lines = map(json.loads, self.path.read_text().splitlines())
        return [one["id"] for one in lines if "id" in one]


def line(data: dict) -> bytes:
    return json.dumps(data).encode() + b"\n"


def machine(folder: Path, name: str) -> Machine:
    home, cwd = folder / f"home-{name}", folder / f"work-{name}" / name
    home.mkdir()
    cwd.mkdir(parents=True)
    return Machine(home, cwd)


def turn(at: Machine, store, *words: str, session: str = SESSION) -> list[str]:
    """A whole run: restores, begins, speaks, saves, lets go. Returns what it was told."""
    sync = at.sync(store)
    _, notices = sync.restore(session)
    notices += sync.begin_turn()
    at.say(*words, session=session)
    notices += sync.save(session)
    sync.close()
    return [one.message for one in notices]
