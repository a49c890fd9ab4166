"""A file of prompts to the tasks of a batch."""

from __future__ import annotations

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from geminorum.apps.command.flags import text_in
from geminorum.errors import InvalidOptions

_SHAPES = 'write one a line: "a prompt" or {"prompt": "…", "id": "…"}'


class Task(msgspec.Struct, frozen=True):
    """A prompt of the file. The id tells it from the others, today and when it goes on."""

    id: str
    prompt: str

    @property
    def digest(self) -> str:
        """By which a prompt is seen to be the same as last time."""
        return hashlib.sha256(self.prompt.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def tasks_in(file: Path, column: str | None = None) -> list[Task]:
    """The prompts of a JSONL file, or of a column of a CSV file, in order."""
    text = text_in(file, "FILE")
    is_table = column is not None or file.suffix.lower() in (".csv", ".tsv")
    rows = _table(text, column or "prompt", file) if is_table else _lines(text, file)
    tasks = [_task(row, number, where) for number, (row, where) in enumerate(rows, start=1)]
    _refuse_twins(tasks, file)
    if not tasks:
        raise InvalidOptions(f"{file} has no prompts", hint=_SHAPES)
    return tasks


def _lines(text: str, file: Path) -> Iterator[tuple[Any, str]]:
    # Not `splitlines`: JSON may hold line separators of Unicode as they are.
    for number, line in enumerate(text.lstrip("\ufeff").split("\n"), start=1):
        if line.strip():
            where = f"{file}, line {number}"
            try:
                yield msgspec.json.decode(line), where
            except (msgspec.DecodeError, RecursionError) as error:
                raise InvalidOptions(f"{where}: {error}", hint=_SHAPES) from error


def _table(text: str, column: str, file: Path) -> Iterator[tuple[Any, str]]:
    csv.field_size_limit(8 * 1024 * 1024)  # As much as a prompt may hold.
    mark = "\t" if file.suffix.lower() == ".tsv" else ","
    reader = csv.DictReader(io.StringIO(text.lstrip("\ufeff"), newline=""), delimiter=mark)
    names = list(reader.fieldnames or ())
    if column not in names:
        there = ", ".join(map(repr, names)) or "none"
        hint = f"--column NAME, one of {there}"
        raise InvalidOptions(f"{file} has no column {column!r}", hint=hint)
    try:
        for row in reader:
            given = {"id": row["id"]} if row.get("id") and column != "id" else {}
            yield {"prompt": row[column] or "", **given}, f"{file}, line {reader.line_num}"
    except csv.Error as error:
        where = f"{file}, line {reader.line_num}"
        raise InvalidOptions(f"{where}: {error}", hint="mend the line") from error


def _task(row: Any, number: int, where: str) -> Task:
    match row:
        case str():
            return Task(str(number), row)
        case {"prompt": str(prompt), **rest} if isinstance(rest.get("id", ""), str | int):
            return Task(str(rest.get("id", number)), prompt)
        case _:
            raise InvalidOptions(f"{where}: this is no prompt", hint=_SHAPES)


def _refuse_twins(tasks: Iterable[Task], file: Path) -> None:
    twice = [name for name, count in Counter(task.id for task in tasks).items() if count > 1]
    if twice:
        text = f"{file}: two prompts have the id {twice[0]!r}"
        raise InvalidOptions(text, hint="give each an id of its own")
