"""The flags of the commands that send prompts, as data: `flags` declares them to Typer, and
`quick_run` reads them without it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple


class Via(StrEnum):
    """The transports."""

    CLI = "cli"
    ACP = "acp"
    API = "api"


class Approval(StrEnum):
    DEFAULT = "default"
    AUTO_EDIT = "auto_edit"
    YOLO = "yolo"
    PLAN = "plan"


class Effort(StrEnum):
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class Program(NamedTuple):
    """Which Gemini CLI, and how long it may be silent."""

    path: Path | None = None
    start_timeout: float | None = None
    stall_timeout: float | None = None

    def given(self) -> dict[str, Any]:
        """What was typed, as the transports to a CLI take it."""
        named = {"executable": self.path, **self._asdict()}
        return {name: value for name, value in named.items() if name != "path" and value}


class Flag(NamedTuple):
    """One flag: what may be typed, and what becomes of it."""

    kind: Any
    """The type of its value, as Typer takes it."""
    names: tuple[str, ...]
    """`--on/--off` switches something on and off."""
    help: str
    panel: str | None = None
    """The section of the help page."""
    metavar: str | None = None


def _flag(kind: Any, *names: str, help: str, panel: str | None = None, **more: Any) -> Flag:
    return Flag(kind, names, help, panel, **more)


_MODEL, _MAY, _FAR, _SESSION, _WHERE = (
    "The model",
    "What the agent may do",
    "Limits",
    "The session",
    "Folders and environment",
)

# One row for each field of `Options`. A test holds the two together.
OPTIONS_FLAGS: dict[str, Flag] = {
    "model": _flag(
        str | None, "--model", "-m", help="A model name, or an alias such as flash.", panel=_MODEL
    ),
    "effort": _flag(
        Effort | None, "--effort", help="How much the model should think.", panel=_MODEL
    ),
    "system_prompt": _flag(
        str | None, "--system-prompt", help="Instructions added to the agent's own.", panel=_MODEL
    ),
    "replace_system_prompt": _flag(
        bool, "--replace-system-prompt", help="Replace the agent's own instructions.", panel=_MODEL
    ),
    "output_schema": _flag(
        Path | None, "--output-schema", help="A JSON Schema file for the answer.", panel=_MODEL
    ),
    "literal": _flag(
        bool,
        "--literal/--no-literal",
        help="Send / and @ in the prompt as text (default); with --no-literal, the CLI runs "
        "commands and reads files.",
        panel=_MODEL,
    ),
    "approval": _flag(
        Approval | None,
        "--approval",
        "-a",
        help="What the agent may do without approval; default: read files and search the web.",
        panel=_MAY,
    ),
    "yolo": _flag(bool, "--yolo", help="Allow everything without asking.", panel=_MAY),
    "policy": _flag(
        str | None,
        "--policy",
        help="A policy: a JSON or TOML file, or file_write=allow,shell_execute=deny.",
        panel=_MAY,
        metavar="FILE|RULES",
    ),
    "allowed_tools": _flag(
        list[str] | None,
        "--allow-tool",
        help="Allow this tool and no others; may be repeated.",
        panel=_MAY,
    ),
    "disallowed_tools": _flag(
        list[str] | None, "--deny-tool", help="Never run this tool; may be repeated.", panel=_MAY
    ),
    "trust_workspace": _flag(
        bool | None,
        "--trust-workspace/--no-trust-workspace",
        help="Load the folder's own settings and hooks, or let the CLI decide. "
        "Default: run without them.",
        panel=_MAY,
    ),
    "max_turns": _flag(
        int | None, "--max-turns", help="Stop after this many model responses.", panel=_FAR
    ),
    "max_budget_usd": _flag(
        float | None, "--max-budget-usd", help="Stop after this many dollars.", panel=_FAR
    ),
    "timeout": _flag(float | None, "--timeout", help="Stop after this many seconds.", panel=_FAR),
    "network_timeout": _flag(
        float | None,
        "--network-timeout",
        help="Stop after this many seconds of network failures. Default: 50.",
        panel=_FAR,
    ),
    "resume": _flag(
        str | None,
        "--resume",
        "-r",
        help="The session to continue: an id, the start of one, or latest.",
        panel=_SESSION,
    ),
    "session_id": _flag(
        str | None, "--session-id", help="The id for the new session.", panel=_SESSION
    ),
    "store": _flag(
        str | None,
        "--store",
        help="Keep the session in this store, so that other machines can continue it: "
        "sqlite:///FILE, s3://BUCKET or postgresql://HOST. Default: GEMINORUM_STORE.",
        panel=_SESSION,
        metavar="URL",
    ),
    "cwd": _flag(Path | None, "--cwd", "-C", help="The folder the agent works in.", panel=_WHERE),
    "include_directories": _flag(
        list[Path] | None,
        "--include-directory",
        help="Another folder for the agent; may be repeated.",
        panel=_WHERE,
    ),
    "env": _flag(
        list[str] | None,
        "--env",
        help="NAME=VALUE for the agent's environment; may be repeated.",
        panel=_WHERE,
    ),
    "home": _flag(
        Path | None, "--home", help="Use this home folder instead of yours.", panel=_WHERE
    ),
}
CLI_PATH = _flag(
    Path | None, "--cli", help="The Gemini CLI to use. Default: the first one found.", panel=_WHERE
)
START_TIMEOUT = _flag(
    float | None,
    "--start-timeout",
    help="Seconds to wait for the CLI's first output. Default: 60.",
    panel=_FAR,
)
STALL_TIMEOUT = _flag(
    float | None,
    "--stall-timeout",
    help="Stop after this many seconds of silence. Default: 600, except while a tool runs.",
    panel=_FAR,
)
OPTIONS_FILE = _flag(
    Path | None,
    "--options",
    help="A JSON or TOML file of options (see `config validate`); flags override it.",
    panel=_WHERE,
    metavar="FILE",
)

INBOX = _flag(
    bool,
    "--inbox",
    help="Ask in the inbox, and wait, before a tool acts; `geminorum inbox` answers.",
    panel=_MAY,
)
PATIENCE = _flag(
    float | None,
    "--patience",
    help="With --inbox: end the run after this many seconds without an answer; the question stays.",
    panel=_MAY,
)
REMIND = _flag(
    str | None,
    "--remind",
    help="With --inbox: send each question to this web address or program, as JSON.",
    panel=_MAY,
    metavar="URL|COMMAND",
)

# Those of `geminorum run` alone.
RUN_FLAGS: dict[str, Flag] = {
    "file": _flag(Path | None, "--file", "-f", help="Read the prompt from this file."),
    "via": _flag(Via, "--via", help="The transport: the CLI, a warm CLI, or the API."),
    "json": _flag(bool, "--json", help="Print events as JSON, one per line."),
    "quiet": _flag(bool, "--quiet", "-q", help="Print only the text."),
    "offline": _flag(bool, "--offline", help="A simulated model answers; no account needed."),
}
