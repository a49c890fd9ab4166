"""Questions in a real browser, asked by the real CLI: answered on the page, and the tool acts."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from accessibility import violations
from inbox_parts import SHELL, WRITE, asked, asking, conversation
from playwright.async_api import Page, expect
from served import Visitor, served

from geminorum import Cli, Options
from geminorum.inbox import Inbox
from geminorum.testing import FakeGemini

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.gemini_cli]
NOTE = {"file_path": "note.txt", "content": "Hello\n"}


@pytest.fixture(scope="module")
def fake() -> AsyncIterator[FakeGemini]:
    with FakeGemini() as fake:
        yield fake


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the agents work."""
    return tmp_path_factory.mktemp("work")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(
    fake: FakeGemini, work: Path, real_transport: Cli, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Visitor]:
    options = Options(cwd=work, env=fake.env, home=fake.home, model="gemini-2.5-flash")
    via = {"cli": replace(real_transport, decide_timeout=None)}
    db = f"sqlite:///{tmp_path_factory.mktemp('page')}/web.db"
    async with served(db=db, options=options, transports=via) as visitor:
        yield visitor


@pytest.fixture
def inbox(visitor: Visitor) -> Inbox:
    return Inbox(visitor.app.settings.db)


async def start(window: Page, visitor: Visitor, prompt: str) -> str:
    await window.goto(visitor.link)
    await window.get_by_label("What should the agent do?").fill(prompt)
    await window.get_by_role("button", name="Start").click()
    await window.wait_for_url("**/runs/*")
    return window.url.rpartition("/")[2]


class TestAnAnswer:
    async def test_lets_the_tool_act(self, window, visitor, fake, work):
        fake.call("write_file", **NOTE)
        fake.say("It is written.")
        id = await start(window, visitor, "Write a note")
        card = window.locator(".question")
        await expect(card.locator(".diff .came")).to_have_text("+Hello\n")
        await expect(window.locator(".run-page [data-fact=status]").first).to_have_text("waiting")
        await expect(window.locator("#inbox-count")).to_contain_text("1")
        assert not (work / "note.txt").exists()
        await card.get_by_role("button", name="Allow", exact=True).click()
        await expect(window.get_by_text("It is written.")).to_be_visible()
        await expect(window.locator(".run-page [data-fact=status]").first).to_have_text("success")
        assert (work / "note.txt").read_text() == "Hello\n"
        await expect(window.locator("#inbox-count")).to_be_hidden()
        assert (await visitor.until(id, "success"))["tokens"] > 0

    async def test_that_denies_tells_the_agent_why(self, window, visitor, fake, work):
        fake.call("write_file", **{**NOTE, "file_path": "other.txt"})
        fake.say("Then I do not.")
        id = await start(window, visitor, "Write another note")
        await window.get_by_role("link", name="Inbox").click()
        card = window.locator(".question")
        await expect(card).to_have_count(1)
        await card.get_by_label("Reason for the agent").fill("keep notes in docs/")
        await card.get_by_role("button", name="Deny").click()
        await expect(card).to_contain_text("denied it")
        await expect(card).to_contain_text("keep notes in docs/")
        await visitor.until(id, "success")
        assert not (work / "other.txt").exists()
        told = [str(result.response) for result in fake.requests[-1].tool_results]
        assert any("keep notes in docs/" in text for text in told)


class TestTheInbox:
    async def test_fills_and_empties_while_one_looks(self, window, visitor, inbox):
        await window.goto(visitor.link)
        await window.goto(f"{visitor.address}/inbox")
        await expect(window.get_by_text("Nobody waits for you")).to_be_visible()
        async with asking(conversation(inbox), SHELL):
            [question] = await asked(inbox)
            card = window.locator(f"#q-{question.id}")
            await expect(card).to_contain_text("rm -r build")
            await expect(window.get_by_text("Nobody waits for you")).to_be_hidden()
            await expect(window).to_have_title("(1) Inbox · geminorum")
        await expect(card).to_contain_text("stopped before anybody answered")
        await expect(window).to_have_title("Inbox · geminorum")

    async def test_leaves_alone_what_somebody_is_typing(self, window, visitor, inbox):
        await window.goto(visitor.link)
        await window.goto(f"{visitor.address}/inbox")
        async with asking(conversation(inbox), SHELL):
            [first] = await asked(inbox)
            reason = window.locator(f"#q-{first.id}").get_by_label("Reason for the agent")
            await reason.fill("half a sen")
            async with asking(conversation(inbox), WRITE):
                await asked(inbox, 2)
                await expect(window.locator(".question")).to_have_count(2)
                await expect(reason).to_have_value("half a sen")
                await expect(reason).to_be_focused()

    async def test_fits_and_is_accessible(self, window, visitor, inbox):
        async with asking(conversation(inbox), SHELL, WRITE):
            [question, *_] = await asked(inbox, 2)
            for path in ("/runs", "/inbox", f"/inbox/{question.id}"):
                await window.goto(visitor.link if path == "/runs" else f"{visitor.address}{path}")
                assert await violations(window) == []
