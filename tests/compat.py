"""`make test-compat`: the API transport's tests on several versions of Google's SDK.

Each version gets an environment of its own, with and without aiohttp, which the SDK would use if
it found it. Prints one line for each; exits with 1 if any fails.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SDKS = {"2.30": "==2.30.*", "2.34": "==2.34.*", "newest": ">=3,<4"}
TESTS = [
    "transports/test_api.py",
    "transports/test_api_readings.py",
    "contracts/test_contract_provider_adapter.py",
]
if (ROOT.parent / "shared/fixtures").is_dir():
    TESTS.append("other_projects/test_genai_answers.py")
TOOLS = ("pytest>=9.0", "pytest-asyncio>=1.2", "pytest-xdist>=3.8", "hypothesis>=6.150")


def main() -> int:
    names = [(name, extra) for name in SDKS for extra in ("", "aiohttp")]
    return max(_checked(name, extra) for name, extra in names)


def _checked(name: str, extra: str) -> int:
    python = _environment(name, extra)
    code = "import google.genai; print(google.genai.__version__)"
    version = _output([python, "-c", code]).strip()
    label = f"google-genai {version}{' with ' + extra if extra else ''}"
    left = json.loads(_output([python, "-W", "error", "tests/api_break.py"], silent=True))
    files = [f"tests/{name}" for name in TESTS]
    # The one test that needs the CLI is about the CLI as well, and runs in `make test`.
    command = [python, "-m", "pytest", "-q", "-n", "2", "-m", "not gemini_cli", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    last = (re.findall(r"^.*(?:passed|failed|error).*$", done.stdout, re.M) or ["?"])[-1]
    sys.stdout.write(f"{label:<36} {last.strip('= ')}; closed after {left['seconds']} s\n")
    sys.stdout.write(done.stdout if done.returncode else "")
    sys.stdout.flush()
    return done.returncode


def _environment(name: str, extra: str) -> str:
    folder = ROOT / ".venv-compat" / f"{name}{'-' + extra if extra else ''}"
    python = str(folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))
    made = folder / ".made"
    if not made.exists():
        venv.create(folder, with_pip=True)
        wanted = [f"google-genai{SDKS[name]}", *TOOLS, "--editable", "."]
        quiet = ["--quiet", "--disable-pip-version-check"]
        _output([python, "-m", "pip", "install", *quiet, *wanted, *([extra] if extra else [])])
        made.touch()
    return python


def _output(command: list[str], *, silent: bool = False) -> str:
    """What it prints. `silent`: a word on stderr is a failure."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode or (silent and done.stderr):
        sys.stdout.write(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        sys.exit(done.returncode or 1)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
