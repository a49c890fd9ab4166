"""Older CLIs are told the same in older words, or the option is refused before they start.

What real older CLIs make of it is tried by `make test-versions`; see docs/versions.md.
"""

import itertools
import json
from pathlib import Path

import pytest
from test_permissions import LEVELS, decision_on

from geminorum import Cli, Options, Policy, Rule, ask
from geminorum.errors import ConfigError, Unsupported
from geminorum.permissions import TOOL_GROUPS
from geminorum.sessions.store import SqliteStore
from geminorum.wire.launch.argv import arguments, missing_flags
from geminorum.wire.policy.legacy_tools import LegacyTools, legacy_tools

OLD = (0, 29, 0)
SHELL = "run_shell_command"
TOOLS = ("read_file", *(tool for group in TOOL_GROUPS.values() for tool in group))


def word_on(tool: str, said: LegacyTools) -> str | None:
    """What an older CLI does with a call of the tool: run it, refuse it, or as its mode says."""
    if tool in said.exclude or (said.core is not None and tool not in said.core):
        return "refused"
    return "unasked" if tool in said.unasked else None


SAME = {"allow": "unasked", "deny": "refused", "ask_user": "refused", None: None}
WHITELISTS = (None, (), ("read_file",), ("write_file", SHELL))
BLACKLISTS = ((), ("write_file",), ("read_file", "web_fetch"))
RULES = (
    (),
    (Rule("write_file", "allow"), Rule("write_file", "deny")),
    (Rule(SHELL, "ask"), Rule("read_file", "deny")),
)


@pytest.mark.parametrize("levels", list(itertools.product(LEVELS, repeat=3)), ids="-".join)
def test_the_older_words_mean_what_the_policy_file_means(levels):
    """S0-22, S0-23, S0-24, B-20: tool by tool, whatever is combined."""
    for allowed, disallowed, rules in itertools.product(WHITELISTS, BLACKLISTS, RULES):
        options = Options(
            policy=Policy(*levels, rules=rules), allowed_tools=allowed, disallowed_tools=disallowed
        )
        said = legacy_tools(options)
        assert not missing_flags(options, OLD)
        for tool in TOOLS:
            assert word_on(tool, said) == SAME[decision_on(tool, options)], (tool, options)


def test_one_flag_for_each_tool_that_runs_unasked():
    """S0-22, B-20: a CLI before 0.30 gets one `--allowed-tools` flag per allowed tool, a newer one
    none."""
    options = Options(policy=Policy(file_write="allow"))
    flags = arguments(options, version=OLD)
    assert flags[-2:] == ["--allowed-tools=replace", "--allowed-tools=write_file"]
    assert not any(flag.startswith("--allowed-tools") for flag in arguments(options))


def test_without_permissions_only_the_plan_tools_are_excluded():
    said = legacy_tools(Options())
    assert said == LegacyTools(exclude=("enter_plan_mode", "exit_plan_mode"))
    assert said.flags == []
    assert legacy_tools(Options(), plan_tools=True) == LegacyTools()


def test_a_whitelist_leaves_no_way_around_it():
    """S0-24: neither an agent, nor a skill, a server, or a command that discovers tools."""
    said = legacy_tools(Options(allowed_tools=()))
    assert "activate_skill" in said.exclude
    assert "activate_skill" not in legacy_tools(Options(allowed_tools=["activate_skill"])).exclude
    assert said.core == ()
    names = [flag.partition("=")[0] for flag in said.flags]
    assert names == ["--allowed-tools", "--allowed-mcp-server-names"]
    assert said.over({"discoveryCommand": "find-tools"})["discoveryCommand"] == ""


def test_what_the_user_excludes_stays_excluded():
    settings = legacy_tools(Options(disallowed_tools=["glob"])).over({"exclude": ["web_fetch"]})
    assert settings["exclude"][:2] == ["web_fetch", "glob"]
    assert "core" not in settings


@pytest.mark.parametrize("name", ["grep_search", "search_file_content"])
def test_a_tool_that_was_renamed_is_refused_by_both_names(name):
    said = legacy_tools(Options(disallowed_tools=[name]))
    assert {"grep_search", "search_file_content"} <= set(said.exclude)


