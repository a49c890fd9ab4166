"""Gemini behind the local-adapter shape: config, form, run, session, cost, health."""

import asyncio
import json
import re
import threading
from decimal import Decimal
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from geminorum import Cli, Done, Error, Init, Text, TextDelta, Thinking, Unknown
from geminorum.contracts import local_adapter as local
from geminorum.contracts.local_adapter import (
    AdapterExecutionContext,
    GeminiLocalConfig,
    test_environment,
)
from geminorum.cost import PRICES_2026_04
from geminorum.doctor import Check
from geminorum.errors import InvalidOptions, InvalidPrompt
from geminorum.events import PermissionRequest
from geminorum.policies import Rules
from geminorum.store import SqliteSessions, StoredSession
from geminorum.testing import FakeGemini, Request, Tokens
from recorded import recording, stream
from shared_run import private_place

ROOT = Path(__file__).resolve().parents[2]
MODEL = "gemini-2.5-flash"
INIT = {"type": "init", "session_id": "s-1", "model": MODEL}
SUCCESS = {"type": "result", "status": "success"}
SAID = {"type": "message", "role": "assistant", "content": "hidden"}


def on_the_real_cli(via: Cli, fake: FakeGemini, cwd: Path) -> GeminiLocalConfig:
    """An agent on the real CLI against a simulated model."""
    return GeminiLocalConfig(
        cwd=str(cwd), model=MODEL, env=fake.env, executable=str(via.executable)
    )


@pytest.fixture
def config(fake_gemini, real_transport, tmp_path) -> GeminiLocalConfig:
    return on_the_real_cli(real_transport, fake_gemini, tmp_path / "workspace")


@pytest.fixture
def plain(tmp_path) -> GeminiLocalConfig:
    """An agent for whom `via` chooses the CLI."""
    return GeminiLocalConfig(cwd=str(tmp_path / "workspace"))


@pytest.fixture
def store(tmp_path) -> SqliteSessions:
    return SqliteSessions(tmp_path / "state" / "sessions.db")


def changed(config: GeminiLocalConfig, **values: object) -> GeminiLocalConfig:
    return msgspec.structs.replace(config, **values)


def asked(prompt: str, **values: object) -> AdapterExecutionContext:
    return AdapterExecutionContext(agent_id="writer", prompt=prompt, **values)


def text(kind: str, words: str) -> dict[str, str]:
    return {"type": kind, "text": words}


def kinds(transcript: list[local.TranscriptEntry]) -> list[str]:
    return [msgspec.to_builtins(entry)["kind"] for entry in transcript]


class TestTheSurface:
    def test_tests_of_the_real_cli_can_be_left_out(self, request):
        """S1-71: tests that start the real CLI have the marker `gemini_cli`; most need none."""
        here = [item for item in request.session.items if item.path == Path(__file__)]
        real = {item for item in here if "real_transport" in item.fixturenames}
        assert {item.name for item in real if not item.get_closest_marker("gemini_cli")} == set()
        assert len(real) < len(here)

    def test_the_module_shows_what_a_registry_shows(self):
        """S1-66: `ADAPTER` carries type, label, models, default model, notes and form fields as
        plain JSON."""
        assert (local.TYPE, local.DEFAULT_MODEL) == ("gemini_local", "auto")
        plain = json.loads(msgspec.json.encode(local.ADAPTER))
        assert (plain["type"], plain["label"]) == (local.TYPE, local.LABEL)
        assert plain["defaultModel"] == local.DEFAULT_MODEL
        assert [model["id"] for model in plain["models"]] == [m.id for m in local.MODELS]
        assert plain["agentConfigurationDoc"] == local.AGENT_CONFIGURATION_DOC
        assert plain["configFields"][0]["key"] == "cwd"

    def test_the_adapter_can_be_chosen_and_is_never_the_default(self):
        """S1-1: the adapter is selectable but never the default: without a type, `adapter_for`
        raises."""
        assert (local.ADAPTER.selectable, local.ADAPTER.default) == (True, False)
        assert local.adapter_for("gemini_local") is local.ADAPTER
        with pytest.raises(InvalidOptions) as caught:
            local.adapter_for(None)
        assert "choose 'gemini_local'" in caught.value.hint

    @pytest.mark.parametrize(
        "names",
        [
            ("GeminiLocalConfig", "AdapterExecutionContext", "TranscriptEntry", "LocalResult"),
            ("build_args", "render_template", "execute", "execute_sync"),
            ("parse_ndjson_lines", "extract_session_id", "extract_output", "extract_usage"),
            ("extract_model_id", "build_transcript", "calculate_cost_usd"),
            ("test_environment",),
            ("CONFIG_FIELDS", "build_config", "validate_config"),
        ],
    )
    def test_every_name_of_the_shape_is_there(self, names):
        """S1-66 … S1-70: the module exports every function and type that
        the document lists."""
        for name in names:
            assert name in local.__all__
            assert getattr(local, name) is not None

    def test_the_models_say_what_they_are_good_for(self):
        """S1-23: `MODELS` lists the document's six models, each with its purpose."""
        listed = {model.id: model.description for model in local.MODELS}
        assert list(listed) == [
            *("gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite"),
            *("gemini-2.0-flash", "gemini-1.5-pro", "gemini-1.5-flash"),
        ]
        assert "recommended pro" in listed["gemini-2.5-pro"]
        assert "balanced" in listed["gemini-2.5-flash"]
        assert "fastest" in listed["gemini-2.5-flash-lite"]

    def test_the_notes_say_when_to_use_it(self):
        """S1-4: `AGENT_CONFIGURATION_DOC` covers tenants, long context, cost, yolo and logins."""
        doc = local.AGENT_CONFIGURATION_DOC
        assert "## When to use it" in doc
        for topic in ("tenant", "million tokens", "cheap", "yolo", "GEMINI_API_KEY", "Vertex"):
            assert topic in doc

    def test_the_form_says_what_each_mode_really_does(self):
        """By the words that stand for a tool; the verdicts are the CLI's own."""
        tools = {
            "searches the web": ("google_web_search", {"query": "x"}),
            "fetches pages": ("web_fetch", {"prompt": "x"}),
            "writes files": ("write_file", {"file_path": "a.txt"}),
            "runs commands": ("run_shell_command", {"command": "ls"}),
        }
        (field,) = [field for field in local.CONFIG_FIELDS if field.key == "approvalMode"]
        for choice in field.choices:
            mode = local.GeminiLocalConfig(cwd="/srv/writer", approval_mode=choice.id)
            rules = Rules.of(mode.options())
            may = {word for word, call in tools.items() if rules.verdict(*call).decision == "allow"}
            # A model in plan mode is offered a file tool, for its plan only.
            assert {word for word in tools if word in choice.description} == may, choice.id

    def test_the_notes_do_not_promise_more_than_holds(self):
        """The web is searched unasked, and a folder's skills are listed without trust."""
        (box,) = [field for field in local.CONFIG_FIELDS if field.key == "yolo"]
        (trust,) = [field for field in local.CONFIG_FIELDS if field.key == "trustWorkspace"]
        for text in (box.help, local.AGENT_CONFIGURATION_DOC):
            assert "reads only" not in text
            assert "searches the web" in text
        for text in (trust.help, local.AGENT_CONFIGURATION_DOC):
            assert "skills" in text
            assert "without" in text

    @pytest.mark.gemini_cli
    def test_the_links_lead_to_pages_that_the_cli_itself_brings(self, real_cli):
        """S1-71a: the linked pages (cheatsheet, skills, tutorial, authentication) exist in the
        CLI's documentation."""
        pages = re.findall(r"geminicli\.com/docs/(\S+)/", local.AGENT_CONFIGURATION_DOC)
        assert len(pages) == 4
        package = next(p for p in Path(real_cli[-1]).parents if (p / "package.json").exists())
        for page in pages:
            found = [*package.glob(f"**/docs/{page}.md"), *package.glob(f"**/docs/{page}.mdx")]
            assert found, page


