"""`geminorum worker`, declared to Typer: `working.work` does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from geminorum.apps.command.app import new_app
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.flags.declare import CliPath, Remind
from geminorum.apps.command.flags.table import Program, Via
from geminorum.apps.command.fleet.flags import Db, JsonLines
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum.apps.command.fleet import working
else:
    working = lazy_module("geminorum.apps.command.fleet.working")

app = new_app()


Slots = Annotated[
    int, typer.Option(min=1, max=1000, metavar="N", help="How many jobs to run at a time.")
]
Tenants = Annotated[
    str | None, typer.Option(metavar="A,B", help="Work for these tenants. Default: all.")
]
Vias = Annotated[
    str | None,
    typer.Option(
        metavar="cli,acp,api",
        help="The transports to serve. Default: cli and acp, and api if there is an API key.",
    ),
]
UsePool = Annotated[
    bool, typer.Option("--pool", help="Serve acp from warm processes that jobs share.")
]
Name = Annotated[
    str | None, typer.Option(help="What to call it. Default: the machine and the process.")
]
DrainSeconds = Annotated[
    float | None,
    typer.Option(
        min=0, metavar="N", help="Hand running jobs back this long after a signal to stop."
    ),
]


UseInbox = Annotated[
    bool,
    typer.Option(
        "--inbox",
        help="Ask in the inbox before a tool acts: in --db or GEMINORUM_DB, or a file of yours.",
    ),
]


@app.command()
def worker(
    slots: Slots = 4,
    tenants: Tenants = None,
    via: Vias = None,
    pool: UsePool = False,
    name: Name = None,
    drain_seconds: DrainSeconds = None,
    inbox: UseInbox = False,
    remind: Remind = None,
    cli: CliPath = None,
    json: JsonLines = False,
    db: Db = None,
) -> Exit:
    """Run jobs of the fleet on this machine until it is told to stop.

    SIGTERM or Ctrl-C drains it: it takes no more jobs, and ends when those that run have ended. A
    second one hands them back, and other workers continue them. It needs no open port.
    """
    work = working.Work(
        slots=slots,
        tenants=_names(tenants, "--tenants"),
        vias=_vias(via),
        pool=pool,
        name=name,
        drain_seconds=drain_seconds,
        program=Program(cli),
        inbox=inbox,
        remind=remind,
    )
    return working.run_worker(db, work, json=json)


def _names(text: str | None, flag: str) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise typer.BadParameter(f"{text!r}; write names with commas between", param_hint=flag)
    return names


def _vias(text: str | None) -> list[Via] | None:
    known = {via.value: via for via in Via}
    names = _names(text, "--via")
    for name in names or ():
        if name not in known:
            expected = f"{name!r}; write some of cli,acp,api"
            raise typer.BadParameter(expected, param_hint="--via")
    return None if names is None else [known[name] for name in dict.fromkeys(names)]
