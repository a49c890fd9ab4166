"""The questions in a database: asked, answered once, used once."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from geminorum.decisions import AllowAlways, Decision, Deny
from geminorum.errors import AlreadyAnswered, QuestionClosed, UnknownQuestion
from geminorum.events import Permission
from geminorum.inbox.database import Database, Transaction
from geminorum.inbox.drafting import About, Draft, storable
from geminorum.inbox.question import Answer, Question, State
from geminorum.runtime import typed
from geminorum.sessions.store.holder import is_dead

LEASE_SECONDS = 60.0
"""How long an asker counts as alive after its last sign of life, if its process cannot be seen."""
_MAX_REASON = 10_000
_GET = "SELECT * FROM geminorum_questions WHERE id = :id"
_FIND = """
SELECT id FROM geminorum_questions WHERE id >= :first AND id < :last ORDER BY id LIMIT 2
"""
_ANSWERABLE = """
SELECT * FROM geminorum_questions
WHERE state = 'open' AND (deadline IS NULL OR deadline > :now)
    AND (CAST(:session_id AS text) IS NULL OR session_id = :session_id)
ORDER BY asked_at, id LIMIT :limit
"""
_LATEST = """
SELECT * FROM geminorum_questions
WHERE (CAST(:session_id AS text) IS NULL OR session_id = :session_id)
ORDER BY asked_at DESC, id LIMIT :limit
"""
_CHANGED = """
SELECT * FROM geminorum_questions WHERE revision > :after ORDER BY revision LIMIT :limit
"""
# Also those that have expired a moment ago: nobody may have been there to note it.
_UNANSWERED = """
SELECT * FROM geminorum_questions
WHERE state = 'open' AND (deadline IS NULL OR deadline > :now - 60000)
ORDER BY asked_at, id LIMIT :limit
"""
_SAME = """
SELECT * FROM geminorum_questions
WHERE session_id = :session_id AND tool = :tool AND digest = :digest AND agent = :agent
    AND (cwd = :cwd OR (cwd IS NULL AND CAST(:cwd AS text) IS NULL))
    AND state IN ('open', 'answered') AND used_at IS NULL
    AND (deadline IS NULL OR deadline > :now)
ORDER BY state, asked_at
"""
_LEFT_OPEN = """
SELECT * FROM geminorum_questions
WHERE session_id = :session_id AND agent = :agent AND state = 'open'
"""
_INSERT = """
INSERT INTO geminorum_questions (id, revision, state, tool, digest, session_id, cwd, agent, about,
    asker, lease_until, asked_at, deadline)
VALUES (:id, :revision, 'open', :tool, :digest, :session_id, :cwd, :agent, :about,
    :asker, :lease_until, :now, :deadline)
"""
# All that follow compare and set: of two who try, one succeeds.
_ANSWER = """
UPDATE geminorum_questions SET state = 'answered', revision = :revision, decision = :decision,
    answer_reason = :reason, answered_by = :by, answered_at = :now
WHERE id = :id AND state = 'open' AND (deadline IS NULL OR deadline > :now)
"""
_ANSWER_OTHERS = """
UPDATE geminorum_questions SET state = 'answered', revision = :revision, decision = 'allow',
    answered_by = :by, answered_at = :now
WHERE asker = :asker AND tool = :tool AND state = 'open'
    AND (deadline IS NULL OR deadline > :now)
"""
_USE = """
UPDATE geminorum_questions SET used_at = :now, revision = :revision
WHERE id = :id AND asker = :asker AND state = 'answered' AND used_at IS NULL
"""
_TAKE_OVER = """
UPDATE geminorum_questions SET asker = :asker, lease_until = :lease_until, revision = :revision,
    deadline = CASE state WHEN 'open' THEN CAST(:deadline AS bigint) ELSE deadline END,
    about = CASE state WHEN 'open' THEN :about ELSE about END
