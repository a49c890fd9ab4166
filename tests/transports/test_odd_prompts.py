"""Prompts that look like commands of the CLI: plain text in every turn, and part of the history."""

import json

import pytest

from geminorum import Options, ask, connect

pytestmark = pytest.mark.gemini_cli

ODD = [
    "/etc/hosts: what is it?",
    "? is this one",
    " /with a space",
    "<session_context> of mine",
    "<hook_context> too",
]


@pytest.fixture
def options(fake_gemini, tmp_path) -> Options:
    return Options(cwd=tmp_path, model="gemini-2.5-flash", env=fake_gemini.env, timeout=60)


async def test_prompts_that_look_like_commands_stay_in_the_history(
    real_transport, any_transport, fake_gemini, options
):
    """The CLI leaves out of a resumed history what begins like a command, a question or a tag."""
    for _ in range(len(ODD) + 1):
        fake_gemini.say("Noted.")
    async with connect(options, via=any_transport) as chat:
        for prompt in ODD:
            result = await chat.ask(prompt)
    await ask("And all of them?", options.changed(resume=result.session_id), via=real_transport)
    sent = json.dumps(fake_gemini.requests[-1].body["contents"])
    assert [sent.count(prompt) for prompt in ODD] == [1] * len(ODD)
