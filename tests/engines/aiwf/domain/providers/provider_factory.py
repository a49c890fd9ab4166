"""A stand-in: providers by name. As in the engine, a config arrives as keyword arguments."""

from typing import Any, ClassVar

from aiwf.domain.providers.ai_provider import AIProvider


class AIProviderFactory:
    _known: ClassVar[dict[str, type[AIProvider]]] = {}

    @classmethod
    def register(cls, key: str, provider_class: type[AIProvider]) -> None:
        assert issubclass(provider_class, AIProvider)
        cls._known[key] = provider_class

    @classmethod
    def create(cls, provider_key: str, config: dict[str, Any] | None = None) -> AIProvider:
        return cls._known[provider_key](**(config or {}))
