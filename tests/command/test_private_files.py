"""Files that hold conversations: whoever made them may read them, and nobody else."""

import os
import stat
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from geminorum.apps.command.batch.input import Task
from geminorum.apps.command.batch.journal import Journal, TaskOutcome
from geminorum.apps.command.chat.slash_commands import Talk
from geminorum.apps.command.private_files import write_private
from geminorum.apps.command.run.keep import keep
from geminorum.apps.command.run.undo import Copies
from geminorum.doctor.finding import Check
from geminorum.doctor.mending import remedy_for

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")


@pytest.fixture(autouse=True)
def _open_to_all():
    """As lax as an umask can be."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def outcome(name: str, status: str = "success") -> TaskOutcome:
    return TaskOutcome(id=name, digest="d", prompt="p", status=status)


def test_a_batch_keeps_its_results_and_its_journal_private(tmp_path):
    journal = Journal(tmp_path / "out.jsonl")
    with journal.open():
        journal.end(Task("a", "p"), journal.begin(Task("a", "p")), None)
        journal.finish(outcome("a"))
        journal.finish(outcome("b", "error"))
        journal.drop_failures()
        journal.finish(outcome("c"))
    assert {path.name: mode(path) for path in tmp_path.iterdir()} == {
        "out.jsonl": 0o600,
        "out.jsonl.journal": 0o600,
    }
    assert journal.results.read_bytes().count(b"\n") == 2


def test_results_that_somebody_opened_to_others_stay_so(tmp_path):
    results = tmp_path / "out.jsonl"
    results.touch()
    results.chmod(0o640)
    journal = Journal(results)
    with journal.open():
        journal.finish(outcome("b", "error"))
        journal.drop_failures()
    assert mode(results) == 0o640


def test_copies_for_undo_are_private_each_by_itself(tmp_path):
    (tmp_path / "script").write_text("secret")
    (tmp_path / "script").chmod(0o755)
    keep(tmp_path / "script", tmp_path / "copies", "key")
    kept = [path for path in (tmp_path / "copies").rglob("*") if path.is_file()]
    assert {path.name: mode(path) for path in kept} == {"was.json": 0o600, "bytes": 0o600}
    assert (tmp_path / "script").read_text() == "secret"


def test_a_chat_is_saved_for_its_owner_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Copies() as copies:
        Talk(copies, Console(file=StringIO())).command("/save chat.md")
    assert mode(tmp_path / "chat.md") == 0o600


def test_what_is_written_privately_replaces_the_text_and_keeps_a_mode_that_was_chosen(tmp_path):
    fresh, shared = tmp_path / "fresh", tmp_path / "shared"
    shared.write_text("a longer text than the new one")
    shared.chmod(0o644)
    write_private(fresh, "Grüße\n")
    write_private(shared, "short")
    assert (fresh.read_bytes(), mode(fresh)) == ("Grüße\n".encode(), 0o600)
    assert (shared.read_text(), mode(shared)) == ("short", 0o644)


@pytest.mark.parametrize("before", [None, 0o600, 0o640])
def test_mended_settings_are_no_more_open_than_before(tmp_path, before):
    """They may hold the keys of MCP servers."""
    file = tmp_path / "settings.json"
    if before is not None:
        file.write_text("{}")
        file.chmod(before)
    check = Check("auth", "fail", "…", f'put into {file}: {{"b": {{"c": 1}}}}', "AUTH")
    remedy_for(check).apply()
    assert mode(file) == (before or 0o600)
