"""The agent-cli contract on the real CLI (S3-50, S3-52: end to end, in a file of its own)."""

import pytest

from geminorum import Acp, Options
from geminorum.contracts.agent_cli import execute, execute_sync, load_messages, load_session
from geminorum.views.messages import without_origin

pytestmark = pytest.mark.gemini_cli


async def test_say_hello(fake_gemini, real_transport, tmp_path):
    """S3-50, S3-33, S3-43: `execute` with the real CLI returns the messages that `load_session`
    then finds in the store."""
    fake_gemini.say("Hello there.", thoughts=["**Greet** politely"])
    result = await execute(
        "Say hello", "acceptEdits", tmp_path, base=Options(env=fake_gemini.env), via=real_transport
    )
    assert result.success is True
    assert len(result.messages) == 2
    assert result.messages[1]["content"][-1] == {"type": "text", "text": "Hello there."}
    saved = load_session(tmp_path, result.session_id, home=fake_gemini.home)
    assert without_origin(result.messages) == without_origin(saved)
    assert load_messages(project_path=tmp_path, home=fake_gemini.home) == saved


@pytest.mark.parametrize(
    ("mode", "written", "ran"),
    [
        ("default", False, False),
        ("acceptEdits", True, False),
        ("bypassPermissions", True, True),
    ],
)
def test_what_each_permission_mode_permits(
    fake_gemini, real_transport, tmp_path, mode, written, ran
):
    """S3-38, S3-39, S3-40, S3-46: with the real CLI, a mode that forbids a tool gives an error
    result, which the model receives."""
    fake_gemini.call("write_file", file_path="note.txt", content="hi")
    fake_gemini.call("run_shell_command", command="echo hi > shell.txt")
    fake_gemini.say("That was all.")
    result = execute_sync(
        "Do it", mode, tmp_path, base=Options(env=fake_gemini.env), via=real_transport
    )
    blocks = [block for message in result.messages[1:] for block in message["content"]]
    uses = [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    assert uses == [
        ("Write", {"file_path": "note.txt", "content": "hi"}),
        ("Bash", {"command": "echo hi > shell.txt"}),
    ]
    errors = [block["is_error"] for block in blocks if block["type"] == "tool_result"]
    assert errors == [not written, not ran]
    assert (tmp_path / "note.txt").exists() is written
    assert (tmp_path / "shell.txt").exists() is ran


def test_a_run_on_a_warm_cli_reads_the_same_live_and_loaded(fake_gemini, real_transport, tmp_path):
    """S3-41: the CLI saves an answer and its calls apart, and no arguments of a denied call."""
    listing = {"functionCall": {"name": "list_directory", "args": {"dir_path": "."}}}
    fake_gemini.call("list_directory", dir_path=".")
    fake_gemini.say("I look again. ", listing, thoughts=["**Plan** once more"])
    fake_gemini.call("write_file", file_path="note.txt", content="hi")
    fake_gemini.say("That was all.")
    via = Acp(executable=real_transport.executable)
    base = Options(env=fake_gemini.env)
    result = execute_sync("Do it", "default", tmp_path, base=base, via=via)
    live = without_origin(result.messages)
    assert [len(message["content"]) for message in live] == [1, 2, 4, 2, 1]
    assert all(message["usage"]["input_tokens"] > 0 for message in live[1:])
    denied = live[3]["content"][0]
    assert denied["input"]["content"] == "hi"
    denied["input"] = {}
    assert live == without_origin(load_session(tmp_path, result.session_id, home=fake_gemini.home))
