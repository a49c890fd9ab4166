"""`make minors`: npm's versions of the Gemini CLI to minors.txt, the list to test."""

import json
import subprocess
import sys
from collections.abc import Iterable

from geminorum.detect import PACKAGE, find_node
from geminorum.install import PINNED_CLI, npm_of
from versions.features import parsed
from versions.table import MINORS

OLDEST = "0.29.0"


def newest_patches(versions: Iterable[str]) -> list[str]:
    """The newest stable patch of each minor version from `OLDEST` on; that one and ours always."""
    stable = [one for one in versions if all(part.isdecimal() for part in one.split("."))]
    by_minor = {parsed(one)[:2]: one for one in sorted(stable, key=parsed)}
    chosen = {OLDEST, PINNED_CLI, *by_minor.values()}
    return [one for one in sorted(chosen, key=parsed) if parsed(one) >= parsed(OLDEST)]


def main() -> None:
    node = find_node()
    if node is None:
        sys.exit("npm needs Node 20 or newer")
    command = [*npm_of(node), "view", PACKAGE, "versions", "--json"]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    chosen = newest_patches(json.loads(answer.stdout))
    MINORS.write_text("".join(f"{one}\n" for one in chosen), encoding="utf-8")
    sys.stdout.write(f"{MINORS.name} written: {len(chosen)} versions\n")


if __name__ == "__main__":
    main()
