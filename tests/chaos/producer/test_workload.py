"""What is committed: schema changes that a seed decides, their statements, and the values."""

from __future__ import annotations

import random
import threading
from itertools import islice
from types import SimpleNamespace

import pytest
import typer
from google.api_core.exceptions import ServiceUnavailable

from spanner_simulator import Simulator
from tests.chaos.producer.__main__ import settings_of
from tests.chaos.producer.statements import Statements
from tests.chaos.producer.workload import (
    Workload,
    initial_ddl,
    is_poison,
    poison_of,
    schema_changes_of,
    value_of,
)
from tidegate.local_stack.demo.bank import Dialect
from tidegate.local_stack.judge.log import LoggedChange, Place

TYPES = ("INT64", "STRING(MAX)", "FLOAT64", "BOOL", "BYTES(MAX)", "TIMESTAMP", "NUMERIC")


@pytest.mark.parametrize("seed", range(20))
def test_columns_and_tables_come_and_go_and_no_name_comes_back(seed):
    changes = list(islice(schema_changes_of(seed, Statements()), 60))
    columns, tables, ended = set(), {"items", "counts"}, []
    for change in changes:
        match change.verb:
            case "ADD COLUMN":
                assert change.adds not in {column for _, column in columns}
                columns.add((change.table, change.adds))
            case "DROP COLUMN":
                assert (change.table, change.drops) in columns
            case "CREATE TABLE":
                assert change.table not in tables
                tables.add(change.table)
            case _:
                ended.append(change.table)
                continue
        assert change.table in tables - set(ended)

    assert {change.verb for change in changes[:3]} == {"ADD COLUMN", "DROP COLUMN", "CREATE TABLE"}
    assert changes[3].verb == "DROP TABLE"
    assert set(ended) <= tables - {"items"}
    assert len(set(ended)) == len(ended)
    dropped = [(change.table, change.drops) for change in changes if change.drops]
    assert len(set(dropped)) == len(dropped) > 1


class Ddl:
    """A database that takes statements, the first of each twice."""

    def __init__(self):
        self.tried = []

    def update_ddl(self, statements):
        self.tried += statements
        if self.tried.count(statements[0]) == 1:
            raise ServiceUnavailable("cut")
        return SimpleNamespace(result=lambda timeout: None)


def changed(until, abandoned):
    database = Ddl()
    work = Workload(database, seed=2, rate=1.0, say=lambda _: None)
    work.change_schema(until, abandoned)
    return work.schema_changes, len(database.tried)


def is_set():
    event = threading.Event()
    event.set()
    return event


def test_a_run_that_is_over_early_has_had_each_kind_of_schema_change():
    kinds = ("ADD COLUMN", "CREATE TABLE", "DROP COLUMN", "DROP TABLE")
    assert changed(is_set(), threading.Event()) == (dict.fromkeys(kinds, 1), 8)


def test_an_abandoned_run_changes_no_schema():
    assert changed(is_set(), is_set()) == ({}, 0)


@pytest.mark.parametrize("kind", TYPES)
def test_a_column_gets_values_and_nulls(kind):
    chance = random.Random(kind)
    values = [value_of(kind, chance) for _ in range(100)]

    assert None in values
    assert len({str(value) for value in values}) > 2


def test_first_tables_and_later_ones_are_dropped():
    seeds = [islice(schema_changes_of(seed, Statements()), 4) for seed in range(20)]
    ended = {change.table for changes in seeds for change in changes if change.is_end}

    assert ended == {"counts", "late2"}


def logged(*, new=None, old=None):
    return LoggedChange("t", Place(1, "tx", (0, 0), 0), "UPDATE", {"K": "k"}, new or {}, old or {})


@pytest.mark.parametrize(
    ("text", "poison"),
    [
        ("2024-05-06T00:00:00.000000001Z", True),
        ("2024-05-06T00:00:00.123456700Z", True),
        ("2024-05-06T00:00:00.123456Z", False),
        ("2024-05-06T00:00:00.123456000Z", False),
        ("2024-05-06T00:00:00Z", False),
        ("x" * 1_500_000, True),
        ("x" * 1_000, False),
        (None, False),
        (0.5, False),
    ],
)
def test_poison_is_known_by_its_value_before_or_after_the_change(text, poison):
    assert is_poison(logged(new={"C": text, "D": "1"})) == poison
    assert is_poison(logged(old={"C": text})) == poison


@pytest.mark.parametrize("kind", TYPES)
def test_values_that_cannot_be_published_are_poison(kind):
    value = poison_of(kind, random.Random(kind))
    if kind in ("TIMESTAMP", "STRING(MAX)"):
        text = value if isinstance(value, str) else value.rfc3339()
        assert is_poison(logged(new={"C": text}))
    else:
        assert value is None


def test_the_stream_watches_tables_that_come_later():
    assert "FOR ALL" in initial_ddl(Statements())[-1]


@pytest.fixture(scope="module")
def simulator():
    with Simulator(seed=1) as running:
        yield running


@pytest.mark.parametrize("has_moves", [False, True])
@pytest.mark.parametrize("dialect", list(Dialect))
def test_the_database_takes_all_of_them(simulator, dialect, has_moves):
    statements = Statements(dialect)
    name = f"{dialect.value.lower().replace('_', '-')}-{int(has_moves)}"
    kind = "POSTGRESQL" if dialect is Dialect.POSTGRESQL else "GOOGLE_STANDARD_SQL"
    ddl = initial_ddl(statements, has_moves=has_moves)
    simulator.create_database(name, ddl=ddl, dialect=kind)
    database = simulator.client().instance("test-instance").database(name)
    changes = list(islice(schema_changes_of(7, statements), 12))
    database.update_ddl([change.ddl for change in changes]).result(timeout=60)

    assert {change.verb for change in changes} == {
        "ADD COLUMN", "DROP COLUMN", "CREATE TABLE", "DROP TABLE",
    }  # fmt: skip


def test_both_dialects_have_the_same_changes():
    google, postgresql = (
        [
            (change.verb, change.table, change.adds, change.drops)
            for change in islice(schema_changes_of(7, Statements(dialect)), 30)
        ]
        for dialect in Dialect
    )
    assert google == postgresql


def test_settings_are_names_and_values():
    assert settings_of(["open_queries_max=2", "start=a=b"]) == {
        "open_queries_max": "2",
        "start": "a=b",
    }


@pytest.mark.parametrize("text", ["open_queries_max", "=2"])
def test_another_text_is_refused(text):
    with pytest.raises(typer.BadParameter, match="not NAME=VALUE"):
        settings_of([text])
