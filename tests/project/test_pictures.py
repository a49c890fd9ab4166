"""The README's pictures show what the command and the export show today."""

import importlib.util
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

PICTURES = Path(__file__).resolve().parents[2] / "docs/pictures"
LARGEST = 60_000
"""Bytes; a README should load at once."""


@pytest.fixture(scope="module")
def draw():
    spec = importlib.util.spec_from_file_location("draw", PICTURES / "draw.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(svg: str) -> list[str]:
    """The text of a drawn terminal, row by row, without its indentation."""
    rows: dict[float, str] = {}
    for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        row = float(text.get("y", "0"))
        rows[row] = rows.get(row, "") + (text.text or "").replace("\N{NO-BREAK SPACE}", " ")
    return [rows[row].strip() for row in sorted(rows)]


def test_the_picture_of_a_run_shows_what_the_command_prints_for_the_recording(draw):
    assert lines(draw.run_picture()) == lines((PICTURES / "run.svg").read_text())


def test_the_picture_of_a_run_shows_the_command_the_diff_the_refusal_and_the_cost(draw):
    shown = lines(draw.run_picture())
    command = f'$ geminorum run "{draw.PROMPT}" --policy {draw.POLICY}'
    for line in (command, "✓ replace circle.py", "+    return pi * r * r", "wrote circle.py"):
        assert line in shown
    assert "⊘ run_shell_command refused git push" in shown
    assert any(line.startswith("✓ done · gemini-2.5-flash") and "$" in line for line in shown)


def test_the_recording_can_be_exported(draw):
    page = draw.export_page()
    assert draw.PROMPT in page
    assert "return pi * r * r" in page


@pytest.mark.parametrize("name", ["run.svg", "export.png", "web-run.png"])
def test_a_picture_is_small(name):
    assert 1_000 < (PICTURES / name).stat().st_size < LARGEST


def test_the_pictures_load_nothing_and_name_no_real_folder():
    svg = (PICTURES / "run.svg").read_text().replace("http://www.w3.org/2000/svg", "")
    assert "http" not in svg
    recording = (PICTURES / "run.jsonl").read_text()
    assert "/tmp/" not in recording
    assert json.loads(recording.splitlines()[0])["cwd"] == "/home/ada/geometry"
