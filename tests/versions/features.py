"""The rows of docs/versions.md: each feature, and how older CLIs support it."""

import os
from dataclasses import dataclass
from typing import Literal, TypeAlias

from geminorum.doctor import probes
from geminorum.install import PINNED_CLI
from geminorum.wire.launch.argv import (
    ACP,
    HOOKS,
    IGNORE_DOTENV,
    POLICY,
    SESSION_ID,
    SKIP_TRUST,
    STORES,
    Version,
)

# Read when this module loads, because tests run without the variables of the machine.
TESTED_CLI = os.environ.get("TESTED_CLI", PINNED_CLI)

Outcome: TypeAlias = Literal["works", "Unsupported"]


def parsed(version: str) -> Version:
    major, minor, patch = map(int, version.split("."))
    return major, minor, patch


@dataclass(frozen=True)
class Note:
    """A difference, and the versions that it is about."""

    text: str
    before: Version
    since: Version = (0, 0, 0)

    def applies_to(self, version: str) -> bool:
        return self.since <= parsed(version) < self.before


@dataclass(frozen=True)
class Feature:
    title: str
    since: Version = (0, 0, 0)
    """Older versions are refused before anything starts; from this one on it has to work."""
    note: Note | None = None

    def expected(self, version: str) -> Outcome:
        return "works" if parsed(version) >= self.since else "Unsupported"


BY_SETTINGS = Note(
    "Uses `--allowed-tools`, `tools.core` and `tools.exclude`: this CLI has no `--policy`, or "
    "does not follow such a file in headless mode.",
    before=POLICY,
)
NO_COMMANDS = Note(
    "This CLI would also let such a line run other programs: `git status ; PATH=. ; git status`.",
    before=POLICY,
)
NO_WILDCARD = Note("`*` in a rule needs CLI 0.35.", before=POLICY)
NO_QUESTIONS = Note("`decide` needs CLI 0.40.", before=HOOKS)
NO_WARM = Note("`Acp` needs CLI 0.51.", before=ACP)
BESIDE = Note("Uses a policy file beside the user's own.", before=POLICY)
ONE_POLICY = Note(
    "This CLI cannot combine the user's policies with the permissions of a run.", before=POLICY
)
ALWAYS_TRUSTED = Note(
    "In headless mode this CLI trusts every folder, and the folder's settings override ours. "
    "geminorum refuses a folder with a `.gemini/settings.json`, unless `trust_workspace=True` and "
    "no option restricts the tools.",
    before=SKIP_TRUST,
)
NO_PLAN = Note(
    "Plan mode needs CLI 0.35. The plan tools of this CLI are excluded, even if the user enables "
    "them.",
    before=POLICY,
)
DISARMED = Note(
    "This CLI has no setting for it: geminorum sets every variable of such a file to an empty "
    "value beforehand. If a folder has an `.env`, this CLI does not read `~/.gemini/.env`.",
    before=IGNORE_DOTENV,
)
OTHER_MODEL = Note(
    "This CLI always replaces `gemini-2.5-flash` by `gemini-3.5-flash`.",
    since=(0, 45, 0),
    before=(0, 61, 0),
)
NO_HOOKS = Note("Functions and answers in a schema need CLI 0.40.", before=HOOKS)
NO_SESSION_ID = Note("This CLI has no flag for it.", before=SESSION_ID)