class TestTheConfig:
    def test_only_the_folder_has_to_be_named(self):
        """S1-5, S1-6, S1-7, S1-11, S1-13: only `cwd` is required, and by default the agent may not
        act without approval."""
        config = GeminiLocalConfig(cwd="/srv/writer")
        assert (config.model, config.yolo, config.env) == (None, False, {})
        assert (config.timeout_sec, config.grace_sec) == (120, 5)
        with pytest.raises(TypeError):
            GeminiLocalConfig()

    def test_a_config_survives_json(self):
        """S1-5, S1-10: a config stored as JSON loads as an equal config."""
        config = GeminiLocalConfig(
            cwd="/srv/writer",
            model="gemini-2.5-pro",
            prompt_template="{{prompt}}",
            instructions_file_path="AGENT.md",
            env={"GEMINI_API_KEY": "k"},
            timeout_sec=None,
            grace_sec=1.5,
            yolo=True,
        )
        stored = json.loads(json.dumps(config.to_dict()))
        assert {"promptTemplate", "instructionsFilePath", "timeoutSec", "graceSec"} <= set(stored)
        assert local.build_config(stored) == config
        assert msgspec.json.decode(msgspec.json.encode(config), type=GeminiLocalConfig) == config

    def test_both_spellings_are_read(self):
        """S1-5: `build_config` accepts `timeoutSec` and `timeout_sec`."""
        assert local.build_config({"cwd": "/a", "timeout_sec": 7}).timeout_sec == 7
        assert local.build_config({"cwd": "/a", "timeoutSec": 7}).timeout_sec == 7

    def test_its_limits_are_those_of_the_run(self):
        """S1-11: `timeout_sec`, by default 120, and `max_turns` become the limits of the run."""
        assert GeminiLocalConfig(cwd="/a").options().timeout == 120
        limited = GeminiLocalConfig(cwd="/a", timeout_sec=7, max_turns=3).options()
        assert (limited.timeout, limited.max_turns) == (7, 3)

    def test_a_path_is_a_folder_too(self, tmp_path):
        assert GeminiLocalConfig(cwd=tmp_path).cwd == str(tmp_path)

    def test_a_wrong_config_cannot_be_made(self):
        with pytest.raises(InvalidOptions, match=r"timeoutSec is -1; graceSec cannot be used"):
            GeminiLocalConfig(cwd="/a", timeout_sec=-1, grace_sec="soon")


class TestTheCommandLine:
    def test_the_shortest_command_line(self):
        """S1-28, S1-67, B-26: without settings, `build_args` passes no model and no mode."""
        args = local.build_args(GeminiLocalConfig(cwd="/a"))
        assert args == ["--output-format=stream-json", "--skip-trust"]

    def test_model_and_session_are_passed_if_set(self):
        """S1-7, S1-28, B-26: an explicit model, even "auto", and a session id appear among the
        arguments."""
        args = local.build_args(GeminiLocalConfig(cwd="/a", model="auto"), "s-1")
        assert "--model=auto" in args
        assert "--resume=s-1" in args

    def test_yolo_is_an_approval_mode(self):
        """S1-13, S1-38, B-2: `yolo` becomes `--approval-mode=yolo`, because `--yolo` is deprecated
        and excludes it."""
        args = local.build_args(GeminiLocalConfig(cwd="/a", yolo=True))
        assert "--approval-mode=yolo" in args
        assert not any(arg.startswith(("--yolo", "-y")) for arg in args)

    @pytest.mark.parametrize(
        ("mode", "flag"),
        [("acceptEdits", "auto_edit"), ("bypassPermissions", "yolo"), ("plan", "plan")],
    )
    def test_other_agents_names_for_the_modes_are_accepted(self, mode, flag):
        """B-2: `acceptEdits` and `bypassPermissions` are accepted as names of the CLI's modes."""
        args = local.build_args(GeminiLocalConfig(cwd="/a", approval_mode=mode))
        assert f"--approval-mode={flag}" in args

    def test_the_prompt_is_never_an_argument(self, stand_in, tmp_path):
        """S1-40: the prompt goes to stdin; Windows would refuse it as an argument."""
        transport = stand_in(INIT, SUCCESS)
        result = local.execute_sync(
            GeminiLocalConfig(cwd=tmp_path), asked("-p Say --yolo"), via=transport
        )
        assert result.success
        call = stand_in.call
        assert call["stdin"] == "-p Say --yolo"
        assert not any("Say" in arg or arg in ("-p", "--prompt") for arg in call["argv"])
        assert call["cwd"] == str(tmp_path)


class TestTheTemplate:
    CONTEXT = AdapterExecutionContext(
        agent_id="a-1",
        agent_name="AI Copywriter",
        tenant_id="t-1",
        tenant_name="Ada & Co.",
        run_id="r-1",
        prompt="Write {{runId}}",
        variables={"topic": "pipes", "agentId": "somebody else"},
    )

    @pytest.mark.parametrize(
        ("template", "prompt"),
        [
            ("{{agentId}}", "a-1"),
            ("{{agent.name}}", "AI Copywriter"),
            ("{{tenantId}} {{ tenant.name }}", "t-1 Ada & Co."),
            ("{{runId}}", "r-1"),
            ("{{topic}}: {{prompt}}", "pipes: Write {{runId}}"),
            ("{{nobody}}.", "."),
        ],
    )
    def test_the_variables_of_a_run(self, template, prompt):
        """S1-14, S1-15, S1-16, S1-17, S1-18, S1-67: the document's variables are rendered, and
        variables of the caller cannot replace them."""
        assert local.render_template(template, self.CONTEXT) == prompt

    def test_unknown_variables_can_be_an_error(self):
        """B-28: with `strict=True`, a template variable without a value raises InvalidPrompt."""
        with pytest.raises(InvalidPrompt, match="asks for 'nobody'"):
            local.render_template("{{nobody}}", self.CONTEXT, strict=True)

    def test_each_run_has_an_id_of_its_own(self):
        """S1-18: every context gets a new run id by default."""
        assert asked("Hi").run_id != asked("Hi").run_id


