"""Each sink over one folder: releases for it, and what a reader finds, in forms that many share."""

import functools
import io
import itertools
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import fastavro
import pyarrow.parquet

from tests.datastream_output import STREAM
from tests.memory_topic import MemoryStage
from tests.spark.sinks.conftest import Kit, Lake
from tests.topic_contract import NAMES
from tests.topics import Change, Topic
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.sinks.delta.direct.place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.function import BatchFunctionSink, FunctionSink
from tidegate.spark_consumer.sinks.handed_batch import BatchSink
from tidegate.spark_consumer.sinks.kinds import (
    KINDS,
    Parts,
)

ACCOUNTS, ORDERS = "accounts", "sales.Orders"
COLUMNS = {"id": "INT64", "owner": "STRING(MAX)", "balance": "INT64"}
WIDER = COLUMNS | {"c": "ARRAY<INT64>"}
ODD = {"k": "STRING(MAX)", "n": "NUMERIC", "key": "STRING(MAX)", "ordinal": "INT64"}
"""Names that our own columns have too; the key's columns are in another order, and NULL."""
TABLES = {ACCOUNTS: tuple(WIDER), ORDERS: tuple(ODD)}
NO_KEY, TEXT = {"n": None, "k": None}, {"n": None, "k": "x"}
LONG = {"n": Decimal("1.000000001"), "k": "x"}
PARTS = [
    [
        (ACCOUNTS, "INSERT", {"id": 1}, {"owner": "a", "balance": 1}, {}),
        (ACCOUNTS, "INSERT", {"id": 2}, {"owner": "b", "balance": 2}, {}),
        (ORDERS, "INSERT", NO_KEY, {"key": "none", "ordinal": 7}, {}),
        (ORDERS, "INSERT", TEXT, {"key": None, "ordinal": None}, {}),
        (ORDERS, "INSERT", LONG, {"key": "long", "ordinal": -(2**63)}, {}),
        (ACCOUNTS, "INSERT", {"id": 3}, {"owner": "\U0001f600" * 40, "balance": None}, {}),
    ],
    [
        (ACCOUNTS, "UPDATE", {"id": 1}, {"owner": None}, {}),
        (ACCOUNTS, "DELETE", {"id": 2}, None, {"old": {"owner": "b", "balance": 2}}),
        (ACCOUNTS, "UPDATE", {"id": 9}, {"balance": 9}, {}),
        (ORDERS, "UPDATE", NO_KEY, {"key": "a'`b"}, {}),
        (ORDERS, "DELETE", TEXT, None, {"old": {"key": None, "ordinal": None}}),
        (ACCOUNTS, "INSERT", {"id": 2}, {"owner": "again", "balance": None}, {}),
        (ACCOUNTS, "DELETE", {"id": 3}, None, {"old": {"owner": None, "balance": None}}),
    ],
    [],
    [
        (ACCOUNTS, "UPDATE", {"id": 1}, {"c": [1, None]}, {}),
        (ACCOUNTS, "INSERT", {"id": 4}, {"owner": "older", "balance": 4}, {"value_id": 1}),
        (ORDERS, "UPDATE", LONG, {"ordinal": 1}, {}),
        (ACCOUNTS, "INSERT", {"id": 5}, {"owner": None, "balance": 5, "c": []}, {}),
    ],
]
"""The changes of each release; one has none, and with the last one a column comes.

An UPDATE is of a row that nobody inserted.
"""
LAST = len(PARTS) - 1
ASIDE = {(1, 2)}
"""Release and ordinal of that one."""


def stage(number):
    """The topics as they are by then, and the changes in Kafka's order."""
    versions = {1: COLUMNS} if number < LAST else {1: COLUMNS, 2: WIDER}
    topics = {
        ACCOUNTS: Topic(ACCOUNTS, versions, ["id"]),
        ORDERS: Topic(ORDERS, {3: ODD}, ["n", "k"], key_id=101),
    }
    changes = [
        (table, Change(mod, key, new, us=number * 1_000 + n // 3, transaction=f"t{n // 2}",
                       sequence=n, **more))
        for n, (table, mod, key, new, more) in enumerate(PARTS[number])
    ]  # fmt: skip
    return topics, changes


def shuffled(changes):
    """Kafka's order: each key's changes are in commit order, those of all keys are not."""
    by_key = defaultdict(list)
    for table, change in changes:
        by_key[table, repr(change.key)].append((table, change))
    return [pair for one in reversed(by_key.values()) for pair in one]


def plain(values):
    return values and {name: value for name, value in values.items() if value is not None}


def key_of(key):
    return tuple(sorted((name, str(value)) for name, value in key.items()))


def expected_changes(through=LAST):
    """(release, ordinal, table, kind, key, new values) of each change, in commit order."""
    return [
        (number, n, table, change.mod, key_of(change.key),
         plain(change.new and {**change.key, **change.new}) if change.mod != "DELETE" else None)
        for number in range(through + 1)
        for n, (table, change) in enumerate(stage(number)[1])
    ]  # fmt: skip


