"""Programs in C that play the CLI: in Python, one would take 30 ms to start and measure itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def compiled(source: str, folder: Path) -> Path:
    """A program in a folder, from a file of ours."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("the stand-in is written in C: install a C compiler (`apt install gcc`)")
    program = folder / Path(source).stem
    subprocess.run([compiler, "-O2", "-o", program, Path(__file__).parent / source], check=True)
    return program
