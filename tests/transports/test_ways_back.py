"""A command that was allowed looks for ways back into this process, and finds none to use."""

import json
import shlex
import sys
from dataclasses import replace
from itertools import count

import pytest

from geminorum import (
    Allow,
    Deny,
    Options,
    PermissionDecision,
    PermissionRequest,
    Policy,
    Rule,
    ToolResult,
    ToolUse,
    run,
)
from geminorum.transports.callbacks import loopback

pytestmark = pytest.mark.gemini_cli

MODEL = "gemini-2.5-flash"
SHELL = "run_shell_command"
TOKENS = [f"known-token-{number}" for number in range(3)]

# Calls a function at every server of this machine, with every token that there may be.
THIEF = f"""
import json, re, sys, urllib.request
name, arguments = sys.argv[1], json.loads(sys.argv[2])
call = {{"id": 1, "method": "tools/call", "params": {{"name": name, "arguments": arguments}}}}
lines = [line.split() for line in open("/proc/net/tcp")][1:]
listening = [line[1] for line in lines if line[3] == "0A"]
for port in [int(place[9:], 16) for place in listening if place.startswith("0100007F")]:
    for token in {TOKENS}:
        url, head = f"http://127.0.0.1:{{port}}/mcp", {{"Authorization": f"Bearer {{token}}"}}
        request = urllib.request.Request(url, json.dumps(call).encode(), head)
        try:
            print(urllib.request.urlopen(request, timeout=5).read().decode())
        except Exception as error:
            pass
"""

# Prints every token in the home of the run, and in what it can see of the processes above it.
SEARCH = """
import os, pathlib, re
home, pid = pathlib.Path(os.environ["GEMINI_CLI_HOME"]), os.getpid()
files = [file for file in home.rglob("*") if file.is_file()]
while pid > 1:
    files += [pathlib.Path(f"/proc/{pid}/environ"), pathlib.Path(f"/proc/{pid}/cmdline")]
    pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
texts = []
for file in files:
    try:
        texts.append(file.read_bytes())
    except OSError:
        pass
print(re.findall(b"known-token-.", b"".join(texts)))
print("own key", "GEMINI_API_KEY" in os.environ)
print("key of the CLI", b"GEMINI_API_KEY=" in b"".join(texts))
"""


@pytest.fixture
def options(fake_gemini, tmp_path) -> Options:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Options(env=fake_gemini.env, cwd=workspace, model=MODEL, timeout=60)


@pytest.fixture
def known_tokens(monkeypatch) -> None:
    """Tokens that a thief knows, however well they are hidden."""
    numbers = count()
    monkeypatch.setattr(loopback.secrets, "token_urlsafe", lambda _: TOKENS[next(numbers)])


@pytest.fixture
def steal(tmp_path):
    """A command that calls a function of this process behind everybody's back."""
    script = tmp_path / "thief.py"
    script.write_text(THIEF)

    def command(name: str, **arguments) -> tuple[str, dict]:
        words = [sys.executable, str(script), name, json.dumps(arguments)]
        return SHELL, {"command": shlex.join(words)}

    return command


@pytest.mark.usefixtures("known_tokens")
async def test_an_allowed_command_cannot_call_what_decide_or_the_policy_refuses(
    fake_gemini, options, any_transport, steal, tmp_path
):
    ran, search = [], tmp_path / "search.py"
    search.write_text(SEARCH)

    def give(word: str) -> str:
        ran.append(("give", word))
        return word

    def pay(amount: int) -> None:
        ran.append(("pay", amount))

    def burn() -> None:
        ran.append(("burn",))

    def decide(request: PermissionRequest) -> Allow | Deny:
        return Deny("not that") if request.name == "pay" else Allow()

    fake_gemini.call("mcp_geminorum_pay", amount=5)
    fake_gemini.call("mcp_geminorum_give", word="a")
    # What is refused, what was allowed once, what was allowed otherwise, what is denied.
    thefts = [steal("pay", amount=5), steal("give", word="a"), steal("give", word="b")]
    look = (SHELL, {"command": f"{sys.executable} {search}"})
    fake_gemini.calls(*thefts, steal("burn"), look).say("Done.")
    transport = replace(any_transport, tools=[give, pay, burn], decide=decide)
    policy = Policy(rules=(Rule("mcp_geminorum_burn", "deny"),))
    async with run("Go", options.changed(policy=policy), via=transport) as live:
        results = [event async for event in live if isinstance(event, ToolResult)]
    assert ran == [("give", "a")]
    *_, pay_told, give_told, other_told, burn_told, found = [str(one.output) for one in results]
    for told in (pay_told, give_told, other_told):
        assert "nobody has allowed this call" in told
    assert "no tool" in burn_told
    # The token for functions lies nowhere; who asks questions by the other one is only asked.
    assert TOKENS[0] not in found
    # docs/permissions.md says so: the environment of the CLI is open to programs of the same user.
    assert ("own key False" in found, "key of the CLI True" in found) == (True, True)


async def test_whoever_decides_sees_the_arguments_of_a_function_however_long(
    fake_gemini, options, any_transport
):
    """ACP leaves out what is longer than 500 characters: then the call itself is asked about."""
    ran, asked = [], []

    def keep(text: str) -> str:
        ran.append(text)
        return "kept"

    def decide(request: PermissionRequest) -> Allow | Deny:
        asked.append((request.name, request.input))
        return Allow() if request.input["text"].startswith("good") else Deny("not that")

    good, bad = "good " * 200, "bad " * 200
    fake_gemini.calls(*[("mcp_geminorum_keep", {"text": text}) for text in (good, bad)])
    fake_gemini.say("Done.")
    async with run("Go", options, via=replace(any_transport, tools=[keep], decide=decide)) as live:
        events = [event async for event in live]
    assert ran == [good]
    assert sorted(asked, key=str) == [("keep", {"text": bad}), ("keep", {"text": good})]
    results = [event for event in events if isinstance(event, ToolResult)]
    assert sorted(result.status for result in results) == ["denied", "success"]
    decisions = [event for event in events if isinstance(event, PermissionDecision)]
    assert sorted(one.decision for one in decisions) == ["allow", "deny"]
    uses = [event for event in events if isinstance(event, ToolUse)]
    assert {use.id for use in uses} == {result.id for result in results}
    assert len(uses) == 2
    assert "not that" in str(fake_gemini.requests[1].tool_results)


async def test_a_function_in_the_list_of_tools_is_asked_about_where_a_rule_says_so(
    fake_gemini, options, any_transport
):
    ran = []

    def pay(amount: int) -> None:
        ran.append(amount)

    def decide(request: PermissionRequest) -> Allow | Deny:
        return Allow() if request.input["amount"] < 10 else Deny("too much")

    fake_gemini.call("mcp_geminorum_pay", amount=5).call("mcp_geminorum_pay", amount=50)
    fake_gemini.say("Done.")
    policy = Policy(rules=(Rule("mcp_geminorum_pay", "ask"),))
    limited = options.changed(policy=policy, allowed_tools=["pay"])
    async with run("Go", limited, via=replace(any_transport, tools=[pay], decide=decide)) as live:
        results = [event async for event in live if isinstance(event, ToolResult)]
    assert [result.status for result in results] == ["success", "denied"]
    assert ran == [5]
