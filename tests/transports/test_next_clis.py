"""CLIs that came after this release: they run, with one warning, and what they changed is named."""

import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_recordings import events_of, recording

from geminorum import (
    Acp,
    Cli,
    Done,
    Options,
    Policy,
    Rule,
    Text,
    ToolResult,
    ToolUse,
    Unknown,
    ask,
    doctor,
    errors,
    sessions,
)
from geminorum.detect import PACKAGE
from geminorum.doctor.probes import ROWS
from geminorum.errors import NewerCliWarning
from geminorum.install import PINNED_CLI
from geminorum.transports.launch import newer_cli
from geminorum.views.result import result

# ---- one warning


@pytest.fixture
def next_cli(real_transport, tmp_path, monkeypatch) -> Path:
    """The real CLI, installed as version 0.99.0."""
    monkeypatch.setattr(newer_cli, "_warned", set())
    package = Path(real_transport.executable).resolve().parents[1]
    assert (package / "package.json").exists()
    copy = tmp_path / "node_modules" / PACKAGE
    shutil.copytree(package, copy, copy_function=os.link)
    content = json.loads((copy / "package.json").read_text())
    (copy / "package.json").unlink()
    (copy / "package.json").write_text(json.dumps({**content, "version": "0.99.0"}))
    return copy / content["bin"]["gemini"]


def test_the_newest_that_was_tried_is_the_one_that_is_installed():
    assert ".".join(map(str, newer_cli.NEWEST_TRIED)) == PINNED_CLI


@pytest.mark.parametrize("transport", [Cli, Acp])
async def test_a_newer_cli_runs_with_one_named_warning(fake_gemini, tmp_path, next_cli, transport):
    fake_gemini.say("Hello").always()
    options = Options(cwd=tmp_path, model="gemini-2.5-flash", env=fake_gemini.env)
    via = transport(executable=next_cli)
    with pytest.warns(NewerCliWarning, match=r"0\.99\.0 is newer than 0\.\d+") as told:
        assert (await ask("Hi", options, via=via)).text == "Hello"
    assert len(told) == 1
    assert "`geminorum doctor --try`" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        newer_cli.warn_if_newer((0, 99, 0))


def test_the_trial_of_a_newer_cli_says_so_itself(next_cli, recwarn):
    """The warning would recommend what is being done."""
    cli, *rows = doctor.try_cli(via=Cli(executable=next_cli), timeout=3)
    assert cli.detail.startswith("0.99.0 at ")
    assert cli.detail.endswith(f"newer than {PINNED_CLI}, the newest in the table")
    assert len(rows) == len(ROWS)
    assert newer_cli._warned == {(0, 99, 0)}
    assert not recwarn.list


@pytest.mark.parametrize("version", [None, (0, 11, 3), newer_cli.NEWEST_TRIED, (0, 61, 9)])
def test_a_known_version_and_its_patches_need_no_warning(version, recwarn):
    newer_cli.warn_if_newer(version)
    assert not recwarn.list


async def test_a_new_model_needs_no_release(fake_gemini, tmp_path, real_transport):
    """Its price is unknown: no cost rather than a wrong one, and one note that says so."""
    fake_gemini.say("Hello")
    options = Options(cwd=tmp_path, model="gemini-9-ultra", env=fake_gemini.env)
    answer = await ask("Hi", options, via=real_transport)
    assert (answer.text, fake_gemini.requests[0].model) == ("Hello", "gemini-9-ultra")
    assert (answer.cost, answer.usage.total > 0) == (None, True)
    assert answer.cost_note == "there is no price for 'gemini-9-ultra'"


# ---- flags that changed

REFUSALS = {
    "message first": "Unknown arguments: {flag}, {camel}\nUsage: gemini [options]\n\nOptions:",
    "usage first": "Usage: gemini [options]\n\nOptions:\n\nUnknown argument: {flag}\n",
    "no usage": "error: unknown option '--{flag}'\n",
    "a value": 'Invalid values:\n  Argument: {flag}, Given: "x", Choices: "y"\nUsage: gemini [',
}


