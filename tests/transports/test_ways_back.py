"""A command that was allowed looks for ways back into this process, and finds none to use."""

import json
import shlex
import sys
from itertools import count
from types import SimpleNamespace

import pytest
import pytest_asyncio

from geminorum import (
    Acp,
    Allow,
    Cli,
    Deny,
    PermissionDecision,
    PermissionRequest,
    Policy,
    Rule,
    ToolResult,
    ToolUse,
    run,
)
from geminorum.testing import FakeGemini
from geminorum.transports.callbacks import loopback
from shared_acp import on_shared, private_options

pytestmark = pytest.mark.gemini_cli

SHELL = "run_shell_command"
TOKENS = [f"known-token-{number}" for number in range(3)]

# Makes each of the calls at every server of this machine, with every token that there may be, and
# prints a line of answers for each.
THIEF = f"""
import http.client, json, sys
lines = [line.split() for line in open("/proc/net/tcp")][1:]
listening = [line[1] for line in lines if line[3] == "0A"]
ports = [int(place[9:], 16) for place in listening if place.startswith("0100007F")]
for name, arguments in json.loads(sys.argv[1]):
    params, answers = {{"name": name, "arguments": arguments}}, []
    call = json.dumps({{"id": 1, "method": "tools/call", "params": params}})
    for port in ports:
        for token in {TOKENS}:
            try:
                server = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                server.request("POST", "/mcp", call, {{"Authorization": f"Bearer {{token}}"}})
                answer = server.getresponse()
                answers += [answer.read().decode()] if answer.status == 200 else []
            except Exception as error:
                pass
    print(json.dumps(answers))
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


GOOD, BAD = "good " * 200, "bad " * 200


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[Cli, Acp], ids=["cli", "acp"])
async def attacked(request, real_transport, tmp_path_factory) -> SimpleNamespace:
    """One run in which functions are called as they should be, and then behind everybody's back."""
    folder = tmp_path_factory.mktemp("attacked")
    (workspace := folder / "workspace").mkdir()
    (search := folder / "search.py").write_text(SEARCH)
    (thief := folder / "thief.py").write_text(THIEF)
    ran, kept, asked = [], [], []

    def give(word: str) -> str:
        ran.append(("give", word))
        return word

    def pay__back(amount: int) -> None:
        ran.append(("pay", amount))

    def burn() -> None:
        ran.append(("burn",))

    def keep(text: str) -> str:
        kept.append(text)
        return "kept"

    def decide(request: PermissionRequest) -> Allow | Deny:
        asked.append((request.name, request.input))
        is_bad = request.name == "keep" and not request.input["text"].startswith("good")
        return Deny("not that") if request.name == "pay__back" or is_bad else Allow()

    # Tokens that a thief knows, however well they are hidden.
    numbers = count()
    with FakeGemini() as fake, pytest.MonkeyPatch.context() as patch:
        patch.setattr(loopback.secrets, "token_urlsafe", lambda _: TOKENS[next(numbers)])
        fake.call("mcp_geminorum_pay__back", amount=5)
        fake.call("mcp_geminorum_give", word="a")
        fake.calls(*[("mcp_geminorum_keep", {"text": text}) for text in (GOOD, BAD)])
        # What is refused, what was allowed once, what was allowed otherwise, what is denied.
        thefts = [("pay__back", {"amount": 5}), ("give", {"word": "a"}), ("give", {"word": "b"})]
        thefts.append(("burn", {}))
        commands = [[str(thief), json.dumps(thefts)], [str(search)]]
        looks = [(SHELL, {"command": shlex.join([sys.executable, "-S", *one])}) for one in commands]
        fake.calls(*looks).say("Done.")
        how = {"tools": [give, pay__back, burn, keep], "decide": decide}
        transport = request.param(executable=real_transport.executable, **how)
        policy = Policy(rules=(Rule("mcp_geminorum_burn", "deny"),))
        options = private_options(fake, workspace, policy=policy, timeout=60)
        async with run("Go", options, via=transport) as live:
            events = [event async for event in live]
        found = {"ran": ran, "kept": kept, "asked": asked, "events": events}
        return SimpleNamespace(**found, requests=fake.requests)


@on_shared
async def test_an_allowed_command_cannot_call_what_decide_or_the_policy_refuses(attacked):
    results = [event for event in attacked.events if isinstance(event, ToolResult)]
    assert attacked.ran == [("give", "a")]
    *_, stolen, found = [str(one.output) for one in results]
    pay_told, give_told, other_told, burn_told = map(str, map(json.loads, stolen.splitlines()))
    for told in (pay_told, give_told, other_told):
        assert "nobody has allowed this call" in told
    assert "no tool" in burn_told
    # The token for functions lies nowhere; who asks questions by the other one is only asked.
    assert TOKENS[0] not in found
    # docs/permissions.md says so: the environment of the CLI is open to programs of the same user.
    assert ("own key False" in found, "key of the CLI True" in found) == (True, True)


@on_shared
async def test_whoever_decides_is_asked_about_functions_too(attacked):
    """S0-29, S0-30: `decide` sees the function under the caller's name, and the model receives the
    answer."""
    others = [one for one in attacked.asked if one[0] in ("give", "pay__back")]
    assert others == [("pay__back", {"amount": 5}), ("give", {"word": "a"})]
    events = [one for one in attacked.events if getattr(one, "name", "") in ("give", "pay__back")]
    decisions = {one.name: one.decision for one in events if isinstance(one, PermissionDecision)}
    assert decisions == {"give": "allow", "pay__back": "deny"}
    results = {one.name: one for one in events if isinstance(one, ToolResult)}
    assert (results["give"].status, results["give"].output) == ("success", "a")
    assert results["pay__back"].status == "denied"
    answered = [one.name for request in attacked.requests[1:3] for one in request.tool_results]
    assert answered == ["mcp_geminorum_pay__back", "mcp_geminorum_give"]


@on_shared
async def test_whoever_decides_sees_the_arguments_of_a_function_however_long(attacked):
    """ACP leaves out what is longer than 500 characters: then the call itself is asked about."""
    assert attacked.kept == [GOOD]
    asked = [one for one in attacked.asked if one[0] == "keep"]
    assert sorted(asked, key=str) == [("keep", {"text": BAD}), ("keep", {"text": GOOD})]
    events = [event for event in attacked.events if getattr(event, "name", "") == "keep"]
    results = [event for event in events if isinstance(event, ToolResult)]
    assert sorted(result.status for result in results) == ["denied", "success"]
    decisions = [event for event in events if isinstance(event, PermissionDecision)]
    assert sorted(one.decision for one in decisions) == ["allow", "deny"]
    uses = [event for event in events if isinstance(event, ToolUse)]
    assert {use.id for use in uses} == {result.id for result in results}
    assert len(uses) == 2
    assert "not that" in str(attacked.requests[3].tool_results)
