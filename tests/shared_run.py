"""Runs that several tests look at: made once, by a fixture of a module or a class."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

COMPILED = (
    Path(__file__).resolve().parents[1] / ".pytest_cache/compiled/geminorum/node-compile-cache"
)


def live_in(home: Path, patch: pytest.MonkeyPatch) -> None:
    """Nothing reads or writes the home of whoever runs it; compiled code is kept between tests."""
    patch.setenv("HOME", str(home))
    patch.setenv("XDG_CACHE_HOME", str(COMPILED.parent.parent))
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GEMINI_CLI_HOME", "GEMINI_MODEL"):
        patch.delenv(name, raising=False)


@contextmanager
def private_place(factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What `private_home` is for a test, for the runs that a wider fixture makes in this block.

    Gives a new folder for the agents to work in.
    """
    place = factory.mktemp("shared")
    for name in ("home", "work"):
        (place / name).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        live_in(place / "home", patch)
        yield place / "work"
