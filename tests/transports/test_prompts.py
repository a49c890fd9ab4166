"""Templates and instruction files become prompts; untrusted values stay values."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminorum import Options, ask
from geminorum.errors import InvalidPrompt
from geminorum.prompt import PromptFile, delivered, instructed, render

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
    """S1-8, S1-14, S1-15, S1-16, S1-17, S1-18, S1-25, B-28: template variables are replaced once;
    unknown ones become empty."""
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
    """S1-9, S1-25: the text of the instructions file and a blank line come before the prompt."""
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


@pytest.mark.parametrize(("name", "before"), [("task.md", ""), ("-my task.md", "Be brief.")])
async def test_a_prompt_file_is_an_order_in_the_arguments(
    fake_gemini, tmp_path, real_transport, name, before
):
    """S4-15, B-1: what goes before it comes by stdin, and the CLI joins the two."""
    (tmp_path / name).write_text("Say hello.")
    fake_gemini.say("Hello")
    options = Options(cwd=tmp_path, env=fake_gemini.env, model="gemini-2.5-flash")
    result = await ask(PromptFile(name, before), options, via=real_transport)
    assert result.text == "Hello"
    said = fake_gemini.requests[-1].prompt
    assert said.strip() == f"{before}\n\nProcess the prompt in {name}".strip()


def test_a_prompt_file_is_a_prompt_like_any_other():
    """So that every transport takes it."""
    assert PromptFile(Path("task.md")) == "Process the prompt in task.md"
    assert PromptFile("task.md", "Be brief.") == "Be brief.\n\nProcess the prompt in task.md"
    assert delivered("task", literal=True) == (b"task", ())
    assert delivered(PromptFile("-x", "Be brief."), literal=True) == (
        b"Be brief.",
        ("--prompt=Process the prompt in -x",),
    )


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("a@b", '"a@b"'),
        ("a@b.c.", '"a@b.c."'),
        ("me@corp/plan.md", '"me@corp/plan.md"'),
        ("plan.md@", "plan.md@"),
        ("a@b c", r"a\@b c"),
    ],
)
def test_an_at_in_the_name_of_a_prompt_file_expands_nothing(name, quoted):
    """B-1: test_contract_response_provider.py has what the CLI makes of it."""
    assert delivered(PromptFile(name), literal=True)[1] == (
        f"--prompt=Process the prompt in {quoted}",
    )
