"""Would the CLI run in this folder, or refuse it as untrusted?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from geminorum.auth import is_trusted_at_start, read_settings, settings_files
from geminorum.doctor.finding import Finding, check_of, fail, ok, set_aside
from geminorum.environment import home_of
from geminorum.hints import advice
from geminorum.options import Options

_LEVELS = {"TRUST_FOLDER": True, "TRUST_PARENT": True, "DO_NOT_TRUST": False}
_LEAVE_IT = advice("{doctor.untrusted|Options(trust_workspace=None)}")
_NAMED_BY = "GEMINI_CLI_TRUSTED_FOLDERS_PATH"


@check_of("folder trust")
def trust_check(options: Options, env: Mapping[str, str]) -> Finding:
    """Would the CLI refuse the folder? By default, geminorum's runs ask it not to."""
    if env.get("GEMINI_RESTRICTED_MODE") == "true":
        what = "GEMINI_RESTRICTED_MODE is set: the CLI refuses every folder"
        return fail(what, "unset GEMINI_RESTRICTED_MODE", "TRUST")
    if options.trust_workspace:
        return ok("trusted by Options(trust_workspace=True): the folder's own settings are loaded")
    file = _file(options, env)
    if _is_asked(options, env) and (problem := _broken(file)):
        return fail(problem, _fix(file, env), "CONFIG")
    if options.trust_workspace is None:
        return ok("not needed: runs go without the folder's own settings")
    return _by_the_cli(options, env, file)


def _by_the_cli(options: Options, env: Mapping[str, str], file: Path) -> Finding:
    folder = Path(options.cwd or ".").expanduser().absolute()
    if is_trusted_at_start(options, env):
        return ok("trusted by GEMINI_CLI_TRUST_WORKSPACE")
    if not _is_asked(options, env) and env.get("GEMINI_CLI_TRUST_WORKSPACE") != "false":
        return ok("the settings switch folder trust off")
    if _is_asked(options, env) and _rule_for(folder, read_settings(file)):
        return ok(f"trusted by {file}")
    what = f"{folder} is not trusted, and trust_workspace=False leaves that to the CLI"
    return fail(what, _LEAVE_IT, "TRUST")


def _is_asked(options: Options, env: Mapping[str, str]) -> bool:
    """Does the CLI look into the file at all? A variable or the settings may decide before."""
    if env.get("GEMINI_CLI_TRUST_WORKSPACE") in {"true", "false"}:
        return False
    said = map(_trust_enabled, settings_files(options, env))
    return next((enabled for enabled in said if enabled is not None), True)


def _trust_enabled(path: Path) -> bool | None:
    try:
        settings = read_settings(path)
    except (OSError, ValueError):
        return None
    match settings:
        case {"security": {"folderTrust": {"enabled": bool(enabled)}}}:
            return enabled
        case _:
            return None


def _file(options: Options, env: Mapping[str, str]) -> Path:
    named = env.get(_NAMED_BY)
    return Path(named or home_of(options, env) / ".gemini" / "trustedFolders.json")


def _fix(file: Path, env: Mapping[str, str]) -> str:
    return f"unset {_NAMED_BY}" if env.get(_NAMED_BY) else set_aside(file)


def _broken(file: Path) -> str:
    try:
        rules = read_settings(file)
    except (OSError, ValueError) as error:
        return f"{file} cannot be read: {error}"
    wrong = [path for path, level in rules.items() if str(level) not in _LEVELS]
    return f"{file}: {wrong[0]!r} has a level that is none of {', '.join(_LEVELS)}" if wrong else ""


def _rule_for(folder: Path, rules: Mapping[str, str]) -> bool | None:
    """What the rule with the longest path says; None where no rule speaks of the folder."""
    speaking = [path for path, level in rules.items() if _covers(path, level, folder)]
    return _LEVELS[rules[max(speaking, key=len)]] if speaking else None


def _covers(path: str, level: str, folder: Path) -> bool:
    root = Path(path).parent if level == "TRUST_PARENT" else Path(path)
    return folder.resolve().is_relative_to(root.resolve())
