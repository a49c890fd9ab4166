"""Serves the page in the foreground: a socket, a link, and an orderly end."""

from __future__ import annotations

import asyncio
import errno
import http.client
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from geminorum.apps.web.application import WebApp
from geminorum.apps.web.security.headers import SERVER
from geminorum.apps.web.security.origin import is_loopback
from geminorum.apps.web.settings import WebSettings
from geminorum.errors import SetupError

_SHUTDOWN_SECONDS = 5
"""For browsers to read what was sent to them last."""
_ASK_SECONDS = 2.0
"""For the program at a port that is taken to say what it is."""
_WAITING_CONNECTIONS = 128
_IDLE_CONNECTIONS = 128
"""Those beyond are closed, the oldest first: whoever can reach the port, without the token, would
otherwise use up the descriptors that runs and their questions need."""


def require_safe(host: str, settings: WebSettings, *, has_own_token: bool) -> None:
    """Others may reach the page only if the user has chosen who of them may use it."""
    if is_loopback(host) or has_own_token or settings.proxy_header:
        return
    raise SetupError(
        f"--host {host} lets other machines reach the page",
        hint="choose a token for it: GEMINORUM_WEB_TOKEN=… (16 characters or more); or name the "
        "header of a proxy that logs people in: --proxy-header X-Forwarded-User",
    )


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket of our own; says so if the port is taken."""
    family, address = _address(host, port)
    with closing(socket.socket(family, socket.SOCK_STREAM)) as server:
        # Otherwise a restart would have to wait for connections of the one before.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(address)
            server.listen(_WAITING_CONNECTIONS)
        except OSError as error:
            raise _unbound(host, port, error) from error
        yield server


def address_of(server: socket.socket) -> str:
    """Where a browser on this machine finds it."""
    host, port = server.getsockname()[:2]
    name = _REACHED_AT.get(host, host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # nosec B104  # it binds nothing


async def serve(
    page: WebApp, server: socket.socket, on_ready: Callable[[uvicorn.Server], None]
) -> None:
    """Serves until `should_exit` is set on the server that `on_ready` gets."""
    config = uvicorn.Config(
        page,
        http=_Connection,
        backlog=_WAITING_CONNECTIONS,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="off",
        proxy_headers=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    async with page.running():
        running = _Server(config)
        on_ready(running)
        await running.serve([server])


class _Connection(H11Protocol):
    """A connection that gives way to others while nothing is asked on it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._began = time.monotonic()
        known = [one for one in self.connections if isinstance(one, _Connection)]
        idle = [one for one in known if one.is_idle]
        if len(idle) > _IDLE_CONNECTIONS:
            min(idle, key=lambda one: one._began).transport.abort()

    @property
    def is_idle(self) -> bool:
        # There is no cycle before the first request.
        is_answered = getattr(self.cycle, "response_complete", True)
        return is_answered and not self.transport.is_closing()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to the command, which has runs to end as well."""
        yield


def _address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise SetupError(f"there is no host {host!r}: {error}", hint="--host 127.0.0.1") from error
    return found[0][0], found[0][4]


def _unbound(host: str, port: int, error: OSError) -> SetupError:
    if error.errno != errno.EADDRINUSE:
        return SetupError(f"cannot listen on {host}:{port}: {error.strerror}", hint="--port 0")
    if _is_ours(host, port):
        return SetupError(
            f"another `geminorum web` serves port {port} already",
            hint="open the link that it printed, or leave --port out to start one more",
        )
    text = f"another program listens on port {port}"
    return SetupError(text, hint="leave --port out, or name another one")


def _is_ours(host: str, port: int) -> bool:
    """Does whoever listens there say that it is the page?"""
    connection = http.client.HTTPConnection(host, port, timeout=_ASK_SECONDS)
    with closing(connection):
        try:
            connection.request("HEAD", "/static/icon.svg")
            return connection.getresponse().getheader("server") == SERVER
        except (OSError, http.client.HTTPException):
            return False
