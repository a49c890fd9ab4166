"""The JSON API keeps what its OpenAPI document says, whatever is sent to it."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import settings
from played import settings as page_settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from served import TOKEN, served

from geminorum.apps.web.api import ENDPOINTS
from geminorum.apps.web.api.openapi import document

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page in a thread: the tests here are synchronous."""
    folder = tmp_path_factory.mktemp("api")
    ready, over = threading.Event(), asyncio.Event()
    told: dict[str, Any] = {}

    async def serve() -> None:
        async with served(**page_settings(folder)) as visitor:
            told.update(address=visitor.address, loop=asyncio.get_running_loop())
            ready.set()
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    yield told["address"]
    told["loop"].call_soon_threadsafe(over.set)
    thread.join(30)


schema = schemathesis.openapi.from_dict(document(ENDPOINTS))


# A stream that follows does not end by itself, and runs are started by the tests of runs.
@schema.exclude(operation_id=["follow_run", "follow_all", "start_run"]).parametrize()
@settings(max_examples=8, database=None)
def test_an_answer_is_what_the_document_says(case, address):
    response = case.call(base_url=address, headers=BEARER, timeout=30)
    case.validate_response(response, checks=CHECKS)


@schema.include(operation_id="start_run").parametrize()
@settings(max_examples=8, database=None)
def test_what_starts_no_run_says_why(case, address):
    case.body = {"via": "pigeon", **case.body} if isinstance(case.body, dict) else case.body
    response = case.call(base_url=address, headers=BEARER, timeout=30)
    case.validate_response(response, checks=CHECKS)
