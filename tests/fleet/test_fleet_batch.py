"""`geminorum batch --fleet`: the same journal and the same outcomes; a kill loses no job."""

import json
import subprocess

import psycopg
import pytest
from fleet_parts import worker_process

from command_line import COMMAND, environment
from command_line import geminorum_command as command

INIT = {"type": "init", "session_id": "5e551011", "model": "gemini-2.5-flash"}
SAID = {"type": "message", "role": "assistant", "content": "Hello.", "delta": True}
RESULT = {"type": "result", "status": "success", "stats": {"total_tokens": 3}}


@pytest.fixture
def prompts(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('"one"\n"two"\n"three"\n')
    return file


def outcomes(file):
    lines = file.with_name("prompts.results.jsonl").read_text().splitlines()
    return {one["id"]: one for one in map(json.loads, lines)}


def statuses(url):
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT id::text, state FROM geminorum_jobs").fetchall()
    return dict(rows)


def test_workers_run_the_prompts_and_the_results_name_their_jobs(url, stand_in, prompts, tmp_path):
    program = str(stand_in(INIT, SAID, RESULT).executable)
    flags = ("--fleet", "--db", url, "--tenant", "acme")
    with worker_process(url, tmp_path / "there", executable=program):
        done = command("batch", prompts, *flags)
        again = command("batch", prompts, *flags)
        anew = command("batch", prompts, *flags, "--restart")
    assert (done.returncode, again.returncode, anew.returncode) == (0, 0, 0), done.stderr
    found = outcomes(prompts)
    assert [(one["status"], one["text"]) for one in found.values()] == [("success", "Hello.")] * 3
    # The second call had nothing to do; a restart means other jobs, not the results of the first.
    assert len(statuses(url)) == 6
    assert {one["job"] for one in found.values()} < statuses(url).keys()


def test_a_killed_batch_finds_its_jobs_again(url, stand_in, prompts, tmp_path):
    flags = ("--fleet", "--db", url, "-j", "3", "--budget", "5", "--model", "gemini-2.5-flash")
    words = [*COMMAND, "batch", str(prompts), *flags]
    batch = subprocess.Popen(words, env=environment(), stderr=subprocess.DEVNULL)
    try:
        while not statuses(url):
            assert batch.poll() is None
    finally:
        batch.kill()
        batch.wait()
    begun = statuses(url)
    program = str(stand_in(INIT, SAID, RESULT).executable)
    with worker_process(url, tmp_path / "there", executable=program):
        done = command("batch", prompts, *flags[:-4], "--model", "gemini-2.5-flash")
    assert done.returncode == 0, done.stderr
    assert "assumed" not in done.stderr
    assert len(statuses(url)) == 3
    jobs = {one["job"]: one["attempts"] for one in outcomes(prompts).values()}
    assert begun.keys() <= jobs.keys() == statuses(url).keys()
    assert set(jobs.values()) == {1}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--db", "postgresql://x"), "add --fleet"),
        (("--fleet", "--cli", "gemini"), "geminorum worker"),
        (("--fleet", "--tenant", ""), "printable"),
    ],
)
def test_what_makes_no_sense_is_refused(url, prompts, flags, said):
    done = command("batch", prompts, *flags, env={"GEMINORUM_DB": url})
    assert done.returncode != 0
    assert said in done.stderr
    assert statuses(url) == {}
