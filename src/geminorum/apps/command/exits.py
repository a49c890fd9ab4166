"""The exit codes of the command, which are stable, and the code for each error.

| code | meaning |
|---|---|
| 0 | success |
| 1 | the agent, the model or the API reported a failure |
| 2 | usage error: an invalid option, value or prompt |
| 3 | setup error: no CLI, no login, a broken settings file |
| 4 | a limit that you set was reached: turns, budget, time, size of a workspace, one of the fleet |
| 5 | the run was cut short; the output so far was printed |
| 6 | the session, job or question does not exist or cannot be read |
| 7 | the run waits for an answer in the inbox |
| 70 | a bug in geminorum; the message says how to report it |
| 74 | I/O error: output or a file cannot be written or read (full disk, missing permission) |
| 75 | temporary failure, the same command may succeed later: quota, network, a busy session |
| 130 | interrupted with Ctrl-C |
| 141 | the reader of the output closed the pipe (`| head`) |
| 143 | terminated by SIGTERM (129: the terminal was closed), after stopping the agent |
"""

from __future__ import annotations

from enum import IntEnum

from geminorum import errors


class Exit(IntEnum):
    """An exit code of the command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    SETUP = 3
    LIMIT = 4
    CUT_SHORT = 5
    NOT_FOUND = 6
    WAITING = 7
    BUG = 70
    UNWRITABLE = 74
    TRY_LATER = 75
    CANCELLED = 130
    CLOSED_PIPE = 141
    TERMINATED = 143


# The first match wins, so subclasses come before their base classes.
_BY_CLASS: tuple[tuple[tuple[str, ...], Exit], ...] = (
    (("Interrupted",), Exit.CANCELLED),
    (("TurnLimit", "BudgetExceeded", "RunTimeout", "WorkspaceTooLarge"), Exit.LIMIT),
    (("LimitReached",), Exit.LIMIT),
    (("SessionLost", "SessionUnreadable", "UnknownJob", "UnknownQuestion"), Exit.NOT_FOUND),
    (("WaitingForAnswer",), Exit.WAITING),
    (("InvalidOptions", "Unsupported"), Exit.USAGE),
    (("SetupError",), Exit.SETUP),
    (("Incomplete",), Exit.CUT_SHORT),
)


def exit_for(error: errors.GeminorumError | None) -> Exit:
    """Returns the exit code for an error; OK for None."""
    if error is None:
        return Exit.OK
    for names, code in _BY_CLASS:
        if isinstance(error, tuple(getattr(errors, name) for name in names)):
            return code
    return Exit.TRY_LATER if error.retryable else Exit.FAILED
