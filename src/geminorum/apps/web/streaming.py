"""Pages whose rows appear one by one, as they become known, with or without JavaScript."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from geminorum.apps.web.rendering import draw


def stream_rows(
    request: Request, template: str, rows: AsyncIterator[str], **context: Any
) -> StreamingResponse:
    """The page that a template makes; `rows`, HTML, come where it prints `rows`."""
    # Nobody can have written it into what the page shows.
    mark = secrets.token_hex(16)
    head, _, tail = draw(request, template, rows=mark, **context).partition(mark)

    async def pieces() -> AsyncIterator[str]:
        yield head
        async for row in rows:
            yield row
        yield tail

    return StreamingResponse(pieces(), media_type="text/html")
