"""Options say what is wrong, and what would be right, before anything starts."""

from pathlib import Path

import pytest

from geminorum import Cli, Options
from geminorum.errors import InvalidOptions
from geminorum.prompt import as_text
from geminorum.wire.effort import overrides, thinking
from geminorum.wire.launch.argv import arguments, missing_flags

FLAG = "--output-format=stream-json"


def test_options_become_flags_of_one_token_each():
    """S0-4, S0-25, S1-28, S3-37 … S3-40, B-2: a value that begins with a dash stays a value."""
    options = Options(
        model="-odd", approval="yolo", resume="abc", include_directories=("a", Path("b"))
    )
    assert arguments(options) == [
        FLAG,
        "--skip-trust",
        "--model=-odd",
        "--approval-mode=yolo",
        "--resume=abc",
        "--include-directories=a",
        "--include-directories=b",
    ]


def test_by_default_no_flag_is_sent():
    """B-13, B-26: never yolo by default, no model unless asked."""
    assert arguments(Options(trust_workspace=True)) == [FLAG]


@pytest.mark.parametrize(
    ("version", "trust", "flags"),
    [
        ((0, 61, 0), None, [FLAG, "--skip-trust"]),
        ((0, 61, 0), False, [FLAG]),
        ((0, 29, 0), None, [FLAG]),
        (None, None, [FLAG, "--skip-trust"]),
    ],
)
def test_flags_are_those_of_the_cli_version(version, trust, flags):
    """B-30: `--skip-trust` is passed by default, but not to a CLI that lacks it or with
    `trust_workspace=False`."""
    assert arguments(Options(trust_workspace=trust), version=version) == flags


def test_options_that_a_version_lacks_are_named():
    options = Options(session_id="abc")
    assert missing_flags(options, (0, 40, 1)) == ["session_id"]
    assert missing_flags(options, (0, 61, 0)) == []
    assert missing_flags(Options(resume="x"), (0, 11, 3)) == ["resume"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"timeout": 0}, "timeout must be greater than 0"),
        ({"max_turns": -1}, "max_turns must be greater than 0"),
        ({"approval": "always"}, "approval='always'.*write default, auto_edit, yolo or plan"),
        ({"effort": "huge"}, "effort='huge'.*write minimal, low"),
        ({"replace_system_prompt": True}, "needs a system_prompt"),
        ({"timeout": "5"}, "timeout='5': Expected `float | null`"),
        ({"model": 5}, "model=5"),
        ({"cwd": 5}, "cwd=5"),
        ({"env": {"A": 1}}, "env="),
        ({"resume": 5}, "resume=5"),
        ({"include_directories": "src"}, "include_directories='src': Expected `array`"),
        ({"resume": "../../etc"}, "letters, digits, - and _"),
        ({"session_id": "a b"}, "letters, digits, - and _"),
        ({"resume": "a", "session_id": "b"}, "exclude each other"),
    ],
)
def test_a_wrong_value_says_what_would_be_right(values, message):
    with pytest.raises(InvalidOptions, match=message):
        Options(**values)


def test_plain_data_becomes_options():
    data = {"cwd": "/tmp", "maxTurns": 3, "includeDirectories": ["a"], "trust_workspace": True}
    assert Options.from_dict(data) == Options(
        cwd="/tmp", max_turns=3, include_directories=("a",), trust_workspace=True
    )


def test_a_path_in_plain_data_is_welcome():
    assert Options.from_dict({"cwd": Path("/tmp")}).cwd == "/tmp"
    assert Options(cwd=Path("/tmp")).cwd == Path("/tmp")
    assert Options(include_directories=["a", Path("b")]).include_directories == ("a", Path("b"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"timeout": "soon"}, "timeout='soon'"),
        ({"env": {"A": 1}}, "env="),
        ({"approval": "always"}, "approval='always'.*default, auto_edit, yolo or plan"),
        ({"include_directories": "src"}, "include_directories='src'"),
    ],
)
def test_a_wrong_value_in_plain_data_names_its_key(data, message):
    with pytest.raises(InvalidOptions, match=message):
        Options.from_dict(data)


@pytest.mark.parametrize(("wrong", "right"), [("modle", "model"), ("maxTurns", "max_turns")])
def test_an_unknown_keyword_is_refused_with_the_nearest_name(wrong, right):
    with pytest.raises(TypeError, match=f"^Options has no '{wrong}'; did you mean '{right}'"):
        Options(**{wrong: None})


