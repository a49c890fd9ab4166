"""How to test your own agent: offline, in milliseconds, without mocks.

    pytest examples/test_my_agent.py

`pip install geminorum` provides the fixture `fake_gemini`: a local Gemini API that gives scripted
answers. Everything between your code and HTTP is real.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

import pytest

from geminorum import Api, Options, sync
from geminorum.errors import InvalidAnswer, QuotaError
from geminorum.testing import FakeGemini

# ---- the agent; in your project, a separate file


@dataclass
class Ticket:
    team: Literal["billing", "engineering"]
    urgent: bool


def triage(mail: str, is_customer: bool = True, env: dict[str, str] | None = None) -> Ticket:
    def paying_customer(address: str) -> bool:
        """Does this address belong to a customer who pays?"""
        return is_customer

    options = Options(model="flash", output_schema=Ticket, env=env or {}, timeout=60)
    ticket: Ticket = sync.ask(mail, options, via=Api(tools=[paying_customer], retries=1)).data
    return ticket


# ---- its tests


def test_it_asks_who_pays_before_it_answers(fake_gemini: FakeGemini) -> None:
    fake_gemini.call("paying_customer", address="ada@example.org")
    fake_gemini.say('{"team": "billing", "urgent": true}')
    assert triage("I paid twice!", env=fake_gemini.env) == Ticket("billing", urgent=True)
    assert fake_gemini.requests[0].prompt == "I paid twice!"
    assert fake_gemini.requests[1].tool_results[0].response == {"output": True}
    assert not fake_gemini.unused


def test_it_survives_an_overload(fake_gemini: FakeGemini) -> None:
    fake_gemini.fail(503, retry_after=0).say('{"team": "engineering", "urgent": false}')
    assert triage("It crashes.", env=fake_gemini.env).team == "engineering"


def test_it_says_so_when_the_quota_is_spent(fake_gemini: FakeGemini) -> None:
    fake_gemini.fail(429, daily=True)
    with pytest.raises(QuotaError):
        triage("Hello?", env=fake_gemini.env)


def test_a_team_that_is_not_there_is_no_answer(fake_gemini: FakeGemini) -> None:
    fake_gemini.say('{"team": "kitchen", "urgent": false}').always()
    with pytest.raises(InvalidAnswer, match="team"):
        triage("The coffee is cold.", env=fake_gemini.env)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
