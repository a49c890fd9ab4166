"""`geminorum setup`: the Gemini CLI from npm into geminorum's own folder."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geminorum.apps.command.app import new_app
from geminorum.apps.command.render.keys import echo_is_off
from geminorum.apps.command.render.output import console, print_json_line, write_data
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum import install
else:
    install = lazy_module("geminorum.install")

app = new_app()


@app.command()
def setup(
    version: Annotated[
        str | None,
        typer.Option(
            help="The version to install. Default: the one that geminorum is tested with."
        ),
    ] = None,
    into: Annotated[
        Path | None, typer.Option(help="The folder to install into. Default: geminorum's own.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Install the tested Gemini CLI into geminorum's own folder, where runs find it."""
    folder, wanted = into or install.private_folder(), version or install.PINNED_CLI
    if install.lock_of(wanted) is None:
        sys.stderr.write(f"Gemini CLI {wanted}: {install.UNCHECKED}\n")
    with echo_is_off(), _show_bar(f"Gemini CLI {wanted}"):
        program = install.install_cli(folder, wanted)
    if json:
        return print_json_line({"path": program.path, "version": wanted})
    write_data(f"{program.path}\n")
    if into is not None:
        sys.stderr.write(f"point runs to it: export GEMINI_CLI_PATH={program.path}\n")
    return None


def _show_bar(what: str) -> AbstractContextManager[Any]:
    """A bar that moves while npm works, which does not say how far it is; a line in a pipe."""
    screen = console(stderr=True)
    if not screen.is_terminal or screen.is_dumb_terminal:
        sys.stderr.write(f"installing {what} from npm\n")
        return nullcontext()
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=screen, transient=True)
    progress.add_task(what, total=None)
    return progress
