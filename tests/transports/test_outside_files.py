"""What a folder brings into a run by itself: files of the project, and nothing from outside."""

import json
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from geminorum import Acp, Cli, Options, Pool, Result, ToolResult, ask, connect, run
from geminorum.detect import find_cli
from geminorum.errors import ConfigError, Unsupported
from geminorum.testing import FakeGemini
from geminorum.transports.launch.preloads.read_guard import ReadGuard
from shared_run import Once

MODEL = "gemini-2.5-flash"
SKILL = "---\nname: {name}\ndescription: {words}\n---\nBODY-OF-{words}\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Files that no clone has any business with."""
    folder = tmp_path / "outside"
    (folder / "borrowed").mkdir(parents=True)
    (folder / "secret").write_text("SECRET-CONTEXT\n")
    (folder / "borrowed/SKILL.md").write_text(SKILL.format(name="borrowed", words="SECRET-SKILL"))
    (folder / "agent.md").write_text("---\nname: spy\ndescription: SECRET-AGENT\n---\nSpy.\n")
    (folder / "command.toml").write_text('description = "SECRET-COMMAND"\nprompt = "Go"\n')
    (folder / "listing").mkdir()
    (folder / "listing/SECRET-NAME").touch()
    return folder


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose own files, and links between them, are all as they should be."""
    root = tmp_path / "clone"
    (root / ".git").mkdir(parents=True)
    (root / "docs").mkdir()
    (root / "docs/rules.md").write_text("INSIDE-RULES\n")
    (root / "GEMINI.md").symlink_to("docs/rules.md")
    (root / "work/.agents/skills").mkdir(parents=True)
    (root / "tools/fine").mkdir(parents=True)
    (root / "tools/fine/SKILL.md").write_text(SKILL.format(name="fine", words="INSIDE-SKILL"))
    (root / "work/.agents/skills/fine").symlink_to(root / "tools/fine")
    (root / "work/notes").mkdir()
    (root / "work/notes/GEMINI.md").write_text("INSIDE-NOTES\n")
    (root / "work/notes/a.txt").write_text("a\n")
    return root


def put_links(work: Path, outside: Path) -> None:
    """Every way out that a clone can have."""
    (work / "GEMINI.md").symlink_to(outside / "secret")
    (work / "sub").mkdir()
    (work / "sub/GEMINI.md").symlink_to(outside / "secret")
    (work / "sub/b.txt").write_text("b\n")
    (work / "imports").mkdir()
    (work / "imports/link").symlink_to(outside / "secret")
    climbing = os.path.relpath(outside / "secret", work / "imports")
    (work / "imports/GEMINI.md").write_text(f"IMPORTING @./link @{climbing} @{outside}/secret\n")
    (work / "imports/c.txt").write_text("c\n")
    (work / ".gemini/skills").mkdir(parents=True)
    (work / ".gemini/skills/borrowed").symlink_to(outside / "borrowed")
    (work / ".agents/skills/other").mkdir()
    (work / ".agents/skills/other/SKILL.md").symlink_to(outside / "borrowed/SKILL.md")
    (work / ".gemini/agents").mkdir()
    (work / ".gemini/agents/spy.md").symlink_to(outside / "agent.md")
    (work / ".gemini/commands").mkdir()
    (work / ".gemini/commands/go.toml").symlink_to(outside / "command.toml")
    (work / "listing").symlink_to(outside / "listing")


def put_double_names(root: Path, outside: Path) -> None:
    """The CLI checks `d%64` decoded and reads it as it stands. Node asks the folder's package.json
    where a preloaded script lies."""
    for folder in (root, root / "docs"):
        (folder / "d%64").mkdir()
        for name in (".xignore", ".env", ".gitignore"):
            (folder / "d%64" / name).symlink_to(outside / "secret")
    rules = "INSIDE-RULES @./d%64/.xignore @./d%64/.env @./d%64/.gitignore\n"
    (root / "docs/rules.md").write_text(rules)
    work = root / "work"
    (work / "l%64").symlink_to(outside / "listing")
    (work / "package.json").write_text('{"name": "", "exports": {"./*": "./evil.cjs"}}')
    (work / "evil.cjs").write_text("require('fs').writeFileSync(__dirname + '/PWNED', '')")


def sent(fake: FakeGemini) -> set[str]:
    """What of our words the model was sent."""
    return {
        word
        for one in fake.requests
        for word in re.findall(r"SECRET-\w+|INSIDE-\w+", str(one.body))
    }


@pytest.mark.gemini_cli
@pytest.mark.parametrize("kind", [Cli, Acp])
async def test_nothing_from_outside_of_the_project_is_sent(
    fake_gemini, real_transport, clone, outside, kind
):
    """At the start, when a tool meets a folder, and when a skill is activated by its name. Neither
    names in two readings nor a package of the folder get round the guard."""
    put_links(clone / "work", outside)
    put_double_names(clone, outside)
    for folder in ("sub/b.txt", "imports/c.txt", "notes/a.txt"):
        fake_gemini.call("read_file", file_path=folder)
    fake_gemini.call("activate_skill", name="borrowed").call("activate_skill", name="fine")
    fake_gemini.call("list_directory", dir_path="l%64").say("Done.")
    options = Options(cwd=clone / "work", env=fake_gemini.env, model=MODEL, approval="yolo")
    transport = kind(executable=real_transport.executable)
    with pytest.warns(UserWarning, match="leads outside of the project") as warned:
        async with run("Go", options, via=transport) as live:
            results = [event async for event in live if isinstance(event, ToolResult)]
    *found, _ = results
    assert [one.status for one in found] == ["success"] * 3 + ["error", "success"]
    inside = {"INSIDE-RULES", "INSIDE-SKILL", "INSIDE-NOTES"}
    assert sent(fake_gemini) == inside
    assert "SECRET" not in str([request.body for request in fake_gemini.requests])
    assert not (clone / "work/PWNED").exists()
    named = {str(one.message).split("'")[1] for one in warned}
    left_out = ("GEMINI.md", ".gemini/skills/borrowed/SKILL.md", ".agents/skills/other/SKILL.md")
    assert named == {str(clone / "work" / file) for file in left_out}
    assert f"{kind.__name__}(outside_links=True)" in str(warned[0].message)


@pytest.mark.gemini_cli
async def test_one_option_lets_the_links_in(fake_gemini, real_transport, clone, outside):
    put_links(clone / "work", outside)
    fake_gemini.say("Done.")
    options = Options(cwd=clone / "work", env=fake_gemini.env, model=MODEL)
    transport = replace(real_transport, outside_links=True)
    assert (await ask("Go", options, via=transport)).text == "Done."
    assert {"SECRET-CONTEXT", "SECRET-SKILL"} <= sent(fake_gemini)


@dataclass
class Included:
    """A run with a folder that is included by its options, one by a flag, and one by the user."""

    clone: Path
    folders: list[Path]
    sent: set[str]
    bodies: str
    warned: list[str]
    result: Result


@pytest.fixture(scope="module")
def once() -> Once:
    return Once()


@pytest.fixture
def included(once, fake_gemini, real_transport, clone, outside, monkeypatch):
    """Each included folder has links that lead outside, and the clone one into each of them.

    The temporary folder, and so the run's home, is in the project.
    """

    async def made() -> Included:
        (clone / "tmp").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(clone / "tmp"))
        (fake_gemini.home / ".gemini/GEMINI.md").write_text("INSIDE-HOME\n")
        (clone / "work/package.json").write_text("<<<<<<< HEAD\n")
        folders = [outside.parent / name for name in ("by-options", "by-flag", "by-user")]
        (clone / "work/docs").mkdir(exist_ok=True)
        links = [clone / name for name in ("work/AGENTS.md", "work/docs/HOUSE.md", "AGENTS.md")]
        for folder, link in zip(folders, links, strict=True):
            (folder / "docs").mkdir(parents=True)
            (folder / "shared").write_text(f"INSIDE-{folder.name[3:].upper()}\n")
            link.symlink_to(folder / "shared")
            (folder / "AGENTS.md").symlink_to(outside / "secret")
            (folder / "docs/HOUSE.md").symlink_to(outside / "secret")
        by_options, by_flag, by_user = folders
        file = fake_gemini.home / ".gemini/settings.json"
        theirs = {"includeDirectories": [str(by_user)], "loadMemoryFromIncludeDirectories": True}
        file.write_text(json.dumps(json.loads(file.read_text()) | {"context": theirs}))
        via = replace(
            real_transport,
            settings={"context": {"fileName": ["AGENTS.md", "docs/HOUSE.md"]}},
            extra_args=("--include-directories", str(by_flag)),
        )
        options = Options(cwd=clone / "work", env=fake_gemini.env, model=MODEL)
        options = options.changed(include_directories=(by_options,), approval="auto_edit")
        fake_gemini.call("activate_skill", name="fine").say("Done.")
        with pytest.warns(UserWarning, match="leads outside") as warned:
            result = await ask("Go", options, via=via)
        bodies = str([one.body for one in fake_gemini.requests])
        told = [str(one.message).split("'")[1] for one in warned]
        return Included(clone, folders, sent(fake_gemini), bodies, told, result)

    return lambda: once("included", made)


@pytest.mark.gemini_cli
async def test_an_included_folder_and_a_name_from_the_settings_count_too(included):
    """An included folder may be linked to; what is read in it may not lead outside. The user's
    own file is read also where the temporary folder, and so the run's home, is in the project."""
    run = await included()
    assert run.result.text == "Done."
    linked_to = {"INSIDE-OPTIONS", "INSIDE-FLAG", "INSIDE-USER"}
    assert {*linked_to, "INSIDE-RULES", "INSIDE-HOME"} <= run.sent
    assert "SECRET-CONTEXT" not in run.sent
    links = [folder / name for folder in run.folders for name in ("AGENTS.md", "docs/HOUSE.md")]
    assert sorted(run.warned) == sorted(map(str, links))


