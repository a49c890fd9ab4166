"""ShareGPT conversations from events, the format that training tools read.

Thoughts, calls and results have their own tags: `<think>…</think>`, then the text, then
`<tool_call>{"name", "arguments"}</tool_call>`; a `tool` turn holds one `<tool_response>{"name",
"status", "content"}</tool_response>` per call. Their JSON never contains `<`, so no tool output can
close its tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from geminorum.events import Event, Text, Thinking, UserMessage
from geminorum.views.transcript import (
    Aside,
    Entry,
    TranscriptAnswer,
    TranscriptCall,
    as_text,
    transcript_of,
)


def conversation(events: Iterable[Event], *, thoughts: bool = True) -> dict[str, Any]:
    """`{"id", "conversations": [{"from", "value"}]}`; `from` is human, gpt, tool or system."""
    transcript = transcript_of(events)
    turns = [turn for entry in transcript.entries for turn in _turns(entry, thoughts)]
    named = [{"from": who, "value": value} for who, value in turns if value]
    return {"id": transcript.session_id or "", "conversations": named}


def _turns(entry: Entry, thoughts: bool) -> Iterator[tuple[str, str]]:
    match entry:
        case UserMessage():
            yield "human", entry.text
        case TranscriptAnswer():
            yield "gpt", _answer(entry, thoughts)
            calls = [part for part in entry.parts if isinstance(part, TranscriptCall)]
            yield "tool", "\n".join(_response(call) for call in calls if call.result)
        case Aside(kind="session_context"):
            yield "system", entry.text
        case Aside():
            pass  # Errors and questions are about the run, not part of what was said.


def _answer(answer: TranscriptAnswer, thoughts: bool) -> str:
    thought = [part.text for part in answer.parts if isinstance(part, Thinking)]
    texts = [part.text for part in answer.parts if isinstance(part, Text)]
    calls = [_call(part) for part in answer.parts if isinstance(part, TranscriptCall)]
    inner = "\n\n".join(thought) if thoughts else ""
    return "\n".join(filter(None, [f"<think>\n{inner}\n</think>" if inner else "", *texts, *calls]))


def _call(call: TranscriptCall) -> str:
    return _marked("tool_call", {"name": call.use.name, "arguments": call.use.input})


def _response(call: TranscriptCall) -> str:
    result = call.result
    told = (result.content or as_text(result.output)) if result else ""
    response = {"name": call.use.name, "status": call.status, "content": told}
    return _marked("tool_response", response)


def _marked(mark: str, data: dict[str, Any]) -> str:
    text = msgspec.json.encode(data).decode().replace("<", "\\u003c")
    return f"<{mark}>{text}</{mark}>"
