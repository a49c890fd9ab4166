"""The agent-cli contract (S3): prompts and saved sessions in, Claude-format messages out.

S3-48: the coverage of `views/messages.py` and `contracts/agent_cli` by the three files that test
them (test_messages, test_contract_agent_cli, test_contract_agent_cli_e2e) is over 90 %:
`coverage run -m pytest -n 0 <the files>`, then `coverage report --include='*/agent_cli/*'`.
"""

import ast
import hashlib
import json
import os
import re
import sys
import time
from inspect import signature
from pathlib import Path
from typing import NotRequired, get_args, get_origin, get_type_hints

import pytest

import geminorum
from geminorum import Cli, Options
from geminorum.contracts import agent_cli
from geminorum.contracts.agent_cli import (
    PERMISSION_MODES,
    Message,
    PermissionMode,
    detect_cli,
    execute,
    execute_sync,
    find_session,
    get_capabilities,
    load_messages,
    load_session,
    parse,
)
from geminorum.detect import usual_places
from geminorum.errors import InvalidOptions, InvalidPrompt, SessionLost, Unsupported
from geminorum.events import TextDelta
from geminorum.sessions.reading import load
from recorded import OURS

SOURCE = Path(geminorum.__file__).parent
ROOT = Path(__file__).resolve().parents[2]
INIT = {"type": "init", "session_id": "s-1", "model": "auto"}
PROMPT = {"type": "message", "role": "user", "content": "Say hello"}
HELLO = {"type": "message", "role": "assistant", "content": "Hello", "delta": True}
STATS = {"input_tokens": 5, "output_tokens": 1, "total_tokens": 8}
SUCCESS = {"type": "result", "status": "success", "stats": STATS}


# ---- the shape


def test_the_index_exports_the_verbs_and_no_type_of_the_files():
    """S3-12, S3-52, S3-52a: one index over parse, loading, executing and detection."""
    assert set(agent_cli.__all__) >= {
        *("parse", "load_session", "load_messages", "execute", "execute_sync"),
        *("detect_cli", "get_capabilities"),
    }
    parts = {path.stem for path in (SOURCE / "contracts/agent_cli").glob("*.py")}
    assert parts >= {"__init__", "loading", "executing", "capabilities"}
    for types in ("SavedMessage", "SavedCall", "SavedThought", "Tokens", "Record"):
        assert types not in dir(agent_cli)
    for types in ("SavedMessage", "SavedCall", "SavedThought", "Record"):
        assert types not in dir(geminorum)


