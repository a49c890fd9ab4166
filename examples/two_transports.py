"""One program, two transports: the Gemini CLI and the Gemini API produce the same events.

    python examples/two_transports.py "Say hello"     # needs GEMINI_API_KEY
    python examples/offline.py two_transports.py      # without an account

`tell` takes any transport and any options.
"""

from __future__ import annotations

import asyncio
import sys

from geminorum import (
    Api,
    Cli,
    Done,
    Error,
    Options,
    TextDelta,
    Thinking,
    ToolResult,
    ToolUse,
    Transport,
    run,
)


async def tell(prompt: str, options: Options, transport: Transport) -> list[str]:
    """The run as lines for a person to read, in the same way for every transport."""
    lines, text = [], ""
    async with run(prompt, options, via=transport) as live:
        async for event in live:
            match event:
                case TextDelta():
                    text += event.text
                case Thinking():
                    lines.append(f"thought  {event.text}")
                case ToolUse():
                    lines.append(f"call     {event.name} {event.input}")
                case ToolResult():
                    lines.append(f"result   {event.status}: {event.output}")
                case Error():
                    lines.append(f"error    {event.message}")
                case Done() if event.usage is not None:
                    cost = f"{event.cost.usd} dollars" if event.cost else event.cost_note
                    lines.append(f"done     {event.status}, {event.usage.total} tokens, {cost}")
    return [f"said     {text}", *lines]


async def main(prompt: str) -> None:
    for transport in (Cli(), Api()):
        print(type(transport).__name__)
        for line in await tell(prompt, Options(model="gemini-2.5-flash"), transport):
            print("  ", line)


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "Say hello"))
