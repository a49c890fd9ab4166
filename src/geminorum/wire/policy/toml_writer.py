"""Writes permissions as a policy file of the CLI, and lists the tools that it rules out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from geminorum.errors import InvalidOptions
from geminorum.hints import advice
from geminorum.permissions import KNOWN_TOOLS, TOOL_GROUPS, Level, Policy, rule_of
from geminorum.wire.policy.toml_reader import in_javascript, is_accepted
from geminorum.wire.policy.user_rules import UserPolicy, stricter

if TYPE_CHECKING:
    from geminorum.options import Approval, Options

# Highest first; within the CLI's own order of files, ours is the user's tier, which beats even
# its yolo mode. A capability that is denied stays denied whatever else is allowed.
_PLAN_TOOLS, _DISALLOWED, _CAPABILITY_DENIED, _ANSWER = 999, 998, 997, 996
_STEERING, _RULES, _ALLOWED, _NOTHING_ELSE, _BESIDE_WHITELIST = 995, 990, 980, 970, 960
_CAPABILITY, _ASKED_BY_MODE = 500, 1

_SHELL, _ANYTHING = "run_shell_command", "."
_WRITERS = ["replace", "write_file"]
# Not where a mode decides for itself.
_ASKING_MODES = ["default", "autoEdit"]
# Below whatever else has been said about the shell.
_ASK_ABOUT_SHELL: dict[str, Any] = {
    "toolName": _SHELL,
    "decision": "ask_user",
    "priority": _ASKED_BY_MODE,
    "modes": _ASKING_MODES,
    "argsPattern": _ANYTHING,
}


STEERING_FOLDERS = (".gemini", ".agents")
"""Where settings, commands, agents and skills of later runs lie."""
_BY_ABSOLUTE_PATH = "Name the file by its absolute path."
_PLAINLY = "Name the file by its plain path: without %, a leading @ or control characters."
_TOO_MANY_FILES = (
    "cwd holds too many files to be searched for links into .gemini/ and .agents/, so no file is "
    "written here. The user can choose a smaller cwd, or pass gemini_folder=True to the transport."
)
# A pattern has its names twice, and the CLI drops one of more than 2048 signs.
_LONGEST_NAMES = 900
# The CLI gives the pattern to `git grep` and `grep` where they look for options, and `-O` names a
# program to run.
_SEARCH_BY_OPTION: dict[str, Any] = {
    "toolName": ["grep_search", "search_file_content"],
    "decision": "deny",
    "priority": _PLAN_TOOLS,
    "argsPattern": '"pattern":"-',
    "denyMessage": "A pattern cannot begin with -; write [-] for it.",
}
# The CLI lists whatever a pattern leads to. `..` may also be put together out of `[.]`, an escape,
# or what braces leave.
_GLOB_OUTSIDE: dict[str, Any] = {
    "toolName": "glob",
    "decision": "deny",
    "priority": _PLAN_TOOLS,
    "argsPattern": (
        r'"pattern":"\s*[/~]|"pattern":"\.\{'
        r'|"pattern":"[^\x00]*(?:\.\.|\[\.\]|\\|\{[.,/]|,[.,/}]|[/{,]\.\{)'
    ),
    "denyMessage": "A pattern names files below dir_path: not /, not .., no escapes, and in braces "
    "whole names that do not begin with a dot.",
}
_TOOLS_KEPT_INSIDE = (_SEARCH_BY_OPTION, _GLOB_OUTSIDE)


class Steering(NamedTuple):
    """Other ways to what lies in those folders."""

    files: frozenset[str] = frozenset()
    """The names of files in them: the CLI finds one to edit by the end of its path."""
    links: frozenset[str] = frozenset()
    """The names of links into them."""
    misread: frozenset[str] = frozenset()
    """The names of files below a folder with a `%` in its name, which the CLI decodes: it may find
    one of them and write another."""
    is_complete: bool = True
    """Not where there were too many files to look at: then any name may be such a link."""
    is_open: bool = False
    """The caller lets file tools write in those folders."""


@dataclass(frozen=True, slots=True)
class OwnTools:
    """The tools of this process, as policies name them."""

    unasked: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    """Those that the CLI itself shall ask about."""
    answer: tuple[str, ...] = ()
    """The tool that takes the answer: it needs no permission, whatever a rule says of all tools."""


_DECISIONS = {"allow": "allow", "ask": "ask_user", "deny": "deny"}


_FAMILIES = ("mcp_*", "discovered_tool_*")
_EDITS, _OTHERS = ("replace", "write_file", "web_fetch"), ("activate_skill", *_FAMILIES)
_ASKED_IN_MODE: dict[str | None, tuple[str, ...]] = {
    None: (*_EDITS, "run_shell_command", *_OTHERS),
    "default": (*_EDITS, "run_shell_command", *_OTHERS),
    "auto_edit": ("run_shell_command", *_OTHERS),
}
"""What an interactive CLI asks about."""
_SECOND_NAMES = {"grep_search": "search_file_content"}


def approval_mode(
    options: Options, pre_approved: Sequence[str] = (), *, interactive: bool = False
) -> Approval | None:
    """The approval mode to start the CLI in; where it is another one, rules say all that the
    options mean.

    In `auto_edit` and `yolo` the CLI lets a command redirect to any file, also where only `git
    status` is allowed. Over ACP (`interactive`) it edits files in `auto_edit` without a look at
    the rules.
    """
    if options.approval == "plan":
        return "plan"
    if options.policy is not None or options.allowed_tools is not None:
        return "default"
    if options.approval == "auto_edit" and (pre_approved or interactive):
        return "default"
    return cast("Approval | None", options.approval)


def asked_tools(options: Options) -> tuple[str, ...]:
    """The tools that somebody is asked about, where there is somebody. Each as a whole: a word on
    single commands is for the CLI to read, not for us."""
    if options.approval == "plan":
        return ()  # What a plan may not do cannot be allowed.
    policy = options.policy or Policy()
    names = [rule.tool for rule in policy.rules if rule.decision == "ask"]
    if options.allowed_tools is None:
        names += _asked_by_level(options)
    else:
        listed = {rule_of(spec)[0] for spec in options.allowed_tools}
        names = [name for name in names if name in listed]
    never = {*_refused_altogether(options), *unasked_tools(options)}
    seen = [name for name in dict.fromkeys(names) if name not in never and _has_a_hook(name)]
    return (*seen, *(_SECOND_NAMES[name] for name in seen if name in _SECOND_NAMES))


def _asked_by_level(options: Options) -> list[str]:
    by_mode = _ASKED_IN_MODE.get(options.approval, ())
    if options.policy is None:
        return [*by_mode]
    spoken_of = {tool for tools in TOOL_GROUPS.values() for tool in tools}
    others = [tool for tool in by_mode if tool not in spoken_of]
    return [*_groups(options.policy, "ask"), *others]


def unasked_tools(options: Options) -> tuple[str, ...]:
    """What a rule allows as a whole, and nobody is asked about although its family would be."""
    rules = options.policy.rules if options.policy is not None else ()
    asked = {rule.tool for rule in rules if rule.decision == "ask"}
    allowed = [rule.tool for rule in rules if rule.decision == "allow" and rule.command is None]
    return tuple(tool for tool in allowed if tool not in asked)


def asked_functions(options: Options, names: Sequence[str]) -> tuple[str, ...]:
    """Which of the caller's own functions somebody is asked about, by the names that the CLI has
    for them. One that a rule allows or denies is not, and of those in a list only one that a rule
    asks about."""
    if options.allowed_tools is not None:
        return tuple(name for name in names if _word_on_function(options, [name]) == "ask")
    settled = {*_refused_altogether(options), *unasked_tools(options)}
    return tuple(name for name in names if not any(fnmatchcase(name, one) for one in settled))


def is_denied_function(options: Options, names: Sequence[str]) -> bool:
    """Does a rule deny one of the caller's own functions, by one of its names?"""
    return _word_on_function(options, names) == "deny"


