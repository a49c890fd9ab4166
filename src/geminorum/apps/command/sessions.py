"""`geminorum sessions`: what the Gemini CLI has saved, to be found, read, kept or removed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from geminorum.apps.command.app import new_app
from geminorum.apps.command.private_files import write_private
from geminorum.errors import InvalidOptions

if TYPE_CHECKING:
    from geminorum.events import Event
    from geminorum.sessions import Session, SessionInfo

app = new_app("List, read, follow, search, export, fork and delete saved sessions.")

Name = Annotated[str, typer.Argument(help="An id or the start of one, a file, or `latest`.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Since = Annotated[
    str | None, typer.Option(help="Only since this date or time: 2026-11-01, 24h, 7d, 2w.")
]
Everywhere = Annotated[
    bool, typer.Option("--all", "-a", help="Include the sessions of all folders.")
]
Folder = Annotated[Path | None, typer.Option(help="Use this folder instead of the current one.")]
Format = Literal["markdown", "html", "jsonl", "claude", "sharegpt"]


@app.command("list")
def list_(
    everywhere: Everywhere = False,
    cwd: Folder = None,
    since: Since = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="Show at most this many.")
    ] = 50,
    json: Json = False,
) -> None:
    """List the sessions of this folder, newest first."""
    from geminorum import sessions
    from geminorum.apps.command.moments import moment_of

    place = None if everywhere else (cwd or Path.cwd())
    # One in which nobody has said anything is nothing to go on with.
    found = [one for one in sessions.list(place, since=moment_of(since)) if not one.empty]
    more = None
    if (left := len(found) - limit) > 0:
        # The same list again, with the options that chose it.
        chosen = [("--all", everywhere), (f"--cwd {cwd}", cwd), (f"--since {since}", since)]
        again = [option for option, given in chosen if given]
        more = f"{left} more; geminorum {' '.join(['sessions list', *again])} --limit {len(found)}"
    _put_list(found[:limit], json=json, more=more, everywhere=everywhere)


@app.command()
def search(
    text: Annotated[
        str, typer.Argument(help="The text to find, in your prompts or the model's answers.")
    ],
    everywhere: Everywhere = False,
    cwd: Folder = None,
    since: Since = None,
    json: Json = False,
) -> None:
    """Find sessions that contain a text, and show the lines around it."""
    from geminorum import sessions
    from geminorum.apps.command.moments import moment_of

    if not text.strip():
        raise InvalidOptions("there is nothing to search for", hint='for example "pipe"')
    place = None if everywhere else (cwd or Path.cwd())
    found = sessions.list(place, since=moment_of(since), text=text)
    if json:
        return _put_list(found, json=True)
    for info in found:
        _put_found(info, text)
    if not found:
        _tell(f"nobody said {text!r} here; add --all to search every folder")
    return None


@app.command()
def show(session: Name, json: Json = False) -> None:
    """Show a session as Markdown; with --json, its events."""
    from geminorum import sessions

    loaded = sessions.load(place_of(session))
    if json:
        return _put_events(loaded.events())
    if not sys.stdout.isatty():
        sys.stdout.write(sessions.export(loaded, "markdown"))
        return None
    return _put_page(loaded)


@app.command()
def tail(session: Name, json: Json = False) -> None:
    """Follow a session while it is in use; Ctrl-C quits."""
    try:
        asyncio.run(_tail(session, json=json))
    except KeyboardInterrupt:
        return  # The only way out, and so a good one.


@app.command()
def export(
    session: Name,
    format: Annotated[Format, typer.Option("--format", "-f", help="The format to write.")] = (
        "markdown"
    ),
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write. Default: stdout.")
    ] = None,
    force: Annotated[bool, typer.Option(help="Overwrite an existing file.")] = False,
    title: Annotated[str | None, typer.Option(help="The title of the page.")] = None,
) -> None:
    """Export a session as Markdown, HTML, geminorum events, Claude messages or ShareGPT."""
    from geminorum import sessions

    text = sessions.export(sessions.load(place_of(session)), format, title=title)
    if output is None:
        from geminorum.apps.command.show import write_data

        return write_data(text)
    if output.exists() and not force:
        raise InvalidOptions(f"{output} already exists", hint="add --force to overwrite it")
    try:
        write_private(output, text)
    except OSError as error:
        why = f"{output} cannot be written: {error.strerror}"
        raise InvalidOptions(why, hint="choose another --output") from error
    return _tell(f"{output}: {len(text.encode()):,} bytes")


@app.command()
def fork(
    session: Name,
    new_id: Annotated[str | None, typer.Option("--id", help="The id of the copy.")] = None,
    json: Json = False,
) -> None:
    """Copy a session under a new id, so that you can continue both."""
    from geminorum import sessions

    copy = sessions.fork(place_of(session), new_id=new_id)
    if json:
        return _put_list([copy], json=True)
    sys.stdout.write(f"{copy.id}\n")
    return _tell(f'continue it: geminorum run --resume {copy.id} "…"')


@app.command()
def delete(
    session: Annotated[list[str], typer.Argument(help="Ids or the start of ids, or files.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete sessions permanently, with their saved tool outputs."""
    from geminorum import sessions
    from geminorum.apps.command.session_views import label_of

    found = [_there(place_of(name)) for name in session]  # All, before the first is gone.
    for one in found:
        if yes or _sure(f"Delete {label_of(one)}?"):
            for path in sessions.delete(one):
                sys.stdout.write(f"removed {path}\n")


