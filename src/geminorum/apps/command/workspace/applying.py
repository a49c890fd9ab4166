"""A patch comes home: shown, checked or applied, in the words of the command."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import geminorum
from geminorum.apps.command.render.output import print_json_line, write_data
from geminorum.apps.command.render.style import styled
from geminorum.errors import WorkspaceConflict

if TYPE_CHECKING:
    from geminorum.workspace import Applied, Change, Patch

_COLOURS = {"added": "green", "changed": "yellow", "deleted": "red"}

Check = Annotated[bool, typer.Option("--check", help="Say what would be done, and write nothing.")]
Show = Annotated[
    bool, typer.Option("--show", help="Print the changes as a diff, and write nothing.")
]
Skip = Annotated[
    list[str] | None, typer.Option(help="Leave out this name or pattern; may be repeated.")
]
ConflictsTo = Annotated[
    Path | None,
    typer.Option(help="If files changed on both sides, write the patch's versions there."),
]
ControlFiles = Annotated[
    bool,
    typer.Option("--control-files", help="Include files that control agents: .gemini, .agents."),
]


def show_patch(patch: Patch, folder: Path) -> None:
    """Prints the changes as a diff."""
    write_data(geminorum.workspace.Workspace(folder).render(patch))


def apply_patch(
    patch: Patch,
    folder: Path,
    *,
    check: bool,
    skip: Sequence[str],
    conflicts_to: Path | None,
    control_files: bool,
    json: bool,
) -> None:
    """Applies all changes or none, and says which; with `check`, only says."""
    here = geminorum.workspace.Workspace(folder)
    act = here.check if check else here.apply
    try:
        done = act(patch, skip=skip, control_files=control_files)
    except WorkspaceConflict as error:
        if conflicts_to is not None:
            patch.extract(conflicts_to, error.paths)
            error.hint = f"merge them with the patch's versions in {conflicts_to}, then --skip them"
        raise
    _tell_applied(done, json=json, check=check)


def _tell_applied(done: Applied, *, json: bool, check: bool) -> None:
    if json:
        changes, already = fields_of(done.changes), len(done.already)
        return print_json_line({"applied": not check, "changes": changes, "already": already})
    last = f"{counted(done.changes)} {'would be applied' if check else 'applied'}"
    if done.already:
        last += f", {len(done.already)} there already"
    sys.stdout.writelines(f"{line}\n" for line in [*lines_of(done.changes), last])
    return None


def lines_of(changes: Iterable[Change]) -> list[str]:
    return [
        f"{styled(f'{one.what:8}', _COLOURS[one.what])} {geminorum.workspace.shown(one.name)}"
        for one in changes
    ]


def fields_of(changes: Iterable[Change]) -> list[dict[str, str]]:
    return [{"what": one.what, "name": encodable(one.name)} for one in changes]


def encodable(name: str) -> str:
    """A name as JSON can have it: exact, unless it is not UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def counted(changes: Iterable[Change]) -> str:
    number = len(list(changes))
    return f"{number:,} change{'' if number == 1 else 's'}"
