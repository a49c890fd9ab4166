"""Keeps the session of one conversation the same here and in a store. Blocks: for a thread."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from geminorum.errors import (
    ConfigError,
    GeminorumError,
    InvalidOptions,
    SessionBusy,
    SessionLost,
    StoreConflict,
    StoreError,
    Unsupported,
)
from geminorum.events import Error
from geminorum.hints import advice
from geminorum.sessions import places
from geminorum.sessions.finding import find
from geminorum.sessions.keeping import fork
from geminorum.sessions.lock import SessionLock
from geminorum.sessions.store.failures import explain_failures
from geminorum.sessions.store.holder import new_holder, shown_holder, take_lease
from geminorum.sessions.store.listing import ids_beginning, listed, only_id, with_turns
from geminorum.sessions.store.local_files import (
    find_main_files,
    gather_files,
    place_files,
    read_note,
    write_note,
)
from geminorum.sessions.store.log import SessionLog
from geminorum.sessions.store.protocol import SessionStore
from geminorum.sessions.summary import info_of
from geminorum.wire.stored.entries import About, SavedFile, known_after, state_of
from geminorum.wire.stored.journal import Journal

LEASE_SECONDS = 60.0
"""How long a session stays held after its holder was killed."""
_MAX_CWD = 4096
_VERSION = re.compile(r"\d{1,9}(\.\d{1,9}){0,2}(-[0-9A-Za-z.-]{1,60})?")

Choice: TypeAlias = Literal["keep", "replace", "conflict"]


class Place(NamedTuple):
    """Where a conversation runs."""

    home: Path
    cwd: Path
    cli_version: str | None


class SessionSync:
    """Restores a session before its conversation, saves it after each turn, holds its lease."""

    def __init__(self, store: SessionStore, place: Place) -> None:
        self._store, self._place = store, place
        self._holder = new_holder()
        self._log: SessionLog | None = None
        """Of the session that this conversation is in, once there is one."""
        self._is_read = False
        """Is it known what the store has of the session?"""
        self._is_lost = False
        """Has another run gone on with the session?"""
        self._about = About()

    # ---- before the conversation

    def restore(self, wanted: str) -> tuple[str, list[Error]]:
        """Puts the session that is meant here. Returns its id, and what the caller should know.

        An id that nobody knows is returned as it is: the conversation itself refuses it.
        """
        session = wanted
        try:
            session = self._resolve(wanted)
            self._log = SessionLog(self._store, session, self._holder)
            self._hold(session)
            journal = self._read_held(self._log)
        except StoreError as error:
            return self._without_store(session, error)
        with _explain_folder(self._place.home):
            if journal.number:
                return session, self._place_here(journal)
            self._let_go_of_nothing(session)
            return session, []

    def claim(self, session: str) -> list[Error]:
        """Holds a session that begins under an id of the caller's; raises InvalidOptions if the
        store has it already.
        """
        try:
            self._hold(session)
            self._log = SessionLog(self._store, session, self._holder)
            with explain_failures():
                is_new = not self._log.read().files
        except StoreError as error:
            text = f"the store could not be asked for session {session!r}: {error.message}"
            return [_notice(text, error.hint)]
        if not is_new:
            hint = advice("pass another {Options.session_id}, or resume it")
            raise InvalidOptions(f"the store has a session {session!r} already", hint=hint)
        return []

    def _let_go_of_nothing(self, session: str) -> None:
        """A session that nobody has gets no entry: it would be the latest of the store."""
        if not find_main_files(self._place.home, self._place.cwd, session):
            self.close()
            self._log, self._is_read = None, False

    def _resolve(self, wanted: str) -> str:
        with explain_failures():
            if wanted != "latest":
                return self._by_start(wanted)
            stored = with_turns(listed(self._store))
        here = self._id_here(wanted)
        if here is None or not stored:
            return here or (stored[0].id if stored else wanted)
        is_newer_here = self._updated_here(here) > stored[0].updated
        return here if is_newer_here else stored[0].id

    def _by_start(self, wanted: str) -> str:
        """In the store, or among the sessions of this folder."""
        found = ids_beginning(self._store, wanted)
        here = self._id_here(wanted) if wanted not in found else None
        return only_id(wanted, found | ({here} if here else set()))

    def _id_here(self, wanted: str) -> str | None:
        """Of the session of this folder that is meant."""
        home, cwd, _ = self._place
        if wanted == "latest":
            return places.latest(home, cwd)
        found = find(cwd, wanted, home=home)
        return found.id if found else None

    def _updated_here(self, session: str) -> int:
        files = find_main_files(self._place.home, self._place.cwd, session)
        return max((int(path.stat().st_mtime * 1000) for path in files), default=0)

    def _without_store(self, session: str, error: StoreError) -> tuple[str, list[Error]]:
        """Goes on with what is here, if anything is."""
        session = self._id_here(session) or session
        if not find_main_files(self._place.home, self._place.cwd, session):
            raise error
        text = f"session {session!r} could not be compared with its store: {error.message}"
        return session, [_notice(text, error.hint)]

    def _hold(self, session: str) -> None:
        with explain_failures():
            holder = take_lease(self._store, session, self._holder, LEASE_SECONDS)
        if holder != self._holder:
            raise SessionBusy(f"session {session!r} is open elsewhere, by {shown_holder(holder)}")

    def _read_held(self, log: SessionLog) -> Journal:
        began = time.monotonic()
        journal = self._read(log)
        if time.monotonic() - began > LEASE_SECONDS / 3:
            self._hold(log.session)  # Otherwise the lease might end before it is renewed.
        return journal

    def _read(self, log: SessionLog) -> Journal:
        with explain_failures():
            journal = log.read()
        self._is_read = True
        self._about = journal.about or self._about
        return journal

    def _place_here(self, journal: Journal) -> list[Error]:
        """Replaces an older copy; one that has what the store lacks is kept."""
        home, cwd, version = self._place
        session = journal.session
        refuse_older(version, self._about.cli_version, session)
        with SessionLock(home, session):
            files = gather_files(home, cwd, session)
            choice = choose(files, read_note(home, session), journal)
            if not files and choice == "keep":
                raise _nothing_whole(journal)
            kept = self._keep_copy(session) if choice == "conflict" else []
            if choice != "keep":
                place_files(home, cwd, session, journal.files)
                write_note(home, session, journal.state)
        has_more_here = choice == "keep" and state_of(known_after(files)) != journal.state
        return [*kept, *missing_in(journal, _KEPT_HERE if has_more_here else _GOES_ON)]

    def _keep_copy(self, session: str) -> list[Error]:
        home, cwd, _ = self._place
        copies = [fork(path, home=home).id for path in find_main_files(home, cwd, session)]
        text = f"session {session!r} was continued elsewhere, and differently than here"
        hint = f"this run continues the store's; what was here is kept as session {copies[-1]}"
        return [_notice(text, hint)]

    # ---- its turns

    def begin_turn(self) -> list[Error]:
        """Notes in the store that a turn begins. Raises SessionBusy if the session was lost."""
        log = self._log
        if log is None or not self._is_read:
            return []
        try:
            if not self._is_lost:
                with explain_failures():
                    log.begin_turn(self._about)
                return []
        except StoreConflict:
            self._is_lost = True
        except StoreError as error:
            return [_notice(f"the store cannot be written to: {error.message}", error.hint)]
        raise SessionBusy(f"session {log.session!r} was continued elsewhere")

    def save(self, session: str) -> list[Error]:
        """Saves what the turn has left, and what earlier turns could not. Raises nothing."""
        try:
            self._save(session)
        except StoreConflict as error:
            self._is_lost = True
            return [_notice(f"the turn is not in the store: {error.message}", _KEPT)]
        except (GeminorumError, OSError) as error:
            why = getattr(error, "message", None) or str(error)
            hint = getattr(error, "hint", None) or StoreError.default_hint
            return [_notice(f"the turn is not in the store: {why}", hint)]
        return []

    def save_checkpoint(self, session: str) -> list[Error]:
        """Saves a turn that goes on. Whoever finds it learns that its end is missing."""
        problems = self.save(session)
        if not problems and self._log is not None:
            with suppress(GeminorumError):
                self.begin_turn()
        return problems

    def _save(self, session: str) -> None:
        home, cwd, _ = self._place
        files = gather_files(home, cwd, session)
        if not files:
            return  # The CLI forgets a first prompt that failed.
        log = self._log_of(session)
        if not self._is_read:
            self._hold(session)
            journal = self._read(log)
            self._is_lost |= choose(files, read_note(home, session), journal) != "keep"
        if self._is_lost:
            raise StoreConflict(f"session {session!r} was continued elsewhere")
        self._about = self._described(session, files)
        with explain_failures():
            log.save_turn(files, self._about)
        # The turn is in the store. Without the note, a file that a repair rewrites is taken for
        # one that went on by itself, and kept as a fork.
        with suppress(OSError):
            write_note(home, session, log.state)

    def _log_of(self, session: str) -> SessionLog:
        """A conversation may turn out to be in another session than the one that was restored."""
        if self._log is None or self._log.session != session:
            self.close()
            self._log = SessionLog(self._store, session, self._holder)
            self._is_read = self._is_lost = False
        return self._log

    def _described(self, session: str, files: Mapping[str, SavedFile]) -> About:
        home, cwd, version = self._place
        path = find_main_files(home, cwd, session)[-1]
        return About(
            title=info_of(path, path.parent).title,
            cwd=str(cwd).encode("utf-8", "replace").decode()[:_MAX_CWD],
            cli_version=version,
            size=sum(len(file.data) for file in files.values()),
        )

    # ---- its lease

    def renew(self) -> None:
        """Keeps the session for this conversation; notes if another has it by now."""
        if self._log is not None and not self._is_lost:
            with explain_failures():
                holder = self._store.acquire(self._log.session, self._holder, LEASE_SECONDS)
            self._is_lost = holder != self._holder

    def close(self) -> None:
        """Lets others have the session. A lease that cannot be released ends by itself."""
        if self._log is not None:
            with suppress(GeminorumError), explain_failures():
                self._store.release(self._log.session, self._holder)


_KEPT = (
    "it is saved on this machine only; the next run with this store that resumes the session here "
    "keeps it as a copy"
)


def choose(files: Mapping[str, SavedFile], note: bytes | None, journal: Journal) -> Choice:
    """Which copy to go on with; "conflict" where each has turns that the other lacks.

    `note` is the state of the store that the files here are known to continue.
    """
    if not journal.files:
        return "keep"
    if not files:
        return "replace"
    here = state_of(known_after(files))
    if here == journal.state:
        return "keep"
    if here in journal.states:
        return "replace"
    if note == journal.state or _is_longer(files, journal):
        return "keep"
    return "conflict"


def missing_in(journal: Journal, hint: str) -> list[Error]:
    """What the caller should know of turns that the store should have, and has not."""
    found = []
    if journal.problems:
        text = (
            f"the store's copy of session {journal.session!r} is damaged after its last whole turn"
        )
        found.append(_notice(f"{text}: {journal.problems[-1]}", hint))
    if journal.begun is not None:
        at = datetime.fromtimestamp(journal.begun.at / 1000, UTC)
        who = shown_holder(journal.begun.writer)
        text = f"a turn that began at {at:%Y-%m-%d %H:%M:%S} UTC on {who} was never saved"
        found.append(_notice(text, hint))
    return found


_GOES_ON = "the session continues after the last turn that was saved; look at what is missing there"
_KEPT_HERE = "what it left on this machine is kept, and saved with the next turn"


def refuse_older(version: str | None, wrote: str | None, session: str) -> None:
    """Raises Unsupported if this CLI is older than the one that wrote the session."""
    if version and wrote and numbers_in(version) < numbers_in(wrote):
        # It comes out of the store, and people paste what stands in a hint into their shell.
        newer = wrote if _VERSION.fullmatch(wrote) else "latest"
        raise Unsupported(
            f"session {session!r} was written by CLI {newer}, and this one is {version}",
            hint=f"update it with `npm install -g @google/gemini-cli@{newer}`",
        )


def numbers_in(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,9}", version.partition("-")[0])[:3]]


def _is_longer(files: Mapping[str, SavedFile], journal: Journal) -> bool:
    mains = [role for role in journal.files if role.startswith("main")]
    return all(
        role in files and files[role].data.startswith(journal.files[role].data) for role in mains
    )


def _nothing_whole(journal: Journal) -> GeminorumError:
    why = journal.problems[-1] if journal.problems else "its first turn was never saved"
    return SessionLost(f"the store has no whole turn of session {journal.session!r}: {why}")


def _notice(text: str, hint: str | None) -> Error:
    return Error(text, StoreError.code, recoverable=True, hint=hint)


@contextmanager
def _explain_folder(home: Path) -> Iterator[None]:
    """A home that cannot be written to is not the store's fault; a full disk explains itself."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE):
            raise
        hint = advice("pass {Options.home=…} with a folder that can be written to")
        raise ConfigError(
            f"cannot put the session into {str(home)!r}: {error}", hint=hint
        ) from error
