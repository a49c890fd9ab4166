"""A program that breaks off after 3 of 100 slow chunks, and says when the server noticed."""

import asyncio
import gc
import json
import sys
import time

from geminorum import Api, Options, TextDelta, run
from geminorum.testing import FakeGemini


async def main(fake: FakeGemini) -> dict[str, object]:
    seen = 0
    async with run("Count", Options(env=fake.env), via=Api()) as live:
        async for event in live:
            seen += isinstance(event, TextDelta)
            if seen == 3:
                left = time.monotonic()
                break
    while not fake.abandoned and time.monotonic() < left + 5:
        await asyncio.sleep(0.005)
    took = time.monotonic() - left
    tasks = [str(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    return {"abandoned": len(fake.abandoned), "seconds": round(took, 3), "tasks": tasks}


if __name__ == "__main__":
    gc.disable()
    with FakeGemini() as fake:
        fake.say(*(f"{number} " for number in range(100)), drip=0.1)
        found = asyncio.run(main(fake))
    sys.stdout.write(json.dumps(found) + "\n")
