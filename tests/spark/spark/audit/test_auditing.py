"""`audit` and `adopt` on real Spark and Delta: what an output proves, and what is damaged."""

import json
import random
import shutil
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.schemas.checksums import CHECKSUM_MODULUS, CHECKSUMS, origin_of, xxhash_64
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.progress import (
    ChecksumKind,
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    PartitionGap,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TopicTotals,
)
from tidegate.schemas.progress_codec import RECORD_SCHEMAS, encode_key, encode_record
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import frame
from tidegate.spark_consumer.batch.transaction_sums import sums_by_transaction
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles, complete_from_us
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.batch_state import OutputProof, State
from tidegate.spark_consumer.core.origin_ledger import fault_of
from tidegate.spark_consumer.core.proof import Fault, Verdict
from tidegate.spark_consumer.core.sums import OriginSum
from tidegate.spark_consumer.sinks.files.parquet_bytes import arrow_schema
from tidegate.spark_consumer.sinks.kinds import changelog_sink
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest
from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.port import TableVersion
from tidegate.spark_consumer.sinks.row_decoding import decode_rows
from tidegate.spark_consumer.sinks.spark_types import change_type
from tidegate.spark_consumer.spark import adopting
from tidegate.spark_consumer.spark.audit import auditing
from tidegate.spark_consumer.spark.audit import judgement as audit_judgement
from tidegate.spark_consumer.spark.audit import markers as audit_markers
from tidegate.spark_consumer.spark.audit import rows as audit_rows
from tidegate.spark_consumer.spark.audit.rows import (
    half_sums,
    halves_of,
    joined_halves,
    read_rows,
    sums_by_origin,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECOND = 1_000_000

_COLUMNS = {1: {"id": "INT64", "a": "STRING(MAX)"}}
_PROGRESS = "offset long, key binary, value binary"
_ROW = [field.split()[0] for field in ROWS_SCHEMA.split(", ")]


class AuditedStream:
    """A stream's output and its progress topic, both made by hand from the same changes."""

    def __init__(self, spark, folder, *, lacks=None):
        """Take an empty folder; `lacks` are the columns that tables of older programs lack."""
        self.spark = spark
        self.folder = Path(folder)
        self.topics = {name: Topic(name, _COLUMNS, ["id"]) for name in ("a", "b", "old")}
        self.lacks = lacks or {}
        self.sent = defaultdict(list)
        self.records = [record(started())]
        self.release = -1

    def send(self, token, table, us, *, mods=1, records=1, transaction=None, **fields):
        """A transaction of one stream partition, with `mods` changes in each of its records."""
        for sequence in range(records):
            for number in range(mods):
                change = Change(
                    "INSERT", {"id": len(self.sent[token])}, {"a": "x" * number}, us=us,
                    transaction=transaction or f"t{us}", sequence=sequence, mod_number=number,
                    token=token, records=records, **fields,
                )  # fmt: skip
                self.sent[token].append((self.topics[table], change))

    def write(self):
        """Release everything of one second, as the gate does."""
        self.release += 1
        after_us, through_us = self.release * SECOND, (self.release + 1) * SECOND
        due = [
            (topic, change)
            for changes in self.sent.values()
            for topic, change in changes
            if after_us < change.us <= through_us
        ]
        due.sort(key=lambda pair: pair[1].order_key)
        tables = {}
        for name, topic in self.topics.items():
            rows = [
                dict(zip(_ROW, topic.row(change, ordinal=ordinal), strict=True))
                for ordinal, (of, change) in enumerate(due)
                if of is topic
            ]
            schemas = topic.topic_schemas()
            decoded = decode_rows(rows, schemas, release=self.release)
            found = pa.Table.from_pylist(decoded, schema=_arrow(schemas))
            found = found.drop_columns(list(self.lacks.get(name, ())))
            deltalake.write_deltalake(self.path(name), found, mode="append")
            tables[name] = {"changelog": TableVersion(f"changelog/{name}", self.release)}
        bounds = (self.release, "query-1", self.release, after_us, through_us)
        manifest = Manifest(*bounds, len(due), tables)
        self._manifest(self.release).parent.mkdir(exist_ok=True)
        self._manifest(self.release).write_text(json.dumps(manifest.content()))

    def path(self, name):
        return str(self.folder / "changelog" / name)

    def alter(self, name, change):
        """Replace the rows of a table by what a function makes of them."""
        table = deltalake.DeltaTable(self.path(name)).to_pyarrow_table()
        altered = pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema)
        deltalake.write_deltalake(self.path(name), altered, mode="overwrite")

    def _manifest(self, release):
        return self.folder / "_releases" / f"{release:012d}.json"

    def change_manifest(self, release, **changed):
        """Change a manifest; with nothing to change, delete it."""
        file = self._manifest(release)
        content = json.loads(file.read_text()) | changed
        file.unlink()
        if changed:
            file.write_text(json.dumps(content))

    def announce(self, *tokens, start_us=0, version=2):
        for token in tokens:
            child = ChildPartition(token, (), start_us * 1_000 + 7)
            self.records.append(record(PartitionAnnounced(child, ""), version=version))

    def finish(self, token, *, end_us, start_us=0, version=2, chunks=1, **fields):
        """Write the marker that the producer would: the totals of everything that was sent."""
        kind = ChecksumKind.XXHASH_64 if version == 2 else ChecksumKind.BLAKE2B_64
        totals = defaultdict(lambda: [0, 0, 0])
        for topic, change in self.sent[token]:
            summed = totals[topic.topic]
            summed[0] += 1
            summed[1] += len(topic.framed(change)[1])
            summed[2] = (summed[2] + CHECKSUMS[kind](change.order_key)) % CHECKSUM_MODULUS
        sums = [TopicTotals(topic, 1, *figures) for topic, figures in sorted(totals.items())]
        for chunk in range(chunks):
            share = tuple(sums) if chunks == 1 else tuple(sums[chunk - 1 : chunk] if chunk else ())
            body = PartitionFinished(
                token, (), start_us * 1_000 + 7, end_us * 1_000, (), share, chunk=chunk,
                chunks=chunks, checksums=kind, **fields,
            )  # fmt: skip
            self.records.append(record(body, version=version))

    def accept(self, token, from_us, until_us):
        """Write the record of an accepted gap."""
        gap = PartitionGap(token, from_us, until_us, "ops", until_us)
        self.records.append(record(gap, version=3))
        return gap

    def progress(self):
        rows = [(offset, *one) for offset, one in enumerate(self.records)]
        return self.spark.createDataFrame(rows, _PROGRESS)

    def audit(self, *, has_dead_letters=False):
        return auditing.audit_output(
            self.spark,
            str(self.folder),
            checkpoint=f"{self.folder}/check",
            names=TopicNames("bank"),
            progress=self.progress,
            schema_of=RECORD_SCHEMAS.__getitem__,
            has_dead_letters=has_dead_letters,
            step=lambda _: None,
        )


