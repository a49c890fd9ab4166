"""What went wrong under a contract comes with a hint that the contract's users can follow."""

import asyncio
import re

import pytest

from geminorum import Cli, Options
from geminorum.contracts import agent_adapter, agent_cli, local_adapter, provider_adapter
from geminorum.contracts.agent_adapter import GeminiAdapter, envelope
from geminorum.contracts.local_adapter import AdapterExecutionContext, GeminiLocalConfig
from geminorum.contracts.local_adapter.config import hint_for
from geminorum.contracts.provider_adapter.failures import failure_of
from geminorum.contracts.response_provider import GeminiCliProvider, ProviderError
from geminorum.contracts.response_provider.failures import provider_error
from geminorum.errors import (
    AnswerCut,
    AuthError,
    CliNotFound,
    GeminorumError,
    InvalidOptions,
    RunTimeout,
    SessionLost,
    Stalled,
    StartTimeout,
    TrustError,
)
from geminorum.events import Error
from geminorum.hints import advice
from geminorum.wire.stream_json.decoder import ALLOW_BEFOREHAND

INIT = {"type": "init", "session_id": "s-1", "model": "gemini-2.5-flash"}
ASKED = AdapterExecutionContext(prompt="Hi", agent_id="a")


async def hint_of_adapter(adapter: GeminiAdapter, **options: object) -> str | None:
    errors = [event async for event in adapter.run("Hi", options) if event.type == "error"]
    return (errors[-1].metadata or {}).get("hint")


class TestTheTimeLimit:
    def test_of_the_local_adapter(self, stand_in, tmp_path):
        config = GeminiLocalConfig(cwd=tmp_path, timeout_sec=2.0)
        result = local_adapter.execute_sync(config, ASKED, via=stand_in(INIT, hang=True))
        assert result.hint == "raise timeoutSec; what arrived is in the result"

    def test_of_agent_cli(self, stand_in):
        result = agent_cli.execute_sync("Hi", timeout=2.0, via=stand_in(INIT, hang=True))
        assert result.error is not None
        assert result.error.endswith("\n  → raise timeout; what arrived is in .messages")

    def test_of_the_agent_adapter(self, stand_in):
        adapter = GeminiAdapter(stand_in(INIT, hang=True), Options(timeout=2.0))
        assert asyncio.run(hint_of_adapter(adapter)) == "raise base=Options(timeout=…)"

    def test_of_the_response_provider(self, stand_in):
        provider = GeminiCliProvider({"timeout": 2.0}, via=stand_in(INIT, hang=True))
        with pytest.raises(ProviderError) as caught:
            provider.generate("Hi")
        assert "Options(" not in str(caught.value.hint)
        assert 'the config\'s "timeout", or without one response_timeout=…' in caught.value.hint

    def test_of_the_provider_adapter(self):
        assert failure_of(RunTimeout("late")).hint == 'raise "timeout"'
        # It has no key for the silence that ends a call.
        assert failure_of(Stalled("silent")).hint is None


class TestACliThatIsNotThere:
    def test_of_the_local_adapter(self, tmp_path):
        config = GeminiLocalConfig(cwd=tmp_path, executable=str(tmp_path / "nothing"))
        hint = local_adapter.execute_sync(config, ASKED).hint
        assert hint.endswith("`npm install -g @google/gemini-cli`, or name it: executable")

    def test_of_agent_cli(self, tmp_path):
        result = agent_cli.execute_sync("Hi", via=Cli(executable=tmp_path / "nothing"))
        assert result.error.endswith("or name it: via=Cli(executable=…)")

    def test_of_the_agent_adapter(self, tmp_path):
        adapter = GeminiAdapter(Cli(executable=tmp_path / "nothing"))
        assert asyncio.run(hint_of_adapter(adapter)).endswith("name it: via=Cli(executable=…)")

    def test_of_the_response_provider(self, tmp_path):
        with pytest.raises(ProviderError) as caught:
            GeminiCliProvider(via=Cli(executable=tmp_path / "nothing")).validate()
        assert caught.value.hint.endswith("name it: via=Cli(executable=…)")