class TestParsing:
    @pytest.mark.parametrize(
        ("name", "output", "tokens", "model"),
        [
            ("0.11.3-reading", "They are about pipes.", (9136, 0, 31), "auto"),
            ("0.29.0-shell", "I count the words. Three words.", (9299, 0, 33), "auto-gemini-3"),
            (
                *("0.61.0-at-once", "Three at once. Two of three went well."),
                *((16224, 0, 40), "gemini-3.8-flash"),
            ),
            ("0.61.0-misnamed", "That did not work.", (16173, 0, 37), "gemini-3.8-flash"),
        ],
    )
    def test_recorded_runs(self, name, output, tokens, model):
        """S1-29, S1-35, S1-36, S1-37, S1-68, B-16: output without the echoed prompt, session,
        usage, and the model that answered rather than the requested one."""
        events = local.parse_ndjson_lines(stream(name).read_bytes())
        usage = local.extract_usage(events)
        first = json.loads(stream(name).read_text().splitlines()[0])
        assert local.extract_session_id(events) == first["session_id"]
        assert local.extract_output(events) == output
        assert (usage.input, usage.cached, usage.output) == tokens
        assert local.extract_model_id(events) == model

    def test_cached_tokens_of_a_recorded_run(self):
        """S1-37, S1-68: cached tokens are reported as a part of the input."""
        events = local.parse_ndjson_lines(recording("0.61.0", "model_flash")["stdout"])
        usage = local.extract_usage(events)
        assert (usage.input, usage.cached, usage.output) == (100, 20, 10)

    @pytest.mark.parametrize(
        ("frames", "session_id", "output"),
        [
            (
                [
                    INIT,
                    {**SAID, "content": {"content": [text("text", "one"), text("text", "two")]}},
                ],
                *("s-1", "one\n\ntwo"),
            ),
            (
                [{**SAID, "role": "user"}, {**SAID, "role": "system"}, {**SAID, "content": "seen"}],
                *(None, "seen"),
            ),
            ([{**SAID, "content": "one"}, {**SAID, "content": "two"}], None, "onetwo"),
            (
                [
                    {"type": "system", "subtype": "init", "session_id": "s-0"},
                    {"type": "assistant", "message": {"content": [text("output_text", "old")]}},
                    {"type": "result", "subtype": "success", "result": "old"},
                ],
                *("s-0", "old"),
            ),
        ],
        ids=["structured", "other roles", "two messages", "legacy"],
    )
    def test_the_documents_older_shapes(self, frames, session_id, output):
        """S1-29, S1-35, S1-36, S1-68: structured content, other roles and the legacy schema are
        read."""
        events = local.parse_ndjson_lines([json.dumps(frame) for frame in frames])
        assert local.extract_session_id(events) == session_id
        assert local.extract_output(events) == output

    def test_a_run_that_goes_on_can_be_read_so_far(self):
        """S1-29, S1-68: output without a `result` parses to events without a `Done`."""
        events = local.parse_ndjson_lines([json.dumps(INIT), b'{"type":"message","content":"Hi"}'])
        assert [event.type for event in events] == ["init", "text"]
        assert local.extract_usage(events) is None

    def test_a_bad_line_is_reported_and_skipped(self):
        """S1-29: a line that is not JSON becomes an error event, and the lines after it are
        parsed."""
        events = local.parse_ndjson_lines(f"{json.dumps(INIT)}\nnot json\n{json.dumps(SUCCESS)}")
        assert [event.type for event in events] == ["init", "error", "done"]

    def test_a_transcript_is_fit_to_show(self):
        """S1-68, S1-72: the transcript of a recorded run shows every step, also a call that a
        policy denied."""
        events = local.parse_ndjson_lines(recording("0.61.0", "buildfile_policy")["stdout"])
        transcript = local.build_transcript(events, "Ripgrep is not available.\nquota is low")
        shown = msgspec.to_builtins(transcript)
        assert kinds(transcript) == [
            *("init", "user", "tool_call", "tool_call", "tool_result", "tool_result"),
            *("assistant", "stderr", "result"),
        ]
        assert shown[1]["text"].startswith("[[calls write_file")
        assert shown[3]["input"] == {"file_path": "ok.txt", "content": "x=1"}
        assert (shown[4]["status"], shown[4]["name"]) == ("denied", "write_file")
        assert shown[4]["text"].startswith("Tool execution denied by policy.")
        assert shown[4]["id"] == shown[2]["id"]
        assert (shown[6]["text"], shown[7]["text"]) == ("Done.", "quota is low")
        assert shown[8]["status"] == "success"

    def test_a_transcript_has_the_warnings_of_the_cli(self):
        """S1-72: warnings appear in their place, with their level."""
        events = local.parse_ndjson_lines(recording("0.61.0", "loop")["stdout"])
        *_, warning, error, end = msgspec.to_builtins(local.build_transcript(events, ""))
        assert (warning["kind"], warning["level"]) == ("system", "warning")
        assert warning["text"] == "Loop detected, stopping execution"
        assert (error["level"], end["kind"], end["status"]) == ("error", "result", "error")

    def test_a_transcript_joins_the_deltas_of_a_message(self):
        """S1-72: the chunks of a message become one entry."""
        events = local.parse_ndjson_lines(recording("0.61.0", "model_flash")["stdout"])
        shown = msgspec.to_builtins(local.build_transcript(events, ""))
        assert [entry["text"] for entry in shown if entry["kind"] == "assistant"] == ["PONG"]

    def test_events_of_other_transports_have_entries_too(self):
        """S1-68: events of other transports have transcript entries, which survive JSON."""
        events = [
            Init(model=MODEL, session_id="s-1"),
            Thinking("Hm."),
            TextDelta("H"),
            Text("Hi"),
            PermissionRequest("write_file"),
            Error("boom", "API"),
            Unknown(kind="hologram"),
            Done("error"),
        ]
        transcript = local.build_transcript(events)
        expected = ["init", "thinking", "assistant", "system", "system", "system", "result"]
        assert kinds(transcript) == expected
        union = list[local.TranscriptEntry]
        assert msgspec.json.decode(msgspec.json.encode(transcript), type=union) == transcript


class TestAroundARun:
    """What does not depend on the agent; a stand-in is quicker."""

    @pytest.fixture
    def transport(self, stand_in) -> Cli:
        return stand_in(INIT, {"type": "message", "role": "assistant", "content": "Hi"}, SUCCESS)

    async def test_a_missing_instructions_file_is_a_warning(self, plain, transport, stand_in):
        """B-28: the run continues with a warning; only the health check fails."""
        result = await local.execute(
            changed(plain, instructions_file_path="AGENT.md"), asked("Greet"), via=transport
        )
        assert result.success
        (warning,) = result.warnings
        assert str(Path(plain.cwd) / "AGENT.md") in warning
        assert stand_in.call["stdin"] == "Greet"

    async def test_a_listener_may_be_async(self, plain, transport):
        heard = []

        async def listen(event) -> None:
            await asyncio.sleep(0)
            heard.append(event.type)

        await local.execute(plain, asked("Hi", on_event=listen), via=transport)
        assert (heard[0], heard[-1]) == ("init", "done")

    def test_code_that_does_not_await_runs_it_too(self, plain, transport):
        """S1-67: `execute_sync` returns the same result in synchronous code."""
        assert local.execute_sync(plain, asked("Hi"), via=transport).output == "Hi"

    async def test_even_where_a_loop_is_running(self, plain, transport):
        assert local.execute_sync(plain, asked("Hi"), via=transport).success

    async def test_agents_and_tenants_do_not_share_a_session(
        self, plain, transport, store, stand_in
    ):
        for tenant in ("ada", "bob"):
            await local.execute(plain, asked("Hi", tenant_id=tenant), via=transport, store=store)
            assert "--resume" not in " ".join(stand_in.call["argv"])
        assert {stored.agent for stored in store.list()} == {"ada/writer", "bob/writer"}

    async def test_the_callers_session_goes_before_the_stores(
        self, plain, transport, store, stand_in
    ):
        """S1-49: a session id in the context overrides the one in the store."""
        remember(store, plain, "stores-1")
        context = asked("Which?", session_id="callers-1")
        await local.execute(plain, context, via=transport, store=store)
        assert "--resume=callers-1" in stand_in.call["argv"]

    async def test_a_cancelled_task_ends_the_run(self, plain, stand_in):
        begun = asyncio.Event()
        context = asked("Hi", on_event=lambda event: begun.set())
        hanging = stand_in(INIT, SAID, hang=True, grandchildren=("tool",))
        task = asyncio.create_task(local.execute(plain, context, via=hanging))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class Runs(msgspec.Struct):
    """Runs of one agent on the real CLI, its model, and what is left when they are over."""

    config: GeminiLocalConfig
    results: list[local.LocalResult] = []
    requests: list[Request] = []
    stored: list[list[StoredSession]] = []
    """What the store held after each run."""
    arrived: list[str] = []
    """The events of the first run."""


