"""A fleet of its own for each test."""

from collections.abc import AsyncIterator

import pytest
from fleet_parts import new_database

from geminorum.fleet import Fleet


@pytest.fixture
async def url(server: str) -> str:
    return await new_database(server)


@pytest.fixture
async def fleet(url: str) -> AsyncIterator[Fleet]:
    async with Fleet(url) as fleet:
        yield fleet
