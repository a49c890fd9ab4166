"""What a registry sends is installed only where it is what geminorum was tested with: real npm, and
a registry on loopback that sends what we like."""

import base64
import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from geminorum import install
from geminorum.detect import PACKAGE
from geminorum.errors import SetupError
from geminorum.install import PINNED_CLI, install_cli, lock_of

OLDER = "0.29.0"
CLI = {"name": PACKAGE, "bin": {"gemini": "gemini.js"}, "dependencies": {"beside": "1.0.0"}}


def packed(described: dict, code: str = "") -> bytes:
    """A package as npm packs it; the same bytes each time."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, text in {"package.json": json.dumps(described), "gemini.js": code}.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return gzip.compress(raw.getvalue(), mtime=0)


def hash_of(tarball: bytes) -> str:
    return f"sha512-{base64.b64encode(hashlib.sha512(tarball).digest()).decode()}"


class Registry:
    """Tells of one version of each package, with a hash that fits what it sends."""

    def __init__(self) -> None:
        self.tarballs: dict[str, tuple[dict, bytes]] = {}
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = registry.answer(unquote(self.path).strip("/"))
                self.send_response(200 if body else 404)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def put(self, described: dict, code: str = "") -> str:
        tarball = packed(described, code)
        self.tarballs[described["name"]] = (described, tarball)
        return hash_of(tarball)

    def answer(self, path: str) -> bytes | None:
        if path.startswith("files/"):
            return self.tarballs[path.removeprefix("files/")][1]
        if path not in self.tarballs:
            return None
        described, tarball = self.tarballs[path]
        dist = {"tarball": f"{self.url}/files/{path}", "integrity": hash_of(tarball)}
        version = described["version"]
        told = {"name": path, "dist-tags": {"latest": version}}
        told["versions"] = {version: {**described, "dist": dist}}
        return json.dumps(told).encode()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Registry]:
    made = Registry()
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    monkeypatch.setenv("npm_config_registry", made.url)
    # What npm has in its cache by its hash it would not fetch.
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Lock files of our own in place of those that are shipped."""
    folder = tmp_path / "locks"
    folder.mkdir()
    monkeypatch.setattr(install, "LOCKS", folder)
    return folder


def write_lock(folder: Path, version: str, **hashes: str) -> None:
    """`hashes` by the last part of a package's name."""
    names = {PACKAGE.rpartition("/")[2].replace("-", "_"): PACKAGE, "beside": "beside"}
    found = {PACKAGE: {**CLI, "version": version}, "beside": {"version": "1.0.0"}}
    packages: dict[str, dict] = {"": {"dependencies": {PACKAGE: version}}}
    for name, wanted in hashes.items():
        entry = {key: value for key, value in found[names[name]].items() if key != "name"}
        packages[f"node_modules/{names[name]}"] = {**entry, "integrity": wanted}
    lock = {"lockfileVersion": 3, "requires": True, "packages": packages}
    (folder / f"{version}.json").write_text(json.dumps(lock))


def test_a_package_other_than_the_tested_one_is_refused(registry, tmp_path):
    """The hash that is shipped, against a registry that vouches for something else."""
    registry.put({**CLI, "version": PINNED_CLI, "dependencies": {}}, "steal()")
    with pytest.raises(SetupError, match="EINTEGRITY") as caught:
        install_cli(tmp_path / "cli")
    assert "not the package that geminorum was tested with" in (caught.value.hint or "")
    assert not (tmp_path / "cli").exists()


def test_a_lock_for_the_cli_alone_refuses_another_cli(registry, locks, tmp_path):
    registry.put({"name": "beside", "version": "1.0.0"})
    registry.put({**CLI, "version": OLDER}, "steal()")
    write_lock(locks, OLDER, gemini_cli=hash_of(packed({**CLI, "version": OLDER}, "work()")))
    with pytest.raises(SetupError, match="EINTEGRITY"):
        install_cli(tmp_path / "cli", OLDER)
    assert not (tmp_path / "cli").exists()


def test_what_was_tested_is_installed_with_what_belongs_to_it(registry, locks, tmp_path):
    cli = registry.put({**CLI, "version": PINNED_CLI}, "work()")
    beside = registry.put({"name": "beside", "version": "1.0.0"})
    write_lock(locks, PINNED_CLI, gemini_cli=cli, beside=beside)
    said: list[str] = []
    program = install_cli(tmp_path / "cli", progress=said.append)
    assert Path(program.command[-1]).read_text() == "work()"
    assert (tmp_path / "cli/node_modules/beside/package.json").exists()
    assert said == [f"Installing {PACKAGE} {PINNED_CLI} from npm …"]


def test_another_package_beside_the_cli_is_refused_too(registry, locks, tmp_path):
    cli = registry.put({**CLI, "version": PINNED_CLI})
    tested = hash_of(packed({"name": "beside", "version": "1.0.0"}))
    registry.put({"name": "beside", "version": "1.0.0"}, "steal()")
    write_lock(locks, PINNED_CLI, gemini_cli=cli, beside=tested)
    with pytest.raises(SetupError, match="EINTEGRITY"):
        install_cli(tmp_path / "cli")


def test_a_lock_for_the_cli_alone_lets_npm_choose_the_rest(registry, locks, tmp_path):
    cli = registry.put({**CLI, "version": OLDER}, "work()")
    registry.put({"name": "beside", "version": "1.0.0"})
    write_lock(locks, OLDER, gemini_cli=cli)
    program = install_cli(tmp_path / "cli", OLDER)
    assert Path(program.command[-1]).read_text() == "work()"
    assert (tmp_path / "cli/node_modules/beside/package.json").exists()


def test_a_version_without_a_hash_is_installed_and_said_to_be_unchecked(registry, locks, tmp_path):
    registry.put({**CLI, "version": "0.58.0", "dependencies": {}})
    said: list[str] = []
    install_cli(tmp_path / "cli", "0.58.0", progress=said.append)
    assert ["geminorum ships no hash for this version" in line for line in said] == [True]


@pytest.mark.parametrize("version", ["0.29.0", "0.40.1", "0.51.0", PINNED_CLI])
def test_every_version_that_is_tested_has_its_hash(version):
    """Of every package, for every system, and with no address in it."""
    lock = lock_of(version)
    assert lock is not None
    assert "http" not in lock.read_text()
    packages = json.loads(lock.read_bytes())["packages"]
    assert packages.pop("") == {"dependencies": {PACKAGE: version}}
    assert packages[f"node_modules/{PACKAGE}"]["version"] == version
    assert all(entry["integrity"].startswith("sha512-") for entry in packages.values())
    if version != OLDER:
        optional = packages[f"node_modules/{PACKAGE}"]["optionalDependencies"]
        assert {f"node_modules/{name}" for name in optional} <= packages.keys()


def test_a_version_is_no_way_to_another_file():
    assert [lock_of(name) for name in ("../locks/0.61.0", "*", "", "latest")] == [None] * 4
