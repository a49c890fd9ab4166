"""A first look: sends a prompt through the real Gemini CLI and shows the events as they happen.

`make demo` runs it with a simulated model, so it needs no account. With GEMINI_API_KEY set,
`make demo PROMPT="…"` asks Google's models instead.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from geminorum import (
    Cli,
    Error,
    Event,
    Init,
    Options,
    Result,
    TextDelta,
    Thinking,
    ToolResult,
    ToolUse,
    sync,
)
from geminorum.detect import find_cli
from geminorum.testing import FakeGemini

PRIVATE_CLI = Path(__file__).parent.parent / ".gemini-cli/node_modules/.bin/gemini"
MODEL = "gemini-2.5-flash"
SIMULATED = "SIMULATED: scripted answers on this machine, nothing goes to Google"
HAIKU = """A pipe holds so much.
The file beside it holds all.
Read it when you like.
"""

console = Console(highlight=False)


def main() -> int:
    transport = Cli(executable=PRIVATE_CLI if PRIVATE_CLI.exists() else None)
    prompt = os.environ.get("PROMPT", "")
    with tempfile.TemporaryDirectory(prefix="geminorum-demo-") as folder:
        if prompt and os.environ.get("GEMINI_API_KEY"):
            # The agent may write files, in an empty folder; it may not run commands.
            result = show(prompt, Options(cwd=folder, approval="auto_edit"), transport, "Google's")
        else:
            if prompt:
                console.print("[yellow]PROMPT needs GEMINI_API_KEY; this is the simulation.[/]")
            result = simulated(folder, transport)
    return 0 if result.ok else 1


def simulated(folder: str, transport: Cli) -> Result:
    with FakeGemini() as fake:
        fake.calls(
            ("write_file", {"file_path": "haiku.txt", "content": HAIKU}),
            text="I will write it to a file.",
            thoughts=["Pipes: they lose what they cannot hold"],
        )
        fake.call("run_shell_command", command="cat haiku.txt")
        fake.say("There it is: ", "three lines, ", "nothing lost.", drip=0.1)
        options = Options(cwd=folder, model=MODEL, approval="yolo", env=fake.env)
        return show("Write a haiku about pipes, and show it.", options, transport, SIMULATED)


def show(prompt: str, options: Options, transport: Cli, whose: str) -> Result:
    console.rule("[bold]geminorum[/]")
    console.print(f"the CLI is real: {described(transport)}")
    console.print(f"the model is [bold]{whose}[/]")
    console.print("thoughts arrive when their answer is complete: this CLI does not stream them")
    console.print(f"\n[bold cyan]>[/] {escape(prompt)}\n")
    with sync.run(prompt, options, via=transport) as live:
        for event in live:
            tell(event)
    summary(live.result)
    return live.result


def described(transport: Cli) -> str:
    program = find_cli(transport.executable)
    version = ".".join(map(str, program.version or ()))
    node = ".".join(map(str, program.node.version)) if program.node else "none"
    return f"@google/gemini-cli {version} on Node {node}"


def tell(event: Event) -> None:
    match event:
        case Init():
            console.print(f"[dim]session {event.session_id}, model {event.model}[/]")
        case TextDelta():
            console.print(escape(event.text), end="")
            sys.stdout.flush()
        case Thinking():
            console.print(f"[dim italic]{escape(event.text)}[/]")
        case ToolUse():
            arguments = ", ".join(f"{key}={shortened(value)}" for key, value in event.input.items())
            console.print(f"\n[yellow]→ {event.name}[/]({escape(arguments)})")
        case ToolResult():
            console.print(f"[green]← {event.status}[/]", escape(str(event.output or "")).strip())
        case Error():
            console.print(f"[red]! {escape(event.message)}[/]")
            if event.hint:
                console.print(f"  → {escape(event.hint)}")
        case _:
            pass


def shortened(value: object, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def summary(result: Result) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("status", result.status)
    table.add_row("files", "\n".join(change.path for change in result.files) or "none")
    if usage := result.usage:
        table.add_row("tokens", f"{usage.total:,} ({usage.input:,} in, {usage.output:,} out)")
    kind = "exact" if result.cost and result.cost.exact else "estimate"
    cost = f"${result.cost.usd:.6f} at list price ({kind})" if result.cost else "not known"
    table.add_row("cost", cost)
    table.add_row("session", result.session_id or "none")
    table.add_row("time", f"{result.duration:.2f} s")
    console.print()
    console.rule()
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
