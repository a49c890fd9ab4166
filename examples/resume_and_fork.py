"""Read once, ask many times: each question continues from the same point, apart from the others.

    python examples/resume_and_fork.py "Read the code in src" "What is slow?" "What is unsafe?"
    python examples/offline.py resume_and_fork.py "Remember seven" "Double it" "Halve it"

The first prompt fills the session, which is the expensive part. Each question runs in a fork of it.
"""

from __future__ import annotations

import asyncio
import sys

from geminorum import Acp, GeminorumError, Options, Result, ask, sessions

OPTIONS = Options(model="gemini-2.5-flash", max_budget_usd=1.00, timeout=600)


async def main(beginning: str, questions: list[str]) -> None:
    async with Acp().warm(OPTIONS) as transport:
        first = await ask(beginning, OPTIONS, via=transport)
        tell(beginning, first)
        for question in questions:
            copy = sessions.fork(str(first.session_id))
            tell(question, await ask(question, OPTIONS.changed(resume=copy.id), via=transport))


def tell(prompt: str, result: Result) -> None:
    cost = f"${result.cost.usd:.4f}" if result.cost else "cost unknown"
    print(f"> {prompt}\n{result.text}\n[session {result.session_id}, {cost}]\n")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: resume_and_fork.py BEGINNING QUESTION …")
    try:
        asyncio.run(main(sys.argv[1], sys.argv[2:]))
    except GeminorumError as error:
        sys.exit(str(error))
