"""Options as plain data, to Options, the policy file of a run and its verdicts."""

from __future__ import annotations

import json

from fuzz.target import Target
from geminorum import Options
from geminorum.errors import InvalidOptions, Unsupported
from geminorum.policies import Rules, toml_of

_SEEDS = (
    b'{"cwd":"/tmp","model":"flash","approval":"auto_edit","maxTurns":3,"max_budget_usd":0.5,'
    b'"timeout":60,"resume":"latest","env":{"A":"b"},"includeDirectories":["x"],"effort":"low"}',
    b'{"policy":{"fileWrite":"allow","shell_execute":"deny","rules":[{"tool":"run_shell_command",'
    b'"decision":"allow","command":"git status"},{"tool":"mcp_a_*","decision":"ask"}]}}',
    b'{"allowed_tools":["read_file","run_shell_command(git log)"],"disallowed_tools":["web_fetch"],'
    b'"system_prompt":"Be brief","replace_system_prompt":true,"trust_workspace":false}',
    b'{"yolo":true,"permissionMode":"bypassPermissions","session_id":"abc-1","literal":false,'
    b'"output_schema":{"type":"object","properties":{"a":{"type":"integer"}}},"home":"/tmp/h"}',
)


def run(data: bytes) -> None:
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(given, dict):
        options = Options.from_dict(given)
        toml_of(options)
        Rules.of(options).verdict("run_shell_command", {"command": "git status && ls"})


TARGET = Target(
    *("options", run, _SEEDS, (InvalidOptions, Unsupported)),
    documented_warnings="unknown option|the CLI has no tool",
)
