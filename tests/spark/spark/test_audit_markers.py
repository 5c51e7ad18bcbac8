"""Markers of a progress topic as frames: chunks, versions, and tokens with one hash."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.spark.spark.audited_stream import AuditedStream, record, started
from tests.topics import Topic
from tidegate.lineage.errors import MixedEpochs
from tidegate.schemas.checksums import CHECKSUM_MODULUS, CHECKSUMS
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import ChecksumKind
from tidegate.schemas.progress_codec import RECORD_SCHEMAS
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.spark import audit_markers

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def markers(made):
    chosen = audit_markers.marker_records(made.progress())
    bodies = audit_markers.decoded_records(chosen, RECORD_SCHEMAS.__getitem__)
    return audit_markers.read_markers(bodies)


@pytest.fixture
def made(spark, tmp_path):
    return AuditedStream(spark, tmp_path / "out")


def test_markers_of_one_origin_add_up(made, monkeypatch):
    # No two tokens with one hash are known: the hash is replaced.
    origin = F.when(F.col("token").isin("p", "q", "r", "open"), 7).otherwise(8)
    monkeypatch.setattr(audit_markers, "origin_of_token", lambda: origin.cast("long"))
    made.announce("p", "q", "whole", "torn", "open")
    made.announce("r", version=1)
    made.send("p", "a", 5)
    made.send("q", "a", 6, mods=2)
    made.finish("p", end_us=9)
    made.finish("q", end_us=12)
    made.finish("r", end_us=13, version=1)
    for token in ("whole", "torn"):
        made.send(token, "a", 5)
        made.send(token, "b", 6)
        made.finish(token, end_us=9, chunks=3)
    made.records.pop()  # a chunk of "torn"
    made.records.append(made.records[-3])  # a chunk of "whole" again: the newest counts

    found = markers(made)

    seven, eight = sorted(found.origins.collect(), key=lambda row: row.origin)
    assert (seven.tokens, seven.open, seven.end_us, seven.start_us) == (4, 1, 13, 0)
    assert not seven.has_checksum, "one of them was summed in another way"
    assert (eight.tokens, eight.open, eight.end_us, eight.has_checksum) == (2, 1, 9, True)
    totals = {(row.origin, row.topic): row for row in found.totals.collect()}
    assert totals.keys() == {(7, "bank.a"), (8, "bank.a"), (8, "bank.b")}
    both = [change for token in "pq" for _, change in made.sent[token]]
    summed = sum(CHECKSUMS[ChecksumKind.XXHASH_64](change.order_key) for change in both)
    assert totals[7, "bank.a"].mods == len(both) == 3
    assert totals[7, "bank.a"].checksum == f"{summed % CHECKSUM_MODULUS:016x}"
    assert totals[8, "bank.b"].mods == 1


def test_a_topic_without_one_stream_is_refused(made):
    made.records.append(record(started(), epoch="other"))
    with pytest.raises(MixedEpochs):
        markers(made)
    made.records = []
    with pytest.raises(ConfigError, match="no stream"):
        markers(made)


def test_rows_that_were_read_on_demand_are_stated_for_their_table(made):
    columns = made.topics["a"].versions
    made.topics |= {name: Topic(name, columns, ["id"]) for name in ("a__backfill", "b__backfill")}
    for token, table in (("p", "a"), ("q", "a__backfill"), ("r", "b__backfill")):
        made.announce(token)
        made.send(token, table, 5)
        made.finish(token, end_us=9)
    found = audit_markers.under_their_tables(markers(made), TopicNames("bank"), ["a", "c"])

    topics = sorted((row.topic, row.mods) for row in found.totals.collect())
    assert topics == [("bank.a", 1), ("bank.a", 1), ("bank.b__backfill", 1)]
