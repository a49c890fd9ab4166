"""Without a network: what could not be reached, told at once, and an end in good time."""

import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

import pytest

from geminorum import Acp, Api, Cli, Error, Options, Pool, ask, run
from geminorum.errors import NetworkError
from geminorum.transports.launch.preloads.network_log import Incident, NetworkLog
from geminorum.transports.turns.network import NetworkWatch

TRANSPORTS = ("cli", "pool", "api")
KEY = {"GEMINI_API_KEY": "AIza-nobody"}


@pytest.fixture(params=TRANSPORTS)
def way_in(request, real_transport):
    """Every transport, as something to be entered: a pool is open only in its block."""

    def transport(stack: AsyncExitStack):
        program = {"executable": real_transport.executable}
        match request.param:
            case "cli":
                return Cli(**program)
            case "pool":
                return Pool(Acp(**program, grace=600), size=1, spare=False)
            case _:
                return Api()

    return transport


async def told(prompt, options, way_in):
    """The events of a run, and its result."""
    async with AsyncExitStack() as stack:
        transport = way_in(stack)
        if isinstance(transport, Pool):
            await stack.enter_async_context(transport)
        async with run(prompt, options, via=transport) as live:
            return [event async for event in live], live.result


def offline(tmp_path: Path, address: str, **more) -> Options:
    env = {**KEY, "GOOGLE_GEMINI_BASE_URL": address}
    given = {"model": "gemini-2.5-flash", "cwd": tmp_path, "timeout": 60, **more}
    return Options(env=env, **given)


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def deaf_port() -> Iterator[str]:
    """An address at which no connection comes about, and none is refused: its queue is full."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def retries(events) -> list[Error]:
    return [one for one in events if isinstance(one, Error) and one.recoverable]


@pytest.mark.parametrize("way_in", ["cli", "pool", "api"], indirect=True)
async def test_an_absent_network_is_a_retry_in_the_stream_and_a_network_error(way_in, tmp_path):
    """The turns of a pool are those of an `Acp`. Its process hears no cancel while it tries to
    reach the network, and is not waited for, however much grace it has."""
    address = closed_port()
    # Not less: on a busy machine, loading Google's SDK alone takes longer than a second.
    options = offline(tmp_path, address, network_timeout=5)
    async with asyncio.timeout(120):
        events, result = await told("Hi", options, way_in)
    assert {retry.code for retry in retries(events)} == {"NETWORK"}
    assert f"cannot reach {address}" in retries(events)[0].message
    assert result.status == "error"
    with pytest.raises(NetworkError, match=f"cannot reach {address}") as caught:
        result.raise_on_failure()
    assert caught.value.retryable


@pytest.mark.parametrize("kind", [Cli, Acp])
async def test_a_cli_that_gives_up_by_itself_says_the_same(kind, real_transport, tmp_path):
    """A name that nobody knows is named like a port at which nobody listens."""
    address, why = closed_port(), "ECONNREFUSED"
    if kind is Cli:
        address, why = "http://no-such-host.invalid", "ENOTFOUND"
    settings = {"general": {"maxAttempts": 1}}
    transport = kind(executable=real_transport.executable, settings=settings)
    events, result = await told("Hi", offline(tmp_path, address), lambda _: transport)
    assert len(retries(events)) == 1
    with pytest.raises(NetworkError, match=f"cannot reach {address}: .*{why}"):
        result.raise_on_failure()


async def test_a_name_that_nobody_knows_is_named_without_a_cli(tmp_path):
    options = offline(tmp_path, "http://no-such-host.invalid", network_timeout=1)
    with pytest.raises(NetworkError, match=r"http://no-such-host\.invalid"):
        await ask("Hi", options, via=Api(retries=0))


@pytest.mark.parametrize("way_in", ["cli", "api"], indirect=True)
async def test_a_connection_that_does_not_come_about_is_told_while_it_is_tried(way_in, tmp_path):
    with deaf_port() as address:
        options = offline(tmp_path, address, network_timeout=4)
        events, result = await told("Hi", options, way_in)
    assert "no connection after 3 s" in retries(events)[0].message
    with pytest.raises(NetworkError, match=address):
        result.raise_on_failure()


@pytest.mark.parametrize("way_in", ["cli", "api"], indirect=True)
async def test_waiting_for_quota_is_no_network_failure(way_in, fake_gemini, tmp_path):
    """For a warm process, see test_acp.py."""
    fake_gemini.fail(429, retry_delay=2).say("There")
    options = Options(cwd=tmp_path, env=fake_gemini.env, model="gemini-2.5-flash")
    _, result = await told("Hi", options.changed(network_timeout=1), way_in)
    assert (result.status, result.text) == ("success", "There")


class Log:
    """A log that a test writes itself."""

    def __init__(self, *states: str) -> None:
        self.states = list(states)

    def size(self) -> int:
        return 0

    def read(self, start):
        states, self.states = self.states, []
        return [Incident(state, "https://api", "no route") for state in states], start


def watched(*states: str, limit: float | None = 60, busy: bool = False):
    announced = []
    log = Log(*states)
    return NetworkWatch(log, limit, announced.append, lambda _: busy), log, announced


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

    monkeypatch.setattr("geminorum.transports.turns.network.time.monotonic", lambda: Clock.now)
    return Clock


def test_the_limit_counts_from_the_first_failure_to_the_first_answer(clock):
    watch, log, announced = watched("failed")
    assert watch.look() is None
    clock.now += 30
    log.states = ["failed"]
    assert watch.look() is None
    clock.now += 30
    assert watch.look() == ("network", 60)
    assert watch.trouble == "cannot reach https://api: no route"
    assert len(announced) == 2
    assert "for 60 s at most" in announced[0].message
    log.states = ["answered"]
    assert watch.look() is None
    assert watch.trouble == ""


@pytest.mark.parametrize(
    ("states", "how"),
    [
        (["failed", "connected"], {}),  # A model that thinks is no network that fails.
        (["failed", "answered"], {}),
        (["failed"], {"busy": True}),
        (["failed"], {"limit": None}),
        ([], {}),
    ],
)
def test_time_in_which_something_else_is_waited_for_does_not_count(clock, states, how):
    watch, _, _ = watched(*states, **how)
    for _ in range(5):
        assert watch.look() is None
        clock.now += 30


def test_what_others_write_into_the_log_does_no_harm(tmp_path):
    log = NetworkLog(tmp_path)
    good = b'{"state": "failed", "address": "https://api", "why": "x"}\n'
    tmp_path.joinpath("network.jsonl").write_bytes(b"\xff\n[1]\n{}\n" + good + b'{"state"')
    incidents, position = log.read(0)
    assert incidents == [Incident("failed", "https://api", "x")]
    assert log.read(position) == ([], position)
    assert log.read(position + 100) == ([], position + 100)


SCRIPT = """
const http = require("node:http");
async function main([way, url]) {
  const path = "/v1beta/models/m:generateContent";
  if (way === "other") return fetch(url + "/index.html").catch(() => {});
  if (way === "fetch") return fetch(url + path).catch(() => {});
  await new Promise((done) => http.get(url + path).on("error", done).on("response", done));
}
main(process.argv.slice(-2));
"""


@pytest.mark.parametrize(
    ("way", "states"), [("fetch", ["failed"]), ("http", ["failed"]), ("other", [])]
)
def test_the_script_tells_of_requests_to_a_model_and_of_no_others(real_cli, tmp_path, way, states):
    log = NetworkLog(tmp_path)
    for name, text in {**log.files, "main.cjs": SCRIPT}.items():
        tmp_path.joinpath(name).write_text(text)
    address = closed_port()
    command = [real_cli[0], log.node_flag, str(tmp_path / "main.cjs"), way, address]
    subprocess.run(command, check=True, timeout=30)
    incidents, _ = log.read(0)
    assert [incident.state for incident in incidents] == states
    assert all(incident.address == address for incident in incidents)
    assert all("ECONNREFUSED" in incident.why for incident in incidents)


def test_a_run_without_a_network_is_over_within_a_minute():
    """The CLI's own start, a few seconds, is not counted."""
    assert Options().network_timeout == 50


