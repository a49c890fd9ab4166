"""Whatever a repository, a model or a server writes, readers end in linear time and by design.

Work is counted, not timed. Where it is done by a library in C, the sizes are such that more than
linear time would not end before the suite's own limit.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from geminorum import Options, Policy, Rule, events, sessions, skills
from geminorum.apps.command.flags.options import data_in
from geminorum.contracts.provider_adapter.translation import PromptTranslationFailed, _arguments
from geminorum.doctor.mending import _add
from geminorum.errors import ConfigError, InvalidOptions, SessionUnreadable
from geminorum.policies import Rules
from geminorum.sessions.summary import info_of
from geminorum.usage.billing import bill_of
from geminorum.wire.acp import protocol as acp
from geminorum.wire.broken_json import mended
from geminorum.wire.callbacks import hook, mcp
from geminorum.wire.genai import answer as genai
from geminorum.wire.genai import verdict as genai_verdict
from geminorum.wire.launch.settings_file import parsed_settings
from geminorum.wire.policy.toml_reader import policy_problems
from geminorum.wire.policy.user_rules import user_policy
from geminorum.wire.stream_json.decoder import StreamDecoder

DEEP = "[" * 100_000
DEEP_OBJECT = '{"a":' * 100_000
SHELL = "run_shell_command"


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called, Python's own included."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture
def file(tmp_path) -> Callable[..., Path]:
    def write(content: bytes, name: str = "session-2026-01-01T00-00-abcdef12.jsonl") -> Path:
        path: Path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


class TestSessions:
    LINES = 20_000

    @pytest.mark.parametrize("line", [b"\n", b" \r\n", b"x\n", b"[]\n", b"- {\n"], ids=repr)
    def test_lines_that_say_nothing_cost_next_to_nothing(self, file, line):
        path = file(line * self.LINES)

        def load() -> None:
            with pytest.raises(SessionUnreadable):
                sessions.load(path)

        readers = (load, lambda: info_of(path, path.parent), lambda: bill_of(path))
        for reader in readers:
            assert calls_of(reader) < 14 * self.LINES

    def test_broken_records_cost_little(self, file):
        path = file(b'{"id": x}\n' * self.LINES)

        def load() -> None:
            with pytest.raises(SessionUnreadable):
                sessions.load(path)

        assert calls_of(load) < 16 * self.LINES

    @pytest.mark.parametrize("content", [DEEP, DEEP_OBJECT, f'{{"id":"a","content":{DEEP}'])
    def test_nesting_without_end_is_no_session(self, file, content):
        for name in ("session-x.json", "session-x.jsonl"):
            path = file(content.encode(), name)
            with pytest.raises(SessionUnreadable):
                sessions.load(path)
            assert info_of(path, path.parent).problem
            assert not bill_of(path).requests

    def test_the_first_words_may_be_nested_without_end(self, file):
        head = '{"sessionId": "abc", "messages": [{"id": "1", "type": "user", "content": '
        path = file((head + DEEP + "x" * 40_000).encode(), "session-x.json")
        assert info_of(path, path.parent).id == "abc"


class TestVerdicts:
    POLICY = Policy(shell_execute="allow", rules=(Rule(SHELL, "deny", "rm"),))

    @pytest.mark.parametrize(
        "command",
        [
            *("a" * 1_000_000, "(" * 1_000_000, "(a)" * 43_000, "${" * 65_000, "x?" * 60_000),
            *("\0" * 131_000, "for " * 32_000, ")" * 131_000, "a|" * 65_000 + "a", "`" * 131_000),
            "echo " + "$(echo " * 16_000 + ")" * 16_000,
        ],
        ids=lambda command: f"{command[:7]!r}",
    )
    def test_a_command_that_takes_ages_to_read_is_not_read(self, command):
        for options in (Options(policy=self.POLICY), Options(approval="yolo")):
            verdict = Rules.of(options).verdict(SHELL, {"command": command})
            assert verdict.decision == "ask"
            assert "too long to be read" in verdict.because

    def test_a_long_word_is_read_by_the_letter_at_most(self):
        rules = Rules.of(Options(policy=self.POLICY))
        command = "echo " + "a" * 1_000_000
        assert calls_of(lambda: rules.verdict(SHELL, {"command": command})) < 10_000

    def test_what_stands_beside_a_command_of_many_parts_is_not_read_again_for_each(self):
        command = "; ".join(f"a{number}" for number in range(1_500))
        arguments = {"command": command, "description": "x" * 1_000_000}
        verdict = Rules.of(Options(policy=self.POLICY)).verdict(SHELL, arguments)
        assert (verdict.decision, "too many parts" in verdict.because) == ("ask", True)

    def test_a_command_of_many_words_is_still_read(self):
        body = "print('Grüße', x[0])\n" * 300
        rules = Rules.of(Options(policy=self.POLICY))
        whole = f"cat > a.py <<'END'\n{body}END\n"
        assert rules.verdict(SHELL, {"command": whole}).decision == "allow"
        assert rules.verdict(SHELL, {"command": f"{whole}rm a.py"}).decision == "deny"

    def test_a_thousand_times_sudo_is_no_crash(self):
        rules = Rules.of(Options(policy=self.POLICY))
        assert rules.verdict(SHELL, {"command": "sudo " * 1_900 + "rm -rf x"}).decision == "ask"

    def test_an_input_nested_without_end_is_not_let_through(self):
        value: Any = []
        for _ in range(100_000):
            value = [value]
        for options in (Options(policy=self.POLICY), Options(approval="yolo")):
            verdict = Rules.of(options).verdict("write_file", {"content": value})
            assert verdict.decision == "ask"


class TestSettings:
    @pytest.mark.parametrize("text", [DEEP, DEEP_OBJECT, f'{{"a": {DEEP}{"]" * 100_000}}}'])
    def test_nesting_without_end_is_told(self, text):
        with pytest.raises(ValueError, match="nested too deeply"):
            parsed_settings(text)

    @pytest.mark.parametrize("text", ['"' + '\\"' * 1_000_000, '"\\' * 1_000_000])
    def test_a_string_that_never_ends_is_looked_for_once(self, text):
        with pytest.raises(ValueError, match=r"Unterminated|Expecting|Invalid"):
            parsed_settings(text)

    def test_a_comment_that_never_ends_is_one_to_the_end(self):
        """As to the CLI."""
        assert parsed_settings('{"a": 1} ' + "/* " * 700_000) == {"a": 1}

    def test_the_doctor_leaves_them_as_they_are(self, file):
        path = file(DEEP.encode(), "settings.json")
        with pytest.raises(ConfigError, match="left as it is"):
            _add(path, {"a": 1})


READERS: dict[str, tuple[Callable[[str], object], type[Exception]]] = {
    "an event": (events.decode, ValueError),
    "a line of the stream": (lambda text: mended(text.encode()), ValueError),
    "a request of MCP": (lambda text: mcp.message_of(text.encode()), mcp.Refusal),
    "a chunk of the API": (lambda text: genai.chunk_of(text.encode()), genai.BadChunk),
    "arguments of a caller": (lambda text: _arguments("f", text), PromptTranslationFailed),
    "a user's policies": (lambda text: user_policy([f"rule = {text}"], {}), ValueError),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("text", [DEEP, DEEP_OBJECT], ids=["lists", "objects"])
def test_nesting_without_end_is_an_error_of_its_own_kind(name, text):
    read, kind = READERS[name]
    with pytest.raises(kind):
        read(text)


@pytest.mark.parametrize("text", [DEEP, DEEP_OBJECT], ids=["lists", "objects"])
def test_where_an_answer_is_none_nesting_without_end_is_none_either(text):
    assert hook.hook_call(text.encode()) is None
    assert acp.message_of(text.encode()) is None
    assert genai_verdict._error_body(text.encode()) is None


def test_bytes_that_are_no_text_are_refused_alike():
    assert hook.hook_call(b'{"tool_name": "\xff"}') is None
    with pytest.raises(mcp.Refusal):
        mcp.message_of(b'{"method": "\xff"}')


def test_a_stream_goes_on_behind_a_line_that_is_both_broken_and_nested():
    decoder = StreamDecoder()
    lines = b'["\xff", ' + DEEP.encode() + b'\n{"type":"message","role":"user","content":"Hi"}\n'
    broken, hello = decoder.feed(lines)
    assert (broken.type, getattr(hello, "text", None)) == ("error", "Hi")


class TestPolicyFiles:
    def test_nesting_without_end_is_told(self):
        assert policy_problems(f"rule = {DEEP}") == ["nested too deeply"]

    @pytest.mark.parametrize("key", ["a.", '"a" . ', "'a'\t."])
    def test_a_key_of_a_hundred_thousand_parts_is_told(self, key):
        [problem] = policy_problems(f"{key * 100_000}a = 1")
        assert "more than 100 parts" in problem

    @pytest.mark.parametrize("suffix", ["json", "toml"])
    def test_one_for_a_flag_is_told_too(self, file, suffix):
        path = file(f"a = {DEEP}".encode() if suffix == "toml" else DEEP.encode(), f"p.{suffix}")
        with pytest.raises(typer.BadParameter, match=f"p.{suffix}"):
            data_in(path, "--policy")


@pytest.mark.parametrize("line", ["a: b\n", "\n", "description: x\n  y\n"], ids=repr)
def test_a_skill_of_a_million_lines_is_read_once(file, line):
    path = file(f"---\n{line * (3_000_000 // len(line))}---\n".encode(), "SKILL.md")
    with pytest.raises(InvalidOptions, match="has no name"):
        skills.read(path)
