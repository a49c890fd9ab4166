"""Skills: which ones the CLI finds, which of two it takes, and what is wrong with the others."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from geminorum import Options, skills, sync
from geminorum.errors import InvalidOptions

GOOD = "---\nname: {}\ndescription: {}\n---\nDo it.\n"
TIERS = ("extension", "home/.gemini", "home/.agents", "work/.gemini", "work/.agents")


class Places:
    """A home and a workspace to put skills into."""

    def __init__(self, root: Path, home: Path | None = None) -> None:
        self.home = home or root / "home"
        self.work = root / "work"
        self.work.mkdir()
        self.extension = self.home / ".gemini/extensions/tools"

    def folder(self, tier: str) -> Path:
        if tier == "extension":
            put(self.extension / "gemini-extension.json", '{"name": "tools", "version": "1.0.0"}')
            return self.extension / "skills"
        place, _, name = tier.partition("/")
        return (self.home if place == "home" else self.work) / name / "skills"

    def add(self, tier: str, folder: str, text: str | bytes | None = None) -> Path:
        text = GOOD.format(folder, f"from {tier}") if text is None else text
        return put(self.folder(tier) / folder / "SKILL.md", text)

    def active(self) -> dict[str, skills.Skill]:
        return skills.active(self.work, self.home)

    def discover(self) -> list[skills.Skill]:
        return skills.discover(self.work, self.home)


def put(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def description_of(folder: Path, frontmatter: str) -> str:
    text = f"---\nname: x\n{frontmatter}\n---\n"
    return skills.read(put(folder / "x" / "SKILL.md", text)).description


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


class TestTiers:
    @pytest.mark.parametrize("tier", TIERS)
    def test_a_skill_is_found_in_every_tier(self, places, tier):
        """S1-44, S1-48: a skill in any tier's folder is found with its path, tier and
        description."""
        path = places.add(tier, "audit")
        skill = places.active()["audit"]
        word = {"home": "user", "work": "workspace"}.get(tier.partition("/")[0], tier)
        assert (skill.path, skill.folder, skill.tier) == (path, path.parent, word)
        assert (skill.description, skill.shadowed_by) == (f"from {tier}", None)

    @pytest.mark.parametrize("count", range(2, 6))
    def test_the_higher_tier_wins_and_the_lower_ones_say_who_won(self, places, count):
        """S1-45: of skills with one name the highest tier is active, and the others name it in
        `shadowed_by`."""
        *losers, winner = [places.add(tier, "audit") for tier in TIERS[:count]]
        found = places.discover()
        assert [skill.path for skill in found] == [*losers, winner]
        assert [skill.shadowed_by for skill in found] == [winner] * len(losers) + [None]
        assert places.active()["audit"].path == winner

    def test_two_of_one_name_in_one_tier_give_the_same_answer_each_time(self, places):
        """S1-45: inside one tier, the first folder in alphabetical order wins."""
        first = places.add("home/.gemini", "a", GOOD.format("same", "first"))
        second = places.add("home/.gemini", "b", GOOD.format("same", "second"))
        found = {skill.path: skill.shadowed_by for skill in places.discover()}
        assert found == {first: None, second: first}

    def test_a_home_that_is_the_workspace_shadows_nothing(self, places):
        """S1-45: if home and workspace are the same folder, its skill is listed once."""
        places.add("home/.gemini", "audit")
        (skill,) = skills.discover(places.home, places.home)
        assert (skill.tier, skill.shadowed_by) == ("workspace", None)

    def test_no_folders_at_all_are_no_skills(self, tmp_path):
        """S1-44: folders that do not exist give an empty list."""
        assert skills.discover(tmp_path / "none", tmp_path / "nor here") == []

    def test_without_arguments_it_looks_here_and_at_home(self, places, monkeypatch):
        """S1-44: by default, the current folder and GEMINI_CLI_HOME are searched."""
        places.add("home/.agents", "mine")
        places.add("work/.agents", "ours")
        monkeypatch.chdir(places.work)
        monkeypatch.setenv("GEMINI_CLI_HOME", str(places.home))
        assert set(skills.active()) == {"mine", "ours"}

    def test_extensions_can_be_named_and_need_a_manifest_only_when_they_are_not(self, places):
        """S1-44: installed extensions count only with a manifest; extensions passed by path always
        do."""
        folder = places.home / ".gemini/extensions/bare"
        put(folder / "skills/audit/SKILL.md", GOOD.format("audit", "d"))
        assert places.active() == {}
        named = skills.active(places.work, places.home, extensions=[folder])
        assert named["audit"].tier == "extension"
        places.add("extension", "other")
        assert skills.discover(places.work, places.home, extensions=[]) == []


class TestFinding:
    def test_the_folder_itself_and_one_level_below_and_no_deeper(self, places):
        """S1-44: a SKILL.md counts in the skills folder and in its direct subfolders."""
        for folder in (".", "one", "one/two"):
            places.add("work/.agents", folder, GOOD.format(folder.replace(".", "root"), "d"))
        assert set(places.active()) == {"root", "one"}

    @pytest.mark.parametrize("name", ["skill.md", "Skill.md", "SKILL.MD"])
    def test_the_name_of_the_file_is_taken_letter_by_letter(self, places, name):
        """S1-46: only a file called exactly `SKILL.md` is a skill; for other spellings `validate`
        says so."""
        path = put(places.folder("work/.agents") / "x" / name, GOOD.format("x", "d"))
        assert places.active() == {}
        for given in (path, path.parent):
            assert f"called {name}; the CLI reads only SKILL.md" in skills.validate(given)[0]

    @pytest.mark.parametrize("folder", [".hidden", "node_modules"])
    def test_some_folders_are_passed_over(self, places, folder):
        """S1-44: skills in hidden folders and in node_modules are not found, as in the CLI."""
        path = places.add("work/.agents", folder, GOOD.format("x", "d"))
        assert places.active() == {}
        assert skills.validate(path) == [f"the CLI does not look into a folder called {folder}"]

    def test_the_name_need_not_be_the_folders(self, places):
        """S1-46: a skill is listed under the name in its header, not under its folder's."""
        places.add("work/.agents", "folder", GOOD.format("other", "d"))
        assert set(places.active()) == {"other"}

    def test_a_linked_folder_is_found(self, places):
        """S1-44: a skill in a symlinked folder is found under the link's path."""
        real = put(places.home / "elsewhere/SKILL.md", GOOD.format("linked", "d"))
        folder = places.folder("work/.agents")
        folder.mkdir(parents=True)
        (folder / "link").symlink_to(real.parent)
        assert places.active()["linked"].path == folder / "link/SKILL.md"


