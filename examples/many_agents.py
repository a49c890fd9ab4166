"""An orchestrator: many agents at once, each in its own folder, with its own policy and budget.

    python examples/many_agents.py agents.toml                      # like examples/many_agents.toml
    python examples/offline.py many_agents.py agents.toml           # without an account

Each table of the file is an agent: its prompt, and any fields of `Options`. If one fails, the
others go on. Exit code 0: all of them succeeded.
"""

from __future__ import annotations

import asyncio
import sys
import tomllib
from pathlib import Path

from geminorum import GeminorumError, Options, Result, run

AT_ONCE = asyncio.Semaphore(4)  # Each CLI uses 200 MB and, while it starts, one core.


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: many_agents.py FILE.toml", file=sys.stderr)
        return 2
    file = Path(sys.argv[1])
    try:
        tables = tomllib.loads(file.read_text())
        prompts = {name: table.pop("prompt") for name, table in tables.items()}
        agents = {name: options(file.parent / name, table) for name, table in tables.items()}
    except (OSError, ValueError, KeyError) as error:  # InvalidOptions is a ValueError
        print(f"{file}: {error}", file=sys.stderr)
        return 2
    results = asyncio.run(all_of(prompts, agents))
    print(f"{'agent':10} {'status':10} {'files':12} {'cost':>8} {'budget':>6}  message")
    for name, result in results.items():
        print(f"{name:10} {row(result, agents[name])}")
    return 0 if all(isinstance(one, Result) and one.ok for one in results.values()) else 1


def options(folder: Path, table: dict[str, object]) -> Options:
    folder.mkdir(exist_ok=True)
    return Options.from_dict({"cwd": folder, **table})


async def all_of(prompts: dict[str, str], agents: dict[str, Options]) -> dict[str, Result | str]:
    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(work(prompts[name], agents[name])) for name in agents}
    return {name: task.result() for name, task in tasks.items()}


async def work(prompt: str, options: Options) -> Result | str:
    """The agent's result, or why it could not start. An exception would cancel the other agents."""
    try:
        async with AT_ONCE, run(prompt, options) as live:
            async for _ in live:
                pass
    except GeminorumError as error:
        return str(error)
    return live.result


def row(result: Result | str, options: Options) -> str:
    if isinstance(result, str):
        return f"not begun: {result}"
    files = ",".join(Path(change.path).name for change in result.files) or "-"
    cost = f"${result.cost.usd:.4f}" if result.cost else "unknown"
    failure = result.exception()
    end = failure.message if failure else result.text
    return f"{result.status:10} {files:12} {cost:>8} {options.max_budget_usd or '-':>6}  {end}"


if __name__ == "__main__":
    sys.exit(main())
