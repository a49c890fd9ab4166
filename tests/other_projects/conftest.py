"""Tests on data of other projects: an extra, collected only where `../shared/fixtures` is.

The tests of the contracts run the same properties over recordings in this repository.
"""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def fixtures_folder() -> Path:
    """Streams, sessions and answers of other projects; EXPECTED.md there says how they end."""
    return Path(__file__).resolve().parents[3] / "shared" / "fixtures"
