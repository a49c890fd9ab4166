"""The Python blocks of a page as modules that a type checker reads: each on its own.

A block may use names of the blocks above it; its module begins with the statements that make them.
"""

from __future__ import annotations

import ast
import builtins
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from pages import steps


def write_modules(page: Path, folder: Path) -> list[Path]:
    """Writes a module for each Python block of the page; their names tell page and line."""
    earlier: list[ast.stmt] = []
    written = []
    for step in steps(page):
        if step.kind != "python":
            continue
        block = ast.parse(step.code).body
        file = folder / f"{page.stem.replace('-', '_')}_line_{step.line}.py"
        file.write_text(_module([*_needed(block, earlier)], block, step.code))
        written.append(file)
        earlier += block
    return written


def _module(context: list[ast.stmt], block: list[ast.stmt], code: str) -> str:
    head = "".join(f"{ast.unparse(statement)}\n" for statement in context)
    whole = f"{head}# ---- the block\n{code}"
    if not any(map(_awaits, [*context, *block])):
        return whole
    return f"async def main() -> None:\n{textwrap.indent(whole, '    ')}"


def _needed(block: list[ast.stmt], earlier: list[ast.stmt]) -> list[ast.stmt]:
    """The earlier statements without which the block has unknown names, in their order."""
    wanted, found = _used(block) - _bound_first(block), set[int]()
    while wanted:
        name = wanted.pop()
        makers = [place for place, one in enumerate(earlier) if name in _bound(one)]
        # All imports of a package: each may bring another module of it.
        imports = [place for place in makers if isinstance(earlier[place], ast.Import)]
        for place in {*imports, *makers[-1:]} - found:
            found.add(place)
            wanted |= _used([earlier[place]])
    return [earlier[place] for place in sorted(found)]


def _bound_first(block: list[ast.stmt]) -> set[str]:
    """Names that the block binds before it uses them."""
    bound: set[str] = set()
    used: set[str] = set()
    for statement in block:
        loaded = _used([statement])
        makes = _bound(statement)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.For):
            loaded -= makes
        if isinstance(statement, ast.With | ast.AsyncWith | ast.AsyncFor):
            loaded -= makes
        used |= loaded - bound
        bound |= makes
    return bound - used


def _used(statements: Iterable[ast.stmt]) -> set[str]:
    nodes = (node for statement in statements for node in ast.walk(statement))
    names = {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    return names - set(dir(builtins))


def _bound(statement: ast.stmt) -> set[str]:
    return set(_bindings(statement))


def _bindings(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
            return  # What is bound inside is not seen outside.
        case ast.Import() | ast.ImportFrom():
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        case ast.Name(ctx=ast.Store()):
            yield node.id
        case _:
            pass
    for child in ast.iter_child_nodes(node):
        yield from _bindings(child)


def _awaits(node: ast.AST) -> bool:
    if isinstance(node, ast.Await | ast.AsyncWith | ast.AsyncFor):
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return False
    return any(map(_awaits, ast.iter_child_nodes(node)))
