"""How the command ends: one table of exit codes, stable, and the error to the code.

| code | means |
|---|---|
| 0 | it worked |
| 1 | the run failed: the agent, the model or the API said so |
| 2 | wrong usage: an option, a value or a prompt that cannot be |
| 3 | the machine is not set up: no CLI, no login, a broken settings file |
| 4 | a limit that you set was reached: turns, budget, time |
| 5 | the run was cut short; what had arrived was printed |
| 6 | the session that you named is not there, or cannot be read |
| 70 | a mistake of ours; the message says how to report it |
| 74 | the output could not be written, or a file not read: a full disk, a missing permission |
| 75 | the run failed, and the same command may succeed later: quota, network, a busy session |
| 130 | you stopped it with Ctrl-C |
| 141 | whoever read the output has gone (`| head`) |
| 143 | it was told to end (SIGTERM; 129 when the terminal was closed), and ended its agent first |
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geminorum import GeminorumError


class Exit(IntEnum):
    """What the command leaves with."""

    OK = 0
    FAILED = 1
    USAGE = 2
    SETUP = 3
    LIMIT = 4
    CUT_SHORT = 5
    NOT_FOUND = 6
    BUG = 70
    UNWRITABLE = 74
    TRY_LATER = 75
    CANCELLED = 130
    CLOSED_PIPE = 141
    TERMINATED = 143


# The first row that fits counts, so the narrower class stands above the wider one.
_BY_CLASS: tuple[tuple[tuple[str, ...], Exit], ...] = (
    (("Interrupted",), Exit.CANCELLED),
    (("TurnLimit", "BudgetExceeded", "RunTimeout"), Exit.LIMIT),
    (("SessionLost", "SessionUnreadable"), Exit.NOT_FOUND),
    (("InvalidOptions", "Unsupported"), Exit.USAGE),
    (("SetupError",), Exit.SETUP),
    (("Incomplete",), Exit.CUT_SHORT),
)


def exit_for(error: GeminorumError | None) -> Exit:
    """The code that stands for an error; OK for none."""
    if error is None:
        return Exit.OK
    from geminorum import errors

    for names, code in _BY_CLASS:
        if isinstance(error, tuple(getattr(errors, name) for name in names)):
            return code
    return Exit.TRY_LATER if error.retryable else Exit.FAILED
