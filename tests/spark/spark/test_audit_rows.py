"""Rows of changelogs as an audit reads them: of every program's tables, up to a release."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.spark.spark.audited_stream import origin_number
from tests.topics import Change
from tidegate.schemas.checksums import CHECKSUM_MODULUS, xxhash_64
from tidegate.spark_consumer.spark.audit_rows import read_rows, sums_by_origin

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = (
    "release long, ordinal long, commit_timestamp timestamp, server_transaction_id string,"
    " record_sequence string, mod_number int, order_key binary,"
    " source struct<partition_token: string, number_of_records_in_transaction: long>,"
    " origin long, value_bytes long"
)


def row(change, *, release=0, origin=None, value_bytes=None, token=""):
    return (
        release, 0, None, change.transaction, "0", change.mod_number,
        bytearray(change.order_key), (token, 1), origin, value_bytes,
    )  # fmt: skip


def test_rows_of_all_programs_are_summed_by_origin(spark, tmp_path):
    changes = [Change("DELETE", {}, us=number) for number in range(1, 6)]
    new = [
        row(changes[0], origin=7, value_bytes=10),
        row(changes[1], origin=7, value_bytes=20),
        row(changes[2], origin=8, value_bytes=5),
        row(changes[3], origin=8, token="p"),
        row(changes[4], release=2, origin=7),
    ]
    old = [row(changes[0], token="p"), row(changes[1])]
    tables = {"bank.new": (new, ()), "bank.old": (old, ("origin", "value_bytes"))}
    paths = {topic: str(tmp_path / topic) for topic in (*tables, "bank.gone")}
    for topic, (content, dropped) in tables.items():
        frame = spark.createDataFrame(content, COLUMNS)
        frame = frame.withColumn("commit_timestamp", F.timestamp_micros(F.lit(1))).drop(*dropped)
        frame.write.format("delta").save(paths[topic])

    rows, missing = read_rows(spark, paths, release_max=1)

    assert missing == ("bank.gone",)
    found = {(one.topic, one.origin): one for one in sums_by_origin(rows).collect()}
    summed = {
        ("bank.new", 7): (changes[:2], 30),
        ("bank.new", 8): (changes[2:4], None),
        ("bank.old", origin_number("p")): (changes[:1], None),
        ("bank.old", None): (changes[1:2], None),
    }
    assert found.keys() == summed.keys()
    for place, (expected, value_bytes) in summed.items():
        checksum = sum(xxhash_64(change.order_key) for change in expected) % CHECKSUM_MODULUS
        one = found[place]
        assert (one.mods, one.value_bytes) == (len(expected), value_bytes)
        assert one.checksum == f"{checksum:016x}"
    # All rows state the first microsecond; one was committed then.
    assert found["bank.new", 7].altered == 1


def test_an_output_without_tables_has_no_rows(spark, tmp_path):
    assert read_rows(spark, {"bank.a": str(tmp_path)}, release_max=0) == (None, ("bank.a",))
