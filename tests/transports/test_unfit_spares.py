"""A CLI that was started ahead is used only where one that starts now would be the same."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from geminorum import Acp, Cli, Options, ask, errors
from geminorum.detect import CliProgram, Node
from geminorum.tools import Tool
from geminorum.transports.callbacks.backchannel import callbacks_of
from geminorum.transports.cli.spares import SpareOrder, without_system
from geminorum.transports.cli.transport import CliConversation
from geminorum.transports.launch.command import headless_command, warm_command
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.plan import Reachable
from geminorum.transports.launch.preloads.start_record import (
    TOO_FRESH_NS,
    Look,
    StartRecord,
    state_of,
)
from geminorum.transports.launch.prepared import PreparedLaunch
from geminorum.transports.process.descendants import Descendants
from geminorum.wire.policy.toml_writer import OwnTools

PROGRAM = CliProgram(
    ("/x/node", "/x/bundle/gemini.js"),
    Path("/x/gemini"),
    (0, 61, 0),
    Node(Path("/x/node"), (24, 0, 0)),
)


def read(file: Path) -> Look:
    return Look(str(file), 1, state_of(str(file)))


def looked_up(file: Path) -> Look:
    return Look(str(file), 0, state_of(str(file)))


def kept(record: StartRecord) -> list[str]:
    return [look.file for look in record.looks]


# ---- files


def looks_at(*files: str) -> StartRecord:
    return StartRecord(tuple(Look(file, 1, None) for file in files), ())


@pytest.mark.parametrize("cwd", ["/dev/shm/work", "/proc/work"])
def test_what_lies_in_the_folder_of_the_agent_counts_wherever_that_is(cwd):
    record = looks_at("/proc/version", "/dev/null", cwd, f"{cwd}/GEMINI.md", "/proc/workshop/x")
    found = without_system(record, Path("/package"), [Path(cwd)])
    assert kept(found) == [cwd, f"{cwd}/GEMINI.md"]


def test_shared_memory_is_no_device():
    """The folders above that of the agent count, too."""
    record = looks_at("/dev/shm/GEMINI.md", "/dev/tty")
    assert kept(without_system(record, Path("/package"), [])) == ["/dev/shm/GEMINI.md"]


@pytest.mark.parametrize(
    ("cwd", "counts"), [("work", False), ("package", True), ("package/a", True)]
)
def test_the_package_of_the_cli_counts_where_the_agent_works_in_it(tmp_path, cwd, counts):
    (tmp_path / cwd).mkdir(parents=True)
    file = str(tmp_path / "package/GEMINI.md")
    found = without_system(looks_at(file), tmp_path / "package", [tmp_path / cwd])
    assert kept(found) == [file] * counts


def test_a_folder_counts_under_each_of_its_names(tmp_path):
    """A process that is started in a link calls its folder by the real name."""
    real, link = tmp_path / "package" / "real", tmp_path / "link"
    real.mkdir(parents=True)
    link.symlink_to(real)
    record = StartRecord((looked_up(real / "a"), looked_up(tmp_path / "package/b")), ())
    found = record.outside([tmp_path / "package"], but_for=[link])
    assert kept(found) == [str(real / "a")]


def hide_new_file(folder: Path) -> None:
    before = folder.stat()
    (folder / "new").write_text("x")
    # The clock of a file system may stand still for some milliseconds.
    while folder.stat().st_ctime_ns == before.st_ctime_ns:
        os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_folder_whose_time_was_set_back_has_changed(tmp_path):
    record = StartRecord((read(tmp_path),), ())
    assert record.first_difference() is None
    hide_new_file(tmp_path)
    assert record.first_difference() == str(tmp_path)


@pytest.mark.parametrize("look", [looked_up, read])
def test_other_permissions_are_a_difference(tmp_path, look: Callable[[Path], Look]):
    """Where the CLI may not look, it finds something else."""
    file = tmp_path / "file"
    file.write_text("x")
    file.chmod(0o644)
    record = StartRecord((look(file),), ())
    file.chmod(0o000)
    assert record.first_difference() == str(file)


def test_another_owner_is_a_difference(tmp_path):
    device, number, mode, owner, *others = state_of(str(tmp_path))
    before = (device, number, mode, str(int(owner) + 1), *others)
    assert StartRecord((Look(str(tmp_path), 0, before),), ()).first_difference() == str(tmp_path)


# ---- what no record has


@pytest.fixture
def options(tmp_path) -> Options:
    for name in ("work", "home"):
        (tmp_path / name).mkdir()
    env = {"GEMINI_API_KEY": "key-of-nobody", "HOME": str(tmp_path / "home")}
    return Options(cwd=tmp_path / "work", home=tmp_path / "home", env=env)


Difference = Callable[..., str | None]


@pytest.fixture
def ahead(options) -> Iterator[Callable[..., Difference]]:
    """Prepares a launch; what that returns says what would be different by now."""
    with ExitStack() as stack:

        def prepare(transport: Cli | Acp | None = None, **changed: Any) -> Difference:
            transport = Cli() if transport is None else transport
            context = LaunchContext(transport, options.changed(**changed))
            launch = stack.enter_context(prepared(context))

            def difference(**later: Any) -> str | None:
                now = LaunchContext(transport, options.changed(**{**changed, **later}))
                return launch.plan.difference(launch.plan_for(now))

            return difference

        yield prepare


def prepared(context: LaunchContext) -> PreparedLaunch:
    make = headless_command if isinstance(context.transport, Cli) else warm_command
    return PreparedLaunch(
        context,
        PROGRAM,
        make_command=make,
        reachable=Reachable(OwnTools()),
        announce=lambda *_: {},
        records_start=True,
    )


def write(file: Path, text: str) -> Path:
    """What was written a moment ago is not trusted, so this takes a moment."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    while time.time_ns() - file.stat().st_ctime_ns <= TOO_FRESH_NS:
        time.sleep(0.005)
    return file


