"""A session of a warm process: opened or loaded, with its model, its mode, file and lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from geminorum.errors import ProtocolError, SessionLost, TrustError
from geminorum.options import Options
from geminorum.sessions.lock import SessionLock
from geminorum.transports.acp.process import OTHER_PROTOCOL, AcpProcess, Refused
from geminorum.transports.acp.session_file import AcpSessionFileFeed
from geminorum.transports.acp.tools import SessionTools
from geminorum.transports.launch.context import working_folder
from geminorum.transports.launch.resuming import guard_load
from geminorum.wire.acp import protocol as acp
from geminorum.wire.policy.toml_writer import approval_mode

_MODE_IDS = {"default": "default", "auto_edit": "autoEdit", "yolo": "yolo", "plan": "plan"}
_REPLAY_SILENCE_SECONDS, _MAX_REPLAY_SECONDS = 0.03, 5.0
"""The silence that counts as the end of a replay, and the longest wait for it."""
_LOAD_ENDS = 2.0
_LOST = ("No previous sessions", "Invalid session identifier")


@dataclass(frozen=True, slots=True)
class AcpSession:
    id: str
    cwd: Path
    model: str | None
    session_file: AcpSessionFileFeed
    unlock: Callable[[], None]

    @property
    def asks_unseen(self) -> bool:
        """Does the CLI let a model choose the model? It does not report what that costs."""
        return self.model is None or self.model.startswith("auto")

    def close(self) -> None:
        """The process keeps it: the CLI has no word for its end."""
        self.unlock()


async def open_session(
    process: AcpProcess, options: Options, tools: SessionTools | None = None
) -> AcpSession:
    """A session with its model and mode, loaded where the options say resume; `tools` are what it
    can reach in this process."""
    cwd = working_folder(options)
    await process.wait_until_ready()
    async with process.opening:
        process.restore_control_files()
        found = await _load_or_create(process, options, cwd, tools.servers if tools else [])
        if tools is not None:
            tools.check_known(options)
        lock = SessionLock(process.home, found.session_id)
        lock.__enter__()
        process.hold(lock)
        unlock = partial(_unlock, process, lock)
        try:
            await _configure(process, options, found.session_id)
        except BaseException:
            unlock()
            raise
    told = found.models.current_model_id if found.models else None
    named = tools.named if tools else str
    ledger = AcpSessionFileFeed(process.home, cwd, found.session_id, named)
    return AcpSession(found.session_id, cwd, options.model or told, ledger, unlock)


def _unlock(process: AcpProcess, lock: SessionLock) -> None:
    process.release(lock)
    lock.__exit__()


async def configure_session(
    process: AcpProcess, options: Options, session: AcpSession
) -> AcpSession:
    """Sets model and mode of a session that was opened ahead, for its conversation."""
    try:
        await _configure(process, options, session.id)
    except BaseException:
        session.close()
        raise
    return replace(session, model=options.model or session.model)


async def _load_or_create(
    process: AcpProcess, options: Options, cwd: Path, servers: list[dict[str, Any]]
) -> acp.Opened:
    where: dict[str, object] = {"cwd": str(cwd), "mcpServers": servers}
    if options.resume is None:
        found = await process.request("session/new", where, acp.Opened)
        if not found.session_id:
            text = "the CLI's answer to session/new names no session"
            raise ProtocolError(text, hint=OTHER_PROTOCOL)
        return found
    return await _load(process, options.resume, cwd, where)


async def _load(
    process: AcpProcess, session_id: str, cwd: Path, where: dict[str, object]
) -> acp.Opened:
    # Held while it is loaded: another run must not write to the file that is being read.
    with SessionLock(process.home, session_id):
        async with guard_load(process.home, cwd, session_id):
            replay = _Replay()
            process.add_handler(session_id, replay)
            try:
                params = {**where, "sessionId": session_id}
                reply = await _await_replay(process.await_reply("session/load", params))
                await replay.wait_for_end()
            except Refused as refused:
                raise _lost(refused, session_id) from refused
            finally:
                process.remove_handler(session_id, replay)
    found = acp.decoded(reply.result, acp.Opened) or acp.Opened()
    return msgspec.structs.replace(found, session_id=session_id)


async def _await_replay(load: Coroutine[Any, Any, acp.Message]) -> acp.Message:
    """The answer. Who leaves before it waits a little: the CLI goes on loading, and what it leaves
    behind can be taken away only afterwards."""
    task = asyncio.ensure_future(load)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=_LOAD_ENDS)
        if task.done() and not task.cancelled():
            task.exception()  # Nobody will ask; asyncio would complain.
        raise
    finally:
        task.cancel()


def _lost(refused: Refused, session_id: str) -> Exception:
    text = f"{refused.error.message} {refused.error.data}"
    if any(words in text for words in _LOST):
        return SessionLost(f"the CLI cannot find session {session_id!r}")
    return refused


async def _configure(process: AcpProcess, options: Options, session_id: str) -> None:
    me = {"sessionId": session_id}
    if options.model is not None:
        await process.await_reply("session/set_model", {**me, "modelId": options.model})
    if (mode := approval_mode(options, interactive=True)) is not None:
        try:
            wanted = {**me, "modeId": _MODE_IDS[mode]}
            await process.await_reply("session/set_mode", wanted)
        except Refused as refused:
            if "untrusted" in f"{refused.error.message} {refused.error.data}":
                raise TrustError(f"the CLI refuses approval={mode!r} here") from refused
            raise


class _Replay:
    """Listens to the old conversation, which the CLI tells once more, and forgets it."""

    def __init__(self) -> None:
        self._wake = asyncio.Event()

    async def wait_for_end(self) -> None:
        """The protocol does not mark the end of a replay; a moment of silence counts as it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _MAX_REPLAY_SECONDS
        while loop.time() < deadline:
            self._wake.clear()
            try:
                async with asyncio.timeout(_REPLAY_SILENCE_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                return

    def on_update(self, update: Raw, halved: str | None) -> None:
        self._wake.set()

    def on_permission_request(self, number: int | str | None, params: Raw) -> None:
        pass

    def on_unknown_method(self, method: str, params: Raw) -> None:
        self._wake.set()

    def on_invalid_line(self, line: bytes) -> None:
        pass
