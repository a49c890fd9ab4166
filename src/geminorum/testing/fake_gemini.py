"""FakeGemini: a Gemini API on loopback that answers from a script and records its requests."""

import itertools
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct

from geminorum.testing import replies
from geminorum.testing.answers import Answer, Fail, Say
from geminorum.testing.balance import imbalance
from geminorum.testing.delivery import delivered, in_json, no_model_call, refused
from geminorum.testing.home import environment, make_private_home
from geminorum.testing.request import Request, read
from geminorum.testing.script import SCRIPTED, Script
from geminorum.testing.server import HttpReply, HttpRequest, Server
from geminorum.testing.side_calls import SIDE_KINDS, Routing, default_answer, kind_of


class FakeGemini(Script):
    """A Gemini API for one `with` (or `async with`) block; nothing of it outlives the block.

    `default` is the answer when the script has run out; without it, such a request fails with HTTP
    400. `routing` is the decision of the CLI's model router when the model is `auto`. `settings` go
    into the private home's settings.json.
    """

    def __init__(
        self,
        *,
        default: str | None = None,
        routing: Routing = "flash",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._default = default
        self._routing = routing
        self._settings = settings or {}
        self._numbers = itertools.count(1)
        self._by_http: dict[HttpRequest, Request] = {}
        self._running: _Running | None = None
        self.log: list[Request] = []
        """Every call to a model, in order of arrival."""
        self.abandoned: list[Request] = []
        """Requests whose client hung up before the answer was complete."""

    @property
    def requests(self) -> list[Request]:
        """The model's own turns, in order: the requests that the script answered."""
        return [request for request in self.log if request.kind in SCRIPTED]

    @property
    def side_calls(self) -> list[Request]:
        """The CLI's internal requests: routing, summaries, web search …"""
        return [request for request in self.log if request.kind in SIDE_KINDS]

    @property
    def url(self) -> str:
        """The base URL, without an API version."""
        return f"http://127.0.0.1:{self._alive().server.port}"

    @property
    def home(self) -> Path:
        """A private home for the CLI, removed at the end of the block."""
        return self._alive().home

    @property
    def env(self) -> dict[str, str]:
        """Variables that a child process needs, besides `os.environ`, to talk only to this fake."""
        return environment(self.url, self.home)

    def __enter__(self) -> Self:
        if self._running:
            raise RuntimeError("this FakeGemini is already running")
        with ExitStack() as stack:
            home = stack.enter_context(make_private_home(self._settings))
            server = stack.enter_context(Server(self._respond, self._note_abandoned))
            self._running = _Running(server, home, stack.pop_all())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stack = self._alive().stack
        self._running = None
        stack.close()

    async def __aenter__(self) -> Self:
        # Both ends take milliseconds; a helper thread would outlive the block.
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def _alive(self) -> "_Running":
        if self._running is None:
            raise RuntimeError("FakeGemini runs inside its block only: with FakeGemini() as fake:")
        return self._running

    def _note_abandoned(self, http: HttpRequest) -> None:
        if http in self._by_http:
            self.abandoned.append(self._by_http[http])

    def _respond(self, http: HttpRequest) -> HttpReply:
        path = urlsplit(http.target).path
        try:
            request = read(path, http.headers, http.body) if http.method == "POST" else None
        except ValueError as error:
            return refused(Fail(400, f"Invalid JSON payload received: {error}"))
        if request is None:
            return no_model_call(http.method, path)
        request = msgspec.structs.replace(request, kind=kind_of(request))
        self._by_http[http] = request
        self.log.append(request)
        return self._reply(request, sse=parse_qs(urlsplit(http.target).query).get("alt") == ["sse"])

    def _reply(self, request: Request, sse: bool) -> HttpReply:
        if request.kind == "count":
            return in_json(replies.token_count(request))
        if request.kind == "other":
            return refused(Fail(404, f"FakeGemini does not know the method {request.method}."))
        if wrong := imbalance(request.contents):
            return refused(Fail(400, wrong))
        try:
            answer = self._answer(request)
            return delivered(answer, request, sse, f"fake-{next(self._numbers)}")
        except Exception as error:
            # A function or a value of the test failed in our thread: the client is told, at once.
            return refused(Fail(400, f"FakeGemini's script raised {error!r}"))

    def _answer(self, request: Request) -> Answer:
        found = self.answer_to(request)
        if found is not None:
            return found
        if request.kind not in SCRIPTED:
            return default_answer(request, self._routing)
        if self._default is not None:
            return Say((self._default,))
        return Fail(400, _ran_out(request))


class _Running(Struct, frozen=True):
    server: Server
    home: Path
    stack: ExitStack


def _ran_out(request: Request) -> str:
    prompt = request.prompt if len(request.prompt) <= 200 else request.prompt[:200] + "…"
    return (
        "FakeGemini has no answer scripted for this request "
        f"(prompt {prompt!r}, round {request.round} of tool results); add fake.say(…)"
    )
