"""The CLI's BeforeTool hook: its input, its answers, and its script."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from geminorum.runtime import typed
from geminorum.wire.surrogates import without_halves

_YES = '{"decision":"allow"}'
_NO_ANSWER = "geminorum could not be asked whether this is allowed"
_FOREVER = 2**31 - 1
"""Milliseconds; more than this a timer of Node takes for none. A hook that runs out of time counts
as a yes, so it is given all there is: how long somebody may think is decided on our side."""


class HookCall(msgspec.Struct):
    """What the CLI is about to do."""

    tool_name: str
    tool_input: dict[str, Any] = {}
    session_id: str | None = None


_decoder = typed.decoder(HookCall)


def hook_call(body: bytes) -> HookCall | None:
    try:
        return _decoder.decode(without_halves(body))
    except (ValueError, RecursionError):
        return None


def hook_answer(denial: str | None) -> bytes:
    """One line, because that is what the script reads; None: go on."""
    if denial is None:
        return f"{_YES}\n".encode()
    return msgspec.json.encode({"decision": "deny", "reason": denial}) + b"\n"


def hook_settings(
    theirs: Mapping[str, Any], command: str, pattern: str, name: str
) -> dict[str, Any]:
    """The user's hooks with ours among them, and switched on: off, everything would be allowed."""
    switches, hooks = _dict(theirs, "hooksConfig"), _dict(theirs, "hooks")
    if switches.get("enabled") is False:
        hooks = {event: [] for event in hooks}
    before = hooks.get("BeforeTool")
    ours = {"type": "command", "name": name, "command": command, "timeout": _FOREVER}
    entry = {"matcher": pattern, "hooks": [ours]}
    listed = [*before, entry] if isinstance(before, list) else [entry]
    return {"hooksConfig": {"enabled": True}, "hooks": {**hooks, "BeforeTool": listed}}


def matcher(
    asked: Sequence[str],
    unasked: Sequence[str] = (),
    own: Sequence[str] = (),
    ours: Sequence[str] = (),
) -> str:
    """A pattern, in the CLI's own dialect, for the tools that somebody is asked about; `ours` are
    all tools of this process, `own` those of them that are asked about."""
    # Ours only by their names: no word about the tools of servers means them, and another server
    # may be called as ours is.
    others = f"(?!{_either([*ours, *unasked, '-'])}$){_either(asked)}"
    kinds = [others] if asked else []
    return f"^{_either([*kinds, *own])}$" if own else f"^{others}$"


def _either(names: Sequence[str]) -> str:
    return f"(?:{'|'.join(name.replace('*', '.*') for name in names)})"


def hook_command(script: str) -> str:
    """What the CLI gives to bash: the whole script, since a file could be rewritten by a command
    that was allowed. Only an answer of ours lets a tool run: whatever else happens, a script that
    is broken or killed, leaves the answer of the trap."""
    answer = shlex.quote(hook_answer(_NO_ANSWER).decode().strip())
    # The exit code says no a second time: a bash that prints something of its own beforehand would
    # make the answer unreadable, and then the code alone counts.
    denial = shlex.quote(f"printf %s {answer}; exit 2")
    # No variable in here, since the CLI would put its own in.
    text = script.replace("\\", r"\\").replace("$", r"\0044")
    return f'trap {denial} EXIT; eval "$(printf %b {shlex.quote(text)})"'


def hook_script(port: int, key: str) -> str:
    """Asks us by HTTP with nothing but bash, which the CLI starts anyway: a tenth of what it takes
    to start Python. `key` is the file with the token, which a command line would show to every
    user of the machine."""
    return f"""\
# A signal must not end the question before its answer: the CLI would take that for a yes.
trap '' TERM INT HUP QUIT PIPE USR1 USR2
# Not </dev/stdin: what the CLI gives is a socket, which cannot be opened by name.
body=$(cat)
LC_ALL=C
IFS= read -r token <{shlex.quote(key)} || exit 2
exec 3<>/dev/tcp/127.0.0.1/{port} || exit 2
printf 'POST /decide HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n' >&3 || exit 2
printf 'Authorization: Bearer %s\\r\\nConnection: close\\r\\n' "$token" >&3 || exit 2
printf 'Content-Length: %d\\r\\n\\r\\n%s' "${{#body}}" "$body" >&3 || exit 2
IFS= read -r line <&3 && [[ $line == 'HTTP/1.1 200 '* ]] || exit 2
while IFS= read -r line <&3 && [[ $line != $'\\r' ]]; do :; done
IFS= read -r answer <&3 && [[ $answer == '{{'*'}}' ]] || exit 2
trap - EXIT
printf '%s' "$answer"
[[ $answer == '{_YES}' ]] && exit 0 || exit 2
"""


def turns_hooks_off(settings: Mapping[str, Any]) -> bool:
    """Settings above ours under which the hook would not run."""
    return _dict(settings, "hooksConfig").get("enabled") is False


def _dict(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}
