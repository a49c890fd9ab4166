"""What the pages show is what happens: every block of them is run, and its output compared."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

import geminorum
from geminorum import errors
from geminorum.apps.command.app import root
from geminorum.apps.command.exits import exit_for
from geminorum.testing import FakeGemini
from pages import Reader, commands, indented_commands, matches, steps

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
WITH_CODE = [page for page in PAGES if steps(page)]
ELSEWHERE = re.compile(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(http[^"]*)"')
LISTED = sorted({line for page in PAGES for line in indented_commands(page)})


@pytest.mark.gemini_cli
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_does_what_it_shows(page, real_cli_door, tmp_path, monkeypatch):
    """S1-4, S3-52: with the real CLI, a simulated model, and a folder of its own."""
    monkeypatch.chdir(tmp_path)
    with FakeGemini(default="Done.") as fake, Reader(page, tmp_path, fake) as reader:
        here = {"GEMINI_MODEL": "gemini-2.5-flash", "PYTHONPATH": os.fspath(ROOT / "src")}
        for name, value in {**fake.env, **here}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("GEMINI_CLI_PATH", str(real_cli_door.executable))
        monkeypatch.setenv("PATH", str(real_cli_door.executable.parent), prepend=os.pathsep)
        for step in steps(page):
            reader.do(step)
        assert not fake.unused


@pytest.mark.parametrize("line", LISTED)
def test_a_command_that_a_page_lists_can_be_typed(line):
    """Parsed only: what is shown as a list of examples is not run."""
    command, words = get_command(root), _words(line)[1:]
    context = command.make_context("geminorum", words)
    while hasattr(command, "resolve_command"):
        words = [*context._protected_args, *context.args]
        name, command, words = command.resolve_command(context, words)
        context = command.make_context(name, words, parent=context)


def _words(line: str) -> list[str]:
    return shlex.split(re.split(r" [|<>] ", line)[0], comments=True)


def test_every_fenced_block_is_run_or_is_an_output():
    for page in PAGES:
        languages = set(re.findall(r"^```([^\n]+)\n", page.read_text(), re.M))
        assert languages <= {"python", "console", "text", "json"}, page


def test_every_page_has_a_title():
    assert [page for page in PAGES if not page.read_text().startswith("# ")] == []


def test_the_readme_begins_with_what_a_newcomer_needs():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert any("pip install" in line for line in lines[:10])
    assert any(line.startswith("success [") for line in lines[:30])


def test_every_file_that_the_map_names_is_there():
    named = set(re.findall(r"\b[\w/]+\.py\b", (DOCS / "map.md").read_text()))
    missing = [
        name
        for name in named
        if not (ROOT / "src/geminorum" / name).exists() and not (ROOT / name).exists()
    ]
    assert missing == []


def test_every_link_of_the_readme_leads_somewhere():
    """The other pages' links are checked by the build."""
    for target in re.findall(r"\]\((?!http)([^)#]+)", (ROOT / "README.md").read_text()):
        assert (ROOT / target).exists(), target


def test_every_public_name_is_in_the_reference():
    pages = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    assert [name for name in geminorum.__all__ if not re.search(rf"\b{name}\b", pages)] == []


def test_every_error_is_explained_with_its_code_and_its_exit_code():
    page = (DOCS / "errors.md").read_text()
    for kind in set(errors._BY_CODE.values()) - {errors.GeminorumError}:
        begin = f"`{kind.__name__}` | `{kind.code}`"
        row = next(line for line in page.splitlines() if begin in line)
        error = kind("what happened")
        assert row.endswith(f"| {'yes' if error.retryable else 'no'} | {exit_for(error)} |"), row


def test_the_pages_build_without_a_warning_and_fetch_nothing(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    for page in tmp_path.rglob("*.html"):
        assert ELSEWHERE.findall(page.read_text()) == [], page


@pytest.mark.parametrize(
    ("shown", "real", "same"),
    [
        ("one\ntwo", "one\ntwo\n", True),
        ("one\ntwo", "one\nthree\n", False),
        ("took … s", "took 1.5 s\n", True),
        ("took … s", "took 1.5 s\nmore\n", False),
        ("one\n…\nfour", "one\n2\n3\nfour\n", True),
        ("one\n…\nfour", "one\n2\n3\n4\n", False),
    ],
)
def test_an_output_is_compared_but_for_what_may_differ(shown, real, same):
    assert matches(shown, real) is same


def test_a_console_block_is_read_as_lines_and_their_outputs():
    first, second = commands("$ one \\\n  more\nout\nput\n$ two\n")
    assert (first.line, first.shown, second.line) == ("one    more", "out\nput\n", "two")
    assert second.shown == ""


@pytest.mark.gemini_cli
def test_the_demo_shows_a_whole_run_and_says_that_the_model_is_simulated(real_cli_door):
    done = subprocess.run(
        [sys.executable, ROOT / "examples/demo.py"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for part in ("SIMULATED", "write_file", "cat haiku.txt", "tokens", "cost", "session"):
        assert part in done.stdout
