"""A stand-in for the CLI that tells a story word by word: `fleet_agent.py DIARY [CLI arguments]`.

STORY in its environment is `name words pause`. It notes its start and its end in the diary, and
whether another agent of the same story lives when it starts. It keeps a session file as the CLI
does, so that its worker can save checkpoints, and the next agent can resume.
"""

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

LONGEST_LIFE = "300"
MODEL = "gemini-2.5-flash"


class Diary:
    """One file for each story; whole lines, whoever writes."""

    def __init__(self, folder: Path, story: str) -> None:
        self._path = folder / story

    def note(self, what: str, **more: object) -> None:
        line = json.dumps({"what": what, "pid": os.getpid(), "born": born(os.getpid()), **more})
        with self._path.open("ab", buffering=0) as file:
            file.write(line.encode() + b"\n")

    def living(self) -> list[int]:
        """Agents of this story, and what they started, that have not ended."""
        if not self._path.exists():
            return []
        notes = [json.loads(line) for line in self._path.read_text().splitlines()]
        pairs = {(note["pid"], note["born"]) for note in notes if note["what"] == "start"}
        pairs |= {tuple(pair) for note in notes for pair in note.get("tools", ())}
        return [pid for pid, start in pairs if pid != os.getpid() and born(pid) == start]


def born(pid: int) -> str | None:
    """When a process began; None if it has ended. Together with its number that is unique."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] in "ZX" else words[19]


class Session:
    """The session file of the CLI, as far as geminorum reads it."""

    def __init__(self, resumed: str | None) -> None:
        self.id = resumed or str(uuid.uuid4())
        name = Path.cwd().parent.name
        chats = Path(os.environ["GEMINI_CLI_HOME"], ".gemini/tmp", name, "chats")
        found = sorted(chats.glob(f"session-*-{self.id[:8]}.jsonl"))
        self._path = found[-1] if found else self._begin(chats)

    def _begin(self, chats: Path) -> Path:
        chats.mkdir(parents=True, exist_ok=True)
        (chats.parent / ".project_root").write_text(str(Path.cwd()))
        path = chats / f"session-2026-01-02T10-00-{self.id[:8]}.jsonl"
        top = {"sessionId": self.id, "projectHash": "0", "startTime": "2026-01-02T10:00:00.000Z"}
        path.write_text(json.dumps({**top, "kind": "main"}) + "\n")
        return path

    def add(self, kind: str, **record: object) -> None:
        line = {"id": str(uuid.uuid4()), "timestamp": "2026-01-02T10:00:01.000Z", "type": kind}
        with self._path.open("a") as file:
            file.write(json.dumps({**line, **record}) + "\n")


def say(**frame: object) -> None:
    line = json.dumps(frame).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


def use_tool(session: Session, number: int) -> None:
    """The file has a call before the stream has its result."""
    call = f"list_directory__{number}"
    say(type="tool_use", tool_name="list_directory", tool_id=call, parameters={})
    made = {"id": call, "name": "list_directory", "args": {}, "status": "success"}
    answer = {"functionResponse": {"id": call, "name": "list_directory", "response": {}}}
    tokens = {"input": 1000, "output": 100, "cached": 0, "thoughts": 0, "tool": 0, "total": 1100}
    calls = [{**made, "result": [answer]}]
    session.add("gemini", content="", tokens=tokens, model=MODEL, toolCalls=calls)
    say(type="tool_result", tool_id=call, status="success", output="nothing here")


def main() -> None:
    story, words, pause = os.environ["STORY"].split()
    prompt = sys.stdin.read()
    resumed = next((word[9:] for word in sys.argv if word.startswith("--resume=")), None)
    diary = Diary(Path(sys.argv[1]), story)
    if others := diary.living():
        diary.note("overlap", others=others)
    # In a session of its own, as a shell tool: the end of its parent does not end it.
    tool = subprocess.Popen(["sleep", LONGEST_LIFE], start_new_session=True, stdout=2)
    diary.note("start", resumed=resumed, prompt=prompt[:40], tools=[(tool.pid, born(tool.pid))])
    session = Session(resumed)
    session.add("user", content=[{"text": prompt}])
    say(type="init", session_id=session.id, model=MODEL)
    for number in range(int(words)):
        time.sleep(float(pause))
        say(type="message", role="assistant", content=f"w{number} ", delta=True)
        if number % 10 == 4:
            use_tool(session, number)
    diary.note("finish")
    say(type="result", status="success", stats={"total_tokens": 3})
    tool.kill()


if __name__ == "__main__":
    main()
