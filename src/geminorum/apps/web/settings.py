"""What whoever starts the page decides: where its data lies, and who may do what."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class WebSettings:
    """The settings of one page; `geminorum.web.app` takes them as keywords."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """Whoever knows it may use the page."""
    db: str | None = field(default=None, repr=False)
    """Where runs and questions are kept. None: a SQLite file in the user's state folder."""
    read_only: bool = False
    """Nothing can be started, stopped, answered or changed."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that the page may be reached by, besides IP addresses and localhost."""
    proxy_header: str | None = None
    """A header in which a proxy in front of the page names the user that it has let in."""
    folder: str = field(default_factory=os.getcwd)
    """Where runs work if the form names no other folder."""
