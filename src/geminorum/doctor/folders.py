"""Do the folders and files exist that a run reads and writes?"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from geminorum.doctor.finding import (
    Finding,
    check_of,
    fail,
    nearest_existing,
    ok,
    set_aside,
    to_utf8,
    warn,
    worst,
)
from geminorum.environment import home_of
from geminorum.hints import advice
from geminorum.options import Options
from geminorum.system.regular_file import read_bytes

StrPath = str | os.PathLike[str]


@check_of("cwd")
def cwd_check(cwd: StrPath | None = None) -> Finding:
    """Can an agent work in this folder? None: the current one."""
    folder = Path(cwd or ".").expanduser().absolute()
    quoted = shlex.quote(str(folder))
    if not folder.exists():
        return fail(f"{folder} is not there", f"mkdir -p {quoted}", "INVALID_OPTIONS")
    if not folder.is_dir():
        fix = advice("{Options.cwd=folder}", folder=str(folder.parent))
        return fail(f"{folder} is a file, not a folder", fix, "INVALID_OPTIONS")
    if not (os.access(folder, os.R_OK | os.X_OK) and _can_list(folder)):
        return fail(f"{folder} is not readable", f"chmod u+rx {quoted}", "INVALID_OPTIONS")
    if not (os.access(folder, os.W_OK) and _can_write(folder)):
        return warn(f"{folder} is readable, but not writable", f"chmod u+w {quoted}")
    return ok(str(folder))


# Permission bits do not tell everything: read-only and special file systems, quotas, and root.
def _can_list(folder: Path) -> bool:
    try:
        os.scandir(folder).close()
    except OSError:
        return False
    return True


def _can_write(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"geminorum")
            file.flush()
    except OSError:
        return False
    return True


@check_of("instructions")
def instructions_check(path: StrPath | None) -> Finding:
    """Is the agent's instructions file readable? None: there is none, which is fine."""
    if path is None:
        return ok("none asked for")
    file = Path(path).expanduser().absolute()
    if not file.exists():
        return fail(f"{file} is not there", _made(file), "INVALID_OPTIONS")
    if file.is_dir():
        return fail(f"{file} is a folder", f"ls {shlex.quote(str(file))}", "INVALID_OPTIONS")
    try:
        size = len(read_bytes(file).decode("utf-8"))
    except UnicodeDecodeError as error:
        return fail(f"{file} is not UTF-8: {error}", to_utf8(file), "INVALID_OPTIONS")
    except OSError as error:
        return fail(str(error), f"chmod u+r {shlex.quote(str(file))}", "INVALID_OPTIONS")
    return ok(f"{file}, {size} characters")


def _made(file: Path) -> str:
    parent = "" if file.parent.is_dir() else f"mkdir -p {shlex.quote(str(file.parent))} && "
    return f"{parent}touch {shlex.quote(str(file))}  # then write the instructions into it"


@check_of("state")
def state_check(options: Options, env: Mapping[str, str]) -> Finding:
    """Can the CLI store sessions in the home, and geminorum a folder for each run?"""
    home = home_of(options, env)
    stores = (home / ".gemini" / name for name in ("tmp", "history"))
    found = [finding for store in stores for finding in _store_problems(store, home)]
    well = ok(f"{home / '.gemini'} and the temporary folder can be written to")
    return worst([*found, *_scratch_problems()], well)


def _store_problems(store: Path, home: Path) -> Iterator[Finding]:
    there = nearest_existing(store)
    if not there.is_dir():
        yield fail(f"{there} should be a folder", _state_fix(there, home), "CONFIG")
    elif not os.access(there, os.W_OK | os.X_OK):
        yield fail(f"{there} cannot be written to", _state_fix(there, home), "CONFIG")


def _state_fix(there: Path, home: Path) -> str:
    # Nothing outside the home is ours to move about: there it may be /dev/null, or the root.
    if not there.is_relative_to(home / ".gemini"):
        return advice(
            "{Options.home=…}  # a folder that can be written to, other than {home}",
            home=str(home),
        )
    if not there.is_dir():
        return set_aside(there)
    mine = os.name != "posix" or there.stat().st_uid == os.getuid()
    quoted = shlex.quote(str(there))
    return f"chmod u+rwx {quoted}" if mine else f'sudo chown -R "$(id -u)" {quoted}'


def _scratch_problems() -> Iterator[Finding]:
    try:
        # Really written, since a full disk lets itself be opened.
        with tempfile.TemporaryFile() as file:
            file.write(b"geminorum" * 1024)
            file.flush()
    except OSError as error:
        fix = "export TMPDIR=~/tmp && mkdir -p ~/tmp"
        yield fail(f"the temporary folder cannot be used: {error}", fix, "CONFIG")
