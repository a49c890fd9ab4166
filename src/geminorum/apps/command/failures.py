"""Around every command: whatever goes wrong becomes a message, a next step and an exit code."""

from __future__ import annotations

import codecs
import errno
import os
import re
import shutil
import signal
import sys
import textwrap
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geminorum.apps.command.exits import Exit, exit_for
from geminorum.apps.command.render.style import arrow, styled
from geminorum.errors import GeminorumError
from geminorum.views.plain_text import printable

if TYPE_CHECKING:
    import asyncio


def run_guarded(work: Callable[[], Any], command: str = "geminorum") -> int:
    """Runs some work, shows its errors without a traceback, and returns the exit code.

    `command` has the help page for what was typed wrong, where Typer knows of no other.
    """
    try:
        code = _exit_code_of(work, command)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return _closed_pipe()
    except OSError as error:
        return _unwritable(error)
    except KeyboardInterrupt:
        # Pressed once more, while the first was answered.
        ignore_ctrl_c()
        return _stopped()
    except Exception as error:
        return _bug(error)


def _exit_code_of(work: Callable[[], Any], command: str) -> int:
    """Runs some work, shows its error, and returns the exit code; raises what cannot be shown."""
    try:
        _be_interrupted_by_ctrl_c()
        code = work()
        return int(code) if isinstance(code, int) else Exit.OK
    except GeminorumError as error:
        tell(command_words(error.message), command_hint(error.hint) or _next_step(error))
        return exit_for(error)
    except KeyboardInterrupt:
        return _stopped()
    except SystemExit as error:
        # Typer leaves with 1 when the reader has gone, which would look like a failed run.
        gone = isinstance(error.__context__, BrokenPipeError)
        return _closed_pipe() if gone else int(error.code or 0)
    except BaseException as error:
        # Neither Typer nor asyncio is imported for these checks: the code that raised has done it.
        if _is_usage_error(error):
            return _show_usage_error(error, command)
        if _was_aborted(error):
            return _stopped()
        # Another Ctrl-C while everything was about to end.
        if type(error).__name__ != "CancelledError":
            raise
        return _told_to_leave[0] if _told_to_leave else _stopped()


def _is_usage_error(error: BaseException) -> bool:
    typer = sys.modules.get("typer")
    # Where the library that Typer stands on keeps it depends on the version.
    return typer is not None and isinstance(error, typer.BadParameter.__mro__[1])


def _was_aborted(error: BaseException) -> bool:
    typer = sys.modules.get("typer")
    return typer is not None and isinstance(error, typer.Abort)


def _be_interrupted_by_ctrl_c() -> None:
    """From here on there may be something to tidy up."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore_ctrl_c() -> None:
    """On the way out: what is still to be tidied up takes a moment, and must not be cut short."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # Not SIG_IGN, which a program that is started now would inherit.
        signal.signal(signal.SIGINT, lambda *_: None)


def _stopped() -> int:
    tell("stopped")
    return Exit.CANCELLED


def tell(problem: str, hint: str | None = None) -> None:
    """An error on stderr: what happened, and what to type next."""
    mark = arrow(sys.stderr)
    lines = [f"{styled('error', 'red', sys.stderr)}  {broken(problem, 7)}"]
    if hint:
        lines.append(f"  {mark} {broken(hint, len(mark) + 3)}")
    sys.stderr.write("\n".join(lines) + "\n")


def broken(text: str, margin: int) -> str:
    """Broken between words, where a terminal would break it in the middle of one."""
    if not sys.stderr.isatty():
        return text
    # Before it is broken: an error may quote an agent, a file or a server, and escapes take room.
    text = printable(text)
    width = max(shutil.get_terminal_size().columns - margin, 20)
    rows = [
        row
        for line in text.split("\n")
        for row in textwrap.wrap(line, width, break_on_hyphens=False, break_long_words=False)
    ]
    return ("\n" + " " * margin).join(rows)


def command_hint(hint: str | None) -> str | None:
    """A hint of the library in the words of the command line; None where it has none for it."""
    # Only what goes wrong needs the table of flags.
    from geminorum import hints
    from geminorum.apps.command.flags.vocabulary import in_flags

    return hints.render(hint, in_flags)


def command_words(text: str) -> str:
    """The message of the library for a user who types options, not Python."""
    text = _message_in(text)
    return command_hint(text) or text


def _message_in(text: str) -> str:
    """The sentence in an error that the warm CLI passes on as the API's JSON."""
    if not text.startswith('{"error"'):
        return text
    import json

    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text


def show_warnings_plainly() -> None:
    """Shows a warning without a line of code: the user typed a command."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        label = styled("warning", "yellow", sys.stderr)
        sys.stderr.write(f"{label}  {command_words(str(message))}\n")

    warnings.showwarning = show


def leave_properly_on_signals() -> None:
    """Python drops everything on SIGTERM and when a terminal closes; an agent would run on."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # A user who typed `nohup` wants the command to stay.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)


_told_to_leave: list[int] = []
"""The exit code for the signal that has ended us."""