def transactions_of(changes):
    """The changes of each transaction, which are neighbours."""
    at = {(n, place): (change.us, change.transaction)
          for n in range(LAST + 1) for place, (_, change) in enumerate(stage(n)[1])}  # fmt: skip
    return [list(of) for _, of in itertools.groupby(changes, key=lambda one: at[one[:2]])]


def expected_by_key(through=LAST):
    found = defaultdict(list)
    for number, _, table, mod, key, new in expected_changes(through):
        found[table, key].append((number, mod, new))
    return dict(found)


def expected_rows(through=LAST):
    rows = {table: {} for table in TABLES}
    for number in range(through + 1):
        for table, change in stage(number)[1]:
            key, of = key_of(change.key), rows[table]
            if change.mod == "DELETE":
                del of[key]
            elif change.mod == "INSERT" or key in of:
                kept = of[key] if change.mod == "UPDATE" else {}
                of[key] = {**kept, **change.key, **change.new}
    return {table: {key: plain(row) for key, row in of.items()} for table, of in rows.items()}


def made(spark, topics, changes, number, *, small, by_key):
    """The release of some changes, or their batch."""
    kit = Kit(spark, Path())
    pairs = [(topics[table], change) for table, change in shuffled(changes)]
    known = {"topics": topics.values()}
    return (
        kit.handed(number, pairs, **known)
        if by_key
        else kit.release(number, pairs, small=small, **known)
    )


@functools.cache
def of_stage(spark, number, *, small, by_key=False):
    """As in a query, all sinks are given the same release."""
    return made(spark, *stage(number), number, small=small, by_key=by_key)


class KeptSink:
    """A sink and what outlives it; `open` does what a new process does."""

    def __init__(self, name, spark, folder):
        self.name, self.kit = name, Kit(spark, folder)
        self.output = Storage(spark, self.kit.output)
        self.output.take()
        self.topic, self.called = MemoryStage(), {}
        self.settings = SETTINGS
        self.lake = Lake(self.kit) if name.startswith("iceberg") else None

    def open(self, *, small=True, query_id="query-1", release_max=99):
        sink = sink_of(self, DirectWay(DirectPlace(self.kit.output)) if small else None)
        sink.open(query_id=query_id, release_max=release_max)
        return sink

    def write(self, sink, number, *, small, other=None):
        """Write a release, or `other` topics and changes in its place; return the versions."""
        spark = self.kit.spark

        def given(*, by_key):
            if other is None:
                return of_stage(spark, number, small=small and not by_key, by_key=by_key)
            return made(spark, *other, number, small=small, by_key=by_key)

        if isinstance(sink, BatchSink):
            sink.take(given(by_key=True))
        return sink.write(given(by_key=False))

    def found(self, versions=None):
        """What a reader finds now, or at the versions of a release."""
        return READERS[self.name](self, versions or {})

    def call(self, frame, called):
        rows = [row.asDict() for row in frame.collect()]
        for row in rows:
            for name in ("key", "new_values", "old_values"):
                row[name] = row[name] and row[name].toPython()
        assert self.called.setdefault(called.number, rows) == rows

    # ---- what readers find

    def delta(self, path, version=None):
        if not Path(self.kit.output, path).exists():
            return []
        return self.kit.read(path, version).to_pylist()

    def by_table(self, versions, folder=None):
        """Rows of the table of each source table."""
        for table in TABLES:
            version = versions[table].version if table in versions else None
            if self.lake:
                kind = (folder or self.name).removeprefix("iceberg_")
                yield table, self.lake.rows(kind, table, version)
            else:
                yield table, self.delta(f"{folder or self.name}/{table}", version)

    def folders(self, path):
        for folder in sorted(Path(self.kit.output, path).glob("0*")):
            yield from pyarrow.parquet.read_table(folder, partitioning=None).to_pylist()

    def changes(self, versions):
        rows = [(table, row) for table, rows in self.by_table(versions) for row in rows]
        return in_order(rows)

    def parquet(self, _versions):
        rows = [(table, row) for table in TABLES for row in self.folders(f"parquet/{table}")]
        return in_order(rows)

    def transactions(self, versions):
        version = next(iter(versions.values())).version if versions else None
        return of_transactions(self.delta("transactions", version))

    def parquet_transactions(self, _versions):
        return of_transactions(self.folders("parquet_transactions"))

    def function(self, _versions):
        rows = itertools.chain(*(self.called[number] for number in sorted(self.called)))
        return [shown(row["table"], row) for row in rows]

    def published(self, _versions):
        (records,) = self.topic.records()
        found = [dict(headers) for *_, headers in records]
        return [
            (int(one["release"]), int(one["ordinal"]), NAMES.table(one["topic"])) for one in found
        ]

    def files(self, _versions):
        """Time and table of each event; within an object they are in order."""
        found = []
        for table in TABLES:
            folder = Path(self.kit.output, "datastream_files", table)
            for file in sorted(folder.rglob("*.avro"), key=lambda one: one.name):
                events = fastavro.reader(io.BytesIO(file.read_bytes()))
                found += [(table, event["sort_keys"][1]) for event in events]
        return found

    def changes_by_key(self, versions):
        rows = [(table, row) for table, rows in self.by_table(versions) for row in rows]
        rows.sort(
            key=lambda pair: (pair[1]["batch"], pair[1]["topic_partition"], pair[1]["offset"])
        )
        return per_key(rows)

    def parquet_by_key(self, _versions):
        return per_key(
            (table, row) for table in TABLES for row in self.folders(f"parquet_by_key/{table}")
        )

    def batches(self, _versions):
        return per_key((row["table"], row) for number in self.called for row in self.called[number])

    def rows(self, versions):
        return states(self.by_table(versions), lambda row: row.get("is_current", True))

    def rows_by_key(self, versions):
        return states(self.by_table(versions), lambda row: row["row_state"] == "present")

    def aside(self):
        """Release and ordinal of each UPDATE without a row."""
        folder = "history_incomplete" if self.name == "history" else "incomplete"
        if self.lake:
            return [(row["release"], row["ordinal"]) for row in self.lake.rows(folder, ACCOUNTS)]
        rows = [row for _, rows in self.by_table({}, folder) for row in rows]
        return [(row["release"], row["ordinal"]) for row in rows]