@pytest.fixture(scope="module")
def conversation(real_transport, tmp_path_factory) -> Runs:
    """Three runs: one with a template and instructions, one that goes on with its session, and, in
    another folder, one with yolo and an alias, which is first refused that session."""
    with private_place(tmp_path_factory) as work, FakeGemini() as fake:
        fake.say("Hello ", "world.", tokens=Tokens(prompt=1000, output=10))
        fake.say("Seven.", tokens=Tokens(prompt=200, output=10))
        fake.call("write_file", file_path="a.txt", content="hi").say("Afresh.")
        store = SqliteSessions(work / "sessions.db")
        config = on_the_real_cli(real_transport, fake, work / "workspace")
        (work / "AGENT.md").write_text("Be brief.\n")
        templated = changed(
            config,
            prompt_template="You are {{agent.name}} of {{tenant.name}}. {{prompt}}",
            instructions_file_path=str(work / "AGENT.md"),
        )
        runs = Runs(config)

        def run(config: GeminiLocalConfig, prompt: str, retry: bool = False, **values) -> None:
            result = local.execute_sync(
                config, asked(prompt, **values), store=store, retry_fresh=retry
            )
            runs.results.append(result)
            runs.stored.append(store.list())

        names = {"agent_name": "Ada", "tenant_name": "Babbage & Co."}
        hear = lambda event: runs.arrived.append(event.type)  # noqa: E731
        run(templated, "Remember seven.", on_event=hear, **names)
        run(config, "Which number?")
        elsewhere = changed(config, cwd=f"{config.cwd}-2", yolo=True, model="pro")
        session = runs.results[0].session_id
        run(elsewhere, "Write hi to a.txt", session_id=session)
        run(elsewhere, "Write hi to a.txt", retry=True, session_id=session)
        runs.requests = fake.requests
    return runs


@pytest.fixture(scope="module")
def cut_short(real_transport, tmp_path_factory) -> Runs:
    """A first run that reaches its time limit, and one that goes on with it, on the model `auto`,
    and tries to write a file."""
    with private_place(tmp_path_factory) as work, FakeGemini() as fake:
        store = SqliteSessions(work / "sessions.db")
        config = on_the_real_cli(real_transport, fake, work / "workspace")
        fake.hang("Some words ")
        limited = changed(config, timeout_sec=10)
        first = local.execute_sync(limited, asked("Remember seven"), store=store)
        fake.call("write_file", file_path="a.txt", content="hi").say("I may not.")
        routed = changed(config, model="auto")
        second = local.execute_sync(routed, asked("Which number?"), store=store)
        return Runs(config, [first, second], fake.requests)


@pytest.mark.gemini_cli
class TestARun:
    def test_without_yolo_it_only_reads(self, cut_short):
        """S1-13, B-13: by default, the real CLI refuses to write a file."""
        result = cut_short.results[-1]
        assert "tool_call" in kinds(result.transcript)
        assert result.output == "I may not."
        assert not (Path(cut_short.config.cwd) / "a.txt").exists()
        assert result.files == []

    def test_auto_is_chosen_by_the_cli(self, cut_short):
        """S1-7, S1-19, B-16: the cost includes all models that answered, also the router's."""
        result = cut_short.results[-1]
        assert result.model not in (None, "auto")
        assert result.model in result.cost_source

    def test_a_time_limit_keeps_what_arrived(self, cut_short):
        """S1-11, S1-39, S1-55, B-12: a run that times out keeps its text, and its session can be
        resumed."""
        result, second = cut_short.results
        assert (result.success, result.timed_out) == (False, True)
        assert (result.error, result.error_code) == ("Process timed out after 10s", "TIMEOUT")
        assert (result.output, result.resumable) == ("Some words ", True)
        assert "timeoutSec" in result.hint
        assert second.session_id == result.session_id
        assert "Remember seven" in json.dumps(cut_short.requests[-1].contents)

    def test_a_run_creates_its_folder_and_returns_a_result(self, conversation):
        """S1-6, S1-67, S1-72, B-29: a real run creates `cwd` and returns a complete result."""
        result = conversation.results[0]
        assert Path(conversation.config.cwd).is_dir()
        assert (result.success, result.status, result.error) == (True, "success", None)
        assert result.output == "Hello world."
        assert result.session_id
        assert (result.usage.input, result.usage.output) == (1000, 10)
        # 1000 · 0.30 + 10 · 2.50 dollars per million
        assert result.cost_usd == Decimal("0.000325")
        assert (result.cost_source, result.billing) == (f"list:{MODEL}", "api_key")
        assert (result.clear_session, result.fresh_session) == (False, False)
        assert (result.model, result.timed_out, result.exit_code) == (MODEL, False, 0)
        assert kinds(result.transcript) == ["init", "user", "assistant", "result"]
        assert conversation.arrived[-3:] == ["text_delta", "text", "done"]
        plain = json.loads(json.dumps(result.to_dict()))
        assert {"success", "output", "sessionId", "usage", "costUsd", "transcript"} <= set(plain)
        assert plain["transcript"][-1]["kind"] == "result"

    def test_template_and_instructions_reach_the_model(self, conversation):
        """S1-8, S1-9, S1-25: the model receives the instructions file, a blank line, and the
        rendered template."""
        sent = "Be brief.\n\nYou are Ada of Babbage & Co.. Remember seven."
        assert conversation.requests[0].prompt == sent
        assert conversation.results[0].warnings == ()

    def test_yolo_lets_it_write_files_unattended(self, conversation):
        """S1-3, S1-13, S1-38: with `yolo`, the real CLI writes a file without asking, and the
        result lists it."""
        result = conversation.results[-1]
        written = Path(f"{conversation.config.cwd}-2") / "a.txt"
        assert written.read_text() == "hi"
        assert [change.path for change in result.files] == [str(written)]
        expected = ["init", "user", "tool_call", "tool_result", "assistant", "result"]
        assert kinds(result.transcript) == expected

    def test_aliases_are_resolved_by_the_cli(self, conversation):
        """S1-7, S1-20: to a newer model than the document says; the result names it."""
        result = conversation.results[-1]
        # test_command_misc has every alias.
        assert conversation.requests[-1].model == result.model == "gemini-3.1-pro-preview"


@pytest.mark.gemini_cli
class TestSessions:
    def test_the_second_run_goes_on_with_the_first(self, conversation):
        """S1-3, S1-36, S1-49: a second call resumes the session that the first one stored."""
        first, second, *_ = conversation.results
        assert second.session_id == first.session_id
        assert second.output == "Seven."
        assert "Remember seven" in json.dumps(conversation.requests[1].contents)
        (stored,) = conversation.stored[1]
        assert (stored.agent, stored.cwd) == ("writer", conversation.config.cwd)
        assert (stored.session_id, stored.model) == (first.session_id, MODEL)
        assert stored.tokens == 1220
        assert stored.cost_usd == first.cost_usd + second.cost_usd

    def test_a_session_is_refused_in_another_folder(self, conversation):
        """B-22: nothing is started, and the session stays usable in its own folder."""
        _, _, refused, again = conversation.results
        folder = conversation.config.cwd
        assert (refused.status, refused.error_code) == ("not_started", "SESSION_LOST")
        assert refused.clear_session
        assert folder in refused.error
        assert [stored.cwd for stored in conversation.stored[2]] == [folder]
        assert (again.output, again.fresh_session) == ("Afresh.", True)
        assert {stored.cwd for stored in conversation.stored[3]} == {folder, f"{folder}-2"}


