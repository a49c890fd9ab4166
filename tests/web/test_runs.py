"""Runs on the page: started by a form, followed, stopped, recorded, and never left behind."""

import asyncio
import html
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from html.parser import HTMLParser
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from played import ANSWER, settings
from served import Visitor, opened, served

from geminorum.apps.web.live.run_view import RunView
from geminorum.apps.web.runs.board import RunBoard
from geminorum.apps.web.runs.book import RunBook
from geminorum.apps.web.runs.change_signal import ChangeSignal
from geminorum.apps.web.runs.database import open_database
from geminorum.apps.web.runs.form import APPROVALS, EFFORTS
from geminorum.apps.web.runs.info import RunInfo, new_id, now_ms
from geminorum.errors import SetupError
from geminorum.events import UserMessage, decode
from geminorum.inbox import Inbox
from geminorum.options import Approval, Effort

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOSTILE = """<script>document.title="owned"</script><img src=x onerror=alert(1)>"' \u202e"""
HOSTILE += "</textarea></title></details></main>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visitor(folder: Path) -> AsyncIterator[Visitor]:
    async with served(**settings(folder)) as visitor:
        yield visitor


class TestTheForm:
    async def test_starts_a_run_and_leads_to_its_page(self, visitor):
        answer = await visitor.post("/runs", prompt="Use pi", via="quick")
        assert answer.url.path.startswith("/runs/")
        assert "Use pi" in answer.text
        await visitor.until(answer.url.path.rpartition("/")[2], "success")

    @pytest.mark.parametrize(
        ("field", "value", "told"),
        [
            ("prompt", " ", "say what the agent should do"),
            ("folder", "/no/such/folder", "whole path of a folder"),
            ("folder", "relative", "whole path of a folder"),
            ("timeout", "soon", "a number of seconds"),
            ("timeout", "-1", "must be greater than 0"),
            ("timeout", "nan", "must be greater than 0"),
            ("max_budget_usd", "a lot", "a number of dollars"),
            ("max_turns", "1.5", "a whole number"),
            ("approval", "all", "default, auto_edit, yolo or plan"),
            ("effort", "huge", "minimal"),
            ("resume", "../x", "resume may hold letters"),
            ("via", "pigeon", "choose one of"),
            ("folder", "~nobody-of-this-name/x", "the whole path of a folder"),
        ],
    )
    async def test_says_at_its_field_what_is_wrong(self, visitor, field, value, told):
        answer = await visitor.post("/runs", **{"prompt": "Keep me", "via": "quick", field: value})
        assert answer.status_code == 422
        [message] = [line for line in answer.text.split("\n") if f'id="{field}-error"' in line]
        assert told in html.unescape(message)
        assert f'aria-describedby="{field}-error"' in answer.text
        assert field == "prompt" or "Keep me" in answer.text

    async def test_can_be_filled_in_by_a_link(self, visitor):
        page = (await visitor.get("/runs?resume=abc-1&prompt=Go+on")).text
        assert 'value="abc-1"' in page
        assert ">Go on</textarea>" in page

    async def test_is_not_filled_in_by_a_link_where_nobody_looks(self, visitor):
        """Any web site can make one."""
        fields = "approval=plan&system_prompt=and+evil&via=dies&model=dear&max_budget_usd=999"
        page = (await visitor.get(f"/runs?prompt=Go+on&{fields}")).text
        assert ">Go on</textarea>" in page
        for typed in ("and evil", 'value="dies" selected', 'value="dear"', 'value="999"'):
            assert typed not in page
        assert '<option value="yolo" selected>' in page  # As in the settings.

    @pytest.mark.parametrize("number", ["9" * 30, "9" * 5000, "-1", "٣", "x"])
    async def test_takes_any_number_in_an_address(self, visitor, number):
        for path in ("/runs?before=", "/sessions?page="):
            assert (await visitor.get(f"{path}{number}")).status_code == 200

    async def test_starts_no_agent_that_could_write_what_the_page_keeps(self, folder, tmp_path):
        """Also where the questions are kept elsewhere."""
        (tmp_path / "state").mkdir()
        parts = {**settings(tmp_path), "db": f"sqlite:///{tmp_path}/state/web.db"}
        async with opened(**parts, inbox=Inbox(folder / "inbox.db")) as visitor:
            for place in (tmp_path, tmp_path / "state"):
                fields = {"folder": str(place), "approval": "auto_edit", "via": "quick"}
                answer = await visitor.post("/runs", prompt="Go", **fields)
                assert answer.status_code == 422
                assert "the page&#39;s database" in answer.text
            assert (await visitor.get("/api/runs")).json() == {"runs": []}

    async def test_offers_what_the_options_know(self):
        assert {*APPROVALS} == {*Approval.__args__}
        assert {*EFFORTS} - {""} == {*Effort.__args__}


