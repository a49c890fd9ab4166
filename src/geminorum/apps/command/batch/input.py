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

from geminorum.apps.command.flags.options import text_in
from geminorum.errors import InvalidOptions

_SHAPES = 'write one per line: "a prompt" or {"prompt": "…", "id": "…"}'
_NAMED = 10


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
    found = [
        (_task(row, number, f"{file}, line {line}"), line)
        for number, (row, line) in enumerate(rows, start=1)
    ]
    _refuse_empty(found, file)
    tasks = [task for task, _ in found]
    _refuse_twins(tasks, file)
    if not tasks:
        raise InvalidOptions(f"{file} has no prompts", hint=_SHAPES)
    return tasks


def _lines(text: str, file: Path) -> Iterator[tuple[Any, int]]:
    # Not `splitlines`: JSON may hold line separators of Unicode as they are.
    for number, line in enumerate(text.lstrip("\ufeff").split("\n"), start=1):
        if line.strip():
            try:
                yield msgspec.json.decode(line), number
            except (msgspec.DecodeError, RecursionError) as error:
                text = f"{file}, line {number}: {error}"
                raise InvalidOptions(text, hint=_SHAPES) from error


def _table(text: str, column: str, file: Path) -> Iterator[tuple[Any, int]]:
    csv.field_size_limit(8 * 1024 * 1024)  # As much as a prompt may hold.
    is_tsv = file.suffix.lower() == ".tsv"
    try:
        reader = _reader(text.lstrip("\ufeff"), column, "\t,;" if is_tsv else ",;\t")
    except csv.Error as error:
        raise InvalidOptions(f"{file}, line 1: {error}", hint="fix the line") from error
    names = list(reader.fieldnames or ())
    if column not in names:
        there = ", ".join(map(repr, names)) or "none"
        hint = f"--column NAME, one of {there}"
        raise InvalidOptions(f"{file} has no column {column!r}", hint=hint)
    try:
        for row in reader:
            given = {"id": row["id"]} if row.get("id") and column != "id" else {}
            yield {"prompt": row[column] or "", **given}, reader.line_num
    except csv.Error as error:
        where = f"{file}, line {reader.line_num}"
        raise InvalidOptions(f"{where}: {error}", hint="fix the line") from error


def _reader(text: str, column: str, marks: str) -> csv.DictReader[str]:
    """With the delimiter by which the header has the column; else by which it has most names."""
    readers = [csv.DictReader(io.StringIO(text, newline=""), delimiter=mark) for mark in marks]

    def fit(reader: csv.DictReader[str]) -> tuple[bool, int]:
        names = reader.fieldnames or ()
        return column in names, len(names)

    return max(readers, key=fit)


def _task(row: Any, number: int, where: str) -> Task:
    match row:
        case str():
            return Task(str(number), row)
        case {"prompt": str(prompt), **rest} if isinstance(rest.get("id", ""), str | int):
            return Task(str(rest.get("id", number)), prompt)
        case _:
            raise InvalidOptions(f"{where}: this is not a prompt", hint=_SHAPES)


def _refuse_empty(found: Iterable[tuple[Task, int]], file: Path) -> None:
    empty = [str(line) for task, line in found if not task.prompt.strip()]
    if empty:
        lines = ", ".join(empty[:_NAMED]) + (" …" if len(empty) > _NAMED else "")
        text = f"{file} has empty prompts: line {lines}"
        raise InvalidOptions(text, hint="fill these lines, or take them out")


def _refuse_twins(tasks: Iterable[Task], file: Path) -> None:
    twice = [name for name, count in Counter(task.id for task in tasks).items() if count > 1]
    if twice:
        text = f"{file}: two prompts have the id {twice[0]!r}"
        raise InvalidOptions(text, hint="give each an id of its own")
