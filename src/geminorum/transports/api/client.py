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
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from geminorum import errors
from geminorum.credentials import fingerprint_of
from geminorum.decisions import run_in_thread
from geminorum.errors import AuthError, GeminorumError, InvalidOptions, SetupError
from geminorum.events import Error
from geminorum.hints import advice, python_only
from geminorum.redaction import redacted
from geminorum.runtime.lazy import lazy_module
from geminorum.system.shortage import explain_shortage, require_descriptor
from geminorum.wire.genai.answer import ApiRefusal, BadChunk
from geminorum.wire.genai.request import Content
from geminorum.wire.genai.sse import EventStream
from geminorum.wire.genai.verdict import error_of, refusal, refused

if TYPE_CHECKING:
    from google import genai
    from google.genai import types

    from geminorum.transports.api.transport import Api
else:
    # An extra, and slow to load: `_loaded` says what to install.
    genai = lazy_module("google.genai")
    types = lazy_module("google.genai.types")

Deliver: TypeAlias = Callable[[bytes], Awaitable[None]]

_HTTP_LIBRARIES = ("httpx", "httpx2", "httpcore", "httpcore2", "h11", "ssl", "socket")
# The SDK demands contents of its own; ours replace them, to the letter.
_PLACEHOLDER = "."
_GOOGLE = "https://generativelanguage.googleapis.com"
_VERTEX_HINT = advice(
    "[{Api.vertex=True|Api(vertex=True, project=…, location=…)}, or ]GOOGLE_CLOUD_PROJECT; "
    "then `gcloud auth application-default login`"
)


