"""A source to a workspace for the length of a block: what was made for it is removed again."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from geminorum.system.owned_folder import OwnedFolder

if TYPE_CHECKING:
    from geminorum.workspace.folder import Workspace

_PREFIX = "geminorum-workspace-"


class Opened:
    """A workspace for the length of a block, `with` or `async with`.

    A copy is in a temporary folder, which is removed with the block, at exit, and after a kill -9
    by the next one that is opened.
    """

    def __init__(
        self,
        make: Callable[[Path | None], Workspace],
        place: str | os.PathLike[str] | None,
        *,
        is_copy: bool,
    ) -> None:
        """`make` gets the folder for the copy; None if the source is a folder that is used."""
        self._make, self._is_copy = make, is_copy
        self._place = Path(place) if place is not None else None
        self._owned: OwnedFolder | None = None
        self._is_left = False
        self._lock = threading.Lock()

    def __enter__(self) -> Workspace:
        if not self._is_copy:
            return self._make(None)
        self._owned = OwnedFolder(_PREFIX, self._place)
        try:
            return self._make(self._owned.path / "files")
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self._owned is not None:
            self._owned.remove()

    async def __aenter__(self) -> Workspace:
        """The same in a thread. A caller who is cancelled does not wait for it."""
        entered = threading.Event()
        try:
            return await asyncio.to_thread(self._enter, entered)
        except asyncio.CancelledError:
            with self._lock:
                self._is_left = True
            # Otherwise the thread notices that nobody is there any more.
            if entered.is_set():
                self.__exit__()
            raise

    def _enter(self, entered: threading.Event) -> Workspace:
        made = self.__enter__()
        with self._lock:
            entered.set()
            is_left = self._is_left
        if is_left:
            self.__exit__()
        return made

    async def __aexit__(self, *_: object) -> None:
        # A caller who is cancelled now leaves the rest to the thread.
        await asyncio.to_thread(self.__exit__)
