"""Around every command: whatever goes wrong becomes a message, a next step and an exit code."""

from __future__ import annotations

import os
import re
import signal
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from geminorum.apps.command.exits import Exit, exit_for
from geminorum.apps.command.show_style import arrow, styled

if TYPE_CHECKING:
    from geminorum import GeminorumError

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
        tell(command_words(error.message), command_hint(error.hint) or _next_step(error))
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
_PYTHON_WORDS: tuple[tuple[str, Any], ...] = (
    (r"Options\(trust_workspace=None\)", "--trust-workspace out"),
    (r"\b(?:Cli|Acp)\(executable=[^)]*\)", "--cli PATH"),
    (r"\b(?:Cli|Acp)\((start_timeout|stall_timeout)=[^)]*\)", lambda found: _flag(found[1])),
    (r"\bOptions\((\w+)=[^)]*\)", lambda found: _flag(found[1])),
    (r"; None means ", "; leave it out for "),
    (r", None waits (?:for ever|on)", ""),
    (r"`python -m geminorum\.install`", "`geminorum setup`"),
    (r"geminorum\.sessions\.list\(\)", "`geminorum sessions list`"),
    (r"\bwithout `resume`", "without --resume"),
    (r"[;,] (?:what arrived is in \.result|see \.result\.text)", ""),
    (r"see \.stderr; |; see \.stderr|; \.stderr may say why", ""),
    (r"raise `max_output_tokens` in Api\(config=…\), or ", ""),
    (r"; `safety_settings` may be eased in Api\(config=\)", ""),
)
_PYTHON_LEFT = re.compile(r"\w\(|\.result|\.stderr|\bNone\b")


def command_hint(hint: str | None) -> str | None:
    """A hint of the library in the words of the command line; None where it has none for it."""
    words = command_words(hint) if hint else None
    return None if words is None or _PYTHON_LEFT.search(words) else words


def command_words(text: str) -> str:
    """What the library says, for somebody who types options and not Python."""
    for pattern, word in _PYTHON_WORDS:
        text = re.sub(pattern, word, text)
    return text


def show_warnings_plainly() -> None:
    """A warning is for whoever typed the command, who has no line of code to look at."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        label = styled("warning", "yellow", sys.stderr)
        sys.stderr.write(f"{label}  {command_words(str(message))}\n")

    warnings.showwarning = show


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


def _next_step(error: GeminorumError) -> str:
    """What to type where the error itself has nothing that could be typed."""
    if error.code == "UNSUPPORTED":
        return "another door may: --via cli, --via acp or --via api"
    command = next((word for word in sys.argv[1:] if word.isalpha()), "")
    return " ".join(filter(None, ["geminorum", command, "--help"]))


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
