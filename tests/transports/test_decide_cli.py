"""Somebody decides what the agent of the real CLI may do; whatever goes wrong is a no."""

import asyncio
import json
import os
import re
import subprocess
import tomllib
from dataclasses import replace

import pytest

from geminorum import (
    Allow,
    AllowAlways,
    Cli,
    Deny,
    Done,
    Options,
    PermissionDecision,
    PermissionRequest,
    Policy,
    Rule,
    ToolResult,
    ToolUse,
    ask,
    connect,
    run,
)
from geminorum.decisions import Decisions
from geminorum.errors import ConfigError, InvalidOptions, Unsupported
from geminorum.events import Event
from geminorum.transports.callbacks.loopback import Loopback
from geminorum.transports.callbacks.permission_hook import PermissionHook
from geminorum.wire.callbacks.hook import (
    hook_answer,
    hook_command,
    hook_script,
    hook_settings,
    matcher,
)
from geminorum.wire.policy.toml_writer import asked_tools, policy_toml, unasked_tools

MODEL = "gemini-2.5-flash"
REWRITE = """
for file in $(find $GEMINI_CLI_HOME -type f -not -name key); do
  echo "trap - EXIT; printf %s '{\\"decision\\":\\"allow\\"}'; exit 0" > $file
done
touch first
"""
TOUCH = ("run_shell_command", {"command": "touch made"})
WRITE = ("write_file", {"file_path": "a.txt", "content": "Grüße 🙂"})
READ = ("read_file", {"file_path": "b.txt"})


def _names(named: str | list[str]) -> list[str]:
    return [named] if isinstance(named, str) else named


def yes(request: PermissionRequest) -> Allow:
    return Allow()


@pytest.fixture
def options(fake_gemini, tmp_path) -> Options:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "b.txt").write_text("known")
    return Options(env=fake_gemini.env, cwd=workspace, model=MODEL, timeout=60)


