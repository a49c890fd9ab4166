"""A permission request to what the inbox keeps: what people see, and what it is matched by."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from geminorum.decisions import Place
from geminorum.errors import InboxError
from geminorum.events import PermissionRequest
from geminorum.system.regular_file import read_text
from geminorum.views.diffs import proposed_diff

MAX_QUESTION_BYTES = 4 * 1024 * 1024
_MAX_FILE_BYTES = 512 * 1024
"""Of a file that is compared with what the agent wants to write."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a question that is only shown."""

    input: dict[str, Any] = {}
    command: str | None = None
    diff: str | None = None
    reason: str | None = None
    scope: str = ""
    call_id: str | None = None
    transport: str | None = None


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A question before it is asked. `digest` stands for the arguments as they really are."""

    tool: str
    digest: str
    session_id: str | None
    cwd: str | None
    agent: str
    about: str
    """`About` in JSON."""


def draft_of(request: PermissionRequest, place: Place) -> Draft:
    """Raises InboxError if nobody could read the question."""
    about = _encoded(_about(request, place))
    if len(about) > MAX_QUESTION_BYTES:
        raise InboxError(f"a call of {len(about):,} bytes is too large to be asked about")
    return Draft(
        tool=storable(request.name),
        digest=_digest(request) if _tells_all(request, place) else uuid.uuid4().hex,
        session_id=None if request.session_id is None else storable(request.session_id),
        cwd=None if place.cwd is None else storable(place.cwd),
        agent=storable(request.agent),
        about=about.decode(),
    )


def storable(text: str) -> str:
    """The text without halves of emoji and zeros, which databases refuse."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _about(request: PermissionRequest, place: Place) -> About:
    arguments = _each_text(request.input, lambda text: place.redact(_encodable(text)))
    command = arguments.get("command")
    diff = proposed_diff(request.name, request.input, _before(request.input, place.cwd))
    reason = request.reason
    return About(
        input=arguments,
        command=command if isinstance(command, str) else None,
        diff=None if diff is None else place.redact(_encodable(diff)),
        reason=None if reason is None else place.redact(_encodable(reason)),
        scope=f"every call of {storable(request.name)}, with any arguments, until this run ends",
        call_id=None if request.id is None else storable(request.id),
        transport=place.transport,
    )


def _before(arguments: dict[str, Any], cwd: str | None) -> str | None:
    """What is in the file that would be overwritten, if it lies in the agent's folder."""
    path = arguments.get("file_path")
    if cwd is None or not isinstance(path, str) or "content" not in arguments:
        return None
    try:
        file = Path(cwd, path).resolve()
        # The model names it: what lies elsewhere is not for everybody who reads questions.
        if not file.is_relative_to(Path(cwd).resolve()):
            return None
        return read_text(file, errors="replace", limit=_MAX_FILE_BYTES)
    except (OSError, ValueError, RuntimeError):
        return None


def _tells_all(request: PermissionRequest, place: Place) -> bool:
    """Does the request have all arguments? A warm CLI tells those of some tools only in part: such
    a call is never taken for the same as another."""
    return place.transport != "acp" or not request.input.keys() <= {"file_path"}


def _digest(request: PermissionRequest) -> str:
    try:
        plain = json.dumps([request.input, request.reason], sort_keys=True)
    except (RecursionError, TypeError, ValueError) as error:
        raise InboxError("the arguments of the call are nested too deeply to be shown") from error
    return hashlib.sha256(plain.encode()).hexdigest()


def _encoded(about: About) -> bytes:
    try:
        return msgspec.json.encode(about)
    except (RecursionError, TypeError, ValueError) as error:
        raise InboxError("the arguments of the call cannot be shown") from error


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case list() | tuple():
            return [_each_text(item, change) for item in value]
        case dict():
            return {change(str(name)): _each_text(item, change) for name, item in value.items()}
        case _:
            return value


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
