"""The user's own rules and the caller's: for every call, the stricter of both counts."""

import json
import tomllib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminorum import Acp, Cli, Options, Policy, Rule, ToolResult, ask
from geminorum import run as start
from geminorum.contracts.agent_adapter import AgentOptions, GeminiAdapter
from geminorum.contracts.response_provider import GeminiCliProvider
from geminorum.errors import ConfigError
from geminorum.policies import Rules
from geminorum.wire.policy.toml_reader import policy_problems, read_policy
from geminorum.wire.policy.toml_writer import policy_toml
from geminorum.wire.policy.user_rules import stricter, user_policy
from shared_run import Once

SHELL = "run_shell_command"
STRICTNESS = ("allow", "ask", "deny")


def rule(tool: str, decision: str, priority: int = 100, **more) -> dict:
    return {"toolName": tool, "decision": decision, "priority": priority, **more}


def toml(*rules: dict) -> str:
    import tomli_w

    return tomli_w.dumps({"rule": [*rules]})


# ---- as values

CALLS = [
    ("write_file", {"file_path": "a.md", "content": "x"}),
    ("write_file", {"file_path": "a.py", "content": "x"}),
    ("read_file", {"file_path": "a.md"}),
    (SHELL, {"command": "git status"}),
    (SHELL, {"command": "git push"}),
    ("mcp_db_drop", {}),
    ("mcp_docs_find", {"query": "x"}),
    ("grep_search", {"pattern": "x"}),
]
TOOLS = ["*", "write_file", "read_file", SHELL, "mcp_*", "mcp_db_*", "mcp_db_drop", "grep_search"]
CONDITIONS = [{}, {}, {"argsPattern": r'"file_path":"[^"]*\.md'}, {"modes": ["default"]}]
COMMANDS = [{}, {"commandPrefix": "git status"}, {"commandRegex": "git p"}, {"modes": ["yolo"]}]


@st.composite
def rules(draw) -> dict:
    tool = draw(st.sampled_from(TOOLS))
    condition = draw(st.sampled_from(COMMANDS if tool == SHELL else CONDITIONS))
    decision = draw(st.sampled_from(["allow", "ask_user", "deny"]))
    return rule(tool, decision, draw(st.integers(0, 999)), **condition)


def word(listed: list[dict], tool: str, arguments: dict) -> str | None:
    return word_of(read(listed), tool, arguments)


def read(listed: list[dict]) -> Rules:
    return Rules(read_policy(toml(*listed)).rule)


def word_of(rules: Rules, tool: str, arguments: dict) -> str | None:
    """What the first rule that fits says; None where none fits."""
    found = rules.verdict(tool, arguments)
    return None if found.because.startswith("no rule") else found.decision


@settings(max_examples=150)
@given(st.lists(rules(), max_size=6), st.lists(rules(), max_size=6))
def test_the_stricter_of_two_words_counts_for_every_call(theirs, ours):
    users = user_policy([toml(*theirs)], {}).rules
    both = stricter(users, ours)
    assert policy_problems(toml(*both)) == []
    of_them, of_us, of_both = map(read, (theirs, ours, both))
    for tool, arguments in CALLS:
        words = [word_of(of_them, tool, arguments), word_of(of_us, tool, arguments)]
        said = [one for one in words if one is not None]
        expected = max(said, key=STRICTNESS.index) if said else None
        assert word_of(of_both, tool, arguments) == expected, (tool, arguments)


@pytest.mark.parametrize(
    ("allowed", "denied", "call"),
    [
        ("write*", "write_file", "write_file"),
        # Of a server `a_b`, whose tools are none of those of the server `a`.
        ("mcp_a_*", "mcp_*", "mcp_a_b_tool"),
    ],
)
def test_a_name_that_the_cli_does_not_take_for_this_tool_allows_nothing(allowed, denied, call):
    theirs = [rule(allowed, "allow", 900), rule(denied, "deny", 100)]
    both = stricter(user_policy([toml(*theirs)], {}).rules, [rule(call, "allow", 980)])
    # The names, and not our verdict: the CLI alone knows the server of a tool.
    assert next(one["decision"] for one in both if one["toolName"] == call) == "deny"


