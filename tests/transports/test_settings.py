"""Settings for one run: laid over the user's, seen in what the CLI does, gone afterwards."""

import hashlib
import json
import shutil
import sys
from pathlib import Path

import pytest

from geminorum import Acp, Cli, Options, Policy, Rule, ToolResult, ask, sync
from geminorum import run as start
from geminorum.testing import FakeGemini
from shared_run import Once

MCP_SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    match asked["method"]:
        case "initialize":
            told = {"protocolVersion": asked["params"]["protocolVersion"],
                    "capabilities": {"tools": {}}, "serverInfo": {"name": "clock", "version": "1"}}
        case "tools/list":
            told = {"tools": [{"name": "noon", "description": "When is noon?",
                               "inputSchema": {"type": "object", "properties": {}}}]}
        case "tools/call":
            told = {"content": [{"type": "text", "text": "at twelve"}]}
        case _:
            told = {}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
"""


@pytest.fixture
def options(fake_gemini, tmp_path):
    cwd = tmp_path / "work"
    cwd.mkdir()
    return Options(cwd=cwd, model="gemini-2.5-flash", env=fake_gemini.env)


def with_settings(transport: Cli, **settings: object) -> Cli:
    return Cli(executable=transport.executable, settings=settings)


def servers_in(folder: Path) -> dict[str, object]:
    """An MCP server of ours, under two names."""
    server = folder / "clock.py"
    server.write_text(MCP_SERVER)
    command = {"command": sys.executable, "args": ["-SE", str(server)]}
    return {"clock": command, "dial": command}


@pytest.fixture
def clock(tmp_path, real_transport) -> Cli:
    return with_settings(real_transport, mcpServers=servers_in(tmp_path))


BOTH = Policy(rules=(Rule("mcp_clock_*", "allow"), Rule("mcp_dial_noon", "deny")))


@pytest.mark.parametrize(
    ("chosen", "statuses"),
    [
        ({"policy": BOTH}, ["success", "denied"]),
        ({"allowed_tools": ["mcp_clock_noon"]}, ["success", "denied"]),
    ],
)
async def test_an_mcp_server_of_the_run_serves_tools(fake_gemini, options, clock, chosen, statuses):
    """B-20: and a rule decides whether it may."""
    fake_gemini.call("mcp_clock_noon").call("mcp_dial_noon").say("Done")
    async with start("When?", options.changed(**chosen), via=clock) as live:
        results = [event async for event in live if isinstance(event, ToolResult)]
    assert [result.status for result in results] == statuses
    for result in results:
        assert ("at twelve" in str(result.output)) is (result.status == "success")


async def test_an_mcp_server_that_nobody_allowed_serves_no_tool(at_home):
    """Not offered at all: whether there is such a tool is not told."""
    run = await at_home()
    assert run["statuses"] == {"list_directory": "success", "mcp_clock_noon": "error"}


def fingerprint(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "tmp" not in path.relative_to(folder).parts
    }


async def test_the_users_files_stay_as_they_were(fake_gemini, options, real_transport):
    """B-19: settings, login, policies, commands; only the store of sessions grows.

    S0-21, B-19: the turn limit ends the run, through settings, since there is no flag for it.
    """
    home = fake_gemini.home / ".gemini"
    settings = home / "settings.json"
    settings.write_text('{ // mine\n "ui": {"theme": "Ayu"},' + settings.read_text().lstrip()[1:])
    (home / "policies").mkdir()
    (home / "policies" / "mine.toml").write_text(
        '[[rule]]\ntoolName = "web_fetch"\ndecision = "deny"\npriority = 5\n'
    )
    (home / "commands").mkdir()
    (home / "commands" / "hello.toml").write_text('prompt = "hello"\n')
    before = fingerprint(home)
    for number in range(3):
        fake_gemini.call("run_shell_command", command=f"echo {number}")
    limited = options.changed(max_turns=2, approval="yolo", effort="low", system_prompt="Be brief.")
    async with start("Go", limited, via=real_transport) as live:
        events = [event async for event in live]
    assert (events[-1].status, live.result.status, live.result.exit_code) == (
        *("max_turns", "max_turns", 53),
    )
    assert len([event for event in events if isinstance(event, ToolResult)]) == 2
    after = fingerprint(home)
    assert {name: after.get(name) for name in before} == before
    new = {name.partition("/")[0] for name in set(after) - set(before)}
    assert new <= {"projects.json", "installation_id", "history"}


@pytest.fixture(scope="module")
def once() -> Once:
    return Once()


@pytest.fixture
def at_home(once, real_transport, tmp_path_factory):
    """A run in a home of its own, which has a hook, as the caller has: session, folder, homes."""

    async def made() -> dict:
        folder = tmp_path_factory.mktemp("at-home")
        (folder / "work").mkdir()

        def hook(word: str) -> dict[str, object]:
            command = {"type": "command", "command": f"echo {word} >> {folder / 'hooks.log'}"}
            return {"BeforeTool": [{"matcher": "list_directory", "hooks": [command]}]}

        with FakeGemini(settings={"hooks": hook("theirs")}) as fake:
            shutil.copytree(fake.home, folder / "own")
            before = fingerprint(fake.home)
            fake.call("list_directory", dir_path=".").call("mcp_clock_noon").say("Done")
            options = Options(cwd=folder / "work", model="gemini-2.5-flash", env=fake.env)
            chosen = {"hooks": hook("ours"), "mcpServers": servers_in(folder)}
            transport = with_settings(real_transport, **chosen)
            result = await ask("Look", options.changed(home=folder / "own"), via=transport)
            return {
                "folder": folder,
                "session": result.session_id,
                "statuses": {call.name: call.status for call in result.tools},
                "users": (before, fingerprint(fake.home)),
                "users chats": [*fake.home.glob(".gemini/tmp/*/chats/*")],
            }

    return lambda: once("at home", made)


async def test_a_home_of_its_own_is_all_a_run_sees(at_home):
    """An isolated home: its sessions lie there, the user's home is not touched."""
    run = await at_home()
    own = run["folder"] / "own"
    assert list((own / ".gemini/tmp").glob(f"*/chats/*{run['session'][:8]}*"))
    before, after = run["users"]
    assert after == before
    assert not run["users chats"]


