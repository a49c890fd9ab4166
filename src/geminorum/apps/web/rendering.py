"""Templates to pages. All text is escaped, whoever wrote it."""

from __future__ import annotations

from functools import cache, partial
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from geminorum import __version__
from geminorum.apps.web import words
from geminorum.apps.web.fleet.link import fleet_url
from geminorum.apps.web.hinting import command_fix, page_hint
from geminorum.apps.web.navigation import TABS, Tab
from geminorum.apps.web.questions.showing import exposed, is_long
from geminorum.apps.web.security.csrf import csrf_token
from geminorum.apps.web.services import settings_of, waiting_questions
from geminorum.apps.web.sessions.names import is_session_id
from geminorum.views.diffs import counts, head_and_body
from geminorum.views.html.prose import rendered, visible
from geminorum.views.transcript import as_text, one_line


def render(request: Request, template: str, status_code: int = 200, **context: Any) -> HTMLResponse:
    """The page that a template makes; see `templates/layout.html` for what every template has."""
    return HTMLResponse(draw(request, template, **context), status_code)


def draw(request: Request, template: str, **context: Any) -> str:
    """The HTML that a template makes."""
    return _environment().get_template(template).render(**_always(request), **context)


def path_for(request: Request, name: str, /, **parameters: Any) -> str:
    """The path of a route by its name, below the prefix that the page is mounted at."""
    root = str(request.scope.get("root_path", "")).rstrip("/")
    return f"{root}{request.app.url_path_for(name, **parameters)}"


def path_below(request: Request) -> str:
    """The path of a request, without the prefix that the page is mounted at."""
    return str(request.scope["path"]).removeprefix(request.scope.get("root_path", ""))


def redirect(request: Request, name: str, /, **parameters: Any) -> Response:
    """Sends the browser to another page after a form was handled."""
    return Response(status_code=303, headers={"location": path_for(request, name, **parameters)})


def return_to(request: Request, name: str) -> Response:
    """Sends the browser back to the page that the form was on; if that is not told, to `name`."""
    came_from = urlsplit(request.headers.get("referer", ""))
    if came_from.netloc != request.headers.get("host") or not came_from.path.startswith("/"):
        return redirect(request, name)
    # The path only, and never `//elsewhere`: it can lead to no other host.
    location = "/" + came_from.path.lstrip("/")
    return Response(status_code=303, headers={"location": location})


def is_fragment(request: Request) -> bool:
    """Does htmx ask, which wants the part that changes and not the page around it?"""
    return request.headers.get("hx-request") == "true"


def _always(request: Request) -> dict[str, Any]:
    """What every template has."""
    has_fleet = fleet_url(settings_of(request).db) is not None
    return {
        "url": partial(path_for, request),
        "tabs": [_shown_tab(request, tab) for tab in TABS if has_fleet or not tab.needs_fleet],
        "csrf_token": csrf_token(request),
        "can_write": not settings_of(request).read_only,
        "waiting": waiting_questions(request),
        "version": __version__,
    }


def _shown_tab(request: Request, tab: Tab) -> tuple[str, str, bool]:
    """Its title, its path, and whether this page is below it."""
    path = path_for(request, tab.route)
    return tab.title, path, f"{request.url.path}/".startswith(f"{path}/")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("geminorum.apps.web"),
        # Every template is HTML, whatever its name ends in.
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _FILTERS
    environment.tests |= {"session_id": is_session_id, "long": is_long}
    return environment


def _shown(value: Any) -> Any:
    """Every text of a page: letters that hide, or turn the order of others round, are spelled."""
    return visible(value) if type(value) is str else value


def _markdown(text: str) -> Markup:
    # Raw HTML, images and other schemes than the web's come out as text.
    return Markup(rendered(text))  # nosec B704  # its tests try


def _moment(milliseconds: int) -> Markup:
    """A point in time; the browser shows it in its own zone."""
    when = words.instant(milliseconds)
    return Markup('<time datetime="{}">{:%Y-%m-%d %H:%M} UTC</time>').format(when.isoformat(), when)


def _lines_of_diff(diff: str) -> list[tuple[str, str]]:
    """Each line with the name of its kind."""
    head, body = head_and_body(diff)
    return [("file", line) for line in head] + [
        (_MARKS.get(line[:1], "same"), line) for line in body
    ]


_MARKS = {"+": "came", "-": "went", "@": "where"}
_FILTERS = {
    "markdown": _markdown,
    "moment": _moment,
    "tokens": words.tokens,
    "usd": words.usd,
    "seconds": words.seconds,
    "one_line": one_line,
    "diff_lines": _lines_of_diff,
    "diff_counts": counts,
    "cut": words.cut,
    "base_name": words.base_name,
    "size": words.size,
    "took": words.took,
    "short_number": words.short_number,
    "counted": words.counted,
    "hint": page_hint,
    "command": command_fix,
    "readable_json": as_text,
    "exposed": exposed,
}