def test_no_dependency_is_new():
    """S3-51: the contract imports only the standard library, msgspec and geminorum."""
    files = [SOURCE / "views/messages.py", *(SOURCE / "contracts/agent_cli").glob("*.py")]
    trees = [ast.parse(file.read_text()) for file in files]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    names |= {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
    roots = {str(name).split(".")[0] for name in names}
    assert roots - sys.stdlib_module_names <= {"geminorum", "msgspec"}


def test_the_pages_document_it():
    """S3-52: every exported name is on the contract's page, and the README mentions Gemini."""
    page = (ROOT / "docs/agent-cli.md").read_text()
    assert [name for name in agent_cli.__all__ if name not in page] == []
    assert "Gemini" in (ROOT / "README.md").read_text().splitlines()[2]


# ---- parse


def test_parse_takes_a_message_as_json_has_it():
    """S3-1, S3-2, S3-3, S3-4, S3-5, S3-13, S3-35: `parse` turns a message decoded from JSON into
    ordered blocks and keeps the original."""
    message = {
        "id": "m-1",
        "timestamp": "2025-10-29T10:36:00.123Z",
        "type": "gemini",
        "content": "Read.",
        "thoughts": [{"subject": "Plan", "description": "read", "timestamp": ""}],
        "toolCalls": [
            {
                "id": "t-1",
                "name": "read_file",
                "args": {"absolute_path": "/a"},
                "result": [{"functionResponse": {"response": {"output": "A"}}}],
                "status": "success",
            }
        ],
    }
    told = parse(message)
    kinds = [block.get("name", block["type"]) for block in told["content"]]
    assert kinds == ["thinking", "Read", "tool_result", "text"]
    assert told["_original"] == message


@pytest.mark.parametrize("nothing", [None, [], "Hello", 7])
def test_what_is_no_message_is_refused(nothing):
    """S3-35: `parse` raises InvalidOptions for anything but a message object."""
    with pytest.raises(InvalidOptions, match="takes one message"):
        parse(nothing)


def test_the_messages_have_a_type():
    """S3-1: messages are TypedDicts, so that editors know the keys."""
    assert get_type_hints(parse)["return"] is Message
    keys = get_type_hints(Message, include_extras=True)
    optional = {key for key, kind in keys.items() if get_origin(kind) is NotRequired}
    assert keys.keys() - optional == {"id", "role", "content", "timestamp", "tool", "_original"}
    assert optional == {"model", "usage", "isMeta"}
    assert set(get_args(PermissionMode)) == {*PERMISSION_MODES}


# ---- finding and loading


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "projects" / "poems"
    folder.mkdir(parents=True)
    return folder


class Store:
    """A home as the CLI leaves it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / ".gemini" / "tmp"

    def put(self, folder: str, id: str, *messages: dict, name: str | None = None, age=0, **top):
        """A session file of the older kind, one document; `age` in seconds."""
        head = {"sessionId": id, "projectHash": "h", "startTime": "", "lastUpdated": "", **top}
        file = self.root / folder / (name or f"session-2025-10-29T10-36-{id[:8]}.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({**head, "messages": messages}, indent=2))
        moment = time.time() - age
        os.utime(file, (moment, moment))
        return file


def said(text: str, type: str = "user") -> dict:
    return {"id": text, "timestamp": "2025-10-29T10:36:00Z", "type": type, "content": text}


@pytest.fixture
def store(private_home):
    return Store(private_home)


def hash_of(project: Path) -> str:
    return hashlib.sha256(str(project).encode()).hexdigest()


def texts(messages: list[dict]) -> list[str]:
    return [block["text"] for message in messages for block in message["content"]]


@pytest.mark.parametrize("below", ["chats", "."])
def test_a_session_is_found_by_the_hash_of_its_folder(store, project, below):
    """S3-31, S3-32, S3-6, S3-7, B-3: sessions in a hash folder are found with and without
    `chats`."""
    store.put(f"{hash_of(project)}/{below}", "aaaaaaaa-1", said("Hi"), said("Hello", "gemini"))
    assert texts(load_session(project)) == ["Hi", "Hello"]
    assert texts(load_session(f"{project}/")) == ["Hi", "Hello"]
    assert texts(load_session(str(project / "x" / ".."))) == ["Hi", "Hello"]


@pytest.mark.parametrize(
    ("folder", "digest"),
    [
        (
            "/private/tmp/gemini-test",
            "cde655816f6d3e439a10953ef9e111dbe460d7de3bc212c414a03ede4bf0b307",
        ),
        (
            "/Users/jnarowski/Dev/playground/src/test-project",
            "1b37d21d2d347dc4deb92958752b51d6f657340fc961f32748333b8ed807a684",
        ),
    ],
)
def test_the_hash_is_that_of_real_stores(store, folder, digest):
    """S3-32: SHA-256 of the absolute path, without a slash at its end."""
    store.put(f"{digest}/chats", "aaaaaaaa-1", said("Hi"))
    assert texts(load_session(folder + "/")) == ["Hi"]


def test_folders_of_newer_versions_are_found(store, project):
    """B-4: the registry's slug and the marker file are tried before the hash."""
    registry = store.home / ".gemini" / "projects.json"
    store.put("poems/chats", "aaaaaaaa-1", said("by slug"), age=50)
    registry.write_text(json.dumps({"projects": {str(project): "poems"}}))
    assert texts(load_session(project)) == ["by slug"]
    registry.unlink()
    (store.root / "poems/.project_root").write_text(str(project))
    assert texts(load_session(project)) == ["by slug"]


def test_the_session_named_is_loaded_or_the_one_used_last(store, project):
    """S3-33: by id, else the most recent; a session in which nobody spoke does not count."""
    chats = f"{hash_of(project)}/chats"
    store.put(chats, "aaaaaaaa-1", said("old"), age=90)
    store.put(chats, "bbbbbbbb-2", said("new"), age=30)
    store.put(chats, "cccccccc-3", age=10)
    store.put(chats, "dddddddd-4", said("by a subagent"), kind="subagent")
    assert texts(load_session(project)) == ["new"]
    assert texts(load_session(project, "aaaaaaaa-1")) == ["old"]
    assert texts(load_session(project_path=project, session_id="aaaaaaaa-1")) == ["old"]


def test_the_newest_session_is_the_one_updated_last(store, project):
    """S3-33: `lastUpdated` in the file decides, not the file's time, which a copy changes."""
    chats = f"{hash_of(project)}/chats"
    updated = {"lastUpdated": "2025-10-30T00:00:00.000Z"}
    store.put(chats, "aaaaaaaa-1", said("newest"), age=90, **updated)
    store.put(chats, "bbbbbbbb-2", said("older"), lastUpdated="2025-10-29T00:00:00.000Z")
    assert texts(load_session(project)) == ["newest"]


@pytest.mark.parametrize("session_id", [None, "aaaaaaaa-1"])
@pytest.mark.parametrize("name", ["session-copy.json", "renamed.json"])
def test_a_file_whose_name_lacks_the_id_is_found(store, project, session_id, name):
    """S3-33: a renamed session file is found by the id inside it."""
    store.put(f"{hash_of(project)}/chats", "aaaaaaaa-1", said("Hi"), name=name)
    assert texts(load_session(project, session_id)) == ["Hi"]


def test_the_documents_spelling_is_accepted(store, project):
    """S3-33, S3-34: `projectPath` and `sessionId` work; another keyword is refused."""
    store.put(f"{hash_of(project)}/chats", "aaaaaaaa-1", said("Hi"))
    assert texts(load_session(projectPath=project, sessionId="aaaaaaaa-1")) == ["Hi"]
    assert texts(load_messages(projectPath=project, sessionId="aaaaaaaa-1")) == ["Hi"]
    assert find_session(projectPath=project).id == "aaaaaaaa-1"
    with pytest.raises(InvalidOptions, match="projectPaht") as caught:
        load_session(projectPaht=project)
    assert "project_path" in caught.value.hint
    with pytest.raises(InvalidOptions, match="both project_path and projectPath"):
        load_session(project, projectPath=project)


def test_of_two_files_of_a_session_the_one_that_was_used_is_loaded(store, project):
    """What a resume in a later minute leaves beside the session is no session."""
    chats = f"{hash_of(project)}/chats"
    store.put(chats, "aaaaaaaa-1", said("Hi"), age=90)
    store.put(chats, "aaaaaaaa-1", name="session-2025-10-29T10-40-aaaaaaaa.json")
    assert texts(load_session(project, "aaaaaaaa-1")) == ["Hi"]


def test_two_ids_that_begin_alike_are_told_apart(store, project):
    chats = f"{hash_of(project)}/chats"
    store.put(chats, "aaaaaaaa-1", said("one"), name="session-1-aaaaaaaa.json")
    store.put(chats, "aaaaaaaa-2", said("two"), name="session-2-aaaaaaaa.json", age=9)
    assert texts(load_session(project, "aaaaaaaa-2")) == ["two"]


def test_the_current_folder_and_the_users_home_are_the_defaults(
    store, project, tmp_path, monkeypatch
):
    """S3-33, B-4: `home` overrides GEMINI_CLI_HOME, which overrides the user's home."""
    chats = f"{hash_of(project)}/chats"
    other, third = Store(tmp_path / "other"), Store(tmp_path / "third")
    for number, home in enumerate((store, other, third)):
        home.put(chats, "aaaaaaaa-1", said(f"home {number}"))
    monkeypatch.chdir(project)
    assert texts(load_session()) == ["home 0"]
    monkeypatch.setenv("GEMINI_CLI_HOME", str(other.home))
    assert texts(load_session()) == ["home 1"]
    assert texts(load_session(home=third.home)) == ["home 2"]


@pytest.mark.parametrize("session_id", [None, "no-such-id", "../../etc/passwd", "*"])
def test_no_session_is_an_error_with_the_documents_words(store, project, session_id):
    """S3-34, B-6: `load_session` raises with the document's message, and `find_session` gives
    None."""
    store.put("elsewhere/chats", "aaaaaaaa-1", said("Hi"))
    assert find_session(project, session_id) is None
    with pytest.raises(SessionLost) as caught:
        load_session(project, session_id)
    assert caught.value.message == f"No Gemini session found for project: {project}"
    assert caught.value.session_id == session_id
    assert caught.value.hint


def test_without_a_project_the_error_names_the_current_folder(store, project, monkeypatch):
    """S3-34: `load_session()` without arguments looks in the current folder and names it in the
    error."""
    monkeypatch.chdir(project)
    with pytest.raises(SessionLost, match=re.escape(f"for project: {project}\n")):
        load_session()


def test_broken_files_beside_a_session_do_no_harm(store, project):
    chats = f"{hash_of(project)}/chats"
    store.put(chats, "aaaaaaaa-1", said("Hi"), age=60)
    folder = store.root / chats
    (folder / "session-2025-10-29T10-50-aaaaaaaa.json").write_text("{torn")
    (folder / "session-2025-10-29T10-51-aaaaaaaa.jsonl").touch()
    (folder / "session-2025-10-29T10-52-aaaaaaaa.json").mkdir()
    assert texts(load_session(project)) == ["Hi"]
    assert texts(load_session(project, "aaaaaaaa-1")) == ["Hi"]


def test_a_log_of_today_is_loaded_without_its_context(store, project):
    """B-5, S3-35: `.jsonl` logs with checkpoints and parts load; the injected context only on
    request."""
    context = said("c") | {"content": [{"text": "<session_context>…"}]}
    records = [
        {"sessionId": "aaaaaaaa-1", "projectHash": "h", "kind": "main"},
        {"$set": {"messages": [context]}},
        said("u") | {"content": [{"text": "ping"}]},
        said("g", "gemini") | {"content": "po"},
        said("g", "gemini")
        | {"content": "pong", "tokens": {"input": 10, "output": 1, "total": 11}},
    ]
    file = store.put(f"{hash_of(project)}/chats", "x", name="session-1-aaaaaaaa.jsonl")
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    told = load_session(project)
    assert texts(told) == ["ping", "pong"]
    assert told[1]["usage"] == {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
    assert [m.get("isMeta", False) for m in load_session(project, context=True)] == [
        *(True, False, False)
    ]


@pytest.mark.parametrize("name", ["0.11.3-reading.json", "0.61.0-at-once.jsonl"])
def test_recorded_sessions_are_loaded_through_the_store(store, project, name):
    """S3-33, S3-35, S3-45: every message of the file, in its order."""
    source = OURS / "full" / name
    session = load(source)
    file = store.put(f"{hash_of(project)}/chats", "x", name=f"session-{source.name}")
    file.write_bytes(source.read_bytes())
    told = load_session(project, session.id)
    assert told == [parse(message["_original"]) for message in told]
    assert [message["role"] for message in told] == ["user", "assistant", "assistant"]
    assert "Read" in [block.get("name") for block in told[1]["content"]]


@pytest.mark.parametrize("name", ["0.11.3-reading.json", "0.11.3-tour.json", "0.29.0-shell.json"])
def test_every_message_of_a_loaded_session_keeps_its_original(store, project, name):
    """S3-5, S3-33, S3-45: each record of the file, as it is and in its order."""
    source = OURS / "full" / name
    data = json.loads(source.read_text())
    file = store.put(f"{hash_of(project)}/chats", "x", name=f"session-{name}")
    file.write_bytes(source.read_bytes())
    told = load_session(project, data["sessionId"])
    assert [message["_original"] for message in told] == data["messages"]


# ---- routing, capabilities, detection


def test_the_verbs_route_by_the_name_of_the_agent(store, project):
    """S3-43: loading, executing and capabilities accept "gemini" and refuse other agents."""
    store.put(f"{hash_of(project)}/chats", "aaaaaaaa-1", said("Hi"))
    expected = load_session(project)
    assert load_messages("gemini", project_path=project) == expected
    assert load_messages(project_path=project, session_id="aaaaaaaa-1") == expected
    assert load_messages(project_path=project, home=store.home) == expected
    for refused in (
        lambda: load_messages("codex"),
        lambda: get_capabilities("codex"),
        lambda: execute_sync("Hi", tool="codex"),
    ):
        with pytest.raises(Unsupported, match="codex"):
            refused()


def test_the_capabilities_are_the_documents(tmp_path, monkeypatch):
    """S3-42, S3-43: `get_capabilities` returns the document's values and the path of the CLI."""
    program = tmp_path / "gemini"
    program.touch()
    monkeypatch.setenv("GEMINI_CLI_PATH", str(program))
    assert get_capabilities() == {
        "supportsSlashCommands": False,
        "supportsModels": True,
        "models": [
            {"id": "gemini-2.5-pro", "name": "Gemini 2.5 Pro"},
            {"id": "gemini-2.5-flash", "name": "Gemini 2.5 Flash"},
        ],
        "supportsWebSearch": True,
        "supportsThinking": True,
        "installed": True,
        "cliPath": str(program),
    }


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


needs_a_clean_machine = pytest.mark.skipif(
    any(Path(folder, "gemini").exists() for folder in ("/usr/local/bin", "/opt/homebrew/bin")),
    reason="a Gemini CLI is installed for the whole machine",
)


@needs_a_clean_machine
def test_the_cli_is_looked_for_in_the_documents_order(private_home, tmp_path, monkeypatch):
    """S3-36, S3-49: the variable, then PATH, then the usual places, then nothing."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("GEMINI_CLI_PATH", raising=False)
    monkeypatch.delenv("MISE_DATA_DIR", raising=False)
    assert detect_cli() is None
    assert (get_capabilities()["installed"], get_capabilities()["cliPath"]) == (False, None)
    mise = program(private_home / ".local/share/mise/installs/node/22.1.0/bin/gemini")
    assert detect_cli() == mise
    on_path = program(tmp_path / "bin/gemini")
    assert detect_cli() == on_path
    monkeypatch.setenv("GEMINI_CLI_PATH", str(tmp_path / "missing"))
    assert detect_cli() == on_path
    named = program(tmp_path / "mine/gemini")
    monkeypatch.setenv("GEMINI_CLI_PATH", named)
    assert detect_cli() == named


@pytest.mark.parametrize(
    ("place", "windows"),
    [
        (".npm-global/bin/gemini", False),
        (".local/share/mise/installs/node/22.1.0/bin/gemini", False),
        ("npm/gemini.cmd", True),
    ],
)
def test_each_platform_has_its_usual_places(tmp_path, place, windows):
    """S3-36, S3-49: the CLI is found in the install folders of each platform's tools."""
    there = Path(program(tmp_path / place))
    env = {"HOME": str(tmp_path), "APPDATA": str(tmp_path)}
    assert there in list(usual_places(env, windows=windows))


# ---- execute


@pytest.mark.parametrize(
    ("mode", "approval"),
    [
        ("default", "default"),
        ("acceptEdits", "auto_edit"),
        ("bypassPermissions", "yolo"),
        ("plan", "plan"),
    ],
)
def test_a_permission_mode_is_an_approval_mode(stand_in, tmp_path, mode, approval):
    """S3-37, S3-38, S3-39, S3-40, B-2: each mode becomes `--approval-mode`; the deprecated `--yolo`
    is never passed."""
    transport = stand_in(INIT, PROMPT, HELLO, SUCCESS)
    assert execute_sync("Say hello", mode, tmp_path, via=transport).success
    argv = stand_in.call["argv"]
    assert f"--approval-mode={approval}" in argv
    assert "--output-format=stream-json" in argv
    assert not {"--yolo", "-y"} & set(argv)
    assert PERMISSION_MODES[mode] == approval


def test_the_prompt_goes_to_the_cli_and_the_folder_is_where_it_works(stand_in, project):
    """S3-37, S3-50, B-1: the prompt goes to stdin, where neither its length nor a leading dash
    matters."""
    transport = stand_in(INIT, PROMPT, HELLO, SUCCESS)
    execute_sync("--help me", working_dir=project, via=transport)
    assert stand_in.call["stdin"] == "--help me"
    assert "--help me" not in stand_in.call["argv"]
    assert stand_in.call["cwd"] == str(project)


def test_execute_takes_the_documents_spelling(stand_in, project):
    """S3-50: `permissionMode` and `workingDir` work as the document writes them."""
    transport = stand_in(INIT, PROMPT, HELLO, SUCCESS)
    seen = []
    result = execute_sync(
        prompt="Say hello",
        permissionMode="acceptEdits",
        workingDir=project,
        sessionId="mine",
        onEvent=seen.append,
        via=transport,
    )
    assert result.success
    assert seen
    assert stand_in.call["cwd"] == str(project)
    assert "--approval-mode=auto_edit" in stand_in.call["argv"]
    assert "mine" in " ".join(stand_in.call["argv"])


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("timout", "timeout"),
        ("workDir", "working_dir"),
        ("permission", "permission_mode"),
        ("on_evnt", "on_event"),
    ],
)
async def test_an_unknown_keyword_is_refused_with_the_nearest_name(name, near):
    """S3-50: a mistyped keyword raises InvalidOptions and is not ignored."""
    with pytest.raises(InvalidOptions, match=name) as caught:
        await execute("Hi", via=Cli(executable="/no/such/gemini"), **{name: 3})
    assert repr(near) in caught.value.hint
    with pytest.raises(InvalidOptions, match=name):
        execute_sync("Hi", via=Cli(executable="/no/such/gemini"), **{name: 3})