def _word_on_function(options: Options, names: Sequence[str]) -> Level | None:
    rules = options.policy.rules if options.policy is not None else ()
    # Beside a whitelist, what a rule allows weighs less than what another denies.
    heard = [rule for rule in rules if rule.decision != "allow" or options.allowed_tools is None]
    words = (
        rule.decision
        for rule in heard
        if rule.command is None and any(fnmatchcase(name, rule.tool) for name in names)
    )
    return next(words, None)


def _refused_altogether(options: Options) -> set[str]:
    policy = options.policy or Policy()
    denied = [rule.tool for rule in policy.rules if rule.decision == "deny" and not rule.command]
    whole = [spec for spec in options.disallowed_tools if rule_of(spec)[1] is None]
    return {*denied, *whole, *_groups(policy, "deny")}


def _groups(policy: Policy, level: Level) -> list[str]:
    names = [name for name in TOOL_GROUPS if getattr(policy, name) == level]
    return [tool for name in names for tool in TOOL_GROUPS[name]]


def _has_a_hook(tool: str) -> bool:
    """An agent's name can stand in a policy, but its call is one of `invoke_agent`: what nobody
    can be asked about stays refused."""
    if tool == "*" or tool.startswith(("mcp_", "discovered_tool_")):
        return True
    return tool in KNOWN_TOOLS and tool not in ("codebase_investigator", "cli_help")


