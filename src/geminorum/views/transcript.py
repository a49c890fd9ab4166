"""Events to a conversation as a reader sees it: who said what, and what each answer consumed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec

from geminorum.cost import PriceBook, cost_of
from geminorum.events import (
    Cost,
    Done,
    Error,
    Event,
    Init,
    ModelRequest,
    PermissionDecision,
    PermissionRequest,
    Text,
    TextDelta,
    Thinking,
    Tokens,
    ToolResult,
    ToolUse,
    Unknown,
    UserMessage,
    total_of,
)
from geminorum.wire.sessions.records import message_of, text_of

_LONGEST_GIST = 90
_TELLING = ("command", "file_path", "absolute_path", "path", "query", "pattern", "url", "prompt")
"""The arguments that say best what a call is about."""


class TranscriptCall(msgspec.Struct):
    """A tool call, and what came back."""

    use: ToolUse
    result: ToolResult | None = None

    @property
    def status(self) -> str:
        return self.result.status if self.result else "unanswered"

    @property
    def gist(self) -> str:
        """The argument that says what it is about, cut to a line."""
        named = [self.use.input[name] for name in _TELLING if name in self.use.input]
        texts = [value for value in [*named, *self.use.input.values()] if isinstance(value, str)]
        return one_line(texts[0]) if texts else ""

    @property
    def outputs(self) -> list[str]:
        """What came back: as shown to people, as told to the model; once where one says both."""
        if self.result is None:
            return []
        shown, told = as_text(self.result.output), self.result.content or ""
        if shown.strip() in told:
            return [told] if told else []
        return [shown] if told.strip() in shown else [shown, told]

    @property
    def short_arguments(self) -> dict[str, str]:
        """Those that fit on a line."""
        return {name: text for name, text in self._texts() if _is_short(text)}

    @property
    def long_arguments(self) -> dict[str, str]:
        return {name: text for name, text in self._texts() if not _is_short(text)}

    def _texts(self) -> Iterator[tuple[str, str]]:
        return ((name, as_text(value)) for name, value in self.use.input.items())


Part: TypeAlias = Thinking | Text | TranscriptCall


class TranscriptAnswer(msgspec.Struct):
    """What the model gave back for one request."""

    at: int
    parts: list[Part] = []
    request: ModelRequest | None = None
    """What it consumed, if known."""


class Aside(msgspec.Struct):
    """What neither the user nor the model said."""

    kind: str
    text: str
    at: int = 0


Entry: TypeAlias = UserMessage | TranscriptAnswer | Aside


class Transcript(msgspec.Struct):
    """A whole conversation, in order."""

    title: str
    entries: list[Entry]
    init: Init | None
    ends: list[Done]

    @property
    def session_id(self) -> str | None:
        known = [one.session_id for one in [self.init, *self.ends] if one and one.session_id]
        return known[0] if known else None

    @property
    def tokens(self) -> Tokens | None:
        told = [done.usage for done in self.ends if done.usage]
        return total_of(told) if told else None

    def costs(self, prices: PriceBook | None = None) -> list[Cost] | None:
        """What each run cost; None where that is not known of all."""
        found = [done.cost or cost_of(done.usage, prices) for done in self.ends]
        known = [cost for cost in found if cost is not None]
        return known if known and len(known) == len(found) else None

    def facts(self, prices: PriceBook | None = None) -> dict[str, str]:
        """What stands at the top; what is not known is left out."""
        facts = {
            "Model": ", ".join(self._models()),
            "Date": moment(self._started()),
            "Duration": duration(sum(done.duration for done in self.ends)),
            "Tokens": f"{self.tokens.total:,}" if self.tokens else "",
            "Cost": total(self.costs(prices)),
            "Folder": (self.init.cwd if self.init else None) or "",
            "Session": self.session_id or "",
            "Ended": ", ".join(done.status for done in self.ends if done.status != "success"),
        }
        return {name: value for name, value in facts.items() if value}

    def _models(self) -> list[str]:
        """Those that answered, else the one that was asked for."""
        told = [name for done in self.ends if done.usage for name in done.usage.by_model]
        asked = [self.init.model] if self.init and self.init.model else []
        return list(dict.fromkeys(told or asked))

    def _started(self) -> int:
        stamps = [self.init.timestamp if self.init else 0, *(_at(one) for one in self.entries)]
        return next(filter(None, stamps), 0)


def transcript_of(events: Iterable[Event], title: str | None = None) -> Transcript:
    """The conversation; its title is what was first asked, unless one is given."""
    known = list(events)
    ends = [event for event in known if isinstance(event, Done)]
    requests = [request for done in ends if done.usage for request in done.usage.requests]
    entries = _Conversation({request.timestamp for request in requests}).entries_of(known)
    _bill([entry for entry in entries if isinstance(entry, TranscriptAnswer)], requests)
    asked = (entry.text for entry in entries if isinstance(entry, UserMessage))
    heading = one_line(title or next(asked, "")) or "Gemini session"
    init = next((event for event in known if isinstance(event, Init)), None)
    return Transcript(heading, entries, init, ends)


class _Conversation:
    """Puts events together to entries."""

    def __init__(self, stamps: set[int]) -> None:
        self._stamps = stamps
        """When the model was asked: two answers that follow each other are told apart by it."""
        self._entries: list[Entry] = []
        self._answer: TranscriptAnswer | None = None
        self._calls: list[TranscriptCall] = []
        self._asked: dict[str | None, tuple[PermissionRequest, Aside]] = {}
        """Permission requests without a decision, by id."""
        self._deltas: list[TextDelta] = []

    def entries_of(self, events: Iterable[Event]) -> list[Entry]:
        for event in events:
            self._add(event)
        self._finish_text()
        return self._entries

    def _add(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._deltas.append(event)
            return
        if isinstance(event, Text):
            self._deltas.clear()
        else:
            self._finish_text()
        match event:
            case Thinking():
                self._thought(event)
            case Text():
                self._answer_at(event.timestamp).parts.append(event)
            case ToolUse():
                self._add_call(event)
            case ToolResult():
                self._add_result(event)
            case PermissionDecision():
                self._add_decision(event)
            case _:
                self._interrupt(event)

    def _finish_text(self) -> None:
        """Of an answer that was cut off, the pieces are all there is."""
        if self._deltas:
            text = "".join(delta.text for delta in self._deltas)
            self._answer_at(self._deltas[0].timestamp).parts.append(Text(text))
            self._deltas.clear()

    def _answer_at(self, at: int, *, late: bool = False) -> TranscriptAnswer:
        answer = self._answer
        if answer is None or _answered(answer, at, late) or self._is_another(answer, at):
            answer = self._answer = TranscriptAnswer(at, [])
            self._entries.append(answer)
        return answer

    def _is_another(self, answer: TranscriptAnswer, at: int) -> bool:
        """Saved messages have the time of their request: another time is another request."""
        return at != answer.at and {at, answer.at} <= self._stamps

    def _thought(self, thought: Thinking) -> None:
        parts = self._answer_at(thought.timestamp, late=True).parts
        # The stream tells no thoughts. Those that the session file tells come late, but were
        # thought before anything was said.
        late = thought.timestamp in self._stamps
        earlier = sum(isinstance(part, Thinking) for part in parts)
        parts.insert(earlier if late else len(parts), thought)

    def _add_call(self, use: ToolUse) -> None:
        call = TranscriptCall(use)
        self._answer_at(use.timestamp).parts.append(call)
        self._calls.append(call)

    def _add_result(self, result: ToolResult) -> None:
        for call in self._calls:
            if call.result is None and call.use.id == result.id:
                call.result = result
                self._calls.remove(call)
                return
        use = ToolUse(result.name or "unknown tool", result.id, timestamp=result.timestamp)
        self._answer_at(result.timestamp).parts.append(TranscriptCall(use, result))

    def _interrupt(self, event: Event) -> None:
        entry = event if isinstance(event, UserMessage) else _aside(event)
        if entry is not None:
            self._entries.append(entry)
            self._answer = None
        if isinstance(event, PermissionRequest) and isinstance(entry, Aside):
            self._asked[event.id] = (event, entry)

    def _add_decision(self, decision: PermissionDecision) -> None:
        """Completes the entry of its request; without one, adds an entry."""
        asked, answer = self._asked.pop(decision.id, None), _asked(decision.name, decision.decision)
        if asked is None:
            text = "\n".join(filter(None, [answer, decision.reason]))
            self._entries.append(Aside("permission", text, decision.timestamp))
            self._answer = None
            return
        request, aside = asked
        aside.text = "\n".join(filter(None, [answer, request.reason, decision.reason]))


def _answered(answer: TranscriptAnswer, at: int, late: bool) -> bool:
    """Had a tool's result come by then? What follows is the next answer; only of what may come
    late does the time tell, since clocks step."""
    results = [
        part.result for part in answer.parts if isinstance(part, TranscriptCall) and part.result
    ]
    return any(not late or result.timestamp <= at for result in results)


def _aside(event: Event) -> Aside | None:
    match event:
        case Error():
            text = "\n".join(filter(None, [event.message, event.hint]))
            return Aside("warning" if event.recoverable else "error", text, event.timestamp)
        case PermissionRequest():
            asked = _asked(event.name, event.decision or "not decided")
            text = "\n".join(filter(None, [asked, event.reason]))
            return Aside("permission", text, event.timestamp)
        case Unknown():
            return Aside(event.kind or "unknown", _unknown_text(event), event.timestamp)
        case _:
            return None


def _asked(tool: str, answer: str) -> str:
    return f"May it use {tool}? {answer}"


def _unknown_text(event: Unknown) -> str:
    if event.frame is msgspec.UNSET:
        return ""
    return text_of(message_of(event.frame).content) or bytes(event.frame).decode(errors="replace")


def _bill(answers: list[TranscriptAnswer], requests: list[ModelRequest]) -> None:
    """Gives each answer its request: by time from a saved session, by order from a live run."""
    waiting = defaultdict(list)
    for request in requests:
        waiting[request.timestamp].append(request)
    for answer in answers:
        thoughts = [part.timestamp for part in answer.parts if isinstance(part, Thinking)]
        stamp = next((at for at in [answer.at, *thoughts] if waiting[at]), None)
        answer.request = None if stamp is None else waiting[stamp].pop(0)
    if len(answers) == len(requests) and not all(answer.request for answer in answers):
        for answer, request in zip(answers, requests, strict=True):
            answer.request = request


def _at(entry: Entry) -> int:
    return entry.timestamp if isinstance(entry, UserMessage) else entry.at


def _is_short(text: str) -> bool:
    return len(text) <= _LONGEST_GIST and "\n" not in text


def as_text(value: Any) -> str:
    """A string as it is, anything else as readable JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def one_line(text: str) -> str:
    """The beginning of a text, its white space made plain."""
    # Only so much is looked at: a file's whole content may be asked for in one line.
    line = " ".join(text[: _LONGEST_GIST * 4].split())
    cut = len(line) > _LONGEST_GIST or len(text) > _LONGEST_GIST * 4
    return line[: _LONGEST_GIST - 1].rstrip() + "…" if cut else line


def moment(milliseconds: int) -> str:
    """A date and a time, "" where there is none."""
    if not milliseconds:
        return ""
    try:
        when = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return f"{when:%Y-%m-%d %H:%M} UTC"


def machine_time(milliseconds: int) -> str:
    """The same for programs: ISO 8601; "" where there is none."""
    return f"{moment(milliseconds)[:-4].replace(' ', 'T')}Z" if moment(milliseconds) else ""


def duration(seconds: float) -> str:
    """In words short enough for a margin; "" for none."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds > 0 else ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def total(costs: list[Cost] | None) -> str:
    """The sum of several bills; marked where one of them is an estimate."""
    if costs is None:
        return ""
    amount = money(sum((cost.usd for cost in costs), Decimal(0)))
    return amount if all(cost.exact for cost in costs) else f"≈ {amount}"


def money(usd: Decimal) -> str:
    """US dollars, with more digits the less it is."""
    digits = 2 if usd >= 1 else 4 if usd >= Decimal("0.01") else 6
    return f"${usd:,.{digits}f}" if usd else "$0"
