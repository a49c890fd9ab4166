"""Drive Gemini as an agent: one typed stream of events on every transport.

```python
async with run("Fix the failing test") as live:    # stream events, then read live.result
    async for event in live: ...
result = await ask("Say hello")                    # the result, or an exception that carries it
async with connect() as chat: ...                  # many turns
result = sync.ask("Say hello")                     # the same API without await
```
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from geminorum._version import __version__

if TYPE_CHECKING:
    from geminorum import doctor as doctor
    from geminorum import errors as errors
    from geminorum import events as events
    from geminorum import sessions as sessions
    from geminorum import skills as skills
    from geminorum import sync as sync
    from geminorum import usage as usage
    from geminorum import views as views
    from geminorum import workspace as workspace
    from geminorum.client import Chat as Chat
    from geminorum.client import Run as Run
    from geminorum.client import ask as ask
    from geminorum.client import connect as connect
    from geminorum.client import run as run
    from geminorum.decisions import Allow as Allow
    from geminorum.decisions import AllowAlways as AllowAlways
    from geminorum.decisions import Deny as Deny
    from geminorum.errors import GeminorumError as GeminorumError
    from geminorum.events import Cost as Cost
    from geminorum.events import Done as Done
    from geminorum.events import Error as Error
    from geminorum.events import Event as Event
    from geminorum.events import Init as Init
    from geminorum.events import PermissionDecision as PermissionDecision
    from geminorum.events import PermissionRequest as PermissionRequest
    from geminorum.events import Text as Text
    from geminorum.events import TextDelta as TextDelta
    from geminorum.events import Thinking as Thinking
    from geminorum.events import Tokens as Tokens
    from geminorum.events import ToolResult as ToolResult
    from geminorum.events import ToolUse as ToolUse
    from geminorum.events import Unknown as Unknown
    from geminorum.events import Usage as Usage
    from geminorum.events import UserMessage as UserMessage
    from geminorum.options import Options as Options
    from geminorum.permissions import Policy as Policy
    from geminorum.permissions import Rule as Rule
    from geminorum.prompt import Blob as Blob
    from geminorum.prompt import Link as Link
    from geminorum.tools import Tool as Tool
    from geminorum.transports import Transport as Transport
    from geminorum.transports.acp.transport import Acp as Acp
    from geminorum.transports.api.transport import Api as Api
    from geminorum.transports.cli.transport import Cli as Cli
    from geminorum.transports.pool.transport import Pool as Pool
    from geminorum.views.files import FileChange as FileChange
    from geminorum.views.result import Result as Result
    from geminorum.views.result import ToolCall as ToolCall

# Where each public name lives. They are loaded when first asked for, so that importing the package
# costs next to nothing and a transport that is not used loads no library of its own.
_EXPORTS = {
    "": ("doctor", "errors", "events", "sessions", "skills", "sync", "usage", "views", "workspace"),
    "client": ("Chat", "Run", "ask", "connect", "run"),
    "decisions": ("Allow", "AllowAlways", "Deny"),
    "errors": ("GeminorumError",),
    "events": (
        *("Init", "TextDelta", "Text", "Thinking", "ToolUse", "ToolResult", "PermissionRequest"),
        "PermissionDecision",
        *("Error", "Done", "UserMessage", "Unknown", "Event", "Tokens", "Usage", "Cost"),
    ),
    "options": ("Options",),
    "permissions": ("Policy", "Rule"),
    "prompt": ("Blob", "Link"),
    "tools": ("Tool",),
    "transports": ("Transport",),
    "transports.api.transport": ("Api",),
    "transports.acp.transport": ("Acp",),
    "transports.cli.transport": ("Cli",),
    "transports.pool.transport": ("Pool",),
    "views.files": ("FileChange",),
    "views.result": ("Result", "ToolCall"),
}
_MODULE_OF = {name: home for home, names in _EXPORTS.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> Any:
    home = _MODULE_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'geminorum' has no attribute {name!r}")
    value = (
        import_module(f"geminorum.{name}")
        if home == ""
        else getattr(import_module(f"geminorum.{home}"), name)
    )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
