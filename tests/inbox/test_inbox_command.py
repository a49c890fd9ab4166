"""`geminorum inbox`, and runs that ask there, as somebody types them."""

import asyncio
import json
import shlex
import subprocess
import sys
import time

import pytest
from inbox_parts import SHELL, WRITE, asked, leave_questions
from msgspec.structs import replace

from command_line import COMMAND, Terminal, environment, geminorum_command
from geminorum import Allow, Deny
from geminorum.inbox import Inbox, sync
from geminorum.transports.process.marked_tree import MARKER


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "inbox.db"


@pytest.fixture
def inbox(path):
    return sync.Inbox(path)


@pytest.fixture
def typed(path):
    """Types a command about the inbox; what it said."""

    def type_words(*words, code=0, **env):
        done = geminorum_command(*words, env={"GEMINORUM_INBOX": str(path), **env})
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

    return type_words


@pytest.fixture
def left(path, inbox):
    """A question whose run is gone."""

    def leave(request=SHELL, **place):
        asyncio.run(leave_questions(path, request, **place))
        return next(one for one in inbox.questions() if one.call_id == request.id)

    return leave


class TestAnswers:
    def test_an_empty_inbox_says_so(self, typed, path):
        assert typed("inbox", "list").stderr == "no questions; --all lists past ones\n"
        assert typed("inbox", "list", "--json").stdout == ""
        assert not path.exists()

    def test_questions_are_listed_shown_and_answered(self, typed, left, inbox):
        shell, write = left(), left(replace(WRITE, session_id="s-2"))
        lines = typed("inbox", "list").stdout.splitlines()
        assert lines[0].split() == ["id", "state", "asked", "tool", "folder", "host", "what"]
        assert [line.split()[:2] for line in lines[1:]] == [
            [shell.id, "waiting"],
            [write.id, "waiting"],
        ]
        assert lines[1].endswith("rm -r build")
        shown = typed("inbox", "show", shell.short_id).stdout
        assert "  $ rm -r build\n" in shown
        assert "always    would allow every call of run_shell_command, with any" in shown
        assert "+new" in typed("inbox", "show", write.id).stdout
        allowed = typed("inbox", "allow", shell.short_id)
        assert allowed.stdout == f"allowed {shell.id} run_shell_command rm -r build\n"
        assert f"geminorum inbox resume {shell.short_id}" in allowed.stderr
        denied = typed("inbox", "deny", write.id, "--reason", "not today", "--json")
        assert json.loads(denied.stdout)["answer"]["reason"] == "not today"
        assert typed("inbox", "list").stdout == ""
        past = map(json.loads, typed("inbox", "list", "--all", "--json").stdout.splitlines())
        assert {one["id"]: one["answer"]["decision"] for one in past} == {
            shell.id: "allow",
            write.id: "deny",
        }
        assert "denied by " in typed("inbox", "show", write.id).stdout

    def test_the_second_answer_is_told_of_the_first(self, typed, left, inbox):
        question = left()
        inbox.answer(question.id, Deny("not today"), by="anna")
        refused = typed("inbox", "allow", question.id, code=1).stderr
        assert f"anna answered question {question.short_id} at 20" in refused
        assert "deny: not today" in refused

    def test_all_ids_are_looked_up_before_the_first_is_answered(self, typed, left, inbox):
        question = left()
        unknown = typed("inbox", "allow", question.id, "0000", code=6).stderr
        assert "there is no question '0000'" in unknown
        assert [one.id for one in inbox.questions()] == [question.id]
        typed("inbox", "allow", question.id, "--always")
        assert inbox.question(question.id).answer.decision == "allow_always"

    def test_an_agent_cannot_answer(self, typed, left):
        refused = typed("inbox", "allow", left().id, code=1, **{MARKER: "run"})
        assert "an agent cannot answer" in refused.stderr

    def test_only_what_is_answered_and_gone_can_be_resumed(self, typed, left, inbox, tmp_path):
        question = left()
        assert "not answered" in typed("inbox", "resume", question.id, code=1).stderr
        inbox.answer(question.id, Allow())
        elsewhere = typed("inbox", "resume", question.id, code=1).stderr
        assert "the session's folder '/srv/project'" in elsewhere
        assert "--cwd" in elsewhere
        for words in (("--resume", "x"), ("--session-id", "x"), ("--json", "--quiet")):
            typed("inbox", "resume", question.id, *words, code=2)
        other = left(replace(WRITE, session_id=None), cwd=str(tmp_path))
        inbox.answer(other.id, Allow())
        assert "no session" in typed("inbox", "resume", other.id, code=1).stderr

    def test_old_questions_are_pruned(self, typed, left, inbox):
        inbox.answer(left().id, Allow())
        assert typed("inbox", "prune").stdout == "removed 0 questions\n"
        assert typed("inbox", "prune", "--older-than", "0m").stdout == "removed 1 question\n"

    def test_on_a_terminal_ids_are_short(self, left, path):
        question = left()
        env = {"GEMINORUM_INBOX": str(path)}
        with Terminal("inbox", "list", env=env, columns=100) as screen:
            assert screen.ends_with() == 0
        assert question.short_id in screen.text
        assert question.id not in screen.text


