"""Pipes, devices and endless files in places where files should be: an error, and nobody waits."""

import os
from pathlib import Path

import pytest

from geminorum import Api, Options, ask, doctor, skills
from geminorum.errors import ConfigError, InvalidOptions, InvalidPrompt, SessionUnreadable
from geminorum.policies import Rules
from geminorum.prompt import instructed
from geminorum.sessions import load
from geminorum.system.regular_file import MAX_BYTES, UnfitFile, open_regular, read_bytes, read_text


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Whoever opens it to read, and nobody writes, waits forever."""
    os.mkfifo(path := tmp_path / "pipe")
    return path


def test_only_regular_files_are_read(tmp_path, pipe):
    (linked := tmp_path / "linked").symlink_to(pipe)
    for path in (pipe, linked, Path("/dev/zero"), tmp_path):
        with pytest.raises(UnfitFile, match="is not a regular file"):
            open_regular(path)
    (tmp_path / "text").write_bytes("Grüße\r\n".encode())
    assert read_text(tmp_path / "text") == "Grüße\n"


def test_a_file_is_read_up_to_a_limit(tmp_path):
    file = tmp_path / "large"
    file.write_bytes(b"12345")
    assert read_bytes(file, limit=5) == b"12345"
    with pytest.raises(UnfitFile, match="more than 4 bytes"):
        read_bytes(file, limit=4)


def endless(file: Path) -> None:
    file.touch()
    os.truncate(file, MAX_BYTES + 1)


@pytest.mark.parametrize("make", [os.mkfifo, endless])
@pytest.mark.parametrize("file", [".gemini/.env", ".gemini/settings.json"])
@pytest.mark.parametrize("kind", ["cli", "acp"])
async def test_no_run_starts_over_a_file_that_the_cli_might_read_and_we_cannot(
    stand_in, stand_in_acp, tmp_path, make, file, kind
):
    """What we cannot read, we cannot disarm."""
    work = tmp_path / "work"
    (work / ".gemini").mkdir(parents=True)
    make(work / file)
    transport = stand_in() if kind == "cli" else stand_in_acp("silent")
    with pytest.raises(ConfigError, match=file):
        await ask("Go", Options(cwd=work, trust_workspace=True, timeout=20), via=transport)


@pytest.mark.parametrize("file", ["settings.json", "policies/mine.toml", "GEMINI.md"])
async def test_a_home_with_a_pipe_in_it_is_an_error(real_transport, tmp_path, file):
    home = tmp_path / "home"
    (home / ".gemini/policies").mkdir(parents=True)
    os.mkfifo(home / ".gemini" / file)
    options = Options(cwd=tmp_path, home=home, timeout=20, system_prompt="Be brief.")
    with pytest.raises(ConfigError, match="is not a regular file"):
        await ask("Go", options, via=real_transport)


async def test_what_a_caller_names_is_no_pipe_either(tmp_path, pipe):
    with pytest.raises(InvalidPrompt, match="is not a regular file"):
        await ask(["Look", pipe], Options(cwd=tmp_path), via=Api(api_key="no-key"))
    with pytest.raises(InvalidPrompt, match="is not a regular file"):
        instructed("Go", pipe)
    with pytest.raises(ConfigError, match="is not a regular file"):
        Rules.read(pipe)
    with pytest.raises(SessionUnreadable, match="is not a file"):
        load(pipe)
    os.mkfifo(tmp_path / "SKILL.md")
    with pytest.raises(InvalidOptions, match="is not a regular file"):
        skills.read(tmp_path)


async def test_the_doctor_does_not_wait_for_a_pipe(stand_in, tmp_path, pipe):
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work):
        (folder / ".gemini").mkdir(parents=True)
        os.mkfifo(folder / ".gemini/settings.json")
        os.mkfifo(folder / ".gemini/.env")
    found = doctor.check(Options(cwd=work, home=home), via=stand_in())
    settings = next(one for one in found if one.name == "settings")
    assert settings.level == "fail"
    assert doctor.instructions_check(pipe).level == "fail"
