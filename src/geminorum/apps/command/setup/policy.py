"""`geminorum policy`: what a policy says, in the CLI's language and to a past session."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

import geminorum
from geminorum.apps.command.app import new_app
from geminorum.apps.command.flags.options import data_in, policy_from
from geminorum.apps.command.flags.table import Approval
from geminorum.apps.command.render.facts import gist
from geminorum.apps.command.render.output import print_json_line, write_data
from geminorum.apps.command.render.tables import Column, Sheet, put
from geminorum.apps.command.sessions.chosen import place_of
from geminorum.errors import InvalidOptions
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum import policies
    from geminorum.apps.command.sessions import views
    from geminorum.events import Event, ToolUse
    from geminorum.policies import Rules, Verdict
else:
    policies = lazy_module("geminorum.policies")
    views = lazy_module("geminorum.apps.command.sessions.views")

app = new_app("Show a policy in the CLI's format, or test it on a saved session.")

Wanted = Annotated[
    str | None,
    typer.Option(
        "--policy",
        "-p",
        metavar="FILE|RULES",
        help="A JSON or TOML file, a CLI policy file, or file_write=allow,shell_execute=deny.",
    ),
]
Mode = Annotated[
    Approval | None, typer.Option("--approval", "-a", help="The approval mode of the run.")
]
Only = Annotated[
    list[str] | None,
    typer.Option("--allow-tool", help="Allow this tool and no others; may be repeated."),
]
Never = Annotated[
    list[str] | None, typer.Option("--deny-tool", help="Never run this tool; may be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per call.")]


class Judged(NamedTuple):
    """A call of the past, what became of it, and what would become of it."""

    tool: str
    input: dict[str, object]
    then: str
    """"success", "error" or "denied"; empty where the session does not tell."""
    verdict: Verdict
    """What `run` would do: without a user to answer, "ask" is "deny"."""
    would_ask: bool
    """Would a chat, or `decide`, be asked about it?"""


@app.command()
def show(
    policy: Wanted = None, approval: Mode = None, allow: Only = None, deny: Never = None
) -> None:
    """Print the TOML policy file that a run would pass to the Gemini CLI."""
    if policy is not None and _is_file_of_the_cli(policy):
        _load_rules(policy, approval, allow, deny)  # Says what is wrong with it.
        return write_data(Path(policy).read_text(encoding="utf-8"))
    return write_data(policies.toml_of(_options(policy, approval, allow, deny)))


@app.command("test")
def replay(
    session: Annotated[str, typer.Argument(help="An id or the start of one, a file, or `latest`.")],
    policy: Wanted = None,
    approval: Mode = None,
    allow: Only = None,
    deny: Never = None,
    json: Json = False,
) -> None:
    """Check each tool call of a saved session against a policy. Runs nothing."""
    rules = _load_rules(policy, approval, allow, deny)
    calls = judged(geminorum.sessions.load(place_of(session)).events(), rules)
    if json:
        for call in calls:
            print_json_line(call._asdict())
        return
    put(sheet(calls))


def judged(events: Iterable[Event], rules: Rules) -> list[Judged]:
    """Every call in the events, in order."""
    told = list(events)
    became = {event.id: event.status for event in told if isinstance(event, geminorum.ToolResult)}
    return [
        _judged(event, str(became.get(event.id, "")), rules)
        for event in told
        if isinstance(event, geminorum.ToolUse)
    ]


def _judged(call: ToolUse, then: str, rules: Rules) -> Judged:
    verdict = rules.verdict(call.name, call.input)
    if would_ask := verdict.decision == "ask":
        verdict = policies.Verdict("deny", f"nobody to ask: {verdict.because}")
    return Judged(call.name, call.input, then, verdict, would_ask)


def sheet(calls: list[Judged]) -> Sheet:
    columns = [
        Column("would be", colours={"allowed": "green", "denied": "red"}),
        Column("was", spare=1, style="dim"),
        Column("tool", style="cyan"),
        Column("input", elastic=True),
        Column("because", spare=2, elastic=True, style="dim"),
    ]
    rows = [
        [
            _WORDS[call.verdict.decision],
            call.then,
            call.tool,
            gist(call.input) or views.brief(call.input),
            call.verdict.because,
        ]
        for call in calls
    ]
    return Sheet(columns, rows, notes=[_summary(calls)])


_WORDS = {"allow": "allowed", "deny": "denied"}


def _summary(calls: list[Judged]) -> str:
    if not calls:
        return "no tool was called in this session"
    counts = (
        f"{sum(call.verdict.decision == level for call in calls)} {word}"
        for level, word in _WORDS.items()
    )
    asked = sum(call.would_ask for call in calls)
    more = f"; `chat`, or `decide` in Python, would ask about {asked} of them" if asked else ""
    return ", ".join(counts) + more


def _load_rules(
    policy: str | None, approval: Approval | None, allow: list[str] | None, deny: list[str] | None
) -> Rules:
    if policy is None or not _is_file_of_the_cli(policy):
        return policies.Rules.of(_options(policy, approval, allow, deny))
    if allow or deny:
        text = "--allow-tool and --deny-tool do not go with a policy file of the CLI"
        raise InvalidOptions(text, hint="write them into the file, as rules")
    checked = _options(None, approval, None, None).approval
    return policies.Rules.read(policy, cast("Any", checked))


def _options(
    policy: str | None, approval: Approval | None, allow: list[str] | None, deny: list[str] | None
) -> geminorum.Options:
    return geminorum.Options(
        policy=policy_from(policy) if policy else None,
        approval=None if approval is None else approval.value,
        allowed_tools=tuple(allow) if allow else None,
        disallowed_tools=tuple(deny or ()),
    )


def _is_file_of_the_cli(text: str) -> bool:
    """Is it in the CLI's language, a list of rules, and not in ours?"""
    path = Path(text)
    if path.suffix != ".toml" or not path.is_file():
        return False
    return isinstance(data_in(path, "--policy").get("rule"), list)