class TestARun:
    async def test_is_shown_with_text_tools_diff_tokens_and_cost(self, visitor):
        id = await visitor.start("Use pi", "quick")
        run = await visitor.until(id, "success")
        assert run["tokens"] == 120
        assert run["tools"] == 1
        page = (await visitor.get(f"/runs/{id}")).text
        for part in ("I look around.", "<strong>pi</strong>", "+    return pi", "120", "replaced"):
            assert part in page
        assert '<span class="went">-    return 3.14 * r * r\n</span>' in page

    async def test_that_dies_ends_visibly(self, visitor):
        id = await visitor.start("Die", "dies")
        run = await visitor.until(id, "error")
        assert "SIGKILL" in run["problem"]
        page = (await visitor.get(f"/runs/{id}")).text
        assert "I look around." in page
        assert 'data-status="error"' in page

    async def test_that_cannot_start_says_why(self, visitor):
        run = await visitor.until(await visitor.start("Start", "fails"), "error")
        assert "nothing here" in run["problem"]

    async def test_can_be_stopped_with_all_that_it_started(self, visitor, folder):
        id = await visitor.start("Go on for ever", "endless")
        await _until_said(visitor, id, "And now")
        answer = await visitor.post(f"/runs/{id}/stop")
        assert answer.status_code == 200
        await visitor.until(id, "interrupted")
        call = json.loads((folder / "plan-2.call").read_text())
        for pid in (call["pid"], *call["children"]):
            assert not psutil.pid_exists(pid)

    async def test_that_is_over_can_be_removed(self, visitor):
        id = await visitor.start("Forget me", "quick")
        await visitor.until(id, "success")
        assert (await visitor.post(f"/runs/{id}/remove")).url.path == "/runs"
        answer = await visitor.get(f"/runs/{id}")
        assert answer.status_code == 404
        assert "removed" in answer.text
        assert (await visitor.get(f"/api/runs/{id}/events")).status_code == 404

    async def test_that_goes_on_cannot_be_removed(self, visitor):
        id = await visitor.start("Keep me", "endless")
        assert (await visitor.post(f"/runs/{id}/remove")).status_code == 409
        await visitor.post(f"/runs/{id}/stop")
        await visitor.until(id, "interrupted")

    async def test_is_found_in_the_list_page_by_page(self, visitor):
        first = (await visitor.get("/api/runs?limit=2")).json()["runs"]
        rest = (await visitor.get(f"/api/runs?limit=500&before={first[-1]['started']}")).json()[
            "runs"
        ]
        assert [run["started"] for run in [*first, *rest]] == sorted(
            (run["started"] for run in [*first, *rest]), reverse=True
        )
        assert not {run["id"] for run in first} & {run["id"] for run in rest}


