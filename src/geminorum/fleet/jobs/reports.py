"""What a worker tells those who watch it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Happening: TypeAlias = Literal["registered", "begun", "ended"]


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened in a worker."""

    what: Happening
    """`registered`: it takes jobs from now on, also after it was lost."""
    worker: str
    job: str | None = None
    attempt: int | None = None
    tenant: str | None = None
    via: str | None = None
    ending: str | None = None
    """As `Result.status`; "put back" if another attempt follows; "lost" if the job is another's."""
    seconds: float | None = None
    """How long the attempt took."""
