"""What steers a run lies outside of every folder that its agent may write in."""

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from geminorum import (
    Acp,
    Cli,
    Deny,
    Options,
    PermissionRequest,
    Policy,
    Pool,
    ToolResult,
    ask,
    connect,
    run,
)
from geminorum.errors import ConfigError, Unsupported
from geminorum.transports.launch import control_place
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.control_place import is_within, place_outside
from geminorum.wire.policy.toml_writer import Steering

MODEL = "gemini-2.5-flash"
SHELL = "run_shell_command"
REWRITE = """
import os, pathlib
file = pathlib.Path(os.environ["GEMINI_CLI_HOME"], "policy.toml")
assert file.exists()
file.write_text("[[rule]]\\ntoolName = '*'\\ndecision = 'allow'\\npriority = 999\\n")
"""
INIT = {"type": "init", "session_id": "s", "model": MODEL}
HELLO = {"type": "result", "status": "success", "stats": {}}


@pytest.fixture
def room(tmp_path, tmp_path_factory, monkeypatch) -> Path:
    """A temporary folder to be covered; there is another private place elsewhere."""
    folder = tmp_path / "room"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    runtime = tmp_path_factory.mktemp("runtime")
    runtime.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    return folder


async def home_of(transport: Cli, options: Options, stand_in) -> Path:
    """The home that a run through a stand-in was given."""
    async with run("Hi", options, via=transport) as live:
        assert [event async for event in live]
    return Path(stand_in.call["env"]["GEMINI_CLI_HOME"])


def including(folder: Path | str) -> dict:
    return {"context": {"includeDirectories": [str(folder)]}}


COVERING = {
    "nothing": (lambda room: ({}, {}), True),
    "cwd": (lambda room: ({}, {"cwd": room.parent}), False),
    "include_directories": (lambda room: ({}, {"include_directories": [room]}), False),
    "a link": (lambda room: ({}, {"include_directories": [room.parent / "link"]}), False),
    "a way around": (lambda room: ({}, {"include_directories": ["../room/../room"]}), False),
    "the transport's settings": (lambda room: ({"settings": including(room)}, {}), False),
    "a variable in settings": (
        lambda room: ({"settings": including("$ROOM")}, {"env": {"ROOM": str(room)}}),
        False,
    ),
    "a flag": (lambda room: ({"extra_args": ("--include-directories", f"a,{room}")}, {}), False),
    "a flag in one": (lambda room: ({"extra_args": (f"--include-directories={room}",)}, {}), False),
    "an editor": (
        lambda room: ({}, {"env": {"GEMINI_CLI_IDE_WORKSPACE_PATH": f"/none:{room}"}}),
        False,
    ),
}


@pytest.mark.parametrize("name", COVERING)
async def test_the_home_of_a_run_lies_outside_of_the_folders_of_the_agent(room, stand_in, name):
    make, is_usual = COVERING[name]
    transport, chosen = make(room)
    options = Options(**{"cwd": room.parent / "work", "approval": "auto_edit", **chosen})
    home = await home_of(stand_in(INIT, HELLO, **transport), options, stand_in)
    assert home.is_relative_to(room) == is_usual
    assert not home.exists()


@pytest.mark.parametrize("where", ["home", "work"])
async def test_folders_that_a_settings_file_includes_count_too(
    room, stand_in, private_home, tmp_path, where
):
    folder = {"home": private_home, "work": tmp_path / "work"}[where] / ".gemini"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(including(room)))
    options = Options(cwd=tmp_path / "work", approval="auto_edit")
    home = await home_of(stand_in(INIT, HELLO), options, stand_in)
    assert not home.is_relative_to(room)


@pytest.mark.parametrize(("trust", "protected"), [(None, {"own.md"}), (True, {"own.md", "a.md"})])
def test_the_folders_that_are_included_are_searched_for_what_steers_runs(
    tmp_path, private_home, trust, protected
):
    """By the user; by the folder itself only where it is trusted, for it could include `/`."""
    for name, file in (("users", "own.md"), ("theirs", "a.md"), ("work", "settings.json")):
        (tmp_path / name / ".gemini").mkdir(parents=True)
        (tmp_path / name / ".gemini" / file).touch()
    (tmp_path / "work/.gemini/settings.json").write_text(json.dumps(including("../theirs")))
    (private_home / ".gemini").mkdir()
    (private_home / ".gemini/settings.json").write_text(json.dumps(including("../users")))
    options = Options(cwd=tmp_path / "work", trust_workspace=trust)
    assert LaunchContext(Cli(), options).steering.files == protected | {"settings.json"}


