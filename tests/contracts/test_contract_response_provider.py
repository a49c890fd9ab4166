"""The response provider's contract (S4): a prompt in, a text and the files written out."""

import asyncio
import json
import logging
import pickle
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from inspect import iscoroutinefunction, signature
from pathlib import Path
from typing import NamedTuple

import pytest

from geminorum import Cli, Options
from geminorum.contracts import response_provider
from geminorum.contracts.response_provider import (
    GeminiCliProvider,
    ProviderError,
    ProviderResult,
    ResponseProvider,
)
from geminorum.errors import (
    AuthError,
    CliNotFound,
    InvalidOptions,
    InvalidPrompt,
    MissingResult,
    QuotaError,
    RunTimeout,
    StartTimeout,
)
from geminorum.testing import FakeGemini, Request
from geminorum.wire.policy.toml_writer import policy_toml
from recorded import recording, stream
from shared_run import private_place

INIT = {"type": "init", "session_id": "s-1", "model": "gemini-2.5-flash"}
HELLO = {"type": "message", "role": "assistant", "content": "Hello"}
SUCCESS = {"type": "result", "status": "success", "stats": {"input_tokens": 3, "output_tokens": 1}}
NOT_FOUND = "Gemini CLI not found. Install from: https://github.com/google-gemini/gemini-cli"
NOT_LOGGED_IN = "Gemini CLI authentication error. Run: gemini auth login"
LOGGER = response_provider.__name__


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, logger=LOGGER)
    return caplog


def lines(*frames: dict) -> bytes:
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)


def write(tool: str = "write_file", id: str = "t1", path: str = "/a.txt", **result) -> bytes:
    use = {"type": "tool_use", "tool_name": tool, "tool_id": id, "parameters": {"file_path": path}}
    return lines(use, {"type": "tool_result", "tool_id": id, "status": "success", **result})


# ---- the shape


class TestTheShape:
    def test_no_configuration_is_needed(self):
        """S4-3, S4-29: the provider can be created without a config, and its metadata says so."""
        assert GeminiCliProvider().config == GeminiCliProvider(None).config == {}
        assert GeminiCliProvider.get_metadata()["requires_config"] is False

    def test_its_metadata(self):
        """S4-6, S4-27, S4-28, S4-29, S4-30, S4-31, S4-32: `get_metadata` returns exactly the
        document's values."""
        assert GeminiCliProvider.get_metadata() == {
            "name": "gemini-cli",
            "description": "Gemini CLI AI agent via subprocess",
            "requires_config": False,
            "config_keys": [
                "model",
                "sandbox",
                "approval_mode",
                "include_directories",
                "allowed_tools",
                "working_dir",
                "timeout",
            ],
            "default_response_timeout": 600,
            "fs_ability": "local-write",
        }

    def test_changing_the_metadata_affects_no_other_caller(self):
        """S4-6: `get_metadata` returns a new dict each time; changing it affects nobody else."""
        GeminiCliProvider.get_metadata()["config_keys"].clear()
        assert len(GeminiCliProvider.get_metadata()["config_keys"]) == 7

    @pytest.mark.parametrize(
        ("name", "parameters"),
        [
            ("validate", []),
            ("get_metadata", []),
            (
                "generate",
                ["prompt", "context", "system_prompt", "connection_timeout", "response_timeout"],
            ),
            ("_async_generate", ["prompt", "context", "system_prompt"]),
            ("_build_args", ["context"]),
            ("_parse_ndjson_stream", ["stdout"]),
            ("_wrap_process_error", ["returncode", "stderr"]),
            ("_validate_config", []),
        ],
    )
    def test_its_methods_can_be_called_as_the_document_says(self, name, parameters):
        """S4-4, S4-5, S4-6, S4-7: every method has the document's parameters, and only
        `_async_generate` is a coroutine."""
        assert [*signature(getattr(GeminiCliProvider(), name)).parameters][: len(parameters)] == (
            parameters
        )
        assert iscoroutinefunction(getattr(GeminiCliProvider, name)) is (name == "_async_generate")

    def test_a_provider_of_your_own_starts_from_the_base_class(self):
        """S4-4, S4-5, S4-6: a subclass of `ResponseProvider` writes two methods and inherits
        default metadata."""

        class Parrot(ResponseProvider):
            def validate(self) -> None:
                raise ProviderError("no parrot")

            def generate(self, prompt, context=None, *_, **__) -> ProviderResult:
                return ProviderResult(prompt)

        assert Parrot().generate("Hi").response == "Hi"
        assert Parrot.get_metadata().keys() >= GeminiCliProvider.get_metadata().keys()
        assert issubclass(GeminiCliProvider, ResponseProvider)
        with pytest.raises(TypeError, match="abstract"):
            ResponseProvider()

    def test_no_config_key_limits_the_cost(self):
        """S4-40: no config key limits the cost; only `timeout` limits a run."""
        with pytest.warns(UserWarning, match="unknown config key 'max_budget_usd'"):
            GeminiCliProvider({"max_budget_usd": 1})
        assert not [key for key in GeminiCliProvider.get_metadata()["config_keys"] if "cost" in key]

    def test_a_result_is_a_text_and_paths(self):
        """S4-2, S4-5: `ProviderResult` holds the response and the files as keys, both empty by
        default."""
        assert ProviderResult() == ProviderResult("", {})
        assert ProviderResult("a", {"b": None}).files == {"b": None}

    def test_tests_of_the_real_cli_can_be_left_out(self, request):
        """S4-39: every test here that starts the real CLI has the marker `gemini_cli`."""
        assert any(line.startswith("gemini_cli:") for line in request.config.getini("markers"))
        here = [item for item in request.session.items if item.path == Path(__file__)]
        real = [item for item in here if "real_transport" in item.fixturenames]
        assert [item.name for item in real if not item.get_closest_marker("gemini_cli")] == []


