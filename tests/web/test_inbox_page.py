"""Questions of agents on the page: shown as they come, answered once, told on."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio
from inbox_parts import SHELL, WRITE, asked, asking, conversation, leave_questions
from markup import Markup
from msgspec import to_builtins
from msgspec.structs import replace
from played import EDIT, settings
from served import TOKEN, Visitor, opened, served, stranger
from test_runs import HOSTILE, Tags

from geminorum import Allow, AllowAlways, Deny, PermissionRequest
from geminorum.apps.web.runs.info import RunInfo, RunLimits, new_id, now_ms
from geminorum.inbox import Inbox

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visitor(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    async with served(**settings(tmp_path_factory.mktemp("inbox"))) as visitor:
        yield visitor


@pytest.fixture
def inbox(visitor: Visitor) -> Inbox:
    """That of the page, as another process would open it."""
    return Inbox(visitor.app.settings.db)


class TestAQuestion:
    async def test_shows_the_command_and_the_answers(self, visitor, inbox):
        async with asking(conversation(inbox), SHELL):
            [question] = await asked(inbox)
            for path in ("/inbox", f"/inbox/{question.id}"):
                page = (await visitor.get(path)).text
                assert "rm -r build" in page
                assert 'value="allow_always"' in page
                assert question.scope in page
                assert "/srv/project" in page

    async def test_shows_the_change_in_colours(self, visitor, inbox):
        async with asking(conversation(inbox), WRITE):
            await asked(inbox)
            assert '<span class="came">+new\n</span>' in (await visitor.get("/inbox")).text

    @pytest.mark.parametrize(
        ("tool", "arguments", "seen"),
        [
            ("run_shell_command", {"command": "make clean", "dir_path": "/etc"}, "/etc"),
            ("deploy", {"command": "status", "target": ["production"]}, "production"),
            ("replace", {**EDIT, "allow_multiple": True}, "allow_multiple"),
            ("write_file", {**EDIT, "content": "evil()"}, "evil()"),
            ("run_shell_command", {"command": "ls" + 99 * "\n" + "evil"}, "98 empty lines"),
            ("run_shell_command", {"command": "ls" + 99 * " " + "; evil"}, "99 spaces"),
        ],
    )
    async def test_hides_no_argument_behind_another(self, visitor, inbox, tool, arguments, seen):
        async with asking(conversation(inbox), PermissionRequest(tool, "c", arguments)):
            [question] = await asked(inbox)
            page = Markup((await visitor.get("/inbox")).text)
            assert seen in page.one("article", id=f"q-{question.id}").text

    async def test_that_is_too_long_for_a_list_is_allowed_where_all_of_it_is_read(
        self, visitor, inbox
    ):
        command = f"echo {50_000 * 'a'}; the end"
        request = PermissionRequest("run_shell_command", "c", {"command": command})
        async with asking(conversation(inbox), request):
            [question] = await asked(inbox)
            page = (await visitor.get("/inbox")).text
            assert "; the end" not in page
            assert 'value="allow' not in page
            assert 'value="deny"' in page
            for path in (f"/inbox/{question.id}", f"/live?inbox=0&question={question.id}"):
                text = await _read(visitor, path)
                assert "; the end" in text
                assert "allow_always" in text

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({"decision": "allow"}, Allow()),
            ({"decision": "allow", "reason": "typed, and then allowed"}, Allow()),
            ({"decision": "allow_always"}, AllowAlways()),
            ({"decision": "deny", "reason": "use git clean"}, Deny("use git clean")),
        ],
    )
    async def test_is_answered_by_the_form(self, visitor, inbox, fields, expected):
        async with asking(conversation(inbox), SHELL) as [answer]:
            [question] = await asked(inbox)
            page = await visitor.post(f"/inbox/{question.id}/answer", **fields)
            assert page.url.path == "/inbox"
            assert await answer == expected
        told = (await visitor.get(f"/inbox/{question.id}")).text
        assert fields["decision"].replace("_", " ") in told
        assert "<form" not in told

    async def test_has_one_answer_whoever_else_comes(self, visitor, inbox):
        async with asking(conversation(inbox), SHELL) as [answer]:
            [question] = await asked(inbox)
            await inbox.answer(question.id, Deny("mine"), by="anna")
            page = await visitor.post(f"/inbox/{question.id}/answer", decision="allow")
            assert page.status_code == 409
            assert "anna" in page.text
            assert "does not count" in page.text
            assert await answer == Deny("mine")

    async def test_of_two_who_answer_at_once_one_counts(self, visitor, inbox):
        bearer = {"authorization": f"Bearer {TOKEN}"}
        async with asking(conversation(inbox), SHELL) as [answer]:
            [question] = await asked(inbox)
            path = f"/api/inbox/{question.id}/answer"
            answers = await asyncio.gather(
                *(
                    visitor.client.post(path, json={"decision": word}, headers=bearer)
                    for word in ("allow", "deny", "allow", "deny", "deny")
                )
            )
            assert sorted(one.status_code for one in answers) == [200, 409, 409, 409, 409]
            [first] = [one.json() for one in answers if one.status_code == 200]
            decision = first["question"]["answer"]["decision"]
            assert isinstance(await answer, Allow if decision == "allow" else Deny)

    @pytest.mark.parametrize("decision", ["", "maybe", "yolo"])
    async def test_has_three_answers_and_no_others(self, visitor, inbox, decision):
        async with asking(conversation(inbox), SHELL) as [answer]:
            [question] = await asked(inbox)
            page = await visitor.post(f"/inbox/{question.id}/answer", decision=decision)
            assert page.status_code == 422
            assert not answer.done()

    async def test_that_nobody_asked_is_not_found(self, visitor):
        for path in ("/inbox/0123", "/api/inbox/0123"):
            assert (await visitor.get(path)).status_code == 404
        assert (await visitor.post("/inbox/0123/answer", decision="allow")).status_code == 404

    async def test_whose_run_was_stopped_says_so(self, visitor, inbox):
        async with asking(conversation(inbox), SHELL):
            [question] = await asked(inbox)
        page = (await visitor.get(f"/inbox/{question.id}")).text
        assert "stopped before anybody answered" in page
        assert "<form" not in page

    async def test_is_text_whatever_it_contains(self, visitor, inbox):
        evil = PermissionRequest(HOSTILE, "c", {HOSTILE: HOSTILE, "command": HOSTILE})
        async with asking(conversation(inbox, cwd=HOSTILE), evil):
            [question] = await asked(inbox)
            for path in ("/inbox", f"/inbox/{question.id}"):
                found = Tags()
                found.feed((await visitor.get(path)).text)
                assert found.scripts == ["/static/htmx.min.js", "/static/page.js"]
                assert not found.attributes & {"onerror", "style"}
                assert "img" not in found.tags
                assert "\u202e" not in found.text

    async def test_cannot_be_answered_read_only(self, visitor, inbox):
        parts = {**settings(Path(visitor.app.settings.db.removeprefix("sqlite:///")).parent)}
        async with (
            asking(conversation(inbox), SHELL) as [answer],
            opened(**parts, read_only=True) as guest,
        ):
            [question] = await asked(inbox)
            assert "<form" not in (await guest.get("/inbox")).text
            async with stranger(guest, headers={"authorization": f"Bearer {TOKEN}"}) as client:
                body = {"decision": "allow"}
                told = await client.post(f"/api/inbox/{question.id}/answer", json=body)
                assert told.status_code == 403
            assert not answer.done()

    async def test_is_answered_in_the_name_of_whom_the_proxy_let_in(self, inbox, visitor, tmp_path):
        parts = {**settings(tmp_path), "db": visitor.app.settings.db, "proxy_header": "X-User"}
        async with asking(conversation(inbox), SHELL), opened(**parts) as guest:
            [question] = await asked(inbox)
            guest.client.headers["x-user"] = "anna@example.com"
            await guest.post(f"/inbox/{question.id}/answer", decision="allow")
            assert (await inbox.question(question.id)).answer.by == "anna@example.com"


class TestAQuestionWhoseRunHasEnded:
    async def test_is_answered_and_its_session_goes_on(self, visitor, inbox, tmp_path):
        patient = Inbox(visitor.app.settings.db, patience=0.05)
        decisions = conversation(patient, cwd=str(tmp_path))
        async with asking(decisions, SHELL):
            [question] = await asked(inbox)
            async with asyncio.timeout(15):
                while question.state != "waiting":
                    question = await inbox.question(question.id)
            page = (await visitor.get(f"/inbox/{question.id}")).text
            assert "starts it again" in page
            answer = await visitor.post(f"/inbox/{question.id}/answer", decision="allow")
            assert answer.url.path.startswith("/runs/")
            run = await visitor.until(answer.url.path.rpartition("/")[2], "error", "success")
            assert (run["resumes"], run["folder"]) == ("s-1", str(tmp_path))

    async def test_that_was_answered_elsewhere_can_be_taken_up_on_the_page(
        self, visitor, inbox, tmp_path
    ):
        request = replace(SHELL, session_id="s-7")
        await leave_questions(visitor.app.settings.db, request, cwd=str(tmp_path))
        [question] = await asked(inbox)
        assert (await visitor.post(f"/inbox/{question.id}/resume")).status_code == 409
        await inbox.answer(question.id, Allow())
        page = Markup((await visitor.get("/inbox")).text)
        action = page.one("form", action=f"/inbox/{question.id}/resume")["action"]
        run = (await visitor.post(action)).url.path.rpartition("/")[2]
        assert (await visitor.until(run, "error", "success"))["resumes"] == "s-7"

    async def test_that_two_take_up_at_once_starts_one_run(self, visitor, inbox, tmp_path):
        await leave_questions(
            visitor.app.settings.db, replace(SHELL, session_id="s-8"), cwd=str(tmp_path)
        )
        [question] = await asked(inbox)
        await inbox.answer(question.id, Allow())
        path = f"/api/inbox/{question.id}/resume"
        bearer = {"authorization": f"Bearer {TOKEN}"}
        answers = await asyncio.gather(
            *(visitor.client.post(path, headers=bearer) for _ in range(3))
        )
        started = {one.json()["id"] for one in answers if one.status_code == 201}
        assert len(started) == 1
        await visitor.until(started.pop(), "error", "success")

    async def test_goes_on_under_the_rules_of_the_run_that_asked(self, inbox, visitor, tmp_path):
        """The page's own may be wider: one yes would then be a yes to everything."""
        (asking_folder := tmp_path / "asking").mkdir()
        assert visitor.app.settings.options.approval == "yolo"
        await leave_questions(
            visitor.app.settings.db, replace(SHELL, session_id="s-9"), cwd=str(asking_folder)
        )
        [question] = await asked(inbox)
        answer = await visitor.post(f"/inbox/{question.id}/answer", decision="allow")
        run = await visitor.until(answer.url.path.rpartition("/")[2], "error", "success", "denied")
        assert run["approval"] == "default"
        plan = Path(visitor.app.settings.db.removeprefix("sqlite:///")).parent
        assert "yolo" not in str(json.loads(next(plan.rglob("plan-1.call")).read_text())["argv"])

    async def test_keeps_to_the_limits_of_the_run_that_asked(self, inbox, visitor, tmp_path):
        (folder := tmp_path / "limited").mkdir()
        limits = RunLimits(model="gemini-2.5-pro", max_budget_usd=0.25, max_turns=3, timeout=50.0)
        asker = RunInfo(
            id=new_id(), prompt="Build", folder=str(folder), via="cli", approval="auto_edit",
            session_id="s-10", started=now_ms(), limits=limits,
        )  # fmt: skip
        await asyncio.to_thread(visitor.app.state.services.runs.book.enter, asker, [])
        await leave_questions(
            visitor.app.settings.db, replace(SHELL, session_id="s-10"), cwd=str(folder)
        )
        [question] = await asked(inbox)
        answer = await visitor.post(f"/inbox/{question.id}/answer", decision="allow")
        run = await visitor.until(answer.url.path.rpartition("/")[2], "error", "success", "denied")
        assert run["limits"] == to_builtins(limits)
        plan = Path(visitor.app.settings.db.removeprefix("sqlite:///")).parent
        calls = sorted(plan.rglob("plan-*.call"), key=lambda file: file.stat().st_mtime)
        assert "gemini-2.5-pro" in str(json.loads(calls[-1].read_text())["argv"])


