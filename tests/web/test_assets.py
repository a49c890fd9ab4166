"""What browsers get: small, complete, with licences, and from nowhere else."""

import re
from pathlib import Path

from geminorum.apps import web

STATIC = Path(web.__file__).parent / "static"
TEMPLATES = Path(web.__file__).parent / "templates"
MAX_BYTES = 150_000


def test_all_of_it_is_small():
    assert sum(file.stat().st_size for file in STATIC.iterdir()) < MAX_BYTES


def test_what_others_wrote_has_its_licence_beside_it():
    assert "Zero-Clause BSD" in (STATIC / "htmx.LICENSE.txt").read_text()


def test_nothing_of_ours_is_loaded_from_elsewhere():
    ours = [*TEMPLATES.rglob("*.html"), STATIC / "page.css", STATIC / "page.js"]
    assert [file.name for file in ours if re.search(r"(https?:)?//\w+\.\w", file.read_text())] == []


def test_no_template_has_a_script_a_style_or_markup_that_is_not_escaped():
    for file in TEMPLATES.rglob("*.html"):
        text = file.read_text()
        assert not re.search(r"<style|\sstyle=|\son\w+=|hx-on|\|\s*safe|autoescape", text), file
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text)), file
