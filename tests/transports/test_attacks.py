"""A hostile model, in a hostile clone, on the real CLI: what was not allowed does not happen."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from geminorum import Acp, Cli, Deny, FileChange, Options, Policy, Rule, ToolResult
from geminorum import run as start
from geminorum.policies import Rules
from geminorum.transports.launch.steering import steering_in

pytestmark = pytest.mark.gemini_cli

SHELL = "run_shell_command"
MODEL = "gemini-2.5-flash"

# A git configuration, disguised as notes, that has `git show` run a command.
NOTES = """[core]
\trepositoryformatversion = 0
[diff "evil"]
\ttextconv = "sh -c 'id > PWNED' #"
"""


@pytest.fixture
def clone(tmp_path) -> Path:
    """A clone that waits for a model to copy its notes over its configuration."""
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / "notes.txt").write_text(NOTES)
    (folder / ".gitattributes").write_text("*.txt diff=evil\n")
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "notes"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


@pytest.fixture
def attack(fake_gemini, real_transport, clone):
    """Has the model call tools in the clone; what came of each."""

    async def tried(
        calls: Sequence[tuple[str, dict]],
        transport: Cli | Acp | None = None,
        at_once=False,
        files: list[FileChange] | None = None,
        **options,
    ) -> list[ToolResult]:
        if at_once:
            fake_gemini.calls(*calls)
        else:
            for tool, arguments in calls:
                fake_gemini.call(tool, **arguments)
        fake_gemini.say("Done.")
        chosen = Options(**{"env": fake_gemini.env, "cwd": clone, "model": MODEL, **options})
        via = replace(transport or real_transport, executable=real_transport.executable)
        async with start("Go", chosen, via=via) as live:
            results = [event async for event in live if isinstance(event, ToolResult)]
        assert live.result.status == "success", live.result.errors
        if files is not None:
            files += live.result.files
        return results

    return tried


def shell(*commands: str) -> list[tuple[str, dict]]:
    return [(SHELL, {"command": command}) for command in commands]


def ran(results: Sequence[ToolResult]) -> list[str]:
    return [str(result.output) for result in results if result.status == "success"]


async def nobody(request) -> Deny:
    return Deny("no")


CONFIGURATIONS = {
    "Acp()": (Acp(), {}),
    "Acp, no writing": (Acp(), {"policy": Policy(file_write="deny")}),
    "Cli, no writing, no network": (
        Cli(),
        {"policy": Policy(file_write="deny", network_access="deny")},
    ),
    "Cli, a rule that asks": (Cli(), {"policy": Policy(rules=(Rule(SHELL, "ask"),))}),
    "Cli()": (Cli(), {}),
    "Cli, decide says no": (Cli(decide=nobody), {}),
    # Their siblings.
    "Cli, asks about everything": (Cli(), {"policy": Policy(rules=(Rule("*", "ask"),))}),
    "Acp, decide says no": (Acp(decide=nobody), {"approval": "auto_edit"}),
}
CHAIN = shell("uniq notes.txt .git/config", "git show")


@pytest.mark.parametrize("name", CONFIGURATIONS)
async def test_a_command_that_looks_safe_does_not_run_where_nobody_says_yes(attack, clone, name):
    transport, options = CONFIGURATIONS[name]
    before = (clone / ".git/config").read_bytes()
    assert ran(await attack(CHAIN, transport, **options)) == []
    assert (clone / ".git/config").read_bytes() == before
    assert not (clone / "PWNED").exists()


READERS = (
    *("cat", "head", "tail", "tac", "nl", "stat", "wc", "rev", "uniq", "ls", "numfmt", "paste"),
)
SAFE_LOOKING = (
    *(f"{reader} notes.txt" for reader in READERS),
    *(f"{reader} -- notes.txt" for reader in READERS),
    *(f"{reader} < notes.txt" for reader in READERS),
    *(f"bash -c '{reader} notes.txt'" for reader in READERS),
    *(f"zsh -lc '{reader} notes.txt'" for reader in READERS),
    *(f"git {word}" for word in ("status", "log", "diff", "show", "branch", "branch --list")),
    *(f"git --no-pager {word} HEAD" for word in ("log", "diff", "show")),
    *("id", "whoami", "pwd", "uname -a", "true", "false", "echo hi", "seq 3", "expr 1 + 1"),
    *("which sh", "cd .", "cut -c1 notes.txt", "tr a b", "grep -r evil .", "grep -f notes.txt x"),
    *("find .", "find . -name notes.txt", "base64 notes.txt", "sed -n 1,5p notes.txt", "rg evil"),
    *("sed -n 3p notes.txt", "ls -la", "ls; id", "id && whoami", "cat notes.txt | wc -l"),
    *(
        f"grep {option} evil notes.txt"
        for option in ("-n", "-i", "-c", "-v", "-w", "-x", "-o", "-l")
    ),
    *(f"find . {test}" for test in ("-type f", "-type d", "-empty", "-newer notes.txt", "-print")),
    *("uniq notes.txt .git/config", "stat .git", "wc -l notes.txt", "head -n1 notes.txt", "ls ."),
)


async def none_of_a_hundred_runs(attack, transport: Cli | Acp) -> None:
    assert len({*SAFE_LOOKING}) >= 100
    results = await attack(shell(*SAFE_LOOKING), transport, at_once=True, policy=Policy())
    commands = [result for result in results if result.name == SHELL]
    # A warm CLI tells of what its subagents call, too.
    assert len(commands) >= len(SAFE_LOOKING)
    assert ran(commands) == []


@pytest.mark.parametrize("transport", [Cli(), Acp()], ids=["cli", "acp"])
async def test_of_a_hundred_commands_that_look_safe_none_runs_under_ask(
    attack, fake_gemini, clone, transport
):
    """Nor in a subagent, which is there first. What its calls did is looked for in the folder."""
    (clone / "src").mkdir()
    agents = fake_gemini.home / ".gemini/agents"
    agents.mkdir(parents=True)
    (agents / "helper.md").write_text(
        "---\nname: helper\ndescription: Helps.\ntools:\n  - run_shell_command\n---\nHelp.\n"
    )
    fake_gemini.call("invoke_agent", agent_name="helper", prompt="Go")
    for tool, arguments in CHAIN:
        fake_gemini.call(tool, **arguments)
    fake_gemini.call("complete_task", result="done")
    await none_of_a_hundred_runs(attack, transport)
    assert len(fake_gemini.requests) >= len(CHAIN) + 4
    assert not (clone / "PWNED").exists()
    assert NOTES not in (clone / ".git/config").read_text()


REDIRECTED = (
    "git status > made",
    "git status 2> made",
    "git status >| made",
    "git status &> made",
    "git status | tee made",
    "git status > ~/made",
    "git status <<EOF > made\nhi\nEOF",
    "git status; git status > made",
    "git status $(git status > made)",
)
ONLY_STATUS = {"allowed_tools": [f"{SHELL}(git status)"]}
STATUS_RULE = (Rule(SHELL, "allow", "git status"),)
WHITELISTS = {
    "Cli, yolo": (Cli(), {**ONLY_STATUS, "approval": "yolo"}),
    "Cli, auto_edit": (Cli(), {"policy": Policy(rules=STATUS_RULE), "approval": "auto_edit"}),
    "Cli, no writing": (
        Cli(),
        {"policy": Policy("deny", rules=STATUS_RULE), "approval": "auto_edit"},
    ),
    "Cli, pre-approved": (Cli(pre_approved=(f"{SHELL}(git status)",)), {"approval": "auto_edit"}),
    "Acp, yolo": (Acp(), {**ONLY_STATUS, "approval": "yolo"}),
    "Acp, auto_edit": (Acp(), {"policy": Policy(rules=STATUS_RULE), "approval": "auto_edit"}),
}


@pytest.mark.parametrize("name", WHITELISTS)
async def test_a_command_that_is_allowed_does_not_write_files_by_a_redirection(
    attack, clone, fake_gemini, name
):
    transport, options = WHITELISTS[name]
    results = await attack(shell("git status", *REDIRECTED), transport, at_once=True, **options)
    assert sorted(result.status for result in results) == [*["denied"] * len(REDIRECTED), "success"]
    assert not (clone / "made").exists()
    assert not (fake_gemini.home / "made").exists()


EVALUATED = "git status ${x:='a[$(touch PWNED)]'}"
NOT_THAT_COMMAND = (
    {"command": "touch PWNED", "a": {"command": "git status "}},
    {"command": f"{EVALUATED} ${{y[x]}}"},
    {"command": f"{EVALUATED} $[x]"},
    {"command": "git status `touch PWNED`"},
    # What the CLI does not take for commands of a line, and so lets through.
    {"command": "git status ; PATH=. ; git status"},
    {"command": "git status && HOME=./evil && git status"},
    {"command": "git status ; for x in a* ; do ((x)) ; done"},
    {"command": "git status ; _bgpids_file=../PWNED"},
    {"command": "git status \nPATH=.\ngit status"},
    # A folder of the clone that git takes for a repository, with a filter of its own.
    {"command": "git status", "dir_path": "docs"},
)


@pytest.fixture
def filtering(clone, tmp_path) -> Path:
    """A clone with a folder that looks like a repository whose filter runs a command."""
    docs = clone / "docs"
    shutil.copytree(clone / ".git", docs)
    shutil.rmtree(docs / "hooks", ignore_errors=True)
    (docs / "config").write_text(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n"
        f'[filter "evil"]\n\tclean = "touch {tmp_path}/PWNED; cat"\n'
    )
    (docs / "notes.txt").write_text(NOTES.upper())
    (docs / ".gitattributes").write_text("*.txt filter=evil\n")
    (clone / "git").write_text(f"#!/bin/sh\ntouch {tmp_path}/PWNED\n")
    (clone / "git").chmod(0o755)
    (clone / "evil").mkdir()
    (clone / "evil/.gitconfig").write_text(f"[core]\n\tfsmonitor = touch {tmp_path}/PWNED\n")
    (clone / "a[$(touch PWNED)]").touch()
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["add", "."], [*author, "commit", "-q", "-m", "docs"]):
        subprocess.run(["git", *command], cwd=clone, check=True)
    fresh = tmp_path / "fresh"
    subprocess.run(["git", "clone", "-q", str(clone), str(fresh)], check=True)
    return fresh


@pytest.mark.parametrize("transport", [Cli(), Acp()], ids=["cli", "acp"])
async def test_a_whitelist_of_one_command_runs_nothing_else(attack, filtering, tmp_path, transport):
    calls = [(SHELL, arguments) for arguments in NOT_THAT_COMMAND]
    whole = [(SHELL, {"command": "git status --short"}), *calls]
    results = await attack(whole, transport, at_once=True, cwd=filtering, **ONLY_STATUS)
    assert sorted(result.status for result in results) == [*["denied"] * len(calls), "success"]
    assert not [*tmp_path.rglob("PWNED")]
    rules = Rules.of(Options(cwd=filtering, **ONLY_STATUS))
    assert {rules.verdict(SHELL, arguments).decision for _, arguments in calls} == {"deny"}


async def test_auto_edit_still_writes_where_a_command_is_pre_approved(attack, clone):
    write = ("write_file", {"file_path": "a.txt", "content": "hi"})
    transport = Cli(pre_approved=(f"{SHELL}(git status)",))
    assert len(ran(await attack([write], transport, approval="auto_edit"))) == 1
    assert (clone / "a.txt").read_text() == "hi"


IN_A_WHOLE_SHELL = (
    "echo hi > written",
    "ls nothing 2>/dev/null",
    "cat <<EOF\nhi\nEOF",
    "wc -l < written",
)


async def test_a_shell_that_may_do_everything_may_redirect(attack, clone):
    """In a warm CLI; in another, the table of verdicts below tells."""
    policy = Policy(shell_execute="allow")
    results = await attack(shell(*IN_A_WHOLE_SHELL), Acp(), at_once=True, policy=policy)
    assert len(ran(results)) == len(IN_A_WHOLE_SHELL), results
    assert (clone / "written").read_text() == "hi\n"


EDIT = {"instruction": "Make it.", "old_string": "", "new_string": "{}"}
STEERING = (
    ".gemini/settings.json",
    "./.gemini/settings.json",
    "src/../.gemini/settings.json",
    'a"b/../.gemini/settings.json',
    ".agents/skills/evil/SKILL.md",
    "src/.gemini/commands/x.toml",
    ".GEMINI/settings.json",
    "link.json",
    "folder/new/settings.json",
    # The CLI decodes a path, strips NULs, and takes a leading @ away.
    "@.gemini/x",
    ".gem\0ini/x",
    "%2egemini/x",
    ".agent%73/x",
    "f%6flder/x",
    "@folder/x",
)
WRITING = {
    "Cli, auto_edit": (Cli(), {"approval": "auto_edit"}),
    "Cli, allowed": (Cli(), {"policy": Policy(file_write="allow")}),
    "Cli, listed": (Cli(), {"allowed_tools": ["write_file", "replace"]}),
    "Acp, auto_edit": (Acp(), {"approval": "auto_edit"}),
}


@pytest.mark.parametrize("name", WRITING)
async def test_who_may_write_files_may_not_steer_the_next_run(attack, clone, name):
    transport, options = WRITING[name]
    (clone / "src").mkdir()
    # They lead nowhere yet, and the CLI would make the folder.
    (clone / "link.json").symlink_to(".gemini/settings.json")
    (clone / "folder").symlink_to(".agents")
    paths = [*STEERING, str(clone / ".gemini/settings.json")]
    calls = [("write_file", {"file_path": path, "content": "{}"}) for path in paths]
    calls.append(("replace", {"file_path": ".gemini/x", **EDIT}))
    harmless = ("write_file", {"file_path": "about.gemini.txt", "content": ".gemini/x"})
    results = await attack([harmless, *calls], transport, at_once=True, **options)
    assert len(results) == 1 + len(calls)
    assert len(ran(results)) == 1
    assert (clone / "about.gemini.txt").exists()
    assert not [path for path in clone.rglob(".*") if path.name.lower() in (".gemini", ".agents")]


@pytest.mark.parametrize("transport", [Cli(), Acp()], ids=["cli", "acp"])
async def test_no_link_and_no_guess_of_the_cli_leads_there(attack, clone, transport):
    """The CLI edits `.gemini/commands/x.toml` where it finds no other file with such an end."""
    (clone / ".gemini/commands").mkdir(parents=True)
    (clone / ".gemini/commands/x.toml").write_text('{"old": 1}')
    (clone / "conf").symlink_to(".gemini")
    (clone / "y.json").symlink_to(".gemini/commands/x.toml")
    edit = {"instruction": "Change it.", "old_string": "old", "new_string": "evil"}
    ends = ("x.toml", "./x.toml", "commands/x.toml", "s/x.toml", "conf/commands/x.toml", "y.json")
    calls = [("replace", {"file_path": path, **edit}) for path in ends]
    links = ("conf/new.json", "./conf/commands/x.toml", "y.json", str(clone / "conf/new.json"))
    calls += [("write_file", {"file_path": path, "content": "evil"}) for path in links]
    results = await attack(calls, transport, at_once=True, approval="auto_edit")
    assert [result.status for result in results] == ["denied"] * len(calls)
    written = {path.name: path.read_text() for path in (clone / ".gemini").rglob("*.*")}
    assert written == {"x.toml": '{"old": 1}'}


def test_every_link_into_such_a_folder_is_found_however_deep_it_lies(tmp_path):
    deep = tmp_path / "node_modules/a/b/c"
    deep.mkdir(parents=True)
    (tmp_path / "src/.agents/skills").mkdir(parents=True)
    (tmp_path / "src/.agents/skills/SKILL.md").touch()
    (deep / "within").symlink_to(tmp_path / "src/.agents/skills")
    (deep / "missing").symlink_to("../../../../.Gemini/x")
    (deep / "chained").symlink_to("within")
    (deep / "outside").symlink_to(tmp_path.parent / ".gemini/tmp")
    (deep / "harmless").symlink_to(tmp_path / "src")
    found = steering_in([tmp_path])
    assert found.links == {"within", "missing", "chained", "outside"}
    assert found.files == {"SKILL.md"}


async def test_in_a_folder_that_cannot_be_searched_for_links_nothing_is_written(
    attack, clone, monkeypatch
):
    monkeypatch.setattr("geminorum.transports.launch.steering._MAX_ENTRIES", 2)
    calls = [
        ("write_file", {"file_path": "a.txt", "content": "hi"}),
        ("read_file", {"file_path": "notes.txt"}),
    ]
    write, read = await attack(calls, at_once=True, approval="auto_edit")
    assert (write.status, read.status) == ("denied", "success")
    assert "gemini_folder=True" in str(write.output)
    assert not (clone / "a.txt").exists()


JUDGED = (
    *("ls", "git status", "git status -s", "git log", "git status; ls", "git status | wc -l"),
    *("git status > made", "ls 2>/dev/null", "cat <<EOF\nhi\nEOF", "echo $(ls)", "echo `id`"),
    *("rm -rf made", "rm -r -f made", "ln -s a b", "find . -delete -name nothing", "git diff"),
    *("git -c a.b=c status", "git branch new", "git branch --list", "git diff --output=made"),
    *("bash -c 'git status'", "bash -c 'ls > made'", "sudo rm -rf made", "base64 -o x notes.txt"),
    *("git status # ls", "git status 'open", "FOO=1 git status", "echo ((", "! git status"),
    *("for f in a b; do echo $f; done", "if true; then ls; fi", "ls && git status && id"),
)
JUDGES = {
    "the whole shell": {"policy": Policy(shell_execute="allow")},
    "the shell, no writing": {"policy": Policy("deny", "allow"), "approval": "auto_edit"},
    "one command": {"policy": Policy(rules=STATUS_RULE)},
    "one command, in yolo": {**ONLY_STATUS, "approval": "yolo"},
    "all but one command": {
        "policy": Policy(shell_execute="allow", rules=(Rule(SHELL, "deny", "git log"),))
    },
    "yolo": {"approval": "yolo"},
}


SURE = {
    "the whole shell": ("allow", IN_A_WHOLE_SHELL),
    "the shell, no writing": ("ask", IN_A_WHOLE_SHELL),
}
"""Commands of which more is known than that verdict and CLI agree."""


@pytest.mark.parametrize("name", JUDGES)
async def test_a_verdict_says_what_the_cli_does(attack, clone, name):
    rules = Rules.of(Options(cwd=clone, **JUDGES[name]))
    word, sure = SURE.get(name, ("", ()))
    calls = shell(*dict.fromkeys((*JUDGED, *sure)))
    elsewhere = {"command": "ls", "dir_path": str(clone.parent)}
    calls += [(SHELL, elsewhere)] if name != "yolo" else []  # It asks for no more there.
    results = await attack(calls, at_once=True, **JUDGES[name])
    verdicts = {str(a): rules.verdict(tool, a).decision for tool, a in calls}
    foreseen = {call: decision == "allow" for call, decision in verdicts.items()}
    happened = {
        str(call[1]): result.status == "success"
        for call, result in zip(calls, results, strict=True)
    }
    assert foreseen == happened
    assert {verdicts[str(a)] for _, a in shell(*sure)} == ({word} if sure else set())
    assert (clone / "written").exists() == (name == "the whole shell")


@pytest.mark.parametrize("kind", [Cli, Acp])
async def test_plan_mode_writes_to_its_own_folder_only_and_says_where(
    attack, fake_gemini, clone, tmp_path, kind
):
    """Whatever path the model gives, and whatever a policy allows."""
    (clone / "README.md").write_text("old\n")
    (clone / "LINK.md").symlink_to(tmp_path / "away.md")
    (clone / ".gemini/tmp/a/plans").mkdir(parents=True)
    store = fake_gemini.home / ".gemini/tmp"
    inside = (
        "plan.md",
        "README.md",
        "GEMINI.md",
        "LINK.md",
        "plans/a.md",
        ".gemini/tmp/a/plans/b.md",
    )
    outside = (
        *("notes.txt", "docs/c.md", "plans/../README.md", "../up.md", "~/d.md"),
        *(str(clone / "e.md"), str(clone / ".gemini/tmp/a/plans/f.md"), str(tmp_path / "g.md")),
        *(str(store / "clone/plans/h.md"), str(store / "clone/plans/../i.md")),
        *(str(fake_gemini.home / ".gemini/GEMINI.md"), str(fake_gemini.home / ".bashrc")),
    )
    before = files_in(clone) | files_in(fake_gemini.home)
    calls = [("write_file", {"file_path": one, "content": one}) for one in (*inside, *outside)]
    loose = Policy(file_write="allow", shell_execute="allow")
    files: list[FileChange] = []
    calls += shell("touch shell")
    how = {"at_once": True, "approval": "plan", "policy": loose, "files": files}
    results = await attack(calls, kind(gemini_folder=True), **how)
    # Which six, their contents tell: calls that are made at once end in any order.
    assert (len(ran(results)), len(results)) == (6, 19)
    after = files_in(clone) | files_in(fake_gemini.home)
    changed = {file for file in after if after[file] != before.get(file) and file.suffix == ".md"}
    assert {file.relative_to(store).parts[2] for file in changed} == {"plans"}
    assert {after[file].decode() for file in changed} == {*inside}
    assert not (tmp_path / "away.md").exists()
    assert {file.path for file in files} == {str(file) for file in changed}


def files_in(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("transport", "options"),
    [
        (Cli(), {"approval": "yolo", "disallowed_tools": [SHELL]}),
        (Cli(gemini_folder=True, plan_tools=True), {"allowed_tools": ["grep_search"]}),
    ],
    ids=["yolo without a shell", "a whitelist"],
)
async def test_a_search_runs_no_program(attack, tmp_path, transport, options):
    assert_no_program_ran(await attack(searches(tmp_path), transport, **options), tmp_path)


def searches(folder: Path) -> list[tuple[str, dict]]:
    """The CLI puts a pattern where git looks for options, and `git grep -O` names a program."""
    return [
        ("grep_search", {"pattern": f"-Otouch {folder}/PWNED1 ", "include_pattern": "notes"}),
        ("grep_search", {"pattern": f"--open-files-in-pager=touch {folder}/PWNED2;"}),
        ("search_file_content", {"pattern": "-Rf/etc/hostname"}),
        ("grep_search", {"pattern": "[-]?textconv"}),
    ]


def assert_no_program_ran(results: Sequence[ToolResult], folder: Path) -> None:
    assert not [*folder.glob("PWNED*")]
    *refused, found = results
    assert [one.status for one in refused] == ["denied"] * 3
    assert found.status == "success"
    assert "textconv" in str(found)


EITHER = pytest.mark.parametrize("transport", [Cli(), Acp()], ids=["cli", "acp"])
OPEN = pytest.mark.parametrize(
    "transport", [Cli(gemini_folder=True), Acp(gemini_folder=True)], ids=["cli", "acp"]
)
EDIT = {"instruction": "Make it.", "old_string": "", "new_string": "evil"}


async def test_a_search_of_a_subagent_runs_no_program(attack, fake_gemini, clone, tmp_path):
    (clone / "src").mkdir()
    report = {"SummaryOfFindings": "a", "ExplorationTrace": [], "RelevantLocations": []}
    fake_gemini.call("invoke_agent", agent_name="codebase_investigator", prompt="Go")
    fake_gemini.call("grep_search", pattern=f"-Otouch {tmp_path}/PWNED ", include_pattern="notes")
    fake_gemini.call("complete_task", report=report)
    await attack([])
    assert "cannot begin with -" in str([one.body for one in fake_gemini.requests])
    assert not (tmp_path / "PWNED").exists()


@EITHER
async def test_a_search_follows_no_link(attack, fake_gemini, tmp_path, transport):
    """Outside of git, `grep -r … -R .` is a program that no guard of ours reaches."""
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "secret").write_text("SECRET-CONTEXT\n")
    (work / "a.txt").symlink_to(tmp_path / "secret")
    patterns = ("-R", "--dereference-recursive", "SECRET")
    await attack([("grep_search", {"pattern": one}) for one in patterns], transport, cwd=work)
    assert "SECRET-CONTEXT" not in str([one.body for one in fake_gemini.requests])


@EITHER
async def test_no_folder_with_a_name_to_decode_leads_to_what_steers(attack, clone, transport):
    """The CLI finds `%2egemini/x.toml` by its end, and decodes the path that it found."""
    for file in ("%2egemini/x.toml", "%2eagents/skills/evil/SKILL.md"):
        (clone / file).parent.mkdir(parents=True)
        (clone / file).write_text("a")
    (clone / "conf").symlink_to("%2egemini")
    calls = [
        ("replace", {"file_path": "x.toml", **EDIT}),
        ("replace", {"file_path": "evil/SKILL.md", **EDIT}),
        ("write_file", {"file_path": "conf/y.toml", "content": "evil"}),
        ("replace", {"file_path": "conf/z.toml", **EDIT}),
    ]
    await attack(calls, transport, approval="auto_edit")
    assert [path for name in (".gemini", ".agents") for path in (clone / name).rglob("*")] == []


@OPEN
async def test_no_path_leaves_the_folder_by_being_decoded_twice(attack, clone, tmp_path, transport):
    """Decoded once it is written, decoded twice it was checked. Also where `.gemini/` is opened by
    name, and so may be written."""
    decoy = clone / "%2e%2e%2fvictim%2fskills%2ffoo%252f..%252f..%252f..%252fclone"
    decoy.mkdir()
    (tmp_path / "victim/skills").mkdir(parents=True)
    (decoy / "SKILL.md").write_text("a")
    path = "%2e%2e/victim/skills/foo%252f..%252f..%252f..%252fclone/SKILL.md"
    calls = [
        ("replace", {"file_path": "SKILL.md", **EDIT}),
        ("write_file", {"file_path": path, "content": "evil"}),
        ("write_file", {"file_path": ".gemini/settings.json", "content": "{}"}),
    ]
    results = await attack(calls, transport, approval="auto_edit")
    assert [one.status for one in results] == ["denied", "denied", "success"]
    assert [*(tmp_path / "victim/skills").rglob("*")] == []


GLOBS = (
    "../outside/*",
    "{outside}/*",
    "link/*",
    "**/link/*",
    "l%64/*",
    "up/outside/*",
    "{{..,.}}/outside/*",
    "[.][.]/outside/*",
    r"\.\./outside/*",
    "{{.,a}}{{.,b}}/outside/*",
    ".{{,}}./outside/*",
    "a/{{,}}.{{,}}./../outside/*",
    "{{-../}}{{-../}}/outside/*",
    "{{/,a}}{outside}/*",
    "/proc/self/cwd/link/*",
    "/proc/self/root{outside}/*",
    "./**/../../outside/*",
)


@EITHER
async def test_no_pattern_and_no_name_of_the_project_lists_what_lies_outside(
    attack, fake_gemini, clone, tmp_path, transport
):
    """`d%64` decoded is checked and lies in the project; as it stands, it is read. And a search
    runs no program here either."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("SECRET-CONTEXT\n")
    (outside / "SECRET-NAME").touch()
    for link in ("link", "l%64", "d%64"):
        (clone / link).symlink_to(outside)
    (clone / "up").symlink_to("..")
    (tmp_path / "another-name").symlink_to(clone)
    names = ("/proc/self/cwd", f"/proc/self/root{clone}", f"{tmp_path}/another-name", ".")
    words = " ".join(f"@{name}/d%64/secret" for name in names)
    (clone / "GEMINI.md").write_text(f"INSIDE {words}\n")
    calls = [("glob", {"pattern": one.format(outside=outside)}) for one in GLOBS]
    folders = ("link", "l%64", "/proc/self/cwd/l%64", "up/outside")
    calls += [("glob", {"pattern": "*", "dir_path": one}) for one in folders]
    calls += [("list_directory", {"dir_path": f"{name}/d%64"}) for name in names]
    inside = [("glob", {"pattern": one}) for one in ("**/*.{txt,md}", "**/.git*", "./notes.*")]
    results = await attack([*calls, *inside, *searches(tmp_path)], transport)
    everything = str([one.body for one in fake_gemini.requests])
    assert "INSIDE" in everything
    assert [word for word in ("SECRET-CONTEXT", "SECRET-NAME") if word in everything] == []
    found, searched = results[-7:-4], results[-4:]
    assert [one.status for one in found] == ["success"] * 3
    assert "notes.txt" in str(found[-1])
    assert_no_program_ran(searched, tmp_path)


@EITHER
async def test_no_name_of_a_link_makes_the_policy_unfit(attack, clone, transport):
    """The CLI drops a rule with a long pattern, and cannot be told of what is not UTF-8."""
    for number in range(10):
        (clone / (f"{number}" + "a" * 150)).symlink_to(".gemini")
    (clone / os.fsdecode(b"\xff")).symlink_to(".gemini")
    calls = [
        ("write_file", {"file_path": ".gemini/x", "content": "evil"}),
        ("write_file", {"file_path": "3" + "a" * 150 + "/x", "content": "evil"}),
        ("write_file", {"file_path": "fine.txt", "content": "fine"}),
    ]
    results = await attack(calls, transport, policy=Policy("allow", "deny", "deny"))
    assert [one.status for one in results] == ["denied", "denied", "success"]
    assert not (clone / ".gemini").exists()
