"""Bad input gets a clear error that says what to do, and loses nothing that had arrived."""

import asyncio
import os
import pickle
import re
from contextlib import AsyncExitStack

import pytest

from geminorum import Api, Cli, Options, Pool, ask, connect, errors, sync
from geminorum import run as start
from geminorum.transports.turns import stop_checks as watch

INIT = {"type": "init", "session_id": "s-1", "model": "flash"}
HELLO = {"type": "message", "role": "assistant", "content": "Hello", "delta": True}
RESULT = {"type": "result", "status": "success"}


@pytest.fixture(autouse=True)
def small_folder(tmp_path_factory, monkeypatch):
    """Most runs here are in no folder by name, and each is searched for links: not this clone."""
    monkeypatch.chdir(tmp_path_factory.mktemp("work"))


@pytest.mark.parametrize("prompt", ["", "  \n\t "])
async def test_an_empty_prompt_is_refused_before_anything_starts(stand_in, prompt):
    """B-1: an empty prompt raises `InvalidPrompt`, and no process is started."""
    with pytest.raises(errors.InvalidPrompt, match="the prompt is empty"):
        await ask(prompt, via=stand_in(INIT, RESULT))
    assert not list(stand_in._folder.glob("*.call"))


async def test_a_prompt_the_cli_would_cut_is_refused(stand_in):
    """B-1: the CLI silently drops what exceeds 8 MiB, so such a prompt raises InvalidPrompt."""
    with pytest.raises(errors.InvalidPrompt, match=r"8,388,609 bytes; the CLI reads 8,388,608"):
        await ask("x" * (8 * 1024 * 1024 + 1), via=stand_in(INIT, RESULT))


async def test_the_largest_prompt_passes_whole(stand_in):
    prompt = "x" * (8 * 1024 * 1024)
    await ask(prompt, via=stand_in(INIT, HELLO, RESULT))
    assert stand_in.call["stdin"] == prompt


async def test_a_prompt_never_reaches_the_command_line(stand_in):
    """B-1, D-7, D-19: other users could see it in `ps`, and a leading dash would make it a flag."""
    await ask("--help me", via=stand_in(INIT, HELLO, RESULT))
    assert stand_in.call["stdin"] == "--help me"
    assert not any("help me" in argument for argument in stand_in.call["argv"])


async def test_a_missing_folder_says_how_to_make_it(stand_in, tmp_path):
    missing = tmp_path / "nowhere"
    with pytest.raises(errors.InvalidOptions, match=f"mkdir -p {missing}"):
        await ask("Hi", Options(cwd=missing), via=stand_in(INIT, RESULT))


async def test_a_missing_cli_says_how_to_install_it(tmp_path):
    with pytest.raises(errors.CliNotFound, match="npm install -g @google/gemini-cli"):
        await ask("Hi", Options(env={"PATH": str(tmp_path)}))


async def test_a_program_that_is_not_there_is_named(tmp_path):
    with pytest.raises(errors.CliNotFound, match="no-such-gemini"):
        await ask("Hi", via=Cli(executable=tmp_path / "no-such-gemini"))


async def test_a_cli_without_an_event_stream_is_too_old(tmp_path):
    package = tmp_path / "node_modules/@google/gemini-cli"
    (package / "bundle").mkdir(parents=True)
    (package / "package.json").write_text(
        '{"name": "@google/gemini-cli", "version": "0.9.0", "bin": {"gemini": "bundle/gemini.js"}}'
    )
    program = package / "bundle/gemini.js"
    program.write_text("#!/usr/bin/env node\n")
    program.chmod(0o755)
    with pytest.raises(errors.CliTooOld, match=r"0\.9\.0"):
        await ask("Hi", via=Cli(executable=program))


