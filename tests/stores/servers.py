"""Real servers on loopback: one that speaks S3's protocol, and a PostgreSQL."""

import os
import threading
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from databases import open_place, query

from geminorum.fleet.embedded import embedded_postgres

_START_SECONDS = 120.0


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of a server with one bucket, `sessions`."""
    # Here, and not on top: moto takes a second to load, and every worker collects every test.
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, *_: object) -> None:
            pass

    app = DomainDispatcherApplication(create_backend_app)
    # One request after another: moto checks and writes in two steps, which real storage does not.
    server = make_server("127.0.0.1", 0, app, threaded=False, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        made = urllib.request.Request(f"{address}/sessions", method="PUT")
        urllib.request.urlopen(made, timeout=_START_SECONDS).close()
        yield address
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of a new database, which is gone with the block."""
    # It need not outlive a power failure, and to wait for the disk is most of its work.
    memory = Path("/dev/shm")
    place = open_place(memory if os.access(memory, os.W_OK | os.X_OK) else Path("/tmp"))
    with place as folder, embedded_postgres(folder / "sessions") as url:
        yield url


def empty_database(server: str) -> str:
    """The URL of another database of a server."""
    name = f"empty_{uuid.uuid4().hex}"
    query(server, f'CREATE DATABASE "{name}"')
    return server.replace("/postgres?", f"/{name}?")