@pytest.fixture
def refusing_cli(tmp_path, monkeypatch) -> Callable[[str, str], Path]:
    """A CLI of the version that complains about a flag, as npm would install it."""
    monkeypatch.setattr(newer_cli, "_warned", {(0, 99, 0)})

    def made(version: str, stderr: str) -> Path:
        package = tmp_path / "node_modules" / PACKAGE
        package.mkdir(parents=True)
        about = {"name": PACKAGE, "version": version, "bin": {"gemini": "index.js"}}
        (package / "package.json").write_text(json.dumps(about))
        program = package / "index.js"
        program.write_text(f"process.stderr.write({json.dumps(stderr)}); process.exit(1)")
        return program

    return made


@pytest.mark.parametrize("form", REFUSALS)
@pytest.mark.parametrize(
    ("transport", "flag"), [(Cli, "skip-trust"), (Acp, "include-directories"), (Acp, "acp")]
)
async def test_a_flag_that_a_newer_cli_refuses_is_named(
    fake_gemini, tmp_path, refusing_cli, transport, flag, form
):
    first, *others = flag.split("-")
    camel = first + "".join(map(str.title, others))
    program = refusing_cli("0.99.0", REFUSALS[form].format(flag=flag, camel=camel))
    options = Options(cwd=tmp_path, env=fake_gemini.env)
    with pytest.raises(errors.SetupError) as caught:
        await ask("Hi", options, via=transport(executable=program))
    assert f" --{flag} as" in caught.value.message
    assert "0.99.0 is newer than 0.61.0" in caught.value.hint
    assert "`npm install -g @google/gemini-cli@0.61.0`" in caught.value.hint


@pytest.mark.parametrize("form", REFUSALS)
async def test_a_flag_that_a_known_cli_refuses_is_an_invalid_option(
    fake_gemini, tmp_path, refusing_cli, form
):
    program = refusing_cli("0.61.0", REFUSALS[form].format(flag="nonsense", camel="nonsense"))
    options = Options(cwd=tmp_path, env=fake_gemini.env)
    with pytest.raises(errors.InvalidOptions, match="nonsense") as caught:
        await ask("Hi", options, via=Cli(executable=program, extra_args=["--nonsense"]))
    assert "extra_args" in caught.value.hint


# ---- settings and policies that a next version does not read

WRITES = [
    {"type": "init", "session_id": "s", "model": "m"},
    {"type": "tool_use", "tool_name": "write_file", "tool_id": "w1", "parameters": {}},
    {"type": "tool_result", "tool_id": "w1", "status": "success", "output": "written"},
    {"type": "message", "role": "assistant", "content": "Done", "delta": True},
    {"type": "result", "status": "success", "stats": {}},
]
DENIALS: list[dict[str, Any]] = [
    {"policy": Policy(file_write="deny")},
    {"disallowed_tools": ["write_file"]},
    {"allowed_tools": ["read_file"], "approval": "yolo"},
]


@pytest.mark.parametrize("denial", DENIALS)
async def test_a_restriction_that_the_cli_does_not_apply_is_noticed(stand_in, tmp_path, denial):
    """A denied tool that runs: the policy was not read, and nothing else of it can be relied on."""
    with pytest.raises(errors.ConfigError, match="although these options deny it") as caught:
        await ask("Hi", Options(cwd=tmp_path, **denial), via=stand_in(*WRITES))
    assert "doctor --try" in caught.value.hint


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"approval": "yolo"},
        {"allowed_tools": ["write_file"]},
        {"policy": Policy(file_write="deny", rules=(Rule("write_file", "allow"),))},
        {"disallowed_tools": ["web_fetch"]},
    ],
)
async def test_what_may_run_is_no_evasion(stand_in, tmp_path, options):
    result = await ask("Hi", Options(cwd=tmp_path, **options), via=stand_in(*WRITES))
    assert result.text == "Done"


# ---- frames that changed

Change = Callable[[dict[str, Any]], Iterator[dict[str, Any]]]
CAMEL = {
    "session_id": "sessionId",
    "tool_name": "toolName",
    "tool_id": "toolId",
    "total_tokens": "totalTokens",
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "tool_calls": "toolCalls",
    "duration_ms": "durationMs",
}