@pytest.mark.gemini_cli
class TestTheRealCli:
    @pytest.fixture
    def attempt(self, fake_gemini, options, real_transport):
        """Has the model call tools at once; the events that came of it."""

        async def call(decide, *calls, transport: dict | None = None, **chosen) -> list[Event]:
            fake_gemini.calls(*calls).say("Done.")
            via = replace(real_transport, decide=decide, **(transport or {}))
            async with run("Go", options.changed(**chosen), via=via) as live:
                events = [event async for event in live]
            call.result = live.result
            return events

        call.made = lambda: {entry.name for entry in options.cwd.iterdir()} - {"b.txt"}
        return call

    async def test_a_refused_command_does_not_run_and_the_turn_goes_on(self, attempt, fake_gemini):
        """S0-29, S0-30: request and decision are in the stream, and the run continues without the
        command. A decision that fails is a no, too, and one that comes too late; nobody is asked
        about what may happen anyway.
        """
        asked, other = [], (TOUCH[0], {"command": "touch other"})
        slow = (TOUCH[0], {"command": "touch slow"})

        async def decide(request: PermissionRequest) -> Allow | Deny:
            asked.append((request.name, request.input))
            if asked[-1] == other:
                raise OSError("the phone is dead")
            if asked[-1] == slow:
                await asyncio.Event().wait()
            return Deny("not on a Monday")

        events = await attempt(decide, READ, TOUCH, other, slow, transport={"decide_timeout": 4})
        assert attempt.made() == set()
        assert sorted(asked, key=str) == [TOUCH, other, slow]
        told, reasons = {}, ("not on a Monday", "the phone is dead", "nobody answered in 4 s")
        for (name, given), reason in zip((TOUCH, other, slow), reasons, strict=True):
            (use,) = [one for one in events if isinstance(one, ToolUse) and one.input == given]
            kinds = (PermissionRequest, PermissionDecision, ToolResult)
            about = [one for one in events if isinstance(one, kinds) and one.id == use.id]
            request, decision, result = about
            assert (request.name, request.input, decision.decision) == (name, given, "deny")
            assert (result.status, reason in result.output) == ("denied", True)
            told[use.id] = reason
        (read,) = [one for one in events if isinstance(one, ToolResult) and one.id not in told]
        assert (read.name, read.status) == ("read_file", "success")
        responses = str([one.response for one in fake_gemini.requests[1].tool_results])
        assert [reason for reason in told.values() if reason not in responses] == []
        assert (attempt.result.status, attempt.result.text) == ("success", "Done.")

    async def test_what_is_allowed_runs_without_another_question(self, attempt, tmp_path):
        """A redirection, a command that looks dangerous, a file: each would be asked about again by
        a CLI that has nobody to ask. The user's own hooks still run."""
        log, shell = tmp_path / "log", "run_shell_command"
        theirs = {"type": "command", "command": f"cat >> {log}; echo '{{}}'"}
        hooks = {"BeforeTool": [{"matcher": "write_file", "hooks": [theirs]}]}
        calls = [
            (shell, {"command": "echo hey > made && rm -rf nothing"}),
            (shell, {"command": "git init -q repo; cd /"}),
            WRITE,
        ]
        events = await attempt(yes, *calls, transport={"settings": {"hooks": hooks}})
        results = [event.status for event in events if isinstance(event, ToolResult)]
        assert results == ["success"] * 3
        assert attempt.made() == {"made", "repo", "a.txt"}
        assert json.loads(log.read_text())["tool_name"] == "write_file"

    async def test_a_rule_for_everything_asks_about_everything_but_what_is_denied(self, attempt):
        """S0-23: a call that the policy denies is refused without calling `decide`."""
        asked = []

        def decide(request: PermissionRequest) -> bool:
            asked.append(request.name)
            return request.name != "write_file"

        fetch = ("web_fetch", {"prompt": "What is at http://localhost:1/ ?"})
        policy = Policy("allow", "allow", "deny", rules=(Rule("*", "ask"),))
        shell = ("run_shell_command", {"command": "echo hey > made"})
        events = await attempt(decide, READ, shell, WRITE, fetch, policy=policy)
        results = {one.name: one.status for one in events if isinstance(one, ToolResult)}
        refused = {"write_file": "denied", "web_fetch": "denied"}
        assert results == {"read_file": "success", "run_shell_command": "success", **refused}
        assert sorted(asked) == ["read_file", "run_shell_command", "write_file"]
        assert attempt.made() == {"made"}

    async def test_always_means_no_second_question_in_this_conversation(
        self, fake_gemini, options, real_transport
    ):
        """A mode asks about what it does not allow, a long silence is excused while somebody
        thinks, and a chat has a `decide` of its own before that of its transport."""
        asked = []

        async def decide(request: PermissionRequest) -> AllowAlways:
            asked.append((request.name, request.input))
            await asyncio.sleep(2.5)
            return AllowAlways()

        for name in ("one", "two"):
            fake_gemini.calls(WRITE, (TOUCH[0], {"command": f"touch {name}"})).say("Done.")
        editing = options.changed(approval="auto_edit")
        via = replace(real_transport, decide=lambda request: False, stall_timeout=1.5)
        async with connect(editing, via=via, decide=decide) as chat:
            await chat.ask("First")
            await chat.ask("Second")
        assert asked == [(TOUCH[0], {"command": "touch one"})]
        assert {file.name for file in options.cwd.iterdir()} == {"b.txt", "a.txt", "one", "two"}

    async def test_cancel_while_somebody_thinks_and_the_tool_never_runs(
        self, fake_gemini, options, real_transport
    ):
        """S0-28: cancelling while `decide` is pending ends the run, and the tool does not run."""
        thinking, tasks = asyncio.Event(), asyncio.all_tasks()

        async def decide(request: PermissionRequest) -> Allow:
            thinking.set()
            await asyncio.Event().wait()
            return Allow()

        fake_gemini.call(*TOUCH[:1], **TOUCH[1]).say("Never said.")
        async with run("Go", options, via=replace(real_transport, decide=decide)) as live:
            waiting = asyncio.create_task(thinking.wait())
            async for event in live:
                if isinstance(event, ToolUse):
                    break
            async with asyncio.timeout(20):
                await waiting
            await live.cancel()
            rest = [event async for event in live]
        assert isinstance(rest[-1], Done)
        assert rest[-1].status == "interrupted"
        assert [one.decision for one in rest if isinstance(one, PermissionDecision)] == ["deny"]
        assert not (options.cwd / "made").exists()
        assert len(fake_gemini.requests) == 1
        assert asyncio.all_tasks() == tasks

    async def test_a_command_that_was_allowed_rewrites_no_later_question(
        self, fake_gemini, options, real_transport, tmp_path
    ):
        """It writes a yes over every file that steers the run."""
        asked, script = [], tmp_path / "rewrite.sh"
        script.write_text(REWRITE)

        def decide(request: PermissionRequest) -> Allow | Deny:
            asked.append(request.name)
            return Deny("no") if len(asked) > 1 else Allow()

        fake_gemini.call("run_shell_command", command=f"bash {script}")
        fake_gemini.call("run_shell_command", command="rm $GEMINI_CLI_HOME/key; touch second")
        fake_gemini.call("run_shell_command", command="touch third").say("Done.")
        async with run("Go", options, via=replace(real_transport, decide=decide)) as live:
            results = [event async for event in live if isinstance(event, ToolResult)]
        assert [result.status for result in results] == ["success", "denied", "denied"]
        assert asked == ["run_shell_command"] * 3
        assert {file.name for file in options.cwd.iterdir()} == {"b.txt", "first"}

    async def test_neither_a_shell_that_talks_nor_hooks_that_are_off_change_a_decision(
        self, attempt, options, tmp_path
    ):
        """Hooks that the user switched off stay off, but ours."""
        noise, log = tmp_path / "noise.sh", tmp_path / "log"
        noise.write_text("echo good morning")
        theirs = {"type": "command", "command": f"touch {log}"}
        hooks = {"BeforeTool": [{"matcher": "*", "hooks": [theirs]}]}
        transport = {"settings": {"hooks": hooks, "hooksConfig": {"enabled": False}}}
        env = {**options.env, "BASH_ENV": str(noise)}
        events = await attempt(lambda request: False, TOUCH, transport=transport, env=env)
        assert [event.status for event in events if isinstance(event, ToolResult)] == ["denied"]
        assert attempt.made() == set()
        assert not log.exists()


