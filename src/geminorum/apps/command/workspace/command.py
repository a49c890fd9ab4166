"""`geminorum workspace`: a folder as one file, and what changed elsewhere as another one."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import geminorum
from geminorum.apps.command.app import new_app
from geminorum.apps.command.render.output import print_json_line, write_bytes, write_data
from geminorum.apps.command.render.style import styled
from geminorum.errors import WorkspaceConflict

if TYPE_CHECKING:
    from geminorum.workspace import Applied, Change, Pack, Patch

app = new_app("Move a folder to another machine, and bring its changes back.")

_STREAM = "-"
_LEFT_OUT_SHOWN = 5
_COLOURS = {"added": "green", "changed": "yellow", "deleted": "red"}

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
ControlFiles = Annotated[
    bool,
    typer.Option("--control-files", help="Include files that control agents: .gemini, .agents."),
]


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
    facts = {"file": output, "bytes": len(made.data), "left_out": [*map(_text, made.left_out)]}
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
    again = f"geminorum workspace diff {pack} {folder} --output FILE"
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
        "changes": _fields(patch.changes),
        "left_out": [*map(_text, patch.left_out)],
    }
    last = (
        f"{_count(patch.changes)} in {output}; apply them at home: geminorum workspace apply FILE"
    )
    _tell(facts, [*_lines(patch.changes), last], json, output)
    _tell_left_out(patch.left_out, json)
    _warn_inside(output, folder, "the next diff has it, too")


@app.command()
def apply(
    patch: Annotated[str, typer.Argument(help="A file that `diff` wrote; `-` for stdin.")],
    folder: Folder = Path(),
    check: Annotated[
        bool, typer.Option("--check", help="Say what would be done, and write nothing.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the changes as a diff, and write nothing.")
    ] = False,
    skip: Annotated[
        list[str] | None, typer.Option(help="Leave out this name or pattern; may be repeated.")
    ] = None,
    conflicts_to: Annotated[
        Path | None,
        typer.Option(help="If files changed on both sides, write the patch's versions there."),
    ] = None,
    control_files: ControlFiles = False,
    max_bytes: MaxBytes = None,
    json: Json = False,
) -> None:
    """Apply all changes of a patch, or none of them."""
    given = geminorum.workspace.Patch(_read(patch), max_bytes=_limit(max_bytes))
    here = geminorum.workspace.Workspace(folder)
    if show:
        return write_data(here.render(given))
    act = here.check if check else here.apply
    try:
        done = act(given, skip=skip or (), control_files=control_files)
    except WorkspaceConflict as error:
        if conflicts_to is not None:
            given.extract(conflicts_to, error.paths)
            error.hint = f"merge them with the patch's versions in {conflicts_to}, then --skip them"
        raise
    return _tell_applied(done, json=json, check=check)


@app.command()
def recover(folder: Folder = Path(), json: Json = False) -> None:
    """Undo a patch whose `apply` was killed half-way."""
    undone = geminorum.workspace.Workspace(folder).recover()
    words = "undone: the folder is as it was" if undone else "nothing to undo"
    _tell({"undone": undone}, [words], json)


def _tell_applied(done: Applied, *, json: bool, check: bool) -> None:
    facts = {"applied": not check, "changes": _fields(done.changes), "already": len(done.already)}
    verb = "would be applied" if check else "applied"
    last = f"{_count(done.changes)} {verb}"
    if done.already:
        last += f", {len(done.already)} there already"
    _tell(facts, [*_lines(done.changes), last], json)


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


def _lines(changes: Iterable[Change]) -> list[str]:
    return [
        f"{styled(f'{one.what:8}', _COLOURS[one.what])} {geminorum.workspace.shown(one.name)}"
        for one in changes
    ]


def _fields(changes: Iterable[Change]) -> list[dict[str, str]]:
    return [{"what": one.what, "name": _text(one.name)} for one in changes]


def _text(name: str) -> str:
    """A name as JSON can have it: exact, unless it is not UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _count(changes: Iterable[Change]) -> str:
    number = len(list(changes))
    return f"{number:,} change{'' if number == 1 else 's'}"