class TestWhatTheCliRefuses:
    """As the real CLI was recorded; test_resuming loses a session of the real one, and has a fresh
    start and a first prompt that failed on it."""

    async def test_a_failure_of_the_api_is_a_result(self, stand_in, plain, store):
        """S1-72: the CLI discards a failed first prompt, so the result is not resumable."""
        failed = recording("0.61.0", "err400")
        via = stand_in(failed["stdout"].encode(), exit=failed["exit"], stderr=failed["stderr"])
        result = await local.execute(plain, asked("Hi"), via=via, store=store)
        assert (result.success, result.error_code) == (False, "API")
        assert "fake 400 INVALID_ARGUMENT" in result.error
        assert (result.resumable, result.clear_session) == (False, False)
        assert store.list() == []

    async def test_a_lost_session_is_told_and_forgotten(self, plain, forgetful, store):
        """S1-50, B-22: the CLI prints nothing, exits with 42, and explains on stderr; the store
        forgets the session."""
        remember(store, plain, "gone")
        via = forgetful(INIT, {**SAID, "content": "Hello."}, SUCCESS)
        result = await local.execute(plain, asked("Hi"), via=via, store=store)
        assert (result.success, result.clear_session) == (False, True)
        assert (result.error_code, result.exit_code) == ("SESSION_LOST", 42)
        assert "resuming session" in result.error
        assert (result.session_id, result.fresh_session) == (None, False)
        assert store.list() == []

    @pytest.fixture
    def forgetful(self, stand_in, tmp_path):
        """A program that has lost every session, and otherwise says this."""

        def transport(*frames: dict, **how: int) -> Cli:
            lost, program = recording("0.61.0", "resume_bad_uuid"), tmp_path / "forgetful"
            (tmp_path / "lost.txt").write_text(lost["stderr"])
            program.write_text(
                f'#!/bin/sh\ncase "$*" in *--resume=gone*) cat "{tmp_path}/lost.txt" >&2; '
                f'exit {lost["exit"]};; esac\nexec "{stand_in(*frames, **how).executable}" "$@"\n'
            )
            program.chmod(0o755)
            return Cli(executable=program)

        return transport

    async def test_a_lost_session_can_be_replaced_at_once(self, plain, forgetful, store):
        """S1-50, B-22: with `retry_fresh`, one more attempt without the session succeeds, and the
        result says so."""
        remember(store, plain, "gone")
        via = forgetful(INIT, {**SAID, "content": "Hello."}, SUCCESS)
        result = await local.execute(plain, asked("Hi"), via=via, store=store, retry_fresh=True)
        assert (result.success, result.output) == (True, "Hello.")
        assert (result.fresh_session, result.clear_session) == (True, False)
        assert any("session gone could not be resumed" in note for note in result.warnings)
        assert [stored.session_id for stored in store.list()] == [result.session_id]

    async def test_where_the_second_attempt_fails_too_the_session_is_still_lost(
        self, plain, forgetful, store
    ):
        """S1-50, B-22: if the fresh attempt fails as well, the old session is still cleared from
        the store."""
        remember(store, plain, "gone")
        failed = recording("0.61.0", "err400")
        via = forgetful(failed["stdout"].encode(), exit=failed["exit"], stderr=failed["stderr"])
        result = await local.execute(plain, asked("Hi"), via=via, store=store, retry_fresh=True)
        assert (result.success, result.error_code) == (False, "API")
        assert (result.fresh_session, result.clear_session) == (True, True)
        assert store.list() == []


def remember(store: SqliteSessions, config: GeminiLocalConfig, session_id: str) -> None:
    cwd = config.cwd
    store.record(StoredSession(agent="writer", cwd=cwd, session_id=session_id, last_run=1))


class TestTheShapesOwnRuleForSessions:
    """What the real CLI cannot be made to say; a stand-in prints it."""

    @pytest.mark.parametrize(
        "error", ["Session not found", "cannot resume", {"message": "no such session"}]
    )
    def test_an_error_result_that_speaks_of_it_clears_the_session(self, plain, stand_in, error):
        """S1-34, S1-50, B-21: an error result that mentions a session or resuming, as string or
        object, sets `clear_session`."""
        transport = stand_in({"type": "result", "status": "error", "error": error}, exit=1)
        result = local.execute_sync(plain, asked("Hi", session_id="s-1"), via=transport)
        assert (result.success, result.clear_session) == (False, True)
        assert "--resume=s-1" in stand_in.call["argv"]

    @pytest.mark.parametrize(
        "frames",
        [
            [{"type": "result", "status": "error", "error": "boom"}],
            [{"type": "message", "content": "the session is lost, resume"}, SUCCESS],
            [
                {"type": "message", "content": "session not found"},
                {"type": "result", "status": "error", "error": "boom"},
            ],
            [
                {
                    "type": "result",
                    "status": "error",
                    "error": "UNAUTHENTICATED: the session is non-interactive",
                }
            ],
        ],
    )
    def test_other_failures_keep_the_session(self, plain, stand_in, frames):
        """S1-50, B-22: text of the model, or a failure with another known cause, does not clear the
        session."""
        transport = stand_in(INIT, *frames)
        result = local.execute_sync(plain, asked("Hi", session_id="s-1"), via=transport)
        assert not result.clear_session
        assert result.session_id == "s-1"

    def test_the_turn_limit_keeps_the_session(self, plain, stand_in):
        """S1-50: reaching the turn limit does not clear the session, which is still usable."""
        run = recording("0.61.0", "maxturns")
        transport = stand_in(run["stdout"].encode(), exit=run["exit"], stderr=run["stderr"])
        result = local.execute_sync(plain, asked("Hi"), via=transport)
        assert (result.status, result.clear_session) == ("max_turns", False)
        assert result.session_id == json.loads(run["stdout"].splitlines()[0])["session_id"]
        assert result.resumable

    def test_a_turn_limit_that_only_the_status_reports(self, plain, stand_in):
        """S1-50: a turn limit that only the status reports, with another exit code, keeps the
        session."""
        limit = {"type": "result", "status": "turn_limit", "error": "No turn is left."}
        result = local.execute_sync(plain, asked("Hi"), via=stand_in(INIT, limit, exit=1))
        assert (result.status, result.clear_session) == ("max_turns", False)
        assert (result.session_id, result.resumable) == ("s-1", True)

    def test_text_that_only_speaks_of_limits_is_no_limit(self, plain, stand_in):
        """S1-50: text about turn limits in the error and on stderr does not count as reaching
        one."""
        failed = {
            "type": "result",
            "subtype": "error",
            "error": "The page says: max turns reached.",
        }
        transport = stand_in(
            *(INIT, failed, "a transcript may mention the turn limit"),
            exit=1,
            stderr="the max turns limit was reached.",
        )
        result = local.execute_sync(plain, asked("Hi"), via=transport)
        assert (result.status, result.clear_session) == ("error", False)

    def test_a_session_that_grew_too_long_is_cleared(self, plain, stand_in):
        """S1-50: a context overflow clears the session, because the next prompt would only be
        longer."""
        full = {"type": "result", "status": "error", "error": "input token count exceeds maximum"}
        result = local.execute_sync(
            plain, asked("Hi", session_id="s-1"), via=stand_in(INIT, full, exit=1)
        )
        assert (result.error_code, result.clear_session) == ("CONTEXT_OVERFLOW", True)
        first = local.execute_sync(plain, asked("Hi"), via=stand_in(INIT, full, exit=1))
        assert not first.clear_session

    def test_what_has_acted_is_not_repeated(self, plain, stand_in):
        """B-22: `retry_fresh` does not retry a run that spoke or acted, because it would act
        twice."""
        acted = {"type": "tool_use", "tool_name": "write_file", "tool_id": "1", "parameters": {}}
        lost = {"type": "result", "status": "error", "error": "Session not found"}
        transport = stand_in(INIT, acted, lost, exit=1)
        context = asked("Hi", session_id="s-1")
        result = local.execute_sync(plain, context, via=transport, retry_fresh=True)
        assert (result.clear_session, result.fresh_session) == (True, False)