class TestRuns:
    @pytest.fixture
    def words(self, stand_in_acp, tmp_path):
        """A run of an agent that asks whether it may write."""
        program = stand_in_acp("asking").executable
        (tmp_path / "project").mkdir()
        return ("--via", "acp", "--cli", program, "--cwd", tmp_path / "project", "--inbox")

    @pytest.fixture
    def started(self, path):
        """Starts a command; the process is ended with the test."""
        running = []

        def start(*words):
            env = environment({"GEMINORUM_INBOX": str(path), "GEMINI_API_KEY": "k"})
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            running.append(
                subprocess.Popen([*COMMAND, *map(str, words)], env=env, text=True, **pipes)
            )
            return running[-1]

        yield start
        for process in running:
            process.kill()
            process.communicate()

    def test_a_run_waits_for_an_answer_from_elsewhere(self, started, words, typed, path):
        run = started("run", "Go", *words, "--quiet")
        (question,) = asyncio.run(asked(Inbox(path)))
        typed("inbox", "allow", question.short_id, "--resume")
        out, err = run.communicate(timeout=60)
        assert (run.returncode, json.loads(out)["optionId"]) == (0, "proceed_once"), err

    def test_a_pipe_says_what_waits(self, started, words, typed, path):
        run = started("run", "Go", *words)
        (question,) = asyncio.run(asked(Inbox(path)))
        typed("inbox", "deny", question.short_id)
        out, err = run.communicate(timeout=60)
        assert "? write_file waits for an answer: geminorum inbox list\n" in err
        assert json.loads(out)["optionId"] == "cancel"

    def test_without_an_answer_it_ends_with_a_code_of_its_own(self, started, words, inbox):
        run = started("run", "Go", *words, "--patience", "0.2")
        _, err = run.communicate(timeout=60)
        assert run.returncode == 7
        (question,) = inbox.questions()
        assert question.state == "waiting"
        assert f"question {question.short_id} is not answered yet" in err
        assert "geminorum inbox allow" in err

    def test_ctrl_c_withdraws_the_question(self, words, path, inbox):
        env = {"GEMINORUM_INBOX": str(path), "GEMINI_API_KEY": "k"}
        with Terminal("run", "Go", *words, env=env, columns=120) as screen:
            screen.wait_for("geminorum inbox list")
            screen.send("\x03")
            assert screen.ends_with() == 130
        assert [one.state for one in inbox.questions(include_closed=True)] == ["withdrawn"]

    def test_a_batch_asks_too_and_reminds(self, started, words, typed, path, tmp_path):
        prompts, told = tmp_path / "prompts.jsonl", tmp_path / "told"
        prompts.write_text('"Go"\n')
        copy = 'import sys; open(sys.argv[1], "w").write(sys.stdin.read())'
        remind = shlex.join([sys.executable, "-c", copy, str(told)])
        batch = started("batch", prompts, *words, "--remind", remind)
        (question,) = asyncio.run(asked(Inbox(path)))
        deadline = time.monotonic() + 60
        while not (told.exists() and told.read_text()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert json.loads(told.read_text())["id"] == question.id
        typed("inbox", "allow", question.id)
        _, err = batch.communicate(timeout=60)
        assert batch.returncode == 0, err

    @pytest.mark.parametrize(
        ("words", "why"),
        [
            (("run", "Go", "--patience", "3"), "--inbox"),
            (("run", "Go", "--remind", "https://host/"), "--inbox"),
            (("run", "Go", "--inbox", "--remind", "'a"), "No closing quotation"),
            (("run", "Go", "--inbox", "--remind", "ftp://host/"), "an http or https address"),
            (("batch", "x.jsonl", "--inbox", "--fleet"), "geminorum worker --inbox"),
        ],
    )
    def test_flags_that_cannot_be_meant_are_refused(self, typed, words, why):
        assert why in typed(*words, code=2).stderr
