"""Prompts that look like commands of the CLI: plain text in every turn, and part of the history."""

import json

import pytest

from geminorum import Acp, Options, ask, connect

pytestmark = pytest.mark.gemini_cli

ODD = [
    "/etc/hosts: what is it?",
    "? is this one",
    " /with a space",
    "<session_context> of mine",
    "<hook_context> too",
]
HEADLESS = "/help me"


@pytest.fixture
def options(fake_gemini, tmp_path) -> Options:
    return Options(cwd=tmp_path, model="gemini-2.5-flash", env=fake_gemini.env, timeout=60)


async def test_prompts_that_look_like_commands_stay_in_the_history(
    real_transport, fake_gemini, options
):
    """The CLI leaves out of a resumed history what begins like a command, a question or a tag.

    Said in a warm CLI, where a turn costs no start, and once more in a headless one.
    """
    for _ in range(len(ODD) + 2):
        fake_gemini.say("Noted.")
    async with connect(options, via=Acp(executable=real_transport.executable)) as chat:
        for prompt in ODD:
            result = await chat.ask(prompt)
    again = options.changed(resume=result.session_id)
    await ask(HEADLESS, again, via=real_transport)
    await ask("And all of them?", again, via=real_transport)
    sent = json.dumps(fake_gemini.requests[-1].body["contents"])
    assert [sent.count(prompt) for prompt in (*ODD, HEADLESS)] == [1] * (len(ODD) + 1)
