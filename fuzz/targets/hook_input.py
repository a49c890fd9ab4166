"""What the CLI's hook asks, to an answer that its script can read."""

from __future__ import annotations

import json

from fuzz.soundness import Unsound, require_sound
from fuzz.target import Target
from fuzz.waiting import answered
from geminorum.decisions import Allow, Decision, Decisions, Deny
from geminorum.events import PermissionRequest
from geminorum.transports.callbacks.permission_hook import PermissionHook

_SEEDS = (
    b'{"session_id":"s","transcript_path":"/t","cwd":"/w","hook_event_name":"BeforeTool",'
    b'"timestamp":"2026-01-01T00:00:00.000Z","tool_name":"write_file",'
    b'"tool_input":{"file_path":"a","content":"b"}}',
    b'{"tool_name":"mcp_geminorum_add","tool_input":{"a":1,"b":{"c":[1,2]}},"mcp_context":{"x":1}}',
    b'{"tool_name":"run_shell_command","tool_input":{"command":"ls"},"session_id":null}',
)


async def _decide(request: PermissionRequest) -> Decision:
    return Allow() if request.name == "add" else Deny(f"not {request.name}")


def run(data: bytes) -> None:
    asking = PermissionHook(
        Decisions(_decide), "^(?:write_.*|mcp_geminorum_add)$", lambda: None, ["add"]
    )
    answer = answered(asking.answer(data))
    if answer.count(b"\n") != 1 or json.loads(answer)["decision"] not in ("allow", "deny"):
        raise Unsound(f"the script cannot read {answer[:200]!r}")
    require_sound(asking.placed([]))


TARGET = Target("hook-input", run, _SEEDS)
