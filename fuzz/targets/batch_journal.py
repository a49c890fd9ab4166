"""What an earlier batch left on disk, to what is done: the results, a line `===`, the journal."""

from __future__ import annotations

import shutil
from decimal import Decimal

from fuzz.scratch import scratch_folder
from fuzz.target import Target
from geminorum.apps.command.batch.input import Task
from geminorum.apps.command.batch.journal import Journal
from geminorum.errors import GeminorumError

_TASK = Task("1", "one")
_OUTCOME = (
    b'{"id":"1","digest":"%s","prompt":"one","status":"success","text":"t","data":null,"error":null,'
    b'"session_id":"s","model":"m","tokens":5,"cost_usd":"0.0012","files":["f"],"duration":1.5,'
    b'"attempts":1,"finished":1700000000000}\n'
)
_FAILED = (
    b'{"id":"2","digest":"0","prompt":"two","status":"error","error":{"code":"API","message":"m",'
    b'"hint":null,"retryable":true},"cost_usd":null,"attempts":2}\n'
)
_TRIES = (
    b'{"id":"1","attempt":1,"ended":false,"usd":null,"at":1700000000000,"source":"p.jsonl"}\n'
    b'{"id":"1","attempt":1,"ended":true,"usd":"0.0012","at":1700000000001,"source":"p.jsonl"}\n'
)
_DONE = _OUTCOME % _TASK.digest.encode()
_SEEDS = (_DONE + _FAILED + b"===\n" + _TRIES, _FAILED + b"===\n" + _TRIES[:90], b"===\n" + _TRIES)


def run(data: bytes) -> None:
    folder = scratch_folder("journal")
    shutil.rmtree(folder)
    folder.mkdir()
    results, _, tries = data.partition(b"===\n")
    (folder / "p.jsonl").write_bytes(b'"one"\n')
    (folder / "r.jsonl").write_bytes(results)
    (folder / "r.jsonl.journal").write_bytes(tries)
    journal = Journal(folder / "r.jsonl", folder / "p.jsonl")
    with journal.open([_TASK]):
        _use(journal)
        journal.drop_failures()
    with Journal(folder / "r.jsonl", folder / "p.jsonl").open([_TASK]) as again:
        _use(again)


def _use(journal: Journal) -> None:
    spent = sum(journal.costs, Decimal(0))
    repr((spent > Decimal("0.5"), journal.torn, len(journal.outcomes)))
    journal.end(_TASK, journal.begin(_TASK), None)


TARGET = Target(
    "batch-journal", run, _SEEDS, (GeminorumError,), words=(b"===\n", b'"NaN"', b"sNaN")
)
