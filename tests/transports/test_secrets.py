"""Keys that a run knows show in nothing that it says about itself."""

import asyncio
import base64
import errno
import io
import json
import logging
import os
import pickle
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
import rich

from command_home import A, SavedHome
from command_line import geminorum_command
from geminorum import Acp, Api, Cli, Options, Pool, connect, events, sync
from geminorum.contracts.local_adapter import GeminiLocalConfig
from geminorum.contracts.provider_adapter import AdapterOptions, GeminiAdapter
from geminorum.contracts.response_provider import GeminiCliProvider
from geminorum.errors import AuthError, GeminorumError, InvalidOptions
from geminorum.events import Done, Error, Text, ToolResult, ToolUse, Unknown
from geminorum.redaction import Redactor, redacted, secrets_in, secrets_in_settings
from geminorum.transports import secrets as run_secrets
from geminorum.transports.process.piped import PipedChild
from geminorum.transports.secrets import redactor_of

KEY = "open/sesame+4711=key&co"
"""Looks like nobody's key: it can only be known by where it stands."""
GOOGLE_KEY = "AIza" + "Sy" * 18
FORMS = (
    *(KEY, quote(KEY, safe=""), json.dumps(KEY)[1:-1]),
    *(base64.b64encode(KEY.encode()).decode().rstrip("="), GOOGLE_KEY),
)
ECHO = f"API key {' or '.join(FORMS)} is not valid; see https://x.test/v1?key={quote(KEY, safe='')}"


def shows(said: object) -> list[str]:
    """The forms of the keys that stand in it."""
    text = said if isinstance(said, str) else repr(said)
    return [form for form in FORMS if form in text]


def told_by(error: BaseException) -> str:
    """Everything that somebody may come to see of an exception."""
    again = pickle.loads(pickle.dumps(error))
    return "\n".join(
        [
            *(f"{one} {one!r} {one.args} {vars(one)}" for one in (error, again)),
            *traceback.format_exception(error),
        ]
    )


# ---- what is known, and how it is blacked out


