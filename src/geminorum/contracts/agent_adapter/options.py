# SPDX-License-Identifier: Apache-2.0
"""Converts the AgentAdapter interface's options to geminorum's."""

from __future__ import annotations

import asyncio
import difflib
import warnings
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from geminorum.adapter_parts import snake_case
from geminorum.errors import InvalidOptions
from geminorum.options import Options, StrPath
from geminorum.permissions import Policy

PermissionPolicy: TypeAlias = Policy


class Signal(Protocol):
    """Tells a run to stop; an `asyncio.Event` is one."""

    def is_set(self) -> bool: ...

    def wait(self) -> Coroutine[Any, Any, Any]: ...


class AbortSignal(asyncio.Event):
    """Tells one or more runs to stop. Call `abort` in the event loop's thread."""

    @property
    def aborted(self) -> bool:
        return self.is_set()

    def abort(self) -> None:
        self.set()


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run, the same for every adapter of the interface."""

    cwd: StrPath | None = None
    model: str | None = None
    permissions: PermissionPolicy | None = None
    """None: as in `base`, which by default allows reading and web search. A policy, even one that
    only asks, replaces the approval of `base`, unless that is "plan"."""
    max_turns: int | None = None
    max_budget_usd: float | None = None
    resume: str | None = None
    abort_signal: Signal | None = None
    """Stops the run when set: an AbortSignal or an asyncio.Event."""
    allowed_tools: Sequence[str] | None = None
    """Restrict the agent to these tools. None: no restriction."""
    disallowed_tools: Sequence[str] = ()
    """Tools the agent may not use, even if allowed; exact names."""

    def __post_init__(self) -> None:
        permissions: Any = self.permissions
        if not isinstance(permissions, PermissionPolicy | None):
            hint = 'PermissionPolicy(file_write="allow"), or a dict in AgentOptions.from_dict'
            raise InvalidOptions(f"permissions is a {type(permissions).__name__}", hint=hint)
        signal: Any = self.abort_signal
        if signal is not None and not (hasattr(signal, "is_set") and hasattr(signal, "wait")):
            hint = "pass an AbortSignal or an asyncio.Event"
            raise InvalidOptions(f"abort_signal is a {type(signal).__name__}", hint=hint)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AgentOptions:
        """Builds AgentOptions from plain data, camelCase or snake_case; None counts as left out."""
        return _read(data, stacklevel=3)

    @property
    def aborted(self) -> bool:
        return self.abort_signal is not None and self.abort_signal.is_set()

    @property
    def tools(self) -> list[str] | None:
        """The tools left by the caller's lists, if the caller lists any."""
        if self.allowed_tools is None:
            return None
        return [name for name in self.allowed_tools if name not in self.disallowed_tools]

    def over(self, base: Options) -> Options:
        """Converts to geminorum's Options, with `base` for whatever is not set here."""
        default = AgentOptions()
        given = {name: getattr(self, name) for name in _SHARED}
        wanted = {
            name: tuple(value) if name.endswith("_tools") else value
            for name, value in given.items()
            if value != getattr(default, name)
        }
        if self.permissions is not None:
            wanted["policy"] = self.permissions
            # A plan acts on nothing, and no policy of a run loosens that.
            wanted["approval"] = "plan" if base.approval == "plan" else None
        return base.changed(**wanted)


_SHARED = tuple(
    name for name in AgentOptions.__struct_fields__ if name not in ("permissions", "abort_signal")
)


AnyOptions: TypeAlias = AgentOptions | Mapping[str, Any] | None
"""Options as callers pass them: typed, as plain data, or none."""


def agent_options(given: AnyOptions) -> AgentOptions:
    """Reads the options of a run; call it from the function that the caller calls.

    Raises InvalidOptions.
    """
    if given is None:
        return AgentOptions()
    if isinstance(given, AgentOptions):
        return given
    if not isinstance(given, Mapping):
        hint = 'pass AgentOptions(model="flash") or {"model": "flash"}'
        raise InvalidOptions(f"options is a {type(given).__name__}", hint=hint)
    return _read(given, stacklevel=4)


def _read(data: Mapping[str, Any], stacklevel: int) -> AgentOptions:
    names = AgentOptions.__struct_fields__
    given = {name: value for name, value in _snake_cased(data).items() if value is not None}
    for name in given.keys() - {*names}:
        warnings.warn(_unknown(name, names), stacklevel=stacklevel)
    shared = {name: given[name] for name in _SHARED if name in given}
    checked = Options.from_dict(shared)
    permissions = given.get("permissions")
    if isinstance(permissions, Mapping):
        permissions = PermissionPolicy.from_dict(_snake_cased(permissions))
    return AgentOptions(
        permissions=permissions,
        abort_signal=given.get("abort_signal"),
        **{name: getattr(checked, name) for name in shared},
    )


def _unknown(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"unknown option {name!r} is ignored" + (f"; did you mean {near[0]!r}?" if near else "")


def _snake_cased(data: Mapping[str, Any]) -> dict[str, Any]:
    for key in data:
        if not isinstance(key, str):
            raise InvalidOptions(f"{key!r} is not the name of an option")
    return {snake_case(key): value for key, value in data.items()}