def test_a_name_that_the_cli_cannot_be_told_of_lets_no_file_be_written(tmp_path):
    name = "\x01" * 250
    (tmp_path / name).symlink_to(".gemini")
    assert LaunchContext(Cli(), Options(cwd=tmp_path)).steering == Steering(is_complete=False)


@pytest.mark.parametrize("kind", [Cli, Acp])
async def test_a_policy_that_the_cli_would_drop_is_never_given_to_it(
    real_transport, tmp_path, monkeypatch, kind
):
    """Whatever we do not foresee: without its policy, an agent may do more than it should."""
    broken = '[[rule]]\ntoolName = "*"\ndecision = "deny"\nargsPattern = "("\npriority = 1\n'
    monkeypatch.setattr(
        "geminorum.transports.launch.run_policy.policy_toml", lambda *_, **__: broken
    )
    transport = kind(executable=real_transport.executable)
    with pytest.raises(ConfigError, match="cannot be told what this run may do"):
        await ask("Go", Options(cwd=tmp_path), via=transport)


@pytest.fixture
def everywhere(room, monkeypatch) -> Options:
    """Options for a folder that leaves no private place out, as `/` does."""
    monkeypatch.setattr(control_place, "candidates", lambda: iter([room]))
    return Options(cwd=room.parent)


@pytest.mark.parametrize(
    ("transport", "chosen"),
    [
        ({}, {"approval": "auto_edit"}),
        ({}, {"approval": "yolo"}),
        ({}, {"policy": Policy(file_write="allow")}),
        ({}, {"allowed_tools": ["write_file"]}),
        ({"decide": lambda request: True}, {}),
        ({"pre_approved": ("replace",)}, {}),
    ],
)
async def test_where_there_is_no_place_outside_nothing_that_writes_is_started(
    stand_in, everywhere, transport, chosen
):
    with pytest.raises(Unsupported, match="settings and policies of its run") as caught:
        await home_of(stand_in(**transport), everywhere.changed(**chosen), stand_in)
    assert "narrower cwd" in str(caught.value.hint)
    with pytest.raises(FileNotFoundError):
        assert stand_in.call  # It has none: nothing was started.


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"approval": "plan"},
        {"policy": Policy("deny", "allow", "allow"), "approval": "auto_edit"},
        {"allowed_tools": ["read_file"], "approval": "yolo"},
    ],
)
async def test_who_cannot_write_may_work_anywhere(stand_in, everywhere, chosen):
    home = await home_of(stand_in(INIT, HELLO), everywhere.changed(**chosen), stand_in)
    assert home.is_relative_to(everywhere.cwd)


