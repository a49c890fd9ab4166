"""A system that has run out of descriptors, or of room on a disk: what to do about it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from geminorum.errors import ConfigError, SetupError

NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
FEWER_DESCRIPTORS = "run fewer agents at once, or raise the limit: ulimit -n 4096"


def require_descriptor() -> None:
    """Raises OSError where none is left: what fails for want of one may say something else."""
    os.close(os.open(os.devnull, os.O_RDONLY))


@contextmanager
def explain_shortage() -> Iterator[None]:
    """Turns a lack of descriptors or disk space in the block into a SetupError with a hint."""
    try:
        yield
    except (OSError, ConfigError) as error:
        # A file that cannot be read for want of a descriptor is not to be mended.
        cause = error if isinstance(error, OSError) else error.__cause__
        number = cause.errno if isinstance(cause, OSError) else None
        if number in NO_DESCRIPTOR:
            text = f"no descriptor is left: {os.strerror(number or 0)}"
            raise SetupError(text, hint=FEWER_DESCRIPTORS) from error
        if isinstance(error, OSError) and number in NO_ROOM:
            where = f" for {error.filename!r}" if error.filename else ""
            raise SetupError(
                f"no room is left on the disk{where}: {error.strerror}",
                hint="make room there; temporary files can go elsewhere: export TMPDIR=…",
            ) from error
        raise