def append_hook(settings: dict[str, Any]) -> None:
    settings["hooks"]["BeforeTool"].append({"matcher": "run_shell_command"})


def say_true(settings: dict[str, Any]) -> None:
    """In Python, that is the same as before."""
    settings["x"]["y"] = True


@pytest.mark.parametrize("change", [append_hook, say_true], ids=lambda change: change.__name__)
@pytest.mark.parametrize("kind", [Cli, Acp])
def test_settings_that_are_changed_in_place_hold_for_what_starts_then(options, kind, change):
    settings = {"hooks": {"BeforeTool": []}, "x": {"y": 1}}
    transport = kind(settings=settings)
    with prepared(LaunchContext(transport, options)) as launch:
        before = json.dumps(launch.settings)
        assert launch.plan.difference(launch.plan_for(LaunchContext(transport, options))) is None
        change(settings)
        now = launch.plan_for(LaunchContext(transport, options))
        assert "settings" in str(launch.plan.difference(now))
        # What runs already has what it was started with, and so has whatever asks for it later.
        assert json.dumps(launch.settings) == json.dumps(launch.plan.home.settings) == before
    with prepared(LaunchContext(transport, options)) as launch:
        written = json.loads((launch.home / ".gemini/settings.json").read_text())
    assert {name: written[name] for name in settings} == settings


def test_settings_that_have_become_unfit_are_refused(ahead):
    settings: dict[str, Any] = {"x": {}}
    difference = ahead(Cli(settings=settings))
    settings["x"]["itself"] = settings
    with pytest.raises(errors.InvalidOptions, match="settings: Circular"):
        difference()


def test_another_umask_is_a_difference(ahead):
    before = os.umask(0o022)
    try:
        difference = ahead()
        assert difference() is None
        os.umask(0o077)
        assert difference() == "it has other rights, limits or another umask"
    finally:
        os.umask(before)


def test_another_limit_is_a_difference(ahead):
    difference = ahead()
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0 if soft else 4096, hard))
    try:
        assert difference() == "it has other rights, limits or another umask"
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert difference() is None


