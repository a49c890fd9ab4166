"""Runs in a real browser: started by the form, seen as they stream, stopped, reloaded."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from accessibility import violations
from played import settings
from playwright.async_api import Page, expect
from served import Visitor, served

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    folder = tmp_path_factory.mktemp("runs")
    async with served(**settings(folder)) as visitor:
        yield visitor


async def start(window: Page, visitor: Visitor, prompt: str, via: str) -> str:
    """Types into the form as a person would; returns the id of the run."""
    await window.goto(visitor.link)
    await window.get_by_label("What should the agent do?").fill(prompt)
    await window.get_by_text("More", exact=True).click()
    await window.get_by_label("Transport").select_option(via)
    await window.get_by_role("button", name="Start").click()
    await window.wait_for_url("**/runs/*")
    return window.url.rpartition("/")[2]


class TestARun:
    async def test_is_started_by_the_form_and_streams(self, window, visitor):
        await start(window, visitor, "Use pi", "quick")
        log = window.get_by_role("log")
        await expect(log.get_by_text("I look around.")).to_be_visible()
        await expect(log.locator(".diff .came")).to_have_text("+    return pi * r * r\n")
        await expect(log.locator("strong", has_text="pi")).to_be_visible()
        await expect(window.locator("[data-fact=status]")).to_have_text("success")
        await expect(window.locator("[data-fact=tokens]")).to_have_text("120")
        await expect(window.get_by_role("button", name="Stop")).to_be_hidden()
        await expect(window.get_by_role("button", name="Remove")).to_be_visible()

    async def test_is_stopped_by_its_button(self, window, visitor):
        id = await start(window, visitor, "Go on for ever", "endless")
        await expect(window.get_by_text("And now")).to_be_visible()
        await expect(window.locator("[data-fact=status]")).to_have_text("running")
        await window.get_by_role("button", name="Stop").click()
        await expect(window.locator("[data-fact=status]")).to_have_text("interrupted")
        await visitor.until(id, "interrupted")

    async def test_is_the_same_after_a_reload_in_mid_run(self, window, visitor):
        id = await start(window, visitor, "Go on for ever", "endless")
        await expect(window.get_by_text("And now")).to_be_visible()
        before = await window.locator(".piece").count()
        await window.reload()
        await expect(window.get_by_text("And now")).to_be_visible()
        assert await window.locator(".piece").count() == before
        await visitor.post(f"/runs/{id}/stop")
        await expect(window.locator("[data-fact=status]")).to_have_text("interrupted")

    async def test_that_dies_while_it_is_watched_ends_visibly(self, window, visitor):
        await start(window, visitor, "Die", "dies")
        await expect(window.locator("[data-fact=status]")).to_have_text("error")
        await expect(window.get_by_text("killed by SIGKILL").first).to_be_visible()

    async def test_appears_in_the_list_of_another_window(self, window, visitor):
        await window.goto(visitor.link)
        await expect(window.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
        id = await visitor.start("Started elsewhere", "quick")
        row = window.locator(f"#run-{id}")
        await expect(row).to_contain_text("Started elsewhere")
        await expect(row.locator("[data-fact=status]")).to_have_text("success")
        await expect(row.locator("[data-fact=activity]")).to_contain_text("Done")

    async def test_that_is_new_leaves_only_so_many_old_rows(self, window, visitor):
        await visitor.until(await visitor.start("Use pi", "quick"), "success")
        await window.goto(visitor.link)
        # As if the page had been open for days.
        await window.locator("#runs").evaluate(
            "list => list.append(...Array(300).fill(list.firstElementChild)"
            ".map(row => row.cloneNode(true)))"
        )
        id = await visitor.start("One more", "quick")
        await expect(window.locator(f"#run-{id}")).to_have_count(1)
        assert await window.locator(".run").count() <= 201


class TestThePage:
    async def test_shows_the_tab_of_a_page_on_a_phone(self, window, visitor):
        await window.set_viewport_size({"width": 390, "height": 800})
        await window.goto(visitor.link)
        await window.goto(f"{visitor.address}/doctor")
        tab = window.get_by_role("navigation").get_by_role("link", name="Doctor")
        await expect(tab).to_be_in_viewport(ratio=0.9)

    async def test_is_read_and_used_without_javascript(self, browser, visitor):
        context = await browser.new_context(java_script_enabled=False)
        window = await context.new_page()
        id = await start(window, visitor, "Use pi", "quick")
        await visitor.until(id, "success")
        await window.reload()
        await expect(window.get_by_text("I look around.")).to_be_visible()
        await window.get_by_role("button", name="Remove").click()
        await expect(window.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
        await expect(window.locator(f"#run-{id}")).to_have_count(0)
        await context.close()

    async def test_is_used_by_keyboard(self, window, visitor):
        await window.goto(visitor.link)
        await window.keyboard.press("Tab")
        await expect(window.get_by_text("Skip to the content")).to_be_focused()
        await window.keyboard.press("Enter")
        await window.keyboard.press("Tab")
        await expect(window.get_by_label("What should the agent do?")).to_be_focused()
        await window.keyboard.type("Use pi")
        for _ in range(6):
            await window.keyboard.press("Tab")
            if await window.get_by_role("button", name="Start").evaluate(
                "b => b === document.activeElement"
            ):
                break
        await window.keyboard.press("Enter")
        await window.wait_for_url("**/runs/*")
        await visitor.until(window.url.rpartition("/")[2], "success")

    async def test_shows_what_is_wrong_at_its_field(self, window, visitor):
        await window.goto(visitor.link)
        await window.get_by_label("What should the agent do?").fill("Keep me")
        await window.get_by_label("Folder").fill("/no/such/folder")
        await window.get_by_role("button", name="Start").click()
        await expect(window.get_by_label("Folder")).to_have_accessible_description(
            "write the whole path of a folder on this machine"
        )
        await expect(window.get_by_label("What should the agent do?")).to_have_value("Keep me")

    async def test_fits_and_is_accessible(self, window, visitor):
        id = await visitor.start("Use pi", "quick")
        await visitor.until(id, "success")
        for path in ("/runs", f"/runs/{id}", "/nowhere", "/runs?token=old"):
            await window.goto(f"{visitor.address}{path}" if path != "/runs" else visitor.link)
            assert await violations(window) == []


class TestTheConnection:
    async def test_that_is_lost_is_told_and_taken_up_again(self, window, tmp_path):
        page = settings(tmp_path)
        async with served(**page) as first:
            port = int(first.address.rpartition(":")[2])
            id = await start(window, first, "Go on for ever", "endless")
            await expect(window.get_by_text("And now")).to_be_visible()
        await expect(window.get_by_role("status").last).to_contain_text("geminorum web has ended")
        async with served(**page, port=port):
            await expect(window.locator(".connection")).to_be_hidden()
            await expect(window.locator(".run-page [data-fact=status]")).to_have_text("interrupted")
            assert window.url.endswith(id)
