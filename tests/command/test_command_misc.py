"""`geminorum skills`, `models`, `config`, `fake`: small commands, each as people use it."""

import json
import signal
import subprocess

import pytest

from command_line import COMMAND, Terminal, environment
from command_line import geminorum_command as command
from geminorum import Acp, Api, Options, ask, cost, errors, models, sync
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.problems import problems_in
from geminorum.apps.command.setup.config import options_schema
from geminorum.events import ModelRequest
from geminorum.schema_check import problems

# ---- skills


def skill(folder, name: str, text: str):
    file = folder / ".gemini/skills" / name / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_skills_are_listed_with_the_one_that_is_shadowed(tmp_path):
    home, cwd = tmp_path / "home", tmp_path / "work"
    for place, words in ((home, "Mine."), (cwd, "The folder's.")):
        skill(place, "review", f"---\nname: review\ndescription: {words}\n---\nDo it.")
    env = {"GEMINI_CLI_HOME": str(home)}
    done = command("skills", "list", "--cwd", cwd, env=env)
    assert done.returncode == 0
    _, user, workspace = done.stdout.splitlines()
    assert user.split()[:3] == ["review", "user,", "shadowed"]
    assert workspace.split()[:2] == ["review", "workspace"]
    told = [
        json.loads(line)
        for line in command("skills", "list", "--json", env=env, cwd=cwd).stdout.splitlines()
    ]
    assert [one["tier"] for one in told] == ["user", "workspace"]


def test_the_list_names_broken_skills_and_what_is_wrong_with_them(tmp_path):
    env = {"GEMINI_CLI_HOME": str(tmp_path / "home")}
    file = skill(tmp_path, "review", "---\nname: review\n---\nDo it.")
    done = command("skills", "list", env=env, cwd=tmp_path)
    _, line = done.stdout.splitlines()
    assert line.split()[:3] == ["review", "workspace,", "broken"]
    assert "the frontmatter has no description" in line
    assert str(file) in line
    skill(tmp_path, "good", "---\nname: good\ndescription: Fine.\n---\n")
    told = command("skills", "list", "--json", env=env, cwd=tmp_path).stdout.splitlines()
    good, broken = map(json.loads, told)
    assert (good["name"], good["problem"]) == ("good", None)
    assert broken["problem"] == "the frontmatter has no description"
    assert (broken["name"], broken["path"], broken["tier"]) == (None, str(file), "workspace")


