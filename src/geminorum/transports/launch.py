"""A door and options to what is started: folder, environment, settings, policies, command line."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any, Protocol

from geminorum.auth import outranked
from geminorum.decisions import Decide
from geminorum.detect import CliProgram
from geminorum.errors import ConfigError, InvalidOptions, Unsupported
from geminorum.options import Options
from geminorum.regular_file import UnfitFile, read_text
from geminorum.surroundings import environment, home_of, upwards
from geminorum.transports.control_place import is_within
from geminorum.transports.final_answer import NAME as FINAL_ANSWER
from geminorum.transports.home import merged
from geminorum.transports.read_guard import ReadGuard, check_start, context_names
from geminorum.transports.steering import steering_in
from geminorum.transports.user_policies import read_user_policy, refuse_denied_functions
from geminorum.wire.argv import (
    IGNORE_DOTENV,
    OWN_HOME,
    POLICY,
    SKIP_TRUST,
    acp_arguments,
    arguments,
    has,
)
from geminorum.wire.effort import overrides
from geminorum.wire.hook import turns_hooks_off
from geminorum.wire.legacy_tools import legacy_tools
from geminorum.wire.mcp import full_name
from geminorum.wire.policy_file import policy_problems, read_policy
from geminorum.wire.policy_toml import (
    OwnTools,
    Steering,
    closing_toml,
    policy_toml,
    told_mode,
)
from geminorum.wire.settings_file import limits_turns, parsed_settings
from geminorum.wire.user_policy import UserPolicy

NO_COMPILE_CACHE = "NODE_DISABLE_COMPILE_CACHE"
_NARROWER = (
    "choose a narrower cwd or include_directories, which leave a private folder out, or let no "
    "file be written: Policy(file_write='deny')"
)


class Door(Protocol):
    """What the doors that start a CLI have in common; `Cli` says what each means."""

    @property
    def extra_args(self) -> tuple[str, ...]: ...
    @property
    def settings(self) -> Mapping[str, Any]: ...
    @property
    def sandbox(self) -> bool | str | None: ...
    @property
    def relaunch(self) -> bool: ...
    @property
    def heap_mb(self) -> int | None: ...
    @property
    def plan_tools(self) -> bool: ...
    @property
    def dotenv(self) -> bool: ...
    @property
    def secrets_in_tools(self) -> bool: ...
    @property
    def shared_tmp(self) -> bool: ...
    @property
    def decide(self) -> Decide | None: ...
    @property
    def gemini_folder(self) -> bool: ...
    @property
    def outside_links(self) -> bool: ...
    @property
    def pre_approved(self) -> tuple[str, ...]: ...
    @property
    def interactive(self) -> bool:
        """Does the CLI itself ask about what may not run unasked?"""

    def own_settings(self, options: Options) -> Mapping[str, Any]:
        """What this door cannot do without, below what the caller says."""


class Preload(Protocol):
    """A script that Node loads ahead of the CLI."""

    @property
    def node_flag(self) -> str: ...


_QUIET_SETTINGS: Mapping[str, Any] = {
    "general": {
        "enableAutoUpdate": False,
        "enableAutoUpdateNotification": False,
        # The CLI would otherwise delete resumed and parallel sessions at its start.
        "sessionRetention": {"enabled": False},
    },
    "privacy": {"usageStatisticsEnabled": False},
}

_SYSTEM_SETTINGS = {
    "linux": Path("/etc/gemini-cli/settings.json"),
    "darwin": Path("/Library/Application Support/GeminiCli/settings.json"),
}

# Every name that the CLI's own reader of `.env` files would find, by its idea of spaces and lines.
_LINE_END = re.compile("[\r\u2028\u2029]")
_DOTENV_NAME = re.compile(
    # What is blank is looked at once, and only within a line: a file may hold nothing else.
    r"^(?:[^\S\n]|\ufeff)*+(?:export[\s\ufeff]++)?([A-Za-z0-9_.-]+)(?=[\s\ufeff]*+=|:[\s\ufeff])",
    re.M,
)


def working_folder(options: Options) -> Path:
    cwd = Path(options.cwd or ".").expanduser().absolute()
    if not cwd.is_dir():
        hint = "name the folder it lies in" if cwd.exists() else f"mkdir -p {cwd}"
        raise InvalidOptions(f"cwd {str(cwd)!r} is not a folder", hint=hint)
    for extra in options.include_directories:
        if not (cwd / extra).is_dir():
            raise InvalidOptions(f"include_directories: {str(extra)!r} is not a folder")
    return cwd


def settings_of(
    door: Door, options: Options, env: Mapping[str, str], selected: str | None
) -> dict[str, Any]:
    """The run's own settings: quiet, safe, as the options ask, and at last as the door says."""
    settings = merged(_QUIET_SETTINGS, _safety(door, options))
    if options.effort is not None:
        thinking = overrides(options.effort, options.model)
        settings = merged(settings, {"modelConfigs": {"customOverrides": thinking}})
    if selected is None and _means_api_key(env):
        # With a base URL and no choice made, the CLI would take the URL for a gateway and refuse.
        settings = _logging_in(settings, "gemini-api-key")
    elif (chosen := outranked(selected, options)) is not None:
        settings = _logging_in(settings, chosen)
    return merged(merged(settings, door.own_settings(options)), door.settings)