def camel_case(frame: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield _renamed(frame, CAMEL)


def other_words(frame: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {
        {"parameters": "args", "tool_id": "call_id", "output": "content"}.get(key, key)
        if frame["type"].startswith("tool_")
        else key: value
        for key, value in frame.items()
    }


def new_frames(frame: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "heartbeat", "timestamp": frame.get("timestamp", "")}
    yield frame
    if frame["type"] != "result":
        yield {"type": "thought", "subject": "Hm", "tokens": {"total": 7}}


def new_fields(frame: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"schemaVersion": 3, **frame, "meta": {"region": ["eu", 1]}, "seq": 7}


def content_in_parts(frame: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if frame["type"] == "message":
        frame = {**frame, "content": [{"type": "text", "text": frame["content"]}]}
    yield frame


def nested_stats(frame: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {**frame, "stats": _nested(frame["stats"])} if frame.get("stats") else frame


def _nested(stats: dict[str, Any]) -> dict[str, Any]:
    tokens = {"total": "total_tokens", "input": "input_tokens", "output": "output_tokens"}
    found: dict[str, Any] = {"tokens": {new: stats[old] for new, old in tokens.items()}}
    found["tokens"]["cached"] = stats.get("cached", 0)
    if "models" in stats:
        found["models"] = {name: _nested(share) for name, share in stats["models"].items()}
        found["tools"] = {"totalCalls": stats["tool_calls"]}
    return found


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(one, names) for key, one in value.items()}
    return value


CHANGES: list[Change] = [
    camel_case,
    other_words,
    new_frames,
    new_fields,
    content_in_parts,
    nested_stats,
]
NAMES = ("adk_tools", "adk_think", "adk_err400", "allowedtools_write_file")


def changed(row: dict[str, Any], change: Change) -> dict[str, Any]:
    frames = [json.loads(line) for line in row["stdout"].splitlines()]
    lines = [json.dumps(new) for frame in frames for new in change(frame)]
    return {**row, "stdout": "".join(f"{line}\n" for line in lines)}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_frames_of_a_next_version_lose_nothing(name, change):
    row = recording("0.61.0", name)
    before, after = events_of(row), events_of(changed(row, change))
    known = [event for event in after if not isinstance(event, Unknown)]
    assert [_gist(event) for event in known] == [_gist(event) for event in before]
    told, expected = result(after), result(before)
    assert (told.text, told.status, told.session_id) == (
        expected.text,
        expected.status,
        expected.session_id,
    )


def _gist(event: Any) -> tuple[Any, ...]:
    match event:
        case ToolUse():
            return "tool_use", event.name, event.id, event.input
        case ToolResult():
            return "tool_result", event.name, event.id, event.status, event.output
        case Done():
            usage = event.usage
            tokens = usage and (usage.total, usage.input, usage.output, usage.tool_calls)
            shares = usage and {name: share.total for name, share in usage.by_model.items()}
            return "done", event.status, tokens, shares, event.cost
        case _:
            return event.type, getattr(event, "text", getattr(event, "message", None))


def dropped(field: str) -> Change:
    def change(frame: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {f"x_{key}" if key == field else key: value for key, value in frame.items()}

    return change


@pytest.mark.parametrize(
    "field", ["role", "delta", "content", "tool_name", "tool_id", "status", "stats", "session_id"]
)
def test_a_field_that_is_gone_is_never_taken_for_something_else(field):
    """No word of the user becomes the agent's, no failure a success, no unknown sum a zero."""
    row = recording("0.61.0", "adk_tools")
    after = events_of(changed(row, dropped(field)))
    said = "".join(event.text for event in after if isinstance(event, Text))
    assert said in (result(events_of(row)).text, "")
    done = after[-1]
    assert done.status == "success" if field != "status" else done.status != "interrupted"
    assert done.usage is None or done.usage.total > 0
    failed = recording("0.61.0", "adk_err400")
    assert events_of(changed(failed, dropped(field)))[-1].status == "error"


def test_counts_of_which_nothing_is_known_are_no_zero():
    def strange(frame: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {**frame, "stats": {"spent": {"in": 5}}} if frame.get("stats") else frame

    done = events_of(changed(recording("0.61.0", "adk_tools"), strange))[-1]
    assert (done.usage, done.cost) == (None, None)


def test_a_price_among_nested_counts_keeps_its_fraction():
    def priced(frame: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for one in nested_stats(frame):
            yield (
                {**one, "stats": one["stats"] | {"total_cost_usd": 0.02}} if "stats" in one else one
            )

    done = events_of(changed(recording("0.61.0", "adk_tools"), priced))[-1]
    assert str(done.cost.usd) == "0.02"


# ---- session records that changed

SESSION = (
    Path(__file__).parents[1] / "recordings/sessions/0.61.0/session-2026-11-15T19-18-8e0e914b.jsonl"
)


def saved(tmp_path: Path, change: Change) -> sessions.Session:
    records = [json.loads(line) for line in SESSION.read_text().splitlines()]
    path = tmp_path / SESSION.name
    lines = [json.dumps(new) for record in records for new in change(record)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return sessions.load(path)


def new_records(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield record
    yield {"$checkpoint": {"hash": "abc"}}
    if "id" in record:
        yield {"id": f"{record['id']}-note", "type": "telemetry", "content": {"spans": [1]}}


def more_in_records(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    more = {"schemaVersion": 4, "origin": {"kind": "user"}}
    if "tokens" in record:
        more["tokens"] = {**(record["tokens"] or {}), "audio": 3, "byModality": {"text": 1}}
    yield {**record, **more}


@pytest.mark.parametrize("change", [new_records, more_in_records], ids=lambda one: one.__name__)
def test_session_records_of_a_next_version_lose_nothing(tmp_path, change):
    before, after = sessions.load(SESSION), saved(tmp_path, change)
    known = [_gist(event) for event in after.events() if not isinstance(event, Unknown)]
    told = [_gist(event) for event in before.events() if not isinstance(event, Unknown)]
    assert known == told
    assert (after.id, after.usage.total) == (before.id, before.usage.total)


def moved_tokens(change: Callable[[dict[str, Any]], Any]) -> Change:
    def moved(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {**record, "tokens": change(record["tokens"])} if record.get("tokens") else record

    return moved


@pytest.mark.parametrize(
    "change",
    [
        moved_tokens(lambda tokens: {"usage": tokens}),
        moved_tokens(lambda tokens: {f"{name}Tokens": count for name, count in tokens.items()}),
        moved_tokens(lambda tokens: [tokens]),
        dropped("model"),
    ],
    ids=["nested", "renamed", "listed", "no model"],
)
def test_tokens_that_cannot_be_read_are_no_exact_zero(tmp_path, change):
    before, after = sessions.load(SESSION), saved(tmp_path, change)
    assert before.usage.exact
    assert before.usage.total > 0
    assert (after.requests, after.usage.exact) == ((), False)
    assert [_gist(event) for event in after.events()][1:-1] == [
        _gist(event) for event in before.events()
    ][1:-1]


@pytest.mark.parametrize(
    "field", ["id", "type", "content", "timestamp", "toolCalls", "thoughts", "sessionId"]
)
def test_a_record_without_a_field_is_kept(tmp_path, field):
    """What cannot be read of it is Unknown, and has the record in it; no other word is changed."""
    before, after = sessions.load(SESSION), saved(tmp_path, dropped(field))
    # Without an id, a record that takes the place of another cannot be told.
    assert len(after.messages) >= len(before.messages)
    known = [_gist(event)[:3] for event in after.events() if not isinstance(event, Unknown)]
    told = [_gist(event)[:3] for event in before.events() if not isinstance(event, Unknown)]
    assert [one for one in known[:-1] if one not in told] == []
    assert len(known) <= len(told)


@pytest.mark.parametrize("name", ["chat-8e0e914b.jsonl", "8e0e914b.jsonl", "session-x.json"])
def test_a_session_under_another_name_is_listed(tmp_path, name):
    """One document or a log: what a file holds decides, not what it is called."""
    folder = tmp_path / ".gemini" / "tmp" / "project" / "chats"
    folder.mkdir(parents=True)
    (folder.parent / ".project_root").write_text(str(tmp_path))
    (folder / name).write_bytes(SESSION.read_bytes())
    (folder / ".repaired-1.jsonl").write_bytes(SESSION.read_bytes())
    (listed,) = sessions.list(home=tmp_path)
    assert (listed.id, listed.problem) == (sessions.load(SESSION).id, None)
    assert sessions.load(listed.id, home=tmp_path).usage == sessions.load(SESSION).usage