def test_no_skills_say_where_to_put_one(tmp_path):
    done = command("skills", "list", env={"GEMINI_CLI_HOME": str(tmp_path)}, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "SKILL.md" in done.stderr


def test_a_skill_is_validated(tmp_path):
    good = skill(tmp_path, "good", "---\nname: good\ndescription: Fine.\n---\nDo it.")
    bad = skill(tmp_path, "bad", "name: bad\n")
    assert command("skills", "validate", good).stdout == f"{good}: valid\n"
    done = command("skills", "validate", good, bad.parent)
    assert done.returncode == Exit.USAGE
    assert "the first line must be ---" in done.stdout
    told = json.loads(command("skills", "validate", bad, "--json").stdout)
    assert told["problems"]
    assert command("skills", "validate", tmp_path / "none").returncode == Exit.USAGE


# ---- models


def test_models_have_prices_windows_and_short_names():
    done = command("models")
    assert done.returncode == 0
    flash = next(line for line in done.stdout.splitlines() if line.startswith("gemini-2.5-flash "))
    assert flash.split() == [
        *("gemini-2.5-flash", "$0.30", "$0.03", "$2.50", "1,048,576"),
    ]
    names = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert names["gemini-3.8-flash"].endswith("auto (CLI only), flash")
    assert names["gemini-3.1-pro-preview"].endswith(" pro")
    assert "gemini-2.5-pro: $2.50 in, $15.00 out above 200,000 tokens" in done.stdout
    assert "gemini-2.0-flash " not in done.stdout
    assert "gemini-2.0-flash " in command("models", "--all").stdout


def test_models_in_json_carry_exact_prices():
    told = {
        one["id"]: one
        for one in map(json.loads, command("models", "--json").stdout.split("\n")[:-1])
    }
    assert told["gemini-2.5-pro"]["price"] == {"input": "1.25", "output": "10", "cached": "0.125"}
    assert told["gemini-2.5-pro"]["steps"][0]["above"] == 200_000


def test_the_prices_are_those_that_runs_are_billed_with():
    for model in models.known():
        for tokens, price in [(1000, model.price), *((s.above + 1, s.price) for s in model.steps)]:
            billed = cost.request_usd(ModelRequest(input=tokens, output=7, model=model.id))
            assert price is not None
            assert billed == (tokens * price.input + 7 * price.output) / 1_000_000, model.id


@pytest.mark.gemini_cli
async def test_the_cli_takes_its_short_names_for_these(real_transport, fake_gemini, tmp_path):
    """S1-19 … S1-22: the real CLI, a warm one, resolves each alias to the model that `CLI_ALIASES`
    names."""
    fake_gemini.say("Hi.").always()
    options = Options(env=fake_gemini.env, home=fake_gemini.home, cwd=tmp_path)
    async with Acp(executable=real_transport.executable).warm(options) as warm:
        for alias in models.CLI_ALIASES:
            await ask(f"Hello {alias}", options.changed(model=alias), via=warm)
    told = {request.prompt: request.model for request in fake_gemini.requests}
    assert told == {f"Hello {alias}": models.meaning_of(alias) for alias in models.CLI_ALIASES}


@pytest.mark.parametrize("alias", ["flash", "flash-lite", "pro"])
def test_the_api_takes_the_short_names_for_the_same_models_as_the_cli(alias, fake_gemini):
    fake_gemini.say("Hi.")
    sync.ask("Hello", Options(env=fake_gemini.env, model=alias), via=Api())
    assert fake_gemini.requests[0].model == models.CLI_ALIASES[alias] == models.meaning_of(alias)
    assert models.meaning_of("gemini-9") == "gemini-9"


@pytest.mark.parametrize("name", ["auto", "auto-gemini-3", "auto-gemini-2.5"])
def test_auto_is_the_clis_and_the_api_names_what_it_takes_instead(name, fake_gemini):
    with pytest.raises(errors.Unsupported, match="the CLI's router") as caught:
        sync.ask("Hello", Options(env=fake_gemini.env, model=name), via=Api())
    assert "flash, flash-lite, pro" in str(caught.value.hint)
    assert not fake_gemini.requests


# ---- config


def test_the_schema_holds_for_what_options_take():
    done = command("config", "schema")
    schema = json.loads(done.stdout)
    assert schema == json.loads(json.dumps(options_schema()))
    properties = schema["$defs"]["Options"]["properties"]
    assert set(properties) == set(Options.__struct_fields__)
    good = {"model": "flash", "policy": {"file_write": "deny", "rules": []}, "timeout": 3}
    assert not list(problems(schema, good, "file"))
    assert list(problems(schema, {"policy": {"file_write": "often"}}, "file"))
    assert list(problems(schema, {"timeout": "soon"}, "file"))


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("a.json", '{"modle": "flash"}', "unknown option 'modle'; did you mean 'model'"),
        ("a.toml", "maxx = 3", "unknown option 'maxx'"),
        ("a.json", '{"allowedTools": ["Read"]}', "write 'read_file' instead"),
        ("a.json", '{"timeout": -1}', "greater than 0"),
        ("a.json", '{"policy": {"file_write": "often"}}', "allow"),
        ("a.json", "[1]", "write an object"),
        ("a.toml", 'approval = "sometimes"', "auto_edit"),
    ],
)
def test_a_file_of_wrong_options_says_what_is_wrong(tmp_path, name, text, word):
    file = tmp_path / name
    file.write_text(text)
    done = command("config", "validate", file)
    assert done.returncode == Exit.USAGE
    assert word in done.stdout
    assert "ignored" not in done.stdout
    told = json.loads(command("config", "validate", file, "--json").stdout)
    assert word in told["problems"][0]


