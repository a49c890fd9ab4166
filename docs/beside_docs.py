"""Adds files outside docs/ to the site without copying them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
_SHOWN = {".csv", ".ipynb", ".md", ".py", ".toml"}
"""Suffixes of the example files; excludes the output of running them (`….labels.csv`)."""


def on_files(files: Any, config: Any) -> Any:
    """Adds the changelog, the examples page, and the scripts that it links to."""
    there = sorted((ROOT / "examples").iterdir())
    examples = [file for file in there if "".join(file.suffixes) in _SHOWN]
    for file in (ROOT / "CHANGELOG.md", *examples):
        name = file.relative_to(ROOT).as_posix()
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Removes docs/ from links: on the site its pages are at the top."""
    if page.file.src_dir != str(ROOT):
        return markdown
    return re.sub(r"\]\(((?:\.\./)*)docs/", r"](\1", markdown)
