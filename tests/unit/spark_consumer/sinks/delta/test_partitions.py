"""Types, texts and names of partitions; with Spark they are in the tests of the mirrors."""

from __future__ import annotations

from urllib.parse import quote, unquote

import pyarrow
import pytest
from deltalake import write_deltalake
from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType, TimestampType

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.delta.partitions import (
    is_other_path,
    refuse_lost_values,
    text_columns,
    unequal_columns,
)

SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("region", StringType()),
        StructField("day", DateType()),
        StructField("at", TimestampType()),
    ]
)


def refuse(table, values, *, address="/lake/mirror/t"):
    refuse_lost_values(table, values, address=address)


def test_columns_are_chosen_by_their_types():
    assert unequal_columns(SCHEMA, ["region", "at", "day"]) == ["at"]
    assert text_columns(SCHEMA, ["id", "region", "dropped"]) == ["region"]


def test_a_text_that_would_be_null_is_refused_with_its_column():
    refuse("t", {"region": [None, "x", " ", "null"], "id": [0, None, b""]})
    for text in ("", "\x00", "a\x00", "__HIVE_DEFAULT_PARTITION__"):
        with pytest.raises(ConfigError, match=r"^mirror_partition_by: .*column='region', rows=2"):
            refuse("t", {"id": [1], "region": ["x", text, None, text]})


def test_a_text_that_is_too_long_for_a_folders_name_is_refused():
    # With "region=" 255 bytes, as delta-rs encodes them; of a whole path others count.
    longest = ("x" * 248, "é" * 41 + "xx", " " * 82 + "xx", "_.-" * 82 + "xx", "*" * 82 + "xx")
    refuse("t", {"region": longest})
    for text in longest:
        with pytest.raises(ConfigError, match=r"255 encoded.*column='region', rows=1"):
            refuse("t", {"region": [None, f"{text}x"]})
    refuse("t", {"r": ["x" * 253]})


@pytest.mark.parametrize("scheme", ["s3a", "s3", "gs"])
def test_in_a_store_without_folders_the_whole_key_counts(scheme):
    address = f"{scheme}://bucket/lake/mirror/t"
    key, file_name = "lake/mirror/t/region=/", "_change_data/cdc-00000-" + "0" * 36
    room = 1_024 - len(key) - 128
    assert room + len(key) + len(f"{file_name}.c000.snappy.parquet") <= 1_024
    rest = room % 6
    for text in ("x" * room, "é" * (room // 6) + "x" * rest):
        refuse("t", {"region": [text]}, address=address)
        for elsewhere in ("/lake/t", "hdfs://host/lake/t", "abfss://bucket@account/t", "file:/t"):
            with pytest.raises(ConfigError, match=r"255 encoded.*column='region', rows=1"):
                refuse("t", {"region": [text]}, address=elsewhere)
        for longer in (f"{address}é", address.replace("lake", "lakes")):
            with pytest.raises(ConfigError, match=r"1,024.*column='region', rows=1"):
                refuse("t", {"region": [text]}, address=longer)
        with pytest.raises(ConfigError, match=r"1,024.*column='region', rows=1"):
            refuse("t", {"region": ["x", f"{text}x"]}, address=address)
    # Two columns share the key: each fits, and together they do not.
    for text, is_short in (("x" * (room // 2 - 20), True), ("x" * (room // 2 + 1), False)):
        values = {"region": [text, "a", None], "city": [text, None, "b" * 400], "day": [None, 1, 2]}
        if is_short:
            refuse("t", values, address=address)
            continue
        with pytest.raises(ConfigError, match=r"1,024.*column='region, city, day', rows=1"):
            refuse("t", values, address=address)
    for text in ("", "\x00", "__HIVE_DEFAULT_PARTITION__"):
        with pytest.raises(ConfigError):
            refuse("t", {"region": [text]}, address=address)


def test_no_name_of_a_folder_is_longer_than_it_is_counted(tmp_path):
    texts = ["".join(map(chr, range(n, n + 20))) for n in range(1, 161, 20)]
    rows = pyarrow.table({"a-é~": texts, "n": [1] * len(texts)})
    write_deltalake(tmp_path, rows, partition_by=["a-é~"])
    folders = [one.name for one in tmp_path.iterdir() if one.name != "_delta_log"]
    assert len(folders) == len(texts)
    room = {unquote(one).partition("=")[2]: 255 - len(one.encode()) for one in folders}
    for text in texts:
        with pytest.raises(ConfigError):
            refuse("t", {"a-é~": [text + "x" * (room[text] + 1)]})


@pytest.mark.parametrize("text", ["é", "日本", "\U0001f600", "a é"])
def test_a_path_that_delta_rs_may_list_in_another_form_is_seen(text):
    # As Spark has it in the log, as delta-rs lists that, and as delta-rs writes it.
    assert is_other_path(f"region={text}/part-0.parquet")
    assert is_other_path(f"region={quote(text)}/part-0.parquet")
    assert not is_other_path(f"region={quote(quote(text))}/part-0.parquet")


@pytest.mark.parametrize("text", ["a", "a b", "a/b", "100%", "~=:?#+&'\"", "\x7f", "__HIVE"])
def test_a_path_of_ascii_is_one_path(text):
    for path in (text, quote(text), quote(quote(text))):
        assert not is_other_path(f"region={path}/part-0.parquet")