class TestContents:
    def test_the_instructions_are_read_when_they_are_asked_for(self, places):
        """S1-43, S1-47: the body is read from disk on access, not when skills are listed."""
        path = places.add("work/.agents", "audit")
        skill = places.active()["audit"]
        put(path, GOOD.format("audit", "d") + "Changed since.\n")
        assert skill.body == "Do it.\nChanged since."

    def test_instructions_may_be_missing(self, tmp_path):
        """S1-46: a SKILL.md with only a header has an empty body."""
        assert (
            skills.read(put(tmp_path / "SKILL.md", "---\nname: x\ndescription: d\n---")).body == ""
        )

    def test_a_skill_that_is_gone_says_so_when_its_instructions_are_wanted(self, places):
        """S1-47: reading the body of a deleted skill raises InvalidOptions with the reason."""
        path = places.add("work/.agents", "audit")
        skill = places.active()["audit"]
        path.unlink()
        with pytest.raises(InvalidOptions, match="cannot be read: No such file"):
            _ = skill.body

    def test_assets_are_the_other_files_of_the_folder(self, places):
        """S1-46, S1-47: `assets` lists the skill's other files, and a link loop does not hang
        it."""
        path = places.add("work/.agents", "audit")
        script = put(path.parent / "scripts/audit.js", "1")
        notes = put(path.parent / "notes.txt", "")
        (path.parent / "loop").symlink_to(path.parent)
        assert places.active()["audit"].assets == [notes, script]

    def test_a_skill_can_be_read_by_its_folder_or_its_file(self, places, monkeypatch):
        """S1-46: `read` takes the folder or the SKILL.md and determines the tier."""
        monkeypatch.setenv("GEMINI_CLI_HOME", str(places.home))
        for tier, word in zip(TIERS[::2], ("extension", "user", "workspace"), strict=True):
            path = places.add(tier, "audit")
            assert skills.read(path) == skills.read(str(path.parent))
            assert (skills.read(path).tier, skills.read(path).path) == (word, path)


