"""The script of a fake: methods that queue answers, and the choice of the next one."""

import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias

from msgspec import Struct

from geminorum.testing.answers import Answer, Call, Fail, Hang, Part, Raw, Say, Tokens
from geminorum.testing.request import Kind, Request

Match: TypeAlias = str | re.Pattern[str] | Callable[[Request], bool] | None
Reply: TypeAlias = Callable[[Request], Answer | str]

SCRIPTED: tuple[Kind, ...] = ("main", "subagent")
"""The kinds of request that take answers from a script which names no kind."""


class Queue:
    """Answers in the order of the script; each is served once unless it was told to repeat."""

    def __init__(self, *, restarts: bool = False) -> None:
        self._entries: list[_Entry] = []
        self._restarts = restarts
        self._lock = threading.Lock()

    def add(self, answer: Answer | Reply, times: float = 1) -> None:
        with self._lock:
            self._entries.append(_Entry(answer, times))

    def repeat_last(self, times: float) -> None:
        with self._lock:
            if not self._entries:
                raise ValueError("there is no answer to repeat yet; script one first")
            self._entries[-1].left = times

    def take(self, request: Request) -> Answer | None:
        with self._lock:
            entry = self._entry_for(request)
            if entry is None:
                return None
            entry.left -= 1
            entry.served = True
        return _resolved(entry.answer, request)

    @property
    def unused(self) -> list[Answer | Reply]:
        with self._lock:
            return [entry.answer for entry in self._entries if self._is_unused(entry)]

    def _entry_for(self, request: Request) -> "_Entry | None":
        if self._restarts:
            # No memory: the place in the script is read from the conversation, so that any
            # number of conversations may be in it at the same time.
            return self._entries[request.round] if request.round < len(self._entries) else None
        return next((entry for entry in self._entries if entry.left > 0), None)

    def _is_unused(self, entry: "_Entry") -> bool:
        if self._restarts or entry.left == math.inf:
            return not entry.served
        return entry.left > 0


class Verbs:
    """The methods of a script. Each queues one answer and returns self."""

    def __init__(self, *, restarts: bool = False) -> None:
        self._queue = Queue(restarts=restarts)

    def say(
        self,
        *chunks: str | Part,
        thoughts: Sequence[str] = (),
        tokens: Tokens | None = None,
        finish: str | None = "STOP",
        model: str | None = None,
        grounding: Mapping[str, Any] | None = None,
        delay: float = 0,
        drip: float = 0,
    ) -> Self:
        """The model answers, with one streamed chunk per argument.

        A dict is a Part in the API's format. `delay` is the wait before the first chunk, `drip` the
        wait between chunks, in seconds. The answer reports `model` as its `modelVersion`.
        """
        answer = Say(
            chunks,
            thoughts=tuple(thoughts),
            tokens=tokens,
            finish=finish,
            model=model,
            grounding=grounding,
            delay=delay,
            drip=drip,
        )
        return self._add(answer)

    def call(self, tool: str, /, **args: Any) -> Self:
        """The model calls a tool; the next answer follows the tool's result."""
        return self.calls((tool, args))

    def calls(
        self,
        *calls: tuple[str, Mapping[str, Any]],
        text: str = "",
        thoughts: Sequence[str] = (),
        tokens: Tokens | None = None,
        delay: float = 0,
    ) -> Self:
        """The model calls several tools at once, after `text` if given."""
        wanted = tuple(Call(tool, args) for tool, args in calls)
        said = (text,) if text else ()
        answer = Say(said, tuple(thoughts), wanted, tokens=tokens, delay=delay)
        return self._add(answer)

    def fail(
        self,
        code: int,
        message: str | None = None,
        *,
        status: str | None = None,
        reason: str | None = None,
        retry_delay: float | None = None,
        daily: bool = False,
        after: Sequence[str] = (),
        times: int = 1,
        delay: float = 0,
        retry_after: float | None = None,
    ) -> Self:
        """An error in Google's format, `times` in a row.

        `retry_delay` adds a RetryInfo, `retry_after` the HTTP header of that name; `daily` makes a
        429 mean the daily instead of the per-minute quota; `reason` adds an ErrorInfo
        (`API_KEY_INVALID`). With `after`, a stream starts normally, sends that text and breaks with
        the error.
        """
        said = (code, message, status, reason, retry_delay, daily, tuple(after), delay)
        answer = Fail(*said, retry_after)
        return self._add(answer, times)

    def truncate(self, *chunks: str, drop: bool = False, drip: float = 0) -> Self:
        """A stream that stops without a finish reason.

        It ends cleanly, unless `drop` is set: then the connection breaks within a chunk.
        """
        answer = Say(chunks, finish=None, drip=drip, ending="drop" if drop else "whole")
        return self._add(answer)

    def hang(self, *chunks: str) -> Self:
        """Accepts the request, sends these chunks if any, then nothing until the fake is closed."""
        return self._add(Say(chunks, finish=None, ending="hang") if chunks else Hang())

    def block(self, reason: str = "SAFETY", *, tokens: Tokens | None = None) -> Self:
        """The prompt is blocked: a block reason and no candidate."""
        return self._add(Say(blocked=reason, tokens=tokens))

    def raw(
        self,
        body: bytes,
        *,
        status: int = 200,
        content_type: str = "text/event-stream",
        headers: Mapping[str, str] | None = None,
    ) -> Self:
        """Sends raw bytes as they are."""
        return self._add(Raw(body, status, content_type, headers or {}))

    def reply(self, answer: Reply) -> Self:
        """Computes the answer from the request: text, or one of Say, Fail, Hang, Raw."""
        return self._add(answer)

    def always(self) -> Self:
        """Serves the last scripted answer forever; answers after it are never reached."""
        self._queue.repeat_last(math.inf)
        return self

    def times(self, count: int) -> Self:
        """Serves the last scripted answer this many times."""
        self._queue.repeat_last(count)
        return self

    def _add(self, answer: Answer | Reply, times: float = 1) -> Self:
        self._queue.add(answer, times)
        return self