@pytest.mark.parametrize("what", ["folder", "pipe", "nothing"])
def test_a_log_that_a_command_has_replaced_tells_nothing_and_holds_nobody_up(tmp_path, what):
    log = NetworkLog(tmp_path)
    file = tmp_path / "network.jsonl"
    file.write_text('{"state": "failed", "address": "x"}\n')
    assert len(log.read(0)[0]) == 1
    file.unlink()
    if what == "folder":
        file.mkdir()
        (file / "so that it has a size").touch()
    elif what == "pipe":
        os.mkfifo(file)
        log.size = lambda: 100  # As it was when we looked.
    assert log.read(0) == ([], 0)


def test_a_line_without_end_blinds_nobody_and_a_flood_of_lines_is_told_in_part(tmp_path):
    log, announced = NetworkLog(tmp_path), []
    watch = NetworkWatch(log, 2.0, announced.append, lambda _: False)
    failed = '{"state": "failed", "address": "x"}\n'
    with (tmp_path / "network.jsonl").open("a") as file:
        file.write("x" * 200_000 + "\n" + failed)
    for _ in range(10):
        watch.look()
    assert len(announced) == 1
    with (tmp_path / "network.jsonl").open("a") as file:
        file.write(failed * 1_000)
    watch.look()
    assert len(announced) < 30


@pytest.mark.parametrize("way_in", ["cli", "api"], indirect=True)
async def test_a_port_that_fetch_refuses_is_told_like_any_other(tmp_path, way_in):
    """Node tries no connection at all on a port like this one, and says nothing of it."""
    options = offline(tmp_path, "http://127.0.0.1:9", network_timeout=3)
    events, result = await told("Hi", options, way_in)
    assert isinstance(result.exception(), NetworkError)
    assert "127.0.0.1:9" in str(result.exception())
    assert any(isinstance(event, Error) and event.recoverable for event in events)