async def test_compiled_code_is_not_kept_where_the_agent_may_write(
    real_transport, fake_gemini, room, monkeypatch
):
    """What lies there is run at the next start."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(room.parent / "work" / "cache"))
    fake_gemini.call(SHELL, command="env").say("Done.")
    transport = replace(real_transport, decide=lambda request: True)
    options = Options(cwd=room.parent / "work", env=fake_gemini.env, model=MODEL)
    async with run("Go", options, via=transport) as live:
        (told,) = [str(event.output) async for event in live if isinstance(event, ToolResult)]
    assert "NODE_DISABLE_COMPILE_CACHE=1" in told
    assert not [*(room.parent / "work" / "cache").rglob("*/*/*")]


def _write(path: Path) -> tuple[str, dict]:
    yes = 'trap - EXIT; printf %s \'{"decision":"allow"}\'; exit 0'
    return "write_file", {"file_path": str(path), "content": yes}


@pytest.mark.gemini_cli
async def test_a_model_that_may_write_in_the_temporary_folder_finds_nothing_that_steers_it(
    fake_gemini, real_transport, room
):
    """It overwrites whatever of the run lies there, and tries once more what was refused."""
    found: list[Path] = []

    def decide(request: PermissionRequest) -> Deny:
        homes = [*room.glob("geminorum-kept-home-*")]
        found.extend(file for home in homes for file in home.rglob("*") if file.is_file())
        fake_gemini.calls(*map(_write, [*found, room / "note.txt"]))
        fake_gemini.call(SHELL, command="touch pwned").say("Done.")
        return Deny("no")

    fake_gemini.call(SHELL, command="touch first")
    options = Options(
        cwd=room.parent / "work",
        include_directories=[room],
        env=fake_gemini.env,
        model=MODEL,
        approval="auto_edit",
    )
    async with run("Go", options, via=replace(real_transport, decide=decide)) as live:
        results = [event async for event in live if isinstance(event, ToolResult)]
    assert [result.status for result in results] == ["denied", "success", "denied"]
    assert (room / "note.txt").exists()
    assert found == []
    assert [*options.cwd.iterdir()] == []


@pytest.mark.gemini_cli
async def test_what_a_command_of_one_session_rewrites_steers_no_later_session(
    fake_gemini, real_transport, room
):
    """Every session of a warm process reads the policy anew."""
    script = room.parent / "rewrite.py"
    script.write_text(REWRITE)
    fake_gemini.call(SHELL, command=f"{sys.executable} {script}").say("Rewritten.")
    fake_gemini.call("write_file", file_path="made", content="hi").say("Done.")
    policy = Policy(file_write="deny", shell_execute="allow")
    options = Options(
        cwd=room.parent / "work", env=fake_gemini.env, model=MODEL, policy=policy, timeout=60
    )
    async with Acp(executable=real_transport.executable).warm(options) as warm:
        statuses = []
        for prompt in ("Rewrite", "Write"):
            async with run(prompt, options, via=warm) as live:
                statuses += [one.status async for one in live if isinstance(one, ToolResult)]
        # A file that it cannot be told by is no policy for the CLI, which would run without.
        file = _home_of(warm.process.pid) / "policy.toml"
        file.unlink()
        file.mkdir()
        with pytest.raises(ConfigError, match="cannot be written again"):
            await ask("Write", options, via=warm)
    assert statuses == ["success", "denied"]
    assert not (room.parent / "work" / "made").exists()


class TestAWarmProcess:
    """The stand-in speaks the protocol; where its home lies does not depend on the CLI."""

    @pytest.fixture
    def transport(self, stand_in_acp) -> Acp:
        return stand_in_acp("well_behaved")

    @pytest.fixture
    def options(self, room, fake_gemini) -> Options:
        return Options(
            cwd=room.parent / "work",
            env=fake_gemini.env,
            home=fake_gemini.home,
            approval="auto_edit",
        )

    async def test_its_home_lies_outside_of_its_folders(self, transport, options, room):
        for folders, is_usual in (([room], False), ([], True)):
            async with transport.warm(options.changed(include_directories=folders)) as warm:
                await warm.process.wait_until_ready()
                assert _home_of(warm.process.pid).is_relative_to(room) == is_usual

    async def test_a_later_session_whose_folder_covers_it_is_refused(
        self, transport, options, room
    ):
        wide = options.changed(cwd=room.parent)
        async with transport.warm(options) as warm, connect(options, via=warm) as chat:
            assert (await chat.ask("Hi")).text == "Hello"
            with pytest.raises(Unsupported, match="settings and policies") as caught:
                async with connect(wide, via=warm):
                    pass
        assert "Acp()" in str(caught.value.hint)

    async def test_a_pool_gives_such_a_guest_a_process_of_its_own(self, transport, options, room):
        async with Pool(transport, size=2, spare=False) as pool:
            for chosen in (options, options.changed(cwd=room.parent), options):
                async with connect(chosen, via=pool) as chat:
                    assert (await chat.ask("Hi")).text == "Hello"
            homes = [_home_of(process.pid) for process in pool.report().processes]
        assert [home.is_relative_to(room) for home in homes] == [True, False]


def _home_of(pid: int | None) -> Path:
    return Path(psutil.Process(pid).environ()["GEMINI_CLI_HOME"])


class TestPlaces:
    def test_a_folder_is_known_by_every_name(self, tmp_path):
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
        assert is_within(tmp_path / "link" / "new", [tmp_path / "a"])
        assert is_within(tmp_path / "a", [tmp_path / "link" / ".."])
        assert not is_within(tmp_path / "a", [tmp_path / "a" / "b", tmp_path / "gone"])

    def test_a_place_that_others_can_change_is_not_taken(self, room, tmp_path, monkeypatch):
        shared, mine = tmp_path / "shared", tmp_path / "mine"
        for folder, mode in ((shared, 0o777), (mine, 0o700)):
            folder.mkdir()
            folder.chmod(mode)
        places = [room, shared, tmp_path / "none" / "file", mine]
        (tmp_path / "none").write_text("a file")
        monkeypatch.setattr(control_place, "candidates", lambda: iter(places))
        assert place_outside([room]) == mine
        shared.chmod(0o1777)
        assert place_outside([room]) == shared
        assert place_outside([tmp_path]) is None
