"""`geminorum policy`, and the verdicts behind it: what a policy would say, as the CLI says it."""

import json
import tomllib

import pytest

from command_home import A, SavedHome
from command_line import Terminal
from command_line import geminorum_command as command
from geminorum import Options, Policy, Rule, ToolResult, run
from geminorum.apps.command.exits import Exit
from geminorum.errors import ConfigError
from geminorum.policies import Rules, toml_of
from geminorum.wire.policy.shell_line import shell_line

GIT = Policy(
    file_write="allow",
    rules=(
        Rule("run_shell_command", "allow", "git status"),
        Rule("run_shell_command", "deny", "git push"),
    ),
)


def decision(rules: Rules, tool: str, **arguments: object) -> str:
    return rules.verdict(tool, arguments).decision


# ---- verdicts


@pytest.mark.parametrize(
    ("command_line", "expected"),
    [
        ("git status", "allow"),
        ("git status --short", "allow"),
        ("git status ; ", "ask"),
        ('git status "a b"', "allow"),
        ('git status "a;b"', "ask"),
        ("git status 'a|b'", "ask"),
        ("git statusx", "ask"),
        ("git status; id", "ask"),
        ("git status | cat", "ask"),
        ("git status && id", "ask"),
        ("git status\nid", "ask"),
        ("git status $(id)", "ask"),
        ("git status `id`", "ask"),
        ('git status "$(id)"', "ask"),
        ("FOO=1 git status", "ask"),
        ("git status > out.txt", "ask"),
        ("git status <(id)", "ask"),
        ("cat <<EOF\nx\nEOF", "ask"),
        ("git status 'open", "ask"),
        ("git status # git push", "allow"),
        ("for x in a; do git status; done", "ask"),
        ("if git status; then git push; fi", "deny"),
        ("git status && git push", "deny"),
        ("git status $(git push)", "deny"),
        ("bash -c 'git push'", "deny"),
        ("git push; git status", "deny"),
    ],
)
def test_every_command_in_a_line_is_judged_by_itself(command_line, expected):
    """S0-32: the capability and the rules for commands apply to each part of a command line."""
    assert decision(Rules.of(Options(policy=GIT)), "run_shell_command", command=command_line) == (
        expected
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (Options(policy=GIT, approval="auto_edit"), "ask"),
        (Options(allowed_tools=["run_shell_command(git status)"], approval="yolo"), "deny"),
        (Options(policy=Policy(shell_execute="allow")), "allow"),
        (Options(policy=Policy("deny", "allow")), "ask"),
        (Options(approval="yolo"), "allow"),
    ],
)
def test_only_a_shell_that_may_do_everything_may_redirect(options, expected):
    rules = Rules.of(options)
    assert decision(rules, "run_shell_command", command="git status > x") == expected


@pytest.mark.parametrize("word", ["a" * 1_000_000, "$(" * 65_000, "`" * 130_000, "'a' " * 30_000])
def test_a_long_command_is_judged_in_no_time(word):
    """The old reader took 22 s for a megabyte, and hours for a hundred."""
    rules = Rules.of(Options(policy=GIT))
    assert decision(rules, "run_shell_command", command=f"git log {word}") == "ask"


def test_what_no_rule_names_goes_by_the_habits_of_the_cli():
    plain, edit = Rules.of(Options()), Rules.of(Options(approval="auto_edit"))
    yolo = Rules.of(Options(approval="yolo"))
    for tool, levels in {
        "read_file": ("allow", "allow", "allow"),
        "write_file": ("ask", "allow", "allow"),
        "run_shell_command": ("ask", "ask", "allow"),
        "mcp_x_y": ("ask", "ask", "allow"),
        "exit_plan_mode": ("deny", "deny", "deny"),
    }.items():
        assert tuple(decision(rules, tool) for rules in (plain, edit, yolo)) == levels


def test_a_whitelist_leaves_nothing_else():
    rules = Rules.of(Options(allowed_tools=("read_file", "run_shell_command(git status)")))
    assert decision(rules, "read_file") == "allow"
    assert decision(rules, "glob") == "deny"
    assert decision(rules, "run_shell_command", command="git status") == "allow"
    assert decision(rules, "run_shell_command", command="git log") == "deny"


