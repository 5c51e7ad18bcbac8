"""The sink and the function without waiting of docs/library.md, with real releases and batches."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import tidegate
from tests.tidy.printed_commands import blocks
from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.spark_consumer.batch.handed_rows import handed_batch
from tidegate.spark_consumer.library.builder import StreamBuilder
from tidegate.spark_consumer.sinks.decoding import decode_changes
from tidegate.spark_consumer.sinks.port import DecodedTable, Release, Sink

pytestmark = pytest.mark.spark

ACCOUNTS = Topic("accounts", {2: {"id": "INT64", "n": "NUMERIC"}}, ["id"], key_id=1)


def sink_of_the_page(word, spark, folder):
    """Run the program of the page that has a word; return the sink that it gives to the builder."""
    (program,) = [
        one.content
        for one in blocks("python")
        if one.page == "docs/library.md" and word in one.content
    ]
    for printed in ("/feed/lines", "/lake/feed"):
        program = program.replace(printed, str(folder))
    building = StreamBuilder(spark, prefix="bank")
    exec(compile(program, "docs/library.md", "exec"), {
        "tg": tidegate, "spark": spark, "building": building,
    })  # fmt: skip
    (sink,) = building._own.values()
    return sink


def rows(spark, *keys):
    found = [
        ACCOUNTS.row(Change("INSERT", {"id": key}, {"n": None}, us=key), ordinal=n)
        for n, key in enumerate(keys)
    ]
    return spark.createDataFrame(found, ROWS_SCHEMA)


def released(spark, number, *keys):
    from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

    frame = rows(spark, *keys).withColumn("release", F.lit(number).cast("long"))
    schemas = ACCOUNTS.topic_schemas()
    frame = decode_changes(frame, schemas, topic=ACCOUNTS.topic)
    table = DecodedTable(spark, lambda: frame, len(keys), schemas)
    return Release(
        number=number, after_us=0, through_us=9, query_id="q", batch=number, rows=len(keys),
        tables={ACCOUNTS.topic: table},
    )  # fmt: skip


@pytest.mark.rule("sink-own")
def test_the_sink_of_the_page_writes_each_release_once(spark, tmp_path):
    sink: Sink = sink_of_the_page("class JsonLines", spark, tmp_path / "lines")
    sink.open(query_id="q", release_max=-1)
    for number, keys in ((0, (1, 2)), (1, (3,)), (1, (3,))):
        sink.write(released(spark, number, *keys))
    found = {
        folder.name: [
            (change["ordinal"], change["key"]["id"])
            for file in sorted(folder.glob("*.json"))
            for change in map(json.loads, file.read_text().splitlines())
        ]
        for folder in Path(tmp_path, "lines").iterdir()
    }
    assert found == {"000000000000": [(0, 1), (1, 2)], "000000000001": [(0, 3)]}


def test_the_function_without_waiting_of_the_page_appends_each_batch_once(spark, tmp_path):
    sink = sink_of_the_page("def forward", spark, tmp_path / "feed")
    for number, keys in ((4, (1, 2)), (4, (1, 2)), (6, (3,))):
        plan = SimpleNamespace(batch=number, query_id="q", through_us=0)
        frame = rows(spark, *keys).drop("ordinal")
        topics = {ACCOUNTS.topic: ACCOUNTS.topic_schemas()}
        sink.take(handed_batch(frame, plan=plan, topics=topics))
    found = spark.read.format("delta").load(str(tmp_path / "feed")).select("batch", "key")
    appended = sorted((row.batch, row.key.toPython()["id"]) for row in found.collect())
    assert appended == [(4, 1), (4, 2), (6, 3)]