def test_a_keyword_with_no_name_near_it_lists_them_all():
    """S3-50: the hint for an unknown keyword lists every valid name."""
    with pytest.raises(InvalidOptions, match="zzz") as caught:
        execute_sync("Hi", zzz=1)
    assert "working_dir" in caught.value.hint
    assert "timeout" in caught.value.hint


def test_a_setting_in_both_spellings_is_refused():
    """S3-50: giving `working_dir` and `workingDir` is an error, because either could be meant."""
    with pytest.raises(InvalidOptions, match="both working_dir and workingDir"):
        execute_sync("Hi", working_dir="/a", workingDir="/b")


def test_a_timeout_names_its_unit(stand_in):
    """S3-50: the message, the docstring and the page say that timeouts are in seconds."""
    result = execute_sync("Hi", timeout=0.5, via=stand_in(INIT, hang=True))
    assert not result.success
    assert "0.5 s" in result.error
    assert "seconds" in (execute.__doc__ or "").lower()
    assert "`timeout` (seconds)" in (ROOT / "docs/agent-cli.md").read_text()


def test_without_a_mode_it_is_the_default(stand_in):
    """S3-38: without a permission mode, `--approval-mode=default` is passed."""
    execute_sync("Say hello", via=stand_in(INIT, PROMPT, HELLO, SUCCESS))
    assert "--approval-mode=default" in stand_in.call["argv"]


