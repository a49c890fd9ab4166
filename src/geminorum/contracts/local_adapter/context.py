"""A run's context besides its config: which agent, for whom, with which prompt."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

import msgspec

from geminorum.events import Event
from geminorum.prompt import render

OnEvent: TypeAlias = Callable[[Event], Awaitable[None] | None]


class AdapterExecutionContext(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an agent."""

    agent_id: str
    agent_name: str | None = None
    tenant_id: str | None = None
    tenant_name: str | None = None
    run_id: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)
    prompt: str = ""
    """The task; `{{prompt}}` in the template."""
    session_id: str | None = None
    """The session to resume; overrides the store's."""
    variables: Mapping[str, Any] = {}
    """More variables for the template. The fields of this class take precedence."""
    on_event: OnEvent | None = None
    """Called with each event as it arrives, deltas included; may be async."""

    @property
    def store_key(self) -> str:
        """The agent's key in a session store. Agents of two tenants never share one."""
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
    """Fills in the template's `{{variables}}`; unknown ones become empty.

    With `strict`, they raise InvalidPrompt. Values are not rendered again.
    """
    known = (
        context.template_variables() if isinstance(context, AdapterExecutionContext) else context
    )
    return render(template, known, strict=strict)