def policy_toml(
    options: Options,
    *,
    plan_tools: bool = False,
    interactive: bool = False,
    asked: Sequence[str] = (),
    own: OwnTools | None = None,
    steering: Steering | None = None,
    pre_approved: Sequence[str] = (),
    users: UserPolicy | None = None,
) -> str:
    """The policy file for a CLI that asks by itself (`interactive`) or asks nobody; empty where
    there is nothing to say.

    Calls of the tools in `asked` pass the CLI, because a hook asks about them before. File tools
    may not write where `steering` leads; None: they may. `users` is what the user says: the
    stricter word counts.
    """
    rules = [*_rules(options, pre_approved), *(_own_rules(own) if own is not None else [])]
    rules += _TOOLS_KEPT_INSIDE
    if steering is not None:
        rules += _path_rules(steering, asked, interactive=interactive)
    if not plan_tools:
        rules.append(_plan_rule(options))
    users = users or UserPolicy()
    if users.rules:
        rules = stricter(users.rules, rules)
    mode = approval_mode(options, pre_approved, interactive=interactive)
    edits = _EDITS if options.approval == "auto_edit" != mode else ()
    habits = _habits(asked, edits, interactive=interactive)
    rules = [*(_answerable(rule, asked) for rule in rules), *habits]
    strict = [single for rule in rules for single in always_asking(rule)]
    if not users.rules and not users.checkers:
        return _as_toml(msgspec.json.encode(strict))
    file = {"rule": strict, "safety_checker": [*users.checkers]}
    return _toml_of({key: value for key, value in file.items() if value})


@lru_cache(maxsize=64)
def _as_toml(rules: bytes) -> str:
    """Rules of our own, in JSON, as TOML: the same run after run, and slow to write."""
    return _toml_of({"rule": msgspec.json.decode(rules)})


def _toml_of(file: dict[str, Any]) -> str:
    import tomli_w

    return tomli_w.dumps(file)


def _habits(
    asked: Sequence[str], unasked: Sequence[str], *, interactive: bool
) -> list[dict[str, Any]]:
    """What the CLI does of its own accord, said more strictly; the user's rules go before."""
    habits = [_let_through(_rule(tool, "allow", _ASKED_BY_MODE)) for tool in asked]
    habits += [_rule(tool, "allow", _ASKED_BY_MODE) for tool in unasked if tool not in asked]
    return [*habits, _ASK_ABOUT_SHELL] if interactive else habits


def closing_toml(steering: Steering) -> str:
    """A policy file that says nothing for the options, and only closes what the CLI leaves open: a
    search that runs programs or lists what it should not, and file tools that write where
    `steering` leads."""
    rules = _path_rules(steering, (), interactive=False)
    return _toml_of({"rule": [*_TOOLS_KEPT_INSIDE, *rules]})