# ---- the configuration


class TestConfiguration:
    @pytest.mark.parametrize("seconds", [0, -1, -0.5, float("nan")])
    def test_a_timeout_is_positive(self, seconds):
        """S4-14, S4-33: a timeout of zero or less raises the document's ValueError."""
        with pytest.raises(ValueError, match=r"^timeout must be > 0$"):
            GeminiCliProvider({"timeout": seconds})

    @pytest.mark.parametrize("name", ["connection_timeout", "response_timeout"])
    def test_so_are_those_of_a_call(self, name):
        with pytest.raises(ValueError, match=rf"^{name} must be > 0$"):
            GeminiCliProvider().generate("Hi", **{name: 0})

    def test_an_approval_mode_is_one_of_three(self):
        """S4-10, S4-34, S4-40a: other modes than default, auto_edit and yolo raise the document's
        ValueError."""
        for mode in ("default", "auto_edit", "yolo"):
            GeminiCliProvider({"approval_mode": mode})
        with pytest.raises(ValueError, match="approval_mode") as caught:
            GeminiCliProvider({"approval_mode": "plan"})
        assert str(caught.value) == (
            "approval_mode must be one of ['auto_edit', 'default', 'yolo'], got: 'plan'"
        )

    @pytest.mark.parametrize("key", ["include_directories", "allowed_tools"])
    @pytest.mark.parametrize(("value", "kind"), [("a", "str"), (("a",), "tuple"), ({}, "dict")])
    def test_lists_are_lists(self, key, value, kind):
        """S4-11, S4-12, S4-35, S4-40a: a value that is not a list raises a ValueError that names
        the key and the type."""
        with pytest.raises(ValueError, match=f"^{key} must be a list, got: {kind}$"):
            GeminiCliProvider({key: value})

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ({"timeout": "5"}, "timeout must be a number of seconds, got: str"),
            ({"timeout": True}, "timeout must be a number of seconds, got: bool"),
            ({"model": 3}, "model must be a string, got: int"),
            ({"sandbox": 3}, "sandbox must be True, False or the name"),
            ({"working_dir": 3}, "working_dir must be a string, got: int"),
            ({"allowed_tools": [3]}, "allowed_tools must hold strings, got: int"),
            ({"include_directories": [3]}, "include_directories must hold strings, got: int"),
            ({"allowed_tools": ["rm -rf"]}, "'rm -rf' is not the name of a tool"),
            ("model", "config must be a dict, got: str"),
        ],
    )
    def test_other_values_that_cannot_be_meant(self, config, message):
        with pytest.raises(ValueError, match=message):
            GeminiCliProvider(config)

    @pytest.mark.parametrize(
        ("key", "advice"),
        [
            ("modle", "did you mean 'model'"),
            ("approvalmode", "did you mean 'approval_mode'"),
            ("colour", "there are: model, sandbox"),
        ],
    )
    def test_an_unknown_key_is_warned_of(self, key, advice):
        """S4-36: an unknown config key gives a warning that points at the caller's line."""
        with pytest.warns(UserWarning, match=advice) as told:
            GeminiCliProvider({key: 1})
        assert told[0].filename == __file__

    def test_the_known_keys_give_no_warning(self):
        """S4-30, S4-36: the seven documented config keys give no warning."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            GeminiCliProvider(dict.fromkeys(GeminiCliProvider.get_metadata()["config_keys"]))

    def test_later_changes_to_the_callers_dict_change_nothing(self):
        """S4-3: the provider copies its config, so later changes to the dict have no effect."""
        mine = {"model": "pro"}
        provider = GeminiCliProvider(mine)
        mine["model"] = "flash"
        assert "--model=pro" in provider._build_args(None)


# ---- the command line


class TestArguments:
    @pytest.mark.parametrize(
        ("config", "token"),
        [
            ({}, "--output-format=stream-json"),
            ({"model": "gemini-2.5-pro"}, "--model=gemini-2.5-pro"),
            ({"sandbox": True}, "--sandbox"),
            ({"approval_mode": "auto_edit"}, "--approval-mode=auto_edit"),
            ({"approval_mode": "default"}, "--approval-mode=default"),
            ({"approval_mode": "yolo"}, "--approval-mode=yolo"),
            ({"include_directories": ["/b", "/c"]}, "--include-directories=/c"),
        ],
    )
    def test_the_flag_of_each_key(self, config, token):
        """S4-1, S4-8, S4-9, S4-10, S4-11: each config key becomes its CLI flag, with its value in
        the same argument."""
        assert token in GeminiCliProvider(config)._build_args(None)

    def test_without_a_config_only_two_flags_are_passed(self):
        """B-13: without a config, no model and no mode is passed, above all not yolo."""
        assert GeminiCliProvider()._build_args(None) == [
            "--output-format=stream-json",
            "--skip-trust",
        ]
        assert "--sandbox" not in GeminiCliProvider({"sandbox": False})._build_args(None)

    @pytest.mark.parametrize("path", ["a b.md", "-rf.md", Path("/x/p.md")], ids=str)
    def test_a_prompt_file_is_one_token(self, path):
        """S4-15, B-1: flag and text are one argument, so no file name can be read as another
        flag."""
        arguments = GeminiCliProvider()._build_args({"prompt_file": path})
        assert arguments[-1] == f"--prompt=Process the prompt in {path}"

    def test_what_is_built_is_what_is_started(self, stand_in, tmp_path):
        """S4-7, S4-8, S4-9, S4-10, S4-11, S4-15: `_build_args` returns exactly the arguments that
        `generate` starts the CLI with."""
        config = {
            "model": "flash",
            "sandbox": True,
            "approval_mode": "auto_edit",
            "include_directories": [str(tmp_path)],
        }
        provider = GeminiCliProvider(config, via=stand_in(INIT, HELLO, SUCCESS))
        context = {"prompt_file": "p.md"}
        provider.generate("ignored", context)
        started = [token for token in stand_in.call["argv"] if not token.startswith("--policy=")]
        assert started == provider._build_args(context)

    def test_a_sandbox_may_have_a_name(self, stand_in):
        """S4-9: a sandbox given by name reaches the CLI in GEMINI_SANDBOX."""
        GeminiCliProvider({"sandbox": "docker"}, via=stand_in(INIT, HELLO, SUCCESS)).generate("Hi")
        assert stand_in.call["env"]["GEMINI_SANDBOX"] == "docker"

    def test_allowed_tools_become_rules_that_allow_and_nothing_more(self):
        """S4-12, B-20: `allowed_tools` adds allow rules to the policy; it does not deny other
        tools."""
        allowed = ["read_file", "run_shell_command(git status)"]
        with_them, without = policy_toml(Options(), pre_approved=allowed), policy_toml(Options())
        others = tomllib.loads(without)["rule"]
        rules = [rule for rule in tomllib.loads(with_them)["rule"] if rule not in others]
        assert {rule["decision"] for rule in rules} == {"allow"}
        assert [rule["toolName"] for rule in rules] == ["read_file", "run_shell_command"]
        assert r"git\x20status" in rules[1]["argsPattern"]

    def test_the_rules_are_there_as_long_as_the_run(self, stand_in):
        """S4-12, B-20: the policy file goes with the run; the deprecated flag is not used."""
        provider = GeminiCliProvider(
            {"allowed_tools": ["glob"]}, via=stand_in(INIT, HELLO, SUCCESS)
        )
        provider.generate("Hi")
        assert not [token for token in stand_in.call["argv"] if "allowed-tools" in token]
        (file,) = [token for token in stand_in.call["argv"] if token.startswith("--policy=")]
        assert not Path(file.removeprefix("--policy=")).exists()

    def test_a_cli_without_policies_gets_its_own_flag(self, tmp_path):
        """S4-12, B-20: a CLI before 0.35 gets `allowed_tools` as `--allowed-tools` flags."""
        package = tmp_path / "node_modules/@google/gemini-cli"
        (package / "bundle").mkdir(parents=True)
        about = {"name": "@google/gemini-cli", "version": "0.29.0"}
        (package / "package.json").write_text(
            json.dumps({**about, "bin": {"gemini": "bundle/gemini.js"}})
        )
        program = package / "bundle/gemini.js"
        program.write_text(
            f"const said = {json.dumps([INIT, HELLO, SUCCESS])};\n"
            "said[1].content = process.argv.slice(2).join(' ');\n"
            "said.forEach((frame) => console.log(JSON.stringify(frame)));\n"
        )
        config = {"allowed_tools": ["read_file", "glob"]}
        answer = GeminiCliProvider(config, via=Cli(executable=program)).generate("Hi")
        assert answer.response.endswith("--allowed-tools=read_file --allowed-tools=glob")
        assert "--policy" not in answer.response


# ---- the stream


class TestTheStream:
    @pytest.mark.parametrize(
        ("name", "text", "files"),
        [
            ("0.11.3-reading", "They are about pipes.", []),
            (
                "0.11.3-tour",
                "I write the poem. Is it there? I read it again."
                "What do others write? The poem is done.",
                ["/tmp/geminorum-fixtures/poems/poem.txt"],
            ),
            ("0.29.0-shell", "I count the words. Three words.", []),
            ("0.61.0-at-once", "Three at once. Two of three went well.", []),
            ("0.61.0-misnamed", "That did not work.", []),
        ],
    )
    def test_recorded_streams(self, name, text, files):
        """S4-2, S4-7, S4-18 … S4-23, S4-41: recordings give the assistant's text and the files
        whose write succeeded."""
        stdout = stream(name).read_bytes()
        assert GeminiCliProvider()._parse_ndjson_stream(stdout) == (text, dict.fromkeys(files))

    @pytest.mark.parametrize(
        ("stdout", "text"),
        [
            (b"", ""),
            (b"\n\n" + lines(HELLO) + b"\n\n", "Hello"),
            (lines(HELLO, {**HELLO, "content": " again"}), "Hello again"),
            (lines({**HELLO, "role": "user"}, HELLO), "Hello"),
            (lines(HELLO) + b'{"type": "message", "role": "assis', "Hello"),
            (lines(HELLO) + b"not valid json\n" + lines({**HELLO, "content": " you"}), "Hello you"),
        ],
        ids=["empty", "blank", "two messages", "user", "truncated", "malformed"],
    )
    def test_streams_that_are_not_whole(self, stdout, text):
        """S4-18, S4-37: truncated and broken streams give the text that can be read; nothing
        raises."""
        assert GeminiCliProvider()._parse_ndjson_stream(stdout) == (text, {})

    def test_a_call_without_an_id_is_no_file(self):
        """S4-19, S4-20: a write without an id cannot be matched to its result, so it does not
        count."""
        call, result = map(json.loads, write().splitlines())
        del call["tool_id"]
        assert GeminiCliProvider()._parse_ndjson_stream(lines(call, result)) == ("", {})

    def test_the_beginning_and_the_end_are_logged(self, log):
        """S4-17, S4-21: session, model and final status are logged."""
        GeminiCliProvider()._parse_ndjson_stream(lines(INIT, HELLO, SUCCESS))
        assert log.messages == [
            "gemini began: session s-1, model gemini-2.5-flash",
            "gemini ended: success",
        ]

    def test_deltas_are_put_together(self):
        """S4-18: the text chunks of a message are joined into the response."""
        deltas = [{**HELLO, "content": word, "delta": True} for word in ("Hel", "lo")]
        assert GeminiCliProvider()._parse_ndjson_stream(lines(*deltas)) == ("Hello", {})

    @pytest.mark.parametrize("tool", ["write_file", "replace"])
    def test_two_tools_write(self, tool):
        """S4-19, S4-20, S4-22, S4-23, S4-40a: a successful `write_file` or `replace` adds its path
        to the files."""
        _, files = GeminiCliProvider()._parse_ndjson_stream(write(tool))
        assert files == {"/a.txt": None}

    @pytest.mark.parametrize("tool", ["read_file", "edit", "run_shell_command"])
    def test_other_tools_add_no_file(self, tool):
        """S4-22, S4-40a: a successful call of any other tool adds no file."""
        assert GeminiCliProvider()._parse_ndjson_stream(write(tool)) == ("", {})

    @pytest.mark.parametrize(
        "result",
        [
            {"status": "error"},
            {"error": {"type": "cancelled", "message": "cancelled"}},
            {"tool_id": "another"},
        ],
    )
    def test_only_a_success_is_a_file(self, result):
        """S4-20, S4-23, S4-40a, B-7: a cancelled call, which the CLI reports as success with an
        error, does not count as written."""
        assert GeminiCliProvider()._parse_ndjson_stream(write(**result)) == ("", {})

    def test_a_call_without_its_result_is_no_file(self):
        """S4-19, S4-20: a write whose result never came does not count as written."""
        call = write().splitlines()[0]
        assert GeminiCliProvider()._parse_ndjson_stream(call) == ("", {})

    def test_files_come_in_the_order_of_writing(self):
        """S4-23, B-7: files are listed in the order of their first write, each once."""
        stream = write(path="/z") + write("replace", path="/a") + write(path="/z")
        assert [*GeminiCliProvider()._parse_ndjson_stream(stream)[1]] == ["/z", "/a"]

    def test_a_broken_line_is_logged_with_a_sample_and_passed_over(self, log):
        """S4-37, S4-40a: a malformed line is logged with its text, and the lines around it
        count."""
        GeminiCliProvider()._parse_ndjson_stream(lines(HELLO) + b"not valid json\n" + lines(HELLO))
        (record,) = log.records
        assert record.levelname == "WARNING"
        assert "raw: not valid json" in record.getMessage()

    def test_the_sample_is_short_and_holds_no_secret(self, log, monkeypatch):
        """S4-37: the logged sample of a broken line is cut, and known secrets are redacted."""
        monkeypatch.setenv("SOME_API_KEY", "hush-hush-hush")
        GeminiCliProvider()._parse_ndjson_stream(b"it is hush-hush-hush " + b"x" * 100_000)
        assert "it is [redacted] xxx" in log.text
        assert len(log.text) < 1000


# ---- failures


class EngineError(Exception):
    """The exception that a workflow engine catches around its providers."""


class EngineProvider(GeminiCliProvider):
    error_class = EngineError


class TestFailures:
    def wrapped(self, code: int, stderr: str) -> ProviderError:
        return GeminiCliProvider()._wrap_process_error(code, stderr)

    @pytest.mark.parametrize(
        ("code", "stderr"),
        [
            (41, ""),
            (41, "Please set an Auth method in your settings.json"),
            (1, "Error: auth failed"),
            (1, "Please LOGIN first"),
            (1, "Invalid auth method selected."),
            (1, "IneligibleTierError: no longer served"),
            (1, "Authentication required"),
            (1, "401 Unauthorized"),
            (1, "request failed: unauthorised."),
            (1, "OAuth token expired"),
            (1, "Please re-authenticate."),
            (1, "You have to reauthenticate"),
        ],
    )
    def test_a_missing_login(self, code, stderr):
        """S4-24, B-23: an authentication failure raises with the document's message and a hint that
        works today."""
        error = self.wrapped(code, stderr)
        assert error.message == f"{NOT_LOGGED_IN}\n{stderr}"
        assert "GEMINI_API_KEY" in str(error).splitlines()[-1]

    @pytest.mark.parametrize(
        "stderr",
        [
            "the author is unknown",
            "cannot read /srv/auth/notes",
            "cannot read /srv/auth",
            "preauth failed",
            "no module login.py",
            "Error executing tool run_shell_command: please login",
            "blogin-auth-ority",
            "cannot read oauth_creds.json",
            "cannot open /srv/oauth",
            "see unauthorized.md",
        ],
    )
    def test_words_that_only_resemble_a_login_failure(self, stderr):
        """S4-26, B-23: "author" or a path with "auth" in it is not taken for an authentication
        failure."""
        assert str(self.wrapped(1, stderr)) == f"Gemini CLI failed (exit 1): {stderr}"

    def test_a_missing_program(self):
        """S4-25: exit 127 raises the document's "not found" message with the install address."""
        assert str(self.wrapped(127, "sh: gemini: not found")) == NOT_FOUND

    def test_any_other_failure_names_its_exit_code(self):
        """S4-26, S4-40a: any other failure raises "Gemini CLI failed" with its exit code and
        stderr."""
        error = self.wrapped(3, "disk full")
        assert str(error) == "Gemini CLI failed (exit 3): disk full"
        assert (error.exit_code, error.stderr) == (3, "disk full")

    @pytest.mark.parametrize(
        ("plan", "text", "cause"),
        [
            ({"exit": 41, "stderr": "no key"}, f"{NOT_LOGGED_IN}\nno key", AuthError),
            ({"exit": 1, "stderr": "please login"}, f"{NOT_LOGGED_IN}\nplease login", None),
            ({"exit": 127}, NOT_FOUND, MissingResult),
            ({"exit": 3, "stderr": "boom"}, "Gemini CLI failed (exit 3): boom", MissingResult),
            ({"exit": 0}, "Gemini CLI failed (exit 0): exited with code 0 and without", None),
        ],
    )
    def test_a_process_that_fails(self, stand_in, plan, text, cause):
        """S4-24, S4-25, S4-26, S4-40a: exit code and stderr of a real process select the document's
        message."""
        with pytest.raises(ProviderError) as caught:
            GeminiCliProvider(via=stand_in(INIT, HELLO, **plan)).generate("Hi")
        assert str(caught.value).startswith(text)
        assert isinstance(caught.value.__cause__, cause or MissingResult)
        assert caught.value.result.text == "Hello"

    def test_a_failure_that_the_stream_tells(self, stand_in):
        """S4-21, S4-26: a failed `result` raises with its reason; text of the model about logins
        does not matter."""
        quota = {"type": "Error", "message": '{"error": {"code": 429, "message": "no more"}}'}
        said = {**HELLO, "content": "You need to login, the auth failed."}
        transport = stand_in(
            INIT, said, {"type": "result", "status": "error", "error": quota}, exit=173
        )
        with pytest.raises(ProviderError, match=r"^Gemini CLI failed \(exit 173\): .*no more") as e:
            GeminiCliProvider(via=transport).generate("Hi")
        assert isinstance(e.value.__cause__, QuotaError)
        assert e.value.retryable
        assert e.value.status == 429

    def test_an_error_survives_a_pickle(self, stand_in):
        with pytest.raises(ProviderError) as caught:
            GeminiCliProvider(via=stand_in(INIT, HELLO, exit=3)).generate("Hi")
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.result) == (str(caught.value), caught.value.result)

    @pytest.mark.parametrize("by", ["run", "validate", "wrap"])
    def test_an_engine_can_catch_it_as_its_own_error(self, stand_in, by):
        """S4-24 … S4-26: with `error_class`, the error is an instance of the engine's class and of
        ProviderError."""
        provider = EngineProvider(via=stand_in(INIT, HELLO, exit=3, stderr="boom"))
        if by == "validate":
            provider = EngineProvider(via=Cli(executable="/no/such/gemini"))
        calls = {"run": lambda: provider.generate("Hi"), "validate": provider.validate}
        if by == "wrap":
            error = provider._wrap_process_error(3, "boom")
        else:
            with pytest.raises(EngineError) as caught:
                calls[by]()
            error = caught.value
        assert isinstance(error, EngineError)
        assert isinstance(error, ProviderError)
        assert str(error).startswith("Gemini CLI ")
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))

    def test_an_error_class_that_derives_from_ours_is_used_as_it_is(self):
        class Mine(ProviderError):
            pass

        provider = EngineProvider()
        provider.error_class = Mine
        assert type(provider._wrap_process_error(3, "boom")) is Mine

    def test_no_program_at_all(self):
        """S4-4, S4-25: without a CLI, `validate` and `generate` both raise "not found" with an
        install command."""
        provider = GeminiCliProvider(via=Cli(executable="/no/such/gemini"))
        for call in (provider.validate, lambda: provider.generate("Hi")):
            with pytest.raises(ProviderError) as caught:
                call()
            first, *_, last = str(caught.value).splitlines()
            assert first == NOT_FOUND
            assert "npm install" in last
            assert isinstance(caught.value.__cause__, CliNotFound)

    @pytest.mark.parametrize(
        ("prompt", "context", "cause"),
        [
            ("  ", {}, InvalidPrompt),
            (None, {}, InvalidPrompt),
            ("x" * (8 * 1024 * 1024 + 1), {}, InvalidPrompt),
            ("Hi", {"project_root": "/no/such/folder"}, InvalidOptions),
            ("Hi", {"prompt_file": 3}, InvalidPrompt),
        ],
        ids=["empty", "none", "too large", "no folder", "no path"],
    )
    @pytest.mark.parametrize("system_prompt", [None, "Be brief."])
    def test_what_cannot_be_run_is_not_started(
        self, stand_in, prompt, context, cause, system_prompt
    ):
        """B-1: an empty or oversized prompt, a missing folder or a bad `prompt_file` raises before
        the start."""
        with pytest.raises(ProviderError, match="was not started") as caught:
            GeminiCliProvider(via=stand_in(INIT, SUCCESS)).generate(prompt, context, system_prompt)
        assert isinstance(caught.value.__cause__, cause)
        with pytest.raises(FileNotFoundError):
            _ = stand_in.call


