"""The body of an API answer, to its events and to the turn that is sent back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from fuzz.seeds import more_seeds
from fuzz.soundness import Unsound, require_same_in_pieces, require_sound
from fuzz.target import Target
from geminorum.events import Event
from geminorum.transports.api.client import _misread
from geminorum.wire.genai.answer import ApiRefusal, BadChunk, FunctionCall, ModelAnswer
from geminorum.wire.genai.sse import EventStream
from geminorum.wire.genai.verdict import failure, remark

_SEEDS = (
    b'data: {"candidates":[{"content":{"parts":[{"text":"Hel"}],"role":"model"}}],'
    b'"usageMetadata":{"promptTokenCount":4},"modelVersion":"gemini-2.5-flash"}\r\n\r\n'
    b'data: {"candidates":[{"content":{"parts":[{"text":"lo","thought":true},{"text":"!"}]},'
    b'"finishReason":"STOP","finishMessage":"so"}],"usageMetadata":{"promptTokenCount":4,'
    b'"candidatesTokenCount":2,"thoughtsTokenCount":1,"totalTokenCount":7}}\r\n\r\n',
    b'data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"add","id":"c1",'
    b'"args":{"a":1,"b":[2]}},"thoughtSignature":"c2ln"}]},"finishReason":"STOP"}]}\n\n',
    b'data: {"candidates":[{"content":{"parts":[{"executableCode":{"language":"PYTHON",'
    b'"code":"print(1)","id":"e"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1",'
    b'"id":"e"}},{"toolCall":{"toolType":"GOOGLE_SEARCH","id":"t","args":{"q":"x"}}},'
    b'{"toolResponse":{"toolType":"GOOGLE_SEARCH","id":"t","response":{}}},'
    b'{"inlineData":{"mimeType":"image/png","data":"AA=="}}]}}]}\n\n',
    b'data: {"promptFeedback":{"blockReason":"SAFETY","blockReasonMessage":"no"}}\n\n',
    b': comment\nevent: x\nid: 1\nretry: 3\ndata: {"candidates":[\ndata: ]}\n\ndata: [DONE]\n\n',
    b'{\n"error": {"code": 503, "message": "overloaded; retry in 3.5s", "status": "UNAVAILABLE",\n'
    b'"details": [{"@type": "RetryInfo", "retryDelay": "7s"}]}\n}\n\n',
)


def run(data: bytes) -> None:
    for chunk in require_same_in_pieces(_chunks, data):
        require_sound(_events(ModelAnswer("s"), [chunk]))
    answer = ModelAnswer("s")
    require_sound(_events(answer, _chunks([data])))
    require_sound(event for event in (failure(answer), remark(answer)) if event)
    repr((answer.request("m", 0), answer.text))
    for call in answer.calls:
        _require_call(call)
    msgspec.json.encode(answer.parts)


def _require_call(call: FunctionCall) -> None:
    try:
        msgspec.convert(msgspec.to_builtins(call), FunctionCall)
    except msgspec.ValidationError as error:
        raise Unsound(f"a call that is none: {error}") from error


def _chunks(pieces: Iterable[bytes]) -> list[bytes]:
    stream = EventStream()
    return [*(data for piece in pieces for data in stream.feed(piece)), *stream.close()]


def _events(answer: ModelAnswer, chunks: Iterable[bytes]) -> Iterator[Event]:
    try:
        for chunk in chunks:
            yield from answer.add(chunk)
    except (ApiRefusal, BadChunk) as error:
        yield _misread(error)
    yield from answer.close()


TARGET = Target("api-answer", run, (*_SEEDS, *more_seeds("sse")), words=(b"\n\n", b"data: "))
