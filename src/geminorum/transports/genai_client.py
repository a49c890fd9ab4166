"""A request through Google's SDK, and the chunks of its answer as they came over the wire.

The SDK addresses, signs and sends. The answer is read here, before the SDK sees it: what it would
parse it also drops (`finishMessage`, every part it has no word for) and fails at (comments, odd
line ends, reasons newer than itself), and a stream that it hands on stays open when it is left.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from geminorum import errors
from geminorum.errors import AuthError, GeminorumError, InvalidOptions, SetupError
from geminorum.events import Error
from geminorum.redaction import redacted
from geminorum.wire.genai import ApiRefusal, BadChunk
from geminorum.wire.genai_request import Content, body_of
from geminorum.wire.genai_verdict import refusal, refused
from geminorum.wire.sse import EventStream

if TYPE_CHECKING:
    from geminorum.transports.api import Api

Deliver: TypeAlias = Callable[[bytes], Awaitable[None]]

_HTTP_LIBRARIES = ("httpx", "httpx2", "httpcore", "httpcore2", "h11", "ssl", "socket")
# The SDK demands contents of its own; ours replace them, to the letter.
_PLACEHOLDER = "."


class Failed(Exception):
    """The request came to nothing; the Error says why, and whether to try again."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class GenaiClient:
    """One SDK client, for one event loop, closed with its block."""

    def __init__(self, door: Api, env: Mapping[str, str]) -> None:
        self._door, self._env = door, env
        self._stack = AsyncExitStack()
        self._deliver: Deliver | None = None
        self._refusal: Error | None = None
        self._secret = ""

    async def __aenter__(self) -> GenaiClient:
        credentials = self._credentials()
        await asyncio.to_thread(_loaded)  # Half a second, in which the loop has better to do.
        async with AsyncExitStack() as stack:
            http = _http_library()
            # Without a client of our own the SDK takes whatever is installed, and with aiohttp
            # come other limits, other errors, and waits that nobody asked for.
            asynchronous = http.AsyncClient(**self._http_options(), event_hooks=self._hooks())
            await stack.enter_async_context(asynchronous)
            plain = stack.enter_context(http.Client(verify=_trusted()))
            clients = {"httpx_client": plain, "httpx_async_client": asynchronous}
            self._client = self._sdk_client(credentials, clients)
            stack.push_async_callback(self._drop)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _drop(self) -> None:
        del self._client
        # Its destructors start tasks, one behind the other, that have nothing to do: let them pass.
        for _ in range(4):
            await asyncio.sleep(0)

    def _http_options(self) -> dict[str, Any]:
        return {"verify": _trusted(), "follow_redirects": True, "proxy": self._door.proxy}

    def _hooks(self) -> dict[str, Any]:
        return {"response": [self._take_over]}

    def _sdk_client(self, credentials: dict[str, Any], clients: dict[str, Any]) -> Any:
        from google import genai
        from google.genai import types

        door = self._door
        options = types.HttpOptions(
            base_url=self._base_url(),
            api_version=door.api_version or ("v1beta1" if door.vertex else "v1beta"),
            headers=dict(door.headers),
            **clients,
        )
        # `vertexai` is told either way: left out, a variable of the environment would decide.
        try:
            return genai.Client(vertexai=door.vertex, http_options=options, **credentials)
        except Exception as error:
            raise _setup_error(error) from error

    def _base_url(self) -> str | None:
        name = "GOOGLE_VERTEX_BASE_URL" if self._door.vertex else "GOOGLE_GEMINI_BASE_URL"
        return self._door.base_url or self._env.get(name) or None

    def _credentials(self) -> dict[str, Any]:
        door = self._door
        if door.vertex and (door.project or door.credentials or not door.api_key):
            return {
                "project": door.project or self._env.get("GOOGLE_CLOUD_PROJECT"),
                "location": door.location,
                "credentials": door.credentials,
            }
        self._secret = door.api_key or api_key_in(self._env)
        return {"api_key": self._secret}

    def check(self, config: Mapping[str, Any]) -> None:
        """Refuses a setting that the SDK does not know, before anything is sent."""
        from google.genai import types

        try:
            types.GenerateContentConfig(**config)
        except ValueError as error:
            hint = "the names are those of google.genai.types.GenerateContentConfig"
            raise InvalidOptions(f"config: {error}", hint=hint) from error

    async def send(
        self,
        model: str,
        contents: Sequence[Content],
        config: Mapping[str, Any],
        deliver: Deliver,
    ) -> None:
        """Hands each chunk of the answer to `deliver`; returns at its end. Raises Failed.

        To leave early, cancel the task: it is always inside the SDK's own wait, which then closes
        the connection at once.
        """
        self._deliver, self._refusal = deliver, None
        arguments = {
            "model": model,
            "contents": _PLACEHOLDER,
            "config": {**config, "http_options": {"extra_body": body_of(contents)}},
        }
        try:
            await self._sent(arguments)
        except (ApiRefusal, BadChunk, GeminorumError) as error:
            raise Failed(_misread(error)) from error
        except Exception as error:
            # Told by the hook, out of sight of the type checker.
            refusal: Error | None = self._refusal
            raise Failed(refusal or self._failure(error)) from error

    async def _sent(self, arguments: dict[str, Any]) -> None:
        models = self._client.aio.models
        if not self._door.stream:
            await models.generate_content(**arguments)
            return
        async for _ in await models.generate_content_stream(**arguments):
            pass  # Nothing comes: the chunks have been taken out of the stream below.

    async def _take_over(self, response: Any) -> None:
        """Called by the HTTP client when the head of a response is there, and its body is not."""
        if response.is_redirect:
            return
        if response.status_code != 200:
            body = await response.aread()
            self._refusal = refusal(
                response.status_code, response.reason_phrase, response.headers, body
            )
            return
        assert self._deliver is not None
        response.stream = _taken_over(response, self._deliver, stream=self._door.stream)

    def _failure(self, error: Exception) -> Error:
        name = type(error).__name__
        text = redacted(f"{name}: {error}", [self._secret] if self._secret else [])
        library = type(error).__module__.partition(".")[0]
        if library in _HTTP_LIBRARIES or isinstance(error, OSError):
            return _error(errors.NetworkError, text)
        if isinstance(error, ValueError):
            return _error(errors.InvalidOptions, text)
        if type(error).__module__.startswith("google.auth"):
            return _error(AuthError, text)
        return _error(errors.RunFailed, text)