def _logging_in(settings: Mapping[str, Any], choice: str) -> dict[str, Any]:
    return merged(settings, {"security": {"auth": {"selectedType": choice}}})


def _safety(door: Door, options: Options) -> dict[str, Any]:
    """Each hole that the CLI leaves open, closed; each has a name on the door to open it by."""
    return {
        "general": {"plan": {"enabled": door.plan_tools or options.approval == "plan"}},
        "advanced": {"ignoreLocalEnv": not door.dotenv},
        "security": {"environmentVariableRedaction": {"enabled": not door.secrets_in_tools}},
    }


def announce(home: Path, settings_beside: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    """Tells the CLI of what it can reach in this process; above every other setting of the run."""
    file = home / ".gemini" / "settings.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    both = merged(settings, settings_beside(settings))
    file.write_text(json.dumps(both), encoding="utf-8")


def refuse_without_hooks(options: Options) -> None:
    """Where the CLI's hook would not run, whoever decides would not be asked."""
    env = environment(options)
    if sys.platform == "win32" or shutil.which("bash", path=env.get("PATH")) is None:
        hint = "install bash; on Windows `decide` works with Acp only"
        raise Unsupported("to ask somebody, the CLI needs bash", hint=hint)
    for file in _settings_above_ours(options, env):
        if turns_hooks_off(_settings_in(file)):
            hint = "take `hooksConfig` out of it, or leave `decide` out"
            raise Unsupported(f"{str(file)!r} switches the CLI's hooks off", hint=hint)


def agent_folders(
    door: Door, options: Options, home: Path, env: Mapping[str, str]
) -> tuple[Path, ...]:
    """Every folder that the CLI may let its file tools write in, where they may write at all."""
    cwd = working_folder(options)
    named = _included_by(_settings_in(cwd / ".gemini/settings.json"), env)
    return (*folders_of(door, options), home / ".gemini" / "tmp", *_placed(named, cwd))


def folders_of(door: Door, options: Options) -> list[Path]:
    """The folders that the caller and the user let the agent work in, `cwd` first.

    Not what the settings of a folder add that nobody trusts: the CLI does not read them either.
    """
    cwd, env = working_folder(options), environment(options)
    named = [folder for one in _all_settings(door, options) for folder in _included_by(one, env)]
    named += [*_included_by_flag(door.extra_args), *map(str, options.include_directories)]
    named += env.get("GEMINI_CLI_IDE_WORKSPACE_PATH", "").split(os.pathsep)
    return [cwd, *_placed(named, cwd)]


def _placed(names: Iterable[str], cwd: Path) -> list[Path]:
    return [cwd / Path(name.strip()).expanduser() for name in names if name.strip()]


def has_turn_limit(door: Door, options: Options) -> bool:
    """Does a setting of the caller, the user, the system or a trusted folder limit the turns?"""
    return any(map(limits_turns, _all_settings(door, options)))


def _all_settings(door: Door, options: Options) -> list[Mapping[str, Any]]:
    env = environment(options)
    users = home_of(options, env) / ".gemini" / "settings.json"
    return [door.settings, *map(_settings_in, (users, *_settings_above_ours(options, env)))]


def _included_by(settings: Mapping[str, Any], env: Mapping[str, str]) -> list[str]:
    context = settings.get("context")
    listed = context.get("includeDirectories") if isinstance(context, Mapping) else None
    names = listed if isinstance(listed, list | tuple) else [listed]
    return [Template(name).safe_substitute(env) for name in names if isinstance(name, str)]


def _included_by_flag(words: Sequence[str]) -> Iterator[str]:
    for word, following in pairwise([*words, ""]):
        flag, equals, value = word.partition("=")
        if flag in ("--include-directories", "--includeDirectories"):
            yield from (value if equals else following).split(",")


def refuse_exposed(
    door: Door,
    options: Options,
    control: Sequence[Path],
    folders: Sequence[Path],
    policies: Sequence[str],
    hint: str = _NARROWER,
) -> None:
    """What steers a run must not lie where its file tools may write: they could rewrite it."""
    exposed = [path for path in control if is_within(path, folders)]
    if exposed and _may_write(door, options, exposed[0], policies):
        raise Unsupported(
            f"the agent may write in {str(exposed[0].parent)!r}, where the settings and policies "
            "of its run lie",
            hint=hint,
        )


def _may_write(door: Door, options: Options, folder: Path, policies: Sequence[str]) -> bool:
    """May a file tool write in this folder, perhaps after a question?"""
    from geminorum.policies import Rules

    if not policies:
        return True  # An older CLI, which is told in its settings what is forbidden.
    told = told_mode(options, door.pre_approved, interactive=door.interactive)
    rules = Rules(read_policy(Path(policies[0]).read_text(encoding="utf-8")).rule, told)
    # By more than one way: a rule may know some of them, and not all.
    file, cwd = folder / "policy.toml", working_folder(options)
    calls = [{"file_path": str(path)} for path in (file, os.path.relpath(file, cwd), file.name)]
    tools = ("write_file", "replace")
    words = {rules.verdict(tool, call).decision for tool in tools for call in calls}
    return "allow" in words or ("ask" in words and door.decide is not None)


def _settings_above_ours(options: Options, env: Mapping[str, str]) -> Iterator[Path]:
    named = env.get("GEMINI_CLI_SYSTEM_SETTINGS_PATH")
    yield Path(named) if named else _SYSTEM_SETTINGS.get(sys.platform, _SYSTEM_SETTINGS["linux"])
    if options.trust_workspace is not None:
        yield working_folder(options) / ".gemini" / "settings.json"


def _settings_in(file: Path) -> dict[str, Any]:
    try:
        return parsed_settings(read_text(file))
    except UnfitFile as error:
        raise _unfit(error) from error
    except (OSError, ValueError):
        return {}  # The CLI itself refuses what is broken.


def _unfit(error: UnfitFile) -> ConfigError:
    """The CLI might read what we cannot."""
    return ConfigError(f"the CLI would read it, but {error}", hint="remove it, or replace it")


def policies_of(
    door: Door,
    options: Options,
    program: CliProgram,
    home: Path,
    *,
    asked: Sequence[str] = (),
    own: OwnTools | None = None,
) -> list[str]:
    """The policy files to name; an older CLI finds the permissions in its settings instead."""
    _refuse_folder_settings(options, program)
    if not has(program.version, POLICY):
        # Of its settings it makes the best by itself: an excluded tool stays excluded.
        _refuse_two_policies(door, options, read_user_policy(home, home, {}))
        _permit_by_settings(home, options, plan_tools=door.plan_tools)
        _close_by_policy(home / ".gemini" / "policies", steering_of(door, options))
        return []
    settings = _settings_in(home / ".gemini" / "settings.json")
    users = read_user_policy(home, working_folder(options), settings)
    if own is not None:
        # A warm process may never be asked for an answer with a shape; its sessions look there.
        needed = own if not door.interactive else replace(own, answer=())
        refuse_denied_functions(door, users, needed, asked)
    file = home / "policy.toml"
    # The flag replaces the user's own policies; their rules are among those of the file.
    rules = _combined(door, options, asked=asked, own=own, users=users)
    if problems := policy_problems(rules):
        # The CLI would drop a rule that it cannot read, and go on.
        raise ConfigError(f"the CLI cannot be told what this run may do: {problems[0]}")
    file.write_text(rules, encoding="utf-8")
    return [str(file)]


def refuse_denied_answer(door: Door, options: Options, home: Path) -> None:
    """For a session that has to answer in a shape, by a tool that the user may deny."""
    settings = _settings_in(home / ".gemini" / "settings.json")
    users = read_user_policy(home, working_folder(options), settings)
    refuse_denied_functions(door, users, OwnTools(answer=(full_name(FINAL_ANSWER),)))


def _combined(door: Door, options: Options, **parts: Any) -> str:
    try:
        return policy_toml(
            options,
            plan_tools=door.plan_tools,
            interactive=door.interactive,
            steering=steering_of(door, options),
            pre_approved=door.pre_approved,
            **parts,
        )
    except InvalidOptions:
        raise
    except ValueError as error:
        hint = "shorten the pattern in ~/.gemini/policies, or leave the option out"
        raise ConfigError(f"the user's policy and the options: {error}", hint=hint) from error


def _close_by_policy(policies: Path, steering: Steering) -> None:
    """Older CLIs take no file by a flag, but read one that lies beside the user's."""
    theirs = sorted(policies.glob("*.toml"))
    targets = {file.name: file.resolve() for file in theirs}
    if policies.is_symlink():
        policies.unlink()
    policies.mkdir(mode=0o700, exist_ok=True)
    for name, target in targets.items():
        (policies / name).symlink_to(target)
    (policies / "geminorum.toml").write_text(closing_toml(steering), encoding="utf-8")


def steering_of(door: Door, options: Options) -> Steering:
    """Ways to the files that steer runs in the folders of the agent."""
    found = steering_in(folders_of(door, options))
    if not door.gemini_folder:
        return found
    return found._replace(files=frozenset(), links=frozenset(), is_open=True)


def _refuse_two_policies(door: Door, options: Options, users: UserPolicy) -> None:
    """Older CLIs cannot be told that the stricter of two words counts."""
    if users.rules and (_limits_tools(options) or door.pre_approved):
        raise Unsupported(
            "this CLI cannot combine the user's own policies with the permissions of a run",
            hint="update it with `npm install -g @google/gemini-cli@latest`, or run without them: "
            "Options(home=…)",
        )


def _refuse_folder_settings(options: Options, program: CliProgram) -> None:
    """Older CLIs read the folder's settings whether it is trusted or not, and over our own."""
    if has(program.version, SKIP_TRUST) or (options.trust_workspace and not _limits_tools(options)):
        return
    file = working_folder(options) / ".gemini" / "settings.json"
    if file.exists():
        raise Unsupported(
            f"this CLI cannot run without {str(file)!r}, which may undo what the options say",
            hint="update it with `npm install -g @google/gemini-cli@latest`, or remove the file; "
            "where no tools are limited, Options(trust_workspace=True) accepts it",
        )


def _limits_tools(options: Options) -> bool:
    limits = (options.policy, options.allowed_tools)
    return bool(options.disallowed_tools) or any(limit is not None for limit in limits)


def _permit_by_settings(home: Path, options: Options, *, plan_tools: bool) -> None:
    file = home / ".gemini" / "settings.json"
    if file.is_symlink():
        return  # Broken settings, which the CLI itself will refuse.
    settings = json.loads(file.read_text(encoding="utf-8"))
    theirs = settings.get("tools")
    tools = legacy_tools(options, plan_tools=plan_tools)
    settings["tools"] = tools.over(theirs if isinstance(theirs, dict) else {})
    file.write_text(json.dumps(settings), encoding="utf-8")


def _means_api_key(env: Mapping[str, str]) -> bool:
    others = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA")
    # The CLI counts only this word.
    return bool(env.get("GEMINI_API_KEY")) and not any(env.get(name) == "true" for name in others)


def variables_of(
    door: Door, options: Options, program: CliProgram, home: Path, folders: Sequence[Path] = ()
) -> dict[str, str]:
    """What the CLI is given beside the caller's own variables; `folders` are the agent's."""
    ours = {"GEMINI_CLI_HOME": str(home), "NO_COLOR": "1", "NO_BROWSER": "true"}
    variables = _dotenv_disarmed(door, options, program) | ours
    if not door.relaunch:
        # The first process would only start a second one, and swallow the signals meant for it.
        variables["GEMINI_CLI_NO_RELAUNCH"] = "true"
    if not has(program.version, OWN_HOME):
        # It knows no home but the user's; the settings of the system are above that one's.
        settings = home / ".gemini" / "settings.json"
        variables["GEMINI_CLI_SYSTEM_SETTINGS_PATH"] = str(settings)
    if options.trust_workspace or (options.trust_workspace is None and _predates_flag(program)):
        variables["GEMINI_CLI_TRUST_WORKSPACE"] = "true"
    if options.replace_system_prompt and options.system_prompt:
        instructions = home / "system.md"
        instructions.write_text(options.system_prompt, encoding="utf-8")
        variables["GEMINI_SYSTEM_MD"] = str(instructions)
    if not door.shared_tmp:
        scratch = home / "tmp"
        scratch.mkdir(mode=0o700)
        variables["TMPDIR"] = str(scratch)
    if isinstance(door.sandbox, str):
        variables["GEMINI_SANDBOX"] = door.sandbox
    if program.node is not None and program.node.version >= (22, 0, 0):
        variables |= _compile_cache(folders)
    return variables


def without_proxy(env: Mapping[str, str]) -> dict[str, str]:
    """No proxy stands between the CLI and this process."""
    names = ("NO_PROXY", "no_proxy")
    known = next((env[name] for name in names if env.get(name)), "")
    return dict.fromkeys(names, f"{known},127.0.0.1" if known else "127.0.0.1")


def _predates_flag(program: CliProgram) -> bool:
    return not has(program.version, SKIP_TRUST)


def _dotenv_disarmed(door: Door, options: Options, program: CliProgram) -> dict[str, str]:
    """What `.env` files around the folder would set, set to nothing: the CLI leaves that alone."""
    if door.dotenv:
        return {}
    env = environment(options)
    home = home_of(options, env)
    theirs = {one / place for one in (home, home.resolve()) for place in (".env", ".gemini/.env")}
    # The setting that ignores them, where there is one, forgets those beside the settings.
    places = [".gemini/.env"] if has(program.version, IGNORE_DOTENV) else [".gemini/.env", ".env"]
    texts = [_text(file) for file in _around(working_folder(options), places) if file not in theirs]
    names = {name for text in texts for name in _DOTENV_NAME.findall(_LINE_END.sub("\n", text))}
    return dict.fromkeys(names - env.keys(), "")


def refuse_strange_dotenv(
    door: Door, options: Options, program: CliProgram, given: Mapping[str, str]
) -> None:
    """A process that runs has its variables; a folder that comes later may not add to them."""
    strange = _dotenv_disarmed(door, options, program).keys() - given.keys()
    if strange:
        raise Unsupported(
            f"a .env file of {str(working_folder(options))!r} would set {min(strange)} for every "
            "session of the process",
            hint="open it through an Acp() of its own, or allow it: Acp(dotenv=True)",
        )


def _around(folder: Path, places: Sequence[str]) -> Iterator[Path]:
    """These places in the folder, and in every one above it."""
    for parent in upwards(folder):
        yield from (parent / place for place in places)


def _text(file: Path) -> str:
    try:
        return read_text(file, errors="replace")
    except UnfitFile as error:
        raise _unfit(error) from error
    except OSError:
        return ""  # What we cannot read, the CLI cannot either.


def compile_cache() -> Path:
    """Where Node keeps compiled code: ours alone, since what lies there is run."""
    import platformdirs

    return platformdirs.user_cache_path("geminorum") / "node-compile-cache"


def _compile_cache(folders: Sequence[Path]) -> dict[str, str]:
    """A cache only: where it cannot be written, or the agent could, the CLI starts a little
    later."""
    folder = compile_cache()
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_within(folder, folders):
            return {NO_COMPILE_CACHE: "1"}
        return {"NODE_COMPILE_CACHE": str(folder)}
    return {}


def command_of(
    door: Door,
    options: Options,
    program: CliProgram,
    policies: Sequence[str],
    preloads: Sequence[Preload] = (),
) -> list[str]:
    """One headless turn; the prompt is not among it."""
    flags = arguments(
        options, version=program.version, policies=policies, pre_approved=door.pre_approved
    )
    return _command(door, program, preloads, flags)


def warm_command_of(
    door: Door,
    options: Options,
    program: CliProgram,
    policies: Sequence[str],
    preloads: Sequence[Preload],
) -> list[str]:
    """A process that stays."""
    return _command(door, program, preloads, acp_arguments(options, policies=policies))


def _command(
    door: Door, program: CliProgram, preloads: Sequence[Preload], flags: Sequence[str]
) -> list[str]:
    command = list(program.command)
    if program.node is not None:
        heap = door.heap_mb or _half_of_memory()
        memory = [f"--max-old-space-size={heap}"] if heap else []
        command[1:1] = [*memory, *(script.node_flag for script in preloads)]
    sandbox = ["--sandbox"] if door.sandbox is True else []
    return [*command, *flags, *sandbox, *door.extra_args]


def guard_of(door: Door, options: Options, home: Path) -> ReadGuard:
    """What keeps the CLI to the files of the folders that these options name."""
    guard = ReadGuard(home, door)
    guard.admit(folders_of(door, options))
    return guard


def check_folders(door: Door, options: Options, program: CliProgram) -> None:
    """Warns of files that a run would bring in from outside, or refuses them."""
    system, *_ = _settings_above_ours(options, environment(options))
    homes = (home_of(options, environment(options)), working_folder(options))
    settings = [system, *(home / ".gemini" / "settings.json" for home in homes)]
    names = context_names(door.settings, *map(_settings_in, settings))
    check_start(door, program, folders_of(door, options), names)


def _half_of_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**21
    except (AttributeError, ValueError, OSError):
        return None