WHERE id = :id AND asker = :before AND used_at IS NULL AND state IN ('open', 'answered')
"""
_CLOSE = """
UPDATE geminorum_questions SET state = :state, revision = :revision
WHERE id = :id AND asker = :asker AND state = 'open'
"""
_LEAVE = """
UPDATE geminorum_questions SET lease_until = 0, revision = :revision
WHERE id = :id AND asker = :asker AND state = 'open' AND lease_until > 0
"""
_RENEW = """
UPDATE geminorum_questions SET lease_until = :lease_until WHERE id = :id AND asker = :asker
"""
_PRUNE = """
DELETE FROM geminorum_questions WHERE asked_at < :before AND (state <> 'open' OR deadline < :now)
"""
_TAKEN_OVER = "another run of the session has taken the question over"
_COUNT_UP = "UPDATE geminorum_inbox SET revision = revision + 1"
_about = typed.decoder(About)
_WORDS: dict[type[Decision], Permission] = {AllowAlways: "allow_always", Deny: "deny"}


class QuestionTable:
    """All statements about questions; each method is one transaction, and blocks."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ask(self, draft: Draft, asker: str, deadline: float | None) -> Question:
        """Asks, or takes over what the same session has asked before and nobody waits for.

        The answer of a question that was taken over is used by this: it counts once.
        """
        with self._database.transaction() as database:
            now = database.now()
            row = msgspec.structs.asdict(draft) | {
                "id": uuid.uuid4().hex,
                "asker": asker,
                "now": now,
                "deadline": None if deadline is None else now + round(deadline * 1000),
                "lease_until": now + round(LEASE_SECONDS * 1000),
                "revision": _next_revision(database),
            }
            taken = self._take_over(database, row)
            if taken is None:
                self._supersede(database, row)
                database.execute(_INSERT, row)
            return _require(database, taken or row["id"])

    def _take_over(self, database: Transaction, row: dict[str, Any]) -> str | None:
        for found in database.execute(_SAME, row).fetchall():
            before = _as_row(found)
            if not before.is_left(row["now"]):
                continue
            taken = row | {"id": before.id, "before": before.asker}
            if database.execute(_TAKE_OVER, taken).rowcount == 1:
                database.execute(_USE, taken)
                return before.id
        return None

    def _supersede(self, database: Transaction, row: dict[str, Any]) -> None:
        """The session goes on with something else: nobody will take up what it left unanswered."""
        for found in database.execute(_LEFT_OPEN, row).fetchall():
            left = _as_row(found)
            if left.is_left(row["now"]):
                closed = {**row, "id": left.id, "asker": left.asker, "state": "withdrawn"}
                database.execute(_CLOSE, closed)

    def answer(self, id: str, decision: Decision, by: str) -> Question:
        """Raises QuestionClosed unless this answer is the first, and in time."""
        reason = decision.reason if isinstance(decision, Deny) else ""
        with self._database.transaction() as database:
            found = _row_of(database, _whole_id(database, id))
            row = {
                "id": found.id,
                "now": database.now(),
                "revision": _next_revision(database),
                "decision": _WORDS.get(type(decision), "allow"),
                "reason": storable(reason)[:_MAX_REASON] or None,
                "by": storable(by),
                "asker": found.asker,
                "tool": found.tool,
            }
            if database.execute(_ANSWER, row).rowcount != 1:
                raise _closed(_require(database, found.id))
            if isinstance(decision, AllowAlways):
                # It covers what else this run asks about the tool, also at this moment.
                database.execute(_ANSWER_OTHERS, row)
            return _require(database, found.id)

    def use(self, id: str, asker: str) -> None:
        """Takes the answer for the asker; raises QuestionClosed if another has it."""
        with self._database.transaction() as database:
            row = {"id": id, "asker": asker, "now": database.now()}
            if database.execute(_USE, _numbered(database, row)).rowcount != 1:
                raise QuestionClosed(_TAKEN_OVER)

    def close(self, id: str, asker: str, state: State) -> bool:
        """Ends an unanswered question as "expired" or "withdrawn"; False if it is not open."""
        with self._database.transaction() as database:
            row = {"id": id, "asker": asker, "state": state}
            return database.execute(_CLOSE, _numbered(database, row)).rowcount == 1

    def leave(self, id: str, asker: str) -> bool:
        """Leaves an unanswered question to whoever resumes the session; False if it is not open."""
        with self._database.transaction() as database:
            row = _numbered(database, {"id": id, "asker": asker})
            return database.execute(_LEAVE, row).rowcount == 1

    def renew(self, id: str, asker: str) -> None:
        """A sign of life of the asker."""
        with self._database.transaction() as database:
            until = database.now() + round(LEASE_SECONDS * 1000)
            database.execute(_RENEW, {"id": id, "asker": asker, "lease_until": until})

    def get(self, id: str) -> Question:
        """By the whole id, or by its beginning."""
        if self._database.is_absent():
            raise UnknownQuestion("the inbox is empty")
        with self._database.transaction(writes=False) as database:
            return _require(database, _whole_id(database, id))

    def own(self, id: str, asker: str) -> Question:
        """The question of this asker; raises QuestionClosed if it is another's by now."""
        with self._database.transaction(writes=False) as database:
            row = _row_of(database, id)
            if row.asker != asker:
                raise QuestionClosed(_TAKEN_OVER)
            return row.question(database.now())

    def answerable(self, session_id: str | None, limit: int) -> list[Question]:
        """The oldest first."""
        return self._select(_ANSWERABLE, {"session_id": session_id, "limit": limit})

    def latest(self, session_id: str | None, limit: int) -> list[Question]:
        """Whatever became of them, the latest first."""
        return self._select(_LATEST, {"session_id": session_id, "limit": limit})

    def changed(self, after: int, limit: int) -> list[Question]:
        """Those with a higher revision, in the order of their changes."""
        return self._select(_CHANGED, {"after": after, "limit": limit})

    def unanswered(self, limit: int) -> list[Question]:
        """Those that are open, waiting, or have just expired."""
        return self._select(_UNANSWERED, {"limit": limit})

    def revision(self) -> int:
        """That of the last change."""
        if self._database.is_absent():
            return 0
        with self._database.transaction(writes=False) as database:
            return _revision(database)

    def prune(self, seconds: float) -> int:
        """Removes closed questions that were asked so long ago; returns how many."""
        if self._database.is_absent():
            return 0
        with self._database.transaction() as database:
            now = database.now()
            row = {"before": now - round(seconds * 1000), "now": now}
            return database.execute(_PRUNE, row).rowcount

    def _select(self, query: str, row: dict[str, Any]) -> list[Question]:
        if self._database.is_absent():
            return []
        with self._database.transaction(writes=False) as database:
            now = database.now()
            found: Sequence[Any] = database.execute(query, row | {"now": now}).fetchall()
        return [_as_row(each).question(now) for each in found]