FILE = """
[[rule]]
toolName = "mcp_docs_*"
decision = "allow"
priority = 10
[[rule]]
mcpName = "db"
toolName = "*"
decision = "deny"
priority = 20
[[rule]]
toolName = "write_file"
argsPattern = '"file_path":"[^"]*\\.md"'
decision = "allow"
priority = 30
[[rule]]
toolName = "run_shell_command"
commandRegex = "npm (test|run)"
decision = "allow"
priority = 40
[[rule]]
toolName = ["web_fetch", "google_web_search"]
decision = "deny"
priority = 50
modes = ["yolo"]
"""


def test_a_file_of_the_cli_is_read_with_all_its_patterns(tmp_path):
    file = tmp_path / "p.toml"
    file.write_text(FILE)
    rules = Rules.read(file)
    assert len(rules) == 5
    assert decision(rules, "mcp_docs_find") == "allow"
    assert decision(rules, "mcp_other_find") == "ask"
    assert decision(rules, "mcp_db_drop") == "deny"
    assert decision(rules, "write_file", file_path="a.md", content="x") == "allow"
    assert decision(rules, "write_file", file_path="a.py", content='"a.md"') == "ask"
    assert decision(rules, "run_shell_command", command="npm test") == "allow"
    assert decision(rules, "run_shell_command", command="npm publish") == "ask"
    assert decision(rules, "google_web_search") == "allow"
    assert decision(Rules.read(file, "yolo"), "google_web_search") == "deny"


@pytest.mark.parametrize(
    "text",
    ["not toml [", '[[rule]]\ntoolName = "a"\n', "rule = 3", "\udcff"],
)
def test_a_file_that_the_cli_would_drop_is_refused(tmp_path, text):
    file = tmp_path / "p.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError) as caught:
        Rules.read(file)
    assert caught.value.hint


def test_a_line_that_is_not_understood_is_told_as_such():
    assert shell_line("") is None
    assert shell_line("(" * 5000) is None
    assert shell_line("`" + "$(" * 3000) is None
    line = shell_line("a 2>&1 | b && c &>d; e \\; f")
    assert line is not None
    assert line.commands == ("a", "b", "c", "e \\; f")
    assert line.redirects


CALLS = [
    ("write_file", {"file_path": "a.txt", "content": "x"}),
    ("run_shell_command", {"command": "git status"}),
    ("run_shell_command", {"command": "git status && id"}),
    ("run_shell_command", {"command": "git status $(id)"}),
    ("run_shell_command", {"command": "git statusx"}),
    ("run_shell_command", {"command": "git push"}),
    ("run_shell_command", {"command": "git status > out.txt"}),
    ("list_directory", {"dir_path": "."}),
    ("web_fetch", {"prompt": "https://example.org"}),
]


@pytest.mark.gemini_cli
async def test_the_real_cli_refuses_what_is_not_allowed_and_nothing_else(
    real_transport, fake_gemini, tmp_path
):
    """S0-32: the verdicts equal what the real CLI did with the same calls."""
    options = Options(
        policy=GIT, cwd=tmp_path, env=fake_gemini.env, home=fake_gemini.home, approval="default"
    )
    fake_gemini.calls(*CALLS).say("Done.")
    done: dict[str | None, ToolResult] = {}
    order: list[str | None] = []
    async with run("Go", options, via=real_transport) as live:
        async for event in live:
            if event.type == "tool_use":
                order.append(event.id)
            if isinstance(event, ToolResult):
                done[event.id] = event
    rules = Rules.of(options)
    ran = [done[name].status != "denied" for name in order]
    assert len(ran) == len(CALLS)
    assert ran == [rules.verdict(tool, arguments).decision == "allow" for tool, arguments in CALLS]


# ---- the command


@pytest.fixture
def saved(tmp_path) -> SavedHome:
    home = SavedHome(tmp_path / "home", tmp_path / "work")
    home.save(A, "Do it", "Done.", calls=tuple(CALLS[:6]))
    return home


