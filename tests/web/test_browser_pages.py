"""Sessions, usage, agents and the doctor in a real browser: used, drawn, read at any width."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from accessibility import violations
from played import RESULT, WORK
from playwright.async_api import Page, expect
from saved_home import FIX, HOSTILE, TOUR, fill
from served import Visitor, served

from geminorum import Options
from stand_in import StandIn

pytestmark = pytest.mark.asyncio(loop_scope="session")

COLOURS_OF_THE_CHART = """(chart =>
    new Set(chart.getContext('2d').getImageData(0, 0, chart.width, chart.height).data).size
)(document.querySelector('.chart canvas'))"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(folder: Path) -> AsyncIterator[Visitor]:
    (folder / "code").mkdir()
    fill(folder / "home", folder / "code")
    settings = {
        "db": f"sqlite:///{folder}/web.db",
        "transports": {"cli": StandIn(folder)(*WORK, RESULT)},
        "options": Options(cwd=folder / "code", home=folder / "home"),
    }
    async with served(**settings) as visitor:
        yield visitor


async def go(window: Page, visitor: Visitor, path: str) -> None:
    if not window.url.startswith(visitor.address):
        await window.goto(visitor.link)
    await window.goto(f"{visitor.address}{path}")


async def test_a_session_is_searched_and_read(window, visitor):
    await go(window, visitor, "/sessions")
    await expect(window.locator(".session")).to_have_count(3)
    await window.get_by_label("Search").fill("no lock")
    await window.keyboard.press("Enter")
    await expect(window.locator(".session")).to_have_count(1)
    await expect(window.locator("mark")).to_have_text("no lock")
    assert "q=no+lock" in window.url
    await window.get_by_role("link", name="Why does").click()
    await expect(window.get_by_role("heading", level=1)).to_contain_text("Why does")
    edit = window.locator("details.call", has_text="replace")
    await expect(edit.locator(".diff")).to_be_hidden()
    await edit.locator("summary").click()
    await expect(edit.locator(".diff .came").first).to_be_visible()
    # The last bar leads to its call.
    await window.locator(".bar-name").last.click()
    await expect(window.locator("article:target")).to_contain_text("rm -rf build")


async def test_charts_are_drawn_and_follow_the_scheme(window, visitor):
    await go(window, visitor, "/usage?days=30")
    canvas = window.locator(".chart canvas")
    await expect(canvas).to_be_visible()
    await window.wait_for_function(f"() => {COLOURS_OF_THE_CHART} > 20")
    light = await canvas.evaluate("c => c.toDataURL()")
    await window.emulate_media(color_scheme="dark")
    is_other = "light => document.querySelector('.chart canvas').toDataURL() !== light"
    await window.wait_for_function(is_other, arg=light)
    await window.wait_for_function(f"() => {COLOURS_OF_THE_CHART} > 20")


async def test_an_agent_is_made_with_a_wrong_value_then_a_right_one_and_run(window, visitor):
    await go(window, visitor, "/agents")
    await window.get_by_role("link", name="New agent").click()
    await window.get_by_label("Name").fill("Geometer")
    await window.get_by_label("Time limit in seconds").fill("soon")
    await window.get_by_role("button", name="Create").click()
    field = window.get_by_label("Time limit in seconds")
    await expect(field).to_have_attribute("aria-invalid", "true")
    await expect(window.locator("#f-timeoutSec-error")).to_contain_text("a number instead of")
    await expect(window.get_by_label("Name")).to_have_value("Geometer")
    await field.fill("90")
    await window.get_by_label("Prompt template").fill("Dear {{agent.name}}: {{prompt}}")
    # The program that plays the CLI asks nobody.
    await window.get_by_label("Act without asking (yolo)").check()
    await window.get_by_role("button", name="Preview").click()
    await expect(window.locator("#preview pre").first).to_contain_text("Dear Geometer: Summarise")
    await window.get_by_role("button", name="Create").click()
    await expect(window.get_by_role("heading", level=1)).to_have_text("Geometer")
    await window.get_by_label("What should it do?").fill("Use pi")
    await window.get_by_role("button", name="Run").click()
    await window.wait_for_url("**/runs/*")
    await expect(window.locator(".run-page [data-fact=status]")).to_have_text("success")
    await expect(window.get_by_text("I look around.")).to_be_visible()
    await window.goto(f"{visitor.address}/agents/geometer")
    await expect(window.get_by_text("It goes on with its session.")).to_be_visible()


async def test_the_pages_are_used_without_javascript(browser, visitor):
    context = await browser.new_context(java_script_enabled=False)
    window = await context.new_page()
    await go(window, visitor, "/sessions")
    await window.get_by_label("Search").fill("river")
    await window.get_by_role("button", name="Search").click()
    await expect(window.locator(".session")).to_have_count(1)
    await go(window, visitor, "/usage?by=model")
    await expect(window.get_by_role("rowheader", name="gemini-2.5-pro")).to_be_visible()
    await go(window, visitor, "/agents/new")
    await window.get_by_label("Name").fill("Plain")
    await window.get_by_role("button", name="Preview").click()
    await expect(window.get_by_label("Name")).to_have_value("Plain")
    await window.get_by_role("button", name="Create").click()
    await window.get_by_role("link", name="Delete…").click()
    await window.get_by_role("button", name="Delete it").click()
    await expect(window.get_by_role("heading", name="Agents", exact=True)).to_be_visible()
    await context.close()


async def test_the_pages_fit_and_are_accessible(window, visitor, folder):
    await visitor.post("/agents", name="Reader", cwd=str(folder / "code"), env="KEY=1")
    pages = [
        *("/sessions?q=lock", "/sessions?since=x", f"/sessions/{FIX}", f"/sessions/{HOSTILE}"),
        *(f"/sessions/{TOUR}/delete", "/usage?by=session"),
        *("/agents", "/agents/reader", "/agents/reader/edit", "/doctor"),
    ]
    wrong = {}
    for path in pages:
        await go(window, visitor, path)
        wrong[path] = await violations(window)
    assert {path: found for path, found in wrong.items() if found} == {}
