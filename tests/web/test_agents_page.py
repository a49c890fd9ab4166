"""Agents on the page: created, edited, copied, deleted, previewed, tested and run."""

import asyncio
import html
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from markup import Markup
from played import RESULT, WORK
from served import TOKEN, Visitor, opened

from geminorum import Options
from geminorum.apps.web.agents.book import Agent, AgentBook, AgentChanged
from geminorum.apps.web.agents.form import KEPT, AgentForm
from geminorum.apps.web.agents.preview import permissions_of, preview_of
from geminorum.apps.web.runs.database import open_database
from geminorum.contracts.local_adapter import CONFIG_FIELDS, GeminiLocalConfig
from stand_in import StandIn

pytestmark = pytest.mark.asyncio(loop_scope="module")
EVIL = "<script>alert(1)</script>\u202e"
SECRET = "AIzaThisIsVerySecret"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's own, which no agent may write to."""
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agents'."""
    return tmp_path_factory.mktemp("agents")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visitor(place: Path, folder: Path) -> AsyncIterator[Visitor]:
    program = StandIn(place)(*WORK, RESULT)  # It asks nobody: only `yolo` allows that.
    settings = {"db": f"sqlite:///{place}/web.db", "transports": {"cli": program}}
    async with opened(**settings, options=Options(cwd=folder, home=place)) as visitor:
        yield visitor


async def create(visitor: Visitor, name: str, **values: str) -> str:
    """By the form; returns the path of its page."""
    answer = await visitor.post("/agents", name=name, **values)
    assert answer.status_code == 200, answer.text
    return answer.url.path


async def run(visitor: Visitor, path: str, prompt: str) -> dict[str, Any]:
    """By the button, until everything that it started has ended; returns its facts."""
    answer = await visitor.post(f"{path}/run", prompt=prompt)
    assert answer.url.path.startswith("/runs/"), answer.text
    facts = await visitor.until(answer.url.path.rpartition("/")[2], "success", "error")
    assert facts["status"] == "success", facts
    while visitor.app.state.services.runs._tasks:
        await asyncio.sleep(0.02)
    return facts


async def read(visitor: Visitor, path: str) -> Markup:
    answer = await visitor.get(path)
    assert answer.status_code == 200, answer.text
    return checked(answer.text)


def checked(text: str) -> Markup:
    page = Markup(text)
    assert not page.has_foreign_markup()
    return page