# ---- an answer


class TestAnAnswer:
    def test_of_a_program_on_the_path(self, stand_in, tmp_path, monkeypatch):
        """S4-4, S4-38: `shutil.which` finds the program, and it is started by its full path."""
        program = stand_in(INIT, HELLO, SUCCESS).executable
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/gemini").symlink_to(program)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
        monkeypatch.delenv("GEMINI_CLI_PATH", raising=False)
        provider = GeminiCliProvider({"working_dir": "elsewhere"})
        provider.validate()
        assert provider.generate("Hi") == ProviderResult("Hello", {})

    def test_needs_no_sdk(self, stand_in, monkeypatch):
        """S4-1, S4-40a: the provider works where `google.genai` cannot be imported."""
        for name in ("google", "google.genai"):
            monkeypatch.setitem(sys.modules, name, None)
        answer = GeminiCliProvider(via=stand_in(INIT, HELLO, SUCCESS)).generate("Hi")
        assert answer.response == "Hello"
        assert "--output-format=stream-json" in stand_in.call["argv"]

    def test_the_prompt_goes_by_stdin(self, stand_in):
        """S4-16, S4-40a: a prompt that starts with a dash arrives unchanged on stdin and not among
        the arguments."""
        GeminiCliProvider(via=stand_in(INIT, HELLO, SUCCESS)).generate("--help me")
        assert stand_in.call["stdin"] == "--help me"
        assert not [token for token in stand_in.call["argv"] if "help me" in token]

    def test_the_system_prompt_stands_before_it(self, stand_in):
        """S4-41: the system prompt and a blank line come before the prompt."""
        provider = GeminiCliProvider(via=stand_in(INIT, HELLO, SUCCESS))
        provider.generate("Hi", system_prompt="Be brief.")
        assert stand_in.call["stdin"] == "Be brief.\n\nHi"

    def test_with_a_prompt_file_the_prompt_is_ignored(self, stand_in):
        """S4-15, S4-40a: with `prompt_file`, stdin is empty and the agent is told to read the
        file."""
        provider = GeminiCliProvider(via=stand_in(INIT, HELLO, SUCCESS))
        provider.generate("ignored", {"prompt_file": "p.md"})
        assert stand_in.call["stdin"] == ""
        assert "--prompt=Process the prompt in p.md" in stand_in.call["argv"]

    def test_without_text_is_an_empty_string(self, stand_in):
        """S4-41: a run without text gives an empty response, not None."""
        answer = GeminiCliProvider(via=stand_in(INIT, SUCCESS)).generate("Hi")
        assert answer == ProviderResult("", {})

    def test_names_files_as_the_agent_did_and_tells_where_they_are(self, stand_in, tmp_path):
        """S4-23, B-7: `files` has the agent's own names, so that an engine with a relative root
        finds its path."""
        response_path = Path(".aiwf", "sessions", "response.md")
        beside = str(tmp_path / "beside.md")
        transport = stand_in(INIT, write(path=str(response_path)), write(path=beside), SUCCESS)
        answer = GeminiCliProvider({"working_dir": str(tmp_path)}, via=transport).generate("Hi")
        assert str(response_path) in answer.files
        assert [*answer.files] == [str(response_path), beside]
        assert answer.paths == {str(response_path): str(tmp_path / response_path), beside: beside}

    @pytest.mark.parametrize("own", [True, False])
    def test_where_it_works(self, stand_in, tmp_path, own):
        """S4-13, S4-41: `working_dir` of the config overrides `project_root` of the context."""
        for name in ("mine", "project"):
            (tmp_path / name).mkdir()
        config = {"working_dir": tmp_path / "mine"} if own else {}
        provider = GeminiCliProvider(config, via=stand_in(INIT, HELLO, SUCCESS))
        provider.generate("Hi", {"project_root": tmp_path / "project"})
        assert stand_in.call["cwd"] == str(tmp_path / ("mine" if own else "project"))

    def test_stderr_is_logged_on_success_too_without_secrets(self, stand_in, log):
        """S4-17, S4-21, S4-41: the CLI's stderr is logged even after success, with secrets
        redacted."""
        transport = stand_in(INIT, HELLO, SUCCESS, stderr="careful with hush-hush-hush\n")
        base = Options(env={"GEMINI_API_KEY": "hush-hush-hush"})
        GeminiCliProvider(via=transport, base=base).generate("Hi")
        assert log.messages == [
            "gemini began: session s-1, model gemini-2.5-flash",
            "gemini ended: success",
            "gemini's stderr: careful with [redacted]",
        ]

    def test_a_broken_line_in_mid_run(self, stand_in, log):
        """S4-37: a malformed line in the middle of a run is logged, and the text around it is
        kept."""
        transport = stand_in(INIT, HELLO, "not valid json", {**HELLO, "content": " you"}, SUCCESS)
        assert GeminiCliProvider(via=transport).generate("Hi").response == "Hello you"
        assert "raw: not valid json" in log.text

    @pytest.mark.parametrize("by", ["config", "call"])
    def test_an_answer_that_takes_too_long(self, stand_in, by):
        """S4-14, S4-40, S4-41, B-12: the document's timeout message is raised, and the partial
        result is kept."""
        # On a busy machine a program may need longer than the limit to say anything.
        for limit in (2, 10, 60):
            config = {"timeout": limit} if by == "config" else {}
            provider = GeminiCliProvider(config, via=stand_in(INIT, HELLO, hang=True))
            words = rf"^Gemini CLI timed out after {limit}s"
            with pytest.raises(ProviderError, match=words) as caught:
                # Engines always pass the metadata's default.
                provider.generate("Hi", response_timeout=600 if by == "config" else limit)
            if stand_in.has_spoken:
                break
        assert isinstance(caught.value.__cause__, RunTimeout)
        assert caught.value.result.text == "Hello"
        assert "response_timeout" in caught.value.hint

    def test_a_cli_that_never_starts_to_answer(self, stand_in):
        """S4-41: a CLI that prints nothing within `connection_timeout` raises the document's
        timeout message."""
        with pytest.raises(ProviderError, match=r"^Gemini CLI timed out after 0.5s") as caught:
            GeminiCliProvider(via=stand_in(hang=True)).generate("Hi", connection_timeout=0.5)
        assert isinstance(caught.value.__cause__, StartTimeout)

    def test_has_ten_minutes_by_default(self):
        """S4-14, S4-31, B-12: the default time limit is 600 s, and a configured one replaces it."""
        assert GeminiCliProvider()._options(None).timeout == 600
        assert GeminiCliProvider({"timeout": 5})._options(None).timeout == 5

    def test_a_configured_time_limit_goes_before_that_of_a_call(self):
        """S4-14: engines pass the metadata's 600 with every call; a configured limit still
        counts."""
        assert GeminiCliProvider({"timeout": 5})._options(None, 600).timeout == 5
        assert GeminiCliProvider(base=Options(timeout=5))._options(None, 600).timeout == 5
        assert GeminiCliProvider()._options(None, 7).timeout == 7

    async def test_inside_a_running_loop(self, stand_in):
        """S4-5, S4-7, S4-40a: `generate` blocks inside a running event loop, and `_async_generate`
        can be awaited there."""
        provider = GeminiCliProvider(via=stand_in(INIT, HELLO, SUCCESS))
        assert asyncio.get_running_loop().is_running()
        assert provider.generate("Hi") == ProviderResult("Hello", {})
        assert await provider._async_generate("Hi", None, None) == ProviderResult("Hello", {})


