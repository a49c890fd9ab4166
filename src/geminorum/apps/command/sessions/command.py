"""`geminorum sessions`: what the Gemini CLI has saved, to be found, read, kept or removed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import geminorum
from geminorum.apps.command.app import new_app
from geminorum.apps.command.flags.moments import moment_of
from geminorum.apps.command.flags.options import STORE_VARIABLE
from geminorum.apps.command.private_files import write_private
from geminorum.apps.command.render.output import (
    confirmed,
    console,
    print_json_line,
    print_line,
    write_data,
)
from geminorum.apps.command.render.tables import put
from geminorum.apps.command.sessions.chosen import existing_place_of, place_of
from geminorum.apps.command.sessions.cost import parts_of, total
from geminorum.errors import InvalidOptions
from geminorum.runtime.lazy import asyncio, lazy_module

if TYPE_CHECKING:
    from geminorum.apps.command.sessions import stored, views
    from geminorum.events import Event
    from geminorum.sessions import Session, SessionInfo
else:
    # It draws with rich, which a help page does without.
    views = lazy_module("geminorum.apps.command.sessions.views")
    stored = lazy_module("geminorum.apps.command.sessions.stored")

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
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar=STORE_VARIABLE,
        show_envvar=False,
        help="Use the sessions in this store. Default: GEMINORUM_STORE, or those of this machine.",
    ),
]
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
    store: Store = None,
) -> None:
    """List the sessions of this folder, or of a store, newest first."""
    if store:
        return _put_stored(store, limit, json=json)
    place = None if everywhere else (cwd or Path.cwd())
    # An empty session is nothing to go on with.
    found = [one for one in geminorum.sessions.list(place, since=moment_of(since)) if not one.empty]
    more = None
    if (left := len(found) - limit) > 0:
        # The same list again, with the options that chose it.
        chosen = [("--all", everywhere), (f"--cwd {cwd}", cwd), (f"--since {since}", since)]
        again = [option for option, given in chosen if given]
        more = f"{left} more; geminorum {' '.join(['sessions list', *again])} --limit {len(found)}"
    return _put_list(found[:limit], json=json, more=more, everywhere=everywhere)


def _put_stored(url: str, limit: int, *, json: bool) -> None:
    found = stored.stored_sessions(url)
    if json:
        for info in found[:limit]:
            print_json_line(info)
        return
    left = len(found) - limit
    more = f"{left} more; add --limit {len(found)}" if left > 0 else None
    if found:
        put(views.listing(stored.as_sessions(found[:limit]), more=more, everywhere=True))
    else:
        _tell("the store is empty; geminorum run --store URL keeps a session there")


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
    if not text.strip():
        raise InvalidOptions("there is nothing to search for", hint='for example "pipe"')
    place = None if everywhere else (cwd or Path.cwd())
    found = geminorum.sessions.list(place, since=moment_of(since), text=text)
    if json:
        return _put_list(found, json=True)
    for info in found:
        _put_found(info, text)
    if not found:
        _tell(f"nobody said {text!r} here; add --all to search every folder")
    return None


@app.command()
def show(session: Name, json: Json = False, store: Store = None) -> None:
    """Show a session as Markdown; with --json, its events."""
    with _loaded(session, store) as loaded:
        if json:
            _put_events(loaded.events())
        elif sys.stdout.isatty():
            _put_page(loaded)
        else:
            sys.stdout.write(geminorum.sessions.export(loaded, "markdown"))


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
    store: Store = None,
) -> None:
    """Export a session as Markdown, HTML, geminorum events, Claude messages or ShareGPT."""
    with _loaded(session, store) as loaded:
        text = geminorum.sessions.export(loaded, format, title=title)
    if output is None:
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
    copy = geminorum.sessions.fork(place_of(session), new_id=new_id)
    if json:
        return _put_list([copy], json=True)
    sys.stdout.write(f"{copy.id}\n")
    return _tell(f'continue it: geminorum run --resume {copy.id} "…"')


@app.command()
def delete(
    session: Annotated[list[str], typer.Argument(help="Ids or the start of ids, or files.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: Store = None,
) -> None:
    """Delete sessions permanently, with their saved tool outputs."""
    if store:
        return _delete_from(store, session, yes=yes)
    found = [existing_place_of(name) for name in session]  # All, before the first is gone.
    for one in found:
        if yes or _sure(f"Delete {views.label_of(one)}?"):
            for path in geminorum.sessions.delete(one):
                sys.stdout.write(f"removed {path}\n")
    return None


def _delete_from(url: str, names: list[str], *, yes: bool) -> None:
    store, found = stored.chosen_in(url, names)
    for one in found:
        if yes or _sure(f"Remove {one} from the store?"):
            geminorum.sessions.store.delete(store, one)
            sys.stdout.write(f"removed {one} from the store\n")


@contextmanager
def _loaded(name: str, store: str | None) -> Iterator[Session]:
    """The session that is meant, on this machine or in a store."""
    if store is None:
        yield geminorum.sessions.load(place_of(name))
        return
    with stored.stored_session(store, name) as session:
        yield session


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
    return put(views.listing(found, more=more, everywhere=everywhere))


def _put_json(found: list[SessionInfo]) -> None:
    for info in found:
        print_json_line(info)


def _put_found(info: SessionInfo, text: str) -> None:
    screen = console()
    width = screen.width if screen.is_terminal else None
    # On a screen, as in a list; in a pipe, all of it.
    line_each: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"}
    how = line_each if width else {"soft_wrap": True}
    events = geminorum.sessions.load(info).events()
    for line in (views.heading(info), *views.snippets(events, text, width)):
        screen.print(line, **how)


async def _tail(name: str, *, json: bool) -> None:
    screen = console()
    async for event in geminorum.sessions.tail(place_of(name)):
        if json:
            print_line(geminorum.events.encode(event))
        elif what := views.summarize(event):
            screen.print(what.drawn() if screen.is_terminal else what.line, soft_wrap=True)
            sys.stdout.flush()


def _put_page(session: Session) -> None:
    screen = console()
    for part in views.page(session.events()):
        screen.print(part)
    screen.print(f"\n{session.id} · {total(parts_of(session))}", style="dim")


def _put_events(told: Iterable[Event]) -> None:
    for event in told:
        print_line(geminorum.events.encode(event))


def _sure(question: str) -> bool:
    if not (sys.stdin and sys.stdin.isatty()):
        raise InvalidOptions("there is nobody to ask", hint="add --yes to delete all the same")
    return confirmed(question)


def _tell(line: str) -> None:
    """Beside the data, so that a pipe gets only that."""
    sys.stderr.write(f"{line}\n")
