"""`geminorum config`: the shape of Options as a JSON Schema, and a file held against it."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geminorum.apps.command.app import new_app
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.typed_options import data_in

if TYPE_CHECKING:
    from geminorum import Options
    from geminorum.errors import InvalidOptions

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
    """What `run --options` would refuse in these options; unknown keys are refused, too."""
    from geminorum import Options
    from geminorum.errors import InvalidOptions

    if not isinstance(data, dict):
        return [f'it holds a {type(data).__name__}; write an object: {{"model": "flash"}}']
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            options = Options.from_dict(data)
            found = _refused_tools(options)
        except InvalidOptions as error:
            found = [_problem(error)]
    # The library warns and goes on; a file with such a key is refused.
    unknown = [str(warning.message).replace(" is ignored", "", 1) for warning in told]
    return [*unknown, *found]


def _refused_tools(options: Options) -> list[str]:
    from geminorum.errors import InvalidOptions
    from geminorum.policies import check_tools

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A run says these, and goes on.
        try:
            check_tools(options)
        except InvalidOptions as error:
            return [_problem(error)]
    return []


def _problem(error: InvalidOptions) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message
