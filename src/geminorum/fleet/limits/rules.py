"""A limit: what it counts, whose requests it is about, and what happens when it is reached."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from geminorum.credentials import fingerprint_of
from geminorum.errors import InvalidOptions
from geminorum.hints import advice
from geminorum.transports.gates import ModelCall

LimitKind: TypeAlias = Literal[
    "requests_per_minute", "tokens_per_minute", "usd_per_day", "concurrency"
]
Reaction: TypeAlias = Literal["delay", "refuse"]
KINDS: tuple[LimitKind, ...] = get_args(LimitKind)
REACTIONS: tuple[Reaction, ...] = get_args(Reaction)
EACH = "*"
"""As a key, tenant or model: each of its own."""
_MAX_NAME = 100
_FINGERPRINT = re.compile(r"[0-9a-f]{12}")
_SECONDS_OF_BURST = 1
_SMALLEST, _LARGEST = Decimal("0.000001"), Decimal(10**15)
"""The arithmetic of PostgreSQL goes wrong far beyond."""
"""How long a rate that nobody used can be made up for, if the limit does not say."""
_WORDS = {
    "requests_per_minute": "{} request{} per minute",
    "tokens_per_minute": "{} token{} per minute",
    "usd_per_day": "${} per day",
    "concurrency": "{} job{} at once",
}


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit as it was set. A key, tenant or model that is None stands for all together."""

    kind: LimitKind
    amount: Decimal
    key: str | None = None
    """The fingerprint of an API key, or "*"."""
    tenant: str | None = None
    """A tenant, or "*" for each."""
    model: str | None = None
    """A model as requests name it, or "*" for each."""
    burst: Decimal = Decimal(1)
    """How much more than its share of a minute may come at a time."""
    reaction: Reaction = "delay"

    @property
    def label(self) -> str:
        """In words: "600 requests per minute for key 1f3a0c2b4d5e"."""
        amount = f"{self.amount.normalize():,f}"
        parts = [f"{name} {value}" for name, value in self._named() if value != EACH]
        parts += [f"each {name}" for name, value in self._named() if value == EACH]
        whose = f" for {' and '.join(parts)}" if parts else ""
        return _WORDS[self.kind].format(amount, "" if self.amount == 1 else "s") + whose

    def _named(self) -> list[tuple[str, str]]:
        pairs = (("key", self.key), ("tenant", self.tenant), ("model", self.model))
        return [(name, value) for name, value in pairs if value is not None]


class LimitInfo(Limit, frozen=True, kw_only=True):
    """A limit, and how far it is used."""

    used: Decimal
    """By the key, tenant and model that use it most: US dollars today, jobs that run, or what of a
    minute's rate is taken in advance."""
    waiting: int
    """Jobs that wait for it."""


class Rule(msgspec.Struct, frozen=True):
    """A limit as requests are compared with it."""

    id: int
    kind: str
    key: str
    tenant: str
    model: str
    label: str
    refuses: bool

    def applies_to(self, call: ModelCall, tenant: str) -> bool:
        pairs = ((self.key, call.key), (self.tenant, tenant), (self.model, call.model))
        return all(
            ours == "" or (theirs is not None and ours in (EACH, theirs)) for ours, theirs in pairs
        )

    def bucket(self, call: ModelCall, tenant: str) -> tuple[int, str, str, str]:
        """Which of its buckets a request is taken from."""
        key, model = self.key and (call.key or ""), self.model and call.model
        # No limit names a longer one, and an index has no room for all that a job may call a model.
        return self.id, key[:_MAX_NAME], self.tenant and tenant, model[:_MAX_NAME]

    def wanted(self, call: ModelCall) -> Decimal:
        """How much of it a request takes, as far as that is known beforehand."""
        if self.kind == "requests_per_minute":
            return Decimal(1)
        return Decimal(call.tokens) if self.kind == "tokens_per_minute" else call.usd or Decimal(0)


def new_limit(
    kind: LimitKind,
    amount: Any,
    *,
    key: str | None = None,
    tenant: str | None = None,
    model: str | None = None,
    burst: Any = None,
    reaction: Reaction = "delay",
) -> Limit:
    """Checks what was asked for. Raises InvalidOptions."""
    require_whose(kind, key, tenant, model)
    if reaction not in REACTIONS:
        raise InvalidOptions(f"reaction is one of {', '.join(REACTIONS)}, not {reaction!r}")
    if kind == "concurrency" and reaction == "refuse":
        hint = "leave reaction out: jobs above it stay in the queue"
        raise InvalidOptions("a limit of jobs at once only delays", hint=hint)
    number = _positive("amount", amount)
    return Limit(
        kind=kind,
        amount=number,
        key=key,
        tenant=tenant,
        model=model,
        burst=_default_burst(kind, number) if burst is None else _positive("burst", burst),
        reaction=reaction,
    )


def require_whose(kind: LimitKind, key: str | None, tenant: str | None, model: str | None) -> None:
    """Raises InvalidOptions if there can be no such limit."""
    if kind not in KINDS:
        raise InvalidOptions(f"kind is one of {', '.join(KINDS)}, not {kind!r}")
    if kind == "concurrency" and (key or model):
        raise InvalidOptions("jobs at once are counted by tenant, not by key or model")
    if key is not None and key != EACH and not _FINGERPRINT.fullmatch(key):
        # Not the value itself: it may be a key.
        hint = advice("pass {fleet.fingerprint|key_fingerprint(key)}, so that no key is stored")
        raise InvalidOptions("key is no fingerprint of 12 hexadecimal digits", hint=hint)
    for name, value in (("tenant", tenant), ("model", model)):
        if value is not None and not (0 < len(value) <= _MAX_NAME and value.isprintable()):
            raise InvalidOptions(f"{name} has 1 to {_MAX_NAME} printable characters, not {value!r}")


def reached(label: str) -> str:
    return f"the limit of {label} is reached"


def label_in(text: str) -> str:
    """The label of the limit that such a text is about."""
    return text.removeprefix("the limit of ").removesuffix(" is reached")


def key_fingerprint(key: str) -> str:
    """Stands for an API key in limits: the same key gives the same 12 digits, and never back."""
    return fingerprint_of(key.strip())


def _default_burst(kind: LimitKind, amount: Decimal) -> Decimal:
    return max(Decimal(1), amount * _SECONDS_OF_BURST // 60) if "minute" in kind else Decimal(1)


def _positive(name: str, value: Any) -> Decimal:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        number = Decimal("nan")
    if isinstance(value, bool) or not number.is_finite() or number <= 0:
        raise InvalidOptions(f"{name} is a number above 0, not {value!r}")
    if not _SMALLEST <= number <= _LARGEST:
        raise InvalidOptions(f"{name} is at least {_SMALLEST:f} and at most {_LARGEST:f}")
    return number
