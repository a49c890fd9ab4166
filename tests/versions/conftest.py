"""A transport to one version of the CLI, and a record of the rows that hold on it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from geminorum import Cli
from geminorum.errors import CliTooOld, Unsupported
from geminorum.install import shim_in
from versions.features import FEATURES, TESTED_CLI
from versions.table import ROOT, record_of

# What differs between two histories is worth a look.
pytest.register_assert_rewrite("versions.two_machines")


@pytest.fixture(scope="session")
def real_transport() -> Cli:
    """In place of the pinned version's: a transport to the version under test."""
    path = shim_in(ROOT / f".gemini-cli-{TESTED_CLI}")
    if not path.exists():
        pytest.fail(
            f"no Gemini CLI at {path}: `make test-versions VERSIONS={TESTED_CLI}` installs it"
        )
    return Cli(executable=path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function, call: pytest.CallInfo) -> Iterator[None]:
    """A test passes when it ends as its row says, be that with `Unsupported`."""
    report = yield
    if call.when != "call":
        return report
    expected = FEATURES[item.originalname].expected(TESTED_CLI)
    refused = call.excinfo is not None and call.excinfo.errisinstance((Unsupported, CliTooOld))
    if refused and expected == "Unsupported" and not item.funcargs["fake_gemini"].log:
        report.outcome, report.longrepr = "passed", None
    elif report.passed and expected == "Unsupported":
        report.outcome, report.longrepr = "failed", f"it works on {TESTED_CLI}: correct features.py"
    if report.passed:
        report.user_properties.append(("row", (item.originalname, expected)))
    return report


class Findings:
    """Collects the reports, also those of other processes, and records them if all rows hold."""

    def __init__(self, record: Path) -> None:
        self.record = record
        self.outcomes: dict[str, str] = {}
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed
        for name, value in report.user_properties:
            if name == "row" and report.when == "call":
                test, outcome = value
                self.outcomes[test] = outcome

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.outcomes:
            return  # The everyday run, which comes by here to find nothing.
        missing = FEATURES.keys() - self.outcomes.keys()
        if self.failed or missing:
            terminalreporter.write_line(f"{TESTED_CLI} not recorded: {len(missing)} rows missing")
            return
        self.record.parent.mkdir(exist_ok=True)
        self.record.write_text(json.dumps(self.outcomes, indent=1), encoding="utf-8")
        terminalreporter.write_line(f"{TESTED_CLI} recorded: {len(self.outcomes)} rows")


def pytest_configure(config: pytest.Config) -> None:
    # Under xdist the reports come together in the process that started the others.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Findings(record_of(TESTED_CLI)))
