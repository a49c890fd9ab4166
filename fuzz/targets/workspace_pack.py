"""A pack or a patch of a workspace, to its tree, its changes, a plan and what people see.

A tar has checksums, so a document has the members that it is made of.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from contextlib import suppress
from typing import Any

from fuzz.scratch import scratch_folder
from fuzz.soundness import Unsound
from fuzz.target import Target
from geminorum.errors import WorkspaceError
from geminorum.workspace import Pack, Patch, Workspace
from geminorum.workspace.names import problem_with

_MODES = {"x": 0o755, "s": 0o4755}


def run(data: bytes) -> None:
    packed = gzip.compress(_tar(data), 1, mtime=0)
    folder = scratch_folder("workspace")
    (folder / "a.txt").write_text("one\n")
    home = Workspace(folder)
    with suppress(WorkspaceError):
        _require_names(Pack(packed).base(1_000_000).tree)
    patch = Patch(packed, max_bytes=1_000_000)
    _require_names({change.name for change in patch.changes})
    repr((home.render(patch), patch.renames))
    repr(home.check(patch))


def _require_names(names: Any) -> None:
    if bad := [name for name in names if problem_with(name)]:
        raise Unsound(f"names that are not fit: {bad}")


def _tar(data: bytes) -> bytes:
    try:
        document = json.loads(data)
        members = [("workspace.json", "0", "", "", json.dumps(document["header"]))]
        out = io.BytesIO()
        for member in [*members, *document["members"]]:
            _add(out, *member)
        return out.getvalue() + b"\0" * 1024
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return data


def _add(out: io.BytesIO, name: str, kind: str, mode: str, target: str, contents: str) -> None:
    info, body = tarfile.TarInfo(name), contents.encode("utf-8", "surrogatepass")
    info.type, info.mode, info.size = kind.encode()[:1], _MODES.get(mode, 0o644), len(body)
    info.linkname = target
    out.write(info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))
    out.write(body + b"\0" * (-len(body) % tarfile.BLOCKSIZE))


_OLD = {"kind": "file", "digest": "0" * 64, "size": 4, "executable": False, "target": ""}
_SEEDS = (
    {
        "header": {
            "geminorum": "pack",
            "version": 1,
            "entries": 3,
            "git": True,
            "ignore": "*.o\n",
            "exclude": ["data"],
        },
        "members": [
            ["files/a.txt", "0", "", "", "one\n"],
            ["files/bin/run", "0", "x", "", "#!/bin/sh\n"],
            ["files/link", "2", "", "a.txt", ""],
        ],
    },
    {
        "header": {
            "geminorum": "patch",
            "version": 1,
            "entries": 2,
            "before": {"a.txt": _OLD, "new": None, "gone": {**_OLD, "kind": "folder"}},
        },
        "members": [["files/a.txt", "0", "", "", "two\n"], ["files/new", "0", "", "", "new\n"]],
    },
)
_WORDS = (b"../", b"/", b".git/", b"files/", b".geminorum-apply", b"\\udc80", b'"5"', b'"link"')
TARGET = Target(
    "workspace-pack",
    run,
    tuple(json.dumps(seed).encode() for seed in _SEEDS),
    (WorkspaceError,),
    words=_WORDS,
    repeated=(b'["files/f@@", "0", "", "", "x"], ',),
)
