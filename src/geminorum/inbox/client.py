"""The inbox: asks people elsewhere on behalf of runs, and lets them answer."""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from geminorum import client
from geminorum.decisions import (
    Allow,
    AllowAlways,
    Approvals,
    Ask,
    Decision,
    Deny,
    Place,
    run_in_thread,
)
from geminorum.errors import InboxError, InvalidOptions, Unsupported
from geminorum.events import PermissionRequest
from geminorum.hints import advice, python_only
from geminorum.inbox.address import open_database
from geminorum.inbox.asking import Asker, Limits
from geminorum.inbox.changes import Changes
from geminorum.inbox.question import Question
from geminorum.inbox.reminders import Reminders
from geminorum.inbox.resuming import options_for, prompt_for
from geminorum.inbox.sqlite import SqliteDatabase
from geminorum.inbox.table import QuestionTable
from geminorum.inbox.watching import watch
from geminorum.options import Options
from geminorum.runtime.lazy import lazy_module
from geminorum.transports import Transport
from geminorum.transports.launch.control_place import is_within
from geminorum.transports.process.marked_tree import MARKER

if TYPE_CHECKING:
    from geminorum.transports.cli import transport as cli
else:
    cli = lazy_module("geminorum.transports.cli.transport")

A_DAY_SECONDS = 86_400.0
AN_HOUR_SECONDS = 3600.0


class Inbox(Approvals):
    """A `decide` that stores each permission request until somebody answers it, anywhere:

    ```python
    result = await ask("Fix it", via=Cli(decide=Inbox()))
    ```

    Nothing is open unless somebody waits or watches. Any number of processes may use one store.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        deadline: float | None = A_DAY_SECONDS,
        patience: float | None = None,
        remind: str | Sequence[str] | None = None,
        remind_every: float | None = AN_HOUR_SECONDS,
    ) -> None:
        """`store`: a file, `sqlite:///inbox.db`, or `postgresql://user@host/database`. None:
        GEMINORUM_INBOX or GEMINORUM_DB if set, otherwise a file in the user's state folder.

        `deadline`: seconds until an unanswered question is denied; None: never. `patience`: seconds
        until the run ends with WaitingForAnswer, and its question remains to be answered; None: the
        run waits. `remind`: a web address that gets each question as JSON, or a program and its
        arguments; again every `remind_every` seconds, None: once.
        """
        for name, seconds in (
            ("deadline", deadline),
            ("patience", patience),
            ("remind_every", remind_every),
        ):
            _check_seconds(name, seconds)
        self._database = open_database(store)
        self._table, self._changes = QuestionTable(self._database), Changes(self._database)
        self._limits = Limits(deadline, patience)
        self._reminders = Reminders(remind, remind_every)
        self._leaving = 0

    def __repr__(self) -> str:
        return f"Inbox({self._database!r})"

    async def questions(
        self, *, include_closed: bool = False, session_id: str | None = None, limit: int = 200
    ) -> list[Question]:
        """Returns the questions that can be answered, the oldest first.

        `include_closed`: all of them, the latest first.
        """
        select = self._table.latest if include_closed else self._table.answerable
        return await run_in_thread(select, session_id, limit)

    async def question(self, id: str) -> Question:
        """Returns the question with this id, or the only one whose id begins so."""
        return await run_in_thread(self._table.get, id)

    async def answer(self, id: str, decision: Decision, *, by: str | None = None) -> Question:
        """Answers a question. The first answer counts; all others raise AlreadyAnswered.

        `by`: who answers, for the record. None: the user and host of this process.
        """
        if not isinstance(decision, Allow | AllowAlways | Deny):
            hint = python_only("Allow(), AllowAlways() or Deny('why')")
            raise InvalidOptions(f"{decision!r} is not an answer", hint=hint)
        if MARKER in os.environ:
            text = "an agent cannot answer the questions of agents"
            raise InboxError(text, hint="answer from a terminal that no agent has started")
        return await run_in_thread(self._table.answer, id, decision, by or _person())

    def watch(self, after: int | None = None) -> AsyncGenerator[Question, None]:
        """Yields the questions that can be answered, then each one that is new or has changed.

        `after`: the revision of a question, to begin with what has changed since.
        """
        return watch(self._table, self._changes, after)

    def resume(
        self,
        question: Question,
        prompt: str | None = None,
        options: Options | None = None,
        *,
        via: Transport | None = None,
    ) -> client.Run[None]:
        """Runs the session of an answered question again: `async with inbox.resume(…) as live`.

        The answer counts once, if the agent makes the same call again. Whatever else it asks for is
        a new question. `prompt`: None tells the agent what was answered.
        """
        chosen = options_for(question, options or Options())
        transport = cli.Cli() if via is None else via
        if (deciding := getattr(transport, "deciding", None)) is None:
            hint = python_only("resume(via=…) needs Cli, Acp or a Pool")
            raise Unsupported(f"{type(transport).__name__} has nobody to ask", hint=hint)
        return client.run(prompt or prompt_for(question), chosen, via=deciding(self))

    async def prune(self, older_than: timedelta) -> int:
        """Removes questions that are closed and were asked so long ago; returns how many."""
        return await run_in_thread(self._table.prune, older_than.total_seconds())

    @contextmanager
    def leaving_questions(self) -> Iterator[None]:
        """Within the block, runs that are stopped leave their questions in the state `waiting`,
        instead of withdrawing them. For a program that ends while its agents wait."""
        self._leaving += 1
        try:
            yield
        finally:
            self._leaving -= 1

    async def __call__(self, request: PermissionRequest) -> Decision:
        """Asks; raises WaitingForAnswer when the patience is over."""
        return await self.open(Place())(request, _raise)

    def open(self, place: Place) -> Ask:
        limits, reminders = self._limits, self._reminders
        return Asker(
            self._table, self._changes, place, limits, reminders, lambda: self._leaving > 0
        ).ask

    def refuse_within(self, folders: Sequence[Path]) -> None:
        database = self._database
        if isinstance(database, SqliteDatabase) and is_within(database.path, folders):
            text = f"the agent may write to {str(database.path)!r}, and could answer itself"
            hint = advice("set GEMINORUM_INBOX to a file outside of its folders[, {Inbox(path)}]")
            raise InvalidOptions(text, hint=hint)


def _raise(error: BaseException) -> None:
    raise error


def _person() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # A user without a name.
        user = str(getattr(os, "getuid", lambda: "somebody")())
    return f"{user}@{platform.node()}"


def _check_seconds(name: str, value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 < float(str(value)) < float("inf")):
        hint = python_only("a number of seconds greater than 0, or None")
        raise InvalidOptions(f"{name}={value!r}", hint=hint)