class TestWhatGoesWrongBeforeARun:
    def test_a_cli_that_is_not_there_is_a_result(self, tmp_path):
        """S1-72: a missing CLI is a failed result with a hint."""
        config = GeminiLocalConfig(cwd=tmp_path, executable=str(tmp_path / "nothing"))
        result = local.execute_sync(config, asked("Hi", session_id="s-1"))
        assert (result.success, result.status) == (False, "not_started")
        assert result.error_code == "CLI_NOT_FOUND"
        assert "install" in result.hint
        assert (result.session_id, result.clear_session) == ("s-1", False)

    def test_a_folder_that_cannot_be_made_is_a_result(self, tmp_path):
        """S1-6, B-29: if `cwd` cannot be created, the result is a failure that says so."""
        (tmp_path / "file").write_text("")
        result = local.execute_sync(GeminiLocalConfig(cwd=tmp_path / "file" / "x"), asked("Hi"))
        assert "cannot create the working folder" in result.error

    def test_an_empty_prompt_is_a_result(self, tmp_path, stand_in):
        result = local.execute_sync(GeminiLocalConfig(cwd=tmp_path), asked(""), via=stand_in())
        assert (result.error_code, result.status) == ("INPUT", "not_started")

    def test_the_prompt_can_be_seen_before_it_is_sent(self, tmp_path):
        """What `execute` would send, for a preview."""
        (tmp_path / "AGENT.md").write_text("Be brief.\n")
        about = {
            "prompt_template": "{{agent.name}}: {{prompt}}",
            "instructions_file_path": "AGENT.md",
        }
        config = GeminiLocalConfig(cwd=str(tmp_path), **about)
        context = AdapterExecutionContext(agent_id="a", agent_name="Ann", prompt="Hello")
        assert local.build_prompt(config, context) == ("Be brief.\n\nAnn: Hello", [])
        (tmp_path / "AGENT.md").unlink()
        text, (warning,) = local.build_prompt(config, context)
        assert (text, "AGENT.md" in warning) == ("Ann: Hello", True)

    def test_a_template_without_the_prompt_gives_a_warning(self, tmp_path, stand_in):
        """S1-8: a template without `{{prompt}}` gives a warning, because the prompt is not sent."""
        config = GeminiLocalConfig(cwd=tmp_path, prompt_template="Hello")
        result = local.execute_sync(config, asked("Do it"), via=stand_in(INIT, SUCCESS))
        assert any("has no {{prompt}}" in note for note in result.warnings)

    def test_a_store_that_cannot_be_read_stops_the_run(self, tmp_path, stand_in):
        (tmp_path / "file").write_text("")
        broken = SqliteSessions(tmp_path / "file" / "sessions.db")
        config = GeminiLocalConfig(cwd=tmp_path)
        result = local.execute_sync(config, asked("Hi"), via=stand_in(INIT), store=broken)
        assert (result.status, result.error_code) == ("not_started", "SETUP")

    def test_a_store_that_breaks_during_the_run_costs_only_the_memory(
        self, tmp_path, stand_in, store
    ):
        def spoil(event) -> None:
            if event.type == "done":
                store.path.write_text("not a database, " * 100)

        config = GeminiLocalConfig(cwd=tmp_path)
        transport = stand_in(INIT, {"type": "message", "content": "Hi"}, SUCCESS)
        result = local.execute_sync(config, asked("Hi", on_event=spoil), via=transport, store=store)
        assert (result.success, result.output) == (True, "Hi")
        assert any("session store" in note for note in result.warnings)


class TestTheEnvironmentOfARun:
    def test_the_configs_variables_lie_over_the_process_s_own(
        self, tmp_path, stand_in, monkeypatch
    ):
        """S1-10, S1-26: the CLI gets this process's variables, overridden by those in `env`."""
        monkeypatch.setenv("BOTH", "process")
        monkeypatch.setenv("ONE", "process")
        config = GeminiLocalConfig(cwd=tmp_path, env={"BOTH": "config"})
        local.execute_sync(config, asked("Hi"), via=stand_in(INIT, SUCCESS))
        env = stand_in.call["env"]
        assert (env["BOTH"], env["ONE"]) == ("config", "process")


STATS = {
    "total_tokens": 1_100_000,
    "input_tokens": 1_000_000,
    "output_tokens": 100_000,
    "cached": 200_000,
}


class TestTheBill:
    def bill(self, tmp_path, stand_in, *, env, model=MODEL, models=(), prices=None):
        shares = {"models": dict.fromkeys(models, STATS)} if models else {}
        done = {**SUCCESS, "stats": {**STATS, **shares}}
        transport = stand_in({**INIT, "model": model}, {"type": "message", "content": "Hi"}, done)
        config = GeminiLocalConfig(cwd=tmp_path, env=env)
        return local.execute_sync(config, asked("Hi"), via=transport, prices=prices)

    @pytest.mark.parametrize(
        ("env", "payer"),
        [({}, "google_account"), ({"GOOGLE_CLOUD_PROJECT": "p"}, "vertex")],
    )
    def test_only_an_api_key_pays_by_the_token(self, tmp_path, stand_in, env, payer):
        """S1-3, S1-57, B-17: runs without a key succeed, and cost 0.00."""
        result = self.bill(tmp_path, stand_in, env=env)
        assert result.success
        assert (result.cost_usd, result.cost_source) == (Decimal("0.00"), "not-billed")
        assert result.billing == payer

    def test_a_book_of_prices_counts_instead_of_the_list(self, tmp_path, stand_in):
        """S1-56, S1-59, B-16: 0.8 · 0.15 + 0.2 · 0.0375 + 0.1 · 0.60 = 0.1875, at the price of the
        model in `init`."""
        env = {"GEMINI_API_KEY": "k"}
        result = self.bill(tmp_path, stand_in, env=env, prices=PRICES_2026_04)
        assert result.cost_usd == Decimal("0.1875")
        assert result.cost_source == f"table:{MODEL}"
        by_hand = local.calculate_cost_usd(MODEL, STATS, env, PRICES_2026_04)
        assert result.cost_usd == by_hand

    def test_the_models_that_answered_are_billed(self, tmp_path, stand_in):
        """S1-56, B-16: the cost is that of the models in the stats, because `init` may say auto."""
        result = self.bill(
            tmp_path,
            stand_in,
            env={"GEMINI_API_KEY": "k"},
            model="auto",
            models=["gemini-2.5-pro", "gemini-2.5-flash-lite"],
            prices=PRICES_2026_04,
        )
        # 2.062 for pro, 0.125 for flash-lite
        assert result.cost_usd == Decimal("2.187")
        assert result.cost_source == "table:gemini-2.5-pro+gemini-2.5-flash-lite"

    def test_stats_without_a_total_are_not_free(self, tmp_path, stand_in):
        """S1-33, S1-56: the document's own `result` line has no `total_tokens`, and still has a
        cost."""
        stats = {"input_tokens": 1000, "output_tokens": 100, "cached": 0, "duration_ms": 2340}
        done = {**SUCCESS, "stats": stats}
        config = GeminiLocalConfig(cwd=tmp_path, env={"GEMINI_API_KEY": "k"})
        result = local.execute_sync(
            config, asked("Hi"), via=stand_in(INIT, done), prices=PRICES_2026_04
        )
        assert result.usage.total == 1100
        assert result.cost_usd == Decimal("0.00021")

    def test_the_documents_table_has_a_name(self, tmp_path, stand_in):
        """S1-58 … S1-65: in a run and in `calculate_cost_usd`; both default to list prices."""
        env = {"GEMINI_API_KEY": "k"}
        by_table = self.bill(tmp_path, stand_in, env=env, prices="2026-04")
        assert by_table.cost_usd == Decimal("0.1875")
        assert by_table.cost_usd == local.calculate_cost_usd(MODEL, STATS, env, "2026-04")
        by_list = self.bill(tmp_path, stand_in, env=env)
        assert by_list.cost_source == f"list:{MODEL}"
        assert by_list.cost_usd == local.calculate_cost_usd(MODEL, STATS, env)
        assert by_list.cost_usd != by_table.cost_usd

    def test_a_table_that_does_not_exist_is_a_result(self, tmp_path, stand_in):
        result = self.bill(tmp_path, stand_in, env={}, prices="1999-12")
        assert (result.status, result.error_code) == ("not_started", "INVALID_OPTIONS")
        assert "2026-04" in result.hint

    def test_its_json_has_numbers_and_camel_case_keys(self, tmp_path, stand_in):
        """S1-37, S1-56: `to_dict` leaves names that the model or its tools chose unchanged."""
        call = {"type": "tool_use", "tool_name": "write_file", "tool_id": "t", "parameters": {}}
        call["parameters"] = {"file_path": "a.txt", "content": "hi"}
        answer = {"type": "tool_result", "tool_id": "t", "status": "success"}
        done = {**SUCCESS, "stats": {**STATS, "models": {"gemini_9": STATS, MODEL: STATS}}}
        config = GeminiLocalConfig(cwd=tmp_path, env={"GEMINI_API_KEY": "k"})
        transport = stand_in(INIT, call, answer, done)
        plain = local.execute_sync(config, asked("Hi"), via=transport, prices="2026-04").to_dict()
        assert plain["costUsd"] == 0.375
        assert isinstance(plain["costUsd"], float)
        assert plain["usage"]["toolCalls"] == 1
        assert [*plain["usage"]["byModel"]] == ["gemini_9", MODEL]
        (entry,) = [entry for entry in plain["transcript"] if entry["kind"] == "tool_call"]
        assert "file_path" in entry["input"]
        entry["input"], plain["usage"]["byModel"] = {}, {}
        plain["transcript"][-1]["usage"]["byModel"] = {}
        assert re.findall(r'"(\w*_\w*)":', json.dumps(plain)) == []

    def test_an_unknown_model_does_not_look_free(self, tmp_path, stand_in):
        """S1-65, B-16: its cost is None with the reason; the document's table has a row for it."""
        env = {"GEMINI_API_KEY": "k"}
        result = self.bill(tmp_path, stand_in, env=env, model="gemini-99-hologram")
        assert (result.cost_usd, result.cost_source) == (None, "unknown-model")
        assert "gemini-99-hologram" in result.cost_note
        old = self.bill(tmp_path, stand_in, env=env, model="hologram", prices=PRICES_2026_04)
        assert old.cost_usd == Decimal("0.1875")


