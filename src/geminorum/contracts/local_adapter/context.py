"""Who runs, for whom and with which words: what a run knows beside its config."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

import msgspec

from geminorum import prompt
from geminorum.events import Event

OnEvent: TypeAlias = Callable[[Event], Awaitable[None] | None]


class AdapterExecutionContext(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an agent."""

    agent_id: str
    agent_name: str | None = None
    tenant_id: str | None = None
    tenant_name: str | None = None
    run_id: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)
    prompt: str = ""
    """What to do; `{{prompt}}` in the template."""
    session_id: str | None = None
    """The session to go on with; it goes before the store's."""
    variables: Mapping[str, Any] = {}
    """More for the template. The names of this class come first."""
    on_event: OnEvent | None = None
    """Is given each event as it arrives, deltas included; may be async."""

    @property
    def store_key(self) -> str:
        """The agent's name in a session store. Two tenants' agents are never the same."""
        names = (self.tenant_id, self.agent_id) if self.tenant_id else (self.agent_id,)
        return "/".join(quote(name, safe="") for name in names)

    def template_variables(self) -> dict[str, Any]:
        return {
            **self.variables,
            "prompt": self.prompt,
            "agentId": self.agent_id,
            "agent": {"id": self.agent_id, "name": self.agent_name},
            "tenantId": self.tenant_id,
            "tenant": {"id": self.tenant_id, "name": self.tenant_name},
            "runId": self.run_id,
        }


def render_template(
    template: str,
    context: AdapterExecutionContext | Mapping[str, Any],
    *,
    strict: bool = False,
) -> str:
    """The template with its `{{variables}}` filled in; unknown ones become nothing.

    With `strict` they are an InvalidPrompt instead. Values are never rendered again.
    """
    known = (
        context.template_variables() if isinstance(context, AdapterExecutionContext) else context
    )
    return prompt.render(template, known, strict=strict)
