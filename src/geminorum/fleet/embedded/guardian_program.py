"""The guardian of an embedded PostgreSQL: starts it, and ends it when nobody uses it any more.

It runs as a process of its own, in a session of its own, without the rest of the package. Users of
the database share a lock on the file `users`; once the guardian gets that lock for itself, nobody
is left, however the users ended. PostgreSQL dies with its guardian, also after kill -9.

Standard library only, and little of it: the first user waits for its start.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
import shutil
import signal
import socket
import stat
import struct
import sys
import tempfile
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

READY = b"ready"
"""What the guardian says to its first user when the database can be used; anything else that it
says is why it cannot."""
USERS, LOG = "users", "server.log"
"""Files in the folder: the lock that users share, and what PostgreSQL has to say."""
SERVER = "server"
"""The folder of the database, in the folder. It exists only as a whole: it is made under another
name. It has the files and folders that follow."""
DATA, PASSWORD, SOCKET_FOLDER = "data", "password", "socket-folder"
"""PostgreSQL's own folder, and our files: the password, and where the socket is."""
USER, DATABASE, PORT = "geminorum", "postgres", 5432
SOCKET = f".s.PGSQL.{PORT}"
LONGEST_SOCKET_PATH = 107
"""In bytes; the system's limit."""

_PR_SET_PDEATHSIG = 1
_PING_SECONDS, _PAUSE_SECONDS = 5.0, 0.02
_RETRY_SECONDS = 10.0
"""How long a killed server, or a killed initdb, may take to end."""
_RESTART_SECONDS = 60.0
"""How long a server that users wait for may be killed again and again while it starts."""
_PASSING = ("shared memory block", "postmaster.pid", "shutdown request")
"""In complaints about processes that a killed server has left; they end by themselves. And in the
last words of one that somebody has ended while it started."""
_LOG_CHECK_SECONDS, _LOG_MAX_BYTES, _LOG_KEPT_BYTES = 30.0, 1024 * 1024, 128 * 1024
_STOP = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))
"""How to end PostgreSQL, and the seconds that each way may take: fast, at once, by force."""
_CANNOT_CONNECT_NOW = b"\0C57P03\0"
"""In an error of a PostgreSQL that starts or ends."""
_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath}
_SETTINGS = {
    # Nothing but the socket, and that for nobody else.
    "listen_addresses": "",
    "port": PORT,
    "unix_socket_permissions": "0700",
    # Files of the data folder: what is in /dev/shm is open to each process of the same account.
    "dynamic_shared_memory_type": "mmap",
    "fsync": "on",
    "synchronous_commit": "on",
    "max_connections": 200,
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    # Fewer processes: what these do is not for a database of this size.
    "io_method": "sync",
    "max_logical_replication_workers": 0,
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Starts, ends and crashes. Errors of statements go to who sent them: they may hold prompts.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_checkpoints": "off",
    "logging_collector": "off",
    "cluster_name": "geminorum",
}

_libc = ctypes.CDLL(None)


class Failure(Exception):
    """Why there is no database; its text is for people."""


def main() -> None:
    """Words: the descriptor of the guardian's lock, the folder, the folder of the programs, the
    server's user and group (-1: ours), and folders where a socket with a short path may lie."""
    lock, folder, programs, uid, gid, *short_places = sys.argv[1:]
    os.set_inheritable(int(lock), False)
    # Nobody has to wait for our end: the process that was started ends at once.
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    _reset_signals()
    _note_pid(int(lock))
    guardian = Guardian(int(lock), folder, programs, (int(uid), int(gid)), short_places)
    try:
        guardian.guard()
    except (Failure, OSError) as error:
        _report(str(error).encode(errors="surrogateescape"))
        raise SystemExit(1) from error


def _reset_signals() -> None:
    """Whatever the first user made of its own: children inherit it."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, _leave)


def _leave(*_: object) -> NoReturn:
    raise SystemExit(0)


def _note_pid(lock: int) -> None:
    """In the lock's file, for people."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)


def _report(words: bytes) -> None:
    """To the first user, once."""
    try:
        os.write(1, words)
    except OSError:
        pass  # It has gone, or has heard enough.
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)


