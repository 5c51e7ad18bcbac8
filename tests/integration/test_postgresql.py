"""A PostgreSQL database with timestamps as text, from its DDL to the mirror.

And what each value capture type leaves out, in both dialects, as a reader without our code sees it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from google.cloud.spanner_v1 import KeySet

from tests.integration.shared_stack import (
    PATIENCE_S,
    SharedStack,
    now,
    open_shared_stack,
    read_published,
    release,
    rows_of,
    run_producer,
    running,
)
from tidegate.local_stack.demo.bank import Dialect
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.pipeline import Pipeline

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

DDL = [
    'CREATE SCHEMA "Sales"',
    """CREATE TABLE plain (
         id bigint NOT NULL, flag boolean, small real, large double precision, n numeric,
         t text, y bytea, d date, j jsonb, u uuid, l numeric[],
         at spanner.commit_timestamp, g text GENERATED ALWAYS AS (t) STORED, PRIMARY KEY (id))""",
    """CREATE TABLE "Sales"."Orders" (
         "Region" varchar(9), "Id" bigint, PRIMARY KEY ("Id", "Region"))""",
    """CREATE TABLE moments (
         at timestamptz NOT NULL, v bigint, last timestamptz, times timestamptz[],
         PRIMARY KEY (at))""",
    'CREATE CHANGE STREAM "Feed" FOR ALL',
]
UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
COLUMNS = ("id", "flag", "small", "large", "n", "t", "y", "d", "j", "u", "l")
MANY = "1" * 400 + "." + "2" * 300
ROWS: list[tuple[Any, ...]] = [
    (1, True, 0.5, 0.1, MANY, "ä", b"AP8=", "2024-02-29", '{"b": [1], "a": 2}', UUID,
     ["1.50", None, "NaN"]),
    (2, False, None, float("inf"), "NaN", "", b"", "1969-12-31", "[]", None, []),
    (3, *(None,) * 10),
]  # fmt: skip
# One microsecond holds the keys of the first three.
MOMENTS = [f"2024-01-02T03:04:05.{fraction}Z" for fraction in ("123456001", "123456", "123456999")]
MOMENTS += ["2024-01-02T03:04:05Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z"]
LAST = "1969-12-31T23:59:59.000000001Z"
TIMES = ["2262-04-12T00:00:00.1Z", None]
VERSIONS = 3

Running = tuple[SharedStack, Pipeline, Any, int]


@pytest.fixture(scope="module")
def world(kafka_and_registry, tmp_path_factory) -> Iterator[Running]:
    """Return the stack, the pipeline while it runs, the database, and the last commit's time."""
    folder = tmp_path_factory.mktemp("postgresql")
    with open_shared_stack(kafka_and_registry, folder, stream_partitions=2) as stack:
        database = stack.create_database(DDL, dialect=Dialect.POSTGRESQL)
        programs = stack.programs(PRODUCER_TIMESTAMPS="string")
        checked = run_producer(programs, "check")
        assert checked.returncode == 0, checked.stderr
        with running(programs, 2) as pipeline:
            with database.batch() as batch:
                batch.insert("plain", COLUMNS, ROWS)
                batch.insert("Sales.Orders", ("Region", "Id"), [("eu", 7)])
            name = stack.database_name.path
            stack.simulator.split(name, "Feed", table="plain", key=["2"])
            with database.batch() as batch:
                batch.update("plain", ("id", "t"), [(1, None)])
                batch.delete("plain", KeySet(keys=[[3]]))
            for version in range(VERSIONS):
                with database.batch() as batch:
                    rows = [(moment, version, LAST, TIMES) for moment in MOMENTS]
                    batch.insert_or_update("moments", ("at", "v", "last", "times"), rows)
            yield stack, pipeline, database, commit_time_us(batch.committed)


def messages(world: Running, table: str, *, count: int) -> list[Any]:
    stack, pipeline, *_ = world
    return read_published(stack, pipeline, stack.topic(table), count=count)