class TestRedactor:
    def test_a_key_is_found_however_it_is_written(self):
        for form in FORMS:
            assert redacted(f"a {form} b", [KEY]) == "a [redacted] b", form

    @pytest.mark.parametrize(
        "token",
        [
            GOOGLE_KEY,
            "ya29." + "a0" * 20,
            "1//0" + "gX" * 20,
            "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        ],
    )
    def test_googles_own_are_known_by_their_looks(self, token):
        assert redacted(f"with {token}!", []) == "with [redacted]!"

    def test_a_variable_is_a_secret_by_its_name_and_its_length(self):
        env = {
            "GEMINI_API_KEY": KEY,
            "DB_PASSWORD": "tr0ub4dor",
            "X_AUTH_TOKEN": "t" * 8,
            # These are none, and to take them out would tear every message.
            "USE_TOKENS": "1",
            "AUTH_MODE": "none",
            "API_KEY": "short",
            "LANG": "C.UTF-8-long",
            "SSH_AUTH_SOCK": "/tmp/ssh/agent.1",
            "TOKEN_FILE": "/run/secrets/x",
            "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/gcp.json",
            "GIT_AUTHOR": "somebody",
            "XAUTHORITY": "/home/me/.Xauthority",
        }
        assert set(secrets_in(env)) == {KEY, "tr0ub4dor", "t" * 8}
        assert redacted("1 none short of it", secrets_in(env)) == "1 none short of it"

    def test_settings_hold_some_at_any_depth(self):
        server = {"headers": {"Authorization": f"Bearer {KEY}"}, "env": {"MY_TOKEN": "t" * 9}}
        settings = {"mcpServers": {"a": {**server, "args": ["--x"]}}, "apiKeys": ["k" * 8, "k"]}
        found = set(secrets_in_settings(settings))
        assert found == {f"Bearer {KEY}", KEY, "t" * 9, "k" * 8}

    def test_only_what_the_run_says_of_itself_is_changed(self):
        """Undo, and whoever replays a run, write the rest back to files."""
        redactor = Redactor([KEY])
        exact = [
            Text(KEY),
            events.TextDelta(KEY),
            events.Thinking(KEY),
            ToolUse("write_file", "1", {"content": KEY}),
            ToolResult("1", "read_file", output=KEY, content=KEY, status="error"),
            events.UserMessage(KEY),
            Done("success", data={"key": KEY}),
        ]
        assert redactor.events(exact) == exact
        frame = events.msgspec.Raw(json.dumps({"message": KEY}).encode())
        said = [
            Error(KEY, hint=KEY, frame=frame),
            Done("error", cost_note=KEY, frame=frame),
            Unknown(frame=frame),
        ]
        for event in redactor.events(said):
            assert not shows(events.encode(event).decode())
            assert event.raw == {"message": "[redacted]"}

    def test_an_exception_loses_them_with_all_that_it_came_from(self):
        class Own(Exception):
            def __str__(self) -> str:
                return KEY  # It writes its text itself, so nobody can change it.

        try:
            try:
                try:
                    raise Own
                except Own as error:
                    raise ValueError(f"bad {KEY}") from error
            except ValueError as error:
                error.add_note(f"sent {KEY}")
                raise AuthError(f"refused {KEY}", hint=f"not {KEY}", stderr=KEY) from error
        except AuthError as error:
            caught = error
        Redactor([KEY]).exception(caught)
        assert not shows(told_by(caught))
        assert "ValueError: bad [redacted]" in told_by(caught)
        assert caught.message == "refused [redacted]"

    def test_a_run_knows_its_variables_its_transport_and_its_files(self, private_home, monkeypatch):
        folder = private_home / ".gemini"
        folder.mkdir()
        headers = {"headers": {"X-Api-Key": "of the settings"}}
        (folder / "settings.json").write_text(json.dumps({"mcpServers": {"a": headers}}))
        (folder / ".env").write_text("GEMINI_API_KEY=of-the-dotenv\n")
        monkeypatch.setenv("OTHER_TOKEN", "of the process")
        monkeypatch.setenv("HTTPS_PROXY", "http://me:of%20the%20proxy@proxy.test")
        options = Options(env={"MY_SECRET": "of the options"})
        words = ["of the settings", "of-the-dotenv", "of the process", "of the proxy"]
        words += ["of the options", "of the transport"]
        transport = Cli(settings={"apiKey": "of the transport"})
        monkeypatch.setenv("CHANGED", "1")
        told = redactor_of(options, transport)
        monkeypatch.delenv("OTHER_TOKEN")  # It was there when the run was made.
        assert told.text(", ".join(words)) == ", ".join(["[redacted]"] * len(words))
        api = Api(
            api_key="of the transport",
            headers={"X-Token": "of the head"},
            proxy="http://a:of-pw-pw@b",
        )
        known = redactor_of(options, api).text("of the transport, of the head, of-pw-pw")
        assert known == "[redacted], [redacted], [redacted]"

    def test_settings_that_cannot_be_read_hide_nothing_and_harm_nobody(self, private_home):
        folder = private_home / ".gemini"
        folder.mkdir()
        options = Options(env={"MY_TOKEN": KEY})
        for text in ("{", "[" * 100_000, '{"a":' * 900 + "1" + "}" * 900):
            (folder / "settings.json").write_text(text)
            assert redactor_of(options, Cli()).text(KEY) == "[redacted]"


# ---- what is printed without a run


class TestObjects:
    @pytest.mark.parametrize(
        "thing",
        [
            Options(env={"GEMINI_API_KEY": KEY}),
            Cli(settings={"mcpServers": {"a": {"env": {"TOKEN": KEY}}}}),
            Acp(settings={"mcpServers": {"a": {"env": {"TOKEN": KEY}}}}),
            Api(api_key=KEY, headers={"X-Token": KEY}, proxy=f"http://a:{quote(KEY, safe='')}@b"),
            Api(vertex=True, project="p", credentials={"token": KEY}),
            GeminiLocalConfig(cwd=".", env={"GEMINI_API_KEY": KEY}),
            AdapterOptions(api_key=KEY),
        ],
        ids=lambda thing: type(thing).__name__,
    )
    def test_no_picture_of_an_object_has_a_key_in_it(self, thing):
        pretty = io.StringIO()
        rich.print(thing, file=pretty)
        assert not shows(f"{thing!r} {thing} {pretty.getvalue()}")

    def test_the_names_of_the_variables_can_be_seen(self):
        assert "env={'GEMINI_API_KEY': '…'}" in repr(Options(env={"GEMINI_API_KEY": KEY}))

    @pytest.mark.parametrize(
        "make",
        [
            lambda: Options(env={"GEMINI_API_KEY": KEY, "A": 1}),
            lambda: Options(env=f"GEMINI_API_KEY={KEY}"),
            lambda: Options.from_dict({"env": [KEY]}),
            lambda: Cli(settings=[KEY]),
            lambda: Acp(settings=f"apiKey={KEY}"),
            lambda: Api(headers={"X-Token": KEY, "A": 1}),
            lambda: Api(proxy=f"me:{KEY}@proxy"),
            lambda: GeminiLocalConfig(cwd=".", env={"GEMINI_API_KEY": KEY, "A": 1}),
            lambda: AdapterOptions.from_dict({"apiKey": KEY, "retries": "many"}),
        ],
    )
    def test_no_refusal_repeats_a_key(self, make):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is what is looked at
            make()
        assert not shows(told_by(caught.value))


# ---- on every transport


async def _through_a_pool(
    transport: Acp, options: Options
) -> tuple[str, list[events.Event], GeminorumError]:
    async with Pool(transport) as pool:
        return await _conversation(pool, options)


async def _conversation(via, options) -> tuple[str, list[events.Event], GeminorumError]:
    """What the model said first, what was told of a failure, and the exception for it."""
    async with connect(options, via=via) as chat:
        said = await chat.ask("What is in .env?")
        seen = []
        async with chat.turn("Once more") as live:
            async for event in live:
                seen.append(event)
    error = live.result.exception()
    assert error is not None
    assert error.result is not None
    return said.text, seen, error


@pytest.mark.parametrize("name", ["Cli", "Acp", "Pool", "Api"])
async def test_a_server_that_echoes_the_key_does_not_get_it_into_anything(
    name, real_transport, fake_gemini, tmp_path
):
    fake_gemini.say(f"It says {KEY}")
    fake_gemini.fail(401, ECHO, times=3)
    model = "gemini-2.5-flash"
    variables = {**fake_gemini.env, "GEMINI_API_KEY": KEY}
    acp = Acp(executable=real_transport.executable)
    if name == "Api":
        transport, options = Api(api_key=KEY, base_url=fake_gemini.url), Options(model=model)
    else:
        transport = real_transport if name == "Cli" else acp
        options = Options(model=model, cwd=tmp_path, env=variables)
    talk = _through_a_pool if name == "Pool" else _conversation
    text, seen, error = await talk(transport, options)
    assert text == f"It says {KEY}"  # The model's words are the model's.
    assert isinstance(error, AuthError)
    assert "[redacted]" in error.message
    assert any(isinstance(event, Error) for event in seen)
    for event in seen:
        assert not shows(events.encode(event).decode()), event
    assert not shows(told_by(error))
    assert not shows([error.result, error.result.stderr, error.result.errors])


async def test_what_a_program_says_on_its_way_out_has_no_key_in_it(stand_in):
    frames = [
        {"type": "init", "session_id": "s", "model": "m"},
        {"type": "error", "severity": "error", "message": ECHO},
        {"type": "strange", "detail": ECHO},
        f"no JSON at all: {ECHO}",
        {"type": "result", "status": "error", "error": {"type": "x", "message": ECHO}},
    ]
    transport = stand_in(*frames, exit=1, stderr=ECHO, settings={"apiKey": KEY})
    async with connect(Options(), via=transport) as chat, chat.turn("Hi") as live:
        seen = [event async for event in live]
    error = live.result.exception()
    assert error is not None
    assert len(seen) >= 5
    assert not shows("".join(events.encode(event).decode() for event in seen))
    assert not shows(told_by(error))


@pytest.mark.parametrize("kept", [32 * 1024, 64 * 1024 - 3])
async def test_a_key_at_the_place_where_a_long_complaint_is_cut_is_found(tmp_path, kept):
    """Also when the process is gone, and its last words are all that is left."""
    script = f"printf '%0{kept - 4}d' 0; printf %s '{KEY}'; printf '%0200000d' 0"
    over = asyncio.Event()
    child = PipedChild(
        ["sh", "-c", f"({script}) >&2"],
        cwd=tmp_path,
        env=dict(os.environ),
        grace=1,
        hear=lambda data: None,
        ended=over.set,
    )
    async with child:
        await over.wait()
        assert not shows(child.stderr(Redactor([KEY]).text))
    left = child.stderr(Redactor([KEY]).text)
    assert "bytes left out" in left
    assert KEY[:4] not in left


async def test_a_transport_that_does_not_open_has_no_key_in_its_error(private_home, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", f"gopher://me:{quote(KEY, safe='')}@proxy.test")
    with pytest.raises(InvalidOptions) as caught:
        async with connect(Options(), via=Api(api_key=KEY)):
            pass
    assert not shows(told_by(caught.value))


# ---- behind other faces


async def test_the_provider_adapter_has_none_in_its_failures(fake_gemini):
    fake_gemini.fail(401, ECHO)
    options = {"apiKey": KEY, "apiBaseUrl": fake_gemini.url, "model": "gemini-2.5-flash"}
    stream = await GeminiAdapter(AdapterOptions.from_dict(options)).call(
        [{"role": "user", "content": "Hi"}], {"threadId": "t"}
    )
    told = [event async for event in stream]
    assert "[redacted]" in repr(told)
    assert not shows(told)
    for event in told:
        if isinstance(event.data, Exception):
            assert not shows(told_by(event.data))


def test_the_response_provider_has_none_in_its_log(stand_in, caplog, monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    frames = [
        {"type": "init", "session_id": "s", "model": "m"},
        {"type": "error", "severity": "error", "message": ECHO},
        {"type": "result", "status": "error", "error": {"type": "x", "message": ECHO}},
    ]
    provider = GeminiCliProvider(via=stand_in(*frames, exit=1, stderr=ECHO))
    with caplog.at_level(logging.DEBUG):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the text is what is looked at
            provider.generate("Hi")
        said = told_by(caught.value)
    assert "[redacted]" in caplog.text
    assert not shows(caplog.text + said)


# ---- on the command line


@pytest.fixture
def saved(tmp_path) -> SavedHome:
    return SavedHome(tmp_path / "home", tmp_path / "work")


API = ("--via", "api", "--model", "gemini-2.5-flash")


def test_the_command_prints_none(fake_gemini, tmp_path):
    env = {**fake_gemini.env, "GEMINI_API_KEY": KEY}
    fake_gemini.fail(401, ECHO, times=2)
    for arguments in (("--json",), ()):
        done = geminorum_command("run", *API, *arguments, "Hi", env=env, cwd=tmp_path)
        assert done.returncode != 0
        assert "[redacted]" in done.stdout + done.stderr
        assert not shows(done.stdout + done.stderr)


def test_a_batch_writes_none_into_its_journal_and_its_results(fake_gemini, tmp_path):
    env = {**fake_gemini.env, "GEMINI_API_KEY": KEY}
    fake_gemini.fail(400, ECHO, times=2)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('"one"\n"two"\n')
    done = geminorum_command(
        "batch", prompts, *API, "--env", f"MY_TOKEN={KEY}", env=env, cwd=tmp_path
    )
    assert done.returncode != 2, done.stderr
    written = "".join(
        path.read_text() for path in tmp_path.iterdir() if path.is_file() and path != prompts
    )
    assert "[redacted]" in written
    assert not shows(written + done.stdout + done.stderr)


@pytest.mark.parametrize("format", ["markdown", "html", "jsonl", "claude", "sharegpt"])
def test_an_export_has_none_in_what_went_wrong_and_what_was_said_to_the_letter(saved, format):
    path: Path = saved.save(A, "Hi", f"It says {GOOGLE_KEY[:20]}")
    message = {"id": "e", "type": "error", "timestamp": "2026-01-01T10:00:01.000Z"}
    with path.open("a") as file:
        file.write(json.dumps({**message, "content": [{"text": ECHO}]}) + "\n")
    env = {**saved.env, "GEMINI_API_KEY": KEY}
    done = geminorum_command("sessions", "export", A, "--format", format, env=env, cwd=saved.cwd)
    assert done.returncode == 0, done.stderr
    assert not shows(done.stdout)
    assert f"It says {GOOGLE_KEY[:20]}" in done.stdout


def test_the_synchronous_transport_hides_them_too(stand_in):
    transport = stand_in({"type": "init", "session_id": "s", "model": "m"}, exit=1, stderr=ECHO)
    with pytest.raises(GeminorumError) as caught:
        sync.ask("Hi", Options(env={"GEMINI_API_KEY": KEY}), via=transport)
    assert not shows(told_by(caught.value))


def test_spaces_and_short_forms_tear_no_text():
    assert redacted("a plain text", ["        ", "a          "]) == "a plain text"


def test_what_lies_deep_in_an_exception_is_found():
    key = "open-sesame-1"
    inner = ValueError({"key": key}, (key, [key]), key.encode())
    group = ExceptionGroup(f"all: {key}", [inner])
    Redactor([key]).exception(group)
    assert key not in repr(group) + repr(inner)


def test_a_machine_without_descriptors_still_hides_the_keys_of_the_environment(monkeypatch):
    """Settings cannot be read then; an error must not show keys all the same."""

    class Unloadable:
        def __getattr__(self, name):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(run_secrets, "auth", Unloadable())
    options = Options(env={"GEMINI_API_KEY": "a-key-of-this-very-run"})
    redactor = run_secrets.redactor_of(options, Cli())
    for _ in range(2):
        assert "a-key-of-this-very-run" not in redactor.text("failed: a-key-of-this-very-run")


def test_keys_in_settings_are_hidden_although_another_file_cannot_be_read(monkeypatch, tmp_path):
    settings = tmp_path / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(
        json.dumps({"mcpServers": {"a": {"env": {"A_TOKEN": "a-token-of-this-run"}}}})
    )

    def fail(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(run_secrets.auth, "dotenv_variables", fail, raising=False)
    redactor = run_secrets.redactor_of(Options(env={}, home=tmp_path, cwd=tmp_path), Cli())
    assert "a-token-of-this-run" not in redactor.text("failed: a-token-of-this-run")