DESCRIPTIONS = {
    "description: plain": "plain",
    "description: use: when a: b": "use: when a: b",
    "description: one\n  two\n  three": "one two three",
    "description:\n  on the next line": "on the next line",
    "description: |\n  line one\n  line: two": "line one\nline: two\n",
    "description: |-\n  line one\n\n    deeper\n  end\nlicense: MIT": "line one\n\n  deeper\nend",
    "description: |+\n  x\n\n": "x\n\n",
    "description: |2\n    x\n  y": "  x\ny\n",
    "description: >\n  a\n    b\n  c": "a\n  b\nc\n",
    "description: >-\n  a\n  b\n\n  c": "a b\nc",
    'description: "a: \\"b\\"\\n\\u00e9" # why': 'a: "b"\n\xe9',
    'description: "\\ud83d\\ude00"': "\U0001f600",
    "description: 'it''s # one'": "it's # one",
    "description: a#b # why": "a#b",
    "description: 12": "12",
    "description: [a, b]": "[a, b]",
    "metadata:\n  description: no\nallowed:\n- a\n- b\ndescription: yes": "yes",
    "description: d\nbroken: a: b": "d",
    'description: "never closed': '"never closed',
    "# why\n\ndescription: d": "d",
    "description:": "",
    "description: yes": "yes",
    "description: 1:30": "1:30",
    "description: 0o17": "0o17",
    "description: 1_000_": "1_000_",
    "description: &a x": "x",
    "description: !!str 12": "12",
    "description: !own x": "!own x",
    "description: a\u2028b": "a\u2028b",
    'description:\t"a: b"\t# why': "a: b",
    'description: "a\\\n  b"': "ab",
    "? description\n: d": "d",
    "description: d\ntools: [a,\n  b]\nmore:\n  - x: 1\n    y: 2": "d",
    "description: 'd'\nmore:\n  x: 1\n  x: 2": "'d'",
}


class TestFrontmatter:
    def test_a_long_frontmatter_is_read_line_by_line(self, tmp_path):
        """PyYAML would take seconds for what a hostile folder may hold."""
        long = "description: 'd'\nx: " + "[" * 20_000
        assert description_of(tmp_path, long) == "'d'"

    @pytest.mark.parametrize("frontmatter", DESCRIPTIONS)
    def test_a_description_is_read_as_the_cli_reads_it(self, tmp_path, frontmatter):
        """S1-46: YAML descriptions, block scalars included, have the value that the CLI reads."""
        assert description_of(tmp_path, frontmatter) == DESCRIPTIONS[frontmatter]

    def test_windows_line_ends_are_fine(self, tmp_path):
        """S1-46: a SKILL.md with CRLF line ends is read like one with LF."""
        text = "---\nname: x\ndescription: |\n  a\n  b\n---\nBody\n".replace("\n", "\r\n")
        path = put(tmp_path / "SKILL.md", text)
        skill = skills.read(path)
        assert (skill.name, skill.description, skill.body) == ("x", "a\nb\n", "Body")
        assert skills.validate(path) == []

    def test_what_a_name_may_not_have_becomes_a_dash(self, tmp_path):
        """S1-46: characters that the CLI replaces in names become dashes."""
        path = put(tmp_path / "SKILL.md", GOOD.format("'a:b\\c/d<e>f*g?h\"i|j'", "d"))
        assert skills.read(path).name == "a-b-c-d-e-f-g-h-i-j"


