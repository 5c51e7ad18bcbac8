"""Which tables of a merge are read from the changelog."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidegate.spark_consumer.sinks.delta.changelog_reader import ChangelogReader

SCHEMAS = SimpleNamespace(table="accounts")
MERGE = SimpleNamespace(after=9, through=12)


class CleanedLog:
    """The commit log of a table, of which Delta has deleted every commit of ours."""

    def __init__(self, newest_release):
        self.newest_release = newest_release

    def carriers(self, *, after, through):
        return ()

    def knows_after(self, release):
        return False


def table_of(monkeypatch, log):
    reader = ChangelogReader(None, "/out")
    monkeypatch.setattr(reader, "_log", lambda _: log)
    read = []

    class Frame:
        def select(self, *_):
            return self

        def count(self):
            read.append(MERGE)
            return 3

    monkeypatch.setattr(reader, "_frame", lambda *_: Frame())
    return reader._table(SCHEMAS, MERGE), read


@pytest.mark.parametrize("newest", [0, 7, 9])
def test_an_idle_table_whose_log_was_cleaned_costs_a_merge_no_job(monkeypatch, newest):
    table, read = table_of(monkeypatch, CleanedLog(newest))
    assert (table.rows, read) == (0, [])


@pytest.mark.parametrize("newest", [10, 40, -1])
def test_a_table_that_may_have_taken_a_release_of_the_merge_is_read(monkeypatch, newest):
    # -1: Delta has deleted its note of our last release too.
    table, read = table_of(monkeypatch, CleanedLog(newest))
    assert (table.rows, read) == (3, [MERGE])
