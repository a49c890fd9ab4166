"""What a config means: the prompt that would be sent, and what the agent may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from geminorum import policies
from geminorum.contracts.local_adapter import (
    AdapterExecutionContext,
    GeminiLocalConfig,
    build_args,
    render_template,
)
from geminorum.errors import GeminorumError

SAMPLE_PROMPT = "Summarise what changed since yesterday."
_SUBJECTS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("Read files in its folder", "read_file", {"file_path": "notes.md"}),
    ("Search the web", "google_web_search", {"query": "weather"}),
    ("Fetch web pages", "web_fetch", {"prompt": "https://example.com"}),
    ("Write files in its folder", "write_file", {"file_path": "notes.md", "content": ""}),
    ("Run shell commands", "run_shell_command", {"command": "make test"}),
    ("Use skills", "activate_skill", {"name": "any"}),
    ("Use tools of MCP servers", "mcp_server_tool", {}),
)


class Permission(NamedTuple):
    """What the agent may do, in words."""

    subject: str
    decision: str
    """"allow", "ask" or "deny"."""
    because: str


class Preview(NamedTuple):
    """What a config leads to."""

    prompt: str
    instructions: str | None
    """The file that stands before every prompt."""
    permissions: list[Permission]
    toml: str
    """The policy file that a run passes to the CLI."""
    command: list[str]
    problem: str | None = None
    """Why the template cannot be filled in."""


def preview_of(config: GeminiLocalConfig, name: str, prompt: str = SAMPLE_PROMPT) -> Preview:
    """Reads nothing but the config."""
    options = config.options()
    text, problem = _rendered(config, name, prompt)
    return Preview(
        prompt=text,
        instructions=str(config.instructions_file) if config.instructions_file else None,
        permissions=list(permissions_of(config)),
        toml=policies.toml_of(options),
        command=["gemini", *build_args(config)],
        problem=problem,
    )


def permissions_of(config: GeminiLocalConfig) -> list[Permission]:
    """What becomes of a typical call of each kind."""
    rules = policies.Rules.of(config.options())
    verdicts = [(subject, rules.verdict(tool, given)) for subject, tool, given in _SUBJECTS]
    return [Permission(subject, one.decision, one.because) for subject, one in verdicts]


def _rendered(config: GeminiLocalConfig, name: str, prompt: str) -> tuple[str, str | None]:
    if config.prompt_template is None:
        return prompt, None
    try:
        filled = render_template(config.prompt_template, sample_context(name, prompt), strict=True)
    except GeminorumError as error:
        return render_template(config.prompt_template, sample_context(name, prompt)), error.message
    if prompt not in filled:
        return filled, "the prompt would not be sent: the template has no {{prompt}}"
    return filled, None


def sample_context(name: str, prompt: str) -> AdapterExecutionContext:
    return AdapterExecutionContext(
        agent_id="agent", agent_name=name or "Agent", run_id="run-1", prompt=prompt
    )