async def test_hooks_of_a_run_join_those_of_the_user(at_home):
    """A hook that guards the user still runs when a caller adds one of their own."""
    log = (await at_home())["folder"] / "hooks.log"
    assert sorted(log.read_text().split()) == ["ours", "theirs"]


@pytest.mark.gemini_cli
@pytest.mark.parametrize("kind", [Cli, Acp])
def test_a_stale_google_login_does_not_outrank_a_key_that_the_caller_gave(
    kind, real_transport, fake_gemini, private_home, tmp_path
):
    """Settings and credentials as an old login leaves them; the request arrives with the key."""
    folder = private_home / ".gemini"
    folder.mkdir()
    chosen = {"security": {"auth": {"selectedType": "oauth-personal"}}}
    (folder / "settings.json").write_text(json.dumps(chosen))
    login = {"access_token": "old", "refresh_token": "old", "expiry_date": 1}
    (folder / "oauth_creds.json").write_text(json.dumps(login))
    fake_gemini.say("Hello.")
    env = {name: value for name, value in fake_gemini.env.items() if "HOME" not in name}
    options = Options(env=env, cwd=tmp_path, model="gemini-2.5-flash", timeout=30)
    result = sync.ask("Hi", options, via=kind(executable=real_transport.executable))
    assert result.text == "Hello."
    assert fake_gemini.requests[0].headers["x-goog-api-key"] == env["GEMINI_API_KEY"]
    assert json.loads((folder / "settings.json").read_text()) == chosen
