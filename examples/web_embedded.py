"""The page of `geminorum web` inside of a web program of your own, here FastAPI.

    pip install "geminorum[web]" fastapi
    python examples/web_embedded.py 8000                   # or: offline.py web_embedded.py 8000

It prints the link to the page, which is mounted under /agents. The program sees its runs through
the same JSON API that the page offers to others; /agents/api/openapi.json describes it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import fastapi
import uvicorn

from geminorum import Options, web

PORT = int(sys.argv[1]) if sys.argv[1:] else 8000
FOLDER = Path("agents")
# What every run starts with; the form changes the rest.
options = Options(cwd=FOLDER / "work", model="gemini-2.5-flash", max_budget_usd=0.10, timeout=600)
# Beside the folder that agents write to: their questions must not be theirs to answer.
page = web.app(options=options, db=f"sqlite:///{FOLDER}/web.db")


@asynccontextmanager
async def lifespan(site: fastapi.FastAPI) -> AsyncIterator[None]:
    """Frameworks do not start mounted apps. Leaving the block ends the runs of the page."""
    Path(options.cwd or ".").mkdir(parents=True, exist_ok=True)
    async with page.running():
        print("Open", page.link(f"http://127.0.0.1:{PORT}/agents"), flush=True)
        yield


site = fastapi.FastAPI(lifespan=lifespan)
site.mount("/agents", page)


@site.get("/health")
async def health() -> dict[str, int]:
    return {"live_runs": len(page.live_runs)}


if __name__ == "__main__":
    uvicorn.run(site, port=PORT)
