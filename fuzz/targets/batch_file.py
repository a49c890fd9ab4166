"""A file of prompts, in JSON lines or as a table, to tasks."""

from __future__ import annotations

import typer

from fuzz.scratch import scratch_file
from fuzz.target import Target
from geminorum.apps.command.batch.input import tasks_in
from geminorum.errors import InvalidOptions

_SEEDS = (
    b'"one"\n{"prompt":"two","id":"b"}\n{"prompt":"three","id":3,"more":[1]}\n\n',
    b'prompt,id\n"a, b",1\n"c ""d""\nnext line",2\n',
    b"\xef\xbb\xbfid\tprompt\n1\tfirst\n2\tsecond\n",
    b"name;prompt\nx;do this\ny;do that\n",
)


def run(data: bytes) -> None:
    for name in ("prompts.jsonl", "prompts.csv", "prompts.tsv"):
        try:
            tasks = tasks_in(scratch_file("batch", name, data))
        except (InvalidOptions, typer.BadParameter):
            continue
        repr([task.digest for task in tasks])


TARGET = Target("batch-file", run, _SEEDS, words=(b",", b";", b"\t", b'"', b"\r", b"prompt", b"id"))