@pytest.mark.gemini_cli
async def test_a_folders_own_skill_is_listed_but_only_yolo_activates_it_unasked(included):
    """Without `trust_workspace`; that `yolo` does is seen above. And a broken package file of the
    folder, which Node would read for what is loaded ahead of the CLI, stops no run."""
    run = await included()
    assert (run.result.status, run.result.text) == ("success", "Done.")
    assert [(one.name, one.status) for one in run.result.tools] == [("activate_skill", "error")]
    assert "INSIDE-SKILL" in run.sent
    assert "BODY-OF" not in run.bodies


@pytest.mark.gemini_cli
async def test_the_guests_of_a_pool_do_not_read_each_others_files(
    fake_gemini, real_transport, tmp_path
):
    """One process knows the folders of both, and each session has its own project."""
    ada, eve = tmp_path / "ada", tmp_path / "eve"
    for folder in (ada, eve):
        (folder / ".git").mkdir(parents=True)
    (ada / "GEMINI.md").write_text("INSIDE-ADA\n")
    (eve / "GEMINI.md").symlink_to(ada / "GEMINI.md")
    options = Options(cwd=ada, env=fake_gemini.env, model=MODEL)
    fake_gemini.say("Hello, Ada.").say("Hello, Eve.")
    async with Pool(Acp(executable=real_transport.executable), size=1, spare=False) as pool:
        async with connect(options, via=pool) as hers:
            await hers.ask("Hello")
            before = len(fake_gemini.requests)
            with pytest.warns(UserWarning, match="eve/GEMINI.md"):
                async with connect(options.changed(cwd=eve), via=pool) as other:
                    await other.ask("Hello")
        assert pool.report().started == 1
    of_eve = [str(one.body) for one in fake_gemini.requests[before:]]
    assert of_eve
    assert not [text for text in of_eve if "INSIDE-ADA" in text]
    assert "INSIDE-ADA" in str(fake_gemini.requests[0].body)


