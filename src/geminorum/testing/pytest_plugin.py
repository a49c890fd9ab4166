"""The pytest fixture `fake_gemini`: a running FakeGemini for one test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from geminorum.testing import FakeGemini


@pytest.fixture
def fake_gemini() -> Iterator[FakeGemini]:
    """A Gemini API on loopback; script it with `say`, `call`, `fail` …, then check `requests`."""
    from geminorum.testing import FakeGemini

    with FakeGemini() as fake:
        yield fake
