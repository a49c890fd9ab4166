"""Around every command: whatever goes wrong becomes a message, a next step and an exit code."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

import typer

from geminorum.apps.command.exits import Exit, exit_for
from geminorum.apps.command.show_style import arrow, styled

# Where the library that Typer stands on keeps it depends on the version.
UsageError: type[Any] = typer.BadParameter.__mro__[1]


def guarded(work: Callable[[], Any]) -> int:
    """The exit code of some work, with its errors shown: nobody should see a traceback."""
    from geminorum import GeminorumError

    try:
        code = work()
        sys.stdout.flush()
        return int(code) if isinstance(code, int) else Exit.OK
    except GeminorumError as error:
        tell(error.message, command_hint(error.hint))
        return exit_for(error)
    except UsageError as error:
        return _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        tell("stopped")
        return Exit.CANCELLED
    except BrokenPipeError:
        return _closed_pipe()
    except SystemExit as error:
        # Typer leaves with 1 when the reader has gone, which would look like a failed run.
        gone = isinstance(error.__context__, BrokenPipeError)
        return _closed_pipe() if gone else int(error.code or 0)
    except Exception as error:
        return _bug(error)


def tell(problem: str, hint: str | None = None) -> None:
    """An error on stderr: what happened, and what to type next."""
    lines = [f"{styled('error', 'red', sys.stderr)}  {problem}"]
    if hint:
        lines.append(f"  {arrow(sys.stderr)} {hint}")
    sys.stderr.write("\n".join(lines) + "\n")


# The library's hints speak Python; a person at a prompt types options.
_PYTHON_WORDS = (
    (re.compile(r"Options\(trust_workspace=None\)"), "--trust-workspace out"),
    (re.compile(r"\b(?:Cli|Acp)\(executable=[^)]*\)"), "--cli PATH"),
    (re.compile(r"\bOptions\((\w+)=[^)]*\)"), lambda found: _flag(found[1])),
    (re.compile(r"\b(?:Cli|Acp|Api)\((\w+)=[^)]*\)"), lambda found: _flag(found[1])),
    (re.compile(r"`python -m geminorum\.install`"), "`geminorum setup`"),
    (re.compile(r"\bwithout `resume`"), "without --resume"),
    (
        re.compile(
            r"; what arrived is in \.result|; see \.result\.text|, what arrived is in \.result"
        ),
        "",
    ),
    (re.compile(r"see \.stderr; "), ""),
    (re.compile(r", None waits (?:for ever|on)"), ""),
    (re.compile(r"; see \.stderr|; \.stderr may say why"), ""),
)


def command_hint(hint: str | None) -> str | None:
    """A hint of the library in the words of the command line."""
    for pattern, word in _PYTHON_WORDS:
        hint = pattern.sub(word, hint) if hint else hint
    return hint


def leave_properly_on_signals() -> None:
    """Python drops everything on SIGTERM and when a terminal closes; an agent would run on."""
    for name in ("SIGTERM", "SIGHUP"):
        if number := getattr(signal, name, None):
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def forgive_narrow_encodings() -> None:
    """A letter that the terminal's code page lacks becomes a question mark, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _usage(error: Any) -> Exit:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "geminorum"
    if context and type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(context.get_help() + "\n")
        return Exit.USAGE
    tell(error.format_message(), f"{path} --help")
    return Exit.USAGE


def _closed_pipe() -> Exit:
    # Python flushes stdout once more at its end; into nothing, so that it cannot complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.CLOSED_PIPE


def _bug(error: Exception) -> Exit:
    if os.environ.get("GEMINORUM_DEBUG"):
        raise error
    tell(
        f"geminorum itself failed: {type(error).__name__}: {error}",
        "set GEMINORUM_DEBUG=1, try again, and report what it prints",
    )
    return Exit.BUG
