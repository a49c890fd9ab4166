"""The flags that the commands of the fleet share."""

from __future__ import annotations

from typing import Annotated

import typer

Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="URL",
        help="The fleet's PostgreSQL. Default: GEMINORUM_DB, or one that geminorum runs itself.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
JobId = Annotated[
    str, typer.Argument(metavar="ID", help="The id of a job, or the beginning of one.")
]