@pytest.mark.rule("spanner-types")
def test_every_type_arrives_as_the_contract_has_it(world):
    found = messages(world, "plain", count=5)
    assert len(found) == 5
    rows = {
        one.key()["id"]: one.value()["new_values"]
        for one in found
        if one.value()["mod_type"] == "INSERT"
    }
    first = {name: rows[1][name] for name in COLUMNS}
    assert first == {
        "id": 1, "flag": True, "small": 0.5, "large": 0.1, "n": MANY, "t": "ä", "y": b"\x00\xff",
        "d": date(2024, 2, 29), "j": '{"a": 2, "b": [1]}', "u": first["u"],
        "l": ["1.50", None, "NaN"],
    }  # fmt: skip
    assert str(first["u"]) == UUID
    assert (rows[2]["n"], rows[2]["large"], rows[2]["l"]) == ("NaN", float("inf"), [])
    assert {rows[3][name] for name in COLUMNS[1:]} == {None}


def test_updates_and_deletes_arrive_after_a_split(world):
    found = messages(world, "plain", count=5)
    (update,) = [one.value() for one in found if one.value()["mod_type"] == "UPDATE"]
    assert update["new_columns"] == ["id", "t"]
    assert (update["new_values"]["t"], update["old_values"]["t"]) == (None, "ä")
    (delete,) = [one for one in found if one.value()["mod_type"] == "DELETE"]
    assert delete.key() == {"id": 3}


def test_a_table_in_a_named_schema_has_its_key_in_primary_key_order(world):
    (order,) = messages(world, "Sales.Orders", count=1)
    assert list(order.key().items()) == [("Id", 7), ("Region", "eu")]


def test_a_table_that_is_created_later_gets_its_topic(world):
    _, _, database, _ = world
    ddl = 'CREATE TABLE "Later" ("Id" uuid PRIMARY KEY, "V" numeric)'
    database.update_ddl([ddl]).result(timeout=PATIENCE_S)
    with database.batch() as batch:
        batch.insert("Later", ("Id", "V"), [(UUID, "1.500")])
    (change,) = messages(world, "Later", count=1)
    assert change.value()["new_values"]["V"] == "1.500"


def test_nanoseconds_arrive_as_text_in_keys_values_and_arrays(world, spark):
    stack, pipeline, _, last_us = world
    changes = messages(world, "moments", count=VERSIONS * len(MOMENTS))
    assert sorted(change.key()["at"] for change in changes) == sorted(VERSIONS * MOMENTS)
    for key in MOMENTS:
        rows = [change.value()["new_values"] for change in changes if change.key()["at"] == key]
        assert [row["v"] for row in rows] == list(range(VERSIONS))
        firsts = [row for row in rows if row["last"] is not None]
        assert all((row["last"], row["times"]) == (LAST, TIMES) for row in firsts)
        assert firsts
    release(spark, pipeline, last_us)
    mirror = rows_of(pipeline.programs, "mirror/moments")
    found = {row["at"]: (row["v"], row["last"], row["times"]) for row in mirror}
    assert found == dict.fromkeys(MOMENTS, (VERSIONS - 1, LAST, TIMES))
    assert len(mirror) == len(MOMENTS)
    changelog = rows_of(pipeline.programs, "changelog/moments")
    assert sorted(row["key"]["at"] for row in changelog) == sorted(VERSIONS * MOMENTS)
    other = run_producer(stack.programs(), "check")
    assert other.returncode == 2
    assert "timestamps: recorded 'string', now 'micros'" in other.stderr


# ---------------------------------------------------------------- value capture types