class TestTheScript:
    """The hook as bash runs it, without the CLI."""

    async def asked(self, command: str, body: bytes = b"{}", **env: str) -> dict:
        said, code = await self.run(command, body, **env)
        answer = json.loads(said)
        # Once more by its exit code, for a reader who cannot make out the words.
        assert code == {"allow": 0, "deny": 2}[answer["decision"]]
        return answer

    async def run(self, command: str, body: bytes = b"{}", **env: str) -> tuple[bytes, int | None]:
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **env},
        )
        said, _ = await process.communicate(body)
        return said, process.returncode

    @pytest.fixture
    def script(self, tmp_path):
        """The command that asks a server."""

        def write(server: Loopback, token: str | None = None) -> str:
            key = tmp_path / "a folder; it's odd" / "key"
            key.parent.mkdir()
            key.write_text(f"{token or server.token_for('/decide')}\n")
            return hook_command(hook_script(server.port, str(key)))

        return write

    async def test_carries_the_question_whole_and_the_answer_back(self, script):
        heard = []

        async def decide(body: bytes) -> bytes:
            heard.append(body)
            return b'{"decision":"allow"}\n'

        question = json.dumps({"text": "größe 🙂 %s $HOME `id` \\n" * 20_000}, ensure_ascii=False)
        async with Loopback({"/decide": decide}) as server:
            answer = await self.asked(script(server), question.encode())
        assert answer == {"decision": "allow"}
        assert heard == [question.encode()]

    @pytest.mark.parametrize("answer", [None, b"", b"yes\n", b"{", b"<html>\n{}\n"])
    async def test_takes_nothing_but_a_real_answer_for_a_yes(self, script, answer):
        async def decide(body: bytes) -> bytes | None:
            return answer

        async with Loopback({"/decide": decide}) as server:
            assert (await self.asked(script(server)))["decision"] == "deny"

    async def test_without_the_right_token_it_is_a_no(self, script):
        async def decide(body: bytes) -> bytes:
            return b'{"decision":"allow"}\n'

        async with Loopback({"/decide": decide}) as server:
            assert (await self.asked(script(server, "wrong")))["decision"] == "deny"

    @pytest.mark.parametrize("mode", [{}, {"POSIXLY_CORRECT": "1"}, {"SHELLOPTS": "errexit"}])
    async def test_without_its_key_it_is_a_no_in_every_mode_of_bash(self, tmp_path, mode):
        command = hook_command(hook_script(1, str(tmp_path / "gone")))
        assert (await self.asked(command, **mode))["decision"] == "deny"

    @pytest.mark.parametrize(
        "script", ["if then fi (", "kill -TERM $$; sleep 1", "exit 0", "((1/0))", "exec 3<gone"]
    )
    async def test_whatever_befalls_it_is_a_no(self, script):
        said, code = await self.run(hook_command(script))
        assert (json.loads(said)["decision"], code == 0) == ("deny", False)

    async def test_where_nobody_listens_it_is_a_no(self, tmp_path):
        key = tmp_path / "key"
        key.write_text("token\n")
        assert (await self.asked(hook_command(hook_script(1, str(key)))))["decision"] == "deny"

    async def test_no_variable_of_the_environment_gets_into_it(self, script):
        """The CLI puts variables in wherever it sees a `$` and a name."""

        async def decide(body: bytes) -> None: ...

        async with Loopback({"/decide": decide}) as server:
            assert not re.search(r"\$[\w{]", script(server))

    @pytest.mark.parametrize("denial", ["no", None])
    async def test_a_bash_that_talks_does_not_turn_a_no_into_a_yes(self, script, tmp_path, denial):
        """The CLI takes words that it cannot read for a yes, unless the exit code says no."""
        noise = tmp_path / "bashrc"
        noise.write_text("echo good morning")

        async def decide(body: bytes) -> bytes:
            return hook_answer(denial)

        async with Loopback({"/decide": decide}) as server:
            said, code = await self.run(script(server), BASH_ENV=str(noise))
        assert said.startswith(b"good morning")
        assert code == (2 if denial else 0)

    async def test_a_server_that_goes_away_in_the_middle_is_a_no(self, script):
        began = asyncio.Event()

        async def decide(body: bytes) -> bytes:
            began.set()
            await asyncio.Event().wait()
            return b""

        async with Loopback({"/decide": decide}) as server:
            question = asyncio.create_task(self.asked(script(server)))
            await began.wait()
        assert (await question)["decision"] == "deny"


