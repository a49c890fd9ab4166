"""Templates and instruction files become prompts; untrusted values stay values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminorum.errors import InvalidPrompt
from geminorum.prompt import instructed, render

CONTEXT = {
    "agentId": "a-1",
    "agent": {"name": "AI Copywriter"},
    "tenantId": "t-1",
    "tenant": {"name": "Ada & Co."},
    "runId": "r-1",
}


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("{{agentId}}", "a-1"),
        ("{{agent.name}}", "AI Copywriter"),
        ("{{tenantId}}", "t-1"),
        ("{{ tenant.name }}", "Ada & Co."),
        ("run {{runId}}, again {{runId}}", "run r-1, again r-1"),
        ("{{agent}}", '{"name": "AI Copywriter"}'),
        ("{{nobody}}{{agent.nobody}}{{agentId.name}}", ""),
        ("{ {agentId} } {{}} {{a b}}", "{ {agentId} } {{}} {{a b}}"),
    ],
)
def test_variables_are_replaced_by_their_values(template, prompt):
    """S1-8, S1-14, S1-15, S1-16, S1-17, S1-18, S1-25, B-28."""
    assert render(template, CONTEXT) == prompt


def test_the_callers_own_variables_may_have_any_name():
    assert render("{{topic}} in {{a.b}}", {"topic": "pipes", "a.b": 3}) == "pipes in 3"


@given(st.text())
def test_a_value_is_never_rendered_again(value):
    """B-28: a tenant called `{{secret}}` stays a tenant called `{{secret}}`."""
    assert render("[{{name}}]", {"name": value, "secret": "s3cret"}) == f"[{value}]"


def test_what_is_not_there_can_be_an_error():
    with pytest.raises(InvalidPrompt, match=r"asks for 'topic'(.|\n)*there are: agent, agentId"):
        render("{{topic}}", CONTEXT, strict=True)


def test_instructions_stand_before_the_prompt(tmp_path):
    """S1-9, S1-25."""
    file = tmp_path / "AGENT.md"
    file.write_text("Be brief.\n")
    assert instructed("Say hello", file) == "Be brief.\n\nSay hello"
    assert instructed("Say hello", None) == "Say hello"


@pytest.mark.parametrize(
    "make",
    [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_bytes(b"\xff\xfe")],
)
def test_an_unreadable_instructions_file_is_named(tmp_path, make):
    file = tmp_path / "AGENT.md"
    make(file)
    with pytest.raises(InvalidPrompt, match=r"AGENT\.md"):
        instructed("Say hello", file)
