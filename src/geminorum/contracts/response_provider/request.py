"""A prompt and its context to what is run, and a door behind which chosen tools are allowed."""

from __future__ import annotations

import asyncio
import os
import tempfile
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from geminorum.detect import find_cli
from geminorum.errors import InvalidPrompt
from geminorum.options import Options
from geminorum.prompt import PromptFile
from geminorum.surroundings import environment
from geminorum.transports.cli import Cli
from geminorum.wire.argv import POLICY
from geminorum.wire.policy_toml import policy_toml

# As much as the CLI gives to its own `--allowed-tools`: what the user denies stays denied.
_PRIORITY = 300


def prompt_for(prompt: str, context: Mapping[str, Any], system_prompt: str | None) -> str:
    """What the agent is told: the prompt, or the order to read it from the context's file."""
    file = context.get("prompt_file")
    if file and not isinstance(file, str | os.PathLike):
        raise InvalidPrompt(f"prompt_file is a {type(file).__name__}", hint="pass a path")
    if file:
        return PromptFile(file, before=system_prompt or "")
    match prompt:
        case str() if system_prompt and prompt.strip():
            return f"{system_prompt}\n\n{prompt}"
        case _:
            return prompt  # Empty, or no text at all: the door says so.


def extended(door: Cli, arguments: Sequence[str]) -> Cli:
    return replace(door, extra_args=(*door.extra_args, *arguments)) if arguments else door


@asynccontextmanager
async def with_allowed(door: Cli, tools: Sequence[str], options: Options) -> AsyncIterator[Cli]:
    """A door behind which these tools need no confirmation, and all others stay as they are.

    Neither `Options.allowed_tools`, which refuses every other tool, nor a `Policy`, which has a
    word on every capability.
    """
    if not tools:
        yield door
    elif await asyncio.to_thread(_has_policies, door, options):
        with _policy_file(tools) as file:
            yield extended(door, [f"--policy={file}"])
    else:
        yield extended(door, [f"--allowed-tools={tool}" for tool in tools])


def _has_policies(door: Cli, options: Options) -> bool:
    version = find_cli(door.executable, environment(options)).version
    return version is None or version >= POLICY


@contextmanager
def _policy_file(tools: Sequence[str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="geminorum-") as folder:
        file = Path(folder, "allowed-tools.toml")
        file.write_text(allow_rules(tools), encoding="utf-8")
        yield file


def allow_rules(tools: Sequence[str]) -> str:
    """The rules of a whitelist without the one that refuses everything else."""
    import tomli_w

    whitelist = policy_toml(Options(allowed_tools=tuple(tools)), plan_tools=True)
    rules = [rule for rule in tomllib.loads(whitelist)["rule"] if rule["decision"] == "allow"]
    return tomli_w.dumps({"rule": [{**rule, "priority": _PRIORITY} for rule in rules]})