# ---- which session is meant


def place_of(name: str) -> SessionInfo | Path:
    """The session that is meant: a file as it is named, `latest`, or the one id that begins so."""
    if any(mark in name for mark in "/\\."):  # None of them is in an id.
        return _file(name)
    return _latest() if name == "latest" else _by_id(name)


def _file(name: str) -> Path:
    """A file as it is named; the list names one that has no id without its folder."""
    from geminorum import sessions

    path = Path(name)
    if len(path.parts) > 1 or path.exists():
        return path
    return next((info.path for info in sessions.list() if info.path.name == name), path)


def _latest() -> SessionInfo:
    from geminorum import sessions

    return _found(sessions.find(Path.cwd()), f"there is no session of {Path.cwd()} yet")


def _by_id(name: str) -> SessionInfo:
    from geminorum import sessions

    return _found(sessions.find(session_id=name), f"there is no session {name!r}")


def _there(place: SessionInfo | Path) -> SessionInfo | Path:
    if isinstance(place, Path) and not place.exists():
        return _found(None, f"there is no file {place}")
    return place


def _found(info: SessionInfo | None, problem: str) -> SessionInfo:
    from geminorum.errors import SessionLost

    if info is None:
        hint = "list the sessions: geminorum sessions list --all"
        raise SessionLost(problem, hint=hint)
    return info


# ---- what is shown


def _put_list(
    found: list[SessionInfo], *, json: bool, more: str | None = None, everywhere: bool = True
) -> None:
    if json:
        return _put_json(found)
    if not found:
        where = "no sessions at all" if everywhere else "no sessions of this folder"
        advice = 'geminorum run "Hello" makes one' if everywhere else "add --all for every folder"
        return _tell(f"{where}; {advice}")
    from geminorum.apps.command.session_views import listing
    from geminorum.apps.command.tables import put

    return put(listing(found, more=more, everywhere=everywhere))


def _put_json(found: list[SessionInfo]) -> None:
    from geminorum.apps.command.show import print_json_line

    for info in found:
        print_json_line(info)


def _put_found(info: SessionInfo, text: str) -> None:
    from geminorum import sessions
    from geminorum.apps.command.session_views import heading, snippets
    from geminorum.apps.command.show import console

    screen = console()
    width = screen.width if screen.is_terminal else None
    # On a screen, as in a list; in a pipe, all of it.
    line_each: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"}
    how = line_each if width else {"soft_wrap": True}
    for line in (heading(info), *snippets(sessions.load(info).events(), text, width)):
        screen.print(line, **how)


async def _tail(name: str, *, json: bool) -> None:
    from geminorum import events, sessions
    from geminorum.apps.command.session_views import told
    from geminorum.apps.command.show import console, print_line

    screen = console()
    async for event in sessions.tail(place_of(name)):
        if json:
            print_line(events.encode(event))
        elif what := told(event):
            screen.print(what.drawn() if screen.is_terminal else what.line, soft_wrap=True)
            sys.stdout.flush()


def _put_page(session: Session) -> None:
    from geminorum.apps.command.cost import parts_of, total
    from geminorum.apps.command.session_views import page
    from geminorum.apps.command.show import console

    screen = console()
    for part in page(session.events()):
        screen.print(part)
    screen.print(f"\n{session.id} · {total(parts_of(session))}", style="dim")


def _put_events(told: Iterable[Event]) -> None:
    from geminorum import events
    from geminorum.apps.command.show import print_line

    for event in told:
        print_line(events.encode(event))


def _sure(question: str) -> bool:
    if not (sys.stdin and sys.stdin.isatty()):
        raise InvalidOptions("there is nobody to ask", hint="add --yes to delete all the same")
    from geminorum.apps.command.show import confirmed

    return confirmed(question)


def _tell(line: str) -> None:
    """Beside the data, so that a pipe gets only that."""
    sys.stderr.write(f"{line}\n")
