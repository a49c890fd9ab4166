"""`geminorum fake`: a simulated Gemini API in the foreground, and each request to it."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from geminorum import testing
from geminorum.apps.command.app import new_app
from geminorum.apps.command.flags.options import text_in
from geminorum.apps.command.render.output import print_json_line, write_data
from geminorum.errors import InvalidOptions
from geminorum.runtime.lazy import msgspec

if TYPE_CHECKING:
    from geminorum.testing import FakeGemini, Request

app = new_app()

_LOOK = 0.05
"""Seconds between two looks at the log."""
_DEFAULT = "This is a simulated answer of `geminorum fake`."
_ADVICE = 'one per line: {"say": "Hi"}, {"call": "write_file", "args": {…}}, {"fail": 429}'


@app.command()
def fake(
    say: Annotated[str, typer.Option(help="The answer when no scripted one is left.")] = _DEFAULT,
    script: Annotated[
        Path | None,
        typer.Option(help="A file of answers, one JSON object per line, used in order."),
    ] = None,
    routing: Annotated[
        Literal["flash", "pro"], typer.Option(help="The model that the CLI's `auto` chooses.")
    ] = "flash",
    json: Annotated[
        bool, typer.Option("--json", help="Print the variables, then each request, as JSON.")
    ] = False,
) -> None:
    """Run a simulated Gemini API until Ctrl-C; prints the variables to export elsewhere."""
    steps = _steps(script) if script else []
    with testing.FakeGemini(default=say, routing=routing) as running:
        for number, step in enumerate(steps, start=1):
            _add(running, step, f"{script}, line {number}")
        _announce(running, json=json)
        try:
            _watch(running, json=json)
        except KeyboardInterrupt:
            return  # The only way out, and so a good one.


def _steps(script: Path) -> list[Any]:
    lines = [line for line in text_in(script, "--script").splitlines() if line.strip()]
    try:
        return [msgspec.json.decode(line) for line in lines]
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidOptions(f"{script}: {error}", hint=_ADVICE) from error


def _add(running: FakeGemini, step: Any, where: str) -> None:
    match step:
        case {"say": str(text)}:
            running.say(text)
        case {"call": str(tool), "args": dict(arguments)}:
            running.calls((tool, arguments))
        case {"call": str(tool)}:
            running.call(tool)
        case {"fail": int(code)}:
            running.fail(code)
        case _:
            raise InvalidOptions(f"{where}: {step!r} is not an answer", hint=_ADVICE)


def _announce(running: FakeGemini, *, json: bool) -> None:
    if json:
        return print_json_line({"env": running.env})
    for name, value in running.env.items():
        write_data(f"export {name}={shlex.quote(value)}\n")
    sys.stdout.flush()
    # Beside the data: `eval "$(geminorum fake | head -5)"` must not meet it.
    sys.stderr.write(f"a simulated model answers at {running.url}; Ctrl-C ends it\n")
    return None


def _watch(running: FakeGemini, *, json: bool) -> None:
    told = 0
    while True:
        for request in running.log[told:]:
            told += 1
            _tell(request, json=json)
        time.sleep(_LOOK)


def _tell(request: Request, *, json: bool) -> None:
    if json:
        return print_json_line(_data(request))
    sys.stdout.write(line_of(request) + "\n")
    sys.stdout.flush()
    return None


def line_of(request: Request) -> str:
    """A request in one line."""
    moment = time.strftime("%H:%M:%S", time.localtime(request.at))
    results = [f"{result.name} answered" for result in request.tool_results]
    said = ", ".join(results) or " ".join(request.prompt.split())
    short = said if len(said) <= 100 else said[:99] + "…"
    return f"{moment}  {request.kind:<8}  {request.model}  {short}"


def _data(request: Request) -> dict[str, Any]:
    names = ("at", "kind", "model", "method", "prompt", "round", "tools")
    return {name: getattr(request, name) for name in names}