def test_notes_for_later_runs_are_files_too():
    assert "save_memory" in legacy_tools(Options(policy=Policy(file_write="deny"))).exclude
    assert "save_memory" not in legacy_tools(Options(policy=Policy(file_write="allow"))).unasked


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (Options(approval="plan"), "plan mode"),
        (Options(disallowed_tools=[f"{SHELL}(git push)"]), "single shell commands"),
        (Options(policy=Policy(rules=(Rule(SHELL, "ask", "git push"),))), "single shell commands"),
        (Options(allowed_tools=[f"{SHELL}(git status)"]), "single shell commands"),
        (Options(disallowed_tools=["mcp_server_tool"]), "rules on MCP tools"),
        (Options(policy=Policy(rules=(Rule("mcp_server_*", "allow"),))), "rules on MCP tools"),
        (Options(disallowed_tools=["invoke_agent"]), "on agents"),
        (Options(trust_workspace=False), "trust_workspace=False"),
        (Options(session_id="mine"), "session_id"),
    ],
)
def test_what_cannot_be_said_is_refused(options, problem):
    """B-20: never silently weaker."""
    assert any(problem in missing for missing in missing_flags(options, OLD))
    assert not missing_flags(options, (0, 61, 0))
    assert not missing_flags(options, None)


def test_a_command_that_is_pre_approved_is_refused_as_well():
    assert missing_flags(Options(), OLD, [f"{SHELL}(git status)"]) == ["single shell commands"]
    assert not missing_flags(Options(), OLD, ["write_file", SHELL])


def test_before_it_had_a_home_of_its_own_some_things_cannot_be_told():
    told = Options(home="/somewhere", system_prompt="Be brief.")
    assert missing_flags(told, (0, 25, 0)) == ["home", "a system prompt behind its own"]
    assert not missing_flags(told, OLD)


SCRIPT = """#!/usr/bin/env node
const fs = require("fs"), env = process.env
const settings = JSON.parse(fs.readFileSync(env.GEMINI_CLI_HOME + "/.gemini/settings.json"))
fs.writeFileSync(__dirname + "/seen.json", JSON.stringify({argv: process.argv, env, settings}))
console.log(JSON.stringify({type: "init", session_id: "s-1", model: "flash"}))
console.log(JSON.stringify({type: "result", status: "success", stats: {tool_calls: 0}}))
"""


class OldCli:
    """A program that says which version it is, and writes down how it was called."""

    def __init__(self, folder: Path, version: str) -> None:
        package = folder / "node_modules/@google/gemini-cli"
        self.program = package / "bundle/gemini.js"
        self.program.parent.mkdir(parents=True)
        described = {"name": "@google/gemini-cli", "bin": {"gemini": "bundle/gemini.js"}}
        (package / "package.json").write_text(json.dumps({**described, "version": version}))
        self.program.write_text(SCRIPT)
        self.program.chmod(0o755)

    def transport(self, **chosen) -> Cli:
        return Cli(executable=self.program, **chosen)

    @property
    def seen(self) -> dict:
        return json.loads(self.program.with_name("seen.json").read_text())

    @property
    def was_started(self) -> bool:
        return self.program.with_name("seen.json").exists()


@pytest.fixture
def old_cli(tmp_path):
    return lambda version: OldCli(tmp_path / version, version)


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "above/workspace"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("version", ["0.29.0", "0.33.2", "0.34.0"])
async def test_an_old_cli_finds_the_permissions_in_its_settings(
    old_cli, workspace, private_home, version
):
    """S0-23, S0-24, B-20: and the user's own file stays as it is.

    0.30 to 0.33 have `--policy`, but a headless one drops the tools that a policy file allows, and
    0.34 denies commands that a rule allows.
    """
    users = private_home / ".gemini/settings.json"
    users.parent.mkdir()
    users.write_text('{"tools": {"exclude": ["web_fetch"], "sandbox": false}}')
    old = old_cli(version)
    await ask("Hi", Options(cwd=workspace, allowed_tools=["read_file"]), via=old.transport())
    tools = old.seen["settings"]["tools"]
    assert (tools["core"], tools["sandbox"]) == (["read_file"], False)
    assert tools["exclude"] == [
        *("web_fetch", "activate_skill", "enter_plan_mode", "exit_plan_mode")
    ]
    assert "--allowed-tools=read_file" in old.seen["argv"]
    assert not any("--policy" in flag for flag in old.seen["argv"])
    assert users.read_text() == '{"tools": {"exclude": ["web_fetch"], "sandbox": false}}'


