"""What a transport asks before each request to a model, for those who count requests."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Protocol, TypeAlias

import msgspec

BYTES_PER_TOKEN = 4
"""Of plain English, roughly: an estimate, which the answer corrects."""


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a model that is about to be sent."""

    model: str
    key: str | None
    """The fingerprint of the API key that pays for it; None: something else pays."""
    tokens: int
    """Of the input, by its size."""
    usd: Decimal | None
    """What that costs; None: nobody knows the model's price."""


class Consumed(msgspec.Struct, frozen=True, kw_only=True):
    """What a request has consumed in the end."""

    tokens: int = 0
    usd: Decimal | None = Decimal(0)


Settle: TypeAlias = Callable[[Consumed | None], None]
"""Takes what a request has consumed; None: it was sent, and nobody knows."""
OnWait: TypeAlias = Callable[[str], None]
"""Learns what a request waits for, in words, if it takes long enough to be worth saying."""


class RequestGate(Protocol):
    """Lets requests to models pass, delays them, or refuses them."""

    @property
    def scope(self) -> str:
        """Whose requests these are. One process of the CLI serves conversations of one scope, so
        that each of its requests has the same."""
        ...

    @property
    def is_strict(self) -> bool:
        """Must every request pass here? A transport that cannot see to it then refuses to start."""
        ...

    async def admit(self, call: ModelCall, on_wait: OnWait) -> Settle:
        """Returns when the request may be sent. Raises LimitReached if it may not."""
        ...
