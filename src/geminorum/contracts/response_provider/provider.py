"""The base class of response providers, and the result of one answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import msgspec


class ProviderResult(msgspec.Struct, frozen=True):
    """An answer."""

    response: str = ""
    files: dict[str, None] = {}
    """The files written, in order, named as the agent named them. Their contents are on disk."""
    paths: dict[str, str] = {}
    """The absolute path of each of `files`."""


class ResponseProvider(ABC):
    """Answers prompts. Subclass it to put another program behind the same methods."""

    @classmethod
    def get_metadata(cls) -> dict[str, Any]:
        """Returns what an engine lists and takes defaults from."""
        return {
            "name": "unknown",
            "description": "No description available",
            "requires_config": False,
            "config_keys": [],
            "default_connection_timeout": 10,
            "default_response_timeout": 300,
            "fs_ability": "local-write",
            "supports_system_prompt": False,
            "supports_file_attachments": False,
        }

    @abstractmethod
    def validate(self) -> None:
        """Raises ProviderError if the provider cannot answer."""

    @abstractmethod
    def generate(
        self,
        prompt: str,
        context: Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        connection_timeout: float | None = None,
        response_timeout: float | None = None,
    ) -> ProviderResult | None:
        """Returns the answer; None if a person has to write it. Raises ProviderError."""
