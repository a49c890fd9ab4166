"""Folders for embedded databases, processes that use them, and a look at what runs."""

import fcntl
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

import geminorum

IS_ROOT = os.geteuid() == 0
SOURCE = Path(geminorum.__file__).parents[1]
WAIT_SECONDS = 120.0

UNNEEDED_OF_PYTHON = (
    "test",
    "site-packages",
    "idlelib",
    "config-*",
    "*.a",
    "include",
    "share",
    "tkinter",
)
_USER = """
import json, resource, sys
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[2])
from geminorum.errors import SetupError
from geminorum.fleet.embedded import embedded_postgres
if limit := int(sys.argv[3]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    with embedded_postgres(Path(sys.argv[1]) if sys.argv[1] else None) as url:
        print(json.dumps({"url": url}), flush=True)
        sys.stdin.read()
except SetupError as error:
    print(json.dumps({"error": str(error)}), flush=True)
"""


class User:
    """A process of its own that uses a database until it leaves, or is killed."""

    def __init__(self, folder, path=(SOURCE,), python=(sys.executable,), limit=0, **how):
        words = [str(folder or ""), json.dumps([*map(str, path)]), str(limit)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([*python, "-c", _USER, *words], **pipes, **how)
        self._said = None

    def _hear(self) -> dict[str, str]:
        if self._said is None:
            self._said = json.loads(self.process.stdout.readline() or "{}")
        return self._said

    @property
    def url(self) -> str:
        assert "url" in self._hear(), self._said
        return self._said["url"]

    @property
    def error(self) -> str:
        assert "error" in self._hear(), self._said
        return self._said["error"]

    def has_entered(self) -> bool:
        return self._said is not None or bool(_is_readable(self.process.stdout))

    def leave(self) -> None:
        self.process.communicate(timeout=WAIT_SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.leave()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leave()


def _is_readable(file) -> list[object]:
    import select

    return select.select([file], [], [], 0)[0]


@contextmanager
def open_place(parent: Path = Path("/tmp")) -> Iterator[Path]:
    """A folder to make folders in, which the account of root's server may pass through; at its end
    no server may be left in it."""
    place = Path(tempfile.mkdtemp(prefix="gem-", dir=parent))
    if IS_ROOT:
        place.chmod(0o711)
    try:
        yield place
        for lock in place.rglob("guardian"):
            await_end(lock.parent)
    finally:
        for lock in place.rglob("guardian"):
            stop(lock.parent)
        shutil.rmtree(place)


def await_that(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_guarded(folder: Path) -> bool:
    lock = os.open(folder / "guardian", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def await_end(folder: Path) -> None:
    """Of the guardian, and of all that has the folder's files open."""
    await_that(lambda: not is_guarded(folder))
    await_that(lambda: not servers_of(folder))


def stop(folder: Path) -> None:
    """What a failed test leaves."""
    if is_guarded(folder):
        os.kill(guardian_of(folder), 9)
    for pid in servers_of(folder):
        os.kill(pid, 9)


def guardian_of(folder: Path) -> int:
    return int((folder / "guardian").read_text())


def postmaster_of(folder: Path) -> int:
    return int((folder / "server/data/postmaster.pid").read_text().splitlines()[0])


def servers_of(folder: Path) -> list[int]:
    """Every process that works in its data folder."""
    data, found = str(folder / "server/data"), []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str((entry / "cwd").readlink()) == data:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def environment_of(pid: int) -> bytes:
    """Nothing of a process that has ended: PostgreSQL starts helpers that live for a moment."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def query(url: str, *statements: str):
    """The rows of the last statement."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursors = [connection.execute(each) for each in statements]
        return cursors[-1].fetchall() if cursors[-1].description else None


def query_when_back(url: str, statement: str):
    """The same of a server that is being started again."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return query(url, statement)
        except psycopg.OperationalError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def copy_of(folder: Path, into: Path) -> Path:
    """With all owners and modes."""
    subprocess.run(["cp", "-a", folder, into], check=True)
    return into


def fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns where there are threads, as pytest-xdist has: the forks here need none.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def as_nobody() -> dict[str, object]:
    found = pwd.getpwnam("nobody")
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


def everybodys(path: Path, place: Path, unneeded: Sequence[str] = ()) -> Path:
    """The same where every account can read it: a copy, if it is in a folder of root's own."""
    # By its whole path, and not by PATH, which may be a folder of root's own, too.
    probe = subprocess.run(["/bin/ls", path], capture_output=True, cwd="/", **as_nobody())
    if probe.returncode == 0:
        return path
    copies = place / "everybodys"  # To import from a folder, one has to list it.
    copies.mkdir(exist_ok=True)
    copies.chmod(0o755)
    ignore = shutil.ignore_patterns(*unneeded)
    return shutil.copytree(path, copies / path.name, symlinks=True, ignore=ignore)