def test_what_settings_say_counts_as_well():
    given = {
        "tools": {"exclude": ["write_file"], "confirmationRequired": ["web_fetch"]},
        "mcp": {"excluded": ["db"]},
    }
    combined = tomllib.loads(
        policy_toml(Options(policy=Policy("allow", "allow", "allow")), users=user_policy([], given))
    )["rule"]
    assert word(combined, "write_file", {}) == "deny"
    assert word(combined, "web_fetch", {}) == "ask"
    assert word(combined, "mcp_db_drop", {}) == "deny"
    assert word(combined, "replace", {}) == "allow"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"core": ["read_file", f"{SHELL}(git status)"]}, ("deny", "allow", "deny", "allow")),
        ({"allowed": [f"{SHELL}(git status)"]}, (None, None, "deny", "allow")),
        ({"core": []}, ("deny", "deny", "deny", "deny")),
        ({"allowed": ["write_file"]}, (None, None, None, None)),
        ({"exclude": "write_file", "core": "x"}, (None, None, None, None)),
    ],
)
def test_lists_in_settings_are_rules_as_the_cli_makes_them(given, expected):
    found = [*user_policy([], {"tools": given}).rules]
    calls = [CALLS[0], CALLS[2], CALLS[4], CALLS[3]]
    assert tuple(word(found, *call) for call in calls) == expected


def test_an_agents_name_means_the_calls_of_it():
    users = user_policy([toml(rule("codebase_investigator", "allow"))], {})
    both = stricter(users.rules, [rule("invoke_agent", "deny")])
    assert both[0]["toolName"] == "codebase_investigator"
    assert both[0]["decision"] == "deny"


def test_two_conditions_that_the_cli_could_not_take_are_refused():
    long = "x" * 1500
    with pytest.raises(ValueError, match="cannot be given"):
        stricter(
            [rule("write_file", "deny", argsPattern=long)],
            [rule("write_file", "allow", argsPattern=long)],
        )


# ---- on the real CLI

WRITE = ("write_file", {"file_path": "a.txt", "content": "hi"})
EDIT = (
    "replace",
    {"file_path": "c.txt", "instruction": "Make it.", "old_string": "", "new_string": "hi"},
)


@pytest.fixture
def users(fake_gemini):
    """Gives the user policies and settings of their own."""

    def given(*rules: dict, place: str = ".gemini/policies/mine.toml", **settings) -> None:
        file = fake_gemini.home / place
        file.parent.mkdir(parents=True, exist_ok=True)
        if rules:
            file.write_text(toml(*rules))
        own = fake_gemini.home / ".gemini/settings.json"
        known = json.loads(own.read_text()) if own.exists() else {}
        own.write_text(json.dumps({**known, **settings}))

    return given


@pytest.fixture
def tried(fake_gemini, real_transport, tmp_path):
    """Has the model call tools; the names of those that ran."""
    folder = tmp_path / "work"
    folder.mkdir()

    async def names(*calls, transport=None, **options) -> list[str]:
        fake_gemini.calls(*calls).say("Done.")
        given = {"env": fake_gemini.env, "cwd": folder, "model": "gemini-2.5-flash"}
        via = replace(transport or Cli(), executable=real_transport.executable)
        async with start("Go", Options(**given, **options), via=via) as live:
            results = [event async for event in live if isinstance(event, ToolResult)]
        assert live.result.status == "success", live.result.errors
        return [str(result.name) for result in results if result.status == "success"]

    names.folder = folder
    return names


MINE = (
    rule("write_file", "deny", 100),
    rule("glob", "ask_user", 600),
    rule("list_directory", "allow", 999),
    rule("read_file", "allow", 999),
    rule(SHELL, "allow", 990, commandPrefix="git status"),
    rule(SHELL, "deny", 980),
    # Of these two, an administrator says the opposite.
    rule("replace", "allow", 990),
    rule("grep_search", "deny", 990),
)
ADMINISTRATORS = (rule("replace", "deny"), rule("grep_search", "allow"))
ATTEMPTS = (
    WRITE,
    ("glob", {"pattern": "*"}),
    ("list_directory", {"dir_path": "."}),
    ("read_file", {"file_path": "b.txt"}),
    (SHELL, {"command": "git status"}),
    (SHELL, {"command": "id"}),
)
BY_ADMINISTRATOR = (EDIT, ("grep_search", {"pattern": "readable"}))
OURS = Options(
    policy=Policy(
        file_write="allow",
        shell_execute="allow",
        rules=(
            Rule("glob", "allow"),
            Rule("list_directory", "deny"),
            Rule("read_file", "ask"),
            Rule("grep_search", "deny"),
        ),
    )
)


@pytest.fixture(scope="module")
def once() -> Once:
    return Once()