def test_a_mode_that_nobody_knows_is_refused_before_anything_starts():
    with pytest.raises(InvalidOptions, match="permission_mode='yolo'") as caught:
        execute_sync("Say hello", "yolo", via=Cli(executable="/no/such/gemini"))
    assert "bypassPermissions" in (caught.value.hint or "")


async def test_the_result_has_messages_text_session_and_usage(stand_in):
    """S3-50, B-34: the messages are built from the stream; the last answer carries the sum of the
    tokens."""
    use = {"type": "tool_use", "tool_name": "read_file", "tool_id": "t", "parameters": {}}
    done = {"type": "tool_result", "tool_id": "t", "status": "success", "output": "A"}
    transport = stand_in(INIT, PROMPT, use, done, HELLO, SUCCESS)
    result = await execute("Say hello", via=transport)
    assert (result.success, result.error, result.exit_code) == (True, None, 0)
    assert (result.text, result.session_id) == ("Hello", "s-1")
    assert [message["role"] for message in result.messages] == ["user", "assistant", "assistant"]
    assert "usage" not in result.messages[1]
    assert result.messages[2]["usage"] == {
        "input_tokens": 5,
        "output_tokens": 1,
        "total_tokens": 8,
    }
    assert result.usage.total == 8
    assert result.duration > 0


