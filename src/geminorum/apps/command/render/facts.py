"""What a run did and cost, in words: without rich, so that a pipe does not wait for it."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geminorum.views import plain_text
from geminorum.views.plain_text import printable_line

if TYPE_CHECKING:
    from geminorum import Cost, FileChange, Result

_TELLING = ("command", "file_path", "path", "dir_path", "query", "pattern", "url", "prompt")


def facts_of(result: Result) -> list[str]:
    """Model, time, tokens and cost, those that are known."""
    usage = result.usage
    facts = [printable_line(result.model or ""), f"{result.duration:.1f} s"]
    if usage:
        cached = f", {usage.cached:,} cached" if usage.cached else ""
        facts.append(f"{usage.input:,} in{cached} / {usage.output + usage.thoughts:,} out")
    facts.append(money(result.cost) if result.cost else result.cost_note or "")
    return [fact for fact in facts if fact]


def written(files: Iterable[FileChange]) -> list[str]:
    """The paths, each once, in the order of writing."""
    return [short(path) for path in dict.fromkeys(change.path for change in files)]


def short(path: str | Path) -> str:
    """As one would type it: from the current folder on, where it lies below that."""
    here = Path.cwd()
    below = Path(path).is_relative_to(here)
    return printable_line(str(Path(path).relative_to(here) if below else path))


def gist(arguments: dict[str, Any]) -> str:
    """The argument that says best what a call is about, on one line."""
    named = [arguments[name] for name in _TELLING if isinstance(arguments.get(name), str)]
    texts = [*named, *(value for value in arguments.values() if isinstance(value, str))]
    return " ".join(printable(texts[0]).split()) if texts else ""


def money(cost: Cost) -> str:
    """Dollars, marked if they are an estimate or not billed."""
    about = "" if cost.exact else "about "
    note = "" if cost.billed_usd else ", not billed"
    return f"{about}{dollars(cost.usd)}{note}"


def dollars(usd: Decimal) -> str:
    """Cents from a dollar on; below that as many digits as tell it from nothing."""
    if usd >= 1:
        return f"${usd:.2f}"
    return f"${usd:.4f}" if usd == 0 or usd >= Decimal("0.0001") else f"${usd:.6f}"


def printable(text: str) -> str:
    """Without the letters by which a file or a model could take over the terminal."""
    return plain_text.printable(text).expandtabs(4)
