"""The permissions of a run for its CLI: a policy file, or settings for a CLI without policies."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from geminorum.detect import CliProgram
from geminorum.errors import ConfigError, InvalidOptions, Unsupported
from geminorum.hints import advice
from geminorum.options import Options
from geminorum.transports.callbacks.final_answer import NAME as FINAL_ANSWER
from geminorum.transports.launch.context import SETTINGS_FILE, LaunchContext
from geminorum.transports.launch.control_place import is_within
from geminorum.transports.launch.overlay import HomePlan
from geminorum.transports.launch.user_policies import read_user_policy, refuse_denied_functions
from geminorum.wire.callbacks.hook import turns_hooks_off
from geminorum.wire.callbacks.mcp import full_name
from geminorum.wire.launch.argv import POLICY, SKIP_TRUST, has
from geminorum.wire.launch.settings_file import merged
from geminorum.wire.policy.legacy_tools import legacy_tools
from geminorum.wire.policy.toml_reader import policy_problems, read_policy
from geminorum.wire.policy.toml_writer import OwnTools, approval_mode, closing_toml, policy_toml
from geminorum.wire.policy.user_rules import UserPolicy

POLICY_FILE = "policy.toml"
_USERS_FOLDER = ".gemini/policies"
_NARROWER = advice(
    "choose a narrower {Options.cwd}[ or {Options.include_directories}], which leave a private "
    "folder out[, or let no file be written: {writing.denied|Policy(file_write='deny')}]"
)


def with_policy(
    plan: HomePlan,
    context: LaunchContext,
    program: CliProgram,
    *,
    admit: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    asked: Sequence[str],
    own: OwnTools,
) -> HomePlan:
    """The plan with what the run may do; `Reachable` says what the other arguments are."""
    _refuse_folder_settings(context, program)
    if not has(program.version, POLICY):
        return _with_legacy_permissions(plan, context)
    settings = merged(plan.settings, admit(plan.settings))
    users = read_user_policy(context.home, context.cwd, settings)
    # A warm process may never be asked for an answer with a shape; its sessions look there.
    needed = own if not context.transport.interactive else replace(own, answer=())
    refuse_denied_functions(context.transport, users, needed, asked)
    # The flag replaces the user's own policies; their rules are among those of the file.
    rules = _combined(context, asked=asked, own=own, users=users)
    if problems := _problems(rules):
        # The CLI would drop a rule that it cannot read, and go on.
        raise ConfigError(f"the CLI cannot be told what this run may do: {problems[0]}")
    return plan.with_files({POLICY_FILE: rules})


@lru_cache(maxsize=64)
def _problems(rules: str) -> tuple[str, ...]:
    # The same options give the same text, run after run, and to parse it takes a millisecond.
    return tuple(policy_problems(rules))


def refuse_denied_answer(context: LaunchContext, settings: Mapping[str, Any]) -> None:
    """For a session that has to answer in a shape, by a tool that the user may deny."""
    users = read_user_policy(context.home, context.cwd, settings)
    refuse_denied_functions(context.transport, users, OwnTools(answer=(full_name(FINAL_ANSWER),)))


def refuse_without_hooks(context: LaunchContext) -> None:
    """Refuses a CLI whose hook would not run: `decide` would not be asked."""
    path = context.env.get("PATH")
    if sys.platform == "win32" or shutil.which("bash", path=path) is None:
        hint = advice("install bash[; on Windows `{decide}` works with {Acp} only]")
        raise Unsupported("to ask somebody, the CLI needs bash", hint=hint)
    for file, settings in context.settings_above.items():
        if turns_hooks_off(settings):
            hint = advice("take `hooksConfig` out of it[, or leave `{decide}` out]")
            raise Unsupported(f"{str(file)!r} switches the CLI's hooks off", hint=hint)


def refuse_exposed(
    context: LaunchContext, control: Sequence[Path], rules: str | None, hint: str = _NARROWER
) -> None:
    """What steers a run must not lie where its file tools may write: they could rewrite it.

    `rules` is the text of its policy; None: an older CLI, which has none.
    """
    exposed = [path for path in control if is_within(path, context.agent_folders)]
    if exposed and _may_write(context, exposed[0], rules):
        raise Unsupported(
            f"the agent may write in {str(exposed[0].parent)!r}, where the settings and policies "
            "of its run lie",
            hint=hint,
        )


def _may_write(context: LaunchContext, folder: Path, policy: str | None) -> bool:
    """May a file tool write in this folder, perhaps after a question?"""
    from geminorum.policies import Rules

    if policy is None:
        return True
    transport, options = context.transport, context.options
    mode = approval_mode(options, transport.pre_approved, interactive=transport.interactive)
    rules = Rules(read_policy(policy).rule, mode)
    # By more than one way: a rule may know some of them, and not all.
    file = folder / POLICY_FILE
    paths = (file, os.path.relpath(file, context.cwd), file.name)
    calls = [{"file_path": str(path)} for path in paths]
    tools = ("write_file", "replace")
    words = {rules.verdict(tool, call).decision for tool in tools for call in calls}
    return "allow" in words or ("ask" in words and transport.decide is not None)


def _combined(context: LaunchContext, **parts: Any) -> str:
    transport = context.transport
    try:
        return policy_toml(
            context.options,
            plan_tools=transport.plan_tools,
            interactive=transport.interactive,
            steering=context.steering,
            pre_approved=transport.pre_approved,
            **parts,
        )
    except InvalidOptions:
        raise
    except ValueError as error:
        hint = "shorten the pattern in ~/.gemini/policies, or leave the option out"
        raise ConfigError(f"the user's policy and the options: {error}", hint=hint) from error


# ---- CLIs without --policy


def _with_legacy_permissions(plan: HomePlan, context: LaunchContext) -> HomePlan:
    # Of its settings it makes the best by itself: an excluded tool stays excluded.
    _refuse_two_policies(context, read_user_policy(context.home, context.home, {}))
    tools = legacy_tools(context.options, plan_tools=context.transport.plan_tools)
    theirs = plan.settings.get("tools")
    told = tools.over(theirs if isinstance(theirs, dict) else {})
    plan = replace(plan, settings={**plan.settings, "tools": told})
    return _with_file_among_the_users(plan, context)


def _with_file_among_the_users(plan: HomePlan, context: LaunchContext) -> HomePlan:
    """Older CLIs take no file by a flag, but read one that lies beside the user's."""
    theirs = sorted((context.home / _USERS_FOLDER).glob("*.toml"))
    links = {name: target for name, target in plan.links.items() if name != _USERS_FOLDER}
    links |= {f"{_USERS_FOLDER}/{file.name}": file.resolve() for file in theirs}
    ours = {f"{_USERS_FOLDER}/geminorum.toml": closing_toml(context.steering)}
    return replace(plan, links=links).with_files(ours)


