"""A chat bot that asks before it acts: y for yes, a for always (this tool), anything else for no.

    python examples/chat_bot.py                  # works in this folder; Ctrl-D quits
    printf 'Write a poem\ny\n' | python examples/chat_bot.py
    python examples/offline.py chat_bot.py       # without an account; ask for a poem

From a pipe, each answer is a line too; when the input ends, the answer is no. Ctrl-C stops the
current turn, and the conversation goes on.
"""

from __future__ import annotations

import sys

from geminorum import (
    Acp,
    Allow,
    AllowAlways,
    Deny,
    Done,
    Error,
    Event,
    GeminorumError,
    Options,
    PermissionRequest,
    TextDelta,
    ToolResult,
    sync,
)


def main() -> int:
    try:
        with sync.connect(Options(max_budget_usd=1.00), via=Acp(decide=may_i)) as chat:
            while (line := typed("> ")) is not None:
                answer(chat, line or "Go on.")
    except GeminorumError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def answer(chat: sync.Chat, prompt: str) -> None:
    try:
        with chat.turn(prompt) as live:
            for event in live:
                show(event)
    except KeyboardInterrupt:
        print("\n[stopped]")


def may_i(request: PermissionRequest) -> Allow | AllowAlways | Deny:
    # repr() escapes control characters, so the model cannot hide what it asks for.
    details = "".join(f"\n    {name}: {value!r}" for name, value in request.input.items())
    match typed(f"[?] {request.name}{details}\n    y / n / a: "):
        case "y":
            return Allow()
        case "a":
            return AllowAlways()
        case _:
            return Deny("the user said no")


def typed(question: str) -> str | None:
    """The next line of input, None at its end. Echoes piped input, as a terminal would."""
    try:
        line = input(question).strip()
    except EOFError:
        print()
        return None
    if not sys.stdin.isatty():
        print(line)
    return line


def show(event: Event) -> None:
    match event:
        case TextDelta():
            print(event.text, end="", flush=True)
        case ToolResult():
            print(f"[{event.name}: {event.status}]")
        case Error():
            print(f"[! {event.message}]")
        case Done():
            cost = f"${event.cost.usd:.4f}" if event.cost else "cost unknown"
            print(f"\n[{event.status}, {cost}]")
        case _:
            pass


if __name__ == "__main__":
    sys.exit(main())