def test_a_session_is_replayed_against_a_policy(saved):
    policy = "file_write=deny,shell_execute=allow"
    done = command("policy", "test", A, "--policy", policy, env=saved.env)
    assert done.returncode == 0, done.stderr
    head, *rows, end = done.stdout.splitlines()
    assert head.split()[:2] == ["would", "be"]
    assert [row.split()[0] for row in rows] == ["denied", *["allowed"] * 5]
    assert end == "5 allowed, 1 denied"


def test_a_replay_in_json_has_each_call(saved):
    done = command("policy", "test", A, "--json", "-p", "file_write=allow", env=saved.env)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["tool"], one["input"]) for one in told] == CALLS[:6]
    assert (told[0]["verdict"]["decision"], told[0]["would_ask"]) == ("allow", False)
    assert (told[1]["verdict"]["decision"], told[1]["would_ask"]) == ("deny", True)
    assert told[1]["verdict"]["because"].startswith("nobody to ask: ")
    assert {one["then"] for one in told} == {"success"}


def test_a_policy_may_be_a_file_of_ours_or_of_the_cli(saved, tmp_path):
    ours, theirs = tmp_path / "ours.json", tmp_path / "theirs.toml"
    rules = [{"tool": "run_shell_command", "decision": "deny", "command": "git push"}]
    ours.write_text(json.dumps({"shellExecute": "allow", "rules": rules}))
    theirs.write_text(command("policy", "show", "--policy", ours).stdout)
    answers = [
        [
            (json.loads(line)["verdict"]["decision"], json.loads(line)["would_ask"])
            for line in command(
                "policy", "test", A, "-p", file, "--json", env=saved.env
            ).stdout.splitlines()
        ]
        for file in (ours, theirs)
    ]
    allowed = [("allow", False)] * 4
    assert answers[0] == answers[1] == [("deny", True), *allowed, ("deny", False)]


def test_a_policy_is_shown_as_it_is_compiled(tmp_path):
    """S0-32: the command prints the TOML that a run would use."""
    done = command("policy", "show", "--policy", "file_write=allow", "--deny-tool", "glob")
    options = Options(policy=Policy(file_write="allow"), disallowed_tools=("glob",))
    assert (done.returncode, done.stdout) == (0, toml_of(options))
    assert tomllib.loads(done.stdout)["rule"]
    file = tmp_path / "p.toml"
    file.write_text(FILE)
    assert command("policy", "show", "--policy", file).stdout == FILE


@pytest.mark.parametrize("columns", [80, 40])
def test_a_replay_fits_the_terminal(saved, columns):
    with Terminal("policy", "test", A, env=saved.env, columns=columns) as screen:
        assert screen.ends_with() == 0
    assert max(map(len, screen.text.splitlines())) <= columns
    assert "denied" in screen.text
    assert "run_shell_command" in screen.text


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["test", "zzz"], Exit.NOT_FOUND, "geminorum sessions list"),
        (["test", A, "-p", "file_write=often"], Exit.USAGE, "allow, ask or deny"),
        (["test", A, "-p", "nothing.toml"], Exit.USAGE, "no file nothing.toml"),
        (["test", A, "-p", "."], Exit.USAGE, "is a folder"),
        (["test", A, "-p", "bad.toml"], Exit.SETUP, "drop the whole file"),
        (["show", "-p", "bad.toml"], Exit.SETUP, "drop the whole file"),
        (["test", A, "-p", "good.toml", "--allow-tool", "glob"], Exit.USAGE, "--allow-tool"),
        (["test", A, "-p", "file_write=deny", "-a", "yolo"], Exit.USAGE, "leave one"),
        (["test"], Exit.USAGE, "geminorum policy test --help"),
        (["tets", A], Exit.USAGE, "test"),
    ],
)
def test_wrong_usage_says_what_to_write(saved, tmp_path, arguments, code, word):
    (tmp_path / "bad.toml").write_text('[[rule]]\ntoolName = "glob"\n')
    (tmp_path / "good.toml").write_text(FILE)
    done = command("policy", *arguments, env=saved.env, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert word in done.stderr
    assert "Traceback" not in done.stderr
