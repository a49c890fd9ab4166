"""Claude-format messages, as plain dicts, from saved sessions and event streams.

The format comes from an MIT document: the Gemini integration of agentcmd, (c) 2025 Sourceborn. The
code is our own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import (
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Protocol,
    TypeAlias,
    TypedDict,
    runtime_checkable,
)

import msgspec

from geminorum.events import (
    Done,
    Event,
    ModelRequest,
    Text,
    TextDelta,
    Thinking,
    Tokens,
    ToolResult,
    ToolUse,
    UserMessage,
    encode,
)
from geminorum.wire.clock import Clock
from geminorum.wire.sessions.events import events_of, thought_text
from geminorum.wire.sessions.records import SavedMessage, is_context, message_of, text_of
from geminorum.wire.sessions.turns import in_turns


class TextBlock(TypedDict):
    type: Literal["text"]
    text: str


class ThinkingBlock(TypedDict):
    type: Literal["thinking"]
    thinking: str


class ToolUseBlock(TypedDict):
    type: Literal["tool_use"]
    id: str
    name: str
    """Claude's name for the tool; the tool's own name if Claude has no such tool."""
    input: dict[str, Any]


class ToolResultBlock(TypedDict):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str
    is_error: bool


Block: TypeAlias = TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock


class MessageUsage(TypedDict):
    """The tokens of one request. `input_tokens` includes the cached ones."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class Message(TypedDict):
    """One message in Claude's format."""

    id: str | None
    role: Literal["user", "assistant", "system"]
    content: list[Block] | str
    """The blocks, or the plain text of a message without blocks."""
    timestamp: int | None
    """Milliseconds since 1970."""
    tool: Literal["gemini"]
    model: NotRequired[str]
    usage: NotRequired[MessageUsage]
    isMeta: NotRequired[bool]
    """True for the context that the CLI puts before every conversation."""
    _original: Any
    """The message of the session file; for a message from a stream, its events."""


@runtime_checkable
class Conversation(Protocol):
    """What a saved session has."""

    @property
    def messages(self) -> Iterable[SavedMessage]: ...


def claude(source: Conversation | Iterable[Event], *, context: bool = False) -> list[Message]:
    """Converts a saved session or the events of a run to Claude's format.

    Both give the same messages for the same run, except for what `without_origin` removes and for
    what docs/agent-cli.md names.
    `context` includes what the CLI says before every conversation, marked with `isMeta`.
    """
    if not isinstance(source, Conversation):
        return _from_events(source, context)
    messages = in_turns(source.messages)
    return [of_saved(message) for message in messages if _is_told(message, context)]


def of_saved(message: SavedMessage) -> Message:
    """One saved message, whatever it is."""
    # A call that has no result in the file, whatever its status, has none here.
    answered = {call.id or None for call in message.tool_calls or () if call.result}
    events = [
        event
        for event in _all_events_of(message)
        if not isinstance(event, ToolResult) or event.id in answered
    ]
    told: Message = {
        "id": message.id,
        "role": _ROLES.get(message.type or "", "system"),
        "content": _content(events, _text(events) or text_of(message.content), message),
        "timestamp": Clock().milliseconds(message.timestamp),
        "tool": "gemini",
        "_original": msgspec.json.decode(message.raw),
    }
    if is_context(message):
        told["isMeta"] = True
    return _with_model(told, message.model, message.tokens)


