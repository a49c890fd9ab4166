"""Gemini as a local adapter: takes a stored config and a context, returns a result.

```python
config = GeminiLocalConfig(cwd="/srv/agents/writer", model="flash", yolo=True)
result = await execute(config, AdapterExecutionContext(agent_id="writer", prompt="…"))
```
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from geminorum.contracts.local_adapter.catalogue import (
    AGENT_CONFIGURATION_DOC,
    DEFAULT_MODEL,
    MODEL_ALIASES,
    MODELS,
    Choice,
)
from geminorum.contracts.local_adapter.config import (
    ConfigProblem,
    GeminiLocalConfig,
    build_args,
)
from geminorum.contracts.local_adapter.context import AdapterExecutionContext, render_template
from geminorum.contracts.local_adapter.form import (
    CONFIG_FIELDS,
    ConfigField,
    build_config,
    validate_config,
)
from geminorum.contracts.local_adapter.health import environment_checks, test_environment
from geminorum.contracts.local_adapter.parse import (
    extract_model_id,
    extract_output,
    extract_session_id,
    extract_usage,
    parse_ndjson_lines,
)
from geminorum.contracts.local_adapter.result import LocalResult
from geminorum.contracts.local_adapter.running import (
    BuiltPrompt,
    build_prompt,
    execute,
    execute_sync,
)
from geminorum.contracts.local_adapter.transcript import TranscriptEntry, build_transcript
from geminorum.cost import calculate_cost_usd
from geminorum.errors import InvalidOptions

TYPE = "gemini_local"
LABEL = "Gemini CLI (local)"


class AdapterEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An adapter's entry in a registry."""

    type: str
    label: str
    models: Sequence[Choice]
    default_model: str
    agent_configuration_doc: str
    config_fields: Sequence[ConfigField]
    selectable: bool = True
    default: bool = False
    """Always False: an agent runs on Gemini only if somebody chose it."""


ADAPTER = AdapterEntry(
    type=TYPE,
    label=LABEL,
    models=MODELS,
    default_model=DEFAULT_MODEL,
    agent_configuration_doc=AGENT_CONFIGURATION_DOC,
    config_fields=CONFIG_FIELDS,
)


def adapter_for(type: str | None) -> AdapterEntry:
    """Returns the adapter an agent has chosen. There is no default: None raises InvalidOptions."""
    if type != TYPE:
        raise InvalidOptions(f"there is no local adapter {type!r}", hint=f"choose {TYPE!r}")
    return ADAPTER


__all__ = [
    "ADAPTER",
    "AGENT_CONFIGURATION_DOC",
    "CONFIG_FIELDS",
    "DEFAULT_MODEL",
    "LABEL",
    "MODELS",
    "MODEL_ALIASES",
    "TYPE",
    "AdapterEntry",
    "AdapterExecutionContext",
    "BuiltPrompt",
    "Choice",
    "ConfigField",
    "ConfigProblem",
    "GeminiLocalConfig",
    "LocalResult",
    "TranscriptEntry",
    "adapter_for",
    "build_args",
    "build_config",
    "build_prompt",
    "build_transcript",
    "calculate_cost_usd",
    "environment_checks",
    "execute",
    "execute_sync",
    "extract_model_id",
    "extract_output",
    "extract_session_id",
    "extract_usage",
    "parse_ndjson_lines",
    "render_template",
    "test_environment",
    "validate_config",
]
