"""What a folder brings into a run by itself: files of the project, and nothing from outside."""

import json
import os
import re
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from geminorum import Acp, Cli, Options, Pool, ToolResult, ask, connect, run
from geminorum.detect import find_cli
from geminorum.errors import ConfigError, Unsupported
from geminorum.testing import FakeGemini
from geminorum.transports.launch.preloads.read_guard import ReadGuard

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
    """At the start, when a tool meets a folder, and when a skill is activated by its name."""
    put_links(clone / "work", outside)
    for folder in ("sub/b.txt", "imports/c.txt", "notes/a.txt"):
        fake_gemini.call("read_file", file_path=folder)
    fake_gemini.call("activate_skill", name="borrowed").call("activate_skill", name="fine")
    fake_gemini.say("Done.")
    options = Options(cwd=clone / "work", env=fake_gemini.env, model=MODEL, approval="yolo")
    transport = kind(executable=real_transport.executable)
    with pytest.warns(UserWarning, match="leads outside of the project") as warned:
        async with run("Go", options, via=transport) as live:
            results = [event async for event in live if isinstance(event, ToolResult)]
    assert [one.status for one in results] == ["success"] * 3 + ["error", "success"]
    inside = {"INSIDE-RULES", "INSIDE-SKILL", "INSIDE-NOTES"}
    assert sent(fake_gemini) == inside
    named = {str(one.message).split("'")[1] for one in warned}
    left_out = ("GEMINI.md", ".gemini/skills/borrowed/SKILL.md", ".agents/skills/other/SKILL.md")
    assert named == {str(clone / "work" / file) for file in left_out}
    assert f"{kind.__name__}(outside_links=True)" in str(warned[0].message)


@pytest.mark.gemini_cli
@pytest.mark.parametrize("kind", [Cli, Acp])
async def test_one_option_lets_the_links_in(fake_gemini, real_transport, clone, outside, kind):
    put_links(clone / "work", outside)
    fake_gemini.say("Done.")
    options = Options(cwd=clone / "work", env=fake_gemini.env, model=MODEL)
    transport = kind(executable=real_transport.executable, outside_links=True)
    assert (await ask("Go", options, via=transport)).text == "Done."
    assert {"SECRET-CONTEXT", "SECRET-SKILL"} <= sent(fake_gemini)


@pytest.mark.gemini_cli
@pytest.mark.parametrize("named_by", ["options", "the user's settings", "extra_args"])
async def test_an_included_folder_and_a_name_from_the_settings_count_too(
    fake_gemini, real_transport, clone, outside, monkeypatch, named_by
):
    """An included folder may be linked to; what is read in it may not lead outside. The user's
    own file is read also where the temporary folder, and so the run's home, is in the project."""
    (clone / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(clone / "tmp"))
    (fake_gemini.home / ".gemini/GEMINI.md").write_text("INSIDE-HOME\n")
    settings = {"context": {"fileName": ["AGENTS.md", "docs/HOUSE.md"]}}
    included = outside.parent / "included"
    (included / "docs").mkdir(parents=True)
    (included / "shared").write_text("INSIDE-SHARED\n")
    (included / "AGENTS.md").symlink_to(outside / "secret")
    (included / "docs/HOUSE.md").symlink_to(outside / "secret")
    (clone / "work/AGENTS.md").symlink_to(included / "shared")
    fake_gemini.say("Done.")
    options = Options(cwd=clone / "work", env=fake_gemini.env, model=MODEL)
    transport = Cli(executable=real_transport.executable, settings=settings)
    if named_by == "options":
        options = options.changed(include_directories=(included,))
    elif named_by == "extra_args":
        transport = replace(transport, extra_args=("--include-directories", str(included)))
    else:
        file = fake_gemini.home / ".gemini/settings.json"
        theirs = {"includeDirectories": [str(included)], "loadMemoryFromIncludeDirectories": True}
        file.write_text(json.dumps(json.loads(file.read_text()) | {"context": theirs}))
    with pytest.warns(UserWarning, match="leads outside") as warned:
        assert (await ask("Go", options, via=transport)).text == "Done."
    assert {"INSIDE-SHARED", "INSIDE-RULES", "INSIDE-HOME"} <= sent(fake_gemini)
    assert "SECRET-CONTEXT" not in sent(fake_gemini)
    assert {str(one.message).split("'")[1] for one in warned} == {
        str(included / "AGENTS.md"),
        str(included / "docs/HOUSE.md"),
    }


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


async def test_a_sandbox_has_a_cli_of_its_own_and_is_not_started_either(real_transport, tmp_path):
    (tmp_path / "secret").write_text("SECRET\n")
    (tmp_path / "work").mkdir()
    (tmp_path / "work/GEMINI.md").symlink_to(tmp_path / "secret")
    transport = Cli(executable=real_transport.executable, sandbox=True)
    with pytest.raises(Unsupported, match="without a sandbox"):
        await ask("Go", Options(cwd=tmp_path / "work"), via=transport)


@pytest.mark.gemini_cli
async def test_a_folders_own_skill_is_listed_but_only_yolo_activates_it_unasked(
    fake_gemini, real_transport, clone
):
    """Without `trust_workspace`; that `yolo` does is seen above. And a broken package file of the
    folder, which Node would read for what is loaded ahead of the CLI, stops no run."""
    (clone / "work/package.json").write_text("<<<<<<< HEAD\n")
    fake_gemini.call("activate_skill", name="fine").say("Done.")
    options = Options(cwd=clone / "work", env=fake_gemini.env, model=MODEL, approval="auto_edit")
    async with run("Go", options, via=real_transport) as live:
        results = [event async for event in live if isinstance(event, ToolResult)]
    assert (live.result.status, live.result.text) == ("success", "Done.")
    assert [one.status for one in results] == ["error"]
    everything = str([one.body for one in fake_gemini.requests])
    assert "INSIDE-SKILL" in everything
    assert "BODY-OF" not in everything


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


@pytest.mark.gemini_cli
@pytest.mark.parametrize("kind", [Cli, Acp])
async def test_neither_names_in_two_readings_nor_a_package_of_the_folder_get_round_the_guard(
    fake_gemini, real_transport, tmp_path, outside, kind
):
    """The CLI checks `d%64` decoded and reads it as it stands; Node asks the folder's package.json
    where a preloaded script lies."""
    repo = tmp_path / "clone"
    for folder in (".git", "d%64"):
        (repo / folder).mkdir(parents=True)
    for name in (".xignore", ".env", ".gitignore"):
        (repo / "d%64" / name).symlink_to(outside / "secret")
    (repo / "GEMINI.md").write_text("@./d%64/.xignore @./d%64/.env @./d%64/.gitignore\n")
    (repo / "l%64").symlink_to(outside / "listing")
    (repo / "package.json").write_text('{"name": "", "exports": {"./*": "./evil.cjs"}}')
    (repo / "evil.cjs").write_text("require('fs').writeFileSync(__dirname + '/PWNED', '')")
    fake_gemini.call("list_directory", dir_path="l%64").say("Done.")
    options = Options(cwd=repo, env=fake_gemini.env, model=MODEL)
    assert (
        await ask("Go", options, via=kind(executable=real_transport.executable))
    ).text == "Done."
    assert "SECRET" not in str([request.body for request in fake_gemini.requests])
    assert not (repo / "PWNED").exists()


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