def test_a_workspace_is_opened_and_not_an_option():
    """The nearest name, `trust_workspace`, would let a folder's own settings decide."""
    with pytest.raises(TypeError, match=r"Workspace\.opened\(source\)") as caught:
        Options(workspace="git+https://host/path@main")
    assert "trust" not in str(caught.value)
    with pytest.warns(UserWarning, match="cwd=there.folder"):
        Options.from_dict({"workspace": "."})


def test_an_unknown_key_warns_and_suggests_the_nearest():
    """S4-36: `Options.from_dict` ignores an unknown key with a warning that suggests a name."""
    with pytest.warns(UserWarning, match="'aproval' is ignored; did you mean 'approval'"):
        assert Options.from_dict({"aproval": "yolo"}) == Options()


@pytest.mark.parametrize(
    ("effort", "model", "config"),
    [
        ("low", "gemini-2.5-flash", {"thinkingBudget": 4096}),
        ("max", "gemini-2.5-flash", {"thinkingBudget": 24576}),
        ("max", "gemini-2.5-pro", {"thinkingBudget": 32768}),
        ("minimal", "gemini-3.8-flash", {"thinkingLevel": "MINIMAL"}),
        ("xhigh", "gemini-3.1-pro-preview", {"thinkingLevel": "HIGH"}),
    ],
)
def test_effort_is_told_in_the_words_of_the_models_family(effort, model, config):
    assert thinking(effort, model) == config
    found = {o["match"]["model"]: o["modelConfig"] for o in overrides(effort, model)}
    assert found[model] == {"generateContentConfig": {"thinkingConfig": config}}


def test_effort_reaches_whatever_an_alias_may_become():
    models = [override["match"]["model"] for override in overrides("low", "flash")]
    assert "gemini-3.8-flash" in models
    assert "flash" not in models
    assert len(models) == len(set(models))


def test_options_are_values():
    options = Options(model="flash")
    assert options.changed(model="pro").model == "pro"
    assert options.model == "flash"
    with pytest.raises(AttributeError):
        options.model = "pro"


@pytest.mark.parametrize(
    ("prompt", "sent"),
    [
        ("hello", "hello"),
        ("/init", "\u200b/init"),
        (" /init", "\u200b /init"),
        ("?", "\u200b?"),
        ("what?", "what?"),
        ("$5", "$5"),
        ("read @notes.txt", r"read \@notes.txt"),
        (r"already \@safe", r"already \@safe"),
        ("a @ b", "a @ b"),
        ("@", "@"),
    ],
)
def test_commands_and_file_references_in_a_prompt_are_disarmed(prompt, sent):
    assert as_text(prompt) == sent


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({"yolo": True}, "yolo"),
        ({"yolo": False}, None),
        ({"yolo": True, "approval": "yolo"}, "yolo"),
        ({"approval": "acceptEdits"}, "auto_edit"),
        ({"approval": "bypassPermissions"}, "yolo"),
        ({}, None),
    ],
)
def test_other_words_for_the_approval_are_understood(given, mode):
    """B-2, B-13: and without a word nothing is approved."""
    assert Options(**given).approval == mode
    assert Options.from_dict(given).approval == mode
    assert not Options(**given).yolo


@pytest.mark.parametrize("key", ["permissionMode", "approvalMode", "permission_mode", "approval"])
def test_other_names_of_the_approval_are_understood(key):
    assert Options.from_dict({key: "acceptEdits"}) == Options(approval="auto_edit")


def test_a_copy_of_yolo_can_be_careful_again():
    assert Options(yolo=True).changed(approval="default").approval == "default"


def test_yolo_with_another_approval_is_a_contradiction():
    with pytest.raises(InvalidOptions, match="exclude each other"):
        Options(yolo=True, approval="plan")


@pytest.mark.parametrize("bad", ["-x", "--help", "a;b", "a b", "$(id)", "", "../x", "ä", "1"])
@pytest.mark.parametrize("name", ["resume", "session_id"])
def test_a_session_id_is_letters_and_digits(name, bad):
    with pytest.raises(InvalidOptions, match=name):
        Options(**{name: bad})


@pytest.mark.parametrize(
    "wrong",
    [
        {"prices": {}},
        {"start_timeout": "3"},
        {"stall_timeout": -1},
        {"grace": -1},
        {"grace": None},
        {"settings": {"a": {1, 2}}},
        {"extra_args": "-x"},
    ],
)
def test_a_transport_refuses_what_it_could_not_keep(wrong):
    with pytest.raises(InvalidOptions, match=next(iter(wrong))):
        Cli(**wrong)


@pytest.mark.parametrize("wrong", [{"max_budget_usd": float("inf")}, {"model": " "}])
def test_what_says_nothing_is_refused(wrong):
    with pytest.raises(InvalidOptions, match=next(iter(wrong))):
        Options(**wrong)
