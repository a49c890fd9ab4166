"""The account that PostgreSQL runs as: the user's own, or for root `nobody` with a group of the
server's own."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import NamedTuple

from geminorum.errors import SetupError
from geminorum.fleet.embedded.folders import is_root
from geminorum.fleet.embedded.guardian_program import SERVER

if sys.platform != "win32":
    import grp
    import pwd

_NAME = "nobody"
_GROUPS = range(60_706, 61_184)
"""Numbers that systemd's tables call unused, and that also a container has."""


class Account(NamedTuple):
    uid: int
    gid: int


def server_account(folder: Path) -> Account | None:
    """The account for the server of this folder; None: the user's own."""
    if not is_root():
        return None
    try:
        uid = pwd.getpwnam(_NAME).pw_uid
    except KeyError as error:
        raise SetupError(
            f"PostgreSQL does not run as root, and there is no account {_NAME!r} to run it as",
            hint="run this as another user, or use a PostgreSQL of your own",
        ) from error
    server = folder / SERVER
    return Account(uid, server.stat().st_gid if server.exists() else _unused_group())


def _unused_group() -> int:
    taken = {group.gr_gid for group in grp.getgrall()} | {*os.getgroups()}
    return secrets.choice([number for number in _GROUPS if number not in taken])
