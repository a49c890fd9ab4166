"""The book of runs keeps the same promises in a file and in PostgreSQL."""

import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import psycopg
import pytest
from played import settings
from served import opened
from servers import empty_database

from geminorum.apps.web.runs.book import Entry, RunBook
from geminorum.apps.web.runs.database import open_database
from geminorum.apps.web.runs.info import RunInfo, new_id, now_ms
from geminorum.errors import SetupError
from geminorum.events import Done, Text, TextDelta, UserMessage, decode


@pytest.fixture(scope="module")
def database_url(server):
    return empty_database(server)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/web.db"
    url = request.getfixturevalue("database_url")
    with psycopg.connect(url, autocommit=True) as connection:
        for table in ("web_runs", "web_events", "web_owners", "web_counter"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
    return url


def opened_book(url: str, owner: str = "me") -> RunBook:
    book = RunBook(open_database(url), owner)
    book.open()
    return book


def new_run(**facts) -> RunInfo:
    basic = {"id": new_id(), "prompt": "Hi", "folder": "/", "via": "cli", "started": now_ms()}
    return RunInfo(**{**basic, **facts})


def test_reading_does_not_wait_for_whoever_writes(url):
    database, run = open_database(url), new_run()
    book = RunBook(database, "me")
    book.open()
    book.enter(run, [UserMessage("Hi")])
    with database.transaction() as writing:
        writing.execute("DELETE FROM web_events")
        # What is not written yet is not read either.
        assert [line.kind for line in book.events(run.id)] == ["user_message"]
    assert book.events(run.id) == []
    book.close()


def test_another_process_that_leaves_the_file_takes_nothing_with_it(tmp_path):
    """Locks of a file belong to a process, and end when it closes the file for the first time.
    Without them, the other one believes to be the last, and removes what was not merged yet."""
    database = open_database(f"sqlite:///{tmp_path}/web.db")
    with database.transaction() as writing:
        writing.execute("CREATE TABLE words (word TEXT)")
    with database.transaction(writes=False) as reading:  # By a second connection.
        assert reading.execute("SELECT * FROM words") == []

    def by_another_process(statement: str) -> str:
        script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        script += "print(c.execute(sys.argv[2]).fetchall()); c.close()"
        command = [sys.executable, "-c", script, str(tmp_path / "web.db"), statement]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    by_another_process("INSERT INTO words VALUES ('theirs')")
    with database.transaction() as writing:
        writing.execute("INSERT INTO words VALUES ('ours')")
    assert by_another_process("SELECT word FROM words") == "[('theirs',), ('ours',)]\n"
    with database.transaction(writes=False) as reading:
        assert reading.execute("SELECT word FROM words") == [("theirs",), ("ours",)]
    database.close()


def test_what_is_written_is_read_in_its_order(url):
    book, run = opened_book(url), new_run()
    book.enter(run, [UserMessage("Hi")])
    done = msgspec.structs.replace(run, status="success", tokens=7)
    book.write([Entry(run, [TextDelta("He"), TextDelta("llo")])])
    assert [line.kind for line in book.events(run.id)] == ["user_message", *["text_delta"] * 2]
    last = book.write([Entry(done, [Text("Hello"), Done("success")])])
    lines = book.events(run.id)
    assert [line.kind for line in lines] == ["user_message", "text", "done"]
    assert decode(lines[1].data) == Text("Hello")
    assert (lines[-1].seq, book.last()) == (last, last)
    assert book.events(run.id, lines[1].seq) == lines[2:]
    assert book.run(run.id) == done
    book.close()


def test_pieces_of_a_text_that_was_cut_off_are_kept(url):
    book, run = opened_book(url), new_run()
    book.enter(run, [UserMessage("Hi"), TextDelta("He")])
    book.write([Entry(msgspec.structs.replace(run, status="error"), [Done("error")])])
    assert [line.kind for line in book.events(run.id)] == ["user_message", "text_delta", "done"]
    book.close()


def test_no_number_is_given_twice_however_many_write(url):
    books = [opened_book(url, f"page {number}") for number in range(4)]
    runs = [new_run() for _ in books]
    for book, run in zip(books, runs, strict=True):
        book.enter(run, [UserMessage("Hi")])

    def write(book: RunBook, run: RunInfo) -> None:
        for number in range(25):
            book.write([Entry(run, [Text(str(number))])])

    threads = [threading.Thread(target=write, args=pair) for pair in zip(books, runs, strict=True)]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    while any(thread.is_alive() for thread in threads):
        # A reader that goes on after the last one that it saw misses none.
        seen += [line.seq for line in books[0].events(None, seen[-1] if seen else 0)]
    seen += [line.seq for line in books[0].events(None, seen[-1])]
    assert seen == sorted(set(seen))
    assert len(seen) == 4 * 26
    for book, run in zip(books, runs, strict=True):
        texts = [decode(line.data).text for line in book.events(run.id)][1:]
        assert texts == [str(number) for number in range(25)]
        book.close()


def test_the_runs_of_a_page_that_is_gone_end_and_those_of_others_go_on(url):
    gone, here = opened_book(url, "gone"), opened_book(url, "here")
    lost, kept = new_run(), new_run()
    gone.enter(lost, [UserMessage("Hi")])
    here.enter(kept, [UserMessage("Hi")])
    here.hear()
    assert here.run(lost.id).is_live
    gone.close()
    here.hear()
    assert here.run(lost.id).status == "interrupted"
    assert here.run(kept.id).is_live
    assert [info.id for _, info in here.changed_elsewhere(0)] == [lost.id]
    assert here.events(lost.id)[-1].kind == "done"
    assert not here.remove(kept.id)
    assert here.remove(lost.id)
    assert here.events(lost.id) == []
    here.close()


def test_a_database_that_was_away_is_opened_again(database_url):
    book = opened_book(database_url)
    assert book.last() >= 0
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
    for use in (book.last, book.hear):
        with pytest.raises(SetupError, match="cannot use the page's database"):
            use()
        use()
    book.close()


@pytest.mark.parametrize(
    "open_to_others",
    [
        lambda path: path.chmod(0o640),
        lambda path: path.chmod(0o602),
        lambda path: path.parent.chmod(0o777),
        lambda path: path.rename(path.with_name("other")) and path.symlink_to("other"),
    ],
    ids=["readers", "writers", "folder", "link"],
)
def test_a_file_that_others_can_read_or_change_is_refused(tmp_path, open_to_others):
    """It has the keys of agents, and what they may do."""
    path = tmp_path / "state" / "web.db"
    opened_book(f"sqlite:///{path}").close()
    open_to_others(path)
    with pytest.raises(SetupError, match="other users can read or change"):
        opened_book(f"sqlite:///{path}")


def test_a_password_is_not_shown():
    with pytest.raises(SetupError) as caught:
        opened_book("postgresql://anna:secret@127.0.0.1:1/none")
    assert "secret" not in str(caught.value)


async def test_a_page_keeps_its_runs_and_questions_there(database_url, tmp_path):
    async with opened(**{**settings(tmp_path), "db": database_url}) as visitor:
        id = await visitor.start("Use pi", "quick")
        await visitor.until(id, "success")
        assert "return pi" in (await visitor.get(f"/runs/{id}")).text
        assert (await visitor.get("/inbox")).status_code == 200