class Rule(Verbs):
    """A separate script for matching requests."""

    def __init__(self, match: Match, kind: Kind | None, *, restarts: bool = False) -> None:
        super().__init__(restarts=restarts)
        self._matches = _matcher(match)
        self._kinds = SCRIPTED if kind is None else (kind,)

    def answer(self, request: Request) -> Answer | None:
        if request.kind in self._kinds and self._matches(request):
            return self._queue.take(request)
        return None

    @property
    def unused(self) -> list[Answer | Reply]:
        """Answers scripted here and never served."""
        return self._queue.unused


class Script(Verbs):
    """The main queue, and the rules that take precedence."""

    def __init__(self) -> None:
        super().__init__()
        self._rules: list[Rule] = []

    def when(self, match: Match = None, *, kind: Kind | None = None) -> Rule:
        """Queues answers for matching requests; each is served once, before the main script.

        `match` is a part of the prompt, a compiled pattern searched in it, a function of the
        Request, or None for all. `kind` selects side calls instead of the model's own turns.
        """
        return self._rule(Rule(match, kind))

    def whenever(self, match: Match = None, *, kind: Kind | None = None) -> Rule:
        """Like `when`, but starts over for every matching conversation.

        The prompt gets the first answer, the first tool results the second, and so on.
        """
        return self._rule(Rule(match, kind, restarts=True))

    @property
    def unused(self) -> list[Answer | Reply]:
        """Answers scripted and never served: `assert not fake.unused`."""
        return [answer for rule in self._rules for answer in rule.unused] + self._queue.unused

    def answer_to(self, request: Request) -> Answer | None:
        for rule in tuple(self._rules):
            if (answer := rule.answer(request)) is not None:
                return answer
        return self._queue.take(request) if request.kind in SCRIPTED else None

    def _rule(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule


class _Entry(Struct):
    answer: Answer | Reply
    left: float
    served: bool = False


def _matcher(match: Match) -> Callable[[Request], bool]:
    if match is None:
        return lambda request: True
    if isinstance(match, str):
        return lambda request: match in request.prompt
    if isinstance(match, re.Pattern):
        return lambda request: match.search(request.prompt) is not None
    return match


def _resolved(answer: Answer | Reply, request: Request) -> Answer:
    if isinstance(answer, Say | Fail | Hang | Raw):
        return answer
    found = answer(request)
    return Say((found,)) if isinstance(found, str) else found
