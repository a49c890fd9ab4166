"""A scripted answer to the HTTP reply that carries it; no I/O."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from geminorum.testing import replies
from geminorum.testing.answers import Answer, Fail, Hang, Raw, Say
from geminorum.testing.request import Request
from geminorum.testing.server import JSON, HttpReply

_MODELS = re.compile(r"/models/?(?P<model>[^/:]*)$")
_LISTED = ("gemini-3.1-pro-preview", "gemini-3.8-flash", "gemini-3.5-flash-lite", "gemini-2.5-pro")
_LINE_ENDS = (
    ("\u0085".encode(), b"\\u0085"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def delivered(answer: Answer, request: Request, sse: bool, response_id: str) -> HttpReply:
    match answer:
        case Hang():
            return HttpReply(ending="hang")
        case Raw(body, status, content_type, headers):
            return HttpReply(status, content_type, (body,), headers=headers)
        case Fail() if not (answer.after and request.stream):
            return refused(answer, request.model)
        case Fail():
            begun = Say(answer.after, finish=None, delay=answer.delay)
            error = replies.error(answer, request.model)
            return _spoken(begun, request, sse, response_id, error)
        case Say():
            return _spoken(answer, request, sse, response_id)


def refused(answer: Fail, model: str = "") -> HttpReply:
    body = encoded(replies.error(answer, model))
    wait = answer.retry_after
    headers = {} if wait is None else {"Retry-After": f"{wait:g}"}
    return HttpReply(answer.code, pieces=(body,), delay=answer.delay, headers=headers)


def no_model_call(method: str, path: str) -> HttpReply:
    found = _MODELS.search(unquote(path))
    if method != "GET" or found is None:
        return refused(Fail(404, f"FakeGemini does not serve {method} {path}."))
    if model := found["model"]:
        return in_json(replies.model_info(model))
    return in_json({"models": [replies.model_info(model) for model in _LISTED]})


def in_json(value: dict[str, Any]) -> HttpReply:
    return HttpReply(pieces=(encoded(value),))


def encoded(value: dict[str, Any]) -> bytes:
    """JSON in which no line ends early: clients exist that split a stream at U+2028."""
    found = msgspec.json.encode(value)
    for raw, escaped in _LINE_ENDS:
        found = found.replace(raw, escaped)
    return found


def _spoken(
    answer: Say, request: Request, sse: bool, response_id: str, *more: dict[str, Any]
) -> HttpReply:
    chunks = replies.streamed(answer, request, response_id)
    if not request.stream:
        return _at_once(answer, replies.whole(chunks))
    bodies = [encoded(chunk) for chunk in (*chunks, *more)]
    return HttpReply(
        content_type="text/event-stream" if sse else JSON,
        pieces=tuple(_events(bodies) if sse else _array(bodies)),
        streamed=True,
        delay=answer.delay,
        drip=answer.drip,
        ending=answer.ending,
    )


def _at_once(answer: Say, body: dict[str, Any]) -> HttpReply:
    pieces = () if answer.ending == "hang" else (encoded(body),)
    return HttpReply(pieces=pieces, delay=answer.delay, ending=answer.ending)


def _events(bodies: Iterable[bytes]) -> Iterator[bytes]:
    return (b"data: %b\r\n\r\n" % body for body in bodies)


def _array(bodies: Sequence[bytes]) -> Iterator[bytes]:
    for number, body in enumerate(bodies, 1):
        yield b"%b%b%b" % (b"[" if number == 1 else b",\r\n", body, b"]" * (number == len(bodies)))