class TestTheForm:
    def test_there_is_a_field_for_each_setting(self):
        """S1-70: the form has a labelled field with help for every setting, and only `cwd` is
        required."""
        plain = GeminiLocalConfig(cwd="/a")
        fields = {field.key: field for field in local.CONFIG_FIELDS}
        encoded = {field.encode_name: field for field in msgspec.structs.fields(plain)}
        assert set(fields) == set(encoded)
        assert [key for key, field in fields.items() if field.required] == ["cwd"]
        for key, field in fields.items():
            assert field.label
            assert field.help
            if key not in ("cwd", "model"):
                assert field.default == getattr(plain, encoded[key].name)

    def test_secrets_are_marked_and_the_rare_ones_put_aside(self):
        """S1-10, S1-70: `env` is marked as secret, and the common fields are not under
        "advanced"."""
        assert [field.key for field in local.CONFIG_FIELDS if field.secret] == ["env"]
        advanced = {field.key for field in local.CONFIG_FIELDS if field.advanced}
        assert advanced.isdisjoint({"cwd", "model", "yolo"})

    def test_the_choices_are_values_that_the_config_takes(self):
        """S1-7, S1-23, S1-70: every choice that the form offers passes validation."""
        for field in local.CONFIG_FIELDS:
            for choice in field.choices:
                assert local.validate_config({"cwd": "/a", field.key: choice.id}) == []
        (model,) = (field for field in local.CONFIG_FIELDS if field.key == "model")
        assert model.default == "auto"
        assert {"auto", "pro", "gemini-2.5-pro"} <= {choice.id for choice in model.choices}

    def test_what_a_browser_sends_becomes_a_config(self):
        """S1-70: form values are text, and empty fields keep their defaults."""
        config = local.build_config(
            {
                "cwd": "/srv/writer",
                "model": "",
                "yolo": "on",
                "timeoutSec": "300",
                "graceSec": "2.5",
                "env": "GEMINI_API_KEY=a=b\n\nLANG=C",
            }
        )
        assert config == GeminiLocalConfig(
            cwd="/srv/writer",
            yolo=True,
            timeout_sec=300,
            grace_sec=2.5,
            env={"GEMINI_API_KEY": "a=b", "LANG": "C"},
        )

    @pytest.mark.parametrize(
        "line",
        [
            "A=1",
            "A = 1",
            "  A=1  ",
            "export A=1",
            "export  A = 1",
            'A="1"',
            "A='1'",
            "# the key\nA=1",
            "  # A=2\r\nA=1\r\n",
        ],
    )
    def test_variables_may_be_written_as_in_a_dotenv_file(self, line):
        """S1-10, S1-70: the form accepts `export A=1`, spaces around `=`, quotes and comments."""
        assert local.build_config({"cwd": "/a", "env": line}).env == {"A": "1"}

    @pytest.mark.parametrize("value", ["a#b", "a # b", "a=b", '"', "'a\"", "{}", "", "exported"])
    def test_the_value_of_a_variable_is_not_cut(self, value):
        """S1-10, S1-70: `#`, `=`, braces and unpaired quotes inside a value are part of it."""
        assert local.build_config({"cwd": "/a", "env": f"export={value}"}).env == {"export": value}

    def test_no_limit_can_be_chosen(self):
        """S1-11: null means no time limit, an empty form field the default of 120 s."""
        assert local.build_config({"cwd": "/a", "timeoutSec": None}).timeout_sec is None
        assert local.build_config({"cwd": "/a", "timeoutSec": ""}).timeout_sec == 120

    def test_a_good_config_has_no_problems(self):
        """S1-70: `validate_config` returns an empty list for valid form input."""
        assert local.validate_config({"cwd": "/a", "env": '{"A": "1"}', "max_turns": "3"}) == []

    def test_all_problems_are_told_in_the_order_of_the_form(self):
        """S1-70: each problem has its key and what to write instead."""
        problems = local.validate_config(
            {
                "timoutSec": 1,
                "approvalMode": "reckless",
                "timeoutSec": "soon",
                "yolo": "perhaps",
                "env": {"A=B": "1"},
                "model": "  ",
            }
        )
        expected = [*("cwd", "model", "env", "timeoutSec", "yolo", "approvalMode", "timoutSec")]
        assert [problem.key for problem in problems] == expected
        remedies = {problem.key: problem.remedy for problem in problems}
        assert all(remedies.values())
        assert "'timeoutSec'" in remedies["timoutSec"]
        assert "auto_edit" in remedies["approvalMode"]

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            *[("timeoutSec", value) for value in (0, -1, float("nan"), float("inf"), True, [])],
            *[("graceSec", value) for value in (-1, "x")],
            *[("env", value) for value in ("no equals sign", "{", {"A": 1}, {"": "x"}, ["A=1"])],
            *[("maxTurns", value) for value in (0, "1.5")],
            *[("cwd", value) for value in (3, " ", "a\0b", __file__)],
            ("yolo", 2),
            ("model", ["flash"]),
            ("promptTemplate", {}),
        ],
    )
    def test_each_bad_value_is_one_problem(self, key, value):
        """S1-6, S1-10, S1-11, S1-70: every invalid value gives exactly one problem, under its own
        key."""
        problems = local.validate_config({"cwd": "/a", key: value})
        assert [problem.key for problem in problems] == [key]

    def test_yolo_and_another_mode_exclude_each_other(self):
        """B-2: `yolo` with a different approval mode is a problem; with a synonym it is not."""
        values = {"cwd": "/a", "yolo": True}
        (problem,) = local.validate_config({**values, "approvalMode": "plan"})
        assert problem.key == "approvalMode"
        assert local.validate_config({**values, "approvalMode": "bypassPermissions"}) == []

    def test_a_config_with_problems_is_refused_with_all_of_them(self):
        """S1-70: `build_config` raises once, and the error names every problem and its remedy."""
        with pytest.raises(InvalidOptions, match="cwd is missing; yolo") as caught:
            local.build_config({"yolo": 3})
        assert "cwd: a folder" in caught.value.hint

    def test_a_secret_that_cannot_be_read_is_not_repeated(self):
        """S1-10: a key pasted without its name is not quoted in the error."""
        (problem,) = local.validate_config({"cwd": "/a", "env": "AIzaSecret"})
        assert "AIza" not in str(problem)


