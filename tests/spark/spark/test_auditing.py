"""`audit` on real Spark and Delta: what is damaged is found and named, nothing else is."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from tests.spark.spark.audited_stream import (
    SECOND,
    AuditedStream,
    name_of,
    origin_number,
    record,
    started,
)
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.progress import SlotProgress
from tidegate.schemas.wire_format import frame
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.proof import Fault, Verdict
from tidegate.spark_consumer.sinks.manifest import Manifest
from tidegate.spark_consumer.sinks.port import TableVersion
from tidegate.spark_consumer.spark import auditing

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MANY = [f"token-{number}" for number in range(12)]


@pytest.fixture
def stream(spark, tmp_path):
    """A stream of two releases in which nothing is wrong."""
    older = {"old": ("origin", "value_bytes")}
    made = AuditedStream(spark, tmp_path / "out", lacks=older)
    chance = random.Random(4)
    made.announce(*MANY, "p", "open", "waiting", "back", "empty", "idle")
    made.announce("q", start_us=SECOND)
    made.announce("first", version=1)
    made.send("p", "a", 10, mods=3)
    made.send("p", "b", SECOND + 5, records=2, transaction="whole")
    made.send("q", "a", SECOND + 6, mods=4)
    made.send("open", "b", SECOND + 7)
    made.send("waiting", "b", SECOND + 8)
    for us in range(2 * SECOND - 300, 2 * SECOND - 200):
        made.send(chance.choice(MANY), chance.choice("ab"), us, mods=chance.randint(1, 3))
    made.send("first", "old", 12, mods=2, is_older=True)
    made.send("back", "a", 14)
    made.finish("back", end_us=SECOND, parked=1)
    made.send("back", "a", 15)  # put back: no marker counts it
    made.write()
    made.write()
    for token in MANY:
        made.finish(token, end_us=2 * SECOND)
    made.finish("p", end_us=SECOND + 9, start_us=5, chunks=3)
    made.finish("q", end_us=2 * SECOND, start_us=SECOND)
    made.finish("waiting", end_us=2 * SECOND + 1)
    made.finish("first", end_us=20, version=1)
    made.finish("empty", end_us=20)
    made.records.append(record(SlotProgress(0, 1, 0, -1, (), ())))
    return made


def test_what_an_accepted_gap_lacks_is_named_and_no_fault(stream):
    begin_us = 2 * SECOND
    gaps = [stream.accept("open", begin_us + 40, begin_us + 60)]
    gaps.append(stream.accept("q", begin_us + 900, begin_us + 901))
    stream.accept("q", 8 * SECOND, 9 * SECOND)  # not released yet
    for us in (39, 50, 60):
        stream.send("open", "b", begin_us + us, transaction=f"half-{us}")
        topic, change = stream.sent["open"][-1]
        stream.sent["open"][-1] = (topic, replace(change, records=2))
    stream.write()
    report = stream.audit()
    assert list(report.gaps) == gaps
    assert [one["token"] for one in report.content()["gaps"]] == ["open", "q"]
    assert report.transactions.counts[Verdict.IN_GAP] == 1
    lacking = {one.subject["server_transaction_id"] for one in report.mismatches}
    assert lacking == {"half-39", "half-60"}


def test_an_output_that_has_everything_is_proved(spark, stream, monkeypatch):
    report = stream.audit()
    kept = spark.sparkContext._jsc.getPersistentRDDs().size()  # Delta keeps the tables' states
    for few in (50, 250_000):
        monkeypatch.setattr(auditing, "_ROWS_OF_A_TASK", few)
        assert stream.audit() == report
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == kept
    assert report.is_proved, report.mismatches
    assert report.stream_partitions.counts == {
        Verdict.PROVED: len(MANY) + 4,
        Verdict.OPEN: 2,
        Verdict.NOT_RELEASED: 1,
        Verdict.LEFT_OUT: 1,
    }
    assert set(report.transactions.counts) == {Verdict.PROVED}
    assert report.releases.counts == {Verdict.PROVED: 2}
    assert report.changes == sum(map(len, stream.sent.values()))
    assert (report.release, report.through_us) == (1, 2 * SECOND)
    # "first" was summed with another hash, and its table has no sizes.
    assert (report.without_checksum, report.without_value_bytes, report.late_changes) == (1, 1, 0)


def test_whatever_is_damaged_is_named_and_nothing_else(stream):
    victim, size_of, time_of = MANY[3], MANY[5], MANY[7]
    table, gone = stream.sent[victim][0]
    sized, timed = stream.sent[size_of][-1], stream.sent[time_of][-1]

    def is_of(row, change):
        return row["order_key"] == change.order_key

    def damaged(rows):
        first = {row["mod_number"]: row for row in rows if row["release"] == 0 and is_p(row)}
        for row in rows:
            if is_of(row, gone):
                continue  # missing, among many
            if row["server_transaction_id"] == "whole" and row["ordinal"] == 1:
                continue  # one of two records of a transaction
            if is_of(row, sized[1]):
                row["value_bytes"] += 1
            if is_of(row, timed[1]):
                row["commit_timestamp"] += timedelta(seconds=1)
            if row["origin"] == origin_number("open"):
                row["origin"] = 77  # of no stream partition, though its own is open
            if row is first.get(1):
                row["order_key"] = first[2]["order_key"]  # one in place of another
            yield row
            if row["origin"] == origin_number("q") and row["mod_number"] == 3:
                yield row  # there twice

    def is_p(row):
        return row["origin"] == origin_number("p")

    for name in ("a", "b"):
        stream.alter(name, lambda rows: list(damaged(rows)))
    stream.change_manifest(0, rows=99)

    report = stream.audit()

    assert set(map(name_of, report.mismatches)) == {
        (table.topic, victim, Fault.MISSING),
        ("bank.b", "p", Fault.MISSING),
        ("bank.a", "q", Fault.TOO_MANY),
        ("bank.a", "p", Fault.OTHER_CHANGES),
        ("bank.b", None, Fault.NOT_ANNOUNCED),
        (sized[0].topic, size_of, Fault.OTHER_VALUES),
        (timed[0].topic, time_of, Fault.ALTERED),
        ("whole", Fault.MISSING),
        (0, Fault.OUT_OF_ORDER),
        (1, Fault.NOT_DENSE),
    }
    assert not report.is_proved
    assert report.mismatches_not_listed == 0
    assert report.stream_partitions.counts[Verdict.MISMATCHED] == 5
    (missing,) = [one for one in report.mismatches if name_of(one)[1] == victim]
    mods = sum(topic is table for topic, _ in stream.sent[victim])
    assert (missing.expected["mods"], missing.found["mods"]) == (mods, mods - 1)


def test_what_began_before_the_output_was_complete_is_not_judged(stream):
    stream.change_manifest(1, complete_from_us=100)
    stream.alter("a", lambda rows: [row for row in rows if row["release"] > 0])
    stream.change_manifest(0)
    shutil.rmtree(stream.path("old"))
    report = stream.audit()
    assert report.stream_partitions.counts == {
        Verdict.PROVED: 1,  # q
        Verdict.BEGUN_BEFORE: len(MANY) + 4,
        Verdict.OPEN: 2,
        Verdict.NOT_RELEASED: 1,
    }
    assert report.transactions.counts.keys() == {Verdict.PROVED}
    assert report.releases.counts == {Verdict.PROVED: 1}
    # What is not there at all is a fault all the same.
    assert set(map(name_of, report.mismatches)) == {("bank.old", Fault.NO_TABLE)}


def test_what_cannot_be_audited_is_refused(spark, tmp_path):
    made = AuditedStream(spark, tmp_path / "out")
    with pytest.raises(ConfigError, match="no release manifest"):
        made.audit()
    made.write()
    made.records = [(record(started())[0], bytearray(frame(2, b"torn")))]
    with pytest.raises(UnreachableError, match="did not finish"):
        made.audit()
    for name in made.topics:
        shutil.rmtree(made.path(name))
    with pytest.raises(ConfigError, match="no changelog"):
        made.audit()


@pytest.mark.parametrize(
    ("left_out", "may_lack"),
    [((), False), (("column a",), False), (("column a", "exclude_ttl_deletes"), True)],
)
def test_only_options_of_the_change_stream_leave_changes_out(left_out, may_lack):
    version = TableVersion("mirror/a", 1, left_out=left_out)
    manifest = Manifest(0, "q", 0, 0, 1, 0, {"a": {"mirror": version}})
    assert auditing._leaves_out(manifest, ()) == may_lack


@pytest.mark.parametrize(
    ("filters", "may_lack"),
    [
        (("exclude_delete=true",), True),
        (("producer.mod_types=insert",), True),
        (("producer.tombstones=true",), False),
        (("producer.tombstones=true", "producer.tables=A"), True),
        (("producer.topic_template={prefix}-{table}",), False),
        (("producer.topic_template={prefix}-{table}", "producer.tables=A"), True),
    ],
)
def test_only_what_leaves_changes_out_excuses_a_transaction(filters, may_lack):
    assert auditing._leaves_out(SimpleNamespace(tables={}), filters) == may_lack


@pytest.mark.parametrize(
    ("state", "through_us"),
    [
        (None, 40),
        (State(prefix="bank", query_id="q", watermark_us=90, next_release=4), 90),
        (State(prefix="bank", query_id="q", watermark_us=30, next_release=3), 40),
        # The manifest is older than what the state says, or of another query.
        (State(prefix="bank", query_id="q", watermark_us=90, next_release=5), 40),
        (State(prefix="bank", query_id="other", watermark_us=90, next_release=4), 40),
    ],
)
def test_a_watermark_above_the_newest_release_counts_if_nothing_was_released_up_to_it(
    state, through_us
):
    manifest = Manifest(3, "q", 0, 30, 40, 0, {})
    assert auditing.released_through_us(manifest, state) == through_us


def test_a_stream_whose_data_topics_have_other_names_is_not_audited(spark, tmp_path):
    made = AuditedStream(spark, tmp_path / "out")
    made.send("p", "a", 10)
    made.write()
    made.records = [record(started(filters=("producer.topic_template={prefix}-{table}",)))]
    with pytest.raises(ConfigError, match="topic_template: the stream was begun with"):
        made.audit()