KEY, ALL = ["Id"], ["Id", "A", "B", "C"]
NOTHING = None
CAPTURED = {
    # Of an update of A, of setting B to NULL, and of the delete: the new columns, the old ones.
    "OLD_AND_NEW_VALUES": (
        (["Id", "A"], ["Id", "A"]), (["Id", "B"], ["Id", "B"]), (NOTHING, ALL),
    ),
    "NEW_VALUES": ((["Id", "A"], NOTHING), (["Id", "B"], NOTHING), (NOTHING, KEY)),
    "NEW_ROW": ((ALL, NOTHING), (ALL, NOTHING), (NOTHING, KEY)),
    "NEW_ROW_AND_OLD_VALUES": ((ALL, ["Id", "A"]), (ALL, ["Id", "B"]), (NOTHING, ALL)),
}  # fmt: skip
PHASES = [*CAPTURED, "OLD_AND_NEW_VALUES"]
CHANGES = 4
ITEMS = {
    Dialect.GOOGLESQL: [
        "CREATE TABLE Items (Id INT64, A INT64, B STRING(9), C STRING(9)) PRIMARY KEY (Id)",
        "CREATE CHANGE STREAM Feed FOR Items OPTIONS (value_capture_type = '{}')",
        "ALTER CHANGE STREAM Feed SET OPTIONS (value_capture_type = '{}')",
    ],
    Dialect.POSTGRESQL: [
        'CREATE TABLE "Items" ("Id" bigint, "A" bigint, "B" text, "C" text, PRIMARY KEY ("Id"))',
        'CREATE CHANGE STREAM "Feed" FOR "Items" WITH (value_capture_type = \'{}\')',
        "ALTER CHANGE STREAM \"Feed\" SET (value_capture_type = '{}')",
    ],
}


def captured(value, side):
    """Return the captured columns of a side with their values; None without a row."""
    names = value[f"{side}_columns"]
    assert (names is None) == (value[f"{side}_values"] is None)
    return None if names is None else {name: value[f"{side}_values"][name] for name in names}


def chosen(row, names):
    return None if names is None else {name: row[name] for name in names}


@pytest.mark.rule("spanner-capture-types", "spanner-mods", "P3")
@pytest.mark.parametrize("dialect", list(ITEMS))
def test_a_plain_reader_tells_what_is_absent_from_what_is_null(shared_stack, dialect):
    """The type of one stream is altered while a worker reads it.

    In each phase a row is inserted, a column updated, another one set to NULL, the row deleted.
    """
    table, stream, alter = ITEMS[dialect]
    database = shared_stack.create_database([table, stream.format(PHASES[0])], dialect=dialect)
    with running(shared_stack.programs(), start=now()) as pipeline:
        for number, kind in enumerate(PHASES):
            if number:
                database.update_ddl([alter.format(kind)]).result(timeout=PATIENCE_S)
            for change in (
                lambda batch, key: batch.insert("Items", ALL, [(key, 1, "b", None)]),
                lambda batch, key: batch.update("Items", ["Id", "A"], [(key, 2)]),
                lambda batch, key: batch.update("Items", ["Id", "B"], [(key, None)]),
                lambda batch, key: batch.delete("Items", KeySet(keys=[[key]])),
            ):
                with database.batch() as batch:
                    change(batch, number)
        topic = shared_stack.topic("Items")
        published = read_published(shared_stack, pipeline, topic, count=CHANGES * len(PHASES))
    published.sort(key=lambda message: dict(message.headers())["order"])
    assert len(published) == CHANGES * len(PHASES)
    for number, kind in enumerate(PHASES):
        changes = published[number * CHANGES : (number + 1) * CHANGES]
        insert, update, clear, delete = [message.value() for message in changes]
        rows = [
            {"Id": number, "A": 1, "B": "b", "C": None},
            {"Id": number, "A": 2, "B": "b", "C": None},
            {"Id": number, "A": 2, "B": None, "C": None},
        ]
        assert {message.key()["Id"] for message in changes} == {number}
        assert {one["source"]["value_capture_type"] for one in (insert, update, clear)} == {kind}
        assert (captured(insert, "new"), captured(insert, "old")) == (rows[0], None)
        steps = zip((update, clear, delete), CAPTURED[kind], rows, [*rows[1:], None], strict=True)
        for value, (new, old), before, after in steps:
            assert captured(value, "new") == chosen(after, new), (kind, value["mod_type"])
            assert captured(value, "old") == chosen(before, old), (kind, value["mod_type"])
