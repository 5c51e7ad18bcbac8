"""One seeded workload in each dialect and partition mode: equal records, and rows as they say.

With splits and merges.  Rows read from their tables are what the change stream says of them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from spanner_simulator import Simulator
from tests.reading import decoded, received
from tidegate.producer.backfill.read_partition import KeyRanges, read_partitions
from tidegate.producer.description import (
    DIALECTS,
    GOOGLE_SQL,
    IMMUTABLE_KEY_RANGE,
    MUTABLE_KEY_RANGE,
    POSTGRESQL,
)
from tidegate.producer.errors import QueryRefused
from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from tidegate.producer.spanner.catalogue import SpannerCatalogue, TablesAt
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import SpannerChangeStream
from tidegate.producer.spanner.table_reads import SpannerTableReads
from tidegate.producer.translation.values import converter
from tidegate.schemas.order_key import sequence_pair
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import ColumnType

pytestmark = pytest.mark.integration

# Name, GoogleSQL type, PostgreSQL type, and values; JSON and numbers have two texts.
COLUMNS: tuple[tuple[str, str, str, list[Any]], ...] = (
    ("B", "BOOL", "boolean", [True, False]),
    ("I", "INT64", "bigint", [0, -(1 << 63), (1 << 63) - 1]),
    ("F4", "FLOAT32", "real", [0.5, -2.25]),
    ("F8", "FLOAT64", "double precision", [0.1, float("nan"), float("inf"), float("-inf")]),
    ("N", "NUMERIC", "numeric", ["1.50", "-0.000000001", "29999999999999999999999999999"]),
    ("S", "STRING(MAX)", "character varying", ["", "ä'\"\\", "x" * 5_000]),
    ("Y", "BYTES(MAX)", "bytea", [b"", b"AP8="]),
    ("D", "DATE", "date", ["0001-01-01", "2024-02-29"]),
    ("T", "TIMESTAMP", "timestamp with time zone", ["1969-12-31T23:59:59.999999Z"]),
    ("J", "JSON", "jsonb", ['{"a":[1,null],"z":"ü"}', "[]", "null"]),
    ("U", "UUID", "uuid", ["0f8fad5b-d9cb-469f-a165-70867728950e"]),
    ("LI", "ARRAY<INT64>", "bigint[]", [[], [1, None, 3], [None]]),
    ("LS", "ARRAY<STRING(MAX)>", "text[]", [["a", None], ["x"] * 2_000]),
)
NAMES = [name for name, *_ in COLUMNS]
STREAM, TABLE, NAMED = "Feed", "Items", "Sales.Orders"
OPTIONS = "retention_period = '36h', exclude_delete = false"
TRANSACTIONS = 40


def ddl(dialect: str, mode: str) -> list[str]:
    """The same tables in a dialect; mixed-case names are quoted in PostgreSQL."""
    options = f"{OPTIONS}, partition_mode = '{mode}'"
    listed = [(name, google, postgresql) for name, google, postgresql, _ in COLUMNS]
    if dialect == GOOGLE_SQL:
        columns = "".join(f", {name} {google}" for name, google, _ in listed)
        return [
            "CREATE SCHEMA Sales",
            f"CREATE TABLE {TABLE} (Id INT64 NOT NULL{columns}) PRIMARY KEY (Id)",
            f"CREATE TABLE {NAMED} (Id STRING(36) NOT NULL, V INT64) PRIMARY KEY (Id)",
            f"CREATE CHANGE STREAM {STREAM} FOR {TABLE}, {NAMED} OPTIONS ({options})",
        ]
    columns = "".join(f', "{name}" {postgresql}' for name, _, postgresql in listed)
    return [
        'CREATE SCHEMA "Sales"',
        f'CREATE TABLE "{TABLE}" ("Id" bigint NOT NULL{columns}, PRIMARY KEY ("Id"))',
        'CREATE TABLE "Sales"."Orders" ("Id" varchar(36) NOT NULL, "V" bigint, PRIMARY KEY ("Id"))',
        f'CREATE CHANGE STREAM "{STREAM}" FOR "{TABLE}", "Sales"."Orders" WITH ({options})',
    ]


class Side:
    """One of the databases."""

    def __init__(self, simulator: Simulator, dialect: str, mode: str, tasks: Any) -> None:
        self.dialect, self.simulator, self.tasks = dialect, simulator, tasks
        self.name = f"{dialect[:8]}-{mode[:7]}".replace("_", "-").lower()
        simulator.create_database(self.name, ddl=ddl(dialect, mode), dialect=dialect)
        self.database = simulator.client().instance("test-instance").database(self.name)
        self.channels = SpannerChannels(
            database=f"projects/test-project/instances/test-instance/databases/{self.name}",
            emulator_host=simulator.grpc_address,
        )
        self.catalogue = SpannerCatalogue(self.channels)
        described = self.catalogue.describe(STREAM)
        self.description = described
        self.stream = SpannerChangeStream(
            self.channels, form_of(described.dialect, described.partition_mode, STREAM)
        )
        parts = simulator.stream_partitions(self.name, STREAM)
        self.start_ns = max(part["start_timestamp_us"] for part in parts) * 1_000
        self.workload: list[DataChangeRecord] = []
        self.kinds: set[type] = set()

    def run(self, seed: int) -> None:
        """Commit transactions that the seed chooses, with a split or merge now and then."""
        random = Random(seed)
        known: list[int] = []
        for number in range(TRANSACTIONS):
            if number % 8 == 3:
                key = [str(random.randrange(1_000))]
                self.simulator.split(self.name, STREAM, table=TABLE, key=key)
            elif number % 16 == 7:
                self.simulator.merge(self.name, STREAM)
            with self.database.batch() as batch:
                for _ in range(random.randint(1, 4)):
                    key = random.randrange(1_000)
                    row = [key, *(random.choice([None, *values]) for *_, values in COLUMNS)]
                    batch.insert_or_update(TABLE, ["Id", *NAMES], [row])
                    known.append(key)
                some = random.sample(NAMES, 3)
                batch.update(TABLE, ["Id", *some], [[random.choice(known[-1:]), None, None, None]])
                batch.insert_or_update(NAMED, ["Id", "V"], [[f"o{number % 7}", number]])

    def records(self) -> list[DataChangeRecord]:
        """Read all stream partitions, children after their parents."""
        end_ns = self.simulator.commit_log(self.name, STREAM)[-1]["commit_timestamp_us"] * 1_000
        found: list[DataChangeRecord] = []
        waiting, seen = [("", self.start_ns)], {""}
        while waiting:
            token, start_ns = waiting.pop(0)
            query = self.stream.query(
                token=token, start_ns=start_ns, end_ns=end_ns, heartbeat_ms=1_000
            )
            for record in (one for batch in decoded(query, self.tasks) for one in batch):
                self.kinds.add(type(record))
                named: tuple[str, ...] = ()
                match record:
                    case DataChangeRecord():
                        found.append(record)
                    case ChildPartitionsRecord():
                        named = tuple(child.token for child in record.children)
                    case PartitionStartRecord():
                        named = record.tokens
                    case _:
                        pass
                fresh = [one for one in named if one not in seen]
                waiting += [(one, record.start_ns) for one in fresh]  # type: ignore[union-attr]  # only records of starts name any
                seen |= set(fresh)
        assert len(seen) > 8, "the workload split and merged"
        return sorted(
            found, key=lambda one: (one.commit_timestamp_ns, sequence_pair(one.record_sequence))
        )


@pytest.fixture(scope="module")
def sides(tasks):
    with Simulator(seed=11, stream_partitions=1) as simulator:
        found = [
            Side(simulator, dialect, mode, tasks)
            for mode in (IMMUTABLE_KEY_RANGE, MUTABLE_KEY_RANGE)
            for dialect in DIALECTS
        ]
        for side in found:
            side.run(seed=5)
            side.workload = side.records()  # before any test commits more
        yield found
        for side in found:
            side.channels.close()


def plain_type(kind: ColumnType) -> ColumnType:
    return replace(kind, annotation="")


def comparable(records: list[DataChangeRecord]) -> list[Any]:
    """Records without what no two databases share, and values by what they mean."""
    times = sorted({record.commit_timestamp_ns for record in records})
    return [
        record._replace(
            commit_timestamp_ns=times.index(record.commit_timestamp_ns),
            server_transaction_id="",
            # With mutable key ranges it begins with a number that tells transactions apart.
            record_sequence=str(sequence_pair(record.record_sequence)[1]),
            columns=tuple(
                replace(column, type=plain_type(column.type)) for column in record.columns
            ),
            mods=tuple(type(mod)(*(meaning(document) for document in mod)) for mod in record.mods),
        )
        for record in records
    ]


def meaning(document: Any) -> dict[str, Any]:
    texts = {"N": Decimal, "J": json.loads}
    return {
        name: texts[name](value) if name in texts and value is not None else value
        for name, value in document.items()
    }


def test_the_catalogues_are_equal_but_for_annotations(sides):
    google, postgresql, *_ = (side.description for side in sides)
    assert (google.dialect, postgresql.dialect) == (GOOGLE_SQL, POSTGRESQL)
    assert google.faults() == postgresql.faults() == []
    assert google.options == postgresql.options
    assert [table.name for table in postgresql.tables] == [TABLE, NAMED]
    for one, other in zip(google.tables, postgresql.tables, strict=True):
        plain = [replace(column, type=plain_type(column.type)) for column in other.columns]
        assert list(one.columns) == plain
    annotated = {c.name: c.type.annotation for c in postgresql.tables[0].columns}
    assert {name: kind for name, kind in annotated.items() if kind} == {
        "N": "PG_NUMERIC",
        "J": "PG_JSONB",
    }
    for side in sides:
        assert side.catalogue.table(NAMED, stream=STREAM) == side.description.tables[1]


@pytest.mark.rule("spanner-dialects-equal", "spanner-transaction-fields")
def test_one_workload_gives_equal_records(sides):
    google, *others = (comparable(side.workload) for side in sides)
    assert len(google) > TRANSACTIONS
    for other in others:
        assert other == google


def test_each_kind_of_record_comes_in_its_mode(sides):
    lineage = {ChildPartitionsRecord}, {
        PartitionStartRecord, PartitionEventRecord, PartitionEndRecord
    }  # fmt: skip
    kinds = [side.kinds - {DataChangeRecord, HeartbeatRecord} for side in sides]
    assert kinds == [lineage[0], lineage[0], lineage[1], lineage[1]]


def test_the_catalogues_types_are_those_of_the_records(sides):
    for side in sides:
        known = {table.name: table for table in side.description.tables}
        for record in side.workload:
            types = {column.name: column.type for column in known[record.table_name].columns}
            assert {c.name: c.type for c in record.columns}.items() <= types.items()


@pytest.mark.rule("spanner-types")
def test_every_value_can_be_published_and_means_the_same(sides):
    found: list[list[Any]] = []
    for side in sides:
        values = []
        for record in side.workload:
            types = {column.name: column.type for column in record.columns}
            for mod in record.mods:
                for name, value in sorted(mod.new_values.items()):
                    if value is not None and name not in {"N", "J"}:
                        kind = types[name]
                        values.append(repr(converter(kind, TimestampForm.MICROS)(value)))
        found.append(values)
    assert all(one == found[0] for one in found)
    assert len(found[0]) > 200


def test_postgresqls_numerics_have_no_limit_and_may_be_nan(sides):
    _, side, *_ = sides
    many = "1" * 1_000 + "." + "2" * 500
    with side.database.batch() as batch:
        for key, value in enumerate([many, "NaN", "1.500", "0"], 5_000):
            batch.insert(TABLE, ["Id", "N"], [[key, value]])
    texts = {
        mod.keys["Id"]: converter(ColumnType("NUMERIC", annotation="PG_NUMERIC"))(
            mod.new_values["N"]
        )
        for record in side.records()
        for mod in record.mods
        if int(mod.keys["Id"][1:] if mod.keys["Id"][0] == "o" else mod.keys["Id"]) >= 5_000
    }
    assert texts == {"5000": many, "5001": "NaN", "5002": "1.500", "5003": "0"}


# ---------------------------------------------------------------- rows of tables


def reads_of(side):
    tables = TablesAt(
        SpannerCatalogue(side.channels), stream=side.description.name, tasks=side.tasks
    )
    return SpannerTableReads(side.channels, tables)


def planned(side, table, read_ns, **sizes):
    ranges = KeyRanges(**sizes)
    for response in received(reads_of(side).keys(table, ranges, read_ns=read_ns), side.tasks):
        assert response.decode()[0] == []
    return read_partitions([(table, ranges)])


def rows_of(side, one, read_ns):
    query = reads_of(side).rows(one, read_ns=read_ns)
    return [record for records in decoded(query, side.tasks) for record in records]


def last_ns(side):
    return side.workload[-1].commit_timestamp_ns


def folded(side, table):
    """The rows of a table after the workload, by key, as its changes leave them."""
    rows = {}
    for record in side.workload:
        for mod in record.mods if record.table_name == table else ():
            rows.setdefault(mod.keys["Id"], {}).update(meaning(mod.new_values))
    return {key: repr(sorted(row.items())) for key, row in rows.items()}


@pytest.mark.parametrize("table", [TABLE, NAMED])
def test_each_row_is_what_its_changes_left(sides, table):
    for side in sides:
        parts = planned(side, table, last_ns(side), rows_min=10)
        records = [one for part in parts for one in rows_of(side, part, last_ns(side))]
        found = [
            (mod.keys["Id"], repr(sorted(meaning(mod.new_values).items())))
            for record in records
            for mod in record.mods
        ]
        assert dict(found) == folded(side, table)
        assert len(found) == len(dict(found)) == sum(part.rows for part in parts)
        assert {record.commit_timestamp_ns for record in records} == {last_ns(side)}
        known = next(one for one in side.description.tables if one.name == table)
        for record in records:
            assert [(c.name, c.type, c.is_primary_key, c.ordinal) for c in record.columns] == [
                (c.name, c.type, c.key_position is not None, c.ordinal) for c in known.columns
            ]
    assert len(planned(sides[0], TABLE, last_ns(sides[0]), rows_min=10)) > 5


def test_a_repeated_read_returns_the_same_records(sides):
    side = sides[0]
    (part,) = planned(side, TABLE, last_ns(side))
    first = rows_of(side, part, last_ns(side))
    with side.database.batch() as batch:
        batch.insert_or_update(TABLE, ["Id", "S"], [[-1, "later"]])
    assert rows_of(side, part, last_ns(side)) == first
    numbers = [(one.record_sequence, len(one.mods)) for one in first]
    assert [rows for _, rows in numbers[:-1]] == [20] * (len(numbers) - 1)
    assert [sequence for sequence, _ in numbers] == [f"{n:08d}" for n in range(len(numbers))]
    assert {one.number_of_records_in_transaction for one in first} == {len(first)}
    assert [one.is_last_record_in_transaction_in_partition for one in first] == [
        *[False] * (len(first) - 1), True,
    ]  # fmt: skip


def test_a_time_that_spanner_keeps_no_rows_of_is_refused_with_what_to_do(sides):
    side = sides[0]
    (part,) = planned(side, TABLE, last_ns(side))
    day_ns = 86_400 * 10**9
    with pytest.raises(QueryRefused, match="version_retention_period"):
        rows_of(side, part, last_ns(side) - 30 * day_ns)
