"""The agent-cli contract on the real CLI (S3-50, S3-52: end to end, in a file of its own)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from geminorum import Acp, Options
from geminorum.contracts.agent_cli import (
    ExecuteResult,
    execute,
    execute_sync,
    load_messages,
    load_session,
)
from geminorum.views.messages import without_origin
from shared_acp import SharedAcp, on_shared, shared_acp

pytestmark = pytest.mark.gemini_cli


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(real_transport, tmp_path_factory) -> AsyncIterator[SharedAcp]:
    """A warm CLI, in which each test has a session."""
    transport = Acp(executable=real_transport.executable)
    async with shared_acp(transport, tmp_path_factory.mktemp("process")) as shared:
        yield shared


@pytest.fixture
def warm(process, tmp_path) -> SharedAcp:
    return process.afresh(tmp_path / "workspace")


WRITE = {"file_path": "note.txt", "content": "hi"}
COMMAND = {"command": "echo hi > shell.txt"}


def what_was_permitted(result: ExecuteResult, folder: Path) -> list[bool]:
    """Of both calls; one that was not gives an error result, which the model receives."""
    blocks = [block for message in result.messages[1:] for block in message["content"]]
    uses = [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    assert uses == [("Write", WRITE), ("Bash", COMMAND)]
    errors = [block["is_error"] for block in blocks if block["type"] == "tool_result"]
    made = [(folder / name).exists() for name in ("note.txt", "shell.txt")]
    assert [not failed for failed in errors] == made
    return made


async def test_say_hello(fake_gemini, real_transport, tmp_path):
    """S3-50, S3-33, S3-38, S3-40, S3-43: `execute` with the real CLI returns the messages that
    `load_session` then finds in the store. With edits accepted, it writes and runs nothing."""
    fake_gemini.call("write_file", **WRITE).call("run_shell_command", **COMMAND)
    fake_gemini.say("Hello there.", thoughts=["**Greet** politely"])
    work = tmp_path / "work"
    work.mkdir()
    result = await execute(
        "Say hello", "acceptEdits", work, base=Options(env=fake_gemini.env), via=real_transport
    )
    assert result.success is True
    assert result.messages[-1]["content"][-1] == {"type": "text", "text": "Hello there."}
    saved = load_session(work, result.session_id, home=fake_gemini.home)
    assert without_origin(result.messages) == without_origin(saved)
    assert load_messages(project_path=work, home=fake_gemini.home) == saved
    assert what_was_permitted(result, work) == [True, False]


def test_by_default_nothing_is_permitted(fake_gemini, real_transport, tmp_path):
    """S3-38, S3-39, S3-46: with the real CLI, a mode that forbids a tool gives an error result."""
    fake_gemini.call("write_file", **WRITE).call("run_shell_command", **COMMAND).say(
        "That was all."
    )
    base = Options(env=fake_gemini.env)
    result = execute_sync("Do it", "default", tmp_path, base=base, via=real_transport)
    assert what_was_permitted(result, tmp_path) == [False, False]


@on_shared
async def test_who_bypasses_permissions_is_permitted_all(warm):
    """S3-38, S3-46: on a warm CLI; test_contract_agent_cli.py has the flag that `Cli` gives."""
    warm.fake.call("write_file", **WRITE).call("run_shell_command", **COMMAND).say("That was all.")
    folder = Path(warm.options.cwd)
    result = await execute("Do it", "bypassPermissions", folder, base=warm.options, via=warm.via())
    assert what_was_permitted(result, folder) == [True, True]


@on_shared
async def test_a_run_on_a_warm_cli_reads_the_same_live_and_loaded(warm):
    """S3-41: the CLI saves an answer and its calls apart, and no arguments of a denied call."""
    listing = {"functionCall": {"name": "list_directory", "args": {"dir_path": "."}}}
    fake_gemini, folder = warm.fake, Path(warm.options.cwd)
    fake_gemini.call("list_directory", dir_path=".")
    fake_gemini.say("I look again. ", listing, thoughts=["**Plan** once more"])
    fake_gemini.call("write_file", file_path="note.txt", content="hi")
    fake_gemini.say("That was all.")
    result = await execute("Do it", "default", folder, base=warm.options, via=warm.via())
    live = without_origin(result.messages)
    assert [len(message["content"]) for message in live] == [1, 2, 4, 2, 1]
    assert all(message["usage"]["input_tokens"] > 0 for message in live[1:])
    denied = live[3]["content"][0]
    assert denied["input"]["content"] == "hi"
    denied["input"] = {}
    assert live == without_origin(load_session(folder, result.session_id, home=fake_gemini.home))