class TestTheForm:
    async def test_has_a_field_for_everything_that_the_contract_describes(self, visitor):
        page = await read(visitor, "/agents/new")
        named = [one for one in page.elements if one.tag in ("input", "select", "textarea")]
        drawn = {one.attributes.get("name"): one for one in named}
        labelled = {one.attributes.get("for") for one in page.all("label")}
        for field in CONFIG_FIELDS:
            # The label of a tick is around it.
            assert drawn[field.key]["id"] in labelled or field.kind == "checkbox"
            help = page.one("p", id=f"f-{field.key}-help").text
            assert help == " ".join(field.help.split())
        choices = [one["value"] for one in page.all("option")]
        assert {"auto", "gemini-2.5-pro", "auto_edit"} <= {*choices}

    async def test_creates_an_agent(self, visitor, folder):
        path = await create(visitor, "Writer", cwd=str(folder), model="flash", timeoutSec="60")
        assert path == "/agents/writer"
        page = await read(visitor, path)
        assert page.one("h1").text == "Writer"
        facts = page.one("dl", class_="facts").text
        assert "flash" in facts
        assert "60" in facts
        assert "Writer" in (await read(visitor, "/agents")).one("main").text

    @pytest.mark.parametrize(
        ("key", "value", "told"),
        [
            ("name", "", "is missing"),
            ("name", "n" * 81, "80 letters at most"),
            ("cwd", "", "is missing"),
            ("timeoutSec", "soon", "a number instead of 'soon'"),
            ("timeoutSec", "-5", "seconds greater than 0"),
            ("maxTurns", "1.5", "a whole number greater than 0"),
            ("approvalMode", "all", "default, auto_edit, yolo or plan"),
            ("env", "no equals sign", "NAME=value on every line"),
            ("env", f"NEW={KEPT}", "has nothing saved for 'NEW'"),
        ],
    )
    async def test_says_at_its_field_what_is_wrong(self, visitor, folder, key, value, told):
        fields = {"name": "Wrong", "cwd": str(folder), "model": "keep-me", key: value}
        answer = await visitor.post("/agents", **fields)
        assert answer.status_code == 422
        page = checked(answer.text)
        assert told in page.one("p", id=f"f-{key}-error").text
        (wrong,) = [one for one in page.elements if one.attributes.get("aria-invalid") == "true"]
        assert f"f-{key}-error" in wrong["aria-describedby"]
        assert page.one("input", id="f-model")["value"] == "keep-me"
        assert "/agents/wrong" not in (await visitor.get("/agents")).text

    async def test_tells_all_mistakes_at_once(self, visitor):
        answer = await visitor.post("/agents", name="", cwd="", timeoutSec="x", graceSec="y")
        page = checked(answer.text)
        wrong = [one["id"] for one in page.all("p", class_="field-error")]
        assert wrong == ["f-name-error", "f-cwd-error", "f-timeoutSec-error", "f-graceSec-error"]
        assert "4 fields" in page.one("p", role="alert").text

    async def test_changes_an_agent_and_leaves_out_what_was_emptied(self, visitor, folder):
        path = await create(visitor, "Changing", cwd=str(folder), model="pro", yolo="on")
        page = await read(visitor, f"{path}/edit")
        assert "checked" in page.one("input", id="f-yolo").attributes
        revision = page.one("input", name="revision")["value"]
        answer = await visitor.post(
            path, name="Changed", cwd=str(folder), approvalMode="plan", revision=revision
        )
        assert answer.status_code == 200, answer.text
        facts = checked(answer.text).one("dl", class_="facts").text
        assert ("Model" in facts, "yolo" in facts, "plan" in facts) == (False, False, True)

    async def test_of_somebody_else_s_change_is_told_and_nothing_is_lost(self, visitor, folder):
        path = await create(visitor, "Shared", cwd=str(folder))
        old = {"cwd": str(folder), "revision": "1"}
        await visitor.post(path, name="First", **old)
        answer = await visitor.post(path, name="Second", **old)
        assert answer.status_code == 409
        page = checked(answer.text)
        assert "somebody else has changed this agent" in page.one("p", role="alert").text
        assert page.one("input", id="f-name")["value"] == "Second"
        assert "First" in (await visitor.get(path)).text
        revision = page.one("input", name="revision")["value"]
        answer = await visitor.post(path, name="Second", cwd=str(folder), revision=revision)
        assert checked(answer.text).one("h1").text == "Second"


class TestASecret:
    async def test_is_never_shown_again(self, visitor, folder):
        env = f"GEMINI_API_KEY={SECRET}\nTEAM=docs"
        path = await create(visitor, "Secretive", cwd=str(folder), env=env)
        copy = (await visitor.post(f"{path}/duplicate")).url.path
        pages = [path, f"{path}/edit", f"{path}/delete", copy, "/agents"]
        texts = [(await visitor.get(one)).text for one in pages]
        texts.append((await visitor.post(path, name="", env=env, cwd="")).text)
        texts.append((await visitor.post(path, name="x", env=env, cwd="/", preview="1")).text)
        texts.append((await visitor.post(f"{path}/check")).text)
        assert [text for text in texts if SECRET in html.unescape(text)] == []
        assert "GEMINI_API_KEY, TEAM" in texts[0]

    async def test_stays_until_its_line_is_changed_or_removed(self, visitor, folder):
        env = f"KEY={SECRET}\nTEAM=docs"
        path = await create(visitor, "Keeper", cwd=str(folder), env=env)
        page = await read(visitor, f"{path}/edit")
        shown = page.one("textarea", id="f-env").text
        assert shown == f"KEY={KEPT} TEAM={KEPT}"
        fields = {"name": "Keeper", "cwd": str(folder), "revision": "1"}
        await visitor.post(path, env=f"KEY={KEPT}\r\nNEW=1", **fields)
        kept = visitor.app.state.services.agents.get("keeper")
        assert kept.config["env"] == {"KEY": SECRET, "NEW": "1"}

    async def test_that_was_typed_beside_a_mistake_has_to_be_typed_again(self, visitor, folder):
        answer = await visitor.post("/agents", name="", cwd=str(folder), env=f"KEY={SECRET}")
        assert "Write the values of new variables again" in answer.text
        assert SECRET not in answer.text

    async def test_lies_in_a_file_that_only_its_owner_reads(self, visitor, place):
        assert stat.S_IMODE((place / "web.db").stat().st_mode) == 0o600

    async def test_is_in_no_representation(self):
        agent = Agent(id="quiet", name="Quiet", config={"cwd": "/", "env": {"KEY": SECRET}})
        assert SECRET not in f"{agent!r} {agent}"


