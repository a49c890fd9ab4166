"""Did a request come to one of our names, and from a page of ours?"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def is_our_name(host: str, allowed: Collection[str]) -> bool:
    """May the page be reached by this Host?

    Against DNS rebinding: a name that an attacker owns can be made to lead here, an IP address or
    `localhost` cannot.
    """
    name = _name_in(host)
    return name == "localhost" or _is_address(name) or name in allowed


def is_from_elsewhere(method: str, headers: Headers) -> bool:
    """Was the request sent by a page that is not ours?

    Links from anywhere may lead here: `SameSite` keeps the session from them. Another port of this
    host is another page, for which browsers make no difference in cookies.
    """
    site = headers.get("sec-fetch-site", "same-origin")
    if method in SAFE_METHODS:
        is_link = headers.get("sec-fetch-mode", "navigate") == "navigate"
        return site not in ("same-origin", "none") and not is_link
    origin = headers.get("origin")
    if origin is not None and _netloc_of(origin) != headers.get("host", "").lower():
        return True
    return site not in ("same-origin", "none")


def is_loopback(host: str) -> bool:
    """Is this a name or address that only this machine can reach?"""
    name = host.strip("[]").lower()
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)


def _netloc_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _name_in(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
