"""A block that is left inside a scope of anyio's, as in Starlette and FastAPI, which cancels every
wait anew and not just once: what the block started is gone all the same."""

import asyncio
import os

import anyio
import pytest

from conftest import TEST_MARK, marked_processes
from geminorum import Options, run
from geminorum.errors import SessionBusy
from geminorum.sessions.lock import SessionLock
from geminorum.transports import Transport


async def left_by_an_impatient_scope(door: Transport) -> None:
    """As a web framework does when the client has hung up."""
    with anyio.CancelScope() as scope:
        async with run("Tell me a story", Options(), via=door) as live:
            async for event in live:
                if event.type == "text_delta":
                    scope.cancel()
                    await anyio.sleep_forever()
    assert scope.cancelled_caught


@pytest.mark.parametrize("grace", [0.3, 60.0])
async def test_a_warm_process_is_gone(stand_in_acp, grace):
    await left_by_an_impatient_scope(stand_in_acp("deaf", grace=grace))
    assert marked_processes(os.environ[TEST_MARK]) == []


async def test_a_session_of_a_shared_process_is_free_again(stand_in_acp, private_home):
    async with stand_in_acp("deaf", grace=60.0).warm() as door:
        with anyio.CancelScope() as scope:
            async with run("Tell me a story", via=door) as live:
                async for event in live:
                    if event.type == "text_delta":
                        session = str(live.session_id)
                        with pytest.raises(SessionBusy), SessionLock(private_home, session):
                            pass
                        scope.cancel()
                        await anyio.sleep_forever()
        await asyncio.sleep(0)  # What was cancelled ends in the next round of the loop.
        with SessionLock(private_home, session):
            pass


async def test_a_headless_process_is_gone(stand_in):
    init = {"type": "init", "session_id": "s", "model": "m"}
    hello = {"type": "message", "role": "assistant", "content": "Once", "delta": True}
    door = stand_in(init, hello, hang=True, ignore_term=True, grandchildren=("bare",), grace=60)
    await left_by_an_impatient_scope(door)
    assert marked_processes(os.environ[TEST_MARK]) == []