class TestWhoIsAsked:
    @pytest.mark.parametrize(
        ("options", "asked", "not_asked"),
        [
            (Options(), ["write_file", "run_shell_command", "mcp_x_y"], ["read_file", "glob"]),
            (Options(), ["activate_skill", "web_fetch"], ["google_web_search", "mcp_geminorum_f"]),
            (Options(approval="auto_edit"), ["run_shell_command"], ["write_file", "web_fetch"]),
            (Options(policy=Policy()), ["write_file", "google_web_search"], ["read_file"]),
            (Options(policy=Policy("allow", "deny")), ["web_fetch"], ["write_file", TOUCH[0]]),
            (Options(disallowed_tools=["write_file"]), ["replace"], ["write_file"]),
            (
                Options(policy=Policy(rules=(Rule("grep_search", "ask"),))),
                ["grep_search", "search_file_content"],
                ["glob"],
            ),
            (
                Options(policy=Policy(rules=(Rule("mcp_x_*", "allow"),))),
                ["mcp_y_z"],
                ["mcp_x_z"],
            ),
            (
                Options(allowed_tools=["read_file", TOUCH[0]], policy=Policy("ask", "ask")),
                [],
                ["write_file", TOUCH[0]],
            ),
            (Options(policy=Policy(rules=(Rule("cli_help", "ask"),))), [], ["cli_help"]),
            (Options(approval="plan", policy=Policy()), [], ["write_file", TOUCH[0]]),
        ],
    )
    def test_by_options(self, options, asked, not_asked):
        ours = ("mcp_geminorum_f",)
        pattern = re.compile(matcher(asked_tools(options), unasked_tools(options), (), ours))
        assert [name for name in asked if not pattern.match(name)] == []
        assert [name for name in not_asked if pattern.match(name)] == []

    def test_whoever_is_asked_is_all_that_stands_before_the_tool(self):
        options = Options(policy=Policy(shell_execute="ask", file_write="deny"))
        rules = tomllib.loads(policy_toml(options, asked=asked_tools(options)))["rule"]
        decisions = {
            tool: rule["decision"]
            for rule in sorted(rules, key=lambda rule: rule["priority"])
            for tool in _names(rule["toolName"])
        }
        assert decisions["run_shell_command"] == "allow"
        assert decisions["write_file"] == "deny"
        assert "*" not in decisions

    def test_without_somebody_ask_stays_a_no(self):
        options = Options(policy=Policy())
        rules = tomllib.loads(policy_toml(options))["rule"]
        assert "allow" not in {rule["decision"] for rule in rules}

    async def test_a_decide_that_is_never_asked_is_warned_of(self, stand_in):
        with pytest.warns(UserWarning, match="never called"):
            Cli(decide=yes).open(Options(approval="yolo"))

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"decide": "yes"}, "cannot be called"),
            ({"decide": yes, "decide_timeout": 0}, "greater than 0"),
            ({"answer_attempts": 0}, "1 or more"),
            ({"answer_attempts": "3"}, "1 or more"),
        ],
    )
    def test_a_transport_says_what_is_wrong_when_it_is_made(self, wrong, message):
        with pytest.raises(InvalidOptions, match=message):
            Cli(**wrong)