class TestThePreview:
    async def test_shows_prompt_policy_and_command_without_saving(self, visitor, folder):
        fields = {"promptTemplate": "You are {{agent.name}}. {{prompt}}", "cwd": str(folder)}
        answer = await visitor.post(
            "/agents", name="Ann", sample="Count the files", preview="1", yolo="on", **fields
        )
        assert answer.status_code == 200
        page = checked(answer.text)
        texts = [one.text for one in page.all("pre")]
        assert texts[0] == "You are Ann. Count the files"
        assert "[[rule]]" in texts[1]
        assert "--approval-mode=yolo" in texts[2]
        assert "/agents/ann" not in (await visitor.get("/agents")).text

    async def test_comes_alone_for_a_script(self, visitor, folder):
        csrf = await visitor.csrf()
        data = {"csrf": csrf, "name": "", "cwd": str(folder), "preview": "1"}
        headers = {"hx-request": "true", "origin": visitor.address}
        answer = await visitor.client.post("/agents", data=data, headers=headers)
        page = checked(answer.text)
        assert (answer.status_code, page.all("html")) == (200, [])
        assert len(page.one("ul", class_="permissions").text.split("Run shell commands")) == 2

    async def test_of_a_wrong_config_says_what_to_correct(self, visitor):
        answer = await visitor.post("/agents", name="x", cwd="", preview="1")
        assert "There is something to correct first: cwd" in " ".join(answer.text.split())

    @pytest.mark.parametrize(
        ("more", "decisions"),
        [
            ({}, "allow allow ask ask ask ask ask"),
            ({"approval_mode": "auto_edit"}, "allow allow allow allow ask ask ask"),
            ({"approval_mode": "plan"}, "allow allow deny deny deny deny deny"),
            ({"yolo": True}, "allow allow allow allow allow allow allow"),
        ],
    )
    async def test_says_in_words_what_an_agent_may_do(self, more, decisions):
        made = permissions_of(GeminiLocalConfig(cwd="/", **more))
        assert " ".join(one.decision for one in made) == decisions

    async def test_says_what_a_template_lacks(self):
        forgetful = GeminiLocalConfig(cwd="/", prompt_template="Hello {{agent.name}}")
        assert "no {{prompt}}" in str(preview_of(forgetful, "Ann", "Go").problem)
        curious = GeminiLocalConfig(cwd="/", prompt_template="{{weather}} {{prompt}}")
        assert "weather" in str(preview_of(curious, "Ann", "Go").problem)


