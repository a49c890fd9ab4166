"""The pytest fixture `fake_gemini`: a running FakeGemini for one test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from geminorum import testing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from geminorum.testing import FakeGemini


@pytest.fixture
def fake_gemini() -> Iterator[FakeGemini]:
    """A Gemini API on loopback; script it with `say`, `call`, `fail` …, then check `requests`."""
    with testing.FakeGemini() as fake:
        yield fake