class TestWhereTheHookWouldNotRun:
    async def test_without_bash_nothing_starts(self, stand_in, tmp_path):
        with pytest.raises(Unsupported, match="bash"):
            await ask("Hi", Options(env={"PATH": str(tmp_path)}), via=stand_in(decide=yes))

    @pytest.mark.parametrize("where", ["folder", "system"])
    async def test_settings_above_ours_that_switch_hooks_off_are_refused(
        self, stand_in, tmp_path, where
    ):
        file = tmp_path / ".gemini" / "settings.json"
        file.parent.mkdir()
        file.write_text('{"hooksConfig": {"enabled": false}} // off')
        chosen = {"folder": {"trust_workspace": True, "cwd": tmp_path}}.get(where, {})
        env = {"GEMINI_CLI_SYSTEM_SETTINGS_PATH": str(file)} if where == "system" else {}
        with pytest.raises(Unsupported, match="switches the CLI's hooks off"):
            await ask("Hi", Options(env=env, **chosen), via=stand_in(decide=yes))

    async def test_a_tool_that_ran_unasked_ends_the_run(self, stand_in, tmp_path):
        """A CLI whose hooks are dead for a reason that nobody foresaw."""
        said = [
            {"type": "init", "session_id": "s", "model": "m"},
            {"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "1"},
            {"type": "tool_result", "tool_id": "1", "status": "success", "output": ""},
        ]
        options = Options(cwd=tmp_path, home=tmp_path)
        with pytest.raises(ConfigError, match="nobody was asked"):
            await ask("Hi", options, via=stand_in(*said, hang=True, decide=yes))


def test_our_hook_stands_behind_the_users_and_is_always_on():
    theirs = {
        "hooks": {"BeforeTool": [{"hooks": [1]}], "AfterTool": [2]},
        "hooksConfig": {"disabled": ["x"]},
    }
    settings = hook_settings(theirs, "ask", "^x$", "name")
    assert settings["hooksConfig"] == {"enabled": True}
    assert settings["hooks"]["BeforeTool"][0] == {"hooks": [1]}
    assert settings["hooks"]["AfterTool"] == [2]
    off = hook_settings({**theirs, "hooksConfig": {"enabled": False}}, "ask", "^x$", "name")
    assert len(off["hooks"]["BeforeTool"]) == 1
    assert off["hooks"]["AfterTool"] == []


class TestThePlaceInTheStream:
    """S0-29."""

    USE = ToolUse("run_shell_command", "1", {"command": "a"})
    TWIN = ToolUse("run_shell_command", "2", {"command": "b"})

    def asking(self) -> PermissionHook:
        return PermissionHook(Decisions(yes), "^run_shell_command$", lambda: None)

    async def decided(self, asking: PermissionHook, command: str) -> None:
        call = {"tool_name": "run_shell_command", "tool_input": {"command": command}}
        await asking.answer(json.dumps(call).encode())

    async def test_a_decision_stands_between_its_use_and_its_result(self):
        asking = self.asking()
        await self.decided(asking, "b")
        await self.decided(asking, "a")
        first, second = ToolResult("1", "run_shell_command"), ToolResult("2", "run_shell_command")
        events = asking.placed([self.USE, self.TWIN, first, second])
        assert [getattr(event, "id", None) for event in events] == [
            "1",
            "2",
            *["1"] * 3,
            *["2"] * 3,
        ]
        assert [event.decision for event in events if isinstance(event, PermissionDecision)] == [
            "allow",
            "allow",
        ]
        assert not asking.evaded

    async def test_a_decision_about_a_use_that_was_told_comes_at_once(self):
        asking = self.asking()
        assert asking.placed([self.USE]) == [self.USE]
        await self.decided(asking, "a")
        assert [event.id for event in asking.placed([])] == ["1", "1"]

    async def test_a_decision_about_a_subagent_waits_until_all_output_is_read(self):
        asking = self.asking()
        await self.decided(asking, "of a subagent")
        assert asking.placed([]) == []
        request, decision = asking.placed([], is_caught_up=True)
        assert (request.id, decision.id, decision.decision) == (*["subagent-1"] * 2, "allow")

    async def test_the_end_closes_every_request(self):
        asking = self.asking()
        await self.decided(asking, "of a subagent")
        request, decision, done = asking.placed([Done("success")])
        assert (request.id, decision.decision, done.status) == (decision.id, "allow", "success")

    @pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"tool_name": 3}'])
    async def test_a_question_that_makes_no_sense_is_refused(self, body):
        assert json.loads(await self.asking().answer(body))["decision"] == "deny"

    async def test_once_stopped_everything_is_refused(self):
        asking = self.asking()
        asking.stop()
        await self.decided(asking, "a")
        _use, _request, decision = asking.placed([self.USE])
        assert decision.decision == "deny"


def test_a_server_that_is_called_as_ours_is_asked_about():
    """Only the functions of this process are exempt, each by its name."""
    ours = ["mcp_geminorum_put"]
    pattern = re.compile(matcher(("mcp_*", "write_file"), (), (), ours))
    assert pattern.match("mcp_geminorum_x_delete")
    assert pattern.match("write_file")
    assert not pattern.match("mcp_geminorum_put")
    assert re.compile(matcher(("mcp_*",))).match("mcp_geminorum_delete")