@pytest.mark.parametrize("what", ["link", "pipe"])
async def test_a_cli_that_cannot_be_kept_from_it_is_not_started(stand_in, tmp_path, what):
    """The files are refused by what Node loads ahead of the CLI: another program has no Node."""
    (tmp_path / "secret").write_text("SECRET\n")
    work = tmp_path / "work"
    work.mkdir()
    file = work / "GEMINI.md"
    file.symlink_to(tmp_path / "secret") if what == "link" else os.mkfifo(file)
    transport = stand_in()
    with pytest.raises(Unsupported, match=r"GEMINI.md") as refused:
        await ask("Go", Options(cwd=work), via=transport)
    assert "Cli(outside_links=True)" in str(refused.value)
    assert not [*(tmp_path / "stand-in").glob("*.call")]


async def test_one_option_starts_a_warm_cli_with_such_links_too(stand_in_acp, clone, outside):
    """One that cannot be kept from them is started only so."""
    put_links(clone / "work", outside)
    options = Options(cwd=clone / "work")
    with pytest.raises(Unsupported, match=r"GEMINI\.md"):
        await ask("Go", options, via=stand_in_acp("well_behaved"))
    transport = stand_in_acp("well_behaved", outside_links=True)
    assert (await ask("Go", options, via=transport)).text == "Hello"