IGNORED = {
    "": "the first line must be ---",
    "# Title\n---\nname: x\ndescription: d\n---\n": "the first line must be ---",
    "\n---\nname: x\ndescription: d\n---\n": "the first line must be ---",
    "--- \nname: x\ndescription: d\n---\n": "the first line must be ---",
    "\ufeff---\nname: x\ndescription: d\n---\n": "byte order mark",
    "---\nname: x\ndescription: d\n": "not closed",
    "---\ndescription: d\n---\n": "has no name",
    "---\nname: x\n---\n": "has no description",
    "---\ntitle: x\n---\n": "has no name and no description",
}


class TestWhatTheCliIgnores:
    @pytest.mark.parametrize("text", IGNORED)
    def test_it_is_left_out_and_validate_says_why(self, places, text):
        """S1-46: a skill that the CLI ignores is not listed, and `validate` and `read` give the
        reason."""
        places.add("work/.agents", "fine")
        path = places.add("work/.agents", "x", text)
        assert set(places.active()) == {"fine"}
        (problem,) = skills.validate(path)
        assert IGNORED[text] in problem
        with pytest.raises(InvalidOptions, match=IGNORED[text]) as caught:
            skills.read(path)
        assert caught.value.hint

    def test_a_good_skill_has_no_problems(self, places):
        """S1-46: `validate` returns an empty list for a correct skill."""
        assert skills.validate(places.add("work/.agents", "fine")) == []

    def test_an_ignored_skill_shadows_nothing(self, places):
        """S1-45: a broken skill in a higher tier does not hide a good one of the same name."""
        path = places.add("home/.gemini", "audit")
        places.add("work/.agents", "audit", "---\nname: audit\n---\n")
        assert places.active()["audit"].path == path

    @pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "dangling", "locked"])
    def test_what_cannot_be_read_is_reported_and_harms_nothing(self, places, kind):
        """S1-44: an unreadable SKILL.md is reported, and the other skills are still found."""
        places.add("work/.agents", "fine")
        path = places.folder("work/.agents") / "x" / "SKILL.md"
        path.parent.mkdir()
        _spoil(path, kind)
        assert set(places.active()) == {"fine"}
        assert re.search("cannot be read|is not a file", skills.validate(path)[0])
        with pytest.raises(InvalidOptions):
            skills.read(path)

    def test_a_folder_that_is_a_loop_of_links_harms_nothing(self, places):
        """S1-44: a symlink to itself is reported, and the other skills are still found."""
        places.add("work/.agents", "fine")
        loop = places.folder("work/.agents") / "loop"
        loop.symlink_to(loop)
        assert set(places.active()) == {"fine"}
        assert "cannot be read" in skills.validate(loop)[0]

    def test_nothing_there_is_a_problem_too(self, tmp_path):
        """S1-46: `validate` of a missing or impossible path reports a problem instead of
        raising."""
        assert "No such file" in skills.validate(tmp_path / "none")[0]
        assert "cannot be read" in skills.validate("a\0b")[0]

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (b"---\nname: x\ndescription: \xff\n---\n", "byte 25 is not UTF-8"),
            (b"---\nname:\ndescription: d\n---\n", "the name is empty"),
            (b"---\nname: x\ndescription:\n---\n", "the description is empty"),
            (b"---\nname: |\n  x\ndescription: d\n---\n", "line break"),
        ],
    )
    def test_what_the_cli_takes_but_nobody_wants_is_a_problem(self, places, text, problem):
        """S1-46: `validate` reports skills that load but cannot be used, such as one with an empty
        name."""
        path = places.add("work/.agents", "x", text)
        assert len(places.active()) == 1
        assert problem in skills.validate(path)[0]


