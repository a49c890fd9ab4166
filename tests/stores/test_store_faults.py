"""The short form of `python -m chaos.stores`; and a judge that sees."""

import sqlite3

import pytest
from chaos import stores

from geminorum.errors import StoreConflict
from geminorum.sessions.store import SqliteStore


@pytest.mark.parametrize("seed", range(4))
def test_no_acknowledged_turn_is_lost_and_nobody_writes_at_the_same_time(seed):
    assert stores.judged(seed) == []


class Overwriting(SqliteStore):
    """Lets whoever is late overwrite what is there."""

    def append(self, session, number, data):
        try:
            super().append(session, number, data)
        except StoreConflict:
            with sqlite3.connect(self._path) as database:
                row = (data, session, number)
                query = "UPDATE entries SET data = ? WHERE session = ? AND number = ?"
                database.execute(query, row)
            database.close()


def test_a_store_that_overwrites_is_found(monkeypatch):
    monkeypatch.setattr(stores, "SqliteStore", Overwriting)
    assert any(stores.judged(seed) for seed in range(8))