def api_key_in(env: Mapping[str, str]) -> str:
    """The key that the SDK would take from this environment."""
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY"):
        if key := env.get(name, "").strip():
            return key
    raise AuthError(
        "there is no API key for the Gemini API",
        hint="set GEMINI_API_KEY (a key from https://aistudio.google.com/apikey), "
        "pass Api(api_key=…), or choose Vertex AI: Api(vertex=True, project=…)",
    )


def _loaded() -> None:
    try:
        import_module("google.genai")
    except ImportError as error:
        raise SetupError(
            f"the Api door needs Google's SDK: {error}",
            hint="install it with `pip install 'geminorum[api]'`",
        ) from error


def _http_library() -> Any:
    """The one that this SDK speaks: httpx up to 2, httpx2 from 3 on."""
    from google import genai

    return import_module("httpx" if int(genai.__version__.partition(".")[0]) < 3 else "httpx2")


@cache
def _trusted() -> ssl.SSLContext:
    # Made once: it takes longer than everything else that a client needs.
    return ssl.create_default_context()


def _taken_over(response: Any, deliver: Deliver, *, stream: bool) -> Any:
    http = import_module(type(response).__module__.partition(".")[0])
    # A response of its own undoes the compression; the outer one must not try again.
    inner = http.Response(200, headers=response.headers, stream=response.stream)
    response.headers.pop("content-encoding", None)
    read = _chunks if stream else _whole

    class TakenOver(http.AsyncByteStream):  # type: ignore[misc, name-defined]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            await read(inner, deliver)
            # What the SDK gets: no event at all, or an answer without content.
            yield b"" if stream else b"{}"

        async def aclose(self) -> None:
            await inner.aclose()

    return TakenOver()


async def _chunks(response: Any, deliver: Deliver) -> None:
    events = EventStream()
    async for piece in response.aiter_bytes():
        for data in events.feed(piece):
            await deliver(data)
    for data in events.close():
        await deliver(data)


async def _whole(response: Any, deliver: Deliver) -> None:
    if body := await response.aread():
        await deliver(body)


def _misread(error: Exception) -> Error:
    if isinstance(error, ApiRefusal):
        return refused(error.error)
    if isinstance(error, BadChunk):
        hint = "is this the Gemini API? Check base_url; what arrived before is in .result"
        return Error(f"bad chunk: {error}", errors.ProtocolError.code, hint=hint, retryable=False)
    assert isinstance(error, GeminorumError)
    return Error(error.message, error.code, hint=error.hint, retryable=error.retryable)


def _setup_error(error: Exception) -> GeminorumError:
    return AuthError(
        f"Google's SDK refuses these credentials: {error}",
        hint="for Vertex AI: Api(vertex=True, project=…, location=…) and "
        "`gcloud auth application-default login`",
    )


def _error(kind: type[GeminorumError], text: str) -> Error:
    return Error(text, kind.code, hint=kind.default_hint, retryable=kind.default_retryable)
