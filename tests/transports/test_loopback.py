"""The server of a run on loopback: what is odd, foreign or idle gets nothing and is closed."""

import asyncio
import select
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from geminorum import Tool
from geminorum.transports.callbacks import loopback
from geminorum.transports.callbacks.grants import Grants
from geminorum.transports.callbacks.loopback import Loopback
from geminorum.transports.callbacks.tool_server import ToolServer, to_served

BODY = b'{"id":1}'


class Heard:
    """A handler that remembers what it was asked."""

    def __init__(self, pause: float = 0.0) -> None:
        self.bodies: list[bytes] = []
        self._pause = pause

    async def answer(self, body: bytes) -> bytes:
        self.bodies.append(body)
        await asyncio.sleep(self._pause)
        return b"{}"


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
async def server(heard) -> AsyncIterator[Loopback]:
    async with Loopback({"/mcp": heard.answer, "/decide": heard.answer}) as server:
        yield server


async def sent(server: Loopback, *parts: bytes) -> bytes:
    """All that the server says until it closes the connection, which it has to do."""
    return await asyncio.to_thread(_exchanged, server.port, b"".join(parts))


def _exchanged(port: int, request: bytes) -> bytes:
    # A plain socket: it still has what was said before a connection was reset.
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(request)
        told = b""
        with suppress(ConnectionResetError):
            while part := client.recv(65536):
                told += part
        return told


def head(server: Loopback, *lines: str, leave_out: str = "", path: str = "/mcp") -> bytes:
    """The head of a request as the CLI writes it, with other lines, without some."""
    usual = {
        "host": f"Host: 127.0.0.1:{server.port}",
        "authorization": f"Authorization: Bearer {server.token_for('/mcp')}",
        "content-length": f"Content-Length: {len(BODY)}",
        "connection": "Connection: close",
    }
    usual.pop(leave_out, None)
    return "\r\n".join([f"POST {path} HTTP/1.1", *usual.values(), *lines, "", ""]).encode("latin-1")


async def test_a_request_as_the_cli_makes_it_is_answered(server, heard):
    assert (await sent(server, head(server), BODY)).startswith(b"HTTP/1.1 200 OK")
    assert heard.bodies == [BODY]


@pytest.mark.parametrize(
    ("instead_of", "lines", "status"),
    [
        ("", ["Content-Length: 8"], b"400"),
        ("", ["content-length: 3"], b"400"),
        ("", ["Host: 127.0.0.1"], b"400"),
        ("", ["Authorization: Bearer other"], b"400"),
        ("", ["Transfer-Encoding: chunked"], b"400"),
        ("", ["X-Folded: a", " b"], b"400"),
        ("", ["X-Spaced : a"], b"400"),
        ("", ["X-Bare: a\nContent-Length: 3"], b"400"),
        ("", ["nothing"], b"400"),
        ("content-length", ["Content-Length: -8"], b"400"),
        ("content-length", ["Content-Length: +8"], b"400"),
        ("content-length", ["Content-Length: 0_8"], b"400"),
        ("content-length", ["Content-Length: 8, 8"], b"400"),
        ("content-length", ["Content-Length: 67108865"], b"413"),
        ("host", [], b"403"),
        ("host", ["Host: evil.example"], b"403"),
        ("host", ["Host: 127.0.0.1"], b"403"),
        ("host", ["Host: localhost:1"], b"403"),
        ("authorization", [], b"401"),
    ],
)
async def test_an_odd_or_foreign_request_is_refused_and_its_connection_closed(
    server, heard, instead_of, lines, status
):
    told = await sent(server, head(server, *lines, leave_out=instead_of), BODY)
    assert told.startswith(b"HTTP/1.1 " + status)
    assert told.count(b"HTTP/1.1") == 1
    assert heard.bodies == []


async def test_the_token_of_one_path_opens_no_other(server, heard):
    told = await sent(server, head(server, path="/decide"), BODY)
    assert told.startswith(b"HTTP/1.1 401")
    assert (await sent(server, head(server, path="/else"), BODY)).startswith(b"HTTP/1.1 404")
    assert heard.bodies == []


