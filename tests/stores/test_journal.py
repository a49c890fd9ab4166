"""The log of a session as pure data: what is sent, what comes back, what damage does."""

import random
from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminorum.errors import Unsupported
from geminorum.wire.stored import entries
from geminorum.wire.stored.entries import (
    About,
    Entry,
    FileDelta,
    SavedFile,
    TurnRecord,
    encoded,
    known_after,
    parts_of,
    turn_record,
)
from geminorum.wire.stored.fingerprint import BLOCK_BYTES, common_start, fingerprint_of
from geminorum.wire.stored.journal import Journal

NAME = "session-2026-01-02T10-00-seven.jsonl"


def written(journal: Journal, data: bytes, turn: str = "t", **more: bytes) -> list[bytes]:
    """The entries of a turn after which the session has these files."""
    files = {"main.jsonl": SavedFile(NAME, data)}
    files |= {
        f"subagent/{name}.jsonl": SavedFile(f"{name}.jsonl", one) for name, one in more.items()
    }
    known = journal.known_in_pieces()
    parts = parts_of(turn_record(known, files, known_after(files, known)))
    return [
        raw_entry(turn=turn, part=n, parts=len(parts), data=one) for n, one in enumerate(parts, 1)
    ]


def raw_entry(session: str = "seven", kind: str = "turn", turn: str = "t", **more) -> bytes:
    common = {"writer": "host:1", "at": 1_700_000_000_000, "about": About(title="Seven")}
    return encoded(Entry(session=session, kind=kind, turn=turn, **common, **more))


def journal_of(*raws: bytes) -> Journal:
    journal = Journal("seven")
    journal.extend(raws)
    return journal


def content(journal: Journal, role: str = "main.jsonl") -> bytes:
    return bytes(journal.files[role].data)


def test_a_turn_sends_only_its_own_bytes():
    journal, history = Journal("seven"), b"x" * 10_000_000
    journal.extend(written(journal, history))
    added = written(journal, history + b"the next turn\n")
    assert sum(map(len, added)) < 400
    journal.extend(added)
    assert content(journal) == history + b"the next turn\n"
    assert journal.problems == []


def test_a_rewritten_file_is_sent_from_its_first_changed_block():
    journal, history = Journal("seven"), random.Random(1).randbytes(20 * BLOCK_BYTES)
    journal.extend(written(journal, history))
    repaired = history[: 18 * BLOCK_BYTES + 7] + b"!" + history[18 * BLOCK_BYTES + 7 :]
    changed = written(journal, repaired)
    assert sum(map(len, changed)) < 2 * BLOCK_BYTES + 500
    journal.extend(changed)
    assert content(journal) == repaired


def message(number: int, plain: bool = False) -> bytes:
    text = b'"%d %s"' % (number, b"word " * 50)
    return b'{"id":"%08d","content":%s}' % (number, text if plain else b'[{"text":%s}]' % text)


def test_messages_that_the_cli_writes_once_more_are_not_sent_again():
    """It does so whenever it resumes a session."""
    journal, said = Journal("seven"), [message(number) for number in range(3000)]
    log = b"".join(message(number, plain=True) + b"\n" for number in range(3000))
    journal.extend(written(journal, log))
    sent = []
    for number in (3000, 3001):
        log += b'{"$set":{"messages":[' + b",".join(said) + b"]}}\n" + message(number) + b"\n"
        said.append(message(number))
        raws = written(journal, log)
        sent.append(sum(map(len, raws)))
        journal.extend(raws)
    assert len(log) > 2_500_000
    assert sent[0] < 400_000
    assert sent[1] < 2500
    assert content(journal) == log


def test_a_document_that_is_written_anew_is_not_sent_again():
    journal = Journal("seven")
    for number in range(2):
        said = b",\n".join(b"    " + message(one) for one in range(3000 + number))
        top = b'{\n  "lastUpdated": "%d",\n  "messages": [\n' % number
        raws = written(journal, top + said + b"\n  ]\n}")
        journal.extend(raws)
    assert sum(map(len, raws)) < 2000
    assert content(journal) == top + said + b"\n  ]\n}"


def test_copies_cannot_make_more_than_was_announced():
    journal = journal_of(*written(Journal("seven"), b"x" * 1000))
    for keep, size in ((0, 1000), (0, 10**9), (10**6, 10**6 + 1000)):
        delta = FileDelta("main.jsonl", NAME, keep, min(size, 2**29), b"", ((0, 1000),) * 1000)
        record = msgspec.msgpack.encode(TurnRecord(journal.state, (delta,)))
        journal.add(raw_entry(data=record))
    assert len(journal.problems) == 3
    assert content(journal) == b"x" * 1000


lines = st.lists(st.integers(0, 5), max_size=60)


@given(st.lists(lines, max_size=6), st.booleans())
def test_copies_of_anything_come_out_right(turns, with_commas):
    """Messages in any order, repeated and removed, in lines or in one."""
    journal = Journal("seven")
    for turn in turns:
        joint = b"," if with_commas else b"\n"
        data = joint.join(b'{"id":"%d"%s' % (one, b"x" * one * 900) for one in turn)
        journal.extend(written(journal, data))
        assert content(journal) == data
        assert journal.problems == []