SERVERS = {
    "the script": {"command": "python3", "args": ["{file}"]},
    "the script, from its folder": {"command": "python3", "args": ["{name}"], "cwd": "{folder}"},
    "a file in an option": {"command": "python3", "args": ["--config={file}"]},
    "a file in a variable": {"command": "python3", "args": ["$WHERE/{name}"]},
    "the program": {"command": "{file}"},
    "the program, on PATH": {"command": "{name}"},
}


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
@pytest.mark.parametrize("where", ["settings", "extension"])
def test_another_mcp_server_is_a_difference(ahead, options, tmp_path, server, where):
    file = write(tmp_path / "server" / "serve", "one")
    file.chmod(0o755)
    write(file, "one")
    text = json.dumps(server).replace("{file}", str(file)).replace("{name}", file.name)
    told = {"mcpServers": {"x": json.loads(text.replace("{folder}", str(file.parent)))}}
    if where == "extension":
        write(options.home / ".gemini/extensions/x/gemini-extension.json", json.dumps(told))
    env = {**options.env, "PATH": f"{file.parent}:{os.environ['PATH']}", "WHERE": str(file.parent)}
    difference = ahead(Cli(settings=told if where == "settings" else {}), env=env)
    assert difference() is None
    file.write_text("two")
    assert difference() == f"{str(file)!r} has changed"


def test_a_server_in_the_folder_of_its_extension_is_found(ahead, options):
    folder = options.home / ".gemini/extensions/x"
    file = write(folder / "server.js", "one")
    server = {"command": "node", "args": ["${extensionPath}/server.js"]}
    write(folder / "gemini-extension.json", json.dumps({"mcpServers": {"x": server}}))
    difference = ahead()
    assert difference() is None
    file.write_text("two")
    assert difference() == f"{str(file)!r} has changed"


@pytest.mark.parametrize(
    "server", [None, 1, {}, {"command": 1}, {"args": [1, "\0", "x" * 5000]}, {"command": "\0"}]
)
def test_a_server_that_cannot_be_is_none(ahead, server):
    assert ahead(Cli(settings={"mcpServers": {"x": server}}))() is None


def test_a_file_that_was_written_just_now_may_be_written_again_unseen(ahead, tmp_path):
    file = tmp_path / "ca.pem"
    file.write_text("one")
    difference = ahead(env={"NODE_EXTRA_CA_CERTS": str(file)})
    write(file, "one")
    assert difference() == f"{str(file)!r} has changed"


def test_other_certificates_are_a_difference(ahead, tmp_path):
    file = write(tmp_path / "ca.pem", "one")
    difference = ahead(env={"NODE_EXTRA_CA_CERTS": str(file)})
    assert difference() is None
    file.write_text("two")
    assert difference() == f"{str(file)!r} has changed"


def repository(folder: Path) -> Path:
    subprocess.run(["git", "init", "-q", folder], check=True)
    write(folder / ".git/config", (folder / ".git/config").read_text())
    return folder


def test_the_configuration_of_the_repository_around_the_folder_counts(ahead, tmp_path):
    root = repository(tmp_path / "repository")
    (root / "a/b").mkdir(parents=True)
    difference = ahead(cwd=root / "a/b")
    # Git itself writes to its folder with every command.
    (root / ".git/index.lock").touch()
    assert difference() is None
    subprocess.run(["git", "config", "core.worktree", "/"], cwd=root, check=True)
    assert difference() == f"{str(root / '.git/config')!r} has changed"


def test_a_repository_nearer_to_the_folder_is_a_difference(ahead, tmp_path):
    root = repository(tmp_path / "repository")
    (root / "a/b").mkdir(parents=True)
    difference = ahead(cwd=root / "a/b")
    (root / "a/.git").mkdir()
    assert difference() is not None