class Guardian:
    """One database, from its start to its end."""

    def __init__(
        self,
        lock: int,
        folder: str,
        programs: str,
        account: tuple[int, int],
        short_places: list[str],
    ) -> None:
        self._lock, self._folder, self._programs = lock, folder, programs
        self._uid, self._gid = account
        self._short_places = short_places
        self._server_folder = os.path.join(folder, SERVER)
        self._data = os.path.join(self._server_folder, DATA)
        self._log = _open_log(os.path.join(folder, LOG))
        self._users = os.open(os.path.join(folder, USERS), os.O_RDONLY | os.O_NOFOLLOW)
        self._socket_folder = ""
        self._server = 0

    def guard(self) -> None:
        if not os.path.lexists(self._server_folder):
            self._make_database()
        self._socket_folder = self._find_or_make_socket_folder()
        try:
            self._start_server()
            _report(READY)
            self._wait_for_last_user()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._stop_server()
            shutil.rmtree(self._socket_folder, ignore_errors=True)

    def _wait_for_last_user(self) -> None:
        """Returns with the users' lock; the next user waits for it until we have ended."""
        watcher = self._watch_users()
        while True:
            pid, status = os.wait()
            if pid == self._server:
                self._server = 0
                self._start_server(_RESTART_SECONDS)
            elif pid == watcher and status == 0:
                return
            elif pid == watcher:
                watcher = self._watch_users()

    def _watch_users(self) -> int:
        """A process that ends when it has the users' lock, which then is ours, too: it waits for
        that with the descriptor that it has from us."""
        guardian = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            os.close(self._lock)
            _die_with(guardian, signal.SIGKILL)
            fcntl.flock(self._users, fcntl.LOCK_EX)
            os._exit(0)
        finally:
            os._exit(1)

    # The database

    def _make_database(self) -> None:
        """Under another name, so that half a database is never taken for one."""
        for name in os.listdir(self._folder):
            if name.startswith("new-"):  # From a guardian that was killed.
                _remove_tree(os.path.join(self._folder, name))
        new = tempfile.mkdtemp(prefix="new-", dir=self._folder)
        try:
            self._let_server_enter(new, 0o710)
            password = secrets.token_urlsafe(24)
            _write_file(os.path.join(new, PASSWORD), password)
            self._run_initdb(new, password)
            _sync(new)
            os.rename(new, self._server_folder)
            _sync(self._folder)
        except BaseException:
            _remove_tree(new)
            raise

    def _let_server_enter(self, folder: str, mode: int) -> None:
        """Of a folder that we have just made, where the server has an account of its own."""
        if self._uid >= 0:
            os.chown(folder, -1, self._gid)
            os.chmod(folder, mode)

    def _give_to_server(self, path: str) -> None:
        if self._uid >= 0:
            os.chown(path, self._uid, self._gid)

    def _run_initdb(self, new: str, password: str) -> None:
        data, told = os.path.join(new, DATA), os.path.join(new, "told")
        os.mkdir(data, 0o700)
        _write_file(told, password)
        for path in (data, told):
            self._give_to_server(path)
        began = os.fstat(self._log).st_size
        how = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions"]
        whom = [f"--username={USER}", f"--pwfile={told}"]
        pid = self._spawn("initdb", "-D", data, *how, *whom)
        _, status = os.waitpid(pid, 0)
        os.unlink(told)
        if status:
            raise Failure(f"initdb failed: {self._last_words(began, status)}")

    def _last_words(self, began: int, status: int) -> str:
        """Of a program that wrote to the log."""
        with open(os.path.join(self._folder, LOG), "rb") as log:
            log.seek(max(began, os.fstat(self._log).st_size - 2000))
            words = log.read().decode(errors="replace").strip()
        return words or f"it ended with {os.waitstatus_to_exitcode(status)}"

    # Where the socket is

    def _find_or_make_socket_folder(self) -> str:
        kept = socket_folder_in(self._folder)
        if kept is not None:  # From a guardian that was killed; its users know it.
            return kept
        made = self._make_socket_folder()
        self._let_server_enter(made, 0o770)
        remembered = os.path.join(self._server_folder, SOCKET_FOLDER)
        _write_file(f"{remembered}.new", f"{_identity(self._server_folder)}\n{made}")
        os.replace(f"{remembered}.new", remembered)
        return made

    def _make_socket_folder(self) -> str:
        """In the folder, or, where its path would not do, in a place for such."""
        near = os.path.join(self._server_folder, "socket")
        if _is_fit_for_socket(near):
            shutil.rmtree(near, ignore_errors=True)
            os.mkdir(near, 0o700)
            return near
        for place in self._short_places:
            if _is_fit_for_socket(os.path.join(place, "geminorum-" + 8 * "x")):
                return tempfile.mkdtemp(prefix="geminorum-", dir=place)
        raise Failure("no place for the socket: each path is too long, or has a comma in it")

    # The server

    def _start_server(self, seconds: float = _RETRY_SECONDS) -> None:
        """Tries again for so long, if what is in its way passes."""
        deadline = time.monotonic() + seconds
        self._end_server_of_another()
        while True:
            self._remove_remains()
            began = os.fstat(self._log).st_size
            self._server = self._spawn("postgres", "-D", self._data, *self._settings())
            status = self._wait_until_ready()
            if status is None:
                return
            words = self._last_words(began, status)
            is_passing = os.WIFSIGNALED(status) or any(each in words for each in _PASSING)
            if time.monotonic() > deadline or not is_passing:
                raise Failure(f"PostgreSQL did not start: {words}")
            time.sleep(_PAUSE_SECONDS * 10)

    def _settings(self) -> list[str]:
        # A list, in which commas and quotes have a meaning.
        where = '"{}"'.format(self._socket_folder.replace('"', '""'))
        settings = {**_SETTINGS, "unix_socket_directories": where}
        return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]

    def _wait_until_ready(self) -> int | None:
        """None when it is; the status with which it ended instead."""
        path = os.path.join(self._socket_folder, SOCKET)
        while not is_answering(path):
            pid, status = os.waitpid(self._server, os.WNOHANG)
            if pid:
                self._server = 0
                return status
            time.sleep(_PAUSE_SECONDS)
        return None

    def _stop_server(self) -> None:
        for number, seconds in _STOP:
            if self._server:
                os.kill(self._server, number)
                self._wait_for_end(seconds)

    def _wait_for_end(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if os.waitpid(self._server, os.WNOHANG)[0]:
                self._server = 0
                return
            time.sleep(_PAUSE_SECONDS / 4)

    def _end_server_of_another(self) -> None:
        """Ends a server whose guardian was killed. We have the lock: there will not be a second."""
        deadline = time.monotonic() + _RETRY_SECONDS
        # It ends by itself, unless somebody has stopped it, or the system did not tell it.
        while (old := self._read_pid()) and self._is_server(old):
            is_late = time.monotonic() > deadline
            try:
                os.kill(old, signal.SIGKILL if is_late else signal.SIGQUIT)
                os.kill(old, signal.SIGCONT)
            except ProcessLookupError:
                break
            time.sleep(_PAUSE_SECONDS)
        if old:
            self._note_own_pid()

    def _remove_remains(self) -> None:
        """What a killed server has left and the next one would not pass over: its socket, and locks
        that it had made, but not filled yet. No server is in this folder now."""
        for name in (SOCKET, f"{SOCKET}.lock"):
            _remove_file(os.path.join(self._socket_folder, name))
        note = os.path.join(self._data, "postmaster.pid")
        try:
            if os.stat(note, follow_symlinks=False).st_size == 0:
                os.unlink(note)
        except OSError:
            pass  # There is none.

    def _read_pid(self) -> int:
        """The process that the data folder names; 0: none."""
        try:
            with open(self._open_note(os.O_RDONLY), "rb") as file:
                return int(file.readline(20))
        except (OSError, ValueError):
            return 0

    def _note_own_pid(self) -> None:
        """After a crash of the machine, the number may be that of any process of the same user,
        which PostgreSQL would take for a server. It knows that its parent is none. Not removed: it
        looks there for processes that still use the memory of the server before."""
        try:
            with open(self._open_note(os.O_RDWR), "r+b") as file:
                rest = file.read(4096).partition(b"\n")[2]
                file.seek(0)
                file.write(b"%d\n%s" % (os.getpid(), rest))
                file.truncate()
        except OSError:
            pass  # It is gone.

    def _open_note(self, how: int) -> int:
        """Of a folder in which the server may write, so it need not be the file that it should."""
        path = os.path.join(self._data, "postmaster.pid")
        fd = os.open(path, how | os.O_NOFOLLOW | os.O_NONBLOCK)
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return fd
        os.close(fd)
        raise OSError(f"{path} is no file of its own")

    def _is_server(self, pid: int) -> bool:
        uid = os.geteuid() if self._uid < 0 else self._uid
        return _process(pid) == (uid, self._data)

    def _spawn(self, program: str, *words: str) -> int:
        guardian, path = os.getpid(), os.path.join(self._programs, program)
        pid = os.fork()
        if pid:
            return pid
        try:
            if self._uid >= 0:
                # The group is the server's alone, and no other process of the account has it: so
                # these can neither follow it into its folders nor look into it.
                os.setgroups([])
                os.setgid(self._gid)
                os.setuid(self._uid)
            # After the change of the account, which would undo it.
            _die_with(guardian, signal.SIGQUIT)
            nothing = os.open(os.devnull, os.O_RDWR)
            for number, fd in enumerate((nothing, nothing, self._log)):
                os.dup2(fd, number)
            os.execve(path, [path, *words], _ENVIRONMENT)  # nosec B606
        except OSError as error:
            os.write(self._log, f"{path}: {error}\n".encode(errors="surrogateescape"))
        finally:
            os._exit(127)


def socket_folder_in(folder: str) -> str | None:
    """Where the socket of the folder's server is, if anywhere: a folder that only we and the
    server may enter. Anybody can make another in its place once a temporary folder was cleaned."""
    server_folder = os.path.join(folder, SERVER)
    try:
        with open(os.path.join(server_folder, SOCKET_FOLDER), errors="surrogateescape") as file:
            identity, _, path = file.read().partition("\n")
        found, group = os.lstat(path), os.stat(server_folder).st_gid
    except (FileNotFoundError, NotADirectoryError):
        return None
    # A copy of a folder has the path of the original's.
    is_ours = found.st_uid == os.geteuid() and identity == _identity(server_folder)
    closed, with_group = (0o770, {group}) if os.geteuid() == 0 else (0o700, {group, found.st_gid})
    is_closed = found.st_mode == stat.S_IFDIR | closed and found.st_gid in with_group
    return path if is_ours and is_closed else None


def _identity(folder: str) -> str:
    found = os.stat(folder)
    return f"{found.st_dev} {found.st_ino}"


def is_answering(path: str) -> bool:
    """Whether a PostgreSQL at this socket lets users log in: it asks for a password, or has no
    connection left."""
    words = f"user\0{USER}\0database\0{DATABASE}\0\0".encode()
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_PING_SECONDS)
        try:
            line.connect(path)
            line.sendall(struct.pack("!ii", 8 + len(words), 3 << 16) + words)
            answer = line.recv(1024)
        except OSError:
            return False
    return answer[:1] == b"R" or (answer[:1] == b"E" and _CANNOT_CONNECT_NOW not in answer)