ENDINGS = [
    (41, "Please set an Auth method in your settings.json", errors.AuthError, "GEMINI_API_KEY"),
    (55, "Gemini CLI is not running in a trusted directory.", errors.TrustError, "trust_workspace"),
    (52, "Error in settings.json: Expected property name", errors.ConfigError, "settings"),
    (44, "Missing sandbox command 'podman'", errors.SandboxError, "GEMINI_SANDBOX"),
    (42, "No input provided via stdin.", errors.InvalidPrompt, "prompt"),
    (42, 'Error resuming session: Invalid session identifier "x".', errors.SessionLost, "resume"),
    (54, "No space left on device", errors.ToolFailed, "disk"),
    (53, "", errors.TurnLimit, "max_turns"),
    (130, "", errors.Interrupted, None),
    (0, "", errors.MissingResult, "result"),
    (1, "", errors.MissingResult, "result"),
    (-15, "", errors.MissingResult, "result"),
]


@pytest.mark.parametrize(("code", "stderr", "kind", "hint"), ENDINGS)
async def test_each_exit_code_is_an_error_of_its_own_kind(stand_in, code, stderr, kind, hint):
    """S0-18 … S0-21, B-9, B-22, B-23: each exit code raises its error class, which keeps the text,
    the session and stderr."""
    via = (
        stand_in(INIT, HELLO, signal=-code, stderr=stderr)
        if code < 0
        else stand_in(INIT, HELLO, exit=code, stderr=stderr)
    )
    with pytest.raises(kind) as caught:
        await ask("Hi", via=via)
    error = caught.value
    assert error.result.text == "Hello"
    assert (error.exit_code, error.session_id) == (code, "s-1")
    assert hint is None or hint in str(error)
    assert stderr in error.stderr


@pytest.mark.parametrize(
    ("exit_code", "status", "kind", "retryable"),
    [
        (144, 400, errors.ApiError, False),
        (145, 401, errors.AuthError, False),
        (173, 429, errors.QuotaError, True),
        (244, 500, errors.ServerError, True),
        (247, 503, errors.ServerError, True),
    ],
)
async def test_an_api_error_leaves_as_its_status_mod_256(
    stand_in, exit_code, status, kind, retryable
):
    failed = {"type": "result", "status": "error", "error": {"message": "[API Error: no]"}}
    with pytest.raises(kind) as caught:
        await ask("Hi", via=stand_in(INIT, failed, exit=exit_code))
    assert caught.value.status == status
    assert caught.value.retryable is retryable


async def test_a_daily_quota_is_not_worth_a_retry(stand_in):
    message = "[API Error: You have exhausted your daily quota on this model.]"
    failed = {"type": "result", "status": "error", "error": {"message": message}}
    with pytest.raises(errors.QuotaError) as caught:
        await ask("Hi", via=stand_in(INIT, failed, exit=173))
    assert caught.value.retryable is False


async def test_a_program_that_prints_garbage_is_told_from_the_cli(stand_in):
    with pytest.raises(errors.ProtocolError, match="is this the Gemini CLI"):
        await ask("Hi", via=stand_in("Usage: something else", "entirely"))


async def test_a_child_that_never_speaks_meets_the_start_deadline(stand_in):
    """C-19."""
    via = stand_in(hang=True, stderr="waiting for a lock\n", start_timeout=0.5)
    with pytest.raises(
        errors.StartTimeout, match=r"no output from the program for 0\.5 s"
    ) as caught:
        await ask("Hi", via=via)
    assert "waiting for a lock" in caught.value.stderr


async def test_a_child_that_spoke_in_time_has_all_the_time_it_wants(stand_in):
    via = stand_in(INIT, HELLO, RESULT, delay=0.4, chunk=70, start_timeout=0.5)
    assert (await ask("Hi", via=via)).text == "Hello"


async def test_a_child_that_falls_silent_meets_the_watchdog_if_there_is_one(stand_in):
    via = stand_in(INIT, HELLO, hang=True, stall_timeout=0.5)
    with pytest.raises(errors.Stalled, match=r"fell silent for 0\.5 s") as caught:
        await ask("Hi", via=via)
    assert caught.value.result.text == "Hello"


