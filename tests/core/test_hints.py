"""A hint says the same to everybody, in the words that each of them can type."""

from __future__ import annotations

import ast
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import geminorum
from geminorum import errors, events, hints
from geminorum.apps.command.batch.input import Task
from geminorum.apps.command.batch.runner import _outcome
from geminorum.apps.command.failures import command_hint, command_words
from geminorum.apps.command.flags.vocabulary import in_flags
from geminorum.errors import RunTimeout
from geminorum.events import Error
from geminorum.hints import advice, python_only, render
from geminorum.redaction import Redactor

SOURCE = Path(geminorum.__file__).parent
SHORT = {"Options.timeout": "--timeout", "Cli.executable": "--cli", "two": "2"}


def short(name: str, value: str) -> str | None:
    return SHORT.get(name)


@pytest.mark.parametrize(
    ("template", "python", "others"),
    [
        ("ask again", "ask again", "ask again"),
        ("raise {Options.timeout=…}", "raise Options(timeout=…)", "raise --timeout"),
        ("raise {Options.timeout}", "raise timeout", "raise --timeout"),
        ("without {Options.timeout|`timeout`}", "without `timeout`", "without --timeout"),
        ("look, wait, [or call {wait()}]", "look, wait, or call wait()", "look, wait"),
        ("wait[; it is in {.result}]", "wait; it is in .result", "wait"),
        ("[see {.stderr}; ]wait", "see .stderr; wait", "wait"),
        ("[see {.stderr}][; or wait]", "see .stderr; or wait", "wait"),
        ("[raise {Pool.size=…}][, or wait]", "raise Pool(size=…), or wait", "wait"),
        ("one of: [{a()}][, {two}][ or {b()}]", "one of: a(), two or b()", "one of: 2"),
        ("one of: [{a()}][ or {b()}]", "one of: a() or b()", None),
        ("[see {two}[, {None} waits]]", "see two, None waits", "see 2"),
        ("pass {Api.config=…}", "pass Api(config=…)", None),
        ('{settings={"a": [{"b": True}]}}', 'settings={"a": [{"b": True}]}', None),
        ("{events.encode}", "events.encode", None),
    ],
)
def test_each_audience_reads_its_own_words(template, python, others):
    hint = advice(template)
    assert hint == python
    assert render(hint, short) == others


def test_values_are_data_and_not_part_of_the_template():
    hint = advice("look into {folder}, with {Options.cwd=folder}", folder="/a [b] {c}|d")
    assert hint == "look into /a [b] {c}|d, with Options(cwd='/a [b] {c}|d')"
    assert command_hint(hint) == "look into /a [b] {c}|d, with --cwd '/a [b] {c}|d'"


def test_a_hint_may_hold_another():
    inner = advice("raise {Options.timeout=…}[; see {.result}]")
    outer = advice("wait[, or {inner}]", inner=inner)
    assert outer == "wait, or raise Options(timeout=…); see .result"
    assert render(outer, short) == "wait, or raise --timeout"
    assert render(advice("wait[, or {inner}]", inner=python_only("x()")), short) == "wait"


def test_a_hint_of_somebody_elses_is_left_as_it_is():
    assert command_hint("call mine(…) with None") == "call mine(…) with None"
    assert command_hint(None) is None


def test_an_exact_string_leaves_every_serializer_in_peace():
    error = Error("late", RunTimeout.code, hint=RunTimeout.default_hint)
    assert type(error.hint) is str
    assert msgspec.json.decode(msgspec.json.encode(error))["hint"] == RunTimeout.default_hint
    assert json.loads(json.dumps(error.hint)) == error.hint


def test_what_crosses_json_or_a_pickle_is_still_known():
    hint = advice("go to {Options.cwd=folder}", folder="/srv")
    decoded = events.decode(events.encode(Error("no", hint=hint)))
    assert isinstance(decoded, Error)
    assert command_hint(decoded.hint) == "go to --cwd /srv"
    raised = pickle.loads(pickle.dumps(RunTimeout("late", hint=hint)))
    assert command_hint(raised.hint) == "go to --cwd /srv"


