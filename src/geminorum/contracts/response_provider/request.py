"""A prompt and its context to what is run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from geminorum import Cli
from geminorum.errors import InvalidPrompt
from geminorum.prompt import PromptFile


def prompt_for(prompt: str, context: Mapping[str, Any], system_prompt: str | None) -> str:
    """The text for the agent: the prompt, or the order to read it from the context's file."""
    file = context.get("prompt_file")
    if file and not isinstance(file, str | os.PathLike):
        raise InvalidPrompt(f"prompt_file is a {type(file).__name__}", hint="pass a path")
    if file:
        return PromptFile(file, before=system_prompt or "")
    match prompt:
        case str() if system_prompt and prompt.strip():
            return f"{system_prompt}\n\n{prompt}"
        case _:
            return prompt  # Empty, or no text at all: the transport says so.


def extended(transport: Cli, arguments: Sequence[str]) -> Cli:
    return (
        replace(transport, extra_args=(*transport.extra_args, *arguments))
        if arguments
        else transport
    )
