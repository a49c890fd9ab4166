"""Converts geminorum's errors, or an exit code and stderr, to a ProviderError."""

from __future__ import annotations

import re
from typing import Any

from geminorum.adapter_parts import cause_of, last_words, render
from geminorum.contracts.vocabulary import vocabulary
from geminorum.errors import (
    AuthError,
    CliNotFound,
    GeminorumError,
    MissingResult,
    ProtocolError,
    RunFailed,
    RunTimeout,
    StartTimeout,
)

NOT_FOUND = "Gemini CLI not found. Install from: https://github.com/google-gemini/gemini-cli"
# The shape's own words, which callers look for; the CLI has no such command, so a hint that helps
# stands below them.
NOT_LOGGED_IN = "Gemini CLI authentication error. Run: gemini auth login"

# Words of their own: "author", "auth.py" and "/srv/auth/" say nothing about a login.
_LOGIN_WORDS = re.compile(
    r"(?<![\w/\\.-])"
    r"(?:o?auth|(?:re-?)?authenticat(?:e|ed|ion)|unauthenticated|unauthori[sz]ed|login|log in)"
    r"(?![\w/\\-]|\.\w)",
    re.I,
)
_EXIT_AUTH, _EXIT_NOT_FOUND = 41, 127
_UNDECIDED = (RunFailed, MissingResult, ProtocolError)
_IN_CONFIG = vocabulary(
    {
        "Options.timeout": 'the config\'s "timeout", or without one response_timeout=…',
        "Cli.start_timeout": "a longer connection_timeout",
        "Options.cwd": '"working_dir"',
        "Options.approval": '"approval_mode"',
        "Cli.sandbox": '"sandbox"',
        **{
            f"Options.{name}": f'"{name}"'
            for name in ("model", "include_directories", "allowed_tools")
        },
        ".result": ".result",
        ".stderr": ".stderr",
    },
    takes_options=True,
)


class ProviderError(GeminorumError):
    """Why there is no answer. `__cause__` is geminorum's error, `.result` the partial result."""

    code = "PROVIDER"


def error_type(kind: type[Exception]) -> type[ProviderError]:
    """A ProviderError that `except kind` catches as well; always the same one for a class."""
    if issubclass(kind, ProviderError):
        return kind
    return _JOINED.get(kind) or _JOINED.setdefault(kind, _joined(kind))


_JOINED: dict[type[Exception], type[ProviderError]] = {}


def _joined(kind: type[Exception]) -> type[ProviderError]:
    class EngineProviderError(ProviderError, kind):  # type: ignore[misc, valid-type]
        def __reduce__(self) -> tuple[Any, ...]:
            # Pickle cannot find a class that has no name in a module.
            return _rebuilt, (kind, self.args), self.__dict__

    EngineProviderError.__name__ = EngineProviderError.__qualname__ = ProviderError.__name__
    return EngineProviderError


def _rebuilt(kind: type[Exception], args: tuple[Any, ...]) -> ProviderError:
    joined = error_type(kind)
    error = joined.__new__(joined, *args)
    error.args = args
    return error


def provider_error(
    error: GeminorumError, limit: float | None = None, kind: type[ProviderError] = ProviderError
) -> ProviderError:
    """The error in the provider's words, with all that it carries; raise it `from` the error.

    `limit` is the seconds that were allowed, for an error that says they have passed.
    """
    if type(error) in _UNDECIDED and error.exit_code is not None:
        told = process_error(error.exit_code, _said(error))
    else:
        told = ProviderError(_text(error, limit))
    return kind(
        told.message,
        hint=render(told.hint or error.hint, _IN_CONFIG),
        status=error.status,
        result=error.result,
        exit_code=error.exit_code,
        stderr=error.stderr,
        session_id=error.session_id,
        retryable=error.retryable,
    )


def process_error(
    exit_code: int, stderr: str, kind: type[ProviderError] = ProviderError
) -> ProviderError:
    """The error of a process that left nothing else to judge by."""
    if exit_code == _EXIT_NOT_FOUND:
        return kind(NOT_FOUND, exit_code=exit_code, stderr=stderr)
    if exit_code == _EXIT_AUTH or _speaks_of_login(stderr):
        text, hint = f"{NOT_LOGGED_IN}\n{stderr}", render(AuthError.default_hint, _IN_CONFIG)
        return kind(text, hint=hint, exit_code=exit_code, stderr=stderr)
    text = f"Gemini CLI failed (exit {exit_code}): {stderr}"
    return kind(text, exit_code=exit_code, stderr=stderr)


def _speaks_of_login(stderr: str) -> bool:
    # Without the lines that report what a tool said: a tool may speak of logins as it likes.
    words = last_words(stderr)
    return cause_of(words) is AuthError or bool(_LOGIN_WORDS.search(words))


def _text(error: GeminorumError, limit: float | None) -> str:
    match error:
        case AuthError():
            return f"{NOT_LOGGED_IN}\n{_said(error)}"
        case CliNotFound():
            return f"{NOT_FOUND}\n{error.message}"
        case RunTimeout() | StartTimeout():
            silent = ", without any output" if isinstance(error, StartTimeout) else ""
            return f"Gemini CLI timed out after {limit or 0:.10g}s{silent}"
        case _ if error.exit_code is not None:
            return f"Gemini CLI failed (exit {error.exit_code}): {_said(error)}"
        case _:
            return f"Gemini CLI was not started: {error.message}"


def _said(error: GeminorumError) -> str:
    """What stderr says, noise and stack traces aside, and the cause where it does not tell it."""
    stderr = last_words(error.stderr).strip()
    told = stderr and (error.message in stderr or isinstance(error, MissingResult))
    return stderr if told else "\n".join(filter(None, (error.message, stderr)))
