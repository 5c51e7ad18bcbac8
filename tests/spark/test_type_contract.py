"""What one engine writes, another library reads: each type, writer, reader and position once.

One table has the rows of all writers: delta-rs's append and MERGE, Spark's append and MERGE, and
PyArrow, which rewrites small files.  Each reader goes over it once.  A type stands in a column that
a key may be (its values are looked up and joined), in an array, and in a record.
"""

import itertools
import math
import shutil
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from tidegate.spark_consumer.sinks.delta.direct.files import DirectFiles
from tidegate.spark_consumer.sinks.delta.direct.place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.merge.mirror import same_key
from tidegate.spark_consumer.sinks.tables import Commit

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = datetime(1, 1, 1, 0, 0, 0, 1, UTC), datetime.max.replace(tzinfo=UTC)
# By Spark's name: the values of six rows.  The bounds of a file that has one of them, or two
# neighbours, are true only if nothing is rounded, cut or left out.
VALUES = {
    "bigint": [-(2**63), 2**63 - 1, 2**53 + 1, 0, -1, None],
    "boolean": [True, False, True, False, None, None],
    "string": ["", "\U0010ffff" * 40, "b" * 100 + "é", " x\n", "\U0001f600", None],
    "binary": [b"", b"\xff" * 100, b"\x00", b"a", b"\xff\x00", None],
    "date": [date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 4), date(2026, 5, 1), None, None],
    "timestamp": [
        FIRST,
        LAST,
        datetime(1582, 10, 4, 1, 2, 3, 4, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(2026, 5, 1, 12, 0, 0, 999_999, UTC),
        None,
    ],
    "decimal(38,9)": [
        Decimal("-99999999999999999999999999999.999999999"),
        Decimal("12345678901234567890123456789.123456789"),
        Decimal("0.000000001"),
        Decimal("-123456789.123456789"),
        Decimal(10) ** 19,
        None,
    ],
    "double": [math.nan, 0.1, math.inf, -math.inf, -1.5, None],
    "float": [math.nan, 0.5, math.inf, -math.inf, -1.5, None],
}
NAMES = {kind: kind.partition("(")[0] for kind in VALUES}
ROWS = range(6)
WRITERS = ("append", "merge", "Spark append", "Spark MERGE", "rewrite")
RECORD = ", ".join(f"{name}: {kind}" for kind, name in NAMES.items())
DDL = ", ".join(
    [
        "id bigint",
        "seen bigint",
        *(f"{name} {kind}, a_{name} array<{kind}>" for kind, name in NAMES.items()),
        f"r struct<{RECORD}>",
    ]
)
# delta-rs joins no floating-point numbers as Spark does: Spark merges tables with such keys.
KEYS = {kind: name for kind, name in NAMES.items() if kind not in {"double", "float"}}


def row_of(writer, place):
    """The row with the values at a place, as a writer has to write it."""
    values = {name: VALUES[kind][place] for kind, name in NAMES.items()}
    arrays = {f"a_{name}": [value, None] for name, value in values.items()}
    number = WRITERS.index(writer) * 10 + place
    return {"id": number, "seen": 0, **values, **arrays, "r": values}


EVERY = [row_of(writer, place) for writer in WRITERS for place in ROWS]


def holders(kind, value):
    """The ids of all rows that have a value, which may be NULL or NaN."""
    same = [place for place in ROWS if repr(VALUES[kind][place]) == repr(value)]
    return sorted(number * 10 + place for number in range(len(WRITERS)) for place in same)


def created(path, ddl, *, partitioned_by=()):
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(ddl)
    json = schema.json()
    DirectTable.create(
        path, schema=json, properties={}, metadata="{}", partitioned_by=partitioned_by
    )
    return schema


commits = itertools.count()


def commit():
    return Commit("query-1", "mirror", next(commits), 1)


def direct_rows(table, rows):
    return table.rows(rows, table.schema.names)


def append(path, rows):
    table = DirectTable(path)
    table.append(direct_rows(table, rows), commit=commit())


def merge(path, rows):
    table = DirectTable(path)
    names = table.schema.names
    table.merge(
        direct_rows(table, rows),
        same_row="t.id = s.id",
        is_deleted="false",
        updated={"seen": "s.seen"},
        is_inserted="true",
        inserted={f'"{name}"': f's."{name}"' for name in names},
        commit=commit(),
    )


def frame(spark, path, rows):
    """Rows for Spark, which reads them from a file: Python's types have other bounds."""
    schema = DirectTable(path).schema
    file = f"{path}-{next(commits)}.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), file, store_schema=False)
    return spark.read.parquet(file)


