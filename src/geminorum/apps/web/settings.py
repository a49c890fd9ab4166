"""What whoever starts the page decides: where its data lies, and who may do what."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import Request

from geminorum import Acp, Api, Cli, Options, Transport
from geminorum.inbox import Inbox


@dataclass(frozen=True, kw_only=True, slots=True)
class WebSettings:
    """The settings of one page; `geminorum.web.app` takes them as keywords."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """Whoever knows it may use the page."""
    db: str | None = field(default=None, repr=False)
    """Where runs and questions are kept. None: a SQLite file in the user's state folder."""
    inbox: Inbox | None = None
    """Where questions of runs wait for an answer. None: the inbox in `db`, or the user's own."""
    read_only: bool = False
    """Nothing can be started, stopped, answered or changed."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that the page may be reached by, besides IP addresses and localhost."""
    proxy_header: str | None = None
    """A header in which a proxy in front of the page names the user that it has let in."""
    authorize: Callable[[Request], bool | Awaitable[bool]] | None = None
    """Lets in whoever a program that mounts the page has logged in, besides those with the token.
    It is asked about every request of theirs: who is logged out there is out here, too."""
    options: Options = field(default_factory=Options)
    """What runs start with; the form's values go on top. `cwd` is the folder that it suggests."""
    transports: Mapping[str, Transport] = field(default_factory=lambda: _transports())
    """Those that the form offers, by name."""

    @property
    def folder(self) -> str:
        """Where runs work if the form names no other folder."""
        return str(Path(self.options.cwd or "").absolute())


def _transports() -> dict[str, Transport]:
    # People answer when they come by: no question of theirs runs out.
    kinds = {"cli": Cli, "acp": Acp, "api": Api}
    return {name: kind(decide_timeout=None) for name, kind in kinds.items()}