def test_a_file_of_good_options_is_all_well(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('model = "flash"\nmaxTurns = 3\n[policy]\nfileWrite = "deny"\n')
    done = command("config", "validate", file)
    assert (done.returncode, done.stdout) == (0, f"{file}: valid\n")
    assert problems_in({"cwd": "."}) == []
    assert problems_in({"allowedTools": ["a_tool_of_a_server"]}) == []


@pytest.mark.parametrize("name", ["none.json", ".", "broken.json", "binary.json"])
def test_a_file_that_cannot_be_read_is_wrong_usage(tmp_path, name):
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    done = command("config", "validate", name, cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert "Traceback" not in done.stderr


# ---- fake


class Fake:
    """`geminorum fake --json` in the background; the first line tells its environment."""

    def __init__(self, *arguments: str) -> None:
        self._child = subprocess.Popen(
            [*COMMAND, "fake", "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )

    def __enter__(self) -> "Fake":
        self.env = self.line()["env"]
        return self

    def line(self):
        assert self._child.stdout is not None
        return json.loads(self._child.stdout.readline())

    def __exit__(self, *_: object) -> None:
        self._child.send_signal(signal.SIGINT)
        _, errors = self._child.communicate(timeout=30)
        assert (self._child.returncode, errors) == (0, "")


def test_the_fake_answers_and_tells_what_it_was_asked(tmp_path):
    script = tmp_path / "script.jsonl"
    script.write_text('{"say": "First."}\n\n{"fail": 400}\n')
    with Fake("--script", str(script), "--say", "Then this.") as fake:
        options = Options(env=fake.env, model="flash")
        assert sync.ask("One", options, via=Api()).text == "First."
        with pytest.raises(Exception, match="invalid"):
            sync.ask("Two", options, via=Api())
        assert sync.ask("Three", options, via=Api()).text == "Then this."
        assert [fake.line()["prompt"] for _ in range(3)] == ["One", "Two", "Three"]


@pytest.mark.gemini_cli
def test_the_fake_serves_the_real_cli_and_its_tools(real_transport, tmp_path):
    script = tmp_path / "script.jsonl"
    call = {"call": "write_file", "args": {"file_path": "a.txt", "content": "hi"}}
    script.write_text(json.dumps(call) + '\n{"say": "Written."}\n')
    work = tmp_path / "work"
    work.mkdir()
    with Fake("--script", str(script)) as fake:
        options = Options(env=fake.env, cwd=work, approval="auto_edit", model="flash")
        assert sync.ask("Write", options, via=real_transport).text == "Written."
    assert (work / "a.txt").read_text() == "hi"


def test_the_fake_prints_what_to_export_and_ends_with_ctrl_c():
    with Terminal("fake", columns=200) as screen:
        screen.wait_for("export GEMINI_API_KEY=")
        screen.wait_for("Ctrl-C ends it")
        url = screen.text.partition("export GOOGLE_GEMINI_BASE_URL=")[2].split()[0]
        options = Options(env={"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "k"}, model="flash")
        assert "simulated" in sync.ask("Who are you?", options, via=Api()).text
        screen.wait_for("gemini-3.8-flash  Who are you?")
        screen.send("\x03")
        assert screen.ends_with() == 0
    assert "Traceback" not in screen.text


@pytest.mark.parametrize("line", ['{"sing": "la"}', "nonsense", '{"fail": "often"}', "3"])
def test_a_script_that_is_none_says_what_to_write(tmp_path, line):
    script = tmp_path / "script.jsonl"
    script.write_text(line)
    done = command("fake", "--script", script)
    assert done.returncode == Exit.USAGE
    assert '{"say": "Hi"}' in done.stderr
    assert command("fake", "--script", tmp_path).returncode == Exit.USAGE
