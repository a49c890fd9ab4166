"""`Options.timeout` counts from the opening of a run, and says what took so long."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from geminorum import Acp, Cli, Done, Error, Options, Pool, ask, connect, errors, run, sync
from stand_in import StandIn


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(cwd=tmp_path, home=tmp_path)


class SlowTransport:
    """A transport of somebody else's that never opens."""

    @asynccontextmanager
    async def open(self, _: Options) -> AsyncIterator[Any]:
        await asyncio.sleep(300)
        yield None


async def test_a_transport_that_does_not_open_is_given_up(options: Options) -> None:
    hasty = options.changed(timeout=0.1)
    async with asyncio.timeout(30):
        with pytest.raises(errors.RunTimeout, match=r"after 0\.1 s while opening the conversation"):
            await ask("Hi", hasty, via=SlowTransport())
        with pytest.raises(errors.RunTimeout, match="while opening the conversation"):
            async with connect(hasty, via=SlowTransport()):
                pass


def test_a_transport_that_does_not_open_is_given_up_without_await(options: Options) -> None:
    with pytest.raises(errors.RunTimeout, match="while opening the conversation"):
        sync.ask("Hi", options.changed(timeout=0.1), via=SlowTransport())


async def test_an_error_of_the_transport_is_not_taken_for_our_limit(options: Options) -> None:
    class Broken(SlowTransport):
        @asynccontextmanager
        async def open(self, _: Options) -> AsyncIterator[Any]:
            raise TimeoutError("of its own")
            yield

    with pytest.raises(TimeoutError, match="of its own"):
        await ask("Hi", options.changed(timeout=60), via=Broken())


@pytest.mark.parametrize("kind", [Cli, Acp])
async def test_looking_for_the_cli_is_part_of_the_run(
    options: Options, real_transport: Cli, tmp_path: Path, kind: Any
) -> None:
    """A Node that takes its time to tell its version."""
    node = tmp_path / "bin" / "node"
    node.parent.mkdir()
    node.write_text("#!/bin/sh\nexec /bin/sleep 0.8\n")
    node.chmod(0o755)
    slow = options.changed(timeout=0.1, env={"PATH": str(node.parent)})
    with pytest.raises(errors.RunTimeout, match="while looking for the CLI"):
        await ask("Hi", slow, via=kind(executable=real_transport.executable))


async def test_waiting_for_a_place_in_a_pool_is_part_of_the_run(
    options: Options, stand_in_acp: Callable[..., Acp]
) -> None:
    """`wait` is the pool's patience, `timeout` that of whoever asks."""
    async with (
        asyncio.timeout(30),
        Pool(stand_in_acp("well_behaved"), size=1, at_once=1) as pool,
        connect(options, via=pool) as chat,
    ):
        await chat.ask("Hi")
        with pytest.raises(errors.RunTimeout, match="while waiting for a place in the pool"):
            await ask("Hi", options.changed(timeout=0.1), via=pool)
        with pytest.raises(errors.RunTimeout, match="while waiting for a place in the pool"):
            async with connect(options.changed(timeout=0.1), via=pool):
                pass
        assert pool.report().waiting == 0
        assert (await chat.ask("Hi")).text == "Hello"


@pytest.mark.parametrize("pooled", [False, True], ids=["acp", "pool"])
@pytest.mark.parametrize(
    ("habit", "phase"),
    [("silent", "waiting for the CLI's first output"), ("never open", "opening a session")],
)
async def test_a_warm_process_that_gives_no_session(
    options: Options, stand_in_acp: Callable[..., Acp], habit: str, phase: str, pooled: bool
) -> None:
    """Told by the stream, with its one Done, as everything is once a process has been started."""
    transport = stand_in_acp(habit)
    # Time enough to start, on any machine, and little for a session that never comes.
    hasty = options.changed(timeout=3)
    async with asyncio.timeout(30), Pool(transport) as pool:
        live = run("Hi", hasty, via=pool if pooled else transport)
        told = [event async for event in live]
    assert isinstance(told[-1], Done)
    (error,) = [event for event in told if isinstance(event, Error)]
    assert (error.code, error.message) == ("TIMEOUT", f"timed out after 3 s while {phase}")


async def test_a_headless_run_that_does_not_begin(options: Options, stand_in: StandIn) -> None:
    hasty = options.changed(timeout=0.5)
    with pytest.raises(errors.RunTimeout, match="while waiting for the CLI's first output"):
        await ask("Hi", hasty, via=stand_in(hang=True))


class Recorded:
    """A conversation and its turn, which tells what it was stopped for."""

    stderr = ""

    def __init__(self) -> None:
        self.stops: list[tuple[str, float | None]] = []

    def turn(self, _: object) -> "Recorded":
        return self

    async def __aenter__(self) -> "Recorded":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def read(self) -> list[Any]:
        for _ in range(20):
            await asyncio.sleep(0)
        return []

    async def stop(self, reason: str, limit: float | None = None) -> None:
        self.stops.append((reason, limit))

    def hurry(self) -> None:
        pass


async def test_what_opening_took_is_no_longer_there_for_the_turn(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One limit for both, and not one for each."""
    loop, conversation = asyncio.get_running_loop(), Recorded()
    clock = loop.time

    class Transport:
        @asynccontextmanager
        async def open(self, _: Options) -> AsyncIterator[Recorded]:
            monkeypatch.setattr(loop, "time", lambda: clock() + 1000)
            yield conversation

    async with run("Hi", options.changed(timeout=900), via=Transport()) as live:
        await live.read()
        monkeypatch.undo()
    assert conversation.stops[0] == ("timeout", 900)