def _is_fit_for_socket(folder: str) -> bool:
    """Clients take a comma in the path for the end of it."""
    path = os.fsencode(os.path.join(folder, SOCKET))
    return len(path) <= LONGEST_SOCKET_PATH and b"," not in path


def _open_log(path: str) -> int:
    """The log, which from now on is cut now and then; also what Python says about us goes there."""
    log = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    os.dup2(log, 2)

    def cut(*_: object) -> None:
        size = os.fstat(log).st_size
        if size > _LOG_MAX_BYTES:
            kept = os.pread(log, _LOG_KEPT_BYTES, size - _LOG_KEPT_BYTES)
            os.ftruncate(log, 0)
            os.write(log, kept)

    cut()
    signal.signal(signal.SIGALRM, cut)
    signal.setitimer(signal.ITIMER_REAL, _LOG_CHECK_SECONDS, _LOG_CHECK_SECONDS)
    return log


def _die_with(parent: int, number: int) -> None:
    """Lets the system send us this signal when the parent dies; not every system can."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def _process(pid: int) -> tuple[int, str]:
    """The user of a process, and the data folder in its command line as `_spawn` makes it."""
    try:
        if sys.platform == "linux":
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                uid, command = os.fstat(file.fileno()).st_uid, file.read().split(b"\0")
                return uid, os.fsdecode(command[2] if command[1:2] == [b"-D"] else b"")
        with os.popen(f"/bin/ps -ww -o uid= -o command= -p {pid}") as answer:  # nosec B605
            uid_word, _, line = answer.read().strip().partition(" ")
        return int(uid_word), line.partition(" -D ")[2].partition(" -c ")[0]
    except (OSError, ValueError):
        return -1, ""


def _remove_file(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _remove_tree(path: str) -> None:
    """Also one in which a child of a killed initdb still writes: it ends by itself."""
    deadline = time.monotonic() + _RETRY_SECONDS
    while os.path.lexists(path) and time.monotonic() < deadline:
        shutil.rmtree(path, ignore_errors=True)
        if os.path.lexists(path):
            time.sleep(_PAUSE_SECONDS)


def _write_file(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(fd, "w", errors="surrogateescape") as file:
        file.write(text)
        file.flush()
        os.fsync(fd)


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


if __name__ == "__main__":
    main()