FEATURES = {
    "test_events": Feature(probes.EVENTS),
    "test_tool_calls": Feature(probes.TOOLS),
    "test_thoughts": Feature(probes.THOUGHTS),
    "test_usage": Feature(probes.USAGE),
    "test_deny_write": Feature('`Policy(file_write="deny")`', note=BY_SETTINGS),
    "test_allow_write": Feature('`Policy(file_write="allow")`', note=BY_SETTINGS),
    "test_whitelist": Feature("`allowed_tools`: no other tool runs", note=BY_SETTINGS),
    "test_whitelist_runs_unasked": Feature(
        "`allowed_tools`: these tools run without approval", note=BY_SETTINGS
    ),
    "test_only_git_status": Feature(
        "`allowed_tools`: in the shell, only `git status` runs",
        since=POLICY,
        note=NO_COMMANDS,
    ),
    "test_only_git_status_in_yolo": Feature("… also in yolo mode", since=POLICY, note=NO_COMMANDS),
    "test_redirection": Feature(
        "… and cannot write through a redirection", since=POLICY, note=NO_COMMANDS
    ),
    "test_stretched_whitelist": Feature(
        "… and cannot be extended to run anything else",
        since=POLICY,
        note=NO_COMMANDS,
    ),
    "test_safe_looking_commands": Feature(
        '"ask" without `decide`: not even `uniq` and `git show` run', note=BY_SETTINGS
    ),
    "test_safe_looking_commands_asked_about": Feature(
        "… also if `decide` denies", since=HOOKS, note=NO_QUESTIONS
    ),
    "test_safe_looking_commands_asked_by_rule": Feature(
        '… also with `Rule("*", "ask")`', since=POLICY, note=NO_WILDCARD
    ),
    "test_safe_looking_commands_warm": Feature("… also through `Acp`", since=ACP, note=NO_WARM),
    "test_hundred_commands": Feature("… nor any of a hundred other commands", note=BY_SETTINGS),
    "test_steering_folders": Feature(
        "files in `.gemini/` and `.agents/` cannot be written", note=BESIDE
    ),
    "test_search": Feature("a search runs no program", note=BESIDE),
    "test_users_denial": Feature(
        "tools that the user's policies deny stay denied",
        since=POLICY,
        note=ONE_POLICY,
    ),
    "test_disallowed_tool": Feature("`disallowed_tools`", note=BY_SETTINGS),
    "test_approval_default": Feature('`approval="default"` only reads'),
    "test_approval_auto_edit": Feature('`approval="auto_edit"` writes, but runs nothing'),
    "test_approval_yolo": Feature('`approval="yolo"`'),
    "test_approval_plan": Feature('`approval="plan"`', since=POLICY, note=NO_PLAN),
    "test_max_turns": Feature("`max_turns`: exit code 53, the user's settings unchanged"),
    "test_own_session_id": Feature("`session_id`", since=SESSION_ID, note=NO_SESSION_ID),
    "test_resume_by_id": Feature("`resume` by id"),
    "test_fork": Feature(probes.FORK),
    "test_resume_latest": Feature('`resume="latest"`'),
    "test_lost_session": Feature("`resume` of a lost session: `SessionLost`"),
    "test_conversation": Feature("`connect()`: the second turn remembers the first"),
    "test_warm_conversation": Feature(probes.WARM, since=ACP, note=NO_WARM),
    "test_warm_approval": Feature(probes.WARM_ASK, since=ACP, note=NO_WARM),
    "test_store": Feature(
        "`store`: a session continues on another machine, under another path", since=STORES
    ),
    "test_store_warm": Feature("… also through `Acp`", since=ACP, note=NO_WARM),
    "test_store_cli_to_acp": Feature(
        "… begun on `Cli`, continued on `Acp`", since=ACP, note=NO_WARM
    ),
    "test_store_acp_to_cli": Feature(
        "… begun on `Acp`, continued on `Cli`", since=ACP, note=NO_WARM
    ),
    "test_store_to_newer_cli": Feature(
        f"… continued by CLI {PINNED_CLI}, on `Cli` and on `Acp`", since=STORES
    ),
    "test_store_from_newer_cli": Feature(
        "… a session that a newer CLI has written: `Unsupported`, before anything starts"
    ),
    "test_functions": Feature(probes.FUNCTIONS, since=HOOKS, note=NO_HOOKS),
    "test_output_schema": Feature(probes.SCHEMA, since=HOOKS, note=NO_HOOKS),
    "test_system_prompt_appended": Feature("`system_prompt`"),
    "test_system_prompt_replaced": Feature("`replace_system_prompt`"),
    "test_effort": Feature("`effort`", note=OTHER_MODEL),
    "test_timeout": Feature("`timeout` ends the process tree"),
    "test_cancel": Feature(
        "`cancel()` ends the process tree, including `sleep 300` in the shell tool"
    ),
    "test_literal_prompt": Feature("`/` and `@` in a prompt are text"),
    "test_secrets_hidden_from_shell": Feature("keys are hidden from shell tools"),
    "test_dotenv_ignored": Feature(
        "`.env` and `.gemini/.env` of the folder are ignored", note=DISARMED
    ),
    "test_folder_settings_ignored": Feature(
        "the folder's settings are ignored", since=SKIP_TRUST, note=ALWAYS_TRUSTED
    ),
    "test_folder_settings_on_request": Feature("`trust_workspace=True` loads them"),
    "test_untrusted_folder": Feature(
        "`trust_workspace=False`: `TrustError` in a foreign folder",
        since=SKIP_TRUST,
        note=ALWAYS_TRUSTED,
    ),
    "test_plan_escape_from_default": Feature(
        "a model in default mode cannot approve its own plan", note=NO_PLAN
    ),
    "test_plan_escape_from_plan": Feature("… nor in plan mode", since=POLICY, note=NO_PLAN),
    "test_error_reports_private": Feature("error reports do not go to the shared temporary folder"),
    "test_broken_policy_is_fatal": Feature("a broken user policy file: `ConfigError`"),
    "test_usage_statistics_off": Feature("usage statistics are off"),
    "test_users_own_things_are_seen": Feature(
        "the user's login, skills and sessions are available"
    ),
}
"""By the name of the test in control.py, in the order of the table."""