def spark_append(spark, path, rows):
    """One file for each row."""
    source = frame(spark, path, rows).repartitionByRange(len(rows), "id")
    source.write.format("delta").mode("append").save(path)


def spark_merge(spark, path, rows):
    frame(spark, path, rows).createOrReplaceTempView("source")
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING source s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    )


def rewrite(path, rows):
    """Append rows one by one, and rewrite the new files of two neighbours as one each."""
    known = {file.path for file in DirectFiles(path).data_files(())}
    for row in rows:
        append(path, [row])
    for _ in range(len(rows) // 2):
        files = DirectFiles(path)
        new = [file for file in files.data_files(()) if file.path not in known and file.rows == 1]
        files.rewrite(new[:2], order=(), now_ms=1, before_commit=lambda: None)


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    """The path of a table with the rows of each writer."""
    path = str(tmp_path_factory.mktemp("contract") / "t")
    created(path, DDL)
    written = {writer: [row_of(writer, place) for place in ROWS] for writer in WRITERS}
    for row in written["append"]:
        append(path, [row])
    for place in ROWS[::2]:
        merge(path, written["merge"][place : place + 2])
    spark_append(spark, path, written["Spark append"])
    spark_merge(spark, path, written["Spark MERGE"])
    rewrite(path, written["rewrite"])
    return path


def normal(value):
    """A value that equals itself, whichever library it came from."""
    match value:
        case datetime():
            return (value - EPOCH) // datetime.resolution
        case Decimal():
            return value.normalize(Context(prec=38))
        case float():
            return repr(value)
        case dict():
            return {name: normal(one) for name, one in value.items()}
        case list():
            return [normal(one) for one in value]
        case _:
            return value


def plain(rows):
    """Rows by their ids; one that is there twice is not hidden by the other."""
    return sorted((normal(row) for row in rows), key=lambda row: (row["id"], row["seen"]))


def is_value(column, kind, value):
    """SQL of Spark that a reader compares with the bounds of a file."""
    match value:
        case None:
            return f"{column} IS NULL"
        case bytes():
            return f"{column} = X'{value.hex()}'"
        case str():
            return f"{column} = decode(X'{value.encode().hex()}', 'UTF-8')"
        case datetime():
            return f"{column} = timestamp_micros({normal(value)})"
        case _:
            return f"{column} = CAST('{value}' AS {kind})"


POSITIONS = [(kind, value) for kind in VALUES for value in dict.fromkeys(VALUES[kind])]


def test_spark_reads_what_each_engine_wrote_and_finds_it_by_its_bounds(spark, table):
    found = spark.read.format("delta").load(table)
    assert plain(found.toArrow().to_pylist()) == plain(EVERY)
    found.createOrReplaceTempView("contract")
    for place in ROWS:
        same = [
            is_value(column, kind, VALUES[kind][place])
            for kind, name in NAMES.items()
            for column in (name, f"r.{name}")
        ]
        rows = spark.sql(f"SELECT id FROM contract WHERE {' AND '.join(same)}").collect()
        assert sorted(row["id"] for row in rows) == [10 * n + place for n in range(len(WRITERS))]
    # NaN is the greatest number, and in nobody's bounds.
    above = spark.sql("SELECT id FROM contract WHERE double > 1e300 AND r.float > 1e30").collect()
    assert sorted(row["id"] % 10 for row in above) == [0] * 5 + [2] * 5


def test_delta_rs_reads_what_each_engine_wrote_and_a_small_release_finds_it(table):
    opened = DirectTable(table)
    import deltalake

    assert plain(deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()) == plain(EVERY)
    missed = []
    for kind, value in POSITIONS:
        if kind in KEYS:
            name = KEYS[kind]
            rows = opened.find_rows(name, opened.values(name, [value]), ["id", f"a_{name}"])
            if sorted(rows["id"].to_pylist()) != holders(kind, value):
                missed.append((kind, value))
    assert missed == []


def test_delta_rs_merges_by_each_type_what_each_engine_wrote(table, tmp_path):
    missed = []
    for kind, name in KEYS.items():
        path = str(tmp_path / name)
        shutil.copytree(table, path)
        opened = DirectTable(path)
        values = list(dict.fromkeys(VALUES[kind]))
        rows = opened.together(
            {
                "key_0": opened.values(name, values),
                "key_1": opened.values("seen", [0] * len(values)),
            }
        )
        opened.merge(
            rows,
            same_row=same_key(rows, [name, "seen"]),
            is_deleted="false",
            updated={"seen": "1"},
            is_inserted="true",
            inserted={"id": "-1"},
            commit=commit(),
        )
        found = DirectTable(path)
        seen = found.find_rows("seen", found.values("seen", [1]), ["id"])["id"].to_pylist()
        if sorted(seen) != sorted(row["id"] for row in EVERY):
            missed.append((kind, sorted(seen)))
    assert missed == []


def test_spark_merges_by_all_types_what_each_engine_wrote(spark, table, tmp_path):
    path = str(tmp_path / "t")
    shutil.copytree(table, path)
    places = [row_of("append", place) for place in ROWS]
    frame(spark, path, places).createOrReplaceTempView("source")
    same = " AND ".join(f"t.{name} <=> s.{name}" for name in NAMES.values())
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING source s ON {same} "
        "WHEN MATCHED THEN UPDATE SET seen = 1"
    )
    rows = spark.read.format("delta").load(path).toArrow().to_pylist()
    assert plain(rows) == plain([{**row, "seen": 1} for row in EVERY])


