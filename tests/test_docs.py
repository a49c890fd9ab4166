"""What the pages show is what happens: every Python block is run, the README's output compared."""

import ast
import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from geminorum.testing import FakeGemini, Tokens

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w+)?([^\n]*)\n(.*?)^```$", re.M | re.S)


def blocks(page: Path, language: str = "python") -> list[tuple[str, str]]:
    """(what stands behind the language, the code) for each fenced block."""
    found = FENCE.findall(page.read_text())
    return [(info.strip(), code) for name, info, code in found if name == language]


WITH_CODE = [page for page in PAGES if blocks(page) and page.name != "README.md"]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_the_code_on_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEMINI_CLI_PATH", str(ROOT / ".gemini-cli/node_modules/.bin/gemini"))
    namespace: dict[str, object] = {"__name__": page.stem}
    run = [code for info, code in blocks(page) if "no-run" not in info]
    assert run
    for code in run:
        exec(compile(code, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_that_is_only_shown_is_at_least_python(page):
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for info, code in blocks(page):
        if "no-run" in info:
            compile(code, str(page), "exec", flags=flags)
    assert page.read_text().startswith("# ")


@pytest.mark.gemini_cli
def test_the_readme_shows_its_real_output(real_cli_door, tmp_path, monkeypatch):
    with FakeGemini() as fake:
        wish = {"file_path": "haiku.txt", "content": "A pipe holds so much."}
        fake.calls(("write_file", wish), tokens=Tokens(prompt=1000, output=30, thoughts=40))
        fake.say("Your haiku is in haiku.txt.", tokens=Tokens(prompt=1100, output=8, thoughts=12))
        monkeypatch.chdir(tmp_path)
        for name, value in fake.env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("GEMINI_CLI_PATH", str(real_cli_door.executable))
        monkeypatch.setenv("GEMINI_MODEL", "gemini-2.5-flash")
        (_, code), *_ = blocks(ROOT / "README.md")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, "README.md", "exec"), {})
    (_, shown), *_ = blocks(ROOT / "README.md", "text")
    real = out.getvalue().replace(str(tmp_path), "/home/ada/poems")
    assert re.sub(r"write_file__write_file_\d+_0", "write_file__1", real) == shown


def test_the_rest_of_the_readme_runs_too():
    first, *rest = [code for info, code in blocks(ROOT / "README.md") if "no-run" not in info]
    assert "haiku" in first
    for code in rest:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


def test_the_readme_begins_with_what_a_newcomer_needs():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert any("pip install" in line for line in lines[:10])
    assert any(line.startswith("success [") for line in lines[:30])


def test_every_file_that_the_map_names_is_there():
    named = set(re.findall(r"\b[\w/]+\.py\b", (ROOT / "docs/map.md").read_text()))
    missing = [
        name
        for name in named
        if not (ROOT / "src/geminorum" / name).exists() and not (ROOT / name).exists()
    ]
    assert missing == []


def test_every_link_between_the_pages_leads_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.gemini_cli
def test_the_demo_shows_a_whole_run_and_says_that_the_model_is_simulated(real_cli_door):
    done = subprocess.run(
        [sys.executable, ROOT / "examples/demo.py"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for part in ("SIMULATED", "write_file", "cat haiku.txt", "tokens", "cost", "session"):
        assert part in done.stdout