@pytest.mark.parametrize("version", ["0.29.0", "0.31.0"])
async def test_what_an_old_cli_does_not_support_is_refused_before_it_starts(
    old_cli, workspace, version
):
    """B-20: plan mode on CLI 0.29 raises Unsupported, and nothing is started.

    0.31 would run in default mode if plan mode is not enabled.
    """
    old = old_cli(version)
    with pytest.raises(Unsupported, match="too old for plan mode"):
        await ask("Hi", Options(cwd=workspace, approval="plan"), via=old.transport())
    assert not old.was_started


@pytest.mark.parametrize(("version", "refused"), [("0.28.2", True), ("0.29.0", False)])
async def test_a_cli_that_would_not_find_sessions_of_a_store_is_refused(
    old_cli, workspace, tmp_path, version, refused
):
    """0.28 looks for the sessions of a folder under a hash of its path."""
    old, options = old_cli(version), Options(cwd=workspace, store=SqliteStore(tmp_path / "s.db"))
    if refused:
        with pytest.raises(Unsupported, match="too old for store"):
            await ask("Hi", options, via=old.transport())
    else:
        await ask("Hi", options, via=old.transport())
    assert old.was_started is not refused


LIMITED = {"disallowed_tools": ["glob"]}


@pytest.mark.parametrize(
    ("version", "chosen", "refused"),
    [
        ("0.29.0", {}, True),
        ("0.38.0", {}, True),
        ("0.29.0", {"trust_workspace": True}, False),
        ("0.29.0", {"trust_workspace": True, **LIMITED}, True),
        ("0.40.1", LIMITED, False),
    ],
)
async def test_a_folders_settings_that_cannot_be_left_out_are_refused(
    old_cli, workspace, version, chosen, refused
):
    """B-30: that CLI reads them, trusted or not, and puts them above ours."""
    (workspace / ".gemini").mkdir()
    (workspace / ".gemini/settings.json").write_text("{}")
    old, options = old_cli(version), Options(cwd=workspace, **chosen)
    if refused:
        with pytest.raises(Unsupported, match="cannot run without"):
            await ask("Hi", options, via=old.transport())
    else:
        await ask("Hi", options, via=old.transport())
    assert old.was_started is not refused


DOTENV = "\ufeffFIRST=1\r\nexport SECOND = 2\rthird: 3\u2028FOURTH\n=4\n# NOT=5\nCOLOUR=red\n"


async def test_where_dotenv_files_cannot_be_ignored_they_are_disarmed(old_cli, workspace):
    """Every name they could set is set already; what the caller set keeps its value."""
    (workspace / ".env").write_text(DOTENV + "GEMINI_CLI_HOME=/elsewhere\nSECRET=YWJj==\n")
    (workspace.parent / ".env").write_text("ABOVE=1\n")
    (workspace / ".gemini").mkdir()
    (workspace / ".gemini/.env").write_text("INSIDE=1\n")
    old = old_cli("0.40.1")
    await ask("Hi", Options(cwd=workspace, env={"COLOUR": "blue"}), via=old.transport())
    env = old.seen["env"]
    names = ("FIRST", "SECOND", "third", "FOURTH", "ABOVE", "INSIDE", "SECRET")
    assert [env.get(name) for name in names] == [""] * len(names)
    assert env["COLOUR"] == "blue"
    assert Path(env["GEMINI_CLI_HOME"]).name.startswith("geminorum-kept-home-")
    assert "NOT" not in env
    assert "YWJj" not in env


@pytest.mark.parametrize(("version", "dotenv"), [("0.40.1", True), ("0.51.0", False)])
async def test_dotenv_files_are_left_alone_where_they_may_or_can_be(
    old_cli, workspace, version, dotenv
):
    (workspace / ".env").write_text("FIRST=1\n")
    old = old_cli(version)
    await ask("Hi", Options(cwd=workspace), via=old.transport(dotenv=dotenv))
    assert "FIRST" not in old.seen["env"]


@pytest.mark.parametrize("version", ["0.51.0", "0.61.0"])
async def test_what_the_setting_forgets_is_disarmed_on_newer_versions_too(
    old_cli, workspace, version
):
    """`advanced.ignoreLocalEnv` does not hold for the file beside the folder's settings."""
    (workspace / ".gemini").mkdir()
    (workspace / ".gemini/.env").write_text("INSIDE=1\n")
    (workspace / ".env").write_text("BESIDE=1\n")
    cli = old_cli(version)
    await ask("Hi", Options(cwd=workspace), via=cli.transport())
    assert (cli.seen["env"]["INSIDE"], cli.seen["env"].get("BESIDE")) == ("", None)


