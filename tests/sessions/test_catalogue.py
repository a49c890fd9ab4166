"""Sessions page by page: each file is read once, and no longer than there is time for."""

import os
from datetime import UTC, datetime

import pytest

from geminorum.sessions import Catalogue
from saved_sessions import Store

IDS = [f"{number:08}-0000-4000-8000-000000000000" for number in range(12)]


@pytest.fixture
def store(tmp_path):
    cwd = tmp_path / "work"
    cwd.mkdir()
    return Store(tmp_path / "home", cwd)


@pytest.fixture
def filled(store):
    """Twelve sessions; the higher the number, the later it was written."""
    for number, name in enumerate(IDS):
        path = store.save(name, f"Question {number}", f"Answer {number}", day=number + 1)
        os.utime(path, ns=(number, number))
    return store


def ids(page):
    return [info.id for info in page.sessions]


def test_pages_have_all_sessions_once_the_last_written_first(filled):
    catalogue = Catalogue(filled.home)
    pages = [catalogue.page(number, size=5, seconds=60) for number in (1, 2, 3)]
    assert [name for page in pages for name in ids(page)] == IDS[::-1]
    assert [page.number for page in pages] == [1, 2, 3]
    assert {(page.pages, page.found) for page in pages} == {(3, 12)}
    assert all(page.is_complete for page in pages)
    assert ids(catalogue.page(4, size=5, seconds=60)) == []
    assert ids(catalogue.page(-1, size=5, seconds=60)) == IDS[:-6:-1]


def test_a_page_says_what_a_list_says(filled):
    (filled.chats / "session-broken.jsonl").write_text("{")
    known = {info.path: info for info in filled.list()}
    page = Catalogue(filled.home).page(size=50, seconds=60)
    assert {info.path: info for info in page.sessions} == known
    assert [info.problem for info in page.sessions if not info.id] == [
        "nothing in it is a record of a session"
    ]


def test_without_time_each_call_reads_one_file_more(filled):
    catalogue = Catalogue(filled.home)
    seen = [catalogue.page(size=50, seconds=0) for _ in IDS]
    assert [page.examined for page in seen] == list(range(1, 13))
    assert [page.is_complete for page in seen] == [False] * 11 + [True]
    assert [ids(page) for page in seen] == [IDS[::-1][:number] for number in range(1, 13)]
    assert [page.total for page in seen] == [12] * 12


def test_a_search_goes_on_where_its_time_was_up(filled):
    catalogue = Catalogue(filled.home)
    catalogue.page(seconds=60)
    seen = [catalogue.page(text="question 3", seconds=0) for _ in range(12)]
    assert [page.found for page in seen] == [0] * 8 + [1] * 4
    assert [page.is_complete for page in seen] == [False] * 11 + [True]
    assert ids(seen[-1]) == [IDS[3]]


def test_a_search_among_some_days_ends_too(filled):
    catalogue = Catalogue(filled.home)
    since = datetime(2026, 1, 11, tzinfo=UTC)
    catalogue.page(seconds=60)
    seen = [catalogue.page(text="question", since=since, seconds=0) for _ in range(2)]
    assert [page.found for page in seen] == [1, 2]
    assert seen[-1].is_complete


def test_a_file_that_has_not_changed_is_not_read_again(filled):
    catalogue = Catalogue(filled.home)
    catalogue.page(seconds=60)
    path = filled.list()[0].path
    status, text = path.stat(), path.read_text()
    path.write_text(text.replace("Question", "Riddle--"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert catalogue.page(seconds=60).sessions[0].title == "Question 11"
    os.utime(path)
    assert catalogue.page(seconds=60).sessions[0].title == "Riddle-- 11"
    path.unlink()
    assert IDS[11] not in ids(catalogue.page(seconds=60))


def test_sessions_are_filtered_by_project_date_and_words(filled):
    other = filled.tmp / "other"
    filled.save("99999999-0000", "Elsewhere", folder=other / "chats", day=3)
    catalogue = Catalogue(filled.home)
    page = catalogue.page(project=str(filled.cwd), seconds=60)
    assert page.projects == {str(filled.cwd): 12, "other": 1}
    assert (page.total, page.found) == (12, 12)
    assert ids(catalogue.page(project="other", seconds=60)) == ["99999999-0000"]
    assert ids(catalogue.page(project="nowhere", seconds=60)) == []
    third = datetime(2026, 1, 3, tzinfo=UTC)
    found = catalogue.page(since=third, until=third.replace(hour=23), seconds=60)
    assert sorted(ids(found)) == [IDS[2], "99999999-0000"]
    assert ids(catalogue.page(text="ANSWER 7", seconds=60)) == [IDS[7]]


def test_a_session_in_two_files_is_on_one_page_once(store):
    store.save(IDS[0], "Hello", day=1)
    store.save(IDS[0], day=2)
    (info,) = Catalogue(store.home).page(seconds=60).sessions
    assert (info.title, info.empty) == ("Hello", False)


def test_sessions_are_found_by_their_ids_at_once(filled):
    filled.save("11111111-9999", "The same beginning")
    filled.save("11111111-0000", "Another", day=2)
    found = Catalogue(filled.home).named({IDS[3], "11111111-9999", "nobody's"})
    assert {name: info.title for name, info in found.items()} == {
        IDS[3]: "Question 3",
        "11111111-9999": "The same beginning",
    }


def test_the_order_is_that_of_the_files_themselves_once_all_are_known(filled):
    """A copy of a store has files that were all written at the same time, or in any order."""
    for info in filled.list():
        os.utime(info.path, ns=(1, 1))
    os.utime(filled.list()[-1].path, ns=(2, 2))
    assert ids(Catalogue(filled.home).page(seconds=60)) == IDS[::-1]


# ---- searching


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("Große Straße", "STRASSE"),
        ("273 \N{KELVIN SIGN}", "273 k"),
        ('a "quoted" word', '"quoted"'),
        ("a\\b", "a\\b"),
        ("two\nlines", "two\nlines"),
        ("a/b", "a/b"),
        ("\x1b[31mred", "RED"),
        ("naïve", "NAÏVE"),
    ],
)
def test_what_json_spells_in_another_way_is_found(store, said, wanted):
    store.save(IDS[0], said)
    store.save(IDS[1], "something else")
    assert ids(Catalogue(store.home).page(text=wanted, seconds=60)) == [IDS[0]]


def test_words_are_found_over_the_end_of_a_part(store):
    parts = [{"text": "half a wo"}, {"text": "rd"}]
    line = {"id": "m", "timestamp": "", "type": "user", "content": parts}
    store.write(IDS[0], line)
    assert ids(Catalogue(store.home).page(text="word", seconds=60)) == [IDS[0]]


def test_what_nobody_said_is_not_found(store):
    store.save(IDS[0], "hello")  # Its file has "sessionId" in it, and the CLI's own words.
    for text in ("sessionId", "session_context", IDS[0]):
        assert ids(Catalogue(store.home).page(text=text, seconds=60)) == []
