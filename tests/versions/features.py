"""The rows of docs/versions.md: each feature, and how older CLIs support it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from geminorum.doctor import probes
from geminorum.install import PINNED_CLI

VERSIONS = ("0.29.0", "0.40.1", "0.51.0", PINNED_CLI)

Outcome: TypeAlias = Literal["works", "Unsupported"]

BY_SETTINGS = (
    "Uses `--allowed-tools`, `tools.core` and `tools.exclude`: this CLI has no `--policy`."
)
NO_COMMANDS = (
    "This CLI would also let such a line run other programs: `git status ; PATH=. ; git status`."
)
NO_QUESTIONS = "`decide` needs CLI 0.40, and `*` in a rule needs `--policy`."
NO_WARM = "`Acp` needs CLI 0.51."
BESIDE = "Uses a policy file beside the user's own."
ONE_POLICY = "This CLI cannot combine the user's policies with the permissions of a run."
ALWAYS_TRUSTED = (
    "In headless mode this CLI trusts every folder, and the folder's settings override ours. "
    "geminorum refuses a folder with a `.gemini/settings.json`, unless `trust_workspace=True` and "
    "no option restricts the tools."
)
NO_PLAN = (
    "Plan mode is experimental in this CLI. Its tools are excluded, even if the user enables it."
)
DISARMED = (
    "This CLI has no setting for it: geminorum sets every variable of such a file to an empty "
    "value beforehand. If a folder has an `.env`, this CLI does not read `~/.gemini/.env`."
)
OTHER_MODEL = "This CLI always replaces `gemini-2.5-flash` by `gemini-3.5-flash`."
LATE = (
    "This CLI reports the error so late that a tool may already have run, so geminorum reads the "
    "file first. A file that is valid TOML with an invalid rule may still be reported late."
)
NO_HOOKS = "Functions and answers in a schema need CLI 0.40."
NO_SESSION_ID = "This CLI has no flag for it."


@dataclass(frozen=True)
class Feature:
    title: str
    unsupported: tuple[str, ...] = ()
    """Where it is refused before anything starts; everywhere else it has to work."""
    note: tuple[str, tuple[str, ...]] | None = None
    """What is different, and on which versions."""

    def expected(self, version: str) -> Outcome:
        return "Unsupported" if version in self.unsupported else "works"


_OLDEST = VERSIONS[:1]
_OLDER = VERSIONS[:2]

FEATURES = {
    "test_events": Feature(probes.EVENTS),
    "test_tool_calls": Feature(probes.TOOLS),
    "test_thoughts": Feature(probes.THOUGHTS),
    "test_usage": Feature(probes.USAGE),
    "test_deny_write": Feature('`Policy(file_write="deny")`', note=(BY_SETTINGS, _OLDEST)),
    "test_allow_write": Feature('`Policy(file_write="allow")`', note=(BY_SETTINGS, _OLDEST)),
    "test_whitelist": Feature("`allowed_tools`: no other tool runs", note=(BY_SETTINGS, _OLDEST)),
    "test_whitelist_runs_unasked": Feature(
        "`allowed_tools`: these tools run without approval", note=(BY_SETTINGS, _OLDEST)
    ),
    "test_only_git_status": Feature(
        "`allowed_tools`: in the shell, only `git status` runs",
        unsupported=_OLDEST,
        note=(NO_COMMANDS, _OLDEST),
    ),
    "test_only_git_status_in_yolo": Feature(
        "… also in yolo mode", unsupported=_OLDEST, note=(NO_COMMANDS, _OLDEST)
    ),
    "test_redirection": Feature(
        "… and cannot write through a redirection", unsupported=_OLDEST, note=(NO_COMMANDS, _OLDEST)
    ),
    "test_stretched_whitelist": Feature(
        "… and cannot be extended to run anything else",
        unsupported=_OLDEST,
        note=(NO_COMMANDS, _OLDEST),
    ),
    "test_safe_looking_commands": Feature(
        '"ask" without `decide`: not even `uniq` and `git show` run', note=(BY_SETTINGS, _OLDEST)
    ),
    "test_safe_looking_commands_asked_about": Feature(
        '… also if `decide` denies, and with `Rule("*", "ask")`',
        unsupported=_OLDEST,
        note=(NO_QUESTIONS, _OLDEST),
    ),
    "test_safe_looking_commands_warm": Feature(
        "… also through `Acp`", unsupported=_OLDER, note=(NO_WARM, _OLDER)
    ),
    "test_hundred_commands": Feature(
        "… nor any of a hundred other commands", note=(BY_SETTINGS, _OLDEST)
    ),
    "test_steering_folders": Feature(
        "files in `.gemini/` and `.agents/` cannot be written", note=(BESIDE, _OLDEST)
    ),
    "test_search": Feature("a search runs no program", note=(BESIDE, _OLDEST)),
    "test_users_denial": Feature(
        "tools that the user's policies deny stay denied",
        unsupported=_OLDEST,
        note=(ONE_POLICY, _OLDEST),
    ),
    "test_disallowed_tool": Feature("`disallowed_tools`", note=(BY_SETTINGS, _OLDEST)),
    "test_approval_default": Feature('`approval="default"` only reads'),
    "test_approval_auto_edit": Feature('`approval="auto_edit"` writes, but runs nothing'),
    "test_approval_yolo": Feature('`approval="yolo"`'),
    "test_approval_plan": Feature(
        '`approval="plan"`', unsupported=_OLDEST, note=(NO_PLAN, _OLDEST)
    ),
    "test_max_turns": Feature("`max_turns`: exit code 53, the user's settings unchanged"),
    "test_own_session_id": Feature(
        "`session_id`", unsupported=_OLDER, note=(NO_SESSION_ID, _OLDER)
    ),
    "test_resume_by_id": Feature("`resume` by id"),
    "test_fork": Feature(probes.FORK),
    "test_resume_latest": Feature('`resume="latest"`'),
    "test_lost_session": Feature("`resume` of a lost session: `SessionLost`"),
    "test_conversation": Feature("`connect()`: the second turn remembers the first"),
    "test_warm_conversation": Feature(probes.WARM, unsupported=_OLDER, note=(NO_WARM, _OLDER)),
    "test_warm_approval": Feature(probes.WARM_ASK, unsupported=_OLDER, note=(NO_WARM, _OLDER)),
    "test_functions": Feature(probes.FUNCTIONS, unsupported=_OLDEST, note=(NO_HOOKS, _OLDEST)),
    "test_output_schema": Feature(probes.SCHEMA, unsupported=_OLDEST, note=(NO_HOOKS, _OLDEST)),
    "test_system_prompt_appended": Feature("`system_prompt`"),
    "test_system_prompt_replaced": Feature("`replace_system_prompt`"),
    "test_effort": Feature("`effort`", note=(OTHER_MODEL, ("0.51.0",))),
    "test_timeout": Feature("`timeout` ends the process tree"),
    "test_cancel": Feature(
        "`cancel()` ends the process tree, including `sleep 300` in the shell tool"
    ),
    "test_literal_prompt": Feature("`/` and `@` in a prompt are text"),
    "test_secrets_hidden_from_shell": Feature("keys are hidden from shell tools"),
    "test_dotenv_ignored": Feature(
        "`.env` and `.gemini/.env` of the folder are ignored", note=(DISARMED, _OLDER)
    ),
    "test_folder_settings_ignored": Feature(
        "the folder's settings are ignored", unsupported=_OLDEST, note=(ALWAYS_TRUSTED, _OLDEST)
    ),
    "test_folder_settings_on_request": Feature("`trust_workspace=True` loads them"),
    "test_untrusted_folder": Feature(
        "`trust_workspace=False`: `TrustError` in a foreign folder",
        unsupported=_OLDEST,
        note=(ALWAYS_TRUSTED, _OLDEST),
    ),
    "test_plan_escape_from_default": Feature(
        "a model in default mode cannot approve its own plan", note=(NO_PLAN, _OLDEST)
    ),
    "test_plan_escape_from_plan": Feature(
        "… nor in plan mode", unsupported=_OLDEST, note=(NO_PLAN, _OLDEST)
    ),
    "test_error_reports_private": Feature("error reports do not go to the shared temporary folder"),
    "test_broken_policy_is_fatal": Feature(
        "a broken user policy file: `ConfigError`", note=(LATE, _OLDEST)
    ),
    "test_usage_statistics_off": Feature("usage statistics are off"),
    "test_users_own_things_are_seen": Feature(
        "the user's login, skills and sessions are available"
    ),
}
"""By the name of the test in control.py, in the order of the table."""
