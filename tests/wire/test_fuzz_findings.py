"""What `make fuzz` found, each as small as it got: readers end by design and in linear time.

Where work is done by a library in C, the sizes are such that more than linear time would not end
before the suite's own limit.
"""

import inspect
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from geminorum import Cli, Done, Options, Policy, Rule, TextDelta, sessions
from geminorum.apps.command.batch.input import Task, tasks_in
from geminorum.apps.command.batch.journal import Journal
from geminorum.auth import dotenv_variables
from geminorum.detect import CliProgram
from geminorum.errors import ConfigError, InvalidEvent, InvalidOptions
from geminorum.events import decode, encode
from geminorum.policies import Rules, toml_of
from geminorum.tools import Tool
from geminorum.transports.callbacks.tool_server import ToolServer, to_served
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.dotenv import disarming_variables
from geminorum.transports.launch.overlay import Overlay
from geminorum.transports.launch.run_policy import _combined
from geminorum.transports.launch.user_policies import read_user_policy
from geminorum.views.diffs import counts, proposed_diff
from geminorum.views.html.prose import rendered
from geminorum.wire.acp import protocol as acp
from geminorum.wire.acp.decoder import told_input
from geminorum.wire.genai.answer import ModelAnswer
from geminorum.wire.genai.verdict import refusal, refused
from geminorum.wire.policy.toml_reader import policy_problems
from geminorum.wire.stream_json.verdict import replay


def nested(value: str, key: str = "", depth: int = 440) -> str:
    """As deep as the JSON decoder reads, and deeper than Python may call itself."""
    opening = f'{{"{key}":' if key else "["
    return opening * depth + value + ("}" if key else "]") * depth


@contextmanager
def less_room() -> Iterator[None]:
    """Room for fewer calls than the JSON was read with, as further down in a program."""
    before, frames = sys.getrecursionlimit(), len(inspect.stack())
    sys.setrecursionlimit(frames + 720)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


class TestStream:
    @pytest.mark.parametrize(
        "line",
        [
            '{"type":"message","role":"assistant","content":' + nested('"x"') + "}",
            '{"type":"message","role":"assistant","content":' + nested('"x"', "text") + "}",
            '{"type":"error","error":' + nested('"x"', "error") + "}",
            '{"type":"result","status":"error","error":' + nested('"x"', "error") + "}",
            '{"type":"result","status":"error","stats":' + nested("{}", "models") + "}",
        ],
        ids=["list", "parts", "error", "result", "stats"],
    )
    def test_a_line_nested_deeper_than_python_calls_is_read_and_the_run_has_its_done(self, line):
        events = replay(line.encode())
        assert [isinstance(event, Done) for event in events].count(True) == 1
        assert isinstance(events[-1], Done)

    def test_so_is_one_at_the_very_edge_where_one_decoder_reads_it_and_the_other_does_not(self):
        """How deep that is depends on how many calls we are down."""
        for depth in range(840, 1000):
            line = '{"type":"surprise","a":' + nested('"x"', "a", depth) + "}"
            assert isinstance(replay(line.encode())[-1], Done)

    def test_the_words_in_a_deeply_nested_message_are_read(self):
        line = '{"type":"message","role":"assistant","content":' + nested('"x","y"') + "}"
        assert replay(line.encode())[0].text == "x\n\ny"

    @pytest.mark.parametrize("word", ["NaN", "sNaN", "Infinity", "1e9999999", "-1"])
    def test_a_price_that_is_no_number_is_no_price(self, word):
        line = f'{{"type":"result","status":"success","total_cost_usd":"{word}"}}'
        assert replay(line.encode())[-1].cost is None

    def test_an_event_nested_deeper_than_can_be_shown_can_be_printed(self):
        event = decode('{"type":"tool_use","name":"t","input":' + nested("1", "a", 800) + "}")
        with less_room():
            assert repr(event) == "ToolUse(name='t', input=…)"

    def test_an_event_nested_deeper_than_can_be_written_is_refused_as_a_value(self):
        event = decode('{"type":"tool_use","name":"t","input":' + nested("1", "a", 800) + "}")
        with less_room(), pytest.raises(InvalidEvent, match="nested too deeply"):
            encode(event)