@pytest.mark.parametrize("version", ["0.40.1", "0.61.0"])
async def test_files_above_the_real_folder_are_disarmed_where_cwd_is_a_link(
    old_cli, tmp_path, version
):
    """The CLI asks the system where it is, and is told the real folder."""
    (tmp_path / "clone/src").mkdir(parents=True)
    (tmp_path / "clone/.gemini").mkdir()
    (tmp_path / "clone/.gemini/.env").write_text("BASH_ENV=evil.sh\n")
    (tmp_path / "link").symlink_to(tmp_path / "clone/src")
    cli = old_cli(version)
    await ask("Hi", Options(cwd=tmp_path / "link"), via=cli.transport())
    assert cli.seen["env"]["BASH_ENV"] == ""


async def test_a_broken_policy_is_found_before_an_old_cli_starts(old_cli, workspace, private_home):
    policies = private_home / ".gemini/policies"
    policies.mkdir(parents=True)
    (policies / "mine.toml").write_text("[[rule]\nbroken")
    old = old_cli("0.29.0")
    with pytest.raises(ConfigError, match="fix the policy file"):
        await ask("Hi", Options(cwd=workspace), via=old.transport())
    assert not old.was_started


@pytest.mark.parametrize("is_link", [False, True])
async def test_the_users_own_dotenv_files_are_not_disarmed(
    old_cli, private_home, tmp_path, monkeypatch, is_link
):
    if is_link:
        (tmp_path / "home-link").symlink_to(private_home)
        monkeypatch.setenv("HOME", str(tmp_path / "home-link"))
    (private_home / ".gemini").mkdir()
    (private_home / ".gemini/.env").write_text("MINE=1\n")
    (private_home / ".env").write_text("MINE_TOO=1\n")
    project = private_home / "project"
    project.mkdir()
    old = old_cli("0.40.1")
    await ask("Hi", Options(cwd=project), via=old.transport())
    assert not {"MINE", "MINE_TOO"} & old.seen["env"].keys()


@pytest.mark.parametrize(("version", "above"), [("0.20.2", True), ("0.29.0", False)])
async def test_a_cli_that_knows_no_other_home_gets_our_settings_from_above(
    old_cli, workspace, version, above
):
    """B-19: a limit that is not read would be none."""
    old = old_cli(version)
    await ask("Hi", Options(cwd=workspace, max_turns=3), via=old.transport())
    place = old.seen["env"].get("GEMINI_CLI_SYSTEM_SETTINGS_PATH")
    assert (place == f"{old.seen['env']['GEMINI_CLI_HOME']}/.gemini/settings.json") is above
    assert old.seen["settings"]["model"]["maxSessionTurns"] == 3


def test_every_row_of_the_page_of_versions_has_its_test():
    """It is run by `make test-versions` only, so that here it would break unseen."""
    from versions import control
    from versions.features import FEATURES

    assert {name for name in FEATURES if not callable(getattr(control, name, None))} == set()


def test_the_page_of_versions_agrees_with_its_rows_and_the_list_of_versions():
    from versions import table

    """Every minor version from 0.29 on that npm has."""
    page = table.PAGE.read_text(encoding="utf-8")
    assert page == table.page({version: table.expected(version) for version in table.versions()})


def test_a_column_of_the_page_joins_neighbours_in_which_all_cells_agree():
    from versions import table

    versions = ("0.29.0", "0.33.2", "0.40.1", "0.44.0", "0.60.0", "0.61.0")
    page = table.page({version: table.expected(version) for version in versions})
    (head,) = [line for line in page.splitlines() if line.startswith("| | ")]
    assert head == "| | 0.29\u00a0\u2013\u00a00.33 | 0.40 | 0.44 | 0.60 | 0.61 |"
    assert "Tested versions: 0.29.0, 0.33.2, 0.40.1, 0.44.0, 0.60.0, 0.61.0.\n" in page


def test_the_newest_stable_patch_of_each_minor_version_is_tested():
    from versions.minors import newest_patches

    on_npm = ["0.28.2", "0.29.0", "0.29.10", "0.29.9", "0.62.0-preview.1", "0.62.0", "0.61.0"]
    assert newest_patches(on_npm) == ["0.29.0", "0.29.10", "0.61.0", "0.62.0"]