PARTITIONS = {
    "bigint": [-(2**63), 2**63 - 1, 0, None],
    "boolean": [True, False, None, True],
    "date": [date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 10), None],
    "string": ["a b/c%20=:", " ", "null", None],
}


def partition_rows(first, *, seen=0, texts=PARTITIONS["string"]):
    """Rows whose partitions have the values of each type, in columns after the row's id."""
    columns = {**PARTITIONS, "string": texts}
    return [
        {"id": first + n, "seen": seen, **{kind: values[n] for kind, values in columns.items()}}
        for n in range(4)
    ]


def spark_update(spark, path, rows):
    frame(spark, path, rows).createOrReplaceTempView("source")
    same = " AND ".join(f"t.{name} <=> s.{name}" for name in ("id", *PARTITIONS))
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING source s ON {same} "
        "WHEN MATCHED THEN UPDATE SET seen = s.seen WHEN NOT MATCHED THEN INSERT *"
    )


def direct_update(path, rows):
    """As a small release merges, with the partitions as its key."""
    table = DirectTable(path)
    keys = [*PARTITIONS, "id"]
    source = {
        f"key_{n}": table.values(name, [row[name] for row in rows]) for n, name in enumerate(keys)
    }
    source["seen"] = table.values("seen", [row["seen"] for row in rows])
    together = table.together(source)
    table.merge(
        together,
        same_row=same_key(together, keys),
        is_deleted="false",
        updated={"seen": "s.seen"},
        is_inserted="true",
        inserted={"seen": "s.seen", **{f'"{name}"': f"s.key_{n}" for n, name in enumerate(keys)}},
        commit=commit(),
    )


def test_partitions_are_equal_for_both_engines_in_turns(spark, tmp_path):
    path = str(tmp_path / "mirror" / "t")
    ddl = ", ".join(["id bigint", "seen bigint", *(f"{kind} {kind}" for kind in PARTITIONS)])
    schema = created(path, ddl, partitioned_by=list(PARTITIONS))
    direct_update(path, partition_rows(0))
    spark_update(spark, path, [*partition_rows(0, seen=1), *partition_rows(10)])
    direct_update(path, [*partition_rows(0, seen=2), *partition_rows(10, seen=2)])
    expected = [*partition_rows(0, seen=2), *partition_rows(10, seen=2)]
    assert plain(spark.read.format("delta").load(path).toArrow().to_pylist()) == plain(expected)
    table = DirectTable(path)
    for kind, values in PARTITIONS.items():
        for value in dict.fromkeys(values):
            rows = table.find_rows(kind, table.values(kind, [value]), table.schema.names)
            wanted = [row for row in expected if row[kind] == value]
            assert plain(rows.to_pylist()) == plain(wanted), (kind, value)

    way = DirectWay(DirectPlace(str(tmp_path)))
    opened = way.mirror("mirror/t", schema=schema, keys=["id"])
    assert opened is not None
    # Spark writes their names as they are, and delta-rs would remove nothing of them.
    names = partition_rows(20, texts=["é", "\U0001f600", "日本", "ä b"])
    spark_update(spark, path, names)
    assert way.mirror("mirror/t", schema=schema, keys=["id"]) is None


@pytest.mark.parametrize("kind", ["decimal(38,9)", "timestamp"])
def test_a_table_with_partitions_that_differ_is_left_to_spark(tmp_path, kind):
    path = str(tmp_path / "mirror" / "t")
    schema = created(path, f"id bigint, p {kind}", partitioned_by=["p"])
    assert (
        DirectWay(DirectPlace(str(tmp_path))).mirror("mirror/t", schema=schema, keys=["id"]) is None
    )
    assert Path(path).exists()