class TestAnAgent:
    async def test_is_duplicated_with_its_variables_and_edited_at_once(self, visitor, folder):
        path = await create(visitor, "Original", cwd=str(folder), env="A=1")
        answer = await visitor.post(f"{path}/duplicate")
        assert answer.url.path == "/agents/original-copy/edit"
        page = checked(answer.text)
        assert page.one("input", id="f-name")["value"] == "Original (copy)"
        assert page.one("textarea", id="f-env").text == f"A={KEPT}"

    async def test_is_deleted_after_a_question(self, visitor, folder):
        path = await create(visitor, "Short-lived", cwd=str(folder))
        assert "Delete Short-lived?" in (await visitor.get(f"{path}/delete")).text
        assert (await visitor.get(path)).status_code == 200
        await visitor.post(f"{path}/delete")
        assert (await visitor.get(path)).status_code == 404
        assert (await visitor.post(f"{path}/run", prompt="x")).status_code == 404

    async def test_may_be_called_anything(self, visitor, folder):
        path = await create(visitor, EVIL, cwd=str(folder))
        assert path == "/agents/script-alert-1-script"
        for page in (path, f"{path}/edit", f"{path}/delete", "/agents"):
            await read(visitor, page)
        assert await create(visitor, "New", cwd=str(folder)) == "/agents/new-2"
        assert await create(visitor, "日本", cwd=str(folder)) == "/agents/agent"
        assert await create(visitor, "日本", cwd=str(folder)) == "/agents/agent-2"

    @pytest.mark.parametrize("name", ["nobody", "..%2Fx", "%00", "a" * 500])
    async def test_that_is_not_there_is_a_clear_page(self, visitor, name):
        for more in ("", "/edit", "/delete"):
            assert (await visitor.get(f"/agents/{name}{more}")).status_code == 404

    async def test_runs_with_its_settings_and_goes_on_with_its_session(self, visitor, folder):
        fields = {"cwd": str(folder / "made"), "promptTemplate": "Dear {{agent.name}}: {{prompt}}"}
        path = await create(visitor, "Runner", yolo="on", **fields)
        first = await run(visitor, path, "Use pi")
        assert (first["prompt"], first["agent"], first["resumes"]) == ("Use pi", "runner", None)
        assert first["folder"] == str(folder / "made")
        page = await read(visitor, path)
        assert "It goes on with its session." in page.one("main").text
        assert first["session_id"][:8] in page.one("section", aria_labelledby="session").text
        assert "Use pi" in page.one("section", aria_labelledby="session").text
        second = await run(visitor, path, "Once more")
        assert second["resumes"] == first["session_id"]

    async def test_begins_a_new_session_after_a_reset(self, visitor, folder):
        path = await create(visitor, "Forgetful", cwd=str(folder), yolo="on")
        await run(visitor, path, "Use pi")
        assert "It goes on with its session." in (await visitor.get(path)).text
        page = checked((await visitor.post(f"{path}/reset")).text)
        assert "It begins a new session." in page.one("main").text
        assert "Use pi" in page.one("main").text

    async def test_in_another_folder_begins_a_new_session(self, visitor, folder):
        path = await create(visitor, "Mover", cwd=str(folder), yolo="on")
        await run(visitor, path, "Use pi")
        fields = {"name": "Mover", "cwd": str(folder / "elsewhere"), "revision": "2"}
        page = checked((await visitor.post(path, **fields)).text)
        assert "It begins a new session." in page.one("main").text

    async def test_is_not_run_without_a_prompt(self, visitor, folder):
        path = await create(visitor, "Idle", cwd=str(folder))
        answer = await visitor.post(f"{path}/run", prompt="  ")
        assert answer.status_code == 422
        assert "say what the agent should do" in answer.text

    async def test_whose_folder_became_a_file_says_so(self, visitor, folder):
        path = await create(visitor, "Unlucky", cwd=str(folder / "later"))
        (folder / "later").write_text("")
        page = await read(visitor, path)
        assert "Its config cannot be used any more" in page.one("div", role="alert").text
        assert (await visitor.post(f"{path}/run", prompt="x")).status_code == 422
        assert (await visitor.post(f"{path}/check")).status_code == 422


class TestTheTest:
    async def test_makes_its_checks_and_says_how_it_went(self, visitor, folder):
        program = folder / "a-gemini"
        program.write_text("#!/bin/sh\necho 0.61.0\n")
        program.chmod(0o755)
        fields = {"cwd": str(folder), "executable": str(program), "instructionsFilePath": "no.md"}
        path = await create(visitor, "Tested", **fields)
        page = checked((await visitor.post(f"{path}/check")).text)
        rows = [one.text for one in page.all("li", class_="check")]
        assert [text.split()[:2] for text in rows] == [
            ["ok", "cli"],
            ["ok", "cwd"],
            ["fail", "instructions"],
        ]
        assert page.one("li", class_="verdict").text == "1 problem to fix before a run can work."