def telling_its_version(tmp_path: Path, *command: str) -> str:
    """The path of a program that is this one, but for its version, which it tells at once."""
    program = tmp_path / "with-a-version"
    words = " ".join(f"'{word}'" for word in command)
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec echo 0.61.0\nexec {words} "$@"\n')
    program.chmod(0o755)
    return str(program)


class TestTheHealthChecks:
    @pytest.mark.gemini_cli
    def test_the_checks_come_in_order_and_all_pass(self, fake_gemini, config, real_cli, tmp_path):
        """S1-51, S1-52, S1-53, S1-54, S1-69, B-2, B-31: a healthy agent passes CLI, cwd,
        instructions and live probe, in this order."""
        (tmp_path / "AGENT.md").write_text("Be brief.")
        Path(config.cwd).mkdir()
        fake_gemini.say("hello")
        # test_doctor.py asks the real CLI for its version.
        quick = changed(config, executable=telling_its_version(tmp_path, *real_cli))
        healthy = changed(quick, instructions_file_path=str(tmp_path / "AGENT.md"), yolo=True)
        checks = local.test_environment(healthy, probe_timeout=60)
        assert [(check.name, check.level) for check in checks] == [
            *(("cli", "ok"), ("cwd", "ok"), ("instructions", "ok"), ("live", "ok"))
        ]
        assert fake_gemini.requests[0].prompt == "Respond with: hello"
        assert "write_file" in fake_gemini.requests[0].tools

    def test_a_folder_that_will_be_created_is_well_and_stays_uncreated(
        self, stand_in, plain, tmp_path
    ):
        """S1-52, S1-54: the check creates nothing, and a probe that fails says why."""
        refused = recording("0.61.0", "err401")
        via = stand_in(refused["stdout"].encode(), exit=refused["exit"], stderr=refused["stderr"])
        config = changed(plain, executable=telling_its_version(tmp_path, str(via.executable)))
        checks = {c.name: c for c in local.test_environment(config, probe_timeout=60)}
        assert checks["cwd"].level == "ok"
        assert "the first run creates it" in checks["cwd"].detail
        assert (checks["live"].level, checks["live"].code) == ("fail", "AUTH")
        assert checks["live"].fix
        assert not Path(config.cwd).exists()


class TestTheHealthOfAFolder:
    @pytest.fixture
    def well(self, plain, tmp_path) -> GeminiLocalConfig:
        """An agent whose CLI has a version."""
        program = tmp_path / "gemini"
        program.write_text("#!/bin/sh\necho 0.61.0\n")
        program.chmod(0o755)
        return changed(plain, executable=str(program))

    def test_a_folder_that_cannot_be_created_is_not(self, well, tmp_path):
        """S1-52: the check fails, and no probe is sent, because it could not succeed."""
        (tmp_path / "file").write_text("")
        broken = changed(well, cwd=str(tmp_path / "file" / "x" / "y"))
        cli, cwd, _, probe = local.test_environment(broken)
        assert (cli.name, cli.level) == ("cli", "ok")
        assert (cwd.name, cwd.level) == ("cwd", "fail")
        assert (probe.name, probe.level) == ("live", "warn")

    def test_checks_come_one_by_one(self, well, tmp_path):
        """Each is made when it is asked for, so that a form can show them as they come."""
        made = local.environment_checks(changed(well, cwd=str(tmp_path / "file" / "x")), live=False)
        assert next(made).name == "cli"
        (tmp_path / "file").write_text("")
        assert [(check.name, check.level) for check in made] == [
            *(("cwd", "fail"), ("instructions", "ok"))
        ]

    def test_a_missing_instructions_file_is_a_failure(self, well):
        """S1-53, B-28: the health check fails for a configured instructions file that does not
        exist."""
        absent = changed(well, instructions_file_path="AGENT.md")
        _, _, instructions = local.test_environment(absent, live=False)
        assert (instructions.name, instructions.level) == ("instructions", "fail")
        assert str(Path(well.cwd) / "AGENT.md") in instructions.detail

    def check(self, folder: Path) -> Check:
        config = GeminiLocalConfig(cwd=folder, executable="/no/such/gemini")
        return test_environment(config, live=False)[1]

    @pytest.mark.parametrize("below", ["x" * 300, "agents/" + "x" * 300], ids=["here", "below"])
    def test_a_folder_is_really_created_in_a_try(self, tmp_path, below):
        """S1-52: the check tries, because no permission bit shows that a name is too long."""
        cwd = self.check(tmp_path / below)
        assert (cwd.level, cwd.code) == ("fail", "INVALID_OPTIONS")
        assert "too long" in cwd.detail
        assert [*tmp_path.iterdir()] == []

    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux")
    def test_a_file_system_that_takes_no_folders_is_told(self):
        """S1-52: in /proc, root passes every permission check and still cannot create a folder."""
        assert self.check(Path("/proc/agents/writer")).level == "fail"
        there = self.check(Path("/proc"))
        assert (there.level, there.detail) == ("warn", "/proc is readable, but not writable")

    def test_a_try_leaves_nothing_behind(self, tmp_path):
        """S1-52: checking folders, existing or not, creates nothing that stays."""
        assert self.check(tmp_path).level == "ok"
        assert self.check(tmp_path / "agents" / "writer").level == "ok"
        assert [*tmp_path.iterdir()] == []


def test_pytest_does_not_take_the_health_check_for_a_test(request):
    """S1-69: `test_environment.__test__` is False, so that importing it here collects nothing."""
    assert test_environment.__test__ is False
    here = [item.name for item in request.session.items if item.path == Path(__file__)]
    assert "test_environment" not in here


class TestTheHealthOfACliThatIsNotThere:
    def test_a_missing_cli_is_the_first_failure(self, tmp_path):
        """S1-51: without a CLI, the first check fails and the live probe is skipped."""
        config = GeminiLocalConfig(cwd=tmp_path, executable=str(tmp_path / "nothing"))
        cli, _, _, probe = local.test_environment(config)
        assert (cli.name, cli.level, cli.code) == ("cli", "fail", "CLI_NOT_FOUND")
        assert probe.detail.startswith("not tried")

    def test_a_program_whose_version_fails_is_no_cli(self, tmp_path):
        """S1-51: the first check needs `gemini --version` to exit with 0."""
        program = tmp_path / "gemini"
        program.write_text("#!/bin/sh\nexit 3\n")
        program.chmod(0o755)
        config = GeminiLocalConfig(cwd=tmp_path, executable=str(program))
        assert local.test_environment(config, live=False)[0].level == "fail"

    def test_the_probe_has_twenty_seconds_by_default(self):
        """S1-54, B-31: the live probe's default time limit is 20 s."""
        from inspect import signature

        parameter = signature(local.test_environment).parameters["probe_timeout"]
        assert parameter.default == 20.0


def test_union_and_field_kinds_are_complete():
    """S1-68: every kind of transcript entry has its own tag."""
    tags = [kind.__struct_config__.tag for kind in get_args(local.TranscriptEntry)]
    assert len(set(tags)) == len(tags) == 9


def test_many_threads_may_run_at_once(tmp_path, stand_in, store):
    """S1-67: `execute_sync` can run in many threads of one process."""
    # One each: a stand-in writes down how it was called, under one name.
    transports = [stand_in(INIT, {"type": "message", "content": "Hi"}, SUCCESS) for _ in range(4)]
    config = GeminiLocalConfig(cwd=tmp_path)
    results = []

    def work(number: int) -> None:
        context = AdapterExecutionContext(agent_id=f"agent-{number}", prompt="Hi")
        results.append(local.execute_sync(config, context, via=transports[number], store=store))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.success for result in results] == [True] * 4
    assert len(store.list()) == 4