def _refuse_two_policies(context: LaunchContext, users: UserPolicy) -> None:
    """Older CLIs cannot be told that the stricter of two words counts."""
    if users.rules and (_limits_tools(context.options) or context.transport.pre_approved):
        raise Unsupported(
            "this CLI cannot combine the user's own policies with the permissions of a run",
            hint=advice(
                "update it with `npm install -g @google/gemini-cli@latest`"
                "[, or run without them: {Options.home=…}]"
            ),
        )


def _refuse_folder_settings(context: LaunchContext, program: CliProgram) -> None:
    """Older CLIs read the folder's settings whether it is trusted or not, and over our own."""
    options = context.options
    if has(program.version, SKIP_TRUST) or (options.trust_workspace and not _limits_tools(options)):
        return
    file = context.cwd / SETTINGS_FILE
    if file.exists():
        raise Unsupported(
            f"this CLI cannot run without {str(file)!r}, which may undo what the options say",
            hint=advice(
                "update it with `npm install -g @google/gemini-cli@latest`, or remove the file"
                "[; where no tools are limited, {Options.trust_workspace=True} accepts it]"
            ),
        )


def _limits_tools(options: Options) -> bool:
    limits = (options.policy, options.allowed_tools)
    return bool(options.disallowed_tools) or any(limit is not None for limit in limits)