def _leave(number: int, _: object) -> None:
    # Once: another one would cut short what the first has begun to tidy up.
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: None)
    _told_to_leave.append(128 + number)
    if (loop := _running_loop()) is None:
        sys.exit(128 + number)
    # An exception here would come up anywhere, in the middle of the loop's own work too.
    loop.call_soon_threadsafe(_cancel_all, loop)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    # Not imported for this check: code that runs a loop has done it.
    running = sys.modules.get("asyncio.events")
    return running._get_running_loop() if running is not None else None


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    from asyncio import all_tasks

    for task in all_tasks(loop):
        task.cancel()


def replace_closed_streams() -> None:
    """`>&-` asks for no output. Python then has no stream at all, and the next file that is opened
    would take its number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdin = sys.stdin or open(0)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115


_PLAIN_LETTERS = str.maketrans("✓✗■●·•⊘→…─━▌█", "+x#*-*o>.--|#")


def forgive_narrow_encodings() -> None:
    """A letter that the terminal's code page lacks becomes a plain one, not a traceback."""
    codecs.register_error("geminorum", _plain_letters)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # In a pipe are the agent's words, whose marks are not ours.
            ours = stream is sys.stderr or stream.isatty()
            stream.reconfigure(errors="geminorum" if ours else "replace")


def _plain_letters(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end].translate(_PLAIN_LETTERS)
    plain = (letter if letter.isascii() else _last_resort(letter) for letter in missing)
    return "".join(plain), error.end


def _last_resort(letter: str) -> str:
    # Braille: the spinner.
    return "*" if "\u2800" <= letter <= "\u28ff" else "?"


def _next_step(error: GeminorumError) -> str:
    """What to type where the error itself has nothing that could be typed."""
    if error.code == "UNSUPPORTED":
        return f"another transport may: {' or '.join(_other_transports())}"
    command = next((word for word in sys.argv[1:] if word.isalpha()), "")
    return " ".join(filter(None, ["geminorum", command, "--help"]))


def _other_transports() -> list[str]:
    words = " ".join(sys.argv).replace("--via=", "--via ").split()
    used = words[words.index("--via") + 1 :][:1] if "--via" in words else []
    return [f"--via {transport}" for transport in ("cli", "acp", "api") if transport not in used]


def _show_usage_error(error: Any, command: str) -> Exit:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else command
    if context and type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(context.get_help() + "\n")
        return Exit.USAGE
    tell(_wrong(error), f"{path} --help")
    return Exit.USAGE


def _wrong(error: Any) -> str:
    """What is wrong with what was typed, in our words where the library has others."""
    if near := getattr(error, "possibilities", None):
        import difflib

        name = error.option_name
        best = difflib.get_close_matches(name, near, n=1, cutoff=0) or near
        return f"there is no option {name}; did you mean {best[0]}?"
    told: str = error.format_message()
    for pattern, words in _LIBRARY_WORDS:
        told = re.sub(pattern, words, told)
    return told


_LIBRARY_WORDS: tuple[tuple[str, Any], ...] = (
    (r"^Invalid value(?: for |: )?", ""),
    (r"^'([^']*)'(?: / '[^']*')?:", r"\1:"),
    (r": Value error, ", ": "),
    (r": Input should be a valid integer.*$", ": write a whole number"),
    (r": Input should be a valid number.*$", ": write a number"),
    (r"^Missing argument '(\w+)'\.$", lambda found: f"{found[1].upper()} is missing"),
    # Most often a prompt without quotes.
    (
        r"^Got unexpected extra argument\S* \((.*)\)$",
        r"unexpected argument: \1; put quotes around a prompt of several words",
    ),
)


def _closed_pipe() -> Exit:
    _write_no_more()
    return Exit.CLOSED_PIPE


def _unwritable(error: OSError) -> Exit:
    """A disk that is full, a file that may not be read: the machine's fault and not ours."""
    if _is_nowhere():
        tell("the current folder no longer exists", "cd to another one, and try again")
        return Exit.UNWRITABLE
    if error.filename is None and error.errno not in _OUTPUT_FAILS:
        return _bug(error)
    _write_no_more()
    problem = f"{error.filename or 'the output cannot be written'}: {error.strerror}"
    hint = "make room, or send the output elsewhere" if error.errno in _OUTPUT_FAILS else None
    # Where stderr is as full as stdout, the exit code has to say it.
    with suppress(OSError):
        tell(problem, hint)
    return Exit.UNWRITABLE


def _is_nowhere() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


# An error of a write to an open file names no file; nothing else that we do ends like these.
_OUTPUT_FAILS = tuple(
    getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO") if hasattr(errno, name)
)


def _write_no_more() -> None:
    """Python flushes stdout once more at its end; into nothing, so that it cannot complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _bug(error: Exception) -> Exit:
    if os.environ.get("GEMINORUM_DEBUG"):
        raise error
    tell(
        f"geminorum itself failed: {type(error).__name__}: {error}",
        "set GEMINORUM_DEBUG=1, try again, and report what it prints",
    )
    return Exit.BUG