async def test_a_page_to_read_shows_agents_and_changes_none(tmp_path):
    settings = {"db": f"sqlite:///{tmp_path}/web.db", "options": Options(cwd=tmp_path)}
    async with opened(**settings) as visitor:
        path = await create(visitor, "Watched", cwd=str(tmp_path))
    async with opened(**settings, read_only=True) as visitor:
        for one in ("/agents", path):
            page = await read(visitor, one)
            assert page.all("form") == []
        assert (await visitor.get("/agents/new")).status_code == 200


async def test_two_changes_at_once_are_not_both_made(tmp_path):
    database = open_database(str(tmp_path / "web.db"))
    book = AgentBook(database)
    book.open()
    agent = book.add("Shared", {"cwd": "/"})

    def change(name: str) -> object:
        try:
            return book.change(agent, name=name)
        except AgentChanged as error:
            return error

    made = await asyncio.gather(*(asyncio.to_thread(change, str(n)) for n in range(8)))
    assert sum(not isinstance(one, AgentChanged) for one in made) == 1
    database.close()


@pytest.mark.parametrize("limit", [5, None])
async def test_a_form_of_a_saved_config_is_the_same_config(limit):
    config = {"cwd": "/srv", "model": "pro", "timeoutSec": limit, "yolo": True, "env": {"A": "b"}}
    form = AgentForm.saved("x", config)
    typed = {one.name: "on" if one.is_ticked else one.value for one in form.fields}
    again = AgentForm.read({"name": "x", **typed}, config)
    assert again.config.to_dict() == config


class TestTheApi:
    async def send(self, visitor, method, path, **body):
        headers = {"authorization": f"Bearer {TOKEN}"}
        return await visitor.client.request(
            method, f"/api/agents{path}", json=body, headers=headers
        )

    async def test_makes_changes_runs_and_deletes_agents(self, visitor, folder):
        config = {"cwd": str(folder), "yolo": True, "timeoutSec": 60, "env": {"KEY": SECRET}}
        made = await self.send(visitor, "POST", "", name="Remote", config=config)
        assert made.status_code == 201, made.text
        agent = made.json()
        assert agent["config"] == {**config, "env": {"KEY": KEPT}}
        listed = (await visitor.get("/api/agents")).json()["agents"]
        assert agent in listed
        change = {"name": "Remote", "config": {**agent["config"], "model": "pro"}, "revision": 1}
        changed = await self.send(visitor, "PUT", "/remote", **change)
        assert (changed.status_code, changed.json()["config"]["model"]) == (200, "pro")
        assert (await self.send(visitor, "PUT", "/remote", **change)).status_code == 409
        assert visitor.app.state.services.agents.get("remote").config["env"] == {"KEY": SECRET}
        ran = await self.send(visitor, "POST", "/remote/run", prompt="Use pi")
        assert (ran.status_code, ran.json()["agent"]) == (201, "remote")
        await visitor.until(ran.json()["id"], "success")
        reset = await self.send(visitor, "POST", "/remote/reset")
        assert reset.json()["last_run"] == ran.json()["id"]
        assert (await self.send(visitor, "DELETE", "/remote")).status_code == 204
        assert (await visitor.get("/api/agents/remote")).status_code == 404

    @pytest.mark.parametrize(
        ("config", "told"),
        [
            ({}, "cwd: is missing"),
            ({"cwd": "/", "colour": "red"}, "colour: is not a setting of this adapter"),
            ({"cwd": "/", "timeoutSec": "soon"}, "a number instead of 'soon'"),
            ({"cwd": "/", "env": {"A": KEPT}}, "nothing saved for 'A'"),
        ],
    )
    async def test_says_what_is_wrong_with_a_config(self, visitor, config, told):
        answer = await self.send(visitor, "POST", "", name="Wrong", config=config)
        assert answer.status_code == 422
        assert told in answer.json()["error"]["message"]
