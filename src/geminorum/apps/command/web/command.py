"""`geminorum web`: the page where people watch, answer and configure their agents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geminorum.apps.command.app import new_app
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum.apps.command.web import serving
else:
    # Loads Starlette and uvicorn, which a help page does without.
    serving = lazy_module("geminorum.apps.command.web.serving")

app = new_app()

Host = Annotated[str, typer.Option(help="The address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
Db = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where runs and questions are kept: sqlite:///FILE or postgresql://HOST/NAME. "
        "Default: files in your state folder.",
    ),
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Show everything, change nothing.")]
Token = Annotated[
    str | None,
    typer.Option(
        help="A token of your own, so that links outlive a restart. Better in "
        "GEMINORUM_WEB_TOKEN, which other users cannot see. Default: a new one."
    ),
]
ProxyHeader = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Let in whoever a proxy names in this header. Only if nobody can get past it.",
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A host name of the page; may be repeated."),
]
Cwd = Annotated[
    Path | None, typer.Option("--cwd", "-C", help="The folder that the page suggests for runs.")
]
CliPath = Annotated[
    Path | None,
    typer.Option("--cli", help="The Gemini CLI to use. Default: the first one found."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the link as JSON.")]


@app.command()
def web(
    host: Host = "127.0.0.1",
    port: Port = 0,
    open_browser: Open = False,
    db: Db = None,
    read_only: ReadOnly = False,
    token: Token = None,
    proxy_header: ProxyHeader = None,
    allow_host: AllowHost = None,
    cwd: Cwd = None,
    cli: CliPath = None,
    json: Json = False,
) -> None:
    """Open a web page to start, watch and answer agents. Ctrl-C ends it and its runs."""
    names = tuple(allow_host or ())
    page = serving.Wanted(host, port, token, db, read_only, proxy_header, names, cwd, cli)
    serving.serve_page(page, open_browser=open_browser, json=json)
