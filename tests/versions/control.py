"""What a caller controls, on each version of the CLI: permissions, limits, sessions, safety.

Not named `test_….py`, so that the everyday suite passes it by: it needs a CLI per version and some
minutes. `make test-versions` names it. Each test is a row of docs/versions.md; see features.py.
"""

import asyncio
import json
from pathlib import Path

import pytest
import test_attacks as attacks
import test_next_clis as next_clis
import test_running as running
import test_stopping as stopping

from geminorum import Acp, Cli, Options, Policy, Pool, ToolResult, ask, connect
from geminorum import run as start
from geminorum.doctor import probes
from geminorum.errors import ConfigError, RunTimeout, SessionLost, TrustError, Unsupported
from geminorum.install import PINNED_CLI, shim_in
from geminorum.transports.launch import newer_cli
from geminorum.wire.effort import thinking
from geminorum.wire.launch.argv import ACP
from versions.features import OTHER_MODEL, TESTED_CLI, parsed
from versions.table import ROOT
from versions.two_machines import Journey

pytestmark = pytest.mark.gemini_cli

WRITE = ("write_file", {"file_path": "a.txt", "content": "hi"})
TOUCH = ("run_shell_command", {"command": "touch made"})

# The same scenarios as on the pinned version, with `real_transport` a transport to each version.
sleeping = stopping.sleeping
attack, clone = attacks.attack, attacks.clone
test_system_prompt_appended = running.test_a_system_prompt_stands_behind_the_agents_own
test_system_prompt_replaced = running.test_a_system_prompt_replaces_the_agents_own_on_request
test_literal_prompt = running.test_a_slash_and_an_at_sign_are_text