def _arrow(schemas):
    return arrow_schema(change_type(schemas))


def started(**fields):
    common = ("projects/p/instances/i/databases/d/changeStreams/s", "GOOGLE_STANDARD_SQL", 0, None)
    return StreamStarted(*common, "bank-fleet", 2, "id", (), (), **fields)


def record(body, *, epoch="e", version=2):
    """Key and value of a progress record; a version is the id of its schema here."""
    key = frame(50 + version, encode_key(body, version))
    value = frame(version, encode_record(ProgressRecord(epoch, "w", body, version)))
    return bytearray(key), bytearray(value)


def origin_number(token):
    return int.from_bytes(origin_of(token), "big", signed=True)


def name_of(mismatch):
    """What a mismatch names: (topic and token), a transaction, a release or a topic."""
    subject = mismatch.subject
    if mismatch.what == "stream partition":
        return subject["topic"], subject["token"], mismatch.fault
    names = {"transaction": "server_transaction_id", "release": "release", "table": "topic"}
    return subject[names[mismatch.what]], mismatch.fault


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


@pytest.mark.deep
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
    lacking = {mismatch.subject["server_transaction_id"] for mismatch in report.mismatches}
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
    (missing,) = [mismatch for mismatch in report.mismatches if name_of(mismatch)[1] == victim]
    mods = sum(topic is table for topic, _ in stream.sent[victim])
    assert (missing.expected["mods"], missing.found["mods"]) == (mods, mods - 1)