def test_a_large_turn_takes_several_entries(monkeypatch):
    monkeypatch.setattr(entries, "MAX_PART_BYTES", 1000)
    data = random.Random(2).randbytes(4_500)
    raws = written(Journal("seven"), data)
    assert len(raws) == 5
    assert content(journal_of(*raws)) == data
    cut = journal_of(*raws[:-1])
    assert cut.files == {}
    # Its writer was killed; another begins anew.
    cut.extend(written(cut, b"another"))
    assert content(cut) == b"another"


edits = st.lists(
    st.tuples(st.integers(0, 5 * BLOCK_BYTES), st.integers(0, 3), st.integers(0, 2 * BLOCK_BYTES)),
    max_size=8,
)


@given(edits, st.integers(0, 2**32))
def test_whatever_is_done_to_the_files_the_log_has_it(edits, seed):
    dice, data, journal = random.Random(seed), b"", Journal("seven")
    raws = []
    for at, kind, count in edits:
        fresh = dice.randbytes(count)
        data = {0: data + fresh, 1: data[:at] + fresh + data[at:], 2: data[:at], 3: fresh}[kind]
        new = written(journal, data, agent=data[::2])
        raws += new
        journal.extend(new)
        assert (content(journal), content(journal, "subagent/agent.jsonl")) == (data, data[::2])
    again = journal_of(*raws)
    assert again.problems == []
    assert again.state == journal.state
    assert len(again.states) == len(journal.states)


@given(st.binary(max_size=300_000), st.binary(max_size=300_000))
def test_the_common_start_is_common(one, other):
    keep = common_start(fingerprint_of(one), fingerprint_of(other), other)
    assert one[:keep] == other[:keep]
    grown = one + other
    assert common_start(fingerprint_of(one), fingerprint_of(grown), grown) == len(one)


@cache
def log_of(seed: int) -> tuple[list[bytes], list[bytes]]:
    """The entries of six turns, and the session after each of them, from the empty one on."""
    dice, journal = random.Random(seed), Journal("seven")
    raws, whole = [], [b""]
    for turn in range(6):
        whole.append(whole[-1] + dice.randbytes(dice.randrange(200_000)))
        raws += (new := written(journal, whole[-1], turn=str(turn)))
        journal.extend(new)
    return raws, whole


@given(st.integers(0, 9), st.integers(0, 2**32))
def test_damage_never_becomes_content(log, seed):
    """Whatever happens to the bytes in the store, the files are those of some whole turn."""
    dice = random.Random(seed)
    raws, whole = log_of(log)
    data = whole[-1]
    hurt = _hurt(raws, dice)
    found = journal_of(*hurt)
    after = content(found) if found.files else b""
    assert after in whole
    if hurt != raws and after != data:
        assert found.problems or len(hurt) < len(raws)
    # And it can be continued from there.
    found.extend(written(found, after + b"more"))
    assert content(found) == after + b"more"
    assert found.problems == []


def _hurt(raws: list[bytes], dice: random.Random) -> list[bytes]:
    number = dice.randrange(len(raws))
    one = raws[number]
    place = dice.randrange(len(one))
    flipped = one[:place] + bytes([one[place] ^ (1 << dice.randrange(8))]) + one[place + 1 :]
    if flipped[4] > entries.FORMAT:
        flipped = b"\0" + one[1:]  # That is another test.
    ways = [[flipped], [one[:place]], [], [one, one], [b""], [raw_entry(session="eight")]]
    return [*raws[:number], *dice.choice(ways), *raws[number + 1 :]]


def test_a_session_of_a_newer_geminorum_is_refused():
    (raw,) = written(Journal("seven"), b"data")
    with pytest.raises(Unsupported, match="newer geminorum") as caught:
        journal_of(raw[:4] + bytes([entries.FORMAT + 1]) + raw[5:])
    assert "pip install --upgrade geminorum" in str(caught.value)


def test_a_turn_that_began_and_was_never_saved_is_known():
    journal = journal_of(*written(Journal("seven"), b"data"))
    assert journal.begun is None
    journal.add(raw_entry(kind="begun", turn="lost"))
    assert journal.begun.writer == "host:1"
    journal.extend(written(journal, b"data and more"))
    assert journal.begun is None


@pytest.mark.parametrize(
    ("role", "name"),
    [
        ("main.jsonl", "../../.bashrc"),
        ("main.jsonl", ".bashrc"),
        ("main.jsonl", "a/b"),
        ("main.jsonl", ""),
        ("../main.jsonl", NAME),
        ("subagent/../../x", "x"),
        ("secrets/x", "x"),
        ("subagent/" + "x" * 300, "x"),
    ],
)
def test_a_hostile_name_is_not_a_file(role, name):
    file = {role: SavedFile(name, b"data")}
    parts = parts_of(turn_record({}, file, known_after(file)))
    journal = journal_of(raw_entry(parts=1, data=parts[0]))
    assert journal.files == {}
    assert "name" in journal.problems[0]
