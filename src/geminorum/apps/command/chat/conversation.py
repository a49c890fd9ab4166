"""A chat with the user at the keyboard, turn by turn."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import geminorum
from geminorum import Chat, Options
from geminorum.apps.command.chat.lines import Lines, lines_of
from geminorum.apps.command.chat.picking import events_in, home_of, pick_session
from geminorum.apps.command.chat.questions import Questions
from geminorum.apps.command.chat.slash_commands import WORDS, Talk
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.table import Program, Via
from geminorum.apps.command.flags.transport import transport_for
from geminorum.apps.command.render.live import view_for
from geminorum.apps.command.render.output import Showing, console
from geminorum.apps.command.run.turn import concluded, follow
from geminorum.apps.command.run.undo import Copies
from geminorum.errors import GeminorumError, SessionLost
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum.apps.command.run import offline as simulation
    from geminorum.sessions import SessionInfo
else:
    simulation = lazy_module("geminorum.apps.command.run.offline")


def hold(options: Options, via: Via, program: Program, *, pick: bool, offline: bool) -> Exit:
    """Talks until the user quits; `pick` lets the user choose a session first."""
    how = Showing(offline=offline)
    with ExitStack() as stack:
        if offline:
            simulation.tell_so(how)
            options = stack.enter_context(simulation.simulate_model(options, via))
        # A store is asked when the chat begins.
        if via is not Via.API and not pick and options.store is None:
            _require_session(options)
        copies = stack.enter_context(Copies())
        table = ChatContext(via, program, how, lines_of(list(WORDS)), copies)
        return asyncio.run(_chat(table, options, pick))


def _require_session(options: Options) -> None:
    """Refuses to resume a session that is not there, before anybody has typed a prompt."""
    cwd, home = Path(options.cwd or ".").resolve(), home_of(options)
    if options.resume == "latest" and geminorum.sessions.find(cwd, home=home) is None:
        raise SessionLost(f"{str(cwd)!r} has no session to resume")
    if options.resume in (None, "latest"):
        return
    info = geminorum.sessions.find(session_id=options.resume, home=home)
    if info is None or info.id != options.resume:
        raise SessionLost(f"there is no session {options.resume!r} in {str(cwd)!r}")


@dataclass
class ChatContext:
    """Where the two sit: the transport, the lines, the terminal, the copies for /undo."""

    via: Via
    program: Program
    how: Showing
    lines: Lines
    copies: Copies

    def __post_init__(self) -> None:
        self.console = console()
        self.talk = Talk(self.copies, self.console)

    def welcome(self, options: Options) -> None:
        """Shows model, folder and transport on a terminal; a pipe does not need them."""
        if self.lines.interactive:
            model = "a simulated model" if self.how.offline else options.model or "Gemini"
            cwd = Path(options.cwd or ".").resolve()
            self.talk.say(f"{model} · {self.via} · {cwd}", "● ")
            self.talk.say("/help lists what you can type", "  ")

    def transport(self, questions: Questions, options: Options) -> Any:
        """A transport that asks us."""
        if self.via is not Via.CLI:
            return transport_for(self.via, program=self.program, decide=questions.decide)
        # Here a hook of the CLI takes the copies, before writes that nobody is asked about too.
        # To ask takes another, which Windows has not got; in a pipe there is nobody to answer.
        asks = self.lines.interactive and options.approval in (None, "default", "auto_edit")
        decide = questions.decide if asks and sys.platform != "win32" else None
        settings = self.copies.settings()
        return transport_for(self.via, program=self.program, decide=decide, settings=settings)


async def _chat(table: ChatContext, options: Options, pick: bool) -> Exit:
    """Holds one conversation after the other, until the user quits."""
    code = Exit.OK
    table.welcome(options)
    wanted: Options | None = await _pick_at_start(table, options) if pick else options
    while wanted is not None:
        options = wanted
        code, wanted = await _hold_conversation(table, options)
    return Exit.OK if table.lines.interactive else code


async def _hold_conversation(table: ChatContext, options: Options) -> tuple[Exit, Options | None]:
    """Runs turns in one session. Returns the last exit code, and the options to go on with."""
    cwd = Path(options.cwd or ".").resolve()
    questions = Questions(table.lines, table.copies, cwd, options.approval)
    questions.agent_is_told = table.via is not Via.ACP
    # On a transport that asks, we answer for "auto_edit" and "yolo" ourselves: a write that nobody
    # is asked about could not be undone.
    ours = table.via is Via.ACP and options.approval in ("auto_edit", "yolo")
    async with geminorum.connect(
        options.changed(approval=None) if ours else options, via=table.transport(questions, options)
    ) as talk:
        with table.lines.calm_between_turns():
            return await _run_turns(table, talk, questions, options)


async def _run_turns(
    table: ChatContext, talk: Chat, questions: Questions, options: Options
) -> tuple[Exit, Options | None]:
    code, turns = Exit.OK, 0
    while True:
        line = _take_typed(table, questions) or await _read_line(table)
        if line is None:
            return code, None
        if line == "/resume":
            if another := await _pick_in_chat(table, options):
                return code, another
            continue
        if is_command(line):
            table.talk.command(line)
            continue
        fresh = turns == 0 and options.resume is None
        code = await _turn(table, talk, questions, options, line, fresh=fresh)
        turns += 1


def _take_typed(table: ChatContext, questions: Questions) -> str | None:
    """What was typed in place of a yes: shown once more, for it begins a turn of its own."""
    line = questions.take_typed()
    if line is not None:
        table.talk.say(line, "> ")
    return line


def is_command(line: str) -> bool:
    """A word with a slash before it, and not a path."""
    word = line.split(" ", 1)[0]
    return word.startswith("/") and word[1:].isalpha()


async def _read_line(table: ChatContext) -> str | None:
    """Reads a line from the user; None when the chat is over."""
    pressed = False
    while True:
        try:
            line = (await table.lines.prompt()).strip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            if not table.lines.interactive:
                raise
            if pressed:
                return None
            table.talk.say("(Ctrl-C again, Ctrl-D or /quit to leave)")
            pressed = True
            continue
        pressed = False
        if line in ("/quit", "/exit"):
            return None
        if line:
            return line


async def _turn(
    table: ChatContext,
    talk: Chat,
    questions: Questions,
    options: Options,
    line: str,
    *,
    fresh: bool,
) -> Exit:
    text = line[1:] if line.startswith("//") else line
    view = view_for(table.via, table.how, table.copies, brief=True)
    live = talk.turn(table.talk.prompt(text))
    questions.pause, questions.cancel = getattr(view, "pause", None), live.cancel
    try:
        await follow(live, lambda: view, options, fresh=fresh, also=table.talk.events)
    finally:
        questions.pause = questions.cancel = None
        # Before the summary: whatever changes a file from then on is not the agent.
        table.talk.end_turn(live.result)
    code = concluded(live, view)
    if table.lines.interactive:
        table.talk.say("")
    return code


async def _pick_at_start(table: ChatContext, options: Options) -> Options:
    """Returns the options for the session that the user picks, or for a new one."""
    try:
        info = await _pick(table, options, enter="a new session")
    except (EOFError, KeyboardInterrupt):
        return options
    return await _going_on(table, options, info) if info else options.changed(resume=None)


async def _pick_in_chat(table: ChatContext, options: Options) -> Options | None:
    """Returns the options for the session that the user picks; None: stay in this one."""
    try:
        info = await _pick(table, options, enter="stay in this one", here=_here(table, options))
        return await _going_on(table, options, info) if info else None
    except (EOFError, KeyboardInterrupt):
        return None
    except GeminorumError as error:  # A store that cannot be reached: this session still can.
        table.talk.say(error.message)
        return None


async def _pick(
    table: ChatContext, options: Options, *, enter: str, here: str | None = None
) -> SessionInfo | None:
    return await pick_session(table.lines, table.console, options, enter=enter, here=here)


def _here(table: ChatContext, options: Options) -> str | None:
    """The session that the chat is in; a turn tells it, and before the first one, the options."""
    if table.talk.session or options.resume != "latest":
        return table.talk.session or options.resume
    newest = geminorum.sessions.find(Path(options.cwd or ".").resolve(), home=home_of(options))
    return newest.id if newest else None


async def _going_on(table: ChatContext, options: Options, info: SessionInfo) -> Options:
    table.talk.move_to(info.id, await asyncio.to_thread(events_in, options, info))
    table.talk.say(f"continuing {info.id}: {info.title}")
    return options.changed(resume=info.id, session_id=None)
