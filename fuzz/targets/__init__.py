"""One module for each decoder; `TARGETS` has them by name."""

from __future__ import annotations

from fuzz.target import Target
from fuzz.targets import (
    acp_incoming,
    acp_outgoing,
    api_answer,
    api_refusal,
    batch_file,
    batch_journal,
    dotenv,
    event_lines,
    hook_input,
    mcp_request,
    options_data,
    overlay_settings,
    policy_file,
    session_log,
    settings_file,
    skill_file,
    stored_log,
    stream_json,
    workspace_pack,
)

_MODULES = (
    *(stream_json, acp_incoming, acp_outgoing, session_log, api_answer, api_refusal, skill_file),
    *(options_data, policy_file, hook_input, mcp_request, settings_file, overlay_settings),
    *(batch_file, batch_journal, event_lines, dotenv, stored_log, workspace_pack),
)
TARGETS: dict[str, Target] = {module.TARGET.name: module.TARGET for module in _MODULES}