class _Row(msgspec.Struct, frozen=True):
    id: str
    revision: int
    state: State
    tool: str
    session_id: str | None
    cwd: str | None
    agent: str
    about: str
    asker: str
    lease_until: int
    asked_at: int
    deadline: int | None
    decision: Permission | None
    answer_reason: str | None
    answered_by: str | None
    answered_at: int | None
    used_at: int | None

    def is_left(self, now: int) -> bool:
        """Is nobody there any more who waits for it?"""
        return self.lease_until <= now or is_dead(self.asker)

    def question(self, now: int) -> Question:
        host, pid = _process_of(self.asker)
        is_left = self.is_left(now)
        about = _about.decode(self.about)
        return Question(
            **msgspec.structs.asdict(about),
            id=self.id,
            revision=self.revision,
            state=self._state(now, is_left=is_left),
            tool=self.tool,
            agent=self.agent,
            session_id=self.session_id,
            cwd=self.cwd,
            host=host,
            pid=pid,
            asked_at=self.asked_at,
            deadline=self.deadline,
            answer=self._answer(),
            used_at=self.used_at,
            is_left=is_left,
        )

    def _state(self, now: int, *, is_left: bool) -> State:
        if self.state != "open":
            return self.state
        if self.deadline is not None and self.deadline <= now:
            return "expired"
        return "waiting" if is_left else "open"

    def _answer(self) -> Answer | None:
        if self.decision is None:
            return None
        return Answer(
            decision=self.decision,
            reason=self.answer_reason,
            by=self.answered_by or "",
            at=self.answered_at or 0,
        )


def _as_row(found: Any) -> _Row:
    """Without columns that a newer version may have added."""
    return _Row(**{name: found[name] for name in _Row.__struct_fields__})


def _process_of(asker: str) -> tuple[str, int]:
    host, _, rest = asker.partition(":")
    pid = rest.partition(":")[0]
    return host, int(pid) if pid.isdecimal() else 0


def _next_revision(database: Transaction) -> int:
    """Who has the next one holds it until its transaction ends: they appear in their order."""
    database.execute(_COUNT_UP)
    return _revision(database)


def _revision(database: Transaction) -> int:
    return int(database.execute("SELECT revision FROM geminorum_inbox").fetchone()["revision"])


def _numbered(database: Transaction, row: dict[str, Any]) -> dict[str, Any]:
    return row | {"revision": _next_revision(database)}


def _require(database: Transaction, id: str) -> Question:
    return _row_of(database, id).question(database.now())


def _row_of(database: Transaction, id: str) -> _Row:
    found = database.execute(_GET, {"id": id}).fetchone()
    if found is None:
        raise UnknownQuestion(f"there is no question {id!r}")
    return _as_row(found)


def _whole_id(database: Transaction, prefix: str) -> str:
    # By a range: what is typed is not a pattern. No digit of an id is above "f".
    first = storable(prefix).lower()
    row = {"first": first, "last": f"{first}g"}
    found = database.execute(_FIND, row).fetchall() if first else []
    if not found:
        raise UnknownQuestion(f"there is no question {prefix!r}")
    if len(found) > 1 and found[0]["id"] != first:
        hint = "type more of the id"
        raise UnknownQuestion(f"several questions begin with {prefix!r}", hint=hint)
    return str(found[0]["id"])


def _closed(question: Question) -> QuestionClosed:
    answer = question.answer
    if answer is None:
        text = f"question {question.short_id} is {question.state}: nobody waits for an answer"
        hint = "the run that asked has gone on with a no, or was stopped"
        return QuestionClosed(text, question=question, hint=hint)
    at = datetime.fromtimestamp(answer.at / 1000).astimezone()
    reason = f": {answer.reason}" if answer.reason else ""
    said = f"{answer.by} answered question {question.short_id} at {at:%Y-%m-%d %H:%M:%S}"
    return AlreadyAnswered(f"{said}: {answer.decision}{reason}", question=question)