class TestAFolderThatIsNotThere:
    def test_of_agent_cli(self, stand_in, tmp_path):
        with pytest.raises(InvalidOptions) as caught:
            agent_cli.execute_sync("Hi", working_dir=tmp_path / "none", via=stand_in(INIT))
        assert caught.value.hint == f"mkdir -p {tmp_path / 'none'}"

    def test_of_the_agent_adapter(self, stand_in, tmp_path):
        hint = asyncio.run(hint_of_adapter(GeminiAdapter(stand_in(INIT)), cwd=tmp_path / "none"))
        assert hint == f"mkdir -p {tmp_path / 'none'}"

    def test_of_the_response_provider(self, stand_in, tmp_path):
        provider = GeminiCliProvider({"working_dir": tmp_path / "none"}, via=stand_in(INIT))
        with pytest.raises(ProviderError) as caught:
            provider.generate("Hi")
        assert caught.value.hint == f"mkdir -p {tmp_path / 'none'}"


class TestTheHealthCheck:
    def test_a_probe_that_was_too_slow_names_its_own_time_limit(self, tmp_path):
        slow = tmp_path / "gemini"
        slow.write_text('#!/bin/sh\n[ "$1" = --version ] && echo 0.61.0 || exec sleep 60\n')
        slow.chmod(0o755)
        config = GeminiLocalConfig(cwd=tmp_path, executable=str(slow))
        found = local_adapter.test_environment(config, probe_timeout=0.3)[-1]
        assert found.code == RunTimeout.code
        assert found.fix == "test_environment(config, probe_timeout=0.9)"

    def test_a_cli_that_is_not_there_leaves_one_key_to_change(self, tmp_path):
        config = GeminiLocalConfig(cwd=tmp_path, executable=str(tmp_path / "nothing"))
        found = local_adapter.test_environment(config)[0]
        assert found.fix == "python -m geminorum.install  # and leave executable out"


class TestOtherWords:
    def test_a_session_that_is_lost(self):
        told = envelope(Error("gone", SessionLost.code, hint=SessionLost.default_hint))
        assert (told.metadata or {})["hint"].startswith("start a new session without resume;")

    def test_a_tool_that_needs_approval(self):
        told = envelope(Error("no", hint=ALLOW_BEFOREHAND))
        expected = "allow it beforehand: permissions, allowed_tools or base=Options(approval=…)"
        assert (told.metadata or {})["hint"] == expected
        assert hint_for(ALLOW_BEFOREHAND) == "allow it beforehand: approvalMode"

    def test_a_folder_that_is_not_trusted(self):
        hint = hint_for(TrustError.default_hint)
        assert hint == (
            "leave trustWorkspace out to run without the folder's own settings, "
            "or pass trustWorkspace: true to load them"
        )

    def test_a_session_of_another_folder(self):
        there = advice("resume it there, with {Options.cwd=owner}", owner="/srv/a")
        assert hint_for(there) == "resume it there, with cwd='/srv/a'"
        told = provider_error(SessionLost("no", hint=there)).hint
        assert told == "resume it there, with \"working_dir\": '/srv/a'"

    def test_a_key_that_is_wrong(self):
        hint = failure_of(AuthError("no")).hint
        assert hint.startswith('pass "apiKey" (a key from https://')

    def test_an_answer_that_is_too_long(self):
        hint = failure_of(AnswerCut("long")).hint
        assert hint == 'raise "maxOutputTokens", or ask for less'

    def test_a_hint_of_somebody_elses_is_passed_on(self):
        assert failure_of(GeminorumError("no", hint="call mine(…)")).hint == "call mine(…)"


def test_no_contract_tells_of_python_that_its_users_cannot_write():
    kinds = (RunTimeout, StartTimeout, Stalled, CliNotFound, SessionLost, TrustError, AuthError)
    python = re.compile(r"(?<!base=)Options\(|(?<!via=)(?:Cli|Acp|Api|Pool)\(|\bNone\b.*waits")
    for kind in kinds:
        error = kind("no")
        told = [
            agent_adapter.events.hint_for(error.hint),
            agent_cli.executing.hint_for(error.hint),
            hint_for(error.hint),
            failure_of(error).hint,
        ]
        assert not [hint for hint in told if hint and python.search(hint)], kind
    assert provider_adapter.MissingApiKey("no").hint
