"""`geminorum config`: the shape of Options as a JSON Schema, and a file held against it."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from geminorum.apps.command.app import new_app
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags import data_in

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
        from geminorum.apps.command.show import print_json_line

        print_json_line({"file": file, "problems": problems})
    else:
        lines = [f"{file}: {problem}" for problem in problems] or [f"{file}: valid"]
        sys.stdout.writelines(f"{line}\n" for line in lines)
    return Exit.USAGE if problems else Exit.OK


def options_schema() -> dict[str, Any]:
    from geminorum import Options

    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Options.json_schema()}


def problems_in(data: Any) -> list[str]:
    """What is wrong with options in plain data, an unknown key among it."""
    from geminorum import Options
    from geminorum.errors import InvalidOptions

    if not isinstance(data, dict):
        return [f'it holds a {type(data).__name__}; write an object: {{"model": "flash"}}']
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            Options.from_dict(data)
            found = []
        except InvalidOptions as error:
            found = [f"{error.message}; {error.hint}" if error.hint else error.message]
    return [*(str(warning.message) for warning in told), *found]
