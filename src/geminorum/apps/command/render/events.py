"""Events to what a person reads on a terminal: pure, no output of their own."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text as Line

from geminorum import Error, Init, Result, ToolResult, ToolUse
from geminorum.apps.command.failures import command_hint
from geminorum.apps.command.render.facts import facts_of, gist, printable, written
from geminorum.apps.command.render.markdown import Indented, Markdown
from geminorum.views.plain_text import printable_line, without_padding

LONGEST_MARKDOWN = 200_000
"""Letters; a longer answer is printed as it is, for it would take seconds to lay out."""
_LINES = 12
"""Of a diff or of a tool's output; the rest is counted."""
_LONGEST = 500
"""Letters of one line of them."""
_ONE_ROW: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"}


def said(text: str) -> RenderableType:
    """What the agent said."""
    safe = printable(text)
    return Group("", Line(safe) if len(safe) > LONGEST_MARKDOWN else Markdown(safe.strip()))


def thought(text: str) -> RenderableType:
    """What the model thought, quietly."""
    return Line(printable(text.strip()), style="dim italic")


def heading(init: Init, transport: str, offline: bool) -> Line:
    """Who works where."""
    named = "model chosen by the CLI" if init.model == "auto" else printable_line(init.model or "")
    model = "simulated model" if offline else (named or "the default model")
    line = Line.assemble(("● ", "cyan"), (model, "bold"), (f" · {transport}", "dim"))
    elsewhere = init.cwd and Path(init.cwd) != Path.cwd()
    return line.append(f" · {printable_line(init.cwd or '')}", "dim") if elsewhere else line


def call_running(use: ToolUse) -> Line:
    """A call without a result so far."""
    line = Line.assemble((printable_line(use.name), "bold"), (f" {gist(use.input)}", "dim"))
    line.truncate(200, overflow="ellipsis")
    return line


_MARKS = {"success": ("✓", "green"), "error": ("✗", "red"), "denied": ("⊘", "yellow")}


def call_ended(use: ToolUse, result: ToolResult) -> RenderableType:
    """A call and how it ended, on one line."""
    mark, colour = _MARKS[result.status]
    refused = " refused" if result.status == "denied" else ""
    line = Line.assemble(
        (f"{mark} ", colour), (printable_line(use.name), "bold"), (refused, colour)
    )
    line.append(f" {gist(use.input)}", "dim")
    line.no_wrap, line.overflow = True, "ellipsis"
    # A Text alone would forget both when it is printed.
    return Group(line)


def output_of(result: ToolResult) -> RenderableType | None:
    """The first lines of what a tool gave back."""
    text = result.output if isinstance(result.output, str) else ""
    if not text.strip():
        return None
    lines = list(_first(printable(text).rstrip().split("\n")))
    if result.status == "error":
        return Indented(Line("\n".join(line[:_LONGEST] for line in lines), "red"))
    # One row each: what a tool says is looked at, not read.
    return Group(*(Line(f"  {line[:_LONGEST]}", "dim", **_ONE_ROW) for line in lines))


def diff(before: str, after: str, lines: int | None = _LINES) -> RenderableType | None:
    """What changed between two texts; None where nothing did."""
    # Where only the line ends differ, they are what is shown.
    changed = _changed(_unified(before), _unified(after)) or _changed(before, after)
    if not changed:
        return None
    plain = [without_padding(printable(line)) for line in changed]
    return Group(
        *(
            Indented(Line(line, _diff_style(line)), "    ", first="  ")
            for line in _first(plain, lines)
        )
    )


def _changed(before: str, after: str) -> list[str]:
    # Not `splitlines`: that parts lines, and hides the letter, where the file has no line end.
    old, new = (text.removesuffix("\n").split("\n") if text else [] for text in (before, after))
    return list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]


def _unified(text: str) -> str:
    return text.replace("\r\n", "\n")


def asked_change(arguments: dict[str, Any]) -> tuple[str, str] | None:
    """The change that a call asks for, where its arguments tell: before and after."""
    texts = [arguments[name] for name in change_names(arguments)]
    return ("" if len(texts) == 1 else texts[0], texts[-1]) if texts else None


_CHANGES = (("old_string", "new_string"), ("old_content", "new_content"), ("content",))


def change_names(arguments: dict[str, Any]) -> tuple[str, ...]:
    """The arguments that tell the change."""
    for names in _CHANGES:
        if all(isinstance(arguments.get(name), str) for name in names):
            return names
    return ()


def warning(error: Error) -> Line:
    """Something that did not end the run."""
    line = Line.assemble(("! ", "yellow"), printable(error.message))
    hint = command_hint(error.hint)
    return line.append(f"\n  → {hint}", "dim") if hint else line


def status_line(seconds: float, calls: int, tokens: int, usd: Decimal | None, advice: str) -> Line:
    """How it stands: time, tools, tokens, money, as far as they are known."""
    parts = [f"{seconds:.0f} s"]
    if calls:
        parts.append(f"{calls} tool{'s' * (calls > 1)}")
    if tokens:
        parts.append(f"{tokens:,} tokens")
    if usd:
        parts.append(f"${usd:.4f}")
    text = " · ".join([*parts, advice])
    return Line(text, "dim", no_wrap=True, overflow="ellipsis")


_ENDINGS = {
    "success": ("✓ done", "green"),
    "error": ("✗ failed", "red"),
    "interrupted": ("■ stopped", "yellow"),
    "max_turns": ("■ reached --max-turns", "yellow"),
    "max_budget": ("■ reached --max-budget-usd", "yellow"),
    "running": ("■ unfinished", "yellow"),
}


def summary(result: Result, brief: bool = False) -> RenderableType:
    """How the run ended, in two or three lines; `brief` without the session."""
    word, colour = _ENDINGS[result.status]
    facts = " · ".join(facts_of(result))
    ending = Line.assemble((word, f"bold {colour}"), (f" · {facts}" if facts else "", "dim"))
    rows = [Line.assemble(("wrote ", "dim"), name) for name in written(result.files)]
    if result.session_id and not brief:
        rows.append(Line(f"session {result.session_id}", "dim"))
    return Group("", Indented(ending, first=""), *map(Indented, rows))


def _first(lines: list[str], count: int | None = _LINES) -> Iterator[str]:
    yield from lines[:count]
    if count is not None and len(lines) > count:
        yield f"… {len(lines) - count} more lines"


def _diff_style(line: str) -> str:
    return {"+": "green", "-": "red"}.get(line[:1], "dim")