async def test_a_sandbox_has_a_cli_of_its_own_and_is_not_started_either(real_transport, tmp_path):
    (tmp_path / "secret").write_text("SECRET\n")
    (tmp_path / "work").mkdir()
    (tmp_path / "work/GEMINI.md").symlink_to(tmp_path / "secret")
    transport = Cli(executable=real_transport.executable, sandbox=True)
    with pytest.raises(Unsupported, match="without a sandbox"):
        await ask("Go", Options(cwd=tmp_path / "work"), via=transport)


@pytest.mark.gemini_cli
@pytest.mark.parametrize("kind", [Cli, Acp])
async def test_pipes_in_place_of_files_keep_no_run_waiting(
    fake_gemini, real_transport, clone, kind
):
    """Nobody writes to them: whoever opened one to read would wait forever."""
    work = clone / "work"
    (work / ".gemini/skills/pipe").mkdir(parents=True)
    pipes = (
        *("GEMINI.md", ".env", "../.env", ".gemini/skills/pipe/SKILL.md", "sub/GEMINI.md"),
        *(".geminiignore", ".gitignore", "imported"),
    )
    (work / "sub").mkdir()
    (work / "sub/b.txt").write_text("b\n")
    for pipe in pipes:
        os.mkfifo(work / pipe)
    (work / "notes/GEMINI.md").write_text("INSIDE-NOTES @../imported\n")
    fake_gemini.call("read_file", file_path="sub/b.txt").call("read_file", file_path="notes/a.txt")
    fake_gemini.call("read_file", file_path="imported").say("Done.")
    options = Options(cwd=work, env=fake_gemini.env, model=MODEL, timeout=45)
    transport = kind(executable=real_transport.executable)
    with pytest.warns(UserWarning, match="is not a regular file") as warned:
        async with run("Go", options, via=transport) as live:
            results = [event async for event in live if isinstance(event, ToolResult)]
    assert live.result.status == "success", live.result.errors
    assert [one.status for one in results] == ["success", "success", "error"]
    assert {"INSIDE-RULES", "INSIDE-NOTES"} <= sent(fake_gemini)
    assert {Path(str(one.message).split("'")[1]) for one in warned} == {
        work / "GEMINI.md",
        work / ".gemini/skills/pipe/SKILL.md",
    }


@pytest.mark.parametrize("name", ["HEAD", "index", "config"])
async def test_a_pipe_in_the_folder_of_git_is_refused(tmp_path, stand_in, name):
    """The CLI starts git, which would wait forever."""
    (tmp_path / "work/.git").mkdir(parents=True)
    os.mkfifo(tmp_path / "work/.git" / name)
    with pytest.raises(ConfigError, match=f"{name}.*not a regular file"):
        await ask("Go", Options(cwd=tmp_path / "work"), via=stand_in())


def test_the_guard_lets_the_cli_read_a_pipe_that_has_no_name(real_transport, tmp_path):
    """`/dev/stdin` is a link to what lies in no folder at all."""
    guard = ReadGuard(tmp_path, Cli(), [tmp_path])
    for name, text in guard.files.items():
        (tmp_path / name).write_text(text)
    node = find_cli(real_transport.executable).node
    assert node is not None
    script = "process.stdout.write(require('fs').readFileSync('/dev/stdin'))"
    command = [str(node.path), guard.node_flag, "--eval", script]
    answer = subprocess.run(command, input=b"said", capture_output=True, timeout=60, check=False)
    assert (answer.stdout, answer.stderr) == (b"said", b"")
