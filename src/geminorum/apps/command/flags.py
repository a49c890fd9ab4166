"""The options of the command line that mean what `Options` and the doors mean; shared by the
commands that send prompts."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Collection
from copy import copy
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

import typer

if TYPE_CHECKING:
    from geminorum import Options, Policy


class Via(StrEnum):
    """The doors."""

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
        """What was typed, as the doors to a CLI take it."""
        named = {"executable": self.path, **self._asdict()}
        return {name: value for name, value in named.items() if name != "path" and value}


def _flag(*names: str, help: str, panel: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)


_MODEL, _MAY, _FAR, _SESSION, _WHERE = (
    "The model",
    "What the agent may do",
    "Limits",
    "The session",
    "Folders and environment",
)

# One row for each field of `Options`: its type here, its flag. A test holds the two together.
_FLAGS: dict[str, Any] = {
    "model": Annotated[
        str | None,
        _flag("--model", "-m", help="A model name, or an alias such as flash.", panel=_MODEL),
    ],
    "effort": Annotated[
        Effort | None, _flag("--effort", help="How much the model should think.", panel=_MODEL)
    ],
    "system_prompt": Annotated[
        str | None,
        _flag("--system-prompt", help="Instructions added to the agent's own.", panel=_MODEL),
    ],
    "replace_system_prompt": Annotated[
        bool,
        _flag(
            "--replace-system-prompt", help="Replace the agent's own instructions.", panel=_MODEL
        ),
    ],
    "output_schema": Annotated[
        Path | None,
        _flag("--output-schema", help="A JSON Schema file for the answer.", panel=_MODEL),
    ],
    "literal": Annotated[
        bool,
        _flag(
            "--literal/--no-literal",
            help="Send / and @ in the prompt as text (default); with --no-literal, the CLI runs "
            "commands and reads files.",
            panel=_MODEL,
        ),
    ],
    "approval": Annotated[
        Approval | None,
        _flag(
            "--approval",
            "-a",
            help="What the agent may do without approval; default: read files and search the web.",
            panel=_MAY,
        ),
    ],
    "yolo": Annotated[bool, _flag("--yolo", help="Allow everything without asking.", panel=_MAY)],
    "policy": Annotated[
        str | None,
        _flag(
            "--policy",
            help="A policy: a JSON or TOML file, or file_write=allow,shell_execute=deny.",
            panel=_MAY,
            metavar="FILE|RULES",
        ),
    ],
    "allowed_tools": Annotated[
        list[str] | None,
        _flag("--allow-tool", help="Allow this tool and no others; may be repeated.", panel=_MAY),
    ],
    "disallowed_tools": Annotated[
        list[str] | None,
        _flag("--deny-tool", help="Never run this tool; may be repeated.", panel=_MAY),
    ],
    "trust_workspace": Annotated[
        bool | None,
        _flag(
            "--trust-workspace/--no-trust-workspace",
            help="Load the folder's own settings and hooks, or let the CLI decide. "
            "Default: run without them.",
            panel=_MAY,
        ),
    ],
    "max_turns": Annotated[
        int | None, _flag("--max-turns", help="Stop after this many model responses.", panel=_FAR)
    ],
    "max_budget_usd": Annotated[
        float | None, _flag("--max-budget-usd", help="Stop after this many dollars.", panel=_FAR)
    ],
    "timeout": Annotated[
        float | None, _flag("--timeout", help="Stop after this many seconds.", panel=_FAR)
    ],
    "network_timeout": Annotated[
        float | None,
        _flag(
            "--network-timeout",
            help="Stop after this many seconds of network failures. Default: 50.",
            panel=_FAR,
        ),
    ],
    "resume": Annotated[
        str | None,
        _flag(
            "--resume",
            "-r",
            help="The session to continue: an id, the start of one, or latest.",
            panel=_SESSION,
        ),
    ],
    "session_id": Annotated[
        str | None, _flag("--session-id", help="The id for the new session.", panel=_SESSION)
    ],
    "cwd": Annotated[
        Path | None, _flag("--cwd", "-C", help="The folder the agent works in.", panel=_WHERE)
    ],
    "include_directories": Annotated[
        list[Path] | None,
        _flag(
            "--include-directory",
            help="Another folder for the agent; may be repeated.",
            panel=_WHERE,
        ),
    ],
    "env": Annotated[
        list[str] | None,
        _flag(
            "--env", help="NAME=VALUE for the agent's environment; may be repeated.", panel=_WHERE
        ),
    ],
    "home": Annotated[
        Path | None,
        _flag("--home", help="Use this home folder instead of yours.", panel=_WHERE),
    ],
}
CliPath = Annotated[
    Path | None,
    _flag("--cli", help="The Gemini CLI to use. Default: the first one found.", panel=_WHERE),
]
StartTimeout = Annotated[
    float | None,
    _flag(
        "--start-timeout",
        help="Seconds to wait for the CLI's first output. Default: 60.",
        panel=_FAR,
    ),
]
StallTimeout = Annotated[
    float | None,
    _flag(
        "--stall-timeout",
        help="Stop after this many seconds of silence. Default: 600, except while a tool runs.",
        panel=_FAR,
    ),
]
OptionsFile = Annotated[
    Path | None,
    _flag(
        "--options",
        help="A JSON or TOML file of options (see `config validate`); flags override it.",
        panel=_WHERE,
        metavar="FILE",
    ),
]
_WITH_THE_REST = (CliPath, StartTimeout, StallTimeout)


def takes_options(function: Callable[..., Any], unseen: Collection[str] = ()) -> Callable[..., Any]:
    """A command with a parameter `options` gets a flag for each field of `Options` instead.

    Those that are `unseen` are taken, and are not on its help page.
    """

    @wraps(function)
    def command(**given: Any) -> Any:
        file = given.pop("options_file")
        fields = {name: given.pop(name) for name in _FLAGS}
        # The API has no sessions, and says so itself.
        if given.get("via") is not Via.API:
            fields["resume"] = _whole_id(fields)
        return function(**given, options=options_from(fields, file))

    own = inspect.signature(function, eval_str=True)
    kept = [each for name, each in own.parameters.items() if name != "options"]
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=_hidden(kind) if name in unseen else kind,
        )
        for name, kind in {**_FLAGS, "options_file": OptionsFile}.items()
    ]
    keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in kept]
    # Those of our panels go with them: a help page begins with what is the command's own.
    first = [each for each in keyword if each.annotation not in _WITH_THE_REST]
    last = [each for each in keyword if each.annotation in _WITH_THE_REST]
    signature = inspect.Signature([*first, *added, *last])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in [*kept, *added]}
    return command


def _hidden(annotation: Any) -> Any:
    kind, flag = get_args(annotation)
    hidden = copy(flag)  # The other commands show theirs.
    hidden.hidden = True
    return Annotated[kind, hidden]


def _whole_id(fields: dict[str, Any]) -> str | None:
    """The session to resume, by its whole id, as `Options` takes it; here its beginning is enough.

    One that is not there stays as it was typed: the door says what is wrong.
    """
    typed: str | None = fields["resume"]
    if typed in (None, "latest"):
        return typed
    from geminorum import sessions

    home = fields["home"] or _variables(fields["env"] or []).get("GEMINI_CLI_HOME")
    info = sessions.find(session_id=typed, home=home)
    return info.id if info else typed


def options_from(fields: dict[str, Any], file: Path | None = None) -> Options:
    """What was typed, as Options; what was not typed is what the file says, or the default."""
    from geminorum import Options

    typed = {name: value for name, value in fields.items() if value not in (None, [], ())}
    readers: dict[str, Callable[[Any], Any]] = {
        "policy": policy_from,
        "env": _variables,
        "output_schema": _schema,
        "approval": str,
        "effort": str,
        "home": _folder,
    }
    values = {name: readers.get(name, _same)(value) for name, value in typed.items()}
    return Options(**values) if file is None else _options_in(file).changed(**values)


def _options_in(file: Path) -> Options:
    from geminorum import Options
    from geminorum.apps.command.config import problems_in

    data = data_in(file, "--options")
    if problems := problems_in(data):
        raise typer.BadParameter(f"{file}: {'; '.join(problems)}", param_hint="--options")
    options = Options.from_dict(data)
    if options.home is not None:
        _folder(options.home)
    return options


def _folder(path: Any) -> Any:
    """A home that is there: one that is mistyped would be made, and have no login."""
    if not Path(path).is_dir():
        text = f"there is no folder {path}; to create an empty one: mkdir {shlex.quote(str(path))}"
        raise typer.BadParameter(text, param_hint="--home")
    return path


def policy_from(text: str) -> Policy:
    """A Policy from a JSON or TOML file, or from `file_write=allow,shell_execute=deny`."""
    from geminorum import Policy
    from geminorum.errors import InvalidOptions

    try:
        return Policy.from_dict(_policy_data(text))
    except InvalidOptions as error:
        advice = "write allow, ask or deny for file_write, shell_execute, network_access"
        raise typer.BadParameter(f"{error.message}; {advice}", param_hint="--policy") from error


def _policy_data(text: str) -> Any:
    if "=" in text and not Path(text).exists():
        pairs = [pair.partition("=") for pair in text.split(",")]
        return {name.strip(): level.strip() for name, _, level in pairs}
    data = data_in(Path(text), "--policy")
    if not isinstance(data, dict):
        raise typer.BadParameter(f"{text} is not a table of capabilities", param_hint="--policy")
    return data


def data_in(path: Path, flag: str) -> Any:
    """What a JSON or TOML file of the user's holds."""
    import json
    import tomllib

    text = text_in(path, flag)
    try:
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint=flag) from error


def text_in(path: Path, flag: str) -> str:
    """The text of a file of the user's; a folder, or a file that is not there, is his mistake."""
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; name a file in it", param_hint=flag)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise typer.BadParameter(f"there is no file {path}", param_hint=flag) from error
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"cannot read {path}: {error}", param_hint=flag) from error


def _variables(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise typer.BadParameter(f"{pair!r}; write NAME=VALUE", param_hint="--env")
    return dict(pair.split("=", 1) for pair in pairs)


def _schema(path: Path) -> Any:
    return data_in(path, "--output-schema")


def _same(value: Any) -> Any:
    return value