# ---- the real CLI


class Run(NamedTuple):
    result: ProviderResult
    requests: list[Request]
    workspace: Path


@pytest.mark.gemini_cli
class TestTheRealCli:
    """Each run shows several things: what is asked for, what is permitted, what is written."""

    WRITE = ("write_file", {"file_path": "a.txt", "content": "hi"})
    SHELL = ("run_shell_command", {"command": "touch made"})

    @pytest.fixture(scope="class")
    @classmethod
    def runs(cls, real_transport, tmp_path_factory) -> Iterator[Callable[..., Run]]:
        """Runs in workspaces of their own, with these files, of a model that calls these tools."""
        with ExitStack() as stack:

            def run(*calls, files=(), home=(), said=("Done.",), asked=(), **config) -> Run:
                with private_place(tmp_path_factory) as workspace:
                    fake = stack.enter_context(FakeGemini())
                    for folder, texts in ((workspace, dict(files)), (fake.home, dict(home))):
                        for name, text in texts.items():
                            (folder / name).parent.mkdir(parents=True, exist_ok=True)
                            (folder / name).write_text(text)
                    if calls:
                        fake.calls(*calls)
                    fake.say(*said)
                    base = Options(env=fake.env, model="gemini-2.5-flash")
                    config = {"working_dir": str(workspace), **config}
                    provider = GeminiCliProvider(config, via=real_transport, base=base)
                    provider.validate()
                    return Run(provider.generate(*asked), fake.requests, workspace)

            yield run

    @pytest.fixture(scope="class")
    @classmethod
    def refused(cls, runs) -> Run:
        """The user denies what `allowed_tools` allows."""
        mine = '[[rule]]\ntoolName = "write_file"\ndecision = "deny"\npriority = 400\n'
        return runs(
            cls.WRITE,
            home={".gemini/policies/mine.toml": mine},
            said=("Four", "."),
            asked=("2 + 2?", None, "Be brief."),
            model="gemini-2.5-pro",
            allowed_tools=["write_file"],
        )

    def test_answers(self, refused):
        """S4-1, S4-5, S4-8, S4-16, S4-41: the real CLI answers a prompt with the model and system
        prompt that were set."""
        assert refused.result == ProviderResult("Four.", {})
        assert refused.requests[0].prompt == "Be brief.\n\n2 + 2?"
        assert refused.requests[0].model == "gemini-2.5-pro"

    def test_what_the_user_denies_stays_denied(self, refused):
        """S4-12: a deny rule in the user's own policies beats `allowed_tools`."""
        assert "write_file" in str(refused.requests[1].tool_results)
        assert refused.result.files == {}
        assert not (refused.workspace / "a.txt").exists()

    @pytest.fixture(scope="class")
    @classmethod
    def in_yolo(cls, runs) -> Run:
        edit = {"file_path": "b.txt", "old_string": "x", "new_string": "y", "instruction": "x to y"}
        return runs(
            *(cls.WRITE, ("replace", edit)),
            files={"b.txt": "x", "b": "Do something else."},
            asked=("ignored", {"prompt_file": "a@b c.md"}),
            approval_mode="yolo",
        )

    def test_writes_files_in_yolo(self, in_yolo):
        """S4-2, S4-10, S4-13, S4-22, S4-23, S4-32: with yolo, the real CLI writes and edits files,
        and the result lists both."""
        assert in_yolo.result.files == {"a.txt": None, "b.txt": None}
        assert (in_yolo.workspace / "a.txt").read_text() == "hi"
        assert (in_yolo.workspace / "b.txt").read_text() == "y"

    def test_a_space_behind_the_at_needs_a_backslash(self, in_yolo):
        """S4-15: nothing else keeps the CLI from reading the file `b`."""
        assert in_yolo.requests[0].prompt == r"Process the prompt in a\@b c.md"

    @pytest.fixture(scope="class")
    @classmethod
    def beside(cls, tmp_path_factory) -> Path:
        folder = tmp_path_factory.mktemp("beside")
        (folder / "note.txt").write_text("It is me.")
        return folder

    @pytest.fixture(scope="class")
    @classmethod
    def by_default(cls, runs, beside) -> Run:
        name = "-my own prompt.md"
        return runs(
            cls.WRITE,
            ("read_file", {"file_path": name}),
            ("read_file", {"file_path": str(beside / "note.txt")}),
            files={name: "What is 2 + 2?"},
            asked=("ignored", {"prompt_file": name}, "Be brief."),
            allowed_tools=["run_shell_command"],
            include_directories=[str(beside)],
        )

    def test_writes_nothing_without_permission(self, by_default):
        """S4-10, S4-12, S4-23, B-13: by default the real CLI writes nothing, even if another tool
        is allowed."""
        assert by_default.result == ProviderResult("Done.", {})
        assert not (by_default.workspace / "a.txt").exists()

    def test_reads_in_more_folders(self, by_default):
        """S4-11: the real CLI may read a file in a folder of `include_directories`."""
        assert "It is me." in str(by_default.requests[1].tool_results)

    def test_reads_a_prompt_file(self, by_default):
        """S4-15, S4-41, B-1: the real CLI reads the prompt file itself, even if its name starts
        with a dash."""
        told = "Be brief.\n\nProcess the prompt in -my own prompt.md"
        assert by_default.result.response == "Done."
        assert by_default.requests[0].prompt == told
        assert "What is 2 + 2?" in str(by_default.requests[1].tool_results)

    @pytest.fixture(scope="class")
    @classmethod
    def without_the_shell(cls, runs) -> Run:
        return runs(
            *(cls.WRITE, cls.SHELL, ("read_file", {"file_path": "a@b.md"})),
            files={"b.md": "Do something else.", "a@b.md": "Do this."},
            asked=("ignored", {"prompt_file": "a@b.md"}),
            approval_mode="auto_edit",
        )

    @pytest.fixture(scope="class")
    @classmethod
    def with_the_shell(cls, runs) -> Run:
        decoys = ("@corp/@plan.md", "corp/plan.md", "@plan.md")
        return runs(
            *(cls.WRITE, cls.SHELL),
            files=dict.fromkeys(decoys, "The CLI read it."),
            asked=("ignored", {"prompt_file": "@corp/@plan.md"}, "Be brief."),
            approval_mode="auto_edit",
            allowed_tools=["run_shell_command"],
        )

    def test_an_at_in_the_name_of_a_prompt_file_reads_no_other(self, without_the_shell):
        """S4-15: the CLI would expand `@b.md` in a file name; the real CLI reads only the named
        file."""
        first, second = without_the_shell.requests
        assert "Do something else." not in json.dumps(first.contents)
        assert first.prompt == 'Process the prompt in "a@b.md"'
        assert "Do this." in str(second.tool_results)

    def test_a_prompt_file_with_an_at_is_named_as_it_is(self, with_the_shell):
        """S4-15, B-1: the CLI expands no file, and the model sees no backslash in the name."""
        told = 'Be brief.\n\nProcess the prompt in "@corp/@plan.md"'
        assert with_the_shell.requests[0].prompt == told
        assert "The CLI read it." not in json.dumps(with_the_shell.requests[0].contents)

    def test_an_allowed_tool_runs_unasked_and_the_others_stay_as_they_are(
        self, without_the_shell, with_the_shell
    ):
        """S4-12, B-20: a tool in `allowed_tools` runs in the real CLI without approval. The others
        are neither refused, as by a whitelist, nor asked about, as by a Policy."""
        offered = []
        for run in (without_the_shell, with_the_shell):
            assert (run.workspace / "a.txt").read_text() == "hi"
            assert (run.workspace / "made").exists() is (run is with_the_shell)
            offered.append({*run.requests[-1].tools})
        assert {"google_web_search", "read_file"} <= offered[0]
        assert offered[1] - offered[0] >= {"run_shell_command"}
        assert offered[0] <= offered[1]


