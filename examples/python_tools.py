"""An agent whose tools are your Python functions, here over a small SQLite database.

    python examples/python_tools.py api "Ada wants her money back"
    python examples/python_tools.py cli "Ada wants her money back"  # the same, through the CLI
    python examples/offline.py python_tools.py api "Ada wants her money back"

The model sees only their type hints and docstrings, and may call nothing but these functions.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from geminorum import Api, Cli, GeminorumError, Options, ToolResult, ToolUse, sync

ORDERS = [(1, "Ada", "a difference engine", 900, 0), (2, "Grace", "a jar of moths", 12, 0)]
ONLY_THESE = Options(model="gemini-2.5-flash", allowed_tools=("find_orders", "refund"))


class Shop:
    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE orders (id, customer, item, dollars, refunded)")
            database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", ORDERS)

    def find_orders(self, customer: str) -> list[dict[str, Any]]:
        """The orders of a customer, by first name."""
        return self._rows("SELECT * FROM orders WHERE customer = ?", customer)

    def refund(self, order: int) -> str:
        """Pays an order back. Only once, and only up to 1000 dollars."""
        # The model may ask for anything: enforce limits here, not in a prompt.
        found = "WHERE id = ? AND refunded = 0 AND dollars <= 1000"
        changed = self._rows(f"UPDATE orders SET refunded = 1 {found} RETURNING dollars", order)
        return f"{changed[0]['dollars']} dollars paid back" if changed else "not possible"

    def _rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        # One connection per call: functions run in threads, several at once.
        with closing(sqlite3.connect(self.path)) as database, database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(statement, values)]


def main() -> int:
    if len(sys.argv) != 3 or sys.argv[1] not in ("api", "cli"):
        print("usage: python_tools.py api|cli PROMPT", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(Path(folder, "shop.db"))
        transport = Api if sys.argv[1] == "api" else Cli
        with sync.run(
            sys.argv[2], ONLY_THESE, via=transport(tools=[shop.find_orders, shop.refund])
        ) as live:
            for event in live:
                if isinstance(event, ToolUse):
                    print(f"-> {event.name} {event.input}")
                elif isinstance(event, ToolResult):
                    print(f"<- {event.output}")
    print(live.result.raise_on_failure().text)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GeminorumError as error:
        sys.exit(str(error))
