"""One schema in both dialects, as the simulator takes it."""

from __future__ import annotations

from itertools import islice

import pytest

from spanner_simulator import Simulator
from tests.chaos.producer.statements import Statements
from tests.chaos.producer.workload import initial_ddl, schema_changes_of
from tidegate.local_stack.demo.bank import Dialect


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