class TestWhatTheCliRefuses:
    """As the real CLI was recorded, or as it is when its model never answers; `local_adapter` runs
    into its time limit on the real one, and test_doctor.py is refused by it for every login."""

    def test_a_model_that_never_answers(self, stand_in, tmp_path):
        """S4-14, S4-40, S4-41: a run that exceeds `timeout` raises the document's message."""
        config = {"working_dir": str(tmp_path), "timeout": 1}
        provider = GeminiCliProvider(config, via=stand_in(INIT, hang=True))
        with pytest.raises(ProviderError, match=r"^Gemini CLI timed out after 1s") as caught:
            provider.generate("Hi")
        assert isinstance(caught.value.__cause__, RunTimeout)

    def test_without_a_login(self, stand_in, tmp_path):
        """S4-24, B-23: the CLI without credentials exits with 41, which raises the authentication
        message."""
        refused = recording("0.61.0", "auth_none")
        via = stand_in(exit=refused["exit"], stderr=refused["stderr"])
        with pytest.raises(ProviderError) as caught:
            GeminiCliProvider(via=via).generate("Hi", {"project_root": tmp_path})
        first, *_, last = str(caught.value).splitlines()
        assert (first, caught.value.exit_code) == (NOT_LOGGED_IN, 41)
        assert "GEMINI_API_KEY" in last


async def test_from_several_threads_and_inside_a_running_loop(tmp_path):
    """S4-5, S4-40a: one provider serves two threads at once, also under a running event loop."""
    program = tmp_path / "gemini"
    said = json.dumps({**HELLO, "content": "%s"})
    program.write_text(
        f"#!/bin/sh\necho '{json.dumps(INIT)}'\n"
        f"printf '{said}\\n' \"$(tr a-z A-Z)\"\necho '{json.dumps(SUCCESS)}'\n"
    )
    program.chmod(0o755)
    shared = GeminiCliProvider(via=Cli(executable=program))
    with ThreadPoolExecutor(1) as pool:
        there = pool.submit(shared.generate, "there")
        assert shared.generate("here").response == "HERE"
        assert there.result().response == "THERE"
