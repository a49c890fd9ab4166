"""Waiting for a call of a store, which another thread makes."""

import asyncio
import sys
import time
from concurrent.futures import Future

import pytest

from geminorum.errors import StoreError
from geminorum.transports.stored.store_thread import StoreThread, wait_for


async def let_end_as_time_is_up(call: Future, *, limit: float) -> None:
    """The loop finds both due at once: it tells the waiter first that the time is up."""
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(limit + 0.01, call.set_result, "saved")
    time.sleep(limit + 0.05)


async def test_a_call_that_ends_as_the_time_is_up_has_ended():
    """It was a bare TimeoutError, which cost the caller the answer."""
    call: Future[str] = Future()
    waiting = asyncio.ensure_future(wait_for(call, 0.01))
    await let_end_as_time_is_up(call, limit=0.01)
    assert await waiting == "saved"


async def test_a_call_that_does_not_end_is_a_silent_store():
    with pytest.raises(StoreError, match="not answered"):
        await wait_for(Future(), 0.01)


async def test_a_call_that_raises_a_timeout_of_its_own_says_so():
    call: Future[str] = Future()
    call.set_exception(TimeoutError("in the driver of a database"))
    with pytest.raises(TimeoutError, match="in the driver"):
        await wait_for(call, 1)


@pytest.mark.parametrize("steps", range(6))
async def test_a_cancellation_is_not_lost_as_a_call_ends(steps):
    """`asyncio.wait_for` of Python 3.11 forgets it."""
    call: Future[str] = Future()
    waiting = asyncio.ensure_future(wait_for(call, 60))
    await asyncio.sleep(0)
    call.set_result("saved")
    for _ in range(steps):
        await asyncio.sleep(0)
    if waiting.cancel():
        with pytest.raises(asyncio.CancelledError):
            await waiting


class Owner:
    """Whose every call ends the program, also the one that nobody asked for."""

    def __init__(self) -> None:
        self.thread = StoreThread(self.tick, 0.01)

    def tick(self) -> None:
        sys.exit("enough")


async def test_a_store_that_ends_the_program_ends_its_own_call_only():
    owner = Owner()
    with pytest.raises(StoreError, match="SystemExit: enough"):
        await owner.thread.call(owner.tick, 60)
    await owner.thread.call(lambda: time.sleep(0.05), 60)
    assert await owner.thread.call(lambda: "still here", 60) == "still here"
    owner.thread.finish(lambda: None).result(60)
