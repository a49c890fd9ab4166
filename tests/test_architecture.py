"""The shape of the package: data moves one way, the top is cheap, the public names are pinned."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import geminorum

SOURCE = Path(geminorum.__file__).parent

# From left to right: what a part may import of the parts named.
MAY_IMPORT = {
    "events": {"errors", "typed"},
    "errors": {"views"},  # a type in an annotation only
    "redaction": {"events"},
    "leases": set(),
    "reserve": set(),
    "shortage": {"errors"},
    "cancellation": set(),
    "off_loop": set(),
    "owned_folder": {"errors", "reserve", "shortage"},
    "regular_file": set(),
    "search_path": set(),
    "typed": set(),
    "permissions": {"errors", "spelling", "typed"},
    "skills": {"errors", "regular_file"},
    "decisions": {"errors", "events", "interrupts"},
    "interrupts": set(),
    "schema": {"errors", "schema_check", "typed"},
    "schema_check": {"schema_pattern"},
    "schema_pattern": set(),
    "tools": {"decisions", "errors", "interrupts", "schema", "schema_check"},
    "options": {"errors", "events", "permissions", "spelling", "typed"},
    "prompt": {"errors", "regular_file"},
    "detect": {"errors", "install", "regular_file", "search_path"},
    "install": {"detect", "errors", "owned_folder", "regular_file", "search_path"},
    "wire": {
        *("_version", "decisions", "events", "errors", "options", "permissions", "tools", "wire"),
        "typed",
    },
    "cost": {"errors", "events"},
    "models": {"cost", "wire"},
    "policies": {"errors", "options", "permissions", "regular_file", "wire"},
    "sessions": {
        *("cost", "errors", "events", "redaction", "regular_file", "reserve", "sessions"),
        *("typed", "views", "wire"),
    },
    "store": {"errors"},
    "usage": {"cost", "errors", "events", "regular_file", "sessions", "typed", "usage", "wire"},
    "views": {"cost", "events", "errors", "wire", "views"},
    "transports": {
        *("events", "errors", "options", "prompt", "redaction", "detect", "cost", "auth"),
        *("surroundings", "decisions", "permissions", "spelling", "tools", "schema", "_version"),
        *("wire", "sessions", "transports", "policies", "regular_file", "interrupts"),
        *("leases", "off_loop", "owned_folder", "reserve", "shortage", "typed"),
    },
    "client": {
        *("cancellation", "decisions", "shortage"),
        *("events", "errors", "options", "prompt", "redaction", "schema", "transports", "views"),
    },
    "sync": {
        *("client", "decisions", "errors", "events", "options", "prompt", "transports", "views"),
    },
    "auth": {"events", "options", "regular_file", "surroundings", "wire"},
    "spelling": set(),
    "surroundings": {"options", "search_path"},
    "doctor": {
        *("surroundings", "wire", "regular_file", "owned_folder"),
        *("auth", "detect", "doctor", "errors", "install", "options", "redaction", "sync"),
        # The probes of `--try` are programs that use the library.
        *("client", "events", "permissions", "sessions", "testing", "transports", "views"),
    },
    "testing": {"owned_folder", "testing"},
    "contracts": {
        *("spelling", "surroundings"),
        *("client", "detect", "errors", "events", "options", "transports", "views", "wire"),
        *("contracts", "permissions", "cost", "prompt", "redaction", "store", "sync", "doctor"),
        *("sessions", "tools", "owned_folder", "typed"),
    },
    # What people run uses the public names only, as any other user of the library.
    "apps": {
        *(
            "Acp",
            "Allow",
            "AllowAlways",
            "Api",
            "Chat",
            "Cli",
            "Cost",
            "Deny",
            "Done",
            "Error",
            "Event",
        ),
        *(
            "GeminorumError",
            "Init",
            "Options",
            "PermissionDecision",
            "PermissionRequest",
            "Policy",
            "Result",
            "Rule",
            "Run",
        ),
        *("Text", "TextDelta", "Thinking", "Tokens", "ToolResult", "ToolUse", "Unknown", "Usage"),
        *("UserMessage", "FileChange", "ask", "connect", "run", "__version__"),
        *("apps", "cost", "detect", "doctor", "errors", "events", "install", "sessions", "skills"),
        *("models", "policies", "sync", "testing", "usage", "views"),
        # What a kill -9 leaves, files and agents, has to be found by one and the same rule.
        *("leases", "owned_folder"),
    },
    "__main__": {"apps"},
    "_version": set(),
}


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("geminorum"):
            below = (node.module or "").split(".")[1:2]
            found |= set(below) if below else {alias.name for alias in node.names}
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    part = part_of(path)
    if part == "__init__":
        return
    assert imports_of(path) <= MAY_IMPORT[part]


@pytest.mark.parametrize("part", ["wire", "views"])
def test_the_pure_parts_do_no_input_or_output(part):
    forbidden = {"os", "subprocess", "socket", "asyncio", "threading", "tempfile", "shutil", "time"}
    for path in (SOURCE / part).rglob("*.py"):
        modules = {
            name.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert not modules & forbidden, path


def test_importing_the_package_loads_no_library():
    code = "import sys, geminorum; print(*sorted(sys.modules))"
    names = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    for heavy in ("asyncio", "msgspec", "psutil", "genai_prices", "typer", "rich", "google.genai"):
        assert heavy not in names


def test_the_public_names_are_these():
    assert sorted(geminorum.__all__) == sorted(
        [
            *(
                "run",
                "ask",
                "connect",
                "sync",
                "Options",
                "Policy",
                "Rule",
                "Api",
                "Cli",
                "Acp",
                "Run",
                "Chat",
                "Result",
            ),
            *("Init", "TextDelta", "Text", "Thinking", "ToolUse", "ToolResult"),
            *(
                "PermissionRequest",
                "PermissionDecision",
                "Error",
                "Done",
                "UserMessage",
                "Unknown",
                "Event",
            ),
            *("Tokens", "Usage", "Cost", "FileChange", "ToolCall"),
            *("GeminorumError", "errors", "events", "views", "__version__"),
            *("doctor", "sessions", "skills", "usage"),
            *("Allow", "AllowAlways", "Deny", "Blob", "Link", "Tool", "Pool"),
        ]
    )


def test_every_public_name_can_be_had():
    for name in geminorum.__all__:
        assert getattr(geminorum, name) is not None
    assert set(geminorum.__all__) <= set(dir(geminorum))


def test_a_name_that_is_not_there_is_refused_as_python_does():
    with pytest.raises(AttributeError, match="no attribute 'hologram'"):
        geminorum.hologram  # noqa: B018


def test_the_sync_verbs_mirror_the_async_ones():
    from inspect import signature

    from geminorum import client, sync

    for verb in ("run", "ask", "connect"):
        assert (
            str(signature(getattr(sync, verb))).split("->")[0]
            == str(signature(getattr(client, verb))).split("->")[0]
        )


def test_functions_fit_in_the_head():
    sizes = {
        f"{path.name}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: size for name, size in sizes.items() if size > 40} == {}
    assert sum(size > 30 for size in sizes.values()) <= len(sizes) / 50


def test_no_generated_example_has_a_deadline():
    """A machine under load is slow at times, which says nothing about the code."""
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
    files = sorted(Path(__file__).parent.rglob("*.py"))
    assert [place for path in files for place in _time_limits(path)] == []


def _time_limits(path: Path) -> list[str]:
    """Where a test would set a time limit of its own, or choose another profile."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    own = [call for call in calls if ast.unparse(call.func).split(".")[0] == "settings"]
    profile = "settings.register_profile", "settings.load_profile"
    return [
        f"{path.name}:{call.lineno}"
        for call in own
        if any(word.arg in ("deadline", "suppress_health_check") for word in call.keywords)
        or ast.unparse(call.func) in profile
        if path.name != "conftest.py"
    ]