def _path_rules(
    steering: Steering, asked: Sequence[str], *, interactive: bool
) -> list[dict[str, Any]]:
    """Denies relative and oddly spelled paths: a decision needs the path that is meant."""
    absolutely = {"denyMessage": _BY_ABSOLUTE_PATH}
    found = [in_javascript(name) for name in sorted(steering.files | steering.misread)]
    ends = [_by_the_end(names) for names in _some(found)]
    if not steering.is_complete:
        ends.append(_RELATIVE)
    rules = [
        _rule("replace", "deny", _STEERING) | {"argsPattern": end} | absolutely for end in ends
    ]
    odd = {"argsPattern": _ODDLY_SPELLED, "denyMessage": _PLAINLY}
    rules.append(_rule(_WRITERS, "deny", _STEERING) | odd)
    if not steering.is_open:
        rules += _steering_rules(steering, asked, interactive=interactive)
    return [{**rule, "modes": _ASKING_MODES} for rule in rules]


def _steering_rules(
    steering: Steering, asked: Sequence[str], *, interactive: bool
) -> list[dict[str, Any]]:
    # A rule that says "ask" would offer the tool to the model; where nobody can be asked by the
    # CLI, "deny" leaves hidden what is hidden.
    decision = "ask_user" if interactive else "deny"
    writers = [tool for tool in _WRITERS if tool not in asked]
    through = [_in_any_case(name) for name in STEERING_FOLDERS]
    through += [in_javascript(name) for name in sorted(steering.links)]
    rules = [
        _rule(writers, decision, _STEERING) | {"argsPattern": _through(names)}
        for names in _some(through)
        if writers
    ]
    if writers and not steering.is_complete:
        # With a pattern, for the CLI hides what is denied altogether, and the reason with it.
        every = {"argsPattern": _ANYTHING, "denyMessage": _TOO_MANY_FILES}
        rules.append(_rule(writers, decision, _STEERING) | every)
    return rules


def _some(names: Sequence[str]) -> Iterable[Sequence[str]]:
    """So many at once that the CLI does not find their pattern too long."""
    some: list[str] = []
    for name in names:
        if some and sum(map(len, some)) + len(name) > _LONGEST_NAMES:
            yield some
            some = []
        some.append(name)
    if some:
        yield some


def fits_in_a_pattern(name: str) -> bool:
    """Can the CLI be told about a file of this name?"""
    return len(in_javascript(name)) <= _LONGEST_NAMES


def _in_any_case(name: str) -> str:
    letters = (f"[{letter}{letter.upper()}]" if letter.isalpha() else "" for letter in name)
    return rf"\.{''.join(letters)}"


# The CLI decodes a path as if it were an address, strips NULs, and takes a leading @ away.
_ODDLY_SPELLED = (
    r'"file_path":"[\s]*@|"file_path":"[^\x00]*%[0-9A-Fa-f][0-9A-Fa-f]'
    r'|"file_path":"[^\x00]*\\u00[01]'
)


_RELATIVE = r'"file_path":"[^\\/]'


# The CLI puts a NUL behind each argument, and a path may hold anything else, quotes included. It
# drops a file with a quantifier on a group, so two places in a path are two patterns.
def _through(names: Sequence[str]) -> str:
    """A path with one of these names in it."""
    name = rf'(?:{"|".join(names)})[ .]*[\\/"]'
    return rf'"file_path":"[\s.\\/]*{name}|"file_path":"[^\x00]*[\\/]{name}'


def _by_the_end(names: Sequence[str]) -> str:
    """A relative path that ends with one of these names."""
    name = rf'(?:{"|".join(names)})\s*"'
    return rf'"file_path":"\s*{name}|"file_path":"[^\\/\x00][^\x00]*[\\/]{name}'


def _own_rules(own: OwnTools) -> list[dict[str, Any]]:
    rules = [_rule(tool, "allow", _ANSWER) for tool in own.answer]
    rules += [_rule(tool, "allow", _ALLOWED) for tool in own.unasked]
    # Not in yolo mode, which asks about nothing.
    modes = ["default", "autoEdit", "plan"]
    asked = [_rule(tool, "ask_user", _CAPABILITY) for tool in own.asked]
    return [*rules, *({**rule, "modes": modes} for rule in asked)]


