"""A shell command to whether the CLI considers it dangerous, and asks although a rule allows it.

As CLI 0.61 has it: it looks at the first command of a line only, and is easy to get around. It
guards against accidents, not against a model that wants to do harm.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence

_FIND = {"-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls", "-fprint", "-fprint0", "-fprintf"}
_GIT_WRITES = {"--output", "--ext-diff", "--textconv", "--exec", "--paginate"}
_GIT_LISTS = {"--list", "-l", "--show-current", "-a", "--all", "-r", "--remotes", "-v", "-vv"}
_GIT_READERS = ("status", "log", "diff", "show", "branch")
_GIT_TAKES_A_VALUE = {"-C", "--exec-path", "--git-dir", "--namespace", "--super-prefix"}


def is_dangerous(command: str) -> bool:
    try:
        words = list(shlex.shlex(command, posix=True, punctuation_chars=True))
    except ValueError:
        return False
    return _are_dangerous(words)


def _are_dangerous(words: Sequence[str]) -> bool:
    first = next((at for at, word in enumerate(words) if word != "sudo"), len(words))
    words = words[first:]
    judge = _JUDGES.get(words[0].rpartition("/")[2] if words else "")
    return judge is not None and judge(words[1:])


def _makes_a_link(words: Sequence[str]) -> bool:
    short = [word for word in words if word.startswith("-") and not word.startswith("--")]
    return "--symbolic" in words or any("s" in word for word in short)


def _has_config(words: Sequence[str]) -> bool:
    return any(word.startswith(("-c", "--config-env")) for word in words)


def _is_dangerous_git(words: Sequence[str]) -> bool:
    if _has_config(words):
        return True
    rest = list(_behind_options(words))
    if not rest or rest[0] not in _GIT_READERS:
        return False
    given = rest[1:]
    writes = any(w in _GIT_WRITES or w.startswith(("--output=", "--exec=")) for w in given)
    return writes or (rest[0] == "branch" and not _only_lists(given))


def _behind_options(words: Sequence[str]) -> Iterator[str]:
    """From the subcommand on."""
    ahead = iter(words)
    for word in ahead:
        if word in _GIT_TAKES_A_VALUE or word == "--work-tree":
            next(ahead, None)
        elif not word.startswith("-"):
            yield word
            yield from ahead


def _only_lists(words: Sequence[str]) -> bool:
    known = {*_GIT_LISTS, "--verbose"}
    return all(word in known or word.startswith("--format=") for word in words)


def _is_dangerous_search(words: Sequence[str]) -> bool:
    runs = ("--pre", "--hostname-bin", "--pre=", "--hostname-bin=")
    return any(w in ("--search-zip", "-z", *runs) or w.startswith(runs[2:]) for w in words)


_JUDGES: dict[str, Callable[[Sequence[str]], bool]] = {
    "ln": _makes_a_link,
    "rm": lambda words: words[:1] in (["-f"], ["-rf"], ["-fr"]),
    "find": lambda words: not _FIND.isdisjoint(words),
    "rg": _is_dangerous_search,
    "git": _is_dangerous_git,
    "base64": lambda words: any(word.startswith(("-o", "--output")) for word in words),
}