class TestSessions:
    @pytest.fixture
    def load(self, tmp_path):
        def load(*lines: str) -> sessions.Session:
            file = tmp_path / "session-2026-01-01T00-00-abcdef12.jsonl"
            file.write_text("\n".join(['{"sessionId":"s"}', *lines]))
            return sessions.load(file)

        return load

    def test_a_message_nested_deeper_than_python_calls_is_read(self, load):
        session = load('{"id":"a","type":"user","content":' + nested('"x"', depth=700) + "}")
        assert [event.text for event in session.events() if event.type == "user_message"] == ["x"]

    def test_taking_back_one_message_does_not_look_at_all_others(self, load):
        kept = [f'{{"id":"m{number}","type":"user"}}' for number in range(40_000)]
        taken_back = ['{"id":"z","type":"user"}', '{"$rewindTo":"z"}'] * 20_000
        assert len(load(*kept, *taken_back).messages) == 40_000

    def test_taking_back_an_unknown_message_takes_back_all(self, load):
        assert len(load('{"id":"a"}', '{"id":"b"}', '{"$rewindTo":"c"}').messages) == 0
        assert len(load('{"id":"a"}', '{"id":"b"}', '{"$rewindTo":"b"}').messages) == 1

    def test_a_long_record_is_read_once_however_often_others_come_between(self, load):
        count = 12_000
        many = [{"id": f"m{number}", "type": "user", "content": "x"} for number in range(count)]
        again = [json.dumps({**one, "content": "y"}) for one in many[::2]]
        session = load(json.dumps({"$set": {"messages": many}}), *again)
        assert "".join(message.content for message in session.messages) == "yx" * (count // 2)


class TestWarmCli:
    def call(self, id: str, text: str = "", **more: Any) -> acp.ToolCallUpdate:
        piece = acp.Piece("content", acp.Block("text", text))
        return acp.ToolCallUpdate(tool_call_id=id, content=[piece], **more)

    def test_an_id_of_nothing_but_lines_has_a_name_in_linear_time(self):
        assert len(self.call("_" * 4_000_000).name) < 300

    def test_a_name_with_two_lines_in_it_is_still_found(self):
        assert self.call("a__b__a__b_1700000000000_0").name == "a__b"

    def test_a_note_of_brackets_is_read_in_linear_time(self):
        call = self.call(
            "run_shell_command__x", "[in " + "] ()" * 400_000 + "x", kind="execute", title="ls"
        )
        assert told_input(call) == {"command": "ls"}

    def test_a_version_of_many_digits_is_none(self):
        info = acp.AgentInfo(version="9" * 5_000 + ".0.0")
        assert acp.version_of(acp.Initialized(agent_info=info)) is None


class TestPages:
    """What a model wrote is drawn by the process that everybody's page waits for."""

    @pytest.mark.parametrize("unit", ["![", "[a]("])
    def test_brackets_without_end_are_text(self, unit):
        drawn = rendered("a [link](https://a.example)\n\n" + unit * 100_000)
        assert '<a rel="noreferrer nofollow" href="https://a.example">link</a>' in drawn
        assert drawn.count("<a") == 1
        assert drawn.count("[") == 100_000 * unit.count("[")

    def test_a_piece_of_a_file_that_repeats_itself_is_shown_whole(self):
        old, new = (
            [f"{(number * step) % 151}" for number in range(60_000)] for step in (7_919, 104_729)
        )
        lines = {"old_string": "\n".join(old), "new_string": "\n".join(new)}
        diff = proposed_diff("replace", {"file_path": "a", **lines})
        assert diff is not None
        assert counts(diff) == (60_000, 60_000)


async def add(a: int, b: list[int]) -> int:
    """Adds numbers."""
    return a + sum(b)


async def test_a_call_of_a_tool_is_answered_however_deep_its_arguments_are_nested():
    server = ToolServer([to_served(Tool.of(add))])
    head = '{"id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":'
    with less_room():
        for depth in range(650, 720):
            answer = await server.answer(f"{head}{nested('1', depth=depth)}}}}}}}".encode())
            assert answer is not None
            assert "error" in answer.decode().lower()

    def test_a_message_at_the_very_edge_of_what_can_be_nested_is_read_or_none(self):
        for depth in range(840, 1000):
            line = '{"method":7,"params":' + nested('"x"', "a", depth) + "}"
            assert acp.message_of(line.encode()) is None


class TestApi:
    def events(self, part: str) -> list[Any]:
        return ModelAnswer().add(f'{{"candidates":[{{"content":{{"parts":[{part}]}}}}]}}'.encode())

    @pytest.mark.parametrize("odd", ["7", "[1]", '{"a":1}', "true"])
    @pytest.mark.parametrize(
        "part",
        [
            '{"functionCall":{"name":"add","id":%s}}',
            '{"toolCall":{"id":%s}}',
            '{"toolCall":{"toolType":%s}}',
            '{"toolResponse":{"id":%s}}',
            '{"toolResponse":{"toolType":%s}}',
        ],
    )
    def test_ids_and_names_of_a_wrong_kind_make_no_event_that_nobody_can_read(self, part, odd):
        for event in self.events(part % odd):
            assert decode(encode(event)) == event

    @pytest.mark.parametrize("odd", ["7", "[1]", '"x"', "true"])
    def test_arguments_of_a_wrong_kind_make_no_event_that_nobody_can_read(self, odd):
        for event in self.events(f'{{"toolCall":{{"args":{odd}}}}}'):
            assert decode(encode(event)) == event

    def test_text_may_follow_a_text_that_is_none(self):
        answer = ModelAnswer()
        answer.add(
            b'{"candidates":[{"content":{"parts":[{"text":null},{"text":"a"},{"text":"b"}]}}]}'
        )
        assert answer.text == "ab"
        assert answer.parts == [{"text": None}, {"text": "ab"}]

    def test_a_chunk_of_several_lines_makes_events_of_one(self):
        event = ModelAnswer().add(b'{"candidates": [\n{"content": {"parts": [{"text": "a b"}]}}]}')[
            0
        ]
        assert isinstance(event, TextDelta)
        assert b"\n" not in encode(event)
        assert event.raw["candidates"][0]["content"]["parts"][0]["text"] == "a b"

    @pytest.mark.parametrize("name", ["status", "message", "details"])
    def test_an_error_nested_deeper_than_can_be_shown_is_still_one(self, name):
        deep = msgspec.json.decode(nested("1", "a", 800))
        with less_room():
            error = refused({"code": 503, name: deep})
        assert (error.code, error.status) == ("SERVER", 503)

    def test_true_is_neither_a_count_nor_a_status(self):
        answer = ModelAnswer()
        answer.add(b'{"usageMetadata":{"promptTokenCount":true,"totalTokenCount":3}}')
        request = answer.request("m", 0)
        assert request is not None
        assert (request.input, request.total) == (0, 3)
        assert request.input is not True
        error = refused({"code": True, "message": "m"})
        assert decode(encode(error)) == error

    @pytest.mark.parametrize(
        "header",
        ["1 Oct 6 7:9999999999", "Wed, 21 Oct 2026 07:28:00 +99999999999999999999", "1e999"],
    )
    def test_a_retry_header_beyond_all_numbers_is_passed_over(self, header):
        error = refusal(429, "Too Many", {"retry-after": header}, b"{}")
        assert decode(encode(error)) == error


class TestOptions:
    @pytest.mark.parametrize(
        "given",
        [
            {"allowed_tools": "\ud83d"},
            {"approval": "\ud83d"},
            {"effort": "\ud83d"},
            {"policy": {"file_write": "\ud83d"}},
            {"allowed_tools": ["run_shell_command(\ud83d)"]},
            {
                "policy": {
                    "rules": [
                        {"tool": "run_shell_command", "decision": "deny", "command": "\ud83d"}
                    ]
                }
            },
            {"policy": {"\ud83d": "deny"}},
            {"policy": {"rules": [{"tool": "glob", "decision": "\ud83d"}]}},
        ],
        ids=repr,
    )
    def test_half_an_emoji_in_an_option_is_refused_like_any_other_mistake(self, given):
        with pytest.raises(InvalidOptions):
            Options.from_dict(given)

    def test_a_command_too_long_for_a_rule_is_refused_by_its_name(self):
        options = Options(policy=Policy(rules=(Rule("run_shell_command", "allow", "x" * 3_000),)))
        for made in (lambda: toml_of(options), lambda: _combined(LaunchContext(Cli(), options))):
            with pytest.raises(InvalidOptions, match="too long") as caught:
                made()
            assert "shorten" in str(caught.value.hint)

    def test_a_long_name_in_a_rule_is_read_in_linear_time(self):
        rule = Rule("mcp_" + "a" * 1_000_000, "deny")
        rules = Rules.of(Options(policy=Policy(rules=(rule,))))
        assert rules.verdict(rule.tool).decision == "deny"


class TestPolicies:
    def problems(self, pattern: str) -> list[str]:
        text = json.dumps(pattern)
        head = '[[rule]]\ntoolName = "*"\ndecision = "deny"\npriority = 1\nargsPattern = '
        return policy_problems(head + text)

    @pytest.mark.parametrize(
        "pattern",
        [
            ("a" * 1_800 + "e") * 500,
            "(" * 650 + "*" * 700 + ")" * 600,
            "a{99999999999}",
            "(" * 1_000 + ")" * 1_000,
        ],
        ids=["long", "quantifiers", "repetitions", "groups"],
    )
    def test_a_pattern_that_cannot_be_used_is_a_problem_in_linear_time(self, pattern):
        [problem] = self.problems(pattern)
        assert "the pattern" in problem

    @pytest.mark.parametrize(
        ("pattern", "is_nested"),
        [
            *(("(a+)+", True), ("(a)(b*)c)?", True), ("(a{2})*", True), ("(a?)(b)+", True)),
            *(("(a)+", False), ("a+(b)", False), ("(a+)b", False), ("(a)+b+", False)),
            *(("(a+\n)+", False), ("(\na+)+", True), (")+(", False), ("()*)*", False)),
        ],
    )
    def test_nested_quantifiers_are_what_the_cli_takes_for_them(self, pattern, is_nested):
        clis_own = re.compile(r"\([^)]*[*+?{].*\)[*+?{]")
        assert bool(clis_own.search(pattern)) is is_nested
        assert any("nested quantifiers" in why for why in self.problems(pattern)) is is_nested

    @pytest.mark.parametrize("pattern", ["[[a]", "[a&&b]", "[a||b]", "[a~~b]"])
    def test_a_pattern_that_python_wonders_about_is_used_without_a_warning(self, tmp_path, pattern):
        file = tmp_path / "policy.toml"
        file.write_text(
            '[[rule]]\ntoolName = "glob"\ndecision = "deny"\npriority = 1\n'
            f"argsPattern = '{pattern}'\n"
        )
        re.purge()
        assert Rules.read(file).verdict("glob", {"pattern": "ab"}).decision == "deny"

    @pytest.mark.parametrize("path", ["x" * 5_000, "~nobody-of-this-name/p", "\0"])
    def test_a_policy_path_that_cannot_be_is_a_mistake_in_the_settings(self, tmp_path, path):
        with pytest.raises(ConfigError):
            read_user_policy(tmp_path, tmp_path, {"policyPaths": [path]})


class TestHome:
    @pytest.mark.parametrize("name", ["\0", "a\0b", "x" * 5_000, "\ud83d", "..", ""])
    def test_a_context_file_that_cannot_be_is_a_mistake_in_the_settings(self, tmp_path, name):
        settings = tmp_path / ".gemini" / "settings.json"
        settings.parent.mkdir()
        settings.write_text(json.dumps({"context": {"fileName": [name, "\0"]}}))
        with pytest.raises(ConfigError, match="home"):
            Overlay.create(tmp_path, {}, "instructions", tmp_path)
        assert not list(tmp_path.glob("geminorum-home-*"))

    HOSTILE = ("\n" * 300_000 + "#", "A=x" + " " * 300_000 + "y", "a" * 1_000_000, "x\n" * 100_000)

    @pytest.fixture(params=HOSTILE, ids=["blanks", "value", "name", "lines"])
    def dotenv(self, request, tmp_path):
        (tmp_path / ".gemini").mkdir()
        (tmp_path / ".gemini" / ".env").write_text(request.param + "\nB=1\n")
        return tmp_path

    def test_an_env_file_is_read_in_linear_time(self, dotenv, tmp_path_factory):
        options = Options(cwd=dotenv, home=tmp_path_factory.mktemp("home"))
        assert dotenv_variables(options, dotenv)["B"][0] == "1"
        program = CliProgram(("gemini",), Path("gemini"), (0, 61, 0), None)
        assert "B" in disarming_variables(LaunchContext(Cli(), options), program)

    def test_an_env_file_says_what_it_said_before(self, tmp_path):
        (tmp_path / ".gemini").mkdir()
        text = "\n\n  export A = 'b c'  \t\n\nexport\nC=d\nE\n=f \nG.h=\n#I=j\n K=\"l\"\r\n"
        text += "export=m\nN: o\nA=\n"
        (tmp_path / ".gemini" / ".env").write_bytes(text.encode())
        found = dotenv_variables(Options(cwd=tmp_path), tmp_path)
        expected = {"A": "b c", "C": "d", "E": "f", "K": "l", "export": "m"}
        assert {name: value for name, (value, _) in found.items()} == expected


class TestBatch:
    TASK = Task("1", "one")

    def opened(self, folder: Path, results: bytes = b"", tries: bytes = b"") -> list[Decimal]:
        (folder / "r.jsonl").write_bytes(results)
        (folder / "r.jsonl.journal").write_bytes(tries)
        with Journal(folder / "r.jsonl").open([self.TASK]) as journal:
            return journal.costs

    @pytest.mark.parametrize("line", [b'{"id":"\xfe"}\n', b'{"id":"\xfe"}', b"\xfe"], ids=repr)
    def test_results_that_are_not_utf_8_are_refused_and_left_as_they_are(self, tmp_path, line):
        for files in ({"results": line + b"\n"}, {"tries": line + b"\n"}):
            with pytest.raises(InvalidOptions):
                self.opened(tmp_path, **files)

    def test_half_a_line_that_ends_within_a_character_is_cut_like_any_other(self, tmp_path):
        whole = b'{"id":"1","attempt":1,"ended":true,"usd":"0.5"}\n'
        assert self.opened(tmp_path, tries=whole + b'{"id":"\xfe"') == [Decimal("0.5")]

    @pytest.mark.parametrize("word", ["NaN", "sNaN", "-Infinity", "1e9999999", "-1"])
    def test_a_cost_that_is_no_number_is_refused(self, tmp_path, word):
        try_line = f'{{"id":"1","attempt":1,"ended":true,"usd":"{word}"}}\n'.encode()
        outcome = {"id": "1", "digest": self.TASK.digest, "prompt": "one", "status": "success"}
        result = json.dumps({**outcome, "cost_usd": word}).encode() + b"\n"
        for files in ({"results": result}, {"tries": try_line}):
            with pytest.raises(InvalidOptions):
                self.opened(tmp_path, **files)

    def test_a_header_that_csv_cannot_read_is_a_mistake_in_the_file(self, tmp_path):
        file = tmp_path / "prompts.csv"
        file.write_text("x" * 9_000_000 + ",prompt\n1,2\n")
        with pytest.raises(InvalidOptions):
            tasks_in(file)