@pytest.mark.deep
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


def test_only_what_leaves_changes_out_excuses_a_transaction():
    named = "producer.topic_template={prefix}-{table}"
    for filters, left_out, may_lack in (
        ((), (), False),
        ((), ("column a",), False),
        ((), ("column a", "exclude_ttl_deletes"), True),
        (("exclude_delete=true",), (), True),
        (("producer.mod_types=insert",), (), True),
        (("producer.tombstones=true",), (), False),
        (("producer.tombstones=true", "producer.tables=A"), (), True),
        ((named,), (), False),
        ((named, "producer.tables=A"), (), True),
    ):
        version = TableVersion("mirror/a", 1, left_out=left_out)
        manifest = Manifest(0, "q", 0, 0, 1, 0, {"a": {"mirror": version}})
        assert auditing._leaves_out(manifest, filters) == may_lack, (filters, left_out)


def test_a_watermark_above_the_newest_release_counts_if_nothing_was_released_up_to_it():
    manifest = Manifest(3, "q", 0, 30, 40, 0, {})
    assert auditing.released_through_us(manifest, None) == 40
    for query_id, watermark_us, next_release, through_us in (
        ("q", 90, 4, 90),
        ("q", 30, 3, 40),
        ("q", 90, 5, 40),  # the manifest is older than what the state says
        ("other", 90, 4, 40),
    ):
        state = State(
            prefix="bank", query_id=query_id, watermark_us=watermark_us, next_release=next_release
        )
        assert auditing.released_through_us(manifest, state) == through_us


def test_a_stream_whose_data_topics_have_other_names_is_not_audited(spark, tmp_path):
    made = AuditedStream(spark, tmp_path / "out")
    made.send("p", "a", 10)
    made.write()
    made.records = [record(started(filters=("producer.topic_template={prefix}-{table}",)))]
    with pytest.raises(ConfigError, match="topic_template: the stream was begun with"):
        made.audit()


# ---------------------------------------------------------------- markers


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


# ---------------------------------------------------------------- rows and sums

