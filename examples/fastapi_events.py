"""A web service: POST a prompt and receive the agent's events as server-sent events.

    pip install fastapi uvicorn
    python examples/fastapi_events.py 8000                 # or: offline.py fastapi_events.py 8000
    curl -N localhost:8000/tenants/anna/ask -H 'content-type: application/json' \
         -d '{"prompt": "Say hello"}'

One warm pool serves all tenants, each in its own folder under ./tenants. When a client disconnects,
its run stops and costs no more. Put your own login in front of it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import fastapi
import uvicorn
from fastapi.responses import StreamingResponse

from geminorum import Acp, Error, Event, GeminorumError, Options, Pool, events, run

# Used as a folder name, so no dots and no slashes.
Tenant = Annotated[str, fastapi.Path(pattern="^[a-z0-9]+$")]
Prompt = Annotated[str, fastapi.Body(embed=True)]


@asynccontextmanager
async def lifespan(app: fastapi.FastAPI) -> AsyncIterator[None]:
    async with Pool(Acp(), size=2) as app.state.pool:
        yield


app = fastapi.FastAPI(lifespan=lifespan)


@app.post("/tenants/{tenant}/ask")
async def ask(tenant: Tenant, prompt: Prompt, request: fastapi.Request) -> StreamingResponse:
    folder = Path("tenants", tenant)
    folder.mkdir(parents=True, exist_ok=True)
    options = Options(cwd=folder, model="gemini-2.5-flash", max_budget_usd=0.10, timeout=300)
    told = stream(prompt, options, request.app.state.pool)
    return StreamingResponse(told, media_type="text/event-stream")


async def stream(prompt: str, options: Options, pool: Pool) -> AsyncIterator[bytes]:
    """FastAPI cancels this when the client disconnects; leaving the block stops the agent."""
    try:
        async with run(prompt, options, via=pool) as live:
            async for event in live:
                yield sent(event)
    except GeminorumError as error:  # The run could not start.
        yield sent(Error(message=error.message, code=error.code, hint=error.hint))


def sent(event: Event) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event.type.encode(), events.encode(event).strip())


@app.get("/health")
async def health(request: fastapi.Request) -> dict[str, Any]:
    report = request.app.state.pool.report()
    busy = sum(process.conversations for process in report.processes)
    return {"processes": len(report.processes), "conversations": busy, "turns": report.turns}


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]) if sys.argv[1:] else 8000)