@pytest.fixture
def options(fake_gemini, tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    given = {"env": fake_gemini.env, "cwd": workspace, "model": running.MODEL}
    return Options(**given, timeout=120)  # A version that hangs shall not hold up the others.


@pytest.fixture
def attempt(fake_gemini, options, real_transport):
    """Has the model call tools one after the other; their statuses."""

    async def call(*calls: tuple[str, dict], **chosen) -> list[str]:
        for tool, arguments in calls:
            fake_gemini.call(tool, **arguments)
        fake_gemini.say("Done.")
        async with start("Go", options.changed(**chosen), via=real_transport) as live:
            results = [event async for event in live if isinstance(event, ToolResult)]
        assert live.result.status == "success", live.result.errors
        return [result.status for result in results]

    return call


@pytest.fixture
def probe(fake_gemini, real_transport):
    """Checks a row as `geminorum doctor --try` does."""

    async def check(row: str) -> None:
        found: dict[str, BaseException | None] = {}
        executable, slots = Path(real_transport.executable), asyncio.Semaphore(1)
        bench = probes.Bench(executable, {}, fake_gemini, slots, found.__setitem__)
        (one,) = [one for one in probes.PROBES if row in one.rows]
        await one.work(bench)
        if problem := found[row]:
            raise problem

    return check


async def test_events(probe):
    await probe(probes.EVENTS)


async def test_tool_calls(probe):
    await probe(probes.TOOLS)


async def test_thoughts(probe):
    await probe(probes.THOUGHTS)


async def test_usage(probe):
    await probe(probes.USAGE)


async def test_fork(probe):
    await probe(probes.FORK)


async def test_warm_conversation(probe):
    await probe(probes.WARM)


async def test_warm_approval(probe):
    await probe(probes.WARM_ASK)


async def test_functions(probe):
    await probe(probes.FUNCTIONS)


async def test_output_schema(probe):
    await probe(probes.SCHEMA)


def made(options: Options) -> set[str]:
    return {entry.name for entry in Path(options.cwd).iterdir()} & {"a.txt", "made"}


async def test_deny_write(attempt, options):
    policy = Policy(file_write="deny", shell_execute="ask", network_access="deny")
    assert await attempt(WRITE, policy=policy, approval="auto_edit") == ["denied"]
    assert made(options) == set()


async def test_allow_write(attempt, options):
    assert await attempt(WRITE, TOUCH, policy=Policy(file_write="allow")) == ["success", "denied"]
    assert made(options) == {"a.txt"}


async def test_whitelist(attempt, options):
    (options.cwd / "b.txt").write_text("readable")
    reading = ("read_file", {"file_path": "b.txt"})
    for approval in (None, "yolo"):
        chosen = {"allowed_tools": ["read_file"], "approval": approval}
        assert await attempt(WRITE, TOUCH, reading, **chosen) == ["denied", "denied", "success"]
    assert made(options) == set()


async def test_whitelist_runs_unasked(attempt, options):
    assert await attempt(WRITE, allowed_tools=["write_file"]) == ["success"]
    assert made(options) == {"a.txt"}


async def only_git_status(attempt, options, approval):
    commands = ["git status", "git push", "git status; touch made", "git status $(touch made)"]
    calls = [("run_shell_command", {"command": command}) for command in commands]
    chosen = {"allowed_tools": ["run_shell_command(git status)"], "approval": approval}
    assert await attempt(*calls, **chosen) == ["success", "denied", "denied", "denied"]
    assert made(options) == set()


async def test_only_git_status(attempt, options):
    await only_git_status(attempt, options, None)


async def test_only_git_status_in_yolo(attempt, options):
    await only_git_status(attempt, options, "yolo")


NEWER = {"Cli, decide says no", "Cli, asks about everything"}
WARM = [name for name in attacks.CONFIGURATIONS if "Acp" in name]
CHAIN = attacks.test_a_command_that_looks_safe_does_not_run_where_nobody_says_yes


@pytest.mark.parametrize("name", sorted(attacks.CONFIGURATIONS.keys() - NEWER - set(WARM)))
async def test_safe_looking_commands(attack, clone, name):
    await CHAIN(attack, clone, name)


async def test_safe_looking_commands_asked_about(attack, clone):
    await CHAIN(attack, clone, "Cli, decide says no")


async def test_safe_looking_commands_asked_by_rule(attack, clone):
    await CHAIN(attack, clone, "Cli, asks about everything")


@pytest.mark.parametrize("name", WARM)
async def test_safe_looking_commands_warm(attack, clone, name):
    await CHAIN(attack, clone, name)


async def test_hundred_commands(attack):
    await attacks.none_of_a_hundred_runs(attack, Cli(), policy=Policy())


@pytest.mark.parametrize("name", ["Cli, yolo", "Cli, auto_edit"])
async def test_redirection(attack, clone, fake_gemini, name):
    transport, chosen = attacks.WHITELISTS[name]
    commands = attacks.shell("git status", *attacks.REDIRECTED)
    results = await attack(commands, transport, at_once=True, **chosen)
    attacks.assert_one_ran(results, len(commands))
    assert not (clone / "made").exists()
    assert not (fake_gemini.home / "made").exists()


async def test_stretched_whitelist(attack, tmp_path):
    folder = tmp_path / "filtering"
    folder.mkdir()
    cwd = attacks.make_filtering(folder)
    results = await attack(attacks.OTHERS, Cli(), at_once=True, cwd=cwd, **attacks.ONLY_STATUS)
    attacks.assert_one_ran(results, len(attacks.OTHERS))
    assert not [*tmp_path.rglob("PWNED")]


async def test_steering_folders(attack, clone):
    attacks.prepare_steering(clone)
    calls = attacks.try_steering(clone)
    results = await attack(calls, Cli(), at_once=True, approval="auto_edit")
    assert len(results) == len(calls)
    assert len(attacks.ran(results)) == 1
    assert (clone / "about.gemini.txt").exists()
    assert not [path for path in clone.rglob(".*") if path.name.lower() in (".gemini", ".agents")]


async def test_search(attack, tmp_path):
    attacks.assert_no_program_ran(await attack(attacks.searches(tmp_path), Cli()), tmp_path)


async def test_users_denial(attempt, options, fake_gemini):
    folder = fake_gemini.home / ".gemini/policies"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(
        '[[rule]]\ntoolName = "write_file"\ndecision = "deny"\npriority = 100\n'
    )
    assert await attempt(WRITE, policy=Policy(file_write="allow")) != ["success"]
    assert made(options) == set()


async def test_disallowed_tool(attempt, options):
    chosen = {"disallowed_tools": ["run_shell_command"], "approval": "yolo"}
    assert await attempt(TOUCH, WRITE, **chosen) == ["denied", "success"]
    assert made(options) == {"a.txt"}


async def test_approval_default(attempt, options):
    assert await attempt(WRITE, TOUCH, approval="default") == ["denied", "denied"]
    assert made(options) == set()


async def test_approval_auto_edit(attempt, options):
    assert await attempt(WRITE, TOUCH, approval="auto_edit") == ["success", "denied"]
    assert made(options) == {"a.txt"}


async def test_approval_yolo(attempt, options):
    assert await attempt(WRITE, TOUCH, approval="yolo") == ["success", "success"]
    assert made(options) == {"a.txt", "made"}


async def test_approval_plan(attempt, options):
    assert "success" not in await attempt(WRITE, TOUCH, approval="plan")
    assert made(options) == set()


async def test_max_turns(fake_gemini, options, real_transport):
    settings = fake_gemini.home / ".gemini/settings.json"
    before = settings.read_bytes()
    await running.test_the_turn_limit_ends_the_run(fake_gemini, options, real_transport)
    assert settings.read_bytes() == before


async def test_own_session_id(fake_gemini, options, real_transport):
    fake_gemini.say("Hi")
    chosen = "3e0923c9-7033-438d-a978-a361d8031f47"
    result = await ask("Hi", options.changed(session_id=chosen), via=real_transport)
    assert result.session_id == chosen


async def test_conversation(fake_gemini, options, real_transport):
    fake_gemini.say("Noted.").say("Seven.")
    async with connect(options, via=real_transport) as chat:
        first, second = await chat.ask("Remember seven"), await chat.ask("Which?")
    assert first.session_id == second.session_id
    assert "Remember seven" in json.dumps(fake_gemini.requests[-1].contents)


async def test_resume_by_id(fake_gemini, options, real_transport):
    fake_gemini.say("Noted.").say("Seven.")
    first = await ask("Remember seven", options, via=real_transport)
    resumed = options.changed(resume=first.session_id)
    assert (await ask("Which?", resumed, via=real_transport)).session_id == first.session_id
    assert "Remember seven" in json.dumps(fake_gemini.requests[-1].contents)


async def test_resume_latest(fake_gemini, options, real_transport):
    fake_gemini.say("Noted.").say("Seven.")
    first = await ask("Remember seven", options, via=real_transport)
    second = await ask("Which?", options.changed(resume="latest"), via=real_transport)
    assert second.session_id == first.session_id
    assert "Remember seven" in json.dumps(fake_gemini.requests[-1].contents)


async def test_lost_session(fake_gemini, options, real_transport):
    fake_gemini.say("Noted.")
    await ask("Remember seven", options, via=real_transport)
    bogus = "3e0923c9-7033-438d-a978-a361d8031f47"
    with pytest.raises(SessionLost):
        await ask("Which?", options.changed(resume=bogus), via=real_transport)


@pytest.fixture
def journey(tmp_path, fake_gemini, monkeypatch):
    return Journey(tmp_path / "machines", fake_gemini, monkeypatch)


@pytest.fixture
def warm_transport(real_transport):
    return Acp(executable=real_transport.executable)


async def test_store(journey, real_transport):
    await journey.begin(real_transport)
    await journey.continue_there(real_transport)
    await journey.come_back(real_transport)


async def test_store_warm(journey, warm_transport):
    await journey.begin(warm_transport)
    await journey.continue_there(warm_transport)
    await journey.come_back(warm_transport)


async def test_store_cli_to_acp(journey, real_transport, warm_transport):
    with journey.there.switched_on():
        # Where there is no `Acp`, that shows before the first machine has begun.
        async with Pool(warm_transport) as pool:
            await pool.warm(journey.there.options(home=journey.there.home))
            await journey.begin(real_transport)
            await journey.continue_there(pool)
        await journey.come_back(real_transport)


async def test_store_acp_to_cli(journey, real_transport, warm_transport):
    await journey.begin(warm_transport)
    await journey.continue_there(real_transport)
    await journey.come_back(warm_transport)


PINNED = shim_in(ROOT / ".gemini-cli")
next_cli = next_clis.next_cli


async def test_store_to_newer_cli(journey, real_transport):
    await journey.begin(real_transport)
    await journey.continue_there(Cli(executable=PINNED))
    await journey.come_back(Acp(executable=PINNED))


@pytest.fixture
def newer(request, monkeypatch):
    """A CLI that is newer than the one under test: the pinned one, or itself as version 0.99."""
    if TESTED_CLI != PINNED_CLI:
        return Cli(executable=PINNED)
    executable = request.getfixturevalue("next_cli")
    monkeypatch.setattr(newer_cli, "_warned", {(0, 99, 0)})
    return Cli(executable=executable)


async def test_store_from_newer_cli(journey, newer, real_transport, warm_transport):
    await journey.begin(newer)
    warm = [warm_transport] if parsed(TESTED_CLI) >= ACP else []
    for transport in (real_transport, *warm):
        n_requests = len(journey.fake.log)
        with pytest.raises(Unsupported, match="was written by CLI"):
            await journey.continue_there(transport)
        assert len(journey.fake.log) == n_requests
        assert journey.there.is_unused
        journey.assert_kept()


async def test_cancel(sleeping, real_transport):
    await stopping.TestTheRealCliInItsShellTool().test_cancel_ends_the_whole_tree(
        sleeping, real_transport
    )


async def test_timeout(sleeping, real_transport):
    with pytest.raises(RunTimeout):
        await ask("Sleep", sleeping.changed(timeout=8), via=real_transport)
    assert stopping.nothing_left()


async def test_effort(fake_gemini, options, real_transport):
    fake_gemini.say("Hi")
    await ask("Hi", options.changed(effort="low"), via=real_transport)
    request = fake_gemini.requests[-1]
    assert (request.model != options.model) is OTHER_MODEL.applies_to(TESTED_CLI)
    # The newer model that some versions call instead has other words for it.
    assert thinking("low", request.model).items() <= request.config["thinkingConfig"].items()


@pytest.mark.parametrize("opened", [False, True])
async def test_secrets_hidden_from_shell(fake_gemini, options, real_transport, opened):
    fake_gemini.call("run_shell_command", command="echo key=$GEMINI_API_KEY. > seen").say("Done.")
    transport = Cli(executable=real_transport.executable, secrets_in_tools=opened)
    await ask("Go", options.changed(approval="yolo"), via=transport)
    assert ((options.cwd / "seen").read_text() != "key=.\n") is opened


@pytest.mark.parametrize(
    ("place", "opened"),
    [(".env", False), (".gemini/.env", False), ("../.gemini/.env", False), (".env", True)],
)
async def test_dotenv_ignored(fake_gemini, options, real_transport, place, opened):
    file = options.cwd / place
    file.parent.mkdir(exist_ok=True)
    file.write_text("GEMINI_MODEL=gemini-from-dotenv\n")
    if ".." in place:
        link = options.cwd.parent.with_name(f"{options.cwd.parent.name}-link")
        link.symlink_to(options.cwd)
        options = options.changed(cwd=link)
    fake_gemini.say("Hi")
    transport = Cli(executable=real_transport.executable, dotenv=opened)
    await ask("Go", options.changed(model=None), via=transport)
    assert (fake_gemini.requests[-1].model == "gemini-from-dotenv") is opened


@pytest.fixture
def model_of_folder(fake_gemini, options, real_transport):
    """Runs in a folder whose settings name a model; the model that was called."""
    settings = options.cwd / ".gemini/settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"model": {"name": "gemini-from-folder"}}))
    fake_gemini.say("Hi")

    async def called(trust: bool | None) -> str:
        await ask("Go", options.changed(model=None, trust_workspace=trust), via=real_transport)
        return fake_gemini.requests[-1].model

    return called


async def test_folder_settings_ignored(model_of_folder):
    assert await model_of_folder(None) != "gemini-from-folder"


async def test_folder_settings_on_request(model_of_folder):
    assert await model_of_folder(True) == "gemini-from-folder"


@pytest.fixture
def escape(fake_gemini, options, real_transport):
    """A model that tries to approve a plan of its own."""
    fake_gemini.call("enter_plan_mode", reason="to plan")
    fake_gemini.call("write_file", file_path="plan.md", content="# Plan\n\n1. touch made\n")
    fake_gemini.call("exit_plan_mode", plan_filename="plan.md")
    fake_gemini.call(TOUCH[0], **TOUCH[1]).say("Done.")

    async def tried(approval: str | None) -> None:
        # Where plan mode has to be enabled first, a user may have done so.
        settings = {"experimental": {"plan": True}}
        transport = Cli(executable=real_transport.executable, settings=settings)
        await ask("Go", options.changed(approval=approval), via=transport)

    return tried


async def test_plan_escape_from_default(escape, options):
    await escape(None)
    assert made(options) == set()


async def test_plan_escape_from_plan(escape, options):
    await escape("plan")
    assert made(options) == set()


async def test_error_reports_private(fake_gemini, options, real_transport, tmp_path):
    room = tmp_path / "tmp"
    room.mkdir()
    fake_gemini.fail(400, "no")
    chosen = options.changed(env={**options.env, "TMPDIR": str(room)})
    async with start("My secret", chosen, via=real_transport) as live:
        async for _ in live:
            pass
    assert list(room.rglob("gemini-client-error-*")) == []


async def test_untrusted_folder(fake_gemini, options, real_transport):
    fake_gemini.say("Hi")
    with pytest.raises(TrustError):
        await ask("Hi", options.changed(trust_workspace=False), via=real_transport)


async def test_broken_policy_is_fatal(fake_gemini, options, real_transport):
    folder = fake_gemini.home / ".gemini/policies"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text("[[rule]\nbroken")
    fake_gemini.call(WRITE[0], **WRITE[1]).say("Done.")
    with pytest.raises(ConfigError, match="fix the policy file"):
        await ask("Go", options.changed(approval="yolo"), via=real_transport)
    assert made(options) == set()


# Loaded before the CLI: writes down every host it asks for, and finds none of them.
SPY = """
const dns = require("dns"), fs = require("fs"), lookup = dns.lookup
dns.lookup = function (host, ...rest) {
  if (["localhost", "127.0.0.1"].includes(host)) return lookup.call(this, host, ...rest)
  fs.appendFileSync(process.env.SPY_LOG, host + "\\n")
  rest.at(-1)(Object.assign(new Error("not found: " + host), { code: "ENOTFOUND" }))
}
"""


@pytest.mark.parametrize("opened", [False, True])
async def test_usage_statistics_off(fake_gemini, options, real_transport, tmp_path, opened):
    wanted = {"privacy": {"usageStatisticsEnabled": True}}
    settings = fake_gemini.home / ".gemini/settings.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | wanted))
    spy, asked = tmp_path / "spy.js", tmp_path / "asked"
    spy.write_text(SPY)
    asked.touch()
    fake_gemini.say("Hi")
    direct = {"HTTPS_PROXY": "", "https_proxy": "", "HTTP_PROXY": "", "http_proxy": ""}
    env = {**options.env, **direct, "NODE_OPTIONS": f"--require={spy}", "SPY_LOG": str(asked)}
    transport = Cli(executable=real_transport.executable, settings=wanted if opened else {})
    await ask("Hi", options.changed(env=env), via=transport)
    assert ("play.googleapis.com" in asked.read_text().split()) is opened


async def test_users_own_things_are_seen(fake_gemini, options, real_transport):
    skill = fake_gemini.home / ".gemini/skills/ferret/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: ferret\ndescription: Finds what hid itself.\n---\nLook twice.\n")
    fake_gemini.say("Hi")
    await ask("Hi", options.changed(approval="yolo"), via=real_transport)
    assert "Finds what hid itself." in json.dumps(fake_gemini.requests[-1].body)
    assert list((fake_gemini.home / ".gemini/tmp").rglob("session-*.json*"))
