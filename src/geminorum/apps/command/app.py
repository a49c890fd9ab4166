"""The table of commands, as Typer knows them.

To add one: a row in COMMANDS and the module that it names. The module has a
`typer.Typer` named `app` (make it with `new_app()`). With one `@app.command()` it is a plain
command (`geminorum doctor`); with several, or with an `@app.callback()`, it is a group
(`geminorum sessions list`). The module is imported only when its command is called, also for its
help page: so the library comes as `import geminorum`, whose names load when they are first read,
and what needs rich or asyncio on top is a module of its own, named with `lazy_module`.

A command returns None (exit code 0) or an `exits.Exit`. It lets a `GeminorumError` pass; `guard`
shows it with its hint and turns it into its exit code, and does so for closed pipes and Ctrl-C too.
For a mistake of the user's that has no error of its own: `raise typer.BadParameter("what; what to
type")`. Plain data goes out through `output.print_json_line`, tables through `output.console()`. A
command that sends prompts wears `@takes_options` under `@app.command()` and gets `Options`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from geminorum.apps.command.render.help import command_page, front_page, page_width


class Row(NamedTuple):
    """A command before it is loaded."""

    help: str
    section: str
    module: str
    """Where it lives, below this package."""


_ASK, _LOOK, _SET = "Run agents", "Sessions and cost", "Setup and tools"
_FLEET = "Many machines"
COMMANDS: dict[str, Row] = {
    "run": Row("Send one prompt and show what the agent does.", _ASK, "run.command"),
    "chat": Row("Chat with the agent.", _ASK, "chat.command"),
    "batch": Row("Send many prompts from a file; run it again to continue.", _ASK, "batch.command"),
    "inbox": Row("List, show and answer the questions of agents.", _ASK, "inbox.command"),
    "web": Row("Open a web page to start, watch and answer agents.", _ASK, "web.command"),
    "submit": Row("Queue a prompt for any worker of the fleet.", _FLEET, "fleet.submit_command"),
    "jobs": Row(
        "List, show, follow, cancel and retry jobs; apply their changes.",
        _FLEET,
        "fleet.jobs_command",
    ),
    "worker": Row("Run jobs of the fleet on this machine.", _FLEET, "fleet.worker_command"),
    "fleet": Row("Create, watch, limit and prune the fleet.", _FLEET, "fleet.command"),
    "sessions": Row(
        "List, read, follow, search, export, fork and delete saved sessions.",
        _LOOK,
        "sessions.command",
    ),
    "usage": Row(
        "Show tokens and cost by day, model, project or session.", _LOOK, "sessions.usage"
    ),
    "cost": Row("Show what a saved session cost, and why.", _LOOK, "sessions.cost"),
    "doctor": Row("Check the setup and say how to fix it.", _SET, "setup.doctor"),
    "setup": Row("Install the Gemini CLI into geminorum's own folder.", _SET, "setup.setup"),
    "policy": Row(
        "Show a policy in the CLI's format, or test it on a saved session.", _SET, "setup.policy"
    ),
    "skills": Row("List and validate Agent Skills.", _SET, "setup.skills"),
    "models": Row("List models, prices, context windows and aliases.", _SET, "setup.models"),
    "config": Row(
        "Print the JSON Schema of the options, or validate an options file.", _SET, "setup.config"
    ),
    "workspace": Row(
        "Move a folder to another machine, and bring its changes back.",
        _SET,
        "workspace.command",
    ),
    "fake": Row("Run a simulated Gemini API on this machine, for experiments.", _SET, "setup.fake"),
}


def _show_help(ctx: Any, _: Any, wanted: bool) -> None:
    # Not by Typer's `echo`, which may write past our stdout: it would not know our colours.
    if wanted and not ctx.resilient_parsing:
        sys.stdout.write(ctx.get_help() + "\n")
        ctx.exit()


def _with_our_help(option: Any) -> Any:
    if option is not None:
        option.callback = _show_help
    return option


class OneCommand(TyperCommand):
    """A command with our help page."""

    def get_help_option(self, ctx: Any) -> Any:
        return _with_our_help(super().get_help_option(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(command_page(self, ctx, page_width()))


class CommandGroup(TyperGroup):
    """A group with our help page."""

    def get_help_option(self, ctx: Any) -> Any:
        return _with_our_help(super().get_help_option(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.list_commands(ctx) and not args[0].startswith("-"):
            ctx.fail(_no_such_command(args[0], self.list_commands(ctx), ctx.command_path))
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(command_page(self, ctx, page_width()))


class App(typer.Typer):
    """The app of one command, or of a group of them."""

    def command(self, name: str | None = None, **more: Any) -> Any:
        return super().command(name, **{"cls": OneCommand, **more})


def new_app(help: str | None = None) -> typer.Typer:
    """An app for one command or group; all of them behave alike."""
    return App(
        cls=CommandGroup,
        help=help,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=_HELP,
    )


class LazyCommands(TyperGroup):
    """The commands of the table; each is imported when it is called."""

    def get_help_option(self, ctx: Any) -> Any:
        return _with_our_help(super().get_help_option(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"geminorum.apps.command.{COMMANDS[cmd_name].module}")
        command = get_command(module.app)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(_no_such_command(args[0], COMMANDS, "geminorum"))
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(front_page(COMMANDS, page_width()))


_HELP = {"help_option_names": ["-h", "--help"]}
root = typer.Typer(
    cls=LazyCommands,
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=_HELP,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from geminorum.apps.command.render.version import version_lines

        sys.stdout.writelines(f"{line}\n" for line in version_lines())
        raise typer.Exit


@root.callback()
def geminorum(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Drive Gemini as an agent."""


def command_line(arguments: list[str]) -> Any:
    """Have Typer read the arguments and call the command that they name."""
    return get_command(root).main(arguments, "geminorum", standalone_mode=False)


def _no_such_command(name: str, known: Iterable[str], path: str) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    advice = f"{path} {near[0]}" if near else f"{path} --help"
    if not near and path == "geminorum":
        advice = 'geminorum run "your prompt"'
    return f"there is no command {name!r}; did you mean `{advice}`?"