def _spoil(path: Path, kind: str) -> None:
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path)
        case "dangling":
            path.symlink_to(path.parent / "none")
        case _:
            put(path, GOOD.format("x", "d")).chmod(0)
            if os.access(path, os.R_OK):
                pytest.skip("this user may read everything")


LISTED = re.compile(
    r"^([^\n]*) \[Enabled\]( \[Built-in\])?\n  Description: (.*?)\n  Location:    ([^\n]+)$",
    re.M | re.S,
)


@pytest.mark.gemini_cli
def test_the_real_cli_finds_the_same_skills(real_cli, quick_start, fake_gemini, tmp_path):
    """S1-44, S1-45, S1-46, S1-48: for skills in all tiers, good and bad, our list equals that of
    the real CLI."""
    places = Places(tmp_path, Path(fake_gemini.home))
    for number, tier in enumerate(TIERS):
        places.add(tier, f"only-{number}")
        for shared in range(number, len(TIERS)):
            places.add(tier, f"shared-{shared}")
    for number, frontmatter in enumerate(DESCRIPTIONS):
        places.add(
            "home/.gemini", f"read-{number}", f"---\nname: read-{number}\n{frontmatter}\n---\n"
        )
    for number, text in enumerate(IGNORED):
        places.add("work/.gemini", f"ignored-{number}", text)
    places.add("work/.agents", ".", GOOD.format("root", "d"))
    places.add("work/.agents", "a/deeper")
    places.add("work/.agents", ".hidden")
    places.add("work/.agents", "chars", GOOD.format("Bad Name!/x", "d"))
    places.add("work/.agents", "bytes", b"---\nname: bytes\ndescription: \xff\n---\n")
    (places.folder("work/.agents") / "folder/SKILL.md").mkdir(parents=True)

    said = _skills_list(
        real_cli, {**fake_gemini.env, **quick_start}, places.work, tmp_path / "said"
    )
    listed = LISTED.findall(said)
    theirs = {name: (text, path) for name, builtin, text, path in listed if not builtin}
    ours = {name: (x.description, str(x.path)) for name, x in places.active().items()}
    assert theirs == ours
    assert {name for name, builtin, *_ in listed if builtin} >= {"skill-creator"}
    assert {"root", "Bad Name!-x", "only-0", "only-4", "shared-0"} <= set(ours)


@pytest.mark.gemini_cli
def test_an_activated_skill_gives_the_model_its_instructions_and_files(
    real_transport, fake_gemini, tmp_path
):
    """S1-43, S1-47: before, the model knows only name and description; yolo needs no consent."""
    places = Places(tmp_path, Path(fake_gemini.home))
    path = places.add("work/.agents", "audit", GOOD.format("audit", "Audits.") + "Run the script.")
    put(path.parent / "scripts/audit.js", "1")
    fake_gemini.call("activate_skill", name="audit").say("Done.")
    options = Options(env=fake_gemini.env, cwd=places.work, approval="yolo")
    sync.ask("Audit this", options, via=real_transport)
    before, after = (str(request.body) for request in fake_gemini.requests)
    assert "Audits." in before
    assert "Run the script." not in before
    assert "Run the script." in after
    assert "audit.js" in after


def _skills_list(command: list[str], extra: dict[str, str], cwd: Path, said: Path) -> str:
    trust = {"GEMINI_CLI_TRUST_WORKSPACE": "true"}
    # A file, because the CLI may leave before a pipe is drained.
    with said.open("wb") as stdout:
        subprocess.run(
            [*command, "skills", "list", "--all"],
            cwd=cwd,
            env={**os.environ, **extra, **trust},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=True,
        )
    return said.read_text()
