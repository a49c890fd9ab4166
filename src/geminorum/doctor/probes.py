"""Short tests of a Gemini CLI: each checks rows of docs/versions.md against a simulated model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from geminorum import sessions
from geminorum.client import connect, run
from geminorum.events import Event, Init, Text, Thinking
from geminorum.options import Options
from geminorum.permissions import Policy
from geminorum.testing import FakeGemini, Tokens
from geminorum.transports.acp.transport import Acp
from geminorum.transports.cli.transport import Cli
from geminorum.views.result import Result

EVENTS = "a run streams its events"
TOOLS = "tool calls have their arguments, output and status"
THOUGHTS = "thoughts"
USAGE = "exact token usage"
ONLY_READS = '`approval="default"` only reads'
RESUME = "`resume` by id"
FORK = "`sessions.fork()`: the copy can be resumed"
DENY = '`Policy(file_write="deny")`'
ASK = '"ask" without `decide`: not even `uniq` and `git show` run'
ALLOWED = "`allowed_tools`: no other tool runs"
SESSION_ID = "`session_id`"
FUNCTIONS = "`tools`: the agent calls functions of your program"
SCHEMA = "`output_schema`"
WARM = "`Acp`: the second turn remembers the first"
WARM_ASK = "`Acp` without `decide`: nothing runs that needs approval"

_MODEL = "gemini-2.5-flash"
_GRACE_SECONDS = 0.5
_ID = "3e0923c9-7033-438d-a978-a361d8031f47"
_WRITE = ("write_file", {"file_path": "a.txt", "content": "hi"})
_TOUCH = ("run_shell_command", {"command": "touch made"})
_READ = ("read_file", {"file_path": "notes.txt"})
_SAFE_LOOKING = [("run_shell_command", {"command": name}) for name in ("uniq", "git show")]
_TOKENS = Tokens(prompt=1000, output=20, thoughts=7)
_ASKING = Policy(file_write="deny", shell_execute="ask", network_access="deny")


Note: TypeAlias = Callable[[str, BaseException | None], None]
"""Takes the title of a row, and why it does not hold; None if it does."""


class Differs(Exception):
    """The CLI ran, but not as geminorum expects."""


class Bench:
    """What a probe works with: the CLI, a simulated model, an empty home and a folder."""

    def __init__(
        self,
        executable: Path,
        env: dict[str, str],
        fake: FakeGemini,
        slots: asyncio.Semaphore,
        note: Note,
    ) -> None:
        self.fake, self.home = fake, fake.home
        self.folder = self.home / "project"
        self.folder.mkdir()
        (self.folder / "notes.txt").write_text("seven\n")
        self._executable, self._slots, self._note = executable, slots, note
        # Neither the machine's settings nor a sandbox without the loopback: the CLI is tested.
        none = str(self.home / "none")
        alone = {"GEMINI_CLI_SYSTEM_SETTINGS_PATH": none, "GEMINI_CLI_SYSTEM_DEFAULTS_PATH": none}
        self._env = {**env, **fake.env, **alone, "GEMINI_SANDBOX": "false"}

    @contextmanager
    def row(self, title: str) -> Iterator[None]:
        """Notes whether the row holds: it does unless the block raises."""
        try:
            yield
        except Exception as error:
            self._note(title, error)
        else:
            self._note(title, None)

    def script(self, *calls: tuple[str, dict[str, Any]]) -> None:
        """The model calls tools one after the other, then ends its turn."""
        for call in calls:
            self.fake.calls(call, thoughts=["**Plan** Do it"], tokens=_TOKENS)
        self.fake.say("Do", "ne.", tokens=_TOKENS)

    async def run(
        self, prompt: str, tools: Sequence[Callable[..., Any]] = (), **chosen: Any
    ) -> tuple[list[Event], Result[Any]]:
        via = Cli(executable=self._executable, grace=_GRACE_SECONDS, tools=tools)
        async with self._slots, run(prompt, self._options(**chosen), via=via) as live:
            events = [event async for event in live]
        if error := live.result.exception():
            raise error
        return events, live.result

    async def converse(self, *prompts: str, **chosen: Any) -> list[Result[Any]]:
        """A warm conversation."""
        via = Acp(executable=self._executable, grace=_GRACE_SECONDS)
        async with self._slots, connect(self._options(**chosen), via=via) as chat:
            return [await chat.ask(prompt) for prompt in prompts]

    def made(self) -> list[str]:
        """The files that the agent made."""
        return sorted(one.name for one in self.folder.iterdir() if one.name in ("a.txt", "made"))

    def _options(self, **chosen: Any) -> Options[Any]:
        return Options(cwd=self.folder, home=self.home, env=self._env, model=_MODEL, **chosen)


class Probe(NamedTuple):
    rows: tuple[str, ...]
    work: Callable[[Bench], Awaitable[None]]


async def _try_a_run(bench: Bench) -> None:
    bench.script(_READ, _WRITE, _TOUCH)
    events, result = await bench.run("Remember seven", approval="default")
    with bench.row(EVENTS):
        kinds = {type(event) for event in events}
        _require({Init, Text} <= kinds and bool(result.session_id), "no session or no text came")
        _require_equal("the text", result.text, "Done.")
    with bench.row(TOOLS):
        _require_equal("the calls", [(one.name, one.input) for one in result.tools][:1], [_READ])
        seen = json.dumps(bench.fake.requests[1].contents)
        _require("seven" in seen, "the model did not see the file that it read")
    with bench.row(THOUGHTS):
        _require(any(isinstance(one, Thinking) and "Do it" in one.text for one in events), "none")
    with bench.row(USAGE):
        _require_usage(result, requests=4)
    with bench.row(ONLY_READS):
        _require_statuses(bench, result, ["success", "denied", "denied"])
    # The fork first: it copies the session before the other run continues it.
    await asyncio.gather(_try_fork(bench, result), _try_resume(bench, result))


async def _try_fork(bench: Bench, first: Result[Any]) -> None:
    with bench.row(FORK):
        copy = sessions.fork(first.session_id or "", home=bench.home)
        await _continue(bench, "Go on in the copy", copy.id)


async def _try_resume(bench: Bench, first: Result[Any]) -> None:
    with bench.row(RESUME):
        await _continue(bench, "Go on", first.session_id or "")


async def _continue(bench: Bench, prompt: str, session: str) -> None:
    bench.fake.whenever(lambda request: request.prompt == prompt).say("Seven.")
    _, result = await bench.run(prompt, resume=session)
    _require_equal("the session", result.session_id, session)
    _require(_remembers(bench, prompt), "the model was not told what came before")


def _remembers(bench: Bench, prompt: str) -> bool:
    told = (json.dumps(one.contents) for one in bench.fake.requests if one.prompt == prompt)
    return any("Remember seven" in contents for contents in told)


async def _try_a_policy(bench: Bench) -> None:
    bench.script(_WRITE, *_SAFE_LOOKING)
    _, result = await bench.run("Go", policy=_ASKING, approval="auto_edit")
    with bench.row(DENY):
        _require_equal("the call", [one.status for one in result.tools][:1], ["denied"])
        _require_equal("files", bench.made(), [])
    with bench.row(ASK):
        _require_equal("the calls", [one.status for one in result.tools][1:], ["denied"] * 2)


async def _try_allowed_tools(bench: Bench) -> None:
    bench.script(_WRITE, _TOUCH, _READ)
    with bench.row(ALLOWED):
        _, result = await bench.run("Go", allowed_tools=["read_file"], approval="yolo")
        _require_statuses(bench, result, ["denied", "denied", "success"])


async def _try_session_id(bench: Bench) -> None:
    bench.script()
    with bench.row(SESSION_ID):
        _, result = await bench.run("Go", session_id=_ID)
        _require_equal("the session", result.session_id, _ID)


async def _try_functions(bench: Bench) -> None:
    basket: list[str] = []

    def put(fruit: str) -> str:
        """Puts fruit into the basket."""
        basket.append(fruit)
        return "done"

    answer = ("mcp_geminorum_final_answer", {"answer": [1, 2]})
    bench.script(("mcp_geminorum_put", {"fruit": "fig"}), answer)
    _, result = await bench.run("Go", [put], output_schema=list[int])
    with bench.row(FUNCTIONS):
        _require_equal("the function's arguments", basket, ["fig"])
    with bench.row(SCHEMA):
        _require_equal("the answer", result.data, [1, 2])


async def _try_warm(bench: Bench) -> None:
    bench.script()
    bench.script(*_SAFE_LOOKING, _WRITE)
    first, second = await bench.converse("Remember seven", "Go on", approval="default")
    with bench.row(WARM):
        _require_equal("the texts", [first.text, second.text], ["Done.", "Done."])
        _require(_remembers(bench, "Go on"), "the model was not told what came before")
    with bench.row(WARM_ASK):
        _require_statuses(bench, second, ["denied"] * 3)


PROBES = (
    # The longest first: it ends last.
    Probe((EVENTS, TOOLS, THOUGHTS, USAGE, ONLY_READS, RESUME, FORK), _try_a_run),
    Probe((DENY, ASK), _try_a_policy),
    Probe((ALLOWED,), _try_allowed_tools),
    Probe((SESSION_ID,), _try_session_id),
    Probe((FUNCTIONS, SCHEMA), _try_functions),
    Probe((WARM, WARM_ASK), _try_warm),
)
ROWS = tuple(row for probe in PROBES for row in probe.rows)
"""The titles of rows in docs/versions.md that the probes check."""


def _require_statuses(bench: Bench, result: Result[Any], wanted: list[str]) -> None:
    _require_equal("the calls", [one.status for one in result.tools], wanted)
    _require_equal("files", bench.made(), [])


def _require_usage(result: Result[Any], requests: int) -> None:
    usage = result.usage
    _require(usage is not None and usage.exact, "it is estimated, or missing")
    counted = (usage.input, usage.output, usage.thoughts) if usage else ()
    sent = (_TOKENS.prompt, _TOKENS.output, _TOKENS.thoughts)
    _require_equal("the tokens", counted, tuple(requests * each for each in sent))


def _require_equal(what: str, found: object, wanted: object) -> None:
    _require(found == wanted, f"{what}: {found!r} instead of {wanted!r}")


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise Differs(problem)
