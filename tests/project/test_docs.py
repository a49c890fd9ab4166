"""What the pages show is what happens: every block of them is run, and its output compared."""

import ast
import importlib.metadata
import inspect
import os
import pydoc
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from typer.main import get_command

import geminorum
from geminorum import Options, Pool, errors, sync
from geminorum.apps.command.app import root
from geminorum.apps.command.exits import exit_for
from geminorum.permissions import KNOWN_TOOLS
from geminorum.policies import Rules
from geminorum.testing import FakeGemini
from geminorum.views.messages import claude_name
from pages import Reader, commands, indented_commands, matches, steps

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
WITH_CODE = [page for page in PAGES if steps(page)]
ELSEWHERE = re.compile(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(http[^"]*)"')
LISTED = sorted({line for page in PAGES for line in indented_commands(page)})


@pytest.mark.gemini_cli
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_does_what_it_shows(
    page, real_cli, real_transport, quick_start, tmp_path, monkeypatch
):
    """S1-4, S3-52: with the real CLI, a simulated model, and a folder of its own."""
    monkeypatch.chdir(tmp_path)
    with FakeGemini(default="Done.") as fake, Reader(page, tmp_path, fake) as reader:
        here = {"GEMINI_MODEL": "gemini-2.5-flash", "PYTHONPATH": os.fspath(ROOT / "src")}
        for name, value in {**fake.env, **quick_start, **here}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("GEMINI_CLI_PATH", str(real_transport.executable))
        # And its Node: a machine without one has it from PyPI, beside the path.
        for program in (real_cli[0], real_transport.executable):
            monkeypatch.setenv("PATH", str(Path(program).parent), prepend=os.pathsep)
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


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_block_asserts_only_where_something_was_raised(page):
    """An assertion in an `except` passes when nothing is raised."""
    for step in steps(page):
        if step.kind == "python":
            code = compile(
                step.code, page.name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            )
            handlers = [node for node in ast.walk(code) if isinstance(node, ast.ExceptHandler)]
            inside = [node for one in handlers for node in ast.walk(one)]
            assert not any(isinstance(node, ast.Assert) for node in inside), step.line


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


def test_help_calls_a_transport_a_transport():
    public = [getattr(module, name) for module in (geminorum, sync) for name in _public(module)]
    shown = {one: pydoc.plain(pydoc.render_doc(one)) for one in public if callable(one)}
    assert {Pool, sync.Pool, geminorum.Chat, geminorum.ask, sync.connect} <= shown.keys()
    assert [one for one, text in shown.items() if re.search(r"\b[d]oors?\b", text, re.I)] == []
    assert [name for name in vars(Pool()) if re.search("[d]oor", name)] == []


def _public(module: ModuleType) -> list[str]:
    own = (name for name, one in vars(module).items() if _is_defined_in(one, module))
    return [*getattr(module, "__all__", own)]


def _is_defined_in(one: object, module: ModuleType) -> bool:
    return getattr(one, "__module__", None) == module.__name__ and not one.__name__.startswith("_")


def test_every_option_has_words_in_the_reference():
    tree = ast.parse(inspect.getsource(Options))
    body = tree.body[0].body
    explained = {
        field.target.id
        for field, words in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(words, ast.Expr)
    }
    assert set(Options.__struct_fields__) - explained == set()


@pytest.mark.parametrize("page", ["README.md", "docs/start.md", "docs/permissions.md"])
def test_what_is_allowed_by_default_is_told_in_the_same_words(page):
    assert Rules.of(Options()).verdict("google_web_search").decision == "allow"
    assert "an agent can only read files and search the web" in (ROOT / page).read_text()


def test_the_names_of_claudes_tools_are_those_of_the_translation():
    text = (DOCS / "from-claude.md").read_text().split("## Tool names")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)`[^|]* \| `(\w+)`", text, re.M))
    assert len(rows) >= 8
    builtin = {claudes: ours for claudes, ours in rows.items() if not ours.startswith("mcp_")}
    assert set(builtin.values()) <= KNOWN_TOOLS
    assert {ours: claude_name(ours) for ours in builtin.values()} == {
        ours: claudes for claudes, ours in builtin.items()
    }


def test_every_error_is_explained_with_its_code_and_its_exit_code():
    """B-24: one tree of errors, each with a code of its own."""
    page = (DOCS / "errors.md").read_text()
    for kind in set(errors._BY_CODE.values()) - {errors.GeminorumError}:
        begin = f"`{kind.__name__}` | `{kind.code}`"
        row = next(line for line in page.splitlines() if begin in line)
        error = kind("what happened")
        assert row.endswith(f"| {'yes' if error.retryable else 'no'} | {exit_for(error)} |"), row


# As `python -m mkdocs`; it ends before there is any garbage to look for, which takes a fifth of it.
MKDOCS = "import gc, runpy; gc.disable(); runpy.run_module('mkdocs', run_name='__main__')"


def test_the_pages_build_without_a_warning_and_fetch_nothing(tmp_path):
    command = [sys.executable, "-c", MKDOCS, "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    # What lies beside docs/ is on the site too, scripts included.
    for name in ("CHANGELOG.html", "examples/index.html", "examples/demo.py"):
        assert (tmp_path / name).exists(), name
    for page in tmp_path.rglob("*.html"):
        assert ELSEWHERE.findall(page.read_text()) == [], page


def test_every_threat_on_the_page_of_security_names_a_test_that_there_is():
    page = (DOCS / "security.md").read_text().partition("## Threats")[2]
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    sources = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert len(rows) > 20
    for row in rows:
        assert len(row) == 4, row
        named = re.findall(r"`(test_\w+)`", row[2])
        assert named, row[0]
        assert [name for name in named if f"def {name}(" not in sources] == []


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
def test_the_demo_shows_a_whole_run_and_says_that_the_model_is_simulated(real_transport):
    done = subprocess.run(
        [sys.executable, ROOT / "examples/demo.py"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for part in ("SIMULATED", "write_file", "cat haiku.txt", "tokens", "cost", "session"):
        assert part in done.stdout
    assert "thoughts arrive when their answer is complete" in done.stdout
    assert "Pipes: they lose what they cannot hold" in done.stdout


def test_the_page_of_the_package_index_links_to_what_is_there():
    """There, a link that is relative to the repository would lead nowhere."""
    about = importlib.metadata.metadata("geminorum")
    links = re.findall(r"\]\(([^)]*)\)", str(about.get_payload()))
    assert any(link.endswith(".svg") for link in links)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    repository = "https://github.com/geminorum/geminorum/blob/HEAD/"
    inside = [link.removeprefix(repository) for link in links if link.startswith(repository)]
    assert len(inside) > 10
    assert [path for path in inside if not (ROOT / path.partition("#")[0]).exists()] == []
    named = dict(line.split(", ") for line in about.get_all("Project-URL") or [])
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= named.keys()
