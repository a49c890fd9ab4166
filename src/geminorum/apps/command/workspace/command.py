"""`geminorum workspace`: a folder as one file, and what changed elsewhere as another one."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import geminorum
from geminorum.apps.command.app import new_app
from geminorum.apps.command.render.output import print_json_line, write_bytes
from geminorum.apps.command.workspace.applying import (
    Check,
    ConflictsTo,
    ControlFiles,
    Show,
    Skip,
    apply_patch,
    counted,
    encodable,
    fields_of,
    lines_of,
    show_patch,
)

if TYPE_CHECKING:
    from geminorum.workspace import Pack, Patch

app = new_app("Move a folder to another machine, and bring its changes back.")

_STREAM = "-"
_LEFT_OUT_SHOWN = 5

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="The file to write; `-` for stdout.")
]
MaxBytes = Annotated[
    int | None,
    typer.Option("--max-bytes", min=1, metavar="N", help="The largest contents. Default: 256 MiB."),
]
Folder = Annotated[Path, typer.Argument(help="Default: the current folder.")]
PackFile = Annotated[str, typer.Argument(help="A file that `pack` wrote; `-` for stdin.")]


@app.command()
def pack(
    output: Output,
    source: Annotated[
        str, typer.Argument(help="A folder, or a repository: git+https://host/path@ref.")
    ] = ".",
    exclude: Annotated[
        list[str] | None, typer.Option(help="Leave out this name or pattern; may be repeated.")
    ] = None,
    submodules: Annotated[
        bool, typer.Option("--submodules", help="Include the files of repositories in the folder.")
    ] = False,
    lfs_pointers: Annotated[
        bool, typer.Option("--lfs-pointers", help="Pack Git LFS pointers as they are.")
    ] = False,
    max_bytes: MaxBytes = None,
    json: Json = False,
) -> None:
    """Pack what git tracks and what it does not ignore into one file."""
    made = geminorum.workspace.pack(
        source,
        exclude=exclude or (),
        submodules=submodules,
        lfs_pointers=lfs_pointers,
        max_bytes=_limit(max_bytes),
    )
    _write(made, output)
    facts = {"file": output, "bytes": len(made.data), "left_out": [*map(encodable, made.left_out)]}
    _tell(facts, [f"packed {source}: {len(made.data):,} bytes in {output}"], json, output)
    _tell_left_out(made.left_out, json)
    _warn_inside(output, Path(source), "the next pack has it, too")


@app.command()
def unpack(
    pack: PackFile,
    folder: Annotated[Path, typer.Argument(help="A new or an empty folder.")],
    max_bytes: MaxBytes = None,
    json: Json = False,
) -> None:
    """Unpack into a new or an empty folder."""
    made = geminorum.workspace.Workspace.unpack(_read(pack), folder, max_bytes=_limit(max_bytes))
    _tell({"folder": made.folder}, [f"unpacked into {made.folder}"], json)
    if not json:
        sys.stderr.write(f"{_how_to_compare(pack, folder)}\n")


def _how_to_compare(pack: str, folder: Path) -> str:
    if pack == _STREAM:
        return "keep the pack, which tells later what changed: in a pipe, `tee FILE` saves it"
    what = shlex.join([pack, str(folder)])
    again = f"geminorum workspace diff {what} --output FILE"
    return f"keep {pack}, which tells later what changed: {again}"


@app.command()
def diff(
    pack: PackFile,
    output: Output,
    folder: Folder = Path(),
    control_files: ControlFiles = False,
    max_bytes: MaxBytes = None,
    json: Json = False,
) -> None:
    """Write what changed in a folder since it was unpacked."""
    limit = _limit(max_bytes)
    base = geminorum.workspace.Pack(_read(pack))
    patch = geminorum.workspace.Workspace(folder, base).diff(
        control_files=control_files, max_bytes=limit
    )
    _write(patch, output)
    facts = {
        "file": output,
        "changes": fields_of(patch.changes),
        "left_out": [*map(encodable, patch.left_out)],
    }
    last = (
        f"{counted(patch.changes)} in {output}; apply them at home: geminorum workspace apply FILE"
    )
    _tell(facts, [*lines_of(patch.changes), last], json, output)
    _tell_left_out(patch.left_out, json)
    _warn_inside(output, folder, "the next diff has it, too")


@app.command()
def apply(
    patch: Annotated[str, typer.Argument(help="A file that `diff` wrote; `-` for stdin.")],
    folder: Folder = Path(),
    check: Check = False,
    show: Show = False,
    skip: Skip = None,
    conflicts_to: ConflictsTo = None,
    control_files: ControlFiles = False,
    max_bytes: MaxBytes = None,
    json: Json = False,
) -> None:
    """Apply all changes of a patch, or none of them."""
    given = geminorum.workspace.Patch(_read(patch), max_bytes=_limit(max_bytes))
    if show:
        return show_patch(given, folder)
    return apply_patch(
        given,
        folder,
        check=check,
        skip=skip or (),
        conflicts_to=conflicts_to,
        control_files=control_files,
        json=json,
    )


@app.command()
def recover(folder: Folder = Path(), json: Json = False) -> None:
    """Undo a patch whose `apply` was killed half-way."""
    undone = geminorum.workspace.Workspace(folder).recover()
    words = "undone: the folder is as it was" if undone else "nothing to undo"
    _tell({"undone": undone}, [words], json)


def _read(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == _STREAM else Path(name).read_bytes()


def _write(made: Pack | Patch, output: str) -> None:
    if output == _STREAM:
        write_bytes(made.data)
        return
    try:
        made.save(output)
    except FileExistsError as error:
        text = f"{output} exists; remove it, or name another file with --output"
        raise typer.BadParameter(text) from error


def _warn_inside(output: str, folder: Path, what: str) -> None:
    """Warns of a pack that packs the one before."""
    if output != _STREAM and folder.resolve() in Path(output).resolve().parents:
        sys.stderr.write(f"{output} is in the folder, and {what}: move it out\n")


def _limit(max_bytes: int | None) -> int:
    return max_bytes or geminorum.workspace.MAX_BYTES


def _tell(facts: dict[str, Any], lines: Iterable[str], json: bool, output: str = "") -> None:
    """On stdout, unless the file itself goes there."""
    if json and output != _STREAM:
        return print_json_line(facts)
    stream = sys.stderr if output == _STREAM else sys.stdout
    stream.writelines(f"{line}\n" for line in lines)
    return None


def _tell_left_out(names: tuple[str, ...], json: bool) -> None:
    if names and not json:
        first = ", ".join(map(geminorum.workspace.shown, names[:_LEFT_OUT_SHOWN]))
        more = len(names) - _LEFT_OUT_SHOWN
        rest = f" and {more} more" if more > 0 else ""
        sys.stderr.write(f"left out: {first}{rest}\n")