ROW_COLUMNS = (
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
        frame = spark.createDataFrame(content, ROW_COLUMNS)
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


def test_sums_wrap_at_2_to_the_64(spark):
    chance = random.Random(3)
    numbers = {
        "all ones": [-1, -1],
        "carry": [0xFFFFFFFF, 1],
        "zero": [-(1 << 63), -(1 << 63)],
        "one": [1],
        "many": [chance.randrange(-(1 << 63), 1 << 63) for _ in range(2_000)],
    }
    rows = [(name, number) for name, of_name in numbers.items() for number in of_name]
    frame = spark.createDataFrame(rows, "name string, number long")
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"

    summed = frame.withColumns(halves_of("number")).groupBy("name").agg(*half_sums())

    found = {
        row["name"]: row["sum"]
        for row in summed.select("name", joined_halves().alias("sum")).collect()
    }
    assert found == {name: f"{sum(of_name) % (1 << 64):016x}" for name, of_name in numbers.items()}


# ---------------------------------------------------------------- judgement


def test_a_transaction_is_judged_by_the_number_that_its_records_state(spark):
    # Commit time, transaction, and of each record: its sequence and the number that it states.
    sent = {
        (50, "early"): {"1": 2},
        (200, "whole"): {"1": 2, "2": 2},
        (201, "short"): {"1": 3, "2": 3},
        (202, "long"): {"1": 1, "2": 1},
        (203, "torn"): {"1": 2, "2": 1},
    }
    rows = [
        (*place, sequence, number)
        for place, records in sent.items()
        for sequence, number in records.items()
        for _ in range(2)
    ]
    columns = "commit_us long, server_transaction_id string, record_sequence string, records long"
    sums = sums_by_transaction(spark.createDataFrame(rows, columns))
    strict = audit_judgement.judge_transactions(sums, scope(complete_from_us=100, may_lack=False))
    assert strict.counts == {Verdict.BEGUN_BEFORE: 1, Verdict.PROVED: 1, Verdict.MISMATCHED: 3}
    assert [name_of(mismatch) for mismatch in strict.mismatches] == [
        ("short", Fault.MISSING),
        ("long", Fault.TOO_MANY),
        ("torn", Fault.TOO_MANY),
    ]
    lax = audit_judgement.judge_transactions(sums, scope(complete_from_us=100, may_lack=True))
    assert lax.counts[Verdict.LEFT_OUT] == 1
    assert [name_of(mismatch)[0] for mismatch in lax.mismatches] == ["long", "torn"]


def scope(*, complete_from_us=None, may_lack=False):
    return audit_judgement.AuditScope(complete_from_us or -1, 1, may_lack)


def test_a_release_is_judged_by_its_numbers_its_order_and_its_manifest(spark, monkeypatch):
    # Of each release the (ordinal, commit time) of its rows; the manifest's rows and bounds.
    found = {
        0: [(0, 5), (1, 6)],
        1: [(0, 15), (1, 14)],
        2: [(0, 25), (2, 26)],
        3: [(1, 35), (0, 34), (1, 35)],
        4: [(0, 45)],
        5: [(0, 61)],
        7: [(0, 71)],
    }
    manifests = [(n, n * 10, n * 10 + 10, 2 if n < 4 else 2 if n == 4 else 1) for n in range(6)]
    manifests = [*manifests[:3], (3, 30, 40, 3), *manifests[4:], (6, 60, 70, 0)]
    rows = [
        (release, ordinal, us.to_bytes(8, "big"), us)
        for release, content in found.items()
        for ordinal, us in content
    ]
    columns = "release long, ordinal long, order_key binary, commit_us long"
    sums = audit_rows.sums_by_release(spark.createDataFrame(rows, columns))
    stated = spark.createDataFrame(manifests, auditing._MANIFEST_COLUMNS)
    findings, changes = audit_judgement.judge_releases(sums, stated, is_small=True)
    assert changes == len(rows)
    assert findings.counts == {Verdict.PROVED: 2, Verdict.NO_MANIFEST: 1, Verdict.MISMATCHED: 5}
    assert [name_of(mismatch) for mismatch in findings.mismatches] == [
        (1, Fault.OUT_OF_ORDER),
        (2, Fault.NOT_DENSE),
        (3, Fault.NOT_DENSE),
        (4, Fault.OTHER_COUNT),
        (5, Fault.OUT_OF_BOUNDS),
    ]
    monkeypatch.setattr(audit_judgement, "LISTED_MAX", 2)
    findings, _ = audit_judgement.judge_releases(sums, stated, is_small=False)
    assert (len(findings.mismatches), findings.faults) == (2, 5)


EXPECTED = OriginSum(2, 20, 7)
CASES = [
    (OriginSum(mods, value_bytes, checksum), parked, has_checksum)
    for mods in range(5)
    for value_bytes in (20, 21)
    for checksum in (7, 8)
    for parked in (0, 1)
    for has_checksum in (True, False)
]


def test_a_run_judges_a_stream_partition_as_an_audit_does(spark):
    """The rule is stated twice: for rows of Spark, and for the sums of a gate."""
    pairs = [
        (n, 2, found.mods, "proved", parked, has_checksum, stated(EXPECTED), stated(found))
        for n, (found, parked, has_checksum) in enumerate(CASES)
    ]
    sums = "struct<value_bytes: long, checksum: string, altered: long>"
    columns = (
        "n int, expected_mods long, found_mods long, state string, parked long, "
        f"has_checksum boolean, expected {sums}, found {sums}"
    )
    judged = spark.createDataFrame(pairs, columns).select(
        "n", audit_judgement._fault_of_pair().alias("fault")
    )
    for row in judged.collect():
        found, parked, has_checksum = CASES[row["n"]]
        fault = fault_of(EXPECTED, found, parked=parked, has_checksum=has_checksum)
        of_audit = None if row["fault"] == audit_judgement._PUT_BACK else row["fault"]
        assert of_audit == fault, CASES[row["n"]]


def stated(one):
    content = one.content()
    return content["value_bytes"], content["checksum"], 0


# ---------------------------------------------------------------- adopt


@pytest.fixture
def config(kit, tmp_path):
    return ConsumerConfig.load(
        None,
        bootstrap_servers="127.0.0.1:1",
        registry_url="http://127.0.0.1:1",
        prefix="bank",
        output=kit.output,
        checkpoint=str(tmp_path / "check"),
    )


def test_an_empty_checkpoint_goes_on_where_tables_and_manifests_end(kit, config):
    topic = kit.Topic("t", {1: {"id": "INT64"}}, ["id"])
    output = Storage(kit.spark, config.output)
    output.take()
    sinks = [sink(kit.spark, kit.output) for sink in (changelog_sink, DeltaMirrorSink)]
    for sink in sinks:
        sink.open(query_id="query-1", release_max=10)
    with pytest.raises(ConfigError, match="no release manifest"):
        adopting.require_proof(kit.spark, config)
    for number in range(2):
        change = kit.Change("INSERT", {"id": number}, {}, us=number * 1_000_000 + 1)
        release = kit.release(number, [(topic, change)])
        written = {sink.name: sink.write(release)["t"] for sink in sinks[: 2 - number]}
        if number == 0:
            bounds = (release.number, "query-1", 0, release.after_us, release.through_us)
            write_manifest(output, Manifest(*bounds, 1, {"t": written}, complete_from_us=7))
    expected = OutputProof("query-1", 0, 1_000_000, ("changelog", "mirror"), 2_000_000, 7)
    steps = []
    proof = adopting.require_proof(kit.spark, config, step=steps.append)
    assert proof == expected
    assert steps == ["manifests", "log 1 of 2: changelog/t", "log 2 of 2: mirror/t"]
    assert adopting.is_unused(kit.spark, config)
    assert adopting.adopt_output(kit.spark, config, proof)["begun_through_us"] == 2_000_000
    gate = Storage(kit.spark, f"{config.checkpoint}/gate")
    files = GateFiles(gate)
    assert files.require_identity(TopicNames("bank"), output=output.root).query_id == "query-1"
    assert complete_from_us(gate) == 7
    state = files.adopted()
    assert (state.watermark_us, state.adopts_through_us) == (1_000_000, 2_000_000)
    assert files.release_max() == 1
    assert not adopting.is_unused(kit.spark, config)
    steps.clear()
    assert adopting.reuse_checkpoint(kit.spark, config, step=steps.append) == []
    assert steps == ["log 1 of 2: changelog/t", "log 2 of 2: mirror/t"]


def test_half_a_checkpoint_is_refused(kit, config):
    spark_part = Storage(kit.spark, f"{config.checkpoint}/spark")
    spark_part.take()
    spark_part.write_json("offsets/0", {})
    with pytest.raises(ConfigError, match="neither empty nor whole"):
        adopting.is_unused(kit.spark, config)
