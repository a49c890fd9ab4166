"""`geminorum skills`: the Agent Skills that the CLI would find, and what is wrong with one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import geminorum
from geminorum.apps.command.app import new_app
from geminorum.apps.command.exits import Exit
from geminorum.apps.command.render.output import print_json_line
from geminorum.apps.command.render.tables import Column, Sheet, put

if TYPE_CHECKING:
    from geminorum.skills import BrokenSkill, Skill

app = new_app("List and validate Agent Skills.")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


@app.command("list")
def list_(
    cwd: Annotated[
        Path | None, typer.Option("--cwd", "-C", help="Use this folder instead of the current one.")
    ] = None,
    json: Json = False,
) -> None:
    """List the skills of extensions, of the user and of this folder, then broken ones."""
    found, bad = geminorum.skills.discover(cwd), geminorum.skills.broken(cwd)
    if json:
        for line in (*map(_fields, found), *map(_fields, bad)):
            print_json_line(line)
    elif found or bad:
        put(sheet(found, bad))
    else:
        sys.stderr.write("no skills; put one into .gemini/skills/NAME/SKILL.md\n")


@app.command()
def validate(
    path: Annotated[list[Path], typer.Argument(help="Skill folders or SKILL.md files.")],
    json: Json = False,
) -> Exit:
    """Validate skills; exit code 2 if one is invalid."""
    problems = {one: geminorum.skills.validate(one) for one in path}
    for one, wrong in problems.items():
        if json:
            print_json_line({"path": one, "problems": wrong})
        else:
            sys.stdout.writelines(f"{line}\n" for line in _problem_lines(one, wrong))
    return Exit.USAGE if any(problems.values()) else Exit.OK


def sheet(found: list[Skill], bad: list[BrokenSkill]) -> Sheet:
    columns = [
        Column("name", style="cyan"),
        Column("tier", spare=1),
        Column("description", elastic=True),
        Column("file", spare=2, elastic=True, style="dim"),
    ]
    rows = [[skill.name, _tier(skill), skill.description, str(skill.path)] for skill in found]
    # A broken skill may have no name: its folder does.
    rows += [
        [one.path.parent.name, f"{one.tier}, broken", one.problem, str(one.path)] for one in bad
    ]
    return Sheet(columns, rows)


def _fields(one: Skill | BrokenSkill) -> dict[str, Any]:
    """The same keys for both, so that a reader need not tell them apart first."""
    names = ("name", "description", "path", "tier", "shadowed_by", "problem")
    return {name: getattr(one, name, None) for name in names}


def _tier(skill: Skill) -> str:
    return f"{skill.tier}, shadowed" if skill.shadowed_by else skill.tier


def _problem_lines(path: Path, problems: list[str]) -> list[str]:
    return [f"{path}: {problem}" for problem in problems] or [f"{path}: valid"]