def without_origin(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Removes what a stream and a file cannot have in common: ids, times, `_original`."""
    return [
        {key: value for key, value in message.items() if key not in _ORIGIN} for message in messages
    ]


def usage_of(tokens: Tokens) -> MessageUsage:
    """What a request consumed, in the shape's words.

    The cached tokens are not named: in Claude's format those come on top of the input, and front
    ends add them up; in Gemini's counts they are a part of it.
    """
    return {
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "total_tokens": tokens.total,
    }


def claude_name(tool: str) -> str:
    """Returns the name of Claude's equivalent tool, or the name itself if there is none."""
    return _TOOLS[tool].name if tool in _TOOLS else tool


def claude_input(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a call's arguments under the names that Claude's tool uses."""
    if tool == "write_todos":
        return {**arguments, "todos": _todos(arguments.get("todos"))}
    return _TOOLS[tool].input(arguments) if tool in _TOOLS else dict(arguments)


_ORIGIN = frozenset({"id", "timestamp", "_original"})
_ROLES: dict[str, Literal["user", "assistant"]] = {"user": "user", "gemini": "assistant"}
_NOTES = ("info", "warning", "error")
_ANSWER = (Thinking, Text, ToolUse, ToolResult)
_SPACE = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""What JavaScript's `trim` takes away."""


# ---- which messages


def _is_told(message: SavedMessage, context: bool) -> bool:
    """Is it a part of the conversation? What a tool answered stands with its call already."""
    if is_context(message):
        return context
    return message.type != "broken" and not _answers_tools(message)


def _answers_tools(message: SavedMessage) -> bool:
    parts = message.content if isinstance(message.content, list) else []
    answers = any(isinstance(part, dict) and "functionResponse" in part for part in parts)
    return answers and message.type == "user" and not text_of(parts).strip(_SPACE)


def _from_events(events: Iterable[Event], context: bool) -> list[Message]:
    drafts, requests = _drafts(events)
    answers = [draft for draft in drafts if draft.is_answer]
    if len(answers) == len(requests):
        for draft, request in zip(answers, requests, strict=True):
            draft.request = request
    return [
        draft.message(number)
        for number, draft in enumerate(drafts)
        if draft.saved is None or _is_told(draft.saved, context)
    ]


def _drafts(events: Iterable[Event]) -> tuple[list[_Draft], tuple[ModelRequest, ...]]:
    drafts: list[_Draft] = []
    requests: tuple[ModelRequest, ...] = ()
    for event in events:
        if isinstance(event, Done):
            requests += event.usage.requests if event.usage else ()
        elif type(event) is not TextDelta:
            _place(event, drafts)
    return drafts, requests


def _place(event: Event, drafts: list[_Draft]) -> None:
    last = drafts[-1] if drafts else None
    saved = _saved_in(event, last)
    # What else a run says, its failures too, is no part of the conversation; what the CLI has
    # saved in it is.
    if saved is None and not isinstance(event, (*_ANSWER, UserMessage)):
        return
    if last is None or last.ends_before(event, saved):
        last = _Draft()
        drafts.append(last)
    last.add(event, saved)


def _saved_in(event: Event, last: _Draft | None) -> SavedMessage | None:
    """The message of a session file that an event was read from; None for one of a stream."""
    if event.frame is msgspec.UNSET:
        return None
    if last and last.events[-1].frame is event.frame:
        return last.saved  # Read already: all events of a message share its bytes.
    message = message_of(event.frame)
    return message if message.id and message.type in (*_ROLES, *_NOTES) else None


@dataclass(slots=True)
class _Draft:
    """Events that make one message."""

    events: list[Event] = field(default_factory=list)
    saved: SavedMessage | None = None
    """The message in the session file, as last written, where an event was read from it."""
    is_streamed: bool = False
    request: ModelRequest | None = None

    @property
    def is_answer(self) -> bool:
        return isinstance(self.events[0], _ANSWER)

    def add(self, event: Event, saved: SavedMessage | None) -> None:
        self.events.append(event)
        self.saved = saved or self.saved
        self.is_streamed |= saved is None

    def ends_before(self, event: Event, saved: SavedMessage | None) -> bool:
        if saved and self.saved:
            return saved.id != self.saved.id
        if not self.is_answer or not isinstance(event, _ANSWER):
            return True
        return isinstance(self.events[-1], ToolResult) and not isinstance(event, ToolResult)

    def message(self, number: int) -> Message:
        if self.saved and self._is_all_of(self.saved):
            return of_saved(self.saved)
        first = self.events[0]
        # The CLI, too, saves an answer without the space around it, and a prompt with it.
        text = _text(self.events).strip(_SPACE) if self.is_answer else _text(self.events)
        told: Message = {
            "id": self.saved.id if self.saved else f"{first.session_id or 'message'}:{number}",
            "role": "assistant" if self.is_answer else "user",
            "content": _content(self.events, text, self.saved),
            "timestamp": first.timestamp,
            "tool": "gemini",
            "_original": [msgspec.json.decode(encode(event)) for event in self.events],
        }
        return _with_model(told, *self._consumed())

    def _is_all_of(self, saved: SavedMessage) -> bool:
        """A live stream takes only the thoughts from the file; its texts are its own."""
        return not self.is_streamed and len(self.events) == len(list(events_of(saved)))

    def _consumed(self) -> tuple[str | None, Tokens | None]:
        if self.saved and self.saved.tokens:
            return self.saved.model, self.saved.tokens
        return (self.request.model, self.request) if self.request else (None, None)


# ---- what is in a message


def _all_events_of(message: SavedMessage) -> list[Event]:
    """The events of a message; thoughts and calls count in messages of any author."""
    events = list(events_of(message))
    if message.type != "gemini" and (message.thoughts or message.tool_calls):
        as_answer = events_of(msgspec.structs.replace(message, type="gemini"))
        events += [event for event in as_answer if not isinstance(event, Text)]
    return events


def _with_model(message: Message, model: str | None, tokens: Tokens | None) -> Message:
    if model:
        message["model"] = model
    if tokens is not None:
        message["usage"] = usage_of(tokens)
    return message


def _text(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text | UserMessage))


def _content(events: list[Event], text: str, saved: SavedMessage | None) -> list[Block] | str:
    """Thoughts, then each call with its result, then the text; without any, the text as it is."""
    blocks: list[Block] = [*_thoughts(events, saved), *_calls(events)]
    if text.strip(_SPACE):
        blocks.append({"type": "text", "text": text})
    return blocks or text


def _thoughts(events: list[Event], saved: SavedMessage | None) -> Iterator[ThinkingBlock]:
    # The document writes the colon after an empty subject too; our events leave it out.
    thoughts = (saved.thoughts if saved else None) or []
    spelled = {thought_text(one): f"{one.subject}: {one.description}" for one in thoughts}
    for event in events:
        if isinstance(event, Thinking):
            yield {"type": "thinking", "thinking": spelled.get(event.text, event.text)}


def _calls(events: list[Event]) -> Iterator[Block]:
    results = [event for event in events if isinstance(event, ToolResult)]
    for use in events:
        if isinstance(use, ToolUse):
            yield _tool_use(use)
            found = next((result for result in results if result.id == use.id), None)
            if found is not None:
                results.remove(found)
                yield _tool_result(found)
    # A stream that was joined late has results whose calls it did not see.
    yield from map(_tool_result, results)


def _tool_use(use: ToolUse) -> ToolUseBlock:
    return {
        "type": "tool_use",
        "id": use.id or "",
        "name": claude_name(use.name),
        "input": claude_input(use.name, use.input),
    }


def _tool_result(result: ToolResult) -> ToolResultBlock:
    told = result.output if result.content is None else result.content
    return {
        "type": "tool_result",
        "tool_use_id": result.id or "",
        "content": _as_text(told),
        "is_error": result.status != "success",
    }


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# ---- tools


class _Tool(NamedTuple):
    """A tool of Claude's that does the same."""

    name: str
    takes: Mapping[str, tuple[str, ...]] | None = None
    """For each of its arguments, what Gemini's tools have called it; None: all as they are."""
    always: Mapping[str, Any] = {}

    def input(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self.takes is None:
            return dict(arguments)
        # What was left out of a call is left out here.
        named = {ours: _first(arguments, theirs) for ours, theirs in self.takes.items()}
        return {**self.always, **{key: value for key, value in named.items() if value is not None}}


def _first(arguments: Mapping[str, Any], names: Iterable[str]) -> Any:
    """The argument under the first of its names: they differ by version, and "" is none yet."""
    given = [arguments[name] for name in names if arguments.get(name) is not None]
    return next(filter(None, given), given[-1] if given else None)


def _todos(todos: Any) -> list[Any]:
    """Claude's lists say `content`, and `activeForm` for what is being done."""
    return [
        {"content": todo["description"], "activeForm": todo["description"], **todo}
        if isinstance(todo, dict) and "description" in todo
        else todo
        for todo in (todos if isinstance(todos, list) else [])
    ]


_FILE, _FOLDER = ("absolute_path", "file_path"), ("path", "dir_path")
_GREP = _Tool(
    "Grep", {"pattern": ("pattern",), "path": _FOLDER, "glob": ("include", "include_pattern")}
)
_TOOLS = {
    "read_file": _Tool("Read", {"file_path": _FILE}),
    "write_file": _Tool("Write", {"file_path": ("file_path",), "content": ("content",)}),
    "replace": _Tool(
        "Edit",
        {
            "file_path": ("file_path",),
            "old_string": ("old_string",),
            "new_string": ("new_string",),
        },
    ),
    "list_directory": _Tool("Glob", {"path": _FOLDER}, {"pattern": "*"}),
    "run_shell_command": _Tool("Bash", {"command": ("command",), "description": ("description",)}),
    "google_web_search": _Tool("WebSearch"),
    # Beyond the shape's own table:
    "glob": _Tool("Glob", {"pattern": ("pattern",), "path": _FOLDER}),
    "search_file_content": _GREP,
    "grep_search": _GREP,
    "web_fetch": _Tool("WebFetch"),
    "write_todos": _Tool("TodoWrite"),
    "read_many_files": _Tool("Read"),
}
