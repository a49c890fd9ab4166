"""Questions of another process: how soon they are on the page, and how soon answers are back."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from statistics import median

from benchmarks.figures import Figure
from playwright.async_api import Page

from geminorum import Allow, PermissionRequest
from geminorum.decisions import Decisions, Place
from geminorum.inbox import Inbox
from load.web.browser import noted_by
from load.web.parts import Stage
from load.web.server import serving

_WAIT_SECONDS = 60.0
LIMIT_MS = 200


@dataclass(frozen=True, slots=True)
class Answered:
    asked: int
    allowed: int
    to_page: list[float]
    """Milliseconds from an agent's question to the frame that shows it."""
    to_tool: list[float]
    """Milliseconds from a click to the decision of the tool."""

    def figures(self) -> list[Figure]:
        return [
            Figure(f"questions answered, of {self.asked}", self.allowed, at_least=self.asked),
            Figure("from a question to the screen: median", median(self.to_page), "ms",
                   at_most=LIMIT_MS),
            Figure("… longest", max(self.to_page), "ms", at_most=LIMIT_MS),
            Figure("from a click to the tool: median", median(self.to_tool), "ms",
                   at_most=LIMIT_MS),
            Figure("… longest", max(self.to_tool), "ms", at_most=LIMIT_MS),
        ]  # fmt: skip


async def ask_and_answer(stage: Stage, questions: int) -> Answered:
    to_page, to_tool, allowed = [], [], 0
    with serving(stage.place / "questions", stage.stand_in) as server:
        place = Place(cwd=str(server.home), transport="cli")
        decisions = Decisions(Inbox(server.db), place=place)
        async with stage.browser.window(server.link) as page:
            await page.goto(f"{server.address}/inbox?")
            for number in range(questions):
                shown, answered, is_allowed = await _ask(decisions, page, f"make part-{number}")
                to_page.append(shown)
                to_tool.append(answered)
                allowed += is_allowed
    return Answered(questions, allowed, to_page, to_tool)


async def _ask(decisions: Decisions, page: Page, command: str) -> tuple[float, float, bool]:
    """Milliseconds to the page, milliseconds back, and whether it was allowed."""
    request = PermissionRequest("run_shell_command", command, {"command": command}, session_id="s")
    asked = time.time() * 1000
    task = asyncio.create_task(decisions.ask(request))
    card = page.locator(".question[data-state=open]", has_text=command)
    await card.get_by_role("button", name="Allow", exact=True).click()
    decision = await asyncio.wait_for(task, _WAIT_SECONDS)
    decided = time.time() * 1000
    noted = await noted_by(page)
    shown, clicked = noted["questions"][command], noted["clicks"][-1]
    return shown - asked, decided - clicked, isinstance(decision, Allow)