async def test_silence_has_a_limit_that_can_be_turned_off(stand_in, monkeypatch):
    """B-12: 600 s by default on every contract; `stall_timeout=None` turns it off."""
    assert watch.DEFAULT_STALL_SECONDS == 600
    monkeypatch.setattr(watch, "DEFAULT_STALL_SECONDS", 0.5)
    with pytest.raises(errors.Stalled, match=r"fell silent for 0\.5 s"):
        await ask("Hi", via=stand_in(INIT, HELLO, hang=True))
    with pytest.raises(errors.RunTimeout):
        await ask("Hi", Options(timeout=1.5), via=stand_in(INIT, hang=True, stall_timeout=None))


async def test_a_tool_may_be_silent_for_longer_unless_somebody_chose_a_limit(stand_in, monkeypatch):
    monkeypatch.setattr(watch, "DEFAULT_STALL_SECONDS", 0.4)
    use = {"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "1", "parameters": {}}
    with pytest.raises(errors.RunTimeout):
        await ask("Hi", Options(timeout=2), via=stand_in(INIT, use, hang=True))
    with pytest.raises(errors.Stalled):
        await ask("Hi", Options(timeout=9), via=stand_in(INIT, use, hang=True, stall_timeout=0.4))


async def test_without_a_start_deadline_the_watchdog_waits_for_the_first_word(stand_in):
    via = stand_in(INIT, HELLO, RESULT, sleep=0.8, start_timeout=None, stall_timeout=0.3)
    assert (await ask("Hi", via=via)).text == "Hello"


async def test_a_child_that_goes_on_speaking_is_not_stalled(stand_in):
    via = stand_in(INIT, *[HELLO] * 8, RESULT, delay=0.15, chunk=90, stall_timeout=0.6)
    assert (await ask("Hi", via=via)).text == "Hello" * 8


async def test_a_megabyte_of_complaints_neither_blocks_nor_fills_the_memory(stand_in):
    """D-22: stderr goes to a file, too; its beginning and end are kept."""
    via = stand_in(INIT, HELLO, RESULT, stderr="first words\n", stderr_bytes=3_000_000)
    result = await ask("Hi", via=via)
    assert result.text == "Hello"
    assert result.stderr.startswith("first words")
    assert "bytes left out" in result.stderr
    assert len(result.stderr) < 70_000


async def test_secrets_are_blacked_out_of_what_a_program_complains(stand_in):
    """D-29: keys, tokens and bearer credentials on stderr are redacted in the error."""
    key = "AIza" + "x" * 35
    via = stand_in(INIT, exit=1, stderr=f"bad key {key}; token sesame-open; Bearer {'b' * 30}\n")
    with pytest.raises(errors.GeminorumError) as caught:
        await ask("Hi", Options(env={"MY_TOKEN": "sesame-open"}), via=via)
    shown = f"{caught.value} {caught.value.stderr}"
    assert "[redacted]" in shown
    for secret in (key, "sesame-open", "b" * 30):
        assert secret not in shown


async def test_what_a_transport_cannot_honour_is_refused_before_it_starts(stand_in):
    with pytest.raises(errors.Unsupported, match="sandbox"):
        await ask("Hi", Options(output_schema=int), via=stand_in(INIT, RESULT, sandbox=True))


async def test_an_environment_that_cannot_be_is_refused(stand_in):
    with pytest.raises(errors.InvalidOptions, match="null byte"):
        await ask("Hi", Options(env={"A": "b\0c"}), via=stand_in(INIT, RESULT))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"via": Cli}, "is not a transport"),
        ({"via": "cli"}, "via=Cli()"),
        ({"options": {"model": "flash"}}, "from_dict"),
    ],
)
def test_a_wrong_kind_of_argument_says_what_to_pass(arguments, message):
    with pytest.raises(errors.InvalidOptions, match=re.escape(message)):
        start("Hi", **arguments)


async def test_a_prompt_that_is_no_text_is_refused(stand_in):
    with pytest.raises(errors.InvalidPrompt, match="the prompt is a NoneType"):
        await ask(None, via=stand_in(INIT, RESULT))


def test_extra_arguments_are_a_tuple():
    with pytest.raises(errors.InvalidOptions, match=re.escape("('--bogus',)")):
        Cli(extra_args="--bogus")


