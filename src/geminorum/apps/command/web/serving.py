"""What `geminorum web` does: serves the page in the foreground until a signal ends it."""

from __future__ import annotations

import asyncio
import html
import os
import signal
import sys
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from geminorum import Acp, Api, Cli, Options, Transport, web
from geminorum.apps.command.render.output import print_json_line
from geminorum.apps.web import serving
from geminorum.errors import InvalidOptions
from geminorum.system.owned_folder import OwnedFolder

if TYPE_CHECKING:
    import socket

    import uvicorn

TOKEN_VARIABLE = "GEMINORUM_WEB_TOKEN"  # nosec B105  # the name of one
MIN_TOKEN_CHARACTERS = 16
_LEADING_ON = '<meta http-equiv="refresh" content="0; url={0}"><a href="{0}">Open the page</a>'
_STOPPING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT") if hasattr(signal, name))


class Wanted(NamedTuple):
    """The page, as it was typed."""

    host: str
    port: int
    token: str | None
    db: str | None
    read_only: bool
    proxy_header: str | None
    allowed_hosts: tuple[str, ...]
    cwd: Path | None
    cli: Path | None

    def settings(self, token: str | None) -> dict[str, Any]:
        given = {
            "token": token,
            "db": self.db,
            "read_only": self.read_only,
            "proxy_header": self.proxy_header,
            "allowed_hosts": tuple(name.lower() for name in self.allowed_hosts),
            "options": Options(cwd=self.cwd.absolute()) if self.cwd else None,
            "transports": _transports(self.cli) if self.cli else None,
        }
        return {name: value for name, value in given.items() if value is not None}


def serve_page(wanted: Wanted, *, open_browser: bool, json: bool) -> None:
    """Serves the page until Ctrl-C or SIGTERM, and ends its runs."""
    token = _own_token(wanted.token)
    page = web.app(**wanted.settings(token))
    serving.require_safe(wanted.host, page.settings, has_own_token=token is not None)
    with serving.listening(wanted.host, wanted.port) as server:
        asyncio.run(_serve(page, server, open_browser=open_browser, json=json))


async def _serve(
    page: web.WebApp, server: socket.socket, *, open_browser: bool, json: bool
) -> None:
    address = serving.address_of(server)
    link = f"{address}/" if page.settings.proxy_header else page.link(address)
    with OwnedFolder("geminorum-web-") as folder:
        ending = _Ending(page)

        def on_ready(running: uvicorn.Server) -> None:
            ending.server = running
            _announce(link, page.settings, json=json)
            if open_browser:
                _open(link, folder)

        with _on_signals(ending.begin_or_hurry):
            await serving.serve(page, server, on_ready)


class _Ending:
    """How far the page is on its way out."""

    def __init__(self, page: web.WebApp) -> None:
        self._page = page
        self.server: uvicorn.Server | None = None

    def begin_or_hurry(self) -> None:
        if self.server is None or self.server.should_exit:
            # Asked twice: the runs get no time to end by themselves.
            for task in asyncio.all_tasks():
                task.cancel()
            return
        if count := len(self._page.live_runs):
            sys.stderr.write(f"stopping {count} run{'' if count == 1 else 's'} …\n")
        self._page.end()
        self.server.should_exit = True


@contextmanager
def _on_signals(act: Any) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    # Not loop.add_signal_handler, which Windows has not got.
    before: Mapping[Any, Any] = {
        number: signal.signal(number, lambda *_: loop.call_soon_threadsafe(act))
        for number in _STOPPING
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _announce(link: str, settings: web.WebSettings, *, json: bool) -> None:
    if json:
        print_json_line({"url": link, "read_only": settings.read_only, "pid": os.getpid()})
        return
    sys.stdout.write(f"{link}\n")
    sys.stdout.flush()
    told = "see what your agents do" if settings.read_only else "start agents as you"
    # Beside the link, which scripts read.
    sys.stderr.write(f"Whoever has this link can {told}. Ctrl-C ends the page and its runs.\n")


def _open(link: str, folder: Path) -> None:
    """Opens the link in a browser, whose arguments every user of the machine can see: so it gets a
    file that leads on, which only this user can read."""
    file = folder / "open.html"
    address = html.escape(link)
    file.write_text(_LEADING_ON.format(address), encoding="utf-8")
    webbrowser.open(file.as_uri())


def _own_token(typed: str | None) -> str | None:
    # Taken away: agents inherit the environment, and must not answer their own questions.
    token = typed or os.environ.pop(TOKEN_VARIABLE, None)
    if token is not None and len(token) < MIN_TOKEN_CHARACTERS:
        raise InvalidOptions(
            f"the token has {len(token)} characters, which can be guessed",
            hint=f"{MIN_TOKEN_CHARACTERS} or more; or leave it out, and one is made",
        )
    return token


def _transports(cli: Path) -> dict[str, Transport]:
    return {
        "cli": Cli(cli, decide_timeout=None),
        "acp": Acp(cli, decide_timeout=None),
        "api": Api(decide_timeout=None),
    }