def test_a_worktree_has_the_configuration_of_its_repository(ahead, tmp_path):
    root = repository(tmp_path / "repository")
    linked = root / ".git/worktrees/x"
    write(linked / "commondir", "../..\n")
    write(tmp_path / "tree/.git", f"gitdir: {linked}\n")
    difference = ahead(cwd=tmp_path / "tree")
    assert difference() is None
    (root / ".git/config").write_text("[core]\n\tworktree = /\n")
    assert "config" in str(difference())


def test_the_configuration_of_git_counts(ahead, options):
    difference = ahead()
    (options.home / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
    assert difference() == f"{str(options.home / '.gitconfig')!r} has changed"


# ---- what the model is offered


def order_for(transport: Cli, options: Options) -> SpareOrder:
    return SpareOrder(transport, options, PROGRAM, callbacks_of(transport, options))


def schema(**limits: object) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": limits}}


def test_a_schema_with_true_is_another_than_one_with_1(options):
    one, true = (
        order_for(Cli(), options.changed(output_schema=schema(const=value))) for value in (1, True)
    )
    assert not one.resembles(true)


def test_a_schema_that_is_changed_in_place_is_another(options):
    wanted = schema(type="integer", enum=[1])
    before = order_for(Cli(), options.changed(output_schema=wanted))
    assert before.resembles(order_for(Cli(), options.changed(output_schema=wanted)))
    wanted["properties"]["x"]["enum"].append(2)
    assert not before.resembles(order_for(Cli(), options.changed(output_schema=wanted)))


def test_a_function_that_is_described_otherwise_is_another(options):
    arguments = schema(type="integer")
    transport = Cli(tools=[Tool("count", "Counts.", arguments, lambda x: x)])
    before = order_for(transport, options)
    assert before.resembles(order_for(transport, options))
    arguments["properties"]["x"]["type"] = "string"
    assert not before.resembles(order_for(transport, options))


# ---- processes


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_has_ended_or_stands_still_is_noticed(sign):
    """Also where something else has started it."""
    script, pipe = "(sleep 60 & echo $!; wait); read _", subprocess.PIPE
    with subprocess.Popen(["sh", "-c", script], stdin=pipe, stdout=pipe, text=True) as shell:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        started = Descendants(shell.pid)
        assert started.first_out_of_order() is None
        os.kill(pid, sign)
        while started.first_out_of_order() is None:
            time.sleep(0.005)
        shell.kill()
        for one in started._processes:
            with suppress(psutil.NoSuchProcess):
                one.kill()


def test_a_program_that_is_gone_has_started_nothing():
    with subprocess.Popen(["true"]) as program:
        program.wait()
    assert Descendants(program.pid).first_out_of_order() is None


SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    tool = {"name": "noon", "description": "", "inputSchema": {"type": "object", "properties": {}}}
    known = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                            "serverInfo": {"name": "x", "version": "1"}},
             "tools/list": {"tools": [tool]},
             "tools/call": {"content": [{"type": "text", "text": "at twelve"}]}}
    if "id" in asked:
        told = known.get(asked["method"], {})
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
"""


async def test_a_run_reaches_its_mcp_server_though_that_of_the_waiting_cli_was_killed(
    fake_gemini, real_transport, tmp_path, options
):
    script = write(tmp_path / "server.py", SERVER)
    server = {"command": sys.executable, "args": [str(script)], "trust": True}
    settings = {"mcpServers": {"x": server}}
    options = Options(
        cwd=options.cwd, model="gemini-2.5-flash", env=fake_gemini.env, approval="yolo"
    )
    async with Cli(executable=real_transport.executable, spare=1, settings=settings) as cli:
        assert cli._spares is not None
        async with CliConversation(cli, options) as conversation:
            await cli._spares.warm(conversation.order_for(options))
        for process in psutil.Process(cli._spares.waiting[0].pid).children(recursive=True):
            process.kill()
            process.wait()
        fake_gemini.call("mcp_x_noon").say("Done.")
        await ask("When?", options, via=cli)
    assert "at twelve" in str(fake_gemini.requests[-1].tool_results)
