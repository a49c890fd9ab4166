"""Rows to what people read: a table as wide as the terminal, plain columns in a pipe, bars."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from geminorum.apps.command.render.output import console
from geminorum.views.plain_text import printable

if TYPE_CHECKING:
    from rich.table import Table

_BLOCKS = " ▏▎▍▌▋▊▉█"
_GAP = 2
_LEAST = 12
"""Letters of a cell that may be cut: fewer say nothing."""


class Column(NamedTuple):
    title: str
    right: bool = False
    style: str = ""
    spare: int = 0
    """Left out where a terminal is too narrow: the highest number first, and 0 never."""
    elastic: bool = False
    """May be cut; other cells are shown whole or not at all."""
    colours: Mapping[str, str] = {}
    """The styles of words that say more than others."""


class Sheet(NamedTuple):
    """A table before anybody knows where it will be shown."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    total: Sequence[str] | None = None
    notes: Sequence[str] = ()
    """Lines below it."""


def put(sheet: Sheet) -> None:
    """On stdout: a table for a terminal, plain columns for a program or a file."""
    screen, sheet = console(), _flattened(sheet)
    if not screen.is_terminal:
        sys.stdout.write(plain(sheet))
        return
    if sheet.rows:
        screen.print(table(sheet, screen.width))
    for note in sheet.notes:
        screen.print(note, style="dim")


def table(sheet: Sheet, width: int) -> Table:
    """For a terminal of that width."""
    from rich.table import Table
    from rich.text import Text

    sheet = _flattened(sheet)
    drawn = Table(
        box=None,
        padding=(0, _GAP, 0, 0),
        pad_edge=False,
        header_style="bold",
        footer_style="bold",
        show_footer=sheet.total is not None,
    )
    shown = shown_columns(sheet, width)
    for number, wide in zip(shown, _widths(sheet, shown, width), strict=True):
        drawn.add_column(sheet.columns[number].title, width=wide, **_looks(sheet, number))
    for row in sheet.rows:
        # Text, not a string: a title with [brackets] in it is no markup.
        drawn.add_row(*(Text(row[n], _colour(sheet, row, n)) for n in shown))
    return drawn


def _colour(sheet: Sheet, row: Sequence[str], number: int) -> str:
    return sheet.columns[number].colours.get(row[number], "")


def shown_columns(sheet: Sheet, width: int) -> list[int]:
    """The numbers of the columns that fit."""
    shown = list(range(len(sheet.columns)))
    spare = sorted(shown, key=lambda number: -sheet.columns[number].spare)
    while sum(_need(sheet, number) + _GAP for number in shown) - _GAP > width:
        if not spare or not sheet.columns[spare[0]].spare:
            break
        shown.remove(spare.pop(0))
    return shown


def _need(sheet: Sheet, number: int) -> int:
    """The letters that a column cannot do without."""
    longest = _longest(sheet, number)
    return min(longest, _LEAST) if sheet.columns[number].elastic else longest


def _widths(sheet: Sheet, shown: Sequence[int], width: int) -> list[int]:
    """What each needs; what is left over goes to those that could use it, from the left."""
    widths = [_need(sheet, number) for number in shown]
    left = width - sum(widths) - _GAP * (len(shown) - 1)
    for place, number in enumerate(shown):
        more = max(0, min(left, _longest(sheet, number) - widths[place]))
        widths[place] += more
        left -= more
    return widths


def _looks(sheet: Sheet, number: int) -> dict[str, Any]:
    column = sheet.columns[number]
    return {
        "style": column.style,
        "justify": "right" if column.right else "left",
        "no_wrap": True,
        "overflow": "ellipsis",
        "footer": sheet.total[number] if sheet.total else "",
    }


def _longest(sheet: Sheet, number: int) -> int:
    cells = [row[number] for row in (*sheet.rows, *([sheet.total] if sheet.total else []))]
    return max([len(sheet.columns[number].title), *map(len, cells)])


def _flattened(sheet: Sheet) -> Sheet:
    """Cells and notes of one line, which do nothing to a terminal: strangers write titles."""
    rows = [[flat(cell) for cell in row] for row in sheet.rows]
    return sheet._replace(rows=rows, notes=[flat(note) for note in sheet.notes])


def flat(text: str) -> str:
    """On one line, with a single space between words."""
    return " ".join(printable(text).split())


def plain(sheet: Sheet) -> str:
    """Aligned columns with every letter of every cell, for `grep` and `awk`."""
    sheet = _flattened(sheet)
    head = [column.title for column in sheet.columns]
    rows = [head, *sheet.rows, *([sheet.total] if sheet.total else [])]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = [_aligned(row, widths, sheet.columns) for row in rows]
    return "".join(f"{line}\n" for line in [*lines, *sheet.notes])


def _aligned(row: Sequence[str], widths: Sequence[int], columns: Sequence[Column]) -> str:
    cells = zip(row, widths, columns, strict=True)
    placed = (cell.rjust(width) if one.right else cell.ljust(width) for cell, width, one in cells)
    return "  ".join(placed).rstrip()


class Bar(NamedTuple):
    label: str
    value: float
    text: str
    """What stands behind the bar: the value in words."""


def bars(rows: Iterable[Bar], width: int, *, blocks: bool = True) -> list[str]:
    """A chart of one line for each row; without `blocks`, in letters that every screen has."""
    shown = list(rows)
    most = max((bar.value for bar in shown), default=0)
    label = min(max((len(bar.label) for bar in shown), default=0), width // 2)
    room = width - label - 2 - max((len(bar.text) for bar in shown), default=0)
    if room < 3 or most <= 0:
        return []
    return [_bar(bar, bar.value / most * room, label, room, blocks) for bar in shown]


def _bar(bar: Bar, length: float, label: int, room: int, blocks: bool) -> str:
    whole, rest = int(length), int(length % 1 * 8)
    drawn = "█" * whole + (_BLOCKS[rest] if rest else "") if blocks else "#" * round(length)
    if bar.value > 0 and not drawn:
        drawn = _BLOCKS[1] if blocks else "."  # A little is not nothing.
    # Models and folders differ at their ends.
    name = bar.label if len(bar.label) <= label else "…" + bar.label[1 - label :]
    return f"{name.ljust(label)} {drawn.ljust(room)} {bar.text}"


def can_draw_blocks() -> bool:
    """Does stdout's encoding have them? Windows' code pages often do not."""
    try:
        _BLOCKS.encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