class TestHostileText:
    async def test_is_text_on_every_page(self, visitor, folder):
        evil = folder / "evil"
        evil.mkdir()
        page = settings(evil)
        plan = json.loads((evil / "plan-1.json").read_text())
        said = Path(plan["stdout"])
        frames = [json.loads(line) for line in said.read_bytes().splitlines()]
        said.write_text("".join(json.dumps(_poisoned(frame)) + "\n" for frame in frames))
        async with opened(**page) as other:
            id = await other.start(HOSTILE, "quick")
            await other.until(id, "success", "error")
            for path in ("/runs", f"/runs/{id}", f"/runs?prompt={HOSTILE}&folder={HOSTILE}"):
                found = Tags()
                found.feed((await other.get(path)).text)
                assert found.scripts == ["/static/htmx.min.js", "/static/page.js"]
                assert not found.attributes & {"onerror", "style", "onclick"}
                assert "img" not in found.tags
                assert "\u202e" not in found.text


def _poisoned(frame: dict) -> dict:
    """The frame with hostile texts wherever a model or a tool could put one."""
    match frame:
        case {"type": "message"}:
            return {**frame, "content": frame["content"] + HOSTILE}
        case {"type": "tool_use"}:
            return {
                **frame,
                "tool_name": HOSTILE,
                "parameters": {HOSTILE: HOSTILE, "content": "a\nb" + HOSTILE},
            }
        case {"type": "tool_result"}:
            return {**frame, "output": HOSTILE}
        case {"type": "init"}:
            return {**frame, "model": HOSTILE}
    return frame