def _answerable(rule: dict[str, Any], asked: Sequence[str]) -> dict[str, Any]:
    """Turns "ask" into "allow" if the hook asks before the CLI reads the rule."""
    named = rule["toolName"] if isinstance(rule["toolName"], list) else [rule["toolName"]]
    if rule["decision"] != "ask_user" or not set(named) & set(asked):
        return rule
    return _let_through({**rule, "decision": "allow"})


def _let_through(rule: dict[str, Any]) -> dict[str, Any]:
    """Without the CLI's own doubts about a command: it would ask once more, and nobody hears it."""
    if rule["toolName"] not in ("*", "run_shell_command", ["run_shell_command"]):
        return rule
    any_arguments = {} if "commandPrefix" in rule else {"argsPattern": "."}
    return {**rule, **any_arguments, "allowRedirection": True}


def always_asking(rule: dict[str, Any]) -> list[dict[str, Any]]:
    """The rule, so that "ask" means every command.

    The CLI runs commands that it considers safe (`cat`, `git show` …) where a rule says "ask",
    unless the rule looks at the arguments, whatever it looks for in them.
    """
    tools = rule["toolName"] if isinstance(rule["toolName"], list) else [rule["toolName"]]
    conditions = {"commandPrefix", "commandRegex", "argsPattern"}
    if rule["decision"] != "ask_user" or conditions & rule.keys() or not {_SHELL, "*"} & {*tools}:
        return [rule]
    # The one on the shell first: of two rules with one priority, the CLI takes the first.
    shell = {**rule, "toolName": _SHELL, "argsPattern": _ANYTHING}
    others = [tool for tool in tools if tool != _SHELL]
    return [shell, {**rule, "toolName": others}] if others else [shell]


def is_refused(options: Options, tool: str) -> bool:
    """Is the tool refused whatever its arguments? The CLI hides such a one from the model."""
    policy = options.policy or Policy()
    rules = [rule.tool for rule in policy.rules if rule.decision != "allow"]
    if tool in {*rules, *options.disallowed_tools}:
        return True
    if options.allowed_tools is not None:
        return tool not in {rule_of(spec)[0] for spec in options.allowed_tools}
    groups = [TOOL_GROUPS[name] for name in TOOL_GROUPS if getattr(policy, name) != "allow"]
    return any(tool in group for group in groups)


def is_denied(options: Options, tool: str) -> bool:
    """The same if `decide` can be asked: only tools that are denied outright are hidden."""
    policy = options.policy or Policy()
    rules = [rule.tool for rule in policy.rules if rule.decision == "deny" and not rule.command]
    if tool in {*rules, *options.disallowed_tools}:
        return True
    if options.allowed_tools is not None:
        return tool not in {rule_of(spec)[0] for spec in options.allowed_tools}
    groups = [TOOL_GROUPS[name] for name in TOOL_GROUPS if getattr(policy, name) == "deny"]
    return any(tool in group for group in groups)


def is_surely_denied(options: Options, tool: str, permitted: Sequence[str] = ()) -> bool:
    """Is it one of the CLI's tools that act, and may no call of it run, whatever its arguments?

    Says no where rules have to be weighed against each other.
    """
    policy = options.policy or Policy()
    spoken_for = [*(options.allowed_tools or ()), *permitted]
    patterns = [rule.tool for rule in policy.rules if rule.decision != "deny"]
    if options.approval == "plan" or tool in {rule_of(spec)[0] for spec in spoken_for}:
        return False  # A plan is written to a file.
    if any(fnmatchcase(tool, pattern) for pattern in patterns):
        return False
    groups = [name for name in TOOL_GROUPS if tool in TOOL_GROUPS[name]]
    is_left_out = options.allowed_tools is not None and bool(groups)
    is_denied = any(getattr(policy, name) == "deny" for name in groups)
    return is_left_out or is_denied or tool in options.disallowed_tools


def _plan_rule(options: Options) -> dict[str, Any]:
    # Headless, these two let a model approve its own plan, and go on in yolo mode.
    entering = [] if options.approval == "plan" else ["enter_plan_mode"]
    return _rule([*entering, "exit_plan_mode"], "deny", _PLAN_TOOLS)