async def test_a_folder_may_be_named_from_home(stand_in, private_home):
    (private_home / "work").mkdir()
    await ask("Hi", Options(cwd="~/work"), via=stand_in(INIT, HELLO, RESULT))
    assert stand_in.call["cwd"] == str(private_home / "work")


async def test_a_tenants_home_is_taken_from_its_environment(stand_in, tmp_path):
    await ask("Hi", Options(env={"HOME": str(tmp_path)}), via=stand_in(INIT, HELLO, RESULT))
    assert (tmp_path / ".gemini/tmp").is_dir()


async def test_settings_reach_the_cli_and_a_cache_that_cannot_be_written_is_done_without(
    real_transport, fake_gemini, tmp_path
):
    """One attempt instead of ten: the second answer is never asked for."""
    fake_gemini.fail(503, "busy").say("too late")
    transport = Cli(executable=real_transport.executable, settings={"general": {"maxAttempts": 1}})
    (tmp_path / "file").write_text("")
    env = {**fake_gemini.env, "XDG_CACHE_HOME": str(tmp_path / "file")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        options = Options(env=env, cwd=tmp_path, model="gemini-2.5-flash")
        with pytest.raises(errors.ServerError, match="busy") as caught:
            await ask("Hi", options, via=transport)
    assert caught.value.retryable
    assert len(fake_gemini.requests) == 1


@pytest.mark.parametrize(
    "stats",
    [
        {"cached": None, "input_tokens": 5},
        {"total_tokens": 3.5},
        {
            "input_tokens": 1,
            "cached": 9,
            "models": {"gemini-2.5-flash": {"input_tokens": 1, "cached": 9, "total_tokens": 3}},
        },
        {"models": {"gemini-2.5-flash": {"total_tokens": -4}}},
        "nonsense",
    ],
)
async def test_an_odd_count_does_not_cost_the_result(stand_in, stats):
    result = await ask("Hi", via=stand_in(INIT, HELLO, {**RESULT, "stats": stats}))
    assert result.ok
    assert result.cost is None


async def test_a_tool_error_told_as_a_string_is_kept(stand_in):
    failed = {"type": "tool_result", "tool_id": "1", "status": "error", "error": "boom"}
    async with start("Hi", via=stand_in(INIT, failed, HELLO, RESULT)) as live:
        results = [event async for event in live if event.type == "tool_result"]
    assert [(r.status, r.output) for r in results] == [("error", "boom")]


async def test_a_quota_told_by_phrase_alone_is_worth_a_retry(stand_in):
    failed = {**RESULT, "status": "error", "error": "429 RESOURCE_EXHAUSTED: slow down"}
    with pytest.raises(errors.QuotaError) as caught:
        await ask("Hi", via=stand_in(INIT, failed, exit=1))
    assert caught.value.retryable is True


async def test_a_conversation_takes_one_turn_at_a_time(stand_in):
    async with connect(via=stand_in(INIT, HELLO, RESULT, delay=0.2, chunk=50)) as chat:
        async with chat.turn("one") as live:
            with pytest.raises(errors.SessionBusy, match="still running"):
                await chat.ask("two")
            assert [event.type async for event in live][-1] == "done"
        assert (await chat.ask("three")).text == "Hello"


@pytest.mark.parametrize("kind", ["cli", "acp", "pool", "api"])
async def test_of_two_questions_at_once_one_is_answered_and_one_gets_a_typed_error(
    kind, stand_in, stand_in_acp, fake_gemini
):
    fake_gemini.say("Hello").say("Hello")
    options = Options(env=fake_gemini.env, model="gemini-2.5-flash")
    async with AsyncExitStack() as stack:
        match kind:
            case "cli":
                via, options = stand_in(INIT, HELLO, RESULT), Options()
            case "acp":
                via = stand_in_acp("well_behaved")
            case "pool":
                via = await stack.enter_async_context(Pool(stand_in_acp("well_behaved"), size=1))
            case _:
                via = Api()
        chat = await stack.enter_async_context(connect(options, via=via))
        both = [chat.ask("one"), chat.ask("two")]
        answer, refused = await asyncio.gather(*both, return_exceptions=True)
        assert answer.text == "Hello"
        assert isinstance(refused, errors.SessionBusy)
        assert (refused.retryable, "connect()" in refused.hint) == (True, True)
        assert (await chat.ask("three")).text == "Hello"


def test_a_run_can_be_begun_once_only(stand_in):
    with sync.run("Hi", via=stand_in(INIT, HELLO, RESULT)) as live:
        assert [event.type for event in live][-1] == "done"
    with pytest.raises(errors.GeminorumError, match="already begun"):
        live.__enter__()
    assert list(live) == []


async def test_the_stream_tells_and_ask_raises(stand_in):
    failed = {"type": "result", "status": "error", "error": {"message": "boom"}}
    async with start("Hi", via=stand_in(INIT, HELLO, failed, exit=1)) as live:
        events = [event.type async for event in live]
    assert events == ["init", "text_delta", "text", "error", "done"]
    with pytest.raises(errors.RunFailed, match="boom"):
        live.result.raise_on_failure()


def every_error() -> list[type[errors.GeminorumError]]:
    # Contracts have errors of their own, which are known once they are imported.
    family = errors._family(errors.GeminorumError)
    return [kind for kind in family if kind.__module__ == errors.__name__]


def test_every_error_pickles_with_all_it_carries(stand_in):
    with sync.run("Hi", via=stand_in(INIT, HELLO, RESULT)) as live:
        pass
    carried = {"exit_code": 3, "stderr": "why", "session_id": "s", "retryable": True}
    for kind in every_error():
        error = kind("it broke", hint="mend it", result=live.result, **carried)
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert copy.__dict__ == error.__dict__, kind
        assert str(copy) == "it broke\n  → mend it", kind


def test_every_error_has_a_code_of_its_own():
    codes = [kind.code for kind in every_error()]
    assert len(codes) == len(set(codes))
    assert all(errors.class_for(kind.code) is kind for kind in every_error())


@pytest.mark.gemini_cli
class TestTheRealCliRefuses:
    """test_doctor.py has a login, a trusted folder and settings that the CLI misses."""

    async def test_a_flag_it_does_not_know(self, real_transport, fake_gemini, tmp_path):
        transport = Cli(executable=real_transport.executable, extra_args=("--max-session-turns=3",))
        with pytest.raises(errors.InvalidOptions, match="Unknown arguments: max-session-turns"):
            await ask("Hi", Options(env=fake_gemini.env, cwd=tmp_path), via=transport)

    async def test_a_model_that_there_is_not(self, real_transport, fake_gemini, tmp_path):
        fake_gemini.fail(404, "no, thank you")
        options = Options(env=fake_gemini.env, cwd=tmp_path, model="gemini-2.5-flash")
        with pytest.raises(errors.ModelNotFound, match="no, thank you"):
            await ask("Hi", options, via=real_transport)

    async def test_a_wrong_key_is_told_in_a_sentence_and_not_in_json(
        self, real_transport, fake_gemini, tmp_path
    ):
        """For a warm process, see test_acp.py."""
        fake_gemini.fail(400, "API key not valid.", reason="API_KEY_INVALID")
        options = Options(env=fake_gemini.env, cwd=tmp_path, model="gemini-2.5-flash")
        with pytest.raises(errors.AuthError) as caught:
            await ask("Hi", options, via=real_transport)
        assert caught.value.message == "400 INVALID_ARGUMENT: API key not valid."
        assert (caught.value.status, caught.value.retryable) == (400, False)
        assert "GEMINI_API_KEY" in (caught.value.hint or "")

    async def test_a_prompt_beyond_the_models_window(self, real_transport, fake_gemini, tmp_path):
        """Facts §0.4: the CLI calls it a success."""
        fake_gemini.say("never asked")
        options = Options(env=fake_gemini.env, cwd=tmp_path, model="gemini-2.5-flash")
        with pytest.raises(errors.ContextOverflow, match="larger than the model's window"):
            await ask("word " * 1_000_000, options, via=real_transport)
        assert [request for request in fake_gemini.requests if request.kind == "main"] == []


def test_no_test_here_inherits_a_key():
    assert "GEMINI_API_KEY" not in os.environ
