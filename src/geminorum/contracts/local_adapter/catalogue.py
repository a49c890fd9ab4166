"""Texts for choosing: the models, what each is good for, and when to use this adapter."""

from __future__ import annotations

import msgspec

DEFAULT_MODEL = "auto"


class Choice(msgspec.Struct, frozen=True, rename="camel"):
    """A choice in a list, with its texts."""

    id: str
    label: str
    description: str


MODELS: tuple[Choice, ...] = (
    Choice("gemini-2.5-pro", "Gemini 2.5 Pro", "The recommended pro model: complex reasoning."),
    Choice("gemini-2.5-flash", "Gemini 2.5 Flash", "Fast and balanced."),
    Choice("gemini-2.5-flash-lite", "Gemini 2.5 Flash-Lite", "The fastest and cheapest."),
    Choice("gemini-2.0-flash", "Gemini 2.0 Flash", "An older generation of Flash."),
    Choice("gemini-1.5-pro", "Gemini 1.5 Pro", "Two generations old; may be switched off."),
    Choice("gemini-1.5-flash", "Gemini 1.5 Flash", "Two generations old; may be switched off."),
)
"""Models by name. The CLI accepts other names too."""

MODEL_ALIASES: tuple[Choice, ...] = (
    Choice(
        "auto", "Auto", "The CLI chooses for each prompt: Flash for simple ones, Pro for others."
    ),
    Choice("pro", "Pro", "Complex reasoning: gemini-2.5-pro, or what the CLI has since."),
    Choice("flash", "Flash", "Speed: gemini-2.5-flash, or what the CLI has since."),
    Choice(
        "flash-lite",
        "Flash-Lite",
        "Fastest, cheapest: gemini-2.5-flash-lite, or what the CLI has since.",
    ),
)
"""Names that the installed CLI resolves at run time. The result names the model that answered."""

AGENT_CONFIGURATION_DOC = """\
# Gemini on this machine (gemini_local)

Runs the Gemini CLI as a child process in the agent's folder: one prompt, one result.

## When to use it

- The tenant works with Google: a Gemini API key, Vertex AI, or a Google account with a licence.
- The material is long: whole repositories, books, logs. Gemini reads a million tokens at once.
- Many small runs have to be cheap: `flash` and `flash-lite` cost a fraction of `pro`.
- The agent shall work in a folder with files, a shell and a memory of its last run.

Choose something else when the answer must come within a second (the CLI takes about one to start),
or when nobody wants tools: a plain call of the API is quicker then.

## What to know

- `cwd` is created when it is not there. Sessions belong to the folder that they began in.
- Without `yolo` the agent reads files and searches the web, and everything else is refused. With
  it, the agent also writes files and runs any command, unasked and with the rights of this user:
  what it reads, a page or a file, may tell it to. `approvalMode` has the steps between.
- `promptTemplate` knows {{prompt}}, {{agentId}}, {{agent.name}}, {{tenantId}}, {{tenant.name}},
  {{runId}}, and what the caller adds.
- Skills go into `<cwd>/.agents/skills/<name>/SKILL.md`. The model reads their descriptions, and the
  folder's GEMINI.md, without `trustWorkspace`; with `yolo` it also uses them. With `trustWorkspace`
  the folder's settings, hooks and servers, which are programs that it starts, are loaded too.
- Pay by token with GEMINI_API_KEY. A Google account and Vertex AI cost 0.00 here: what they are
  billed is not told to us. Personal Google accounts are no longer served since June 2026.

## Read on

- Cheatsheet of the CLI: https://geminicli.com/docs/cli/cli-reference/
- Agent Skills: https://geminicli.com/docs/cli/skills/
- Agent Skills, a tutorial: https://geminicli.com/docs/cli/tutorials/skills-getting-started/
- Authentication: https://geminicli.com/docs/get-started/authentication/
"""