def shown(table, row):
    place = row["release"], row["ordinal"]
    return *place, table, row["mod_type"], key_of(row["key"]), plain(row["new_values"])


def in_order(rows):
    rows.sort(key=lambda pair: (pair[1]["release"], pair[1]["ordinal"]))
    return [shown(table, row) for table, row in rows]


def of_transactions(rows):
    def parsed(text):
        return text and json.loads(text, parse_float=Decimal)

    found = []
    for row in sorted(rows, key=lambda row: (row["release"], row["first_ordinal"])):
        changes = [
            {**one, "release": row["release"], "key": parsed(one["key"]),
             "new_values": parsed(one["new_values"])}
            for one in row["changes"]
        ]  # fmt: skip
        found.append([shown(change["table"], change) for change in changes])
    return found


def per_key(rows):
    found = defaultdict(list)
    for table, row in rows:
        change = row["batch"], row["mod_type"], plain(row["new_values"])
        found[table, key_of(row["key"])].append(change)
    return dict(found)


def states(tables, is_shown):
    keys = {ACCOUNTS: ("id",), ORDERS: ("n", "k")}
    return {
        table: {
            key_of({name: row[name] for name in keys[table]}): plain(
                {name: row.get(name) for name in TABLES[table]}
            )
            for row in rows
            if is_shown(row)
        }
        for table, rows in tables
    }


SETTINGS = ConsumerConfig(
    bootstrap_servers="b",
    registry_url="http://r",
    prefix="bank",
    output="o",
    checkpoint="c",
).model_copy(update={"datastream_files_rows_max": 2, "datastream_files_bytes_max": 10_000})
FUNCTIONS = {
    "function": lambda kept: FunctionSink(kept.call, spark=kept.kit.spark),
    "batches": lambda kept: BatchFunctionSink(kept.call),
}
SINKS = (*KINDS, *FUNCTIONS)


def sink_of(kept, direct):
    """A sink as the table of sinks makes it, or a function of a program's."""
    if kept.name in FUNCTIONS:
        return FUNCTIONS[kept.name](kept)
    parts = Parts(
        kept.kit.spark, kept.settings, kept.output, direct,
        topic=kept.topic.process, stream=lambda: STREAM, clock=lambda: 1.8e9,
    )  # fmt: skip
    return KINDS[kept.name].make(parts)


READERS = {
    **dict.fromkeys(("changelog", "iceberg_changelog"), KeptSink.changes),
    **dict.fromkeys(("mirror", "history", "iceberg_mirror"), KeptSink.rows),
    "parquet": KeptSink.parquet,
    "transactions": KeptSink.transactions,
    "parquet_transactions": KeptSink.parquet_transactions,
    "function": KeptSink.function,
    "topic": KeptSink.published,
    "datastream_files": KeptSink.files,
    "changelog_by_key": KeptSink.changes_by_key,
    "mirror_by_key": KeptSink.rows_by_key,
    "parquet_by_key": KeptSink.parquet_by_key,
    "batches": KeptSink.batches,
}
STATES = ("mirror", "history", "iceberg_mirror", "mirror_by_key")
BY_KEY = ("changelog_by_key", "parquet_by_key", "batches")


def expected(name, through=LAST):
    """What a reader of a sink finds after a release."""
    if name in STATES:
        return expected_rows(through)
    if name in BY_KEY:
        return expected_by_key(through)
    changes = expected_changes(through)
    if name.endswith("transactions"):
        return transactions_of(changes)
    if name == "topic":
        return [change[:3] for change in changes]
    if name == "datastream_files":
        times = [(table, change.us) for n in range(LAST + 1) for table, change in stage(n)[1]]
        return sorted(times)
    return changes