def _rules(options: Options, pre_approved: Sequence[str]) -> Iterable[dict[str, Any]]:
    """What the options say. A shell that may do everything may redirect, too: it has other ways
    to write; not where files must not be written, nor for single commands."""
    redirecting = not {*_WRITERS} <= _refused_altogether(options)
    unasked = (_from_spec(spec, "allow", _BESIDE_WHITELIST) for spec in pre_approved)
    for rule in (*_spoken(options), *unasked):
        if options.approval == "plan" and _acts(rule) and rule["decision"] == "allow":
            continue  # A plan writes its own file, and nothing else.
        whole = rule["toolName"] in (_SHELL, [_SHELL], "*") and "argsPattern" not in rule
        if whole and redirecting and rule["decision"] == "allow":
            rule["allowRedirection"] = True
        yield rule


def _spoken(options: Options) -> Iterable[dict[str, Any]]:
    policy = options.policy
    for spec in options.disallowed_tools:
        yield _from_spec(spec, "deny", _DISALLOWED)
    if policy is not None:
        yield from _capabilities(policy)
        for rule in policy.rules:
            # Nothing runs that a whitelist leaves out, whatever a rule allows.
            beside = rule.decision == "allow" and options.allowed_tools is not None
            priority = _BESIDE_WHITELIST if beside else _RULES
            yield _rule(rule.tool, _DECISIONS[rule.decision], priority, rule.command)
    if options.allowed_tools is not None:
        for spec in options.allowed_tools:
            yield _from_spec(spec, "allow", _ALLOWED)
        yield _rule("*", "deny", _NOTHING_ELSE)


def _acts(rule: dict[str, Any]) -> bool:
    tools = rule["toolName"] if isinstance(rule["toolName"], list) else [rule["toolName"]]
    return not {*_WRITERS, _SHELL, "*"}.isdisjoint(tools)


def _capabilities(policy: Policy) -> Iterable[dict[str, Any]]:
    for name, tools in TOOL_GROUPS.items():
        level = getattr(policy, name)
        priority = _CAPABILITY_DENIED if level == "deny" else _CAPABILITY
        yield _rule(list(tools), _DECISIONS[level], priority)


def _from_spec(spec: str, decision: str, priority: int) -> dict[str, Any]:
    tool, command = rule_of(spec)
    return _rule(tool, decision, priority, command)


def _rule(
    tool: str | Sequence[str], decision: str, priority: int, command: str | None = None
) -> dict[str, Any]:
    rule: dict[str, Any] = {"toolName": tool, "decision": decision, "priority": priority}
    if command is not None and decision == "allow":
        rule["argsPattern"] = _exactly(command)
    elif command is not None:
        rule["commandPrefix"] = command
    return rule


def _exactly(command: str) -> str:
    """A call of this command, alone or with arguments in which the shell finds nothing to do.

    `commandPrefix` would also look into arguments within arguments. And the CLI judges only what
    it takes for the commands of a line, not `PATH=.` or `((x))`, so a line has to be one command.
    In another folder (`dir_path`), that folder may tell the command what to run, as git's filters
    do.
    """
    start = rf'\x00"command":"{_literally(command)}'
    pattern = (
        r'^(?![\s\S]*\x00"dir_path":)'
        # In JSON, a line end is a backslash and a letter; a quote is one, too, and may stay.
        r'(?![\s\S]*\x00"command":"[^\x00]*\\[^"])'
        rf'[\s\S]*{start}(?:"\x00| [^$`;&|{{}}()<>\x00]*"\x00)'
    )
    if not is_accepted(pattern):
        text = f"the command {command[:80]!r} is too long for a rule that allows it"
        raise InvalidOptions(
            text,
            hint=advice(
                "shorten the command in [{Options.policy=Policy(rules=…)|Rule(…)} or in ]"
                "{Options.allowed_tools}"
            ),
        )
    return pattern


def _literally(text: str) -> str:
    """A pattern for this text in JSON, in which no sign has a meaning of its own."""
    quoted = msgspec.json.encode(text).decode()[1:-1]
    plain = (sign.isalnum() or not sign.isascii() for sign in quoted)
    return "".join(
        sign if is_plain else rf"\x{ord(sign):02x}"
        for sign, is_plain in zip(quoted, plain, strict=True)
    )