class TestTheStream:
    async def test_shows_questions_and_their_answers_as_they_come(self, visitor, inbox):
        cards = {}
        async with aclosing(visitor.stream("/live?inbox=0")) as stream:
            first = await anext(stream)
            assert first.data["count"] == 0
            async with asking(conversation(inbox), SHELL):
                [question] = await asked(inbox)
                await _until_card(stream, cards, question.id, "rm -r build")
                await inbox.answer(question.id, Deny("no"), by="anna")
                await _until_card(stream, cards, question.id, "anna")

    async def test_tells_every_page_how_many_wait(self, visitor, inbox):
        asks = asking(conversation(inbox), SHELL, WRITE)
        async with asks, aclosing(visitor.stream("/live")) as stream:
            async for sent in stream:
                if sent.event == "questions" and sent.data["count"] == 2:
                    assert sent.data["cards"] == []
                    break


async def _read(visitor: Visitor, path: str) -> str:
    """The page; of a stream, the first card."""
    if not path.startswith("/live"):
        return (await visitor.get(path)).text
    async with aclosing(visitor.stream(path)) as stream:
        async for sent in stream:
            if sent.event == "questions" and sent.data["cards"]:
                return str(sent.data["cards"][0]["html"])
    return ""


async def _until_card(stream, cards: dict[str, str], id: str, text: str) -> None:
    async for sent in stream:
        if sent.event == "questions":
            cards |= {card["id"]: card["html"] for card in sent.data["cards"]}
        if text in cards.get(id, ""):
            return
