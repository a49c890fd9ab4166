"""The settings of a run: quiet, safe, as the options ask, and as the transport says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geminorum.auth import outranked
from geminorum.options import Options
from geminorum.transports.launch.context import LaunchContext
from geminorum.transports.launch.transport import CliTransport
from geminorum.wire.effort import overrides
from geminorum.wire.launch.settings_file import merged

_QUIET: Mapping[str, Any] = {
    "general": {
        "enableAutoUpdate": False,
        "enableAutoUpdateNotification": False,
        # The CLI would otherwise delete resumed and parallel sessions at its start.
        "sessionRetention": {"enabled": False},
    },
    "privacy": {"usageStatisticsEnabled": False},
}


def run_settings(context: LaunchContext, selected_login: str | None) -> dict[str, Any]:
    """The settings of a run, to be laid over the user's; the transport's own come last."""
    transport, options = context.transport, context.options
    settings = merged(_QUIET, _safety(transport, options))
    if options.effort is not None:
        thinking = overrides(options.effort, options.model)
        settings = merged(settings, {"modelConfigs": {"customOverrides": thinking}})
    if selected_login is None and _means_api_key(context.env):
        # With a base URL and no choice made, the CLI would take the URL for a gateway and refuse.
        settings = _logging_in(settings, "gemini-api-key")
    elif (chosen := outranked(selected_login, options)) is not None:
        settings = _logging_in(settings, chosen)
    return merged(merged(settings, transport.own_settings(options)), transport.settings)


def _safety(transport: CliTransport, options: Options) -> dict[str, Any]:
    """Closes each hole that the CLI leaves open; a field of the transport opens it again."""
    return {
        "general": {"plan": {"enabled": transport.plan_tools or options.approval == "plan"}},
        "advanced": {"ignoreLocalEnv": not transport.dotenv},
        "security": {"environmentVariableRedaction": {"enabled": not transport.secrets_in_tools}},
    }


def _logging_in(settings: Mapping[str, Any], choice: str) -> dict[str, Any]:
    return merged(settings, {"security": {"auth": {"selectedType": choice}}})


def _means_api_key(env: Mapping[str, str]) -> bool:
    others = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA")
    # The CLI counts only this word.
    return bool(env.get("GEMINI_API_KEY")) and not any(env.get(name) == "true" for name in others)
