"""A settings file, to settings and to what is derived from them."""

from __future__ import annotations

from pathlib import Path

from fuzz.scratch import scratch_folder
from fuzz.target import Target
from geminorum.transports.launch.user_policies import policy_files
from geminorum.wire.callbacks.hook import hook_settings, turns_hooks_off
from geminorum.wire.launch.settings_file import parsed_settings
from geminorum.wire.policy.user_rules import user_policy

SEEDS = (
    b'{\n  // comment\n  "security": {"auth": {"selectedType": "gemini-api-key"},'
    b' "disableAlwaysAllow": true},\n  "tools": {"core": ["read_file", "ShellTool(ls)"],'
    b' "exclude": ["glob"], "allowed": ["run_shell_command(git)"],'
    b' "confirmationRequired": ["x"]} /* end */\n}\n',
    b'{"mcp":{"allowed":["a"],"excluded":["b"]},"mcpServers":{"a":{"command":"x","trust":true}},'
    b'"hooks":{"BeforeTool":[{"matcher":"*","hooks":[{"type":"command","command":"true"}]}]},'
    b'"hooksConfig":{"enabled":false},"policyPaths":["p"]}',
    b'{"context":{"fileName":["GEMINI.md","AGENTS.md"]},"model":{"name":"x"},"general":{"a":"\\"//"}}',
    b'{"context":{"fileName":"sub/NOTES.md"}}',
)
WORDS = (b"//", b"/*", b"*/", b'"..', b"/", b"NaN", b"Infinity", b"\\u0000")


def run(data: bytes) -> None:
    settings = parsed_settings(data.decode())
    turns_hooks_off(settings)
    hook_settings(settings, "command", "pattern", "name")
    user_policy([], settings).word_on("glob", interactive=True)
    folder: Path = scratch_folder("settings")
    list(policy_files(folder, folder, settings))


TARGET = Target("settings-file", run, SEEDS, (ValueError,), words=WORDS)
