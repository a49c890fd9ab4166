"""The doctor on the page: checks one by one, and fixes after a question."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from markup import Markup
from served import Visitor, opened, served

from geminorum import Cli, Options, doctor
from geminorum.apps.web.checking import as_told, verdict_on
from geminorum.doctor import Check

pytestmark = pytest.mark.asyncio(loop_scope="module")
NAMES = [
    *("cli", "node", "cli version", "auth", "base url", "folder trust"),
    *("cwd", "settings", "policies", "state"),
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Options:
    """A home whose settings lack one thing that the doctor can add."""
    home = tmp_path_factory.mktemp("doctor")
    (home / ".gemini").mkdir()
    (home / "work").mkdir()
    return Options(cwd=home / "work", home=home, env={"HOME": str(home)})


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("program") / "gemini"
    program.write_text("#!/bin/sh\necho 0.61.0\n")
    program.chmod(0o755)
    return program


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visitor(machine: Options, program: Path, tmp_path_factory) -> AsyncIterator[Visitor]:
    db = f"sqlite:///{tmp_path_factory.mktemp('db')}/web.db"
    cli = Cli(executable=program)
    async with opened(db=db, options=machine, transports={"cli": cli}) as visitor:
        yield visitor


def checks_in(text: str) -> dict[str, str]:
    page = Markup(text)
    assert not page.has_foreign_markup()
    names = [one.text.split(maxsplit=1) for one in page.all("p", class_="check-name")]
    return {name: level for level, name in names}


async def test_the_page_has_all_checks_and_a_verdict(visitor, machine, program):
    answer = await visitor.get("/doctor")
    made = {one.name: one.level for one in doctor.check(machine, via=Cli(executable=program))}
    assert checks_in(answer.text) == made
    assert list(made) == NAMES
    assert Markup(answer.text).one("li", class_="verdict").text.startswith(("1 problem", "A run"))


async def test_checks_arrive_before_the_last_is_made(machine, program, tmp_path):
    """On a socket: the first row is there while a later check has not been made."""
    gate = tmp_path / "go"
    slow = tmp_path / "gemini"
    slow.write_text(f"#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.02; done\necho 0.61.0\n")
    slow.chmod(0o755)
    settings = {"db": f"sqlite:///{tmp_path}/web.db", "transports": {"cli": Cli(executable=slow)}}
    async with served(**settings, options=machine) as visitor:
        text = ""
        async with visitor.client.stream("GET", "/doctor", timeout=60) as answer:
            async for piece in answer.aiter_text():
                text += piece
                # The version of the program is asked for in the third check.
                if "check-name" in text and not gate.exists():
                    assert "verdict" not in text
                    gate.touch()
        assert list(checks_in(text)) == NAMES


async def test_what_to_type_is_in_the_words_of_the_command_line(tmp_path):
    settings = {"db": f"sqlite:///{tmp_path}/web.db", "options": Options(home=tmp_path)}
    missing = Cli(executable=tmp_path / "nothing")
    async with opened(**settings, transports={"cli": missing}) as visitor:
        page = Markup((await visitor.get("/doctor")).text)
        fixes = [one.text for one in page.all("code")]
        assert [fix for fix in fixes if "Options(" in fix or "Cli(" in fix] == []


class TestAFix:
    @pytest_asyncio.fixture(loop_scope="module")
    async def broken(self, tmp_path, program) -> AsyncIterator[Visitor]:
        """A machine with a key that the CLI reads only if the settings say so."""
        (tmp_path / ".gemini").mkdir()
        (tmp_path / ".gemini/.env").write_text("GEMINI_API_KEY=AIza\n")
        (tmp_path / "work").mkdir()
        options = Options(cwd=tmp_path / "work", home=tmp_path)
        settings = {"db": f"sqlite:///{tmp_path}/web.db", "options": options}
        async with opened(**settings, transports={"cli": Cli(executable=program)}) as visitor:
            yield visitor

    async def test_that_is_automatic_is_a_button_with_a_question(self, broken, tmp_path):
        page = Markup((await broken.get("/doctor")).text)
        links = [one["href"] for one in page.all("a") if one.text == "Fix it…"]
        assert links == ["/doctor/fix?check=auth"]
        question = Markup((await broken.get(links[0])).text)
        assert question.one("h1").text.startswith("Add {")
        assert not (tmp_path / ".gemini/settings.json").exists()
        fields = {one["name"]: one["value"] for one in question.all("input", type="hidden")}
        del fields["csrf"]
        done = Markup((await broken.post("/doctor/fix", **fields)).text)
        assert done.one("p", role="status").text.startswith("wrote ")
        assert json.loads((tmp_path / ".gemini/settings.json").read_text())
        again = await broken.get(links[0])
        assert again.status_code == 404

    async def test_follows_from_the_machine_and_not_from_the_form(self, broken, tmp_path):
        what = "Add {} to /etc/settings.json?"
        answer = await broken.post("/doctor/fix", check="auth", what=what)
        assert answer.status_code == 409
        assert (await broken.post("/doctor/fix", check="nonsense", what=what)).status_code == 404
        assert not (tmp_path / ".gemini/settings.json").exists()


async def test_in_a_page_to_read_nothing_is_fixed_or_asked(machine, program, tmp_path):
    settings = {"db": f"sqlite:///{tmp_path}/web.db", "options": machine, "read_only": True}
    async with opened(**settings, transports={"cli": Cli(executable=program)}) as visitor:
        page = Markup((await visitor.get("/doctor")).text)
        assert page.all("form") == []
        assert [one for one in page.all("a") if one.text == "Fix it…"] == []
        for path in ("live", "try", "fix"):
            headers = {"origin": visitor.address}
            answer = await visitor.client.post(f"/doctor/{path}", headers=headers)
            assert answer.status_code == 403


async def test_checks_of_a_thread_are_passed_on_as_they_come():
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work(say):
        say(Check("first", "ok", ""))
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(30)
        say(Check("second", "fail", ""))

    told = as_told(work)
    assert (await anext(told)).name == "first"
    release.set()
    assert [check.name async for check in told] == ["second"]


@pytest.mark.parametrize(
    ("levels", "verdict"),
    [
        ("ok ok", "All is well"),
        ("ok warn", "A run should work; 1 warning"),
        ("fail warn fail", "2 problems to fix before a run can work"),
    ],
)
async def test_the_verdict_is_that_of_the_worst(levels, verdict):
    assert verdict_on([Check("x", level, "") for level in levels.split()]) == verdict
