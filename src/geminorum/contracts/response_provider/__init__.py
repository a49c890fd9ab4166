"""Gemini as a response provider: takes a prompt, returns a text and the files written.

The interface comes from an MIT document: GeminiCliProvider of ai-workflow-engine, (c) 2025 Scott
Mulcahy. The code is our own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from geminorum import Cli, Result, run
from geminorum.adapter_parts import (
    BackgroundLoop,
    FileFold,
    StreamDecoder,
    delivered,
    environment_of,
    headless_command,
    redacted,
    secrets_in,
)
from geminorum.contracts.response_provider.config import (
    APPROVAL_MODES,
    CONFIG_KEYS,
    DEFAULT_TIMEOUT,
    check,
    check_seconds,
    given_in,
    options_of,
)
from geminorum.contracts.response_provider.failures import (
    ProviderError,
    error_type,
    process_error,
    provider_error,
)
from geminorum.contracts.response_provider.provider import ProviderResult, ResponseProvider
from geminorum.contracts.response_provider.request import (
    prompt_for,
)
from geminorum.detect import CliProgram, find_cli
from geminorum.errors import GeminorumError, StartTimeout
from geminorum.events import Done, Error, Event, Init
from geminorum.options import Options
from geminorum.views.result import result

__all__ = [
    "APPROVAL_MODES",
    "DEFAULT_TIMEOUT",
    "FILE_WRITE_TOOLS",
    "GeminiCliProvider",
    "ProviderError",
    "ProviderResult",
    "ResponseProvider",
]

FILE_WRITE_TOOLS = frozenset({"write_file", "replace"})
_ANY_CLI = CliProgram((), Path("gemini"), None, None)
_log = logging.getLogger(__name__)


class GeminiCliProvider(ResponseProvider):
    """The Gemini CLI as a response provider. Threads may share an instance.

    `base` and `via` hold settings that the interface lacks: environment, home; executable, grace.
    Without an `approval_mode`, here or in `base`, the agent may read and search the web. The
    interface has no cost limit, only `timeout`.
    """

    error_class: type[Exception] = ProviderError
    """The exception that an engine catches from its providers. Set it in a subclass: every error
    raised is then an instance of both that class and ProviderError."""

    def __init__(
        self,
        config: dict[str, Any] | None = None,
        *,
        via: Cli | None = None,
        base: Options | None = None,
    ) -> None:
        self.config = given_in(config)
        self._base = base or Options()
        self._validate_config()
        # False leaves the transport as it is.
        wish = {"sandbox": self.config["sandbox"]} if self.config.get("sandbox") else {}
        self._transport = replace(via or Cli(), **wish)

    @classmethod
    def get_metadata(cls) -> dict[str, Any]:
        return {
            "name": "gemini-cli",
            "description": "Gemini CLI AI agent via subprocess",
            "requires_config": False,
            "config_keys": [*CONFIG_KEYS],
            "default_response_timeout": DEFAULT_TIMEOUT,
            "fs_ability": "local-write",
        }

    def validate(self) -> None:
        """Raises ProviderError if there is no CLI to run. Does not start it."""
        try:
            find_cli(self._transport.executable, environment_of(self._base))
        except GeminorumError as error:
            raise provider_error(error, kind=self._error_type) from error

    def generate(
        self,
        prompt: str,
        context: Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        connection_timeout: float | None = None,
        response_timeout: float | None = None,
    ) -> ProviderResult:
        """Returns the answer. Raises ProviderError, which carries the partial result.

        `context` may have a `prompt_file`, which the agent reads instead of the prompt, and a
        `project_root` to work in. `connection_timeout` limits the seconds until the CLI's first
        output, `response_timeout` those of the whole answer unless a timeout is configured.
        """
        check_seconds("connection_timeout", connection_timeout)
        check_seconds("response_timeout", response_timeout)
        limits = (connection_timeout, response_timeout)
        # A loop in a thread of its own: the caller's thread may have one running already.
        with BackgroundLoop() as loop:
            return loop.call(self._async_generate(prompt, context, system_prompt, *limits))

    async def _async_generate(
        self,
        prompt: str,
        context: Mapping[str, Any] | None,
        system_prompt: str | None,
        connection_timeout: float | None = None,
        response_timeout: float | None = None,
    ) -> ProviderResult:
        start = connection_timeout or self._transport.start_timeout
        seconds: float | None = None
        try:
            options = self._options(context, response_timeout)
            seconds = options.timeout
            transport = replace(self._transport, start_timeout=start)
            answer = await self._run(prompt, context or {}, system_prompt, options, transport)
        except GeminorumError as error:
            limit = start if isinstance(error, StartTimeout) else seconds
            raise provider_error(error, limit, self._error_type) from error
        return answer

    async def _run(
        self,
        prompt: str,
        context: Mapping[str, Any],
        system_prompt: str | None,
        options: Options,
        transport: Cli,
    ) -> ProviderResult:
        text = prompt_for(prompt, context, system_prompt)
        named = FileFold()
        async with run(text, options, via=self._allowing(transport)) as live:
            async for event in live:
                _note(event)
                _collect(named, event)
        _note_stderr(live.result)
        return _answer(live.result.raise_on_failure(), named)

    def _build_args(self, context: Mapping[str, Any] | None = None) -> list[str]:
        """What stands behind the program's name, but for policies: their files come and go."""
        options = self._options(context)
        _, order = delivered(prompt_for("stdin", context or {}, None), literal=options.literal)
        return [*headless_command(self._allowing(self._transport), options, _ANY_CLI), *order]

    def _parse_ndjson_stream(self, stdout: bytes) -> tuple[str, dict[str, None]]:
        """The text and the written files of a recorded run."""
        decoder = StreamDecoder()
        events = [*decoder.feed(stdout), *decoder.close()]
        named = FileFold()
        for event in events:
            _note(event)
            _collect(named, event)
        if decoder.result is not None:
            _log.info("gemini ended: %s", decoder.result.status)
        answer = _answer(result(events), named)
        return answer.response, answer.files

    def _wrap_process_error(self, returncode: int, stderr: str) -> ProviderError:
        """The error for a process that ended so; to be raised by the caller."""
        return process_error(returncode, stderr, self._error_type)

    def _validate_config(self) -> None:
        """Raises ValueError for a wrong value, warns of unknown keys."""
        check(self.config, stacklevel=4)

    def _options(
        self, context: Mapping[str, Any] | None, response_timeout: float | None = None
    ) -> Options:
        return options_of(self.config, context or {}, self._base, response_timeout)

    @property
    def _error_type(self) -> type[ProviderError]:
        return error_type(self.error_class)

    @property
    def _tools(self) -> list[str]:
        return [*self.config.get("allowed_tools", ())]

    def _allowing(self, transport: Cli) -> Cli:
        """With the tools that need no approval; yolo needs none for any."""
        return replace(transport, pre_approved=(*transport.pre_approved, *self._tools))


def _collect(named: FileFold, event: Event) -> None:
    """Adds to the written files as the agent named them: `Init` would make their paths absolute."""
    if not isinstance(event, Init):
        named.add(event)


def _answer(result: Result, named: FileFold) -> ProviderResult:
    both = zip(named.changes, result.files, strict=True)
    paths = {given.path: there.path for given, there in both if there.tool in FILE_WRITE_TOOLS}
    return ProviderResult(result.text, dict.fromkeys(paths), paths)


def _note(event: Event) -> None:
    match event:
        case Init():
            _log.info("gemini began: session %s, model %s", event.session_id, event.model)
        case Error():
            # A line that could not be read is quoted in it, and may hold anything.
            message = redacted(event.message, secrets_in(os.environ))
            _log.warning("gemini said: %s: %s", event.code, message)
        case Done():
            _log.info("gemini ended: %s", event.status)


def _note_stderr(result: Result) -> None:
    """On success too: it holds warnings. The transport has taken the secrets out."""
    if stderr := result.stderr.strip():
        _log.log(logging.INFO if result.ok else logging.WARNING, "gemini's stderr: %s", stderr)
