"""One program, two doors: the same events come from the Gemini CLI and from the Gemini API.

`python examples/two_doors.py "Say hello"` asks Google's models, with GEMINI_API_KEY set; without a
key there is `python examples/offline.py two_doors.py`. `tell` takes any door and any options.
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
    run,
)
from geminorum.transports import Transport


async def tell(prompt: str, options: Options, door: Transport) -> list[str]:
    """What a person would want to see of the run. It does not know which door it looks through."""
    lines, text = [], ""
    async with run(prompt, options, via=door) as live:
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
                    tokens = event.usage.total
                    lines.append(
                        f"done     {event.status}, {tokens} tokens, {event.cost_note or ''}"
                    )
    return [f"said     {text}", *lines]


async def main(prompt: str) -> None:
    for door in (Cli(), Api()):
        print(type(door).__name__)
        for line in await tell(prompt, Options(model="gemini-2.5-flash"), door):
            print("  ", line)


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "Say hello"))
