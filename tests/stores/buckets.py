"""A bucket on loopback that speaks as much of Google's and Azure's protocols as a store needs."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import time
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_DELETION = re.compile(rb"^DELETE (\S+) HTTP", re.M)


class Blob(NamedTuple):
    data: bytes
    version: int
    modified: float

    @property
    def headers(self) -> dict[str, str]:
        tag, at = f'"{self.version}"', formatdate(self.modified, usegmt=True)
        return {"ETag": tag, "Last-Modified": at, "x-goog-generation": str(self.version)}


class Bucket(ThreadingHTTPServer):
    """Checks and writes in one step, as real storage does."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.blobs: dict[str, Blob] = {}
        self.lock = threading.Lock()
        self._version = 0

    def put(self, name: str, data: bytes, headers: dict[str, str]) -> int:
        with self.lock:
            if status := _refusal(self.blobs.get(name), headers):
                return status
            self._version += 1
            self.blobs[name] = Blob(data, self._version, time())
            return 201

    def beginning(self, prefix: str) -> list[tuple[str, Blob]]:
        with self.lock:
            return sorted(
                (name, one) for name, one in self.blobs.items() if name.startswith(prefix)
            )


def _refusal(known: Blob | None, headers: dict[str, str]) -> int:
    """The status that says why it is not written; 0: it is."""
    version = "0" if known is None else str(known.version)
    if headers.get("x-goog-if-generation-match", version) != version:
        return 412
    if "if-match" in headers and headers["if-match"] != f'"{version}"':
        return 412
    return 409 if "if-none-match" in headers and known is not None else 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    def do_PUT(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        status = self.server.put(self._name, self._body(), headers)
        self._answer(status, headers=self.server.blobs[self._name].headers)

    def do_GET(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if "prefix" in query:
            found = self.server.beginning(query["prefix"])
            listing = _azures if "comp" in query else _googles
            self._answer(200, listing(found).encode())
            return
        known = self.server.blobs.get(self._name)
        if known is None:
            self._answer(404)
        else:
            self._answer(200, known.data, known.headers)

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        self._answer(204 if self.server.blobs.pop(self._name, None) else 404)

    def do_POST(self) -> None:
        """Azure deletes in batches, of which each answer is a part."""
        names = [_named(path.decode()) for path in _DELETION.findall(self._body())]
        codes = [202 if self.server.blobs.pop(name, None) else 404 for name in names]
        parts = [
            f"--b\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
            f"HTTP/1.1 {code} x\r\nx-ms-request-id: 1\r\n\r\n\r\n"
            for number, code in enumerate(codes)
        ]
        kind = {"Content-Type": "multipart/mixed; boundary=b"}
        self._answer(202, "".join([*parts, "--b--\r\n"]).encode(), kind)

    @property
    def _name(self) -> str:
        return _named(self.path)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(
        self, status: int, data: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def _named(path: str) -> str:
    """Without the bucket."""
    return unquote(urlsplit(path).path).lstrip("/").partition("/")[2]


def _googles(found: list[tuple[str, Blob]]) -> str:
    rows = [
        f"<Contents><Key>{escape(name)}</Key><Size>{len(one.data)}</Size>"
        f"<LastModified>2026-01-02T10:00:00.000Z</LastModified></Contents>"
        for name, one in found
    ]
    return f"<ListBucketResult>{''.join(rows)}</ListBucketResult>"


def _azures(found: list[tuple[str, Blob]]) -> str:
    rows = [
        f"<Blob><Name>{escape(name)}</Name><Properties>"
        f"<Last-Modified>{formatdate(one.modified, usegmt=True)}</Last-Modified>"
        f"<Content-Length>{len(one.data)}</Content-Length><Etag>{one.version}</Etag>"
        "<Content-Type>x</Content-Type></Properties></Blob>"
        for name, one in found
    ]
    return f"<EnumerationResults><Blobs>{''.join(rows)}</Blobs></EnumerationResults>"


@contextmanager
def bucket_server() -> Iterator[str]:
    """The address of a server that has any bucket."""
    server = Bucket()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
