"""A door to each version of the CLI, and the page that tells what was found behind it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from geminorum import Cli
from geminorum.errors import CliTooOld, Unsupported
from geminorum.install import PINNED_CLI, shim_in
from versions.features import FEATURES, VERSIONS
from versions.table import page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/versions.md"


@pytest.fixture(scope="session", params=VERSIONS)
def real_cli_door(request: pytest.FixtureRequest) -> Cli:
    """In place of the pinned version's door: each test runs once for each version."""
    path = shim_in(folder_of(request.param))
    if not path.exists():
        pytest.fail(f"no Gemini CLI at {path}: run `make test-versions`, which installs it")
    return Cli(executable=path)


def folder_of(version: str) -> Path:
    return ROOT / (".gemini-cli" if version == PINNED_CLI else f".gemini-cli-{version}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function, call: pytest.CallInfo) -> Iterator[None]:
    """A test passes when it ends as its row says, be that with `Unsupported`."""
    report = yield
    if call.when != "call":
        return report
    version = item.callspec.params["real_cli_door"]
    expected = FEATURES[item.originalname].expected(version)
    refused = call.excinfo is not None and call.excinfo.errisinstance((Unsupported, CliTooOld))
    if refused and expected == "Unsupported" and not item.funcargs["fake_gemini"].log:
        report.outcome, report.longrepr = "passed", None
    elif report.passed and expected == "Unsupported":
        report.outcome, report.longrepr = "failed", f"it works on {version}: correct features.py"
    if report.passed:
        report.user_properties.append(("cell", (item.originalname, version, expected)))
    return report


class Findings:
    """Collects the reports, also those of other processes, and writes the page at the end."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], str] = {}
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed
        for name, value in report.user_properties:
            if name == "cell" and report.when == "call":
                test, version, outcome = value
                self.cells[test, version] = outcome

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.cells:
            return  # The everyday run, which comes by here to find nothing.
        missing = len(FEATURES) * len(VERSIONS) - len(self.cells)
        if self.failed or missing:
            told = f"{PAGE.name} stays as it was: {missing} cells missing"
        else:
            PAGE.write_text(page(self.cells), encoding="utf-8")
            told = f"{PAGE.name} written: {len(self.cells)} cells"
        terminalreporter.write_line(told)


def pytest_configure(config: pytest.Config) -> None:
    # Under xdist the reports come together in the process that started the others.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Findings())
