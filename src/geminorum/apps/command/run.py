"""`geminorum run PROMPT`: one prompt, watched."""

from __future__ import annotations

from typing import Annotated

import typer

from geminorum import Options
from geminorum.apps.command.app import new_app
from geminorum.apps.command.flags import takes_options

app = new_app()


@app.command()
@takes_options
def run(
    prompt: Annotated[str | None, typer.Argument(help="What to do.")] = None,
    *,
    options: Options,
) -> None:
    """Send one prompt and watch the agent work."""
    typer.echo(f"{prompt} {options}")