def test_a_secret_is_blacked_out_for_every_audience():
    secret = "s3cret-s3cret"
    redactor = Redactor([secret])
    hint = advice("go to {Options.cwd=folder}", folder=f"/srv/{secret}")
    event = redactor.event(Error("no", hint=hint))
    assert isinstance(event, Error)
    assert command_hint(event.hint) == "go to --cwd '/srv/[redacted]'"
    outer = advice("wait[, or {hint}]", hint=hint)
    assert command_hint(hints.changed(outer, redactor.text)) == (
        "wait, or go to --cwd '/srv/[redacted]'"
    )
    error = RunTimeout("late", hint=hint)
    redactor.exception(error)
    assert command_hint(error.hint) == "go to --cwd '/srv/[redacted]'"


def test_hints_with_values_do_not_pile_up():
    constant = advice("raise {Options.timeout=…}")
    for number in range(2000):
        last = advice("go to {Options.cwd=folder}", folder=f"/srv/{number}")
    assert len(hints._filled) < 1000
    assert command_hint(last) == "go to --cwd /srv/1999"
    assert command_hint(constant) == "raise --timeout"


def test_no_constant_of_a_module_can_be_forgotten():
    """Hints with values are forgotten one day, and `python_only` has one."""
    for path in SOURCE.rglob("*.py"):
        constants = (n for n in ast.parse(path.read_text()).body if isinstance(n, ast.Assign))
        calls = (n for c in constants for n in ast.walk(c) if isinstance(n, ast.Call))
        assert not [call for call in calls if ast.unparse(call).startswith("python_only")], path


def test_a_message_and_a_warning_are_told_in_flags_too():
    text = advice("{Api.tools=…} has no function 'x'")
    assert command_words(text) == "the API has no function 'x'"


def test_a_result_of_a_batch_says_what_to_type():
    outcome = _outcome(Task("1", "Hi"), None, RunTimeout("late"), 1)
    assert outcome.error is not None
    assert outcome.error.hint == "raise --timeout"


PYTHON = re.compile(r"\w\(|\bOptions\b|\bNone\b|\.result|\.stderr|[a-z]=[\[{(…]|\bTrue\b|[{}]")


def hints_in(path: Path) -> Iterator[tuple[int, ast.expr]]:
    """What the source passes as `hint`, keeps in a constant for it, or makes with `advice`."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.keyword(arg="hint", value=value):
                yield value.lineno, value
            case ast.Assign(targets=[ast.Name(id=name)]) if "hint" in name.lower():
                yield node.lineno, node.value
            case ast.Call(func=ast.Name(id="advice" | "python_only")):
                yield node.lineno, node


def ours() -> Iterator[tuple[str, ast.expr]]:
    for path in sorted(SOURCE.rglob("*.py")):
        # A contract's own hints are for its users, who write Python.
        if path.relative_to(SOURCE).parts[0] not in ("contracts", "hints.py"):
            for line, value in hints_in(path):
                yield f"{path.relative_to(SOURCE)}:{line}", value


def text_of(value: ast.expr) -> str | None:
    """The text that the source has for a hint, in flags; None if there is none for the command."""
    match value:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(p.value if isinstance(p, ast.Constant) else "x" for p in parts)
        case ast.Call(func=ast.Name(id="advice"), args=[template], keywords=named):
            values = {one.arg or "": "x" for one in named}
            return render(advice(text_of(template) or "", **values), in_flags)
        case ast.IfExp(body=body, orelse=other):
            return "; ".join(filter(None, (text_of(body), text_of(other))))
    return None


def test_no_hint_of_the_library_shows_python_to_who_types_flags():
    told = {place: text_of(value) for place, value in ours()}
    assert len(told) > 200
    assert {place: text for place, text in told.items() if text and PYTHON.search(text)} == {}
    kinds = [kind for kind in vars(errors).values() if getattr(kind, "default_hint", None)]
    assert not [kind for kind in kinds if PYTHON.search(command_hint(kind.default_hint) or "")]
