"""PATH in, the same without entries that mean another folder wherever a program is started."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import PurePath


@lru_cache(maxsize=16)
def absolute_entries(path: str) -> str:
    """Without `.`, `bin` and empty entries, which find programs in the folder worked in."""
    entries = path.split(os.pathsep)
    return os.pathsep.join(one for one in entries if PurePath(one.strip('"')).is_absolute())


def childs_path(path: str) -> str:
    """The same for a child: never empty, which would mean the current folder, too."""
    return absolute_entries(path) or os.defpath