async def test_who_says_nothing_half_or_nothing_more_is_closed(heard):
    async with Loopback({"/mcp": heard.answer}, idle=0.05) as server:
        whole = head(server, leave_out="connection")
        assert await sent(server) == b""
        assert await sent(server, whole[:20]) == b""
        assert await sent(server, whole, BODY[:3]) == b""
        assert (await sent(server, whole, BODY)).startswith(b"HTTP/1.1 200")
    assert heard.bodies == [BODY]


async def test_who_waits_for_an_answer_is_not_idle():
    slow = Heard(pause=0.3)
    async with Loopback({"/mcp": slow.answer}, idle=0.05) as server:
        assert (await sent(server, head(server), BODY)).startswith(b"HTTP/1.1 200")


class TestGrants:
    """What an allowed question leaves behind."""

    async def test_a_yes_lets_one_call_run_with_exactly_its_arguments(self):
        grants = Grants(["pay"])
        grants.leave("pay", {"amount": 1, "to": "Ada"})
        for other in ({"amount": 1.0, "to": "Ada"}, {"amount": True, "to": "Ada"}, {"amount": 1}):
            assert await grants.consume("pay", other) is not None
        assert await grants.consume("pay", {"to": "Ada", "amount": 1}) is None
        assert await grants.consume("pay", {"to": "Ada", "amount": 1}) is not None

    async def test_equal_calls_at_once_need_a_yes_each(self):
        grants = Grants(["pay"])
        grants.leave("pay", {})
        grants.leave("pay", {})
        told = await asyncio.gather(*(grants.consume("pay", {}) for _ in range(3)))
        assert [why is None for why in told].count(True) == 2

    async def test_what_nobody_is_asked_about_needs_none(self):
        assert await Grants(["pay"]).consume("look", {}) is None

    async def test_a_yes_ends_with_its_turn(self):
        grants = Grants(["pay"])
        grants.leave("pay", {})
        grants.revoke()
        assert await grants.consume("pay", {}) is not None

    async def test_a_question_without_arguments_is_asked_at_the_call_that_has_them(self):
        seen, grants = [], Grants(["pay"])

        async def ask(arguments) -> str | None:
            seen.append(arguments)
            return "not that"

        grants.postpone("pay", ask)
        assert await grants.consume("pay", {"amount": 5}) == "not that"
        assert seen == [{"amount": 5}]
        assert "nobody has allowed" in str(await grants.consume("pay", {"amount": 5}))

    async def test_the_argument_that_the_cli_adds_changes_no_call(self):
        paid = []

        def pay(amount: int) -> None:
            paid.append(amount)

        tools = ToolServer([to_served(Tool.of(pay))], asked=["pay"])
        tools.allow_once("pay", {"amount": 5, "wait_for_previous": True})
        call = b'{"id":1,"method":"tools/call","params":{"name":"pay","arguments":{"amount":5}}}'
        for _ in range(2):
            await tools.answer(call)
        assert paid == [5]


def test_a_header_of_spaces_is_read_by_the_letter():
    """Whoever connects can send one, before any token is looked at."""
    odd = b"POST /mcp HTTP/1.1\r\nx:" + b" " * 60_000 + b"\n\r\n\r\n"
    with pytest.raises(loopback._Refused):
        loopback._parsed(odd)
    plain = loopback._parsed(b"POST /mcp HTTP/1.1\r\nHost: \t a b \r\n\r\n")
    assert plain.headers == {"host": "a b"}


async def test_strangers_do_not_use_up_the_descriptors_of_this_process():
    """Another user of the machine opens connections and says nothing; who has a token is served."""

    async def answer(body: bytes) -> bytes:
        return b"{}"

    async with Loopback({"/mcp": answer}) as server:
        # All at once, before the server has looked at the first of them.
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = f"Host: {server.host}\r\nAuthorization: Bearer {server.token_for('/mcp')}\r\n"
        writer.write(f"POST /mcp HTTP/1.1\r\n{head}Content-Length: 0\r\n\r\n".encode())
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.close()
        closed = [one for one in silent if select.select([one], [], [], 0)[0]]
        assert closed == silent[:37]
        for one in silent:
            one.close()
