"""A stand-in: one step of a workflow. As in the engine, no config, and the metadata's timeouts."""

from typing import Any

from aiwf.domain.providers.provider_factory import AIProviderFactory


class ProviderExecutionService:
    def execute(
        self,
        provider_key: str,
        prompt: str,
        *,
        context: dict[str, Any] | None = None,
        system_prompt: str | None = None,
    ) -> Any:
        provider = AIProviderFactory.create(provider_key)
        metadata = provider.get_metadata()
        return provider.generate(
            prompt,
            context=context,
            system_prompt=system_prompt,
            connection_timeout=metadata.get("default_connection_timeout"),
            response_timeout=metadata.get("default_response_timeout"),
        )