def test_what_else_is_wished_reaches_the_run(stand_in, tmp_path):
    """S3-43, S3-50: model, session id, timeout, callback and base options of `execute` reach the
    CLI."""
    seen = []
    transport = stand_in(INIT, PROMPT, HELLO, SUCCESS)
    base = Options(env={"MARK": "1"}, model="pro", cwd=tmp_path / "missing")
    result = execute_sync(
        "Say hello",
        working_dir=tmp_path,
        tool="gemini",
        model="flash",
        session_id="mine",
        timeout=30,
        on_event=seen.append,
        base=base,
        via=transport,
    )
    assert result.success
    call = stand_in.call
    assert "--model=flash" in call["argv"]
    assert "mine" in " ".join(call["argv"])
    assert call["env"]["MARK"] == "1"
    assert any(isinstance(event, TextDelta) for event in seen)
    assert seen[-1].type == "done"


def test_a_run_that_fails_is_a_result_with_what_had_arrived(stand_in):
    """S3-46, S3-50: a failed run has `success=False`, the reason, and the messages so far."""
    failure = {"type": "result", "status": "error", "error": {"type": "E", "message": "no more"}}
    result = execute_sync("Say hello", via=stand_in(INIT, PROMPT, HELLO, failure, exit=1))
    assert (result.success, result.exit_code, result.text) == (False, 1, "Hello")
    assert "no more" in (result.error or "")
    assert [message["role"] for message in result.messages] == ["user", "assistant"]


def test_a_missing_cli_is_a_result_too(tmp_path):
    """S3-50: without a CLI, `execute` returns a failed result instead of raising."""
    result = execute_sync("Say hello", via=Cli(executable=tmp_path / "gemini"))
    assert (result.success, result.messages) == (False, [])
    assert "no such file" in (result.error or "")


def test_a_wrong_call_raises():
    with pytest.raises(InvalidPrompt):
        execute_sync("  ", via=Cli(executable="/bin/true"))


def test_what_an_observer_raises_comes_through(stand_in):
    def burst(event):
        raise RuntimeError("burst")

    with pytest.raises(RuntimeError, match="burst"):
        execute_sync("Hi", on_event=burst, via=stand_in(INIT, PROMPT, HELLO, SUCCESS, hang=True))


async def test_the_sync_twin_works_where_a_loop_is_running(stand_in):
    result = execute_sync("Say hello", via=stand_in(INIT, PROMPT, HELLO, SUCCESS))
    assert result.text == "Hello"
    assert str(signature(execute)) == str(signature(execute_sync))