class Tags(HTMLParser):
    """What a browser would find in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags, self.attributes, self.scripts, self.text = set(), set(), [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "script":
            self.scripts.append((dict(attrs).get("src") or "inline").partition("?")[0])

    def handle_data(self, data):
        self.text += data


class TestTheStream:
    async def test_shows_a_run_as_it_goes_on(self, visitor):
        id = await visitor.start("Watch", "endless")
        parts, text = {}, ""
        async with aclosing(visitor.stream(f"/live?run={id}&after=0")) as stream:
            async for sent in stream:
                if sent.event == "piece":
                    parts[sent.data["id"]] = sent.data["html"]
                text = "".join(parts.values())
                if "And now" in text:
                    break
        assert "Watch" in text
        assert "return pi" in text
        await visitor.post(f"/runs/{id}/stop")
        await visitor.until(id, "interrupted")

    async def test_goes_on_after_a_lost_connection_without_loss_or_repetition(self, visitor):
        id = await visitor.start("Watch", "quick")
        await visitor.until(id, "success")
        whole = await _pieces(visitor, f"/live?run={id}&after=0")
        ids = [int(line["id"]) for line in await _api_events(visitor, id)]
        for last in ids:
            rest = await _pieces(visitor, f"/live?run={id}&after=0", last)
            changed = {name: text for name, text in rest.items() if name in whole}
            assert changed == rest
            assert changed.items() <= whole.items()
        assert await _pieces(visitor, f"/live?run={id}&after=0", ids[-1]) == {}

    async def test_sends_nothing_twice(self, visitor):
        services = visitor.app.state.services
        id = await visitor.start("Watch", "quick")
        await visitor.until(id, "success")
        with services.watching.watch(id) as watched:
            view = RunView(services.runs, id, watched, 0, lambda piece: piece.kind)
            first = await view.messages()
            assert [one.event for one in first].count("piece") == 5
            assert await view.messages() == []

    async def test_tells_the_list_of_new_runs_and_of_changes(self, visitor):
        since = now_ms()
        rows = {}
        async with aclosing(visitor.stream(f"/live?runs={since}")) as stream:
            id = await visitor.start("Appear", "quick")
            async for sent in stream:
                if sent.event == "rows":
                    for row in sent.data:
                        rows.setdefault(row["id"], []).append(row)
                if any(row["status"] == "success" for row in rows.get(id, ())):
                    break
        drawn = [row for row in rows[id] if "html" in row]
        assert len(drawn) == 1
        assert "Appear" in drawn[0]["html"]
        assert all("html" not in row for other in rows if other != id for row in rows[other])

    async def test_ends_when_the_page_ends(self, tmp_path):
        async with served(db=f"sqlite:///{tmp_path}/web.db") as other:
            stream = other.stream("/live?runs=0")
            ending = asyncio.create_task(_last_event(stream))
            while not other.app.state.services.streams:
                await asyncio.sleep(0.01)
            other.app.end()
            assert await ending == "over"

    async def test_that_nobody_reads_any_more_holds_nothing(self, visitor):
        services = visitor.app.state.services
        id = await visitor.start("Watch", "endless")
        async with aclosing(visitor.stream(f"/live?run={id}")) as stream:
            await anext(stream)
            assert services.streams == 1
            assert id in services.watching._watched
        await visitor.post(f"/runs/{id}/stop")
        await visitor.until(id, "interrupted")
        async with asyncio.timeout(30):
            while services.streams:
                await asyncio.sleep(0.02)
        assert services.watching._watched == {}


class TestTheEventsOfTheApi:
    async def test_are_those_of_the_run_until_its_end(self, visitor):
        id = await visitor.start("Tell", "quick")
        lines = await _api_events(visitor, id)
        events = [decode(line["data"]) for line in lines]
        assert [event.type for event in events][:2] == ["user_message", "init"]
        assert [event.type for event in events].count("done") == 1
        assert events[-1].type == "done"
        assert ANSWER in [event.text for event in events if event.type == "text"]

    async def test_go_on_after_the_last_one_that_was_seen(self, visitor):
        id = await visitor.start("Tell", "quick")
        await visitor.until(id, "success")
        lines = await _api_events(visitor, id)
        for at, line in enumerate(lines):
            assert await _api_events(visitor, id, int(line["id"])) == lines[at + 1 :]

    async def test_of_all_runs_come_in_one_stream(self, visitor):
        ids = [await visitor.start("Tell", "quick") for _ in range(3)]
        for id in ids:
            await visitor.until(id, "success")
        answer = await visitor.get("/api/events?follow=false")
        told = [
            json.loads(line[6:])["run"] for line in answer.text.split("\n") if line[:6] == "data: "
        ]
        assert {*ids} <= {*told}

    async def test_of_a_text_that_is_whole_are_kept_once(self, visitor):
        id = await visitor.start("Tell", "quick")
        await visitor.until(id, "success")
        kinds = [line["event"] for line in await _api_events(visitor, id)]
        assert "text" in kinds
        assert "text_delta" not in kinds


class TestTheRecord:
    async def test_outlives_the_page_and_its_runs_do_not(self, tmp_path):
        async with served(**settings(tmp_path)) as first:
            done = await first.start("Finish", "quick")
            await first.until(done, "success")
            cut = await first.start("Go on for ever", "endless")
            await _until_said(first, cut, "And now")
            children = json.loads((tmp_path / "plan-2.call").read_text())["children"]
        assert not any(map(psutil.pid_exists, children))
        async with opened(**settings(tmp_path)) as second:
            runs = {run["id"]: run for run in (await second.get("/api/runs")).json()["runs"]}
            assert (runs[done]["status"], runs[cut]["status"]) == ("success", "interrupted")
            assert "And now" in (await second.get(f"/runs/{cut}")).text
            assert "uses" in (await second.get(f"/runs/{done}")).text

    async def test_ends_the_runs_of_a_page_that_was_killed(self, tmp_path):
        database = open_database(f"sqlite:///{tmp_path}/web.db")
        killed = RunBook(database, "killed")
        killed.open()
        info = RunInfo(id=new_id(), prompt="Lost", folder="/", via="cli", started=now_ms())
        killed.enter(info, [UserMessage("Lost")])
        with database.transaction() as transaction:
            transaction.execute("UPDATE web_owners SET heard = 0")
        database.close()
        async with opened(db=f"sqlite:///{tmp_path}/web.db") as visitor:
            run = (await visitor.get(f"/api/runs/{info.id}")).json()
            assert run["status"] == "interrupted"
            page = (await visitor.get(f"/runs/{info.id}")).text
            assert "geminorum web ended while this ran" in page

    async def test_of_another_page_on_the_same_database_is_shown_and_left_alone(self, tmp_path):
        async with opened(**settings(tmp_path)) as first, opened(**settings(tmp_path)) as second:
            id = await first.start("Mine", "endless")
            assert "Mine" in (await second.get("/runs")).text
            answer = await second.post(f"/runs/{id}/stop")
            assert answer.status_code == 409
            assert "another" in answer.text
            await first.post(f"/runs/{id}/stop")
            await second.until(id, "interrupted")

    async def test_is_private(self, visitor, folder):
        for file in folder.glob("web.db*"):
            assert file.stat().st_mode & 0o077 == 0

    async def test_that_cannot_be_used_is_a_clear_page(self, tmp_path):
        file = tmp_path / "web.db"
        async with opened(db=f"sqlite:///{file}") as visitor:
            database = visitor.app.state.services.runs.book._database
            # In the meantime, nobody else opens it.
            with database._writing.borrow(), database._reading.borrow():
                database._writing.discard()
                database._reading.discard()
                for one in tmp_path.glob("web.db*"):
                    one.unlink()
                file.touch(0o600)
                file.write_bytes(b"this is no database, but long enough to be looked at" * 100)
            answer = await visitor.get("/runs")
            assert answer.status_code == 503
            assert "not a database" in answer.text
            assert "--db" in answer.text
            file.unlink()

    @pytest.mark.parametrize("url", ["mysql://x", "sqlite:///", "s3://bucket"])
    async def test_has_an_address_that_is_understood(self, url):
        with pytest.raises(SetupError, match="no address of a database"):
            open_database(url)

    async def test_keeps_the_newest_runs_only(self, tmp_path, monkeypatch):
        monkeypatch.setattr("geminorum.apps.web.runs.book.KEPT_RUNS", 3)
        book = RunBook(open_database(f"sqlite:///{tmp_path}/web.db"), "me")
        book.open()
        for number in range(8):
            info = RunInfo(
                id=new_id(),
                prompt=str(number),
                folder="/",
                via="cli",
                started=number,
                status="success",
            )
            book.enter(info, [UserMessage(str(number))])
            book.write([(info, [])])
        assert [info.prompt for info in book.runs()] == ["7", "6", "5"]
        assert len(book.events(None)) == 3
        book.close()


async def _until_said(visitor: Visitor, id: str, text: str) -> None:
    async with asyncio.timeout(30):
        while text not in (await visitor.get(f"/runs/{id}")).text:
            await asyncio.sleep(0.05)


async def _pieces(visitor: Visitor, path: str, last: int | None = None) -> dict[str, str]:
    """The pieces that a stream sends of a run that is over."""
    found = {}
    async with aclosing(visitor.stream(path, last)) as stream:
        async for sent in stream:
            if sent.event == "run":
                return found
            if sent.event == "piece":
                found[sent.data["id"]] = sent.data["html"]
    raise AssertionError("the stream ended")


async def _api_events(visitor: Visitor, id: str, last: int | None = None) -> list[dict[str, str]]:
    headers = {} if last is None else {"last-event-id": str(last)}
    answer = await visitor.get(f"/api/runs/{id}/events", headers=headers)
    blocks = [block for block in answer.text.split("\n\n") if block and block[0] != ":"]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


async def _last_event(stream) -> str:
    event = ""
    async for sent in stream:
        event = sent.event
    return event


async def test_a_run_that_goes_on_stays_in_sight_however_many_others_end():
    board = RunBoard(ChangeSignal())
    facts = {"prompt": "Go on", "folder": "/", "via": "cli", "started": 1}
    board.put(RunInfo(id="live", status="waiting", **facts))
    for number in range(700):
        board.put(RunInfo(id=str(number), status="success", **facts))
    assert [info.id for info in board.live] == ["live"]
    assert len(board.changed_since(0)) == 500
