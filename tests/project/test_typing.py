"""Both type checkers read every block of the pages and every example, and know the API's types."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from typed_pages import write_modules

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
ENGINES = str(ROOT / "tests" / "engines")
"""A page plugs us into an engine."""
API_TYPES = ROOT / "tests" / "api_types.py"


@pytest.fixture
def modules(tmp_path) -> list[str]:
    """The blocks as files, the examples, and what we promise about types."""
    blocks = [file for page in PAGES for file in write_modules(page, tmp_path)]
    assert len(blocks) > 60
    return [str(file) for file in (tmp_path, ROOT / "examples", API_TYPES)]


def test_mypy_strict_accepts_every_block_and_example(modules):
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--warn-unused-ignores"]
    assert _complaints("mypy", *config, *modules) == ""


def test_pyright_accepts_every_block_and_example(modules):
    python = ["--pythonpath", sys.executable, "--level", "error"]
    assert _complaints("pyright", *python, *modules) == ""


def test_a_block_is_checked_with_the_names_of_those_above_it(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n```python\nimport asyncio\nimport json\n\nwait, spare = 1, 2\n```\n\n"
        "```python\nawait asyncio.sleep(wait)\n```\n"
    )
    _first, second = write_modules(page, tmp_path)
    assert second.name == "page_line_11.py"
    assert second.read_text() == (
        "async def main() -> None:\n"
        "    import asyncio\n"
        "    wait, spare = (1, 2)\n"
        "    # ---- the block\n"
        "    await asyncio.sleep(wait)\n"
    )


def _complaints(checker: str, *arguments: str) -> str:
    """What the checker has against the files; empty where they pass."""
    command = [sys.executable, "-m", checker, *arguments]
    env = os.environ | {"MYPYPATH": ENGINES, "PYTHONPATH": ENGINES}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    return "" if done.returncode == 0 else done.stdout + done.stderr