class Failed(Exception):
    """The request came to nothing; the Error says why, and whether to try again."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class GenaiClient:
    """One SDK client, for one event loop, closed with its block."""

    def __init__(self, transport: Api, env: Mapping[str, str]) -> None:
        self._transport, self._env = transport, env
        self._stack = AsyncExitStack()
        self._deliver: Deliver | None = None
        self._on_connected: Callable[[], None] = lambda: None
        self.is_connected = False
        """Did the last request get through to a server?"""
        self._refusal: Error | None = None
        self.address = self._base_url() or _GOOGLE
        """Where the last request went."""
        self._secret = ""  # nosec B105  # none yet

    async def __aenter__(self) -> GenaiClient:
        credentials = self._load_credentials()
        await run_in_thread(_load)  # Half a second, in which the loop has better to do.
        async with AsyncExitStack() as stack:
            http = _http_library()
            # Without a client of our own the SDK takes whatever is installed, and with aiohttp
            # come other limits, other errors, and waits that nobody asked for.
            asynchronous = await stack.enter_async_context(self._http_client(http))
            plain = stack.enter_context(http.Client(verify=_trusted()))
            clients = {"httpx_client": plain, "httpx_async_client": asynchronous}
            # In a thread, where there is no loop: a client that could not be made would leave a
            # task behind, and that task a complaint.
            self._client = await run_in_thread(self._sdk_client, credentials, clients)
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

    def _http_client(self, http: Any) -> Any:
        proxy = self._transport.proxy or proxy_for(self._base_url() or _GOOGLE, self._env)
        hooks = {"request": [self._follow], "response": [self._take_over]}
        try:
            # A redirect would take the key along.
            return http.AsyncClient(
                verify=_trusted(),
                proxy=proxy,
                trust_env=False,
                follow_redirects=False,
                event_hooks=hooks,
            )
        except (ImportError, ValueError) as error:
            hint = "http:// and https:// always work; socks5:// needs `pip install socksio`"
            # Not the address itself: it may hold a password.
            raise InvalidOptions(f"the proxy cannot be used: {error}", hint=hint) from error

    def _sdk_client(self, credentials: dict[str, Any], clients: dict[str, Any]) -> Any:
        transport = self._transport
        options = types.HttpOptions(
            base_url=self._base_url(),
            api_version=transport.api_version or ("v1beta1" if transport.vertex else "v1beta"),
            headers=dict(transport.headers),
            # Otherwise each client makes one for a live connection that nobody opens.
            async_client_args={"ssl": _trusted()},
            **clients,
        )
        try:
            # `vertexai` is told either way: left out, a variable of the environment would decide.
            return genai.Client(vertexai=transport.vertex, http_options=options, **credentials)
        except Exception as error:
            said = str(error)
        # Outside of the handler: what was half made goes with its exception, here and now.
        raise _setup_error(said)

    def _base_url(self) -> str | None:
        name = "GOOGLE_VERTEX_BASE_URL" if self._transport.vertex else "GOOGLE_GEMINI_BASE_URL"
        return self._transport.base_url or self._env.get(name) or None

    def _load_credentials(self) -> dict[str, Any]:
        transport = self._transport
        if transport.vertex and transport.api_key is None:
            return self._of_google_cloud()
        self._secret = transport.api_key or api_key_in(self._env)
        return {"api_key": self._secret}

    def _of_google_cloud(self) -> dict[str, Any]:
        transport, env = self._transport, self._env
        project = transport.project or env.get("GOOGLE_CLOUD_PROJECT")
        if not project:
            raise AuthError("Vertex AI needs a project", hint=_VERTEX_HINT)
        location = transport.location or env.get("GOOGLE_CLOUD_LOCATION") or "global"
        return {"project": project, "location": location, "credentials": transport.credentials}

    def check(self, config: Mapping[str, Any]) -> None:
        """Refuses a setting that the SDK does not know, before anything is sent."""
        try:
            types.GenerateContentConfig(**config)
        except (ValueError, TypeError) as error:
            hint = python_only("the names are those of google.genai.types.GenerateContentConfig")
            raise InvalidOptions(f"config: {error}", hint=hint) from error

    @property
    def key(self) -> str | None:
        """The fingerprint of the API key; None on Vertex AI without one."""
        return fingerprint_of(self._secret) if self._secret else None

    async def send(
        self,
        model: str,
        contents: Sequence[Content],
        config: Mapping[str, Any],
        deliver: Deliver,
        on_connected: Callable[[], None] = lambda: None,
    ) -> None:
        """Hands each chunk of the answer to `deliver`; returns at its end. Raises Failed.

        To leave early, cancel the task: it is always inside the SDK's own wait, which then closes
        the connection at once.
        """
        self._deliver, self._refusal = deliver, None
        self._on_connected, self.is_connected = on_connected, False
        body = {"contents": list(contents)}
        arguments = {
            "model": model,
            "contents": _PLACEHOLDER,
            "config": {**config, "http_options": {"extra_body": body}},
        }
        try:
            await self._send(arguments)
        except (ApiRefusal, BadChunk) as error:
            raise Failed(_misread(error)) from error
        except Exception as error:
            # Told by the hook, out of sight of the type checker.
            refusal: Error | None = self._refusal
            raise Failed(refusal or self._failure(error)) from error

    async def _send(self, arguments: dict[str, Any]) -> None:
        models = self._client.aio.models
        if not self._transport.stream:
            await models.generate_content(**arguments)
            return
        async for _ in await models.generate_content_stream(**arguments):
            pass  # Nothing comes: the chunks have been taken out of the stream below.

    async def _follow(self, request: Any) -> None:
        """Called by the HTTP client before it looks for a connection."""
        self.address = f"{request.url.scheme}://{request.url.netloc.decode()}"
        request.extensions["trace"] = self._trace

    async def _trace(self, step: str, about: Mapping[str, Any]) -> None:
        """Called by the HTTP client at each step; a proxy is asked first, and is not the goal."""
        if step.endswith("send_request_headers.started") and about["request"].method != b"CONNECT":
            self.is_connected = True
            self._on_connected()

    async def _take_over(self, response: Any) -> None:
        """Called by the HTTP client when the head of a response is there, and its body is not."""
        if response.status_code != 200:
            body = await response.aread()
            self._refusal = refusal(
                response.status_code, response.reason_phrase, response.headers, body
            )
            return
        assert self._deliver is not None
        response.stream = _adopt(response, self._deliver, stream=self._transport.stream)

    def _failure(self, error: Exception) -> Error:
        name = type(error).__name__
        text = redacted(f"{name}: {error}", [self._secret] if self._secret else [])
        library = type(error).__module__.partition(".")[0]
        if library in _HTTP_LIBRARIES or isinstance(error, OSError):
            return _shortage() or error_of(errors.NetworkError, self._network_failure(text))
        if isinstance(error, ValueError):
            return error_of(errors.InvalidOptions, text)
        if type(error).__module__.startswith("google.auth"):
            return error_of(AuthError, text)
        return error_of(errors.RunFailed, text)

    def _network_failure(self, text: str) -> str:
        if self.is_connected:
            return f"the connection to {self.address} broke: {text}"
        return f"cannot reach {self.address}: {text}"


def api_key_in(env: Mapping[str, str]) -> str:
    """The key that the SDK would take from this environment."""
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY"):
        if key := env.get(name, "").strip():
            return key
    raise AuthError(
        "there is no API key for the Gemini API",
        hint=advice(
            "{set_key|set GEMINI_API_KEY} (a key from https://aistudio.google.com/apikey)"
            "[, pass {Api.api_key=…}][, or choose Vertex AI: "
            "{Api.vertex=True|Api(vertex=True, project=…)}][{offline|}]"
        ),
    )


def proxy_for(url: str, env: Mapping[str, str]) -> str | None:
    """The proxy that the variables of `env` name for this address."""
    address = urlsplit(url)
    exceptions = env.get("no_proxy") or env.get("NO_PROXY") or ""
    if proxy_bypass_environment(address.hostname or "", {"no": exceptions}):
        return None
    names = (f"{address.scheme}_proxy", "all_proxy")
    known = (env.get(spelled) for name in names for spelled in (name, name.upper()))
    return next(filter(None, known), None)


def _load() -> None:
    try:
        import_module("google.genai")
    except ImportError as error:
        raise SetupError(
            f"Api needs Google's SDK: {error}",
            hint="install it with `pip install 'geminorum[api]'`",
        ) from error


def _http_library() -> Any:
    """The one that this SDK speaks: httpx up to 2, httpx2 from 3 on."""
    return import_module("httpx" if int(genai.__version__.partition(".")[0]) < 3 else "httpx2")


@cache
def _trusted() -> ssl.SSLContext:
    # Made once: it takes longer than everything else that a client needs.
    return ssl.create_default_context()


def _adopt(response: Any, deliver: Deliver, *, stream: bool) -> Any:
    http = import_module(type(response).__module__.partition(".")[0])
    # A response of its own undoes the compression; the outer one must not try again.
    inner = http.Response(200, headers=response.headers, stream=response.stream)
    response.headers.pop("content-encoding", None)
    read = _deliver_events if stream else _deliver_body

    class TakenOver(http.AsyncByteStream):  # type: ignore[misc, name-defined]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            await read(inner, deliver)
            # What the SDK gets: no event at all, or an answer without content.
            yield b"" if stream else b"{}"

        async def aclose(self) -> None:
            await inner.aclose()

    return TakenOver()


async def _deliver_events(response: Any, deliver: Deliver) -> None:
    events = EventStream()
    async for piece in response.aiter_bytes():
        for data in events.feed(piece):
            await deliver(data)
    for data in events.close():
        await deliver(data)


async def _deliver_body(response: Any, deliver: Deliver) -> None:
    if body := await response.aread():
        await deliver(body)


def _misread(error: ApiRefusal | BadChunk) -> Error:
    if isinstance(error, ApiRefusal):
        return refused(error.error)
    hint = advice(
        "is this the Gemini API?[ Check {Api.base_url}][; what arrived before is in {.result}]"
    )
    return Error(f"bad chunk: {error}", errors.ProtocolError.code, hint=hint, retryable=False)


def _shortage() -> Error | None:
    """Is it for want of a descriptor that no connection could be made? No library says so."""
    try:
        with explain_shortage():
            require_descriptor()
    except SetupError as error:
        return Error(error.message, error.code, hint=error.hint)
    return None


def _setup_error(said: str) -> GeminorumError:
    return AuthError(f"Google's SDK refuses these credentials: {said}", hint=_VERTEX_HINT)
