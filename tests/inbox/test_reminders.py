"""People are told that somebody waits for them: by a program of theirs, or at a web address."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

import psutil
import pytest
from inbox_parts import SHELL, WAIT_SECONDS, asked, asking, conversation, leave_questions

from geminorum import Allow
from geminorum.errors import InvalidOptions
from geminorum.inbox import Inbox

COPY = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "inbox.db"


async def until(happened):
    async with asyncio.timeout(WAIT_SECONDS):
        while not happened():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def server(answer: bytes):
    """A web server on loopback; yields its address, and the requests that came."""
    seen = []

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length"))
        seen.append((head.decode(), json.loads(await reader.readexactly(int(length.split()[1])))))
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/hook?token=x", seen


async def test_a_program_gets_the_question_when_it_is_asked_and_again(path, tmp_path):
    """Its words are no shell's."""
    log = tmp_path / "log; touch made"
    remind = [sys.executable, "-c", COPY, str(log)]
    inbox = Inbox(path, remind=remind, remind_every=0.05)
    async with asking(conversation(inbox), SHELL):
        await until(lambda: log.exists() and log.read_text().count("\n") >= 2)
        (question,) = await asked(inbox)
    told = json.loads(log.read_text().splitlines()[0])
    assert (told["id"], told["command"], told["state"]) == (question.id, "rm -r build", "open")
    assert not (tmp_path / "made").exists()


async def test_a_web_address_gets_the_question(path):
    async with server(b"HTTP/1.1 204 No Content\r\n\r\n") as (url, seen):
        inbox = Inbox(path, remind=url, remind_every=None)
        async with asking(conversation(inbox), SHELL):
            await until(lambda: seen)
    ((head, question),) = seen
    assert head.startswith("POST /hook?token=x HTTP/1.1\r\n")
    assert question["command"] == "rm -r build"


async def test_nobody_is_reminded_of_what_is_answered(path):
    await leave_questions(path, SHELL)
    (question,) = await Inbox(path).questions()
    await Inbox(path).answer(question.id, Allow())
    async with server(b"HTTP/1.1 200 OK\r\n\r\n") as (url, seen):
        assert await conversation(Inbox(path, remind=url)).ask(SHELL) == Allow()
    assert seen == []


async def test_a_reminder_follows_no_redirect_and_its_failure_is_only_logged(path, caplog):
    async with server(b"HTTP/1.1 200 OK\r\n\r\n") as (other, followed):
        moved = f"HTTP/1.1 302 Found\r\nLocation: {other}\r\n\r\n".encode()
        async with server(moved) as (url, seen):
            inbox = Inbox(path, remind=url, remind_every=0.05)
            async with asking(conversation(inbox), SHELL) as (task,):
                await until(lambda: len(seen) >= 2)
                (question,) = await asked(inbox)
                await inbox.answer(question.id, Allow())
                assert await task == Allow()
    assert followed == []
    assert "the address answered 302" in caplog.text
    assert "token" not in caplog.text


@pytest.mark.parametrize(
    "remind", ["http://127.0.0.1:1/", ["/no/such/program"], [sys.executable, "-c", "raise OSError"]]
)
async def test_a_reminder_that_fails_keeps_nobody_from_answering(path, remind, caplog):
    inbox = Inbox(path, remind=remind)
    async with asking(conversation(inbox), SHELL) as (task,):
        await until(lambda: "no reminder of question" in caplog.text)
        (question,) = await asked(inbox)
        await inbox.answer(question.id, Allow())
        assert await task == Allow()


async def test_a_program_that_does_not_end_is_ended_with_its_children(path, tmp_path, monkeypatch):
    monkeypatch.setattr("geminorum.inbox.reminders._SECONDS", 1.0)
    pids = tmp_path / "pids"
    remind = ["sh", "-c", f"sleep 1000 & echo $$ $! >> {pids}; sleep 1000"]
    inbox = Inbox(path, remind=remind, remind_every=None)
    async with asking(conversation(inbox), SHELL):
        await until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        started = [*map(int, pids.read_text().split())]
        await until(lambda: not any(map(psutil.pid_exists, started)))


async def test_a_reminder_ends_with_its_question(path, tmp_path):
    """Also if it is being sent: nothing is left of it."""
    pids = tmp_path / "pids"
    inbox = Inbox(path, remind=["sh", "-c", f"echo $$ > {pids}; sleep 1000"])
    async with asking(conversation(inbox), SHELL):
        await until(lambda: pids.exists() and pids.read_text().strip())
    assert not psutil.pid_exists(int(pids.read_text()))


@pytest.mark.parametrize(
    "remind",
    [
        *("notify-send", "ftp://host/", "http://", "https://user:password@host/", "http://a b/"),
        *("http://host/\r\nX-Other: 1", "http://höst/", "http://host:port/", [], [7], ["a\0b"]),
    ],
)
def test_what_cannot_be_reminded_by_is_refused(remind):
    with pytest.raises(InvalidOptions, match="remind") as caught:
        Inbox(remind=remind)
    assert "password@" not in str(caught.value)
