"""`geminorum config`: the shape of Options as a JSON Schema, and a file held against it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import geminorum
from geminorum.apps.command.app import new_app
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.options import data_in
from geminorum.apps.command.flags.problems import problems_in
from geminorum.apps.command.render.output import print_json_line

app = new_app("Print the JSON Schema of the options, or validate an options file.")


@app.command()
def schema() -> None:
    """Print the JSON Schema of an options file, for an editor or another program."""
    import json

    sys.stdout.write(json.dumps(options_schema(), indent=2) + "\n")


@app.command()
def validate(
    file: Annotated[Path, typer.Argument(help="A JSON or TOML file of options.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> Exit:
    """Validate an options file; exit code 2 if it is invalid."""
    problems = problems_in(data_in(file, "FILE"))
    if json:
        print_json_line({"file": file, "problems": problems})
    else:
        lines = [f"{file}: {problem}" for problem in problems] or [f"{file}: valid"]
        sys.stdout.writelines(f"{line}\n" for line in lines)
    return Exit.USAGE if problems else Exit.OK


def options_schema() -> dict[str, Any]:
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **geminorum.Options.json_schema()}
