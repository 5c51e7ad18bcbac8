"""A PostgreSQL database from its DDL to the messages in Kafka, by way of `check` and `run`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from google.cloud.spanner_v1 import KeySet

from tests.integration.shared_stack import SharedStack, now, open_shared_stack
from tests.integration.topic_reading import read_published
from tidegate.local_stack.demo.bank import Dialect
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.producer.commands.check import check
from tidegate.producer.config import ProducerConfig

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STREAM = "Feed"
DDL = [
    'CREATE SCHEMA "Sales"',
    """CREATE TABLE plain (
         id bigint NOT NULL, flag boolean, small real, large double precision, n numeric,
         t text, y bytea, d date, j jsonb, u uuid, l numeric[],
         at spanner.commit_timestamp, g text GENERATED ALWAYS AS (t) STORED, PRIMARY KEY (id))""",
    """CREATE TABLE "Sales"."Orders" (
         "Region" varchar(9), "Id" bigint, PRIMARY KEY ("Id", "Region"))""",
    f'CREATE CHANGE STREAM "{STREAM}" FOR ALL',
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


@pytest.fixture(scope="module")
def running(
    kafka_and_registry: LocalStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SharedStack, Pipeline, Any]]:
    folder = tmp_path_factory.mktemp("postgresql")
    with open_shared_stack(kafka_and_registry, folder, stream_partitions=2) as stack:
        database = stack.create_database(DDL, dialect=Dialect.POSTGRESQL)
        pipeline = Pipeline(stack.programs(STREAM))
        start, name = now(), stack.database_name
        settings = {
            "bootstrap_servers": stack.bootstrap_servers,
            "registry_url": stack.registry_url,
            "project": name.project, "instance": name.instance, "database": name.database,
            "change_stream": STREAM, "prefix": stack.prefix,
            "spanner_emulator_host": stack.spanner_address,
        }  # fmt: skip
        spanner, *_ = check(ProducerConfig.load(None, **settings))
        assert spanner.endswith("POSTGRESQL, watches Sales.Orders, plain")
        pipeline.start_workers(2, start=start)
        with database.batch() as batch:
            batch.insert("plain", COLUMNS, ROWS)
            batch.insert("Sales.Orders", ("Region", "Id"), [("eu", 7)])
        stack.simulator.split(name.path, STREAM, table="plain", key=["2"])
        with database.batch() as batch:
            batch.update("plain", ("id", "t"), [(1, None)])
            batch.delete("plain", KeySet(keys=[[3]]))
        yield stack, pipeline, database
        assert pipeline.stop() == []


def messages(running: tuple[SharedStack, Pipeline, Any], table: str, *, count: int) -> list[Any]:
    stack, pipeline, _ = running
    return read_published(stack, pipeline, stack.topic(table), count=count)


@pytest.mark.rule("spanner-types")
def test_every_type_arrives_as_the_contract_has_it(running):
    found = messages(running, "plain", count=5)
    assert len(found) == 5
    rows = {
        one.key()["id"]: one.value()["new_values"]
        for one in found
        if one.value()["mod_type"] == "INSERT"
    }
    first = {name: rows[1][name] for name in COLUMNS}
    assert first == {
        "id": 1, "flag": True, "small": 0.5, "large": 0.1, "n": MANY, "t": "ä", "y": b"\x00\xff",
        "d": date(2024, 2, 29), "j": first["j"], "u": first["u"], "l": ["1.50", None, "NaN"],
    }  # fmt: skip
    assert first["j"] == '{"a": 2, "b": [1]}'
    assert str(first["u"]) == UUID
    assert (rows[2]["n"], rows[2]["large"], rows[2]["l"]) == ("NaN", float("inf"), [])
    assert {rows[3][name] for name in COLUMNS[1:]} == {None}


def test_updates_and_deletes_arrive_after_a_split(running):
    found = messages(running, "plain", count=5)
    (update,) = [one.value() for one in found if one.value()["mod_type"] == "UPDATE"]
    assert update["new_columns"] == ["id", "t"]
    assert (update["new_values"]["t"], update["old_values"]["t"]) == (None, "ä")
    (delete,) = [one for one in found if one.value()["mod_type"] == "DELETE"]
    assert delete.key() == {"id": 3}


def test_a_table_in_a_named_schema_has_its_key_in_primary_key_order(running):
    (order,) = messages(running, "Sales.Orders", count=1)
    assert list(order.key().items()) == [("Id", 7), ("Region", "eu")]


def test_a_table_that_is_created_later_gets_its_topic(running):
    _, _, database = running
    ddl = 'CREATE TABLE "Later" ("Id" uuid PRIMARY KEY, "V" numeric)'
    database.update_ddl([ddl]).result(timeout=60)
    with database.batch() as batch:
        batch.insert("Later", ("Id", "V"), [(UUID, "1.500")])
    (change,) = messages(running, "Later", count=1)
    assert change.value()["new_values"]["V"] == "1.500"
