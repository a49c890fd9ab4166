"""A stand-in: the abstract class that the engine's providers derive from."""

from abc import ABC, abstractmethod
from typing import Any


class AIProvider(ABC):
    @classmethod
    def get_metadata(cls) -> dict[str, Any]:
        return {"name": "unknown", "default_connection_timeout": 10}

    @abstractmethod
    def validate(self) -> None: ...

    @abstractmethod
    def generate(
        self,
        prompt: str,
        context: dict[str, Any] | None = None,
        system_prompt: str | None = None,
        connection_timeout: int | None = None,
        response_timeout: int | None = None,
    ) -> Any: ...