@pytest.fixture
def judged(tried, users, tmp_path, once):
    """One run of each transport in which user, caller and administrator have their say: the tools
    that ran, and the files that were made."""

    async def made(transport: type[Cli | Acp]) -> tuple[list[str], set[str]]:
        users(*MINE)
        (tried.folder / "b.txt").write_text("readable")
        (file := tmp_path / "admin.toml").write_text(toml(*ADMINISTRATORS))
        # The CLI names such a file by a flag, too, beside the machine's own folder.
        via = transport(extra_args=(f"--admin-policy={file}",))
        ran = await tried(*ATTEMPTS, *BY_ADMINISTRATOR, transport=via, policy=OURS.policy)
        return ran, {path.name for path in tried.folder.iterdir()}

    return lambda transport: once(transport, lambda: made(transport))


@pytest.mark.gemini_cli
class TestTheRealCli:
    """User deny + our allow = deny; user ask + our allow = ask; user allow + our deny = deny; user
    allow + our ask = ask; and where both allow it, it runs."""

    @pytest.mark.parametrize("transport", [Cli, Acp])
    async def test_the_stricter_word_counts(self, judged, transport):
        ran, files = await judged(transport)
        tools = {tool for tool, _ in ATTEMPTS}
        assert [one for one in ran if one in tools] == [SHELL]
        assert "a.txt" not in files

    @pytest.mark.parametrize("transport", [Cli, Acp])
    async def test_an_administrators_rule_stands_above_both(self, judged, transport):
        ran, files = await judged(transport)
        assert [one for one in ran if one in ("replace", "grep_search")] == ["grep_search"]
        assert "c.txt" not in files

    @pytest.mark.parametrize(
        ("transport", "options"),
        [(Cli(), {"approval": "yolo"}), (Acp(), {"approval": "auto_edit"})],
        ids=["yolo", "acp-edit"],
    )
    async def test_no_mode_goes_over_the_users_word(self, tried, users, transport, options):
        """Nor does a list: below, in the contracts."""
        users(rule("write_file", "ask_user", 1), rule("glob", "deny", 1))
        assert await tried(WRITE, ATTEMPTS[1], transport=transport, **options) == []
        assert not (tried.folder / "a.txt").exists()

    async def test_nor_over_the_settings(self, tried, users, fake_gemini, monkeypatch):
        """A tool that is excluded, one that needs a yes, and one that a file elsewhere denies."""
        monkeypatch.setenv("HOME", str(fake_gemini.home))
        users(rule("glob", "deny"), place="elsewhere.toml")
        listed = {"exclude": ["write_file"], "confirmationRequired": ["replace"]}
        users(tools=listed, policyPaths=["~/elsewhere.toml"])
        policy = Policy(file_write="allow")
        assert await tried(WRITE, EDIT, ATTEMPTS[1], policy=policy) == []
        assert not [*tried.folder.glob("*.txt")]

    async def test_the_contracts_do_not_go_over_it_either(
        self, tried, users, fake_gemini, real_transport
    ):
        """S0-22, S0-24, S4-12: a user's deny rule for writing also holds in the contracts, whatever
        its priority."""
        users(rule("write_file", "deny", 100), rule("replace", "ask_user", 1))
        base = Options(env=fake_gemini.env, cwd=tried.folder, model="gemini-2.5-flash")
        transport, writers = Cli(executable=real_transport.executable), ["write_file", "replace"]
        wish = {"permissions": {"fileWrite": "allow"}, "allowedTools": writers}
        fake_gemini.calls(WRITE, EDIT).say("Done.")
        adapter = GeminiAdapter(via=transport, base=base)
        async for _ in adapter.run("Go", AgentOptions.from_dict(wish)):
            pass
        fake_gemini.calls(WRITE, EDIT).say("Done.")
        provider = GeminiCliProvider({"allowed_tools": writers}, via=transport, base=base)
        provider.generate("Go", {"project_root": str(tried.folder)})
        assert len(fake_gemini.requests) == 4
        assert not [*tried.folder.glob("*.txt")]

    @pytest.mark.parametrize("kind", ["cli", "acp"])
    async def test_a_function_that_the_user_denies_is_refused_before_the_start(
        self, fake_gemini, stand_in, stand_in_acp, tmp_path, users, kind
    ):
        """What comes before a start is the same for every CLI."""

        def weather(city: str) -> str:
            """The weather in a city."""
            return "sunny"

        users(rule("mcp_*", "deny"), rule("read_file", "allow"))
        options = Options(env=fake_gemini.env, cwd=tmp_path)
        via = stand_in() if kind == "cli" else stand_in_acp("well_behaved")
        with pytest.raises(ConfigError, match="denies weather"):
            await ask("Go", options, via=replace(via, tools=[weather]))
        with pytest.raises(ConfigError, match="denies"):
            await ask("Go", options.changed(output_schema=list[int]), via=via)
        assert fake_gemini.requests == []
