"""A table is asked for once at each time, beside the other queries."""

import threading

import pytest

from tidegate.producer.errors import QueryRefused
from tidegate.producer.spanner.tables_at import TablesAt


class Catalogue:
    def __init__(self):
        self.asked = []
        self.error = None

    def table(self, name, *, stream, read_ns):
        assert threading.current_thread() is not threading.main_thread()
        self.asked.append((name, stream, read_ns))
        if self.error is not None:
            raise self.error
        return None if name == "gone" else f"{name} at {read_ns}"


@pytest.fixture
def catalogue():
    return Catalogue()


def ask(tables, tasks, name, read_ns):
    return tasks.run(lambda: tables.table(name, read_ns=read_ns))


def test_each_table_is_asked_for_once_at_a_time(catalogue, tasks):
    tables = TablesAt(catalogue, stream="all", tasks=tasks)
    found = [
        ask(tables, tasks, name, at) for name, at in (("a", 1), ("gone", 1), ("a", 1), ("gone", 1))
    ]
    assert found == ["a at 1", None, "a at 1", None]
    assert catalogue.asked == [("a", "all", 1), ("gone", "all", 1)]
    assert ask(tables, tasks, "a", 2) == "a at 2"


def test_after_an_error_it_is_asked_for_again(catalogue, tasks):
    tables = TablesAt(catalogue, stream="all", tasks=tasks)
    catalogue.error = QueryRefused("no", code="NOT_FOUND", details="")
    with pytest.raises(QueryRefused):
        ask(tables, tasks, "a", 1)
    catalogue.error = None
    assert ask(tables, tasks, "a", 1) == "a at 1"
