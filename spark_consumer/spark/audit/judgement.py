"""Comparisons of an audit: joins in the executors; only counts and first mismatches come here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.batch.transaction_sums import is_in_gap, is_whole
from tidegate.spark_consumer.core.proof import Fault, Findings, Mismatch, Verdict
from tidegate.spark_consumer.core.transactions import TransactionCount
from tidegate.spark_consumer.sinks.sql import free
from tidegate.spark_consumer.spark.audit.rows import sums_by_origin

if TYPE_CHECKING:
    from tidegate.spark_consumer.spark.audit.markers import Markers


LISTED_MAX = 100
"""Mismatches of each kind that are listed; all are counted."""

_PUT_BACK = "put back"


@dataclass(frozen=True, slots=True)
class AuditScope:
    """The parts of an output that are audited."""

    begin_us: int
    """Changes up to this time may be missing."""
    through_us: int
    """Everything up to this time is released."""
    may_lack: bool
    """Whether changes may be absent on purpose."""
    gaps: tuple[PartitionGap, ...] = ()
    """Accepted gaps: transactions within a gap may lack records."""
    is_small: bool = False
    """Whether there are few changes."""


@contextmanager
def kept(frame: DataFrame, *, is_small: bool) -> Iterator[DataFrame]:
    """Keep a frame within a block: a topic that is read again may have more records.

    A small one is computed at once, and its plan has one node: with few changes, Spark needs more
    time to compare and optimize plans than to run them.
    """
    if is_small:
        checkpointed = frame.localCheckpoint(eager=True)
        try:
            yield checkpointed
        finally:
            free(checkpointed)
        return
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()


def judge_origins(
    markers: Markers, rows: DataFrame, scope: AuditScope
) -> tuple[Findings, Mapping[str, int]]:
    """Compare the figures of each origin and topic; also return how many lacked which figure."""
    stated = markers.origins.withColumn("state", _state(scope))
    keep = partial(kept, is_small=scope.is_small)
    with keep(stated) as origins, keep(_pairs(markers.totals, rows, origins)) as pairs:
        is_proved = (F.col("state") == Verdict.PROVED.value) & F.col("fault").isNull()
        lacks = {
            "checksum": ~F.col("has_checksum"),
            "value_bytes": F.col("found").isNotNull() & F.col("found.value_bytes").isNull(),
        }
        counted = pairs.agg(
            F.count_if("is_bad").alias("faults"),
            *(F.count_if(is_proved & lack).alias(name) for name, lack in lacks.items()),
        ).collect()[0]
        listed = _listed(pairs.where("is_bad"), ["topic", "origin"]) if counted["faults"] else []
        findings = Findings(
            _verdicts(origins, pairs),
            tuple(map(_mismatched_pair, listed)),
            counted["faults"],
        )
    return findings, {name: counted[name] for name in lacks}


def _pairs(totals: DataFrame, rows: DataFrame, origins: DataFrame) -> DataFrame:
    """Return each origin and topic with both figures and its `fault`."""
    expected = totals.select("origin", "topic", F.struct("*").alias("expected"))
    summed = sums_by_origin(rows).select("origin", "topic", F.struct("*").alias("found"))
    pairs = expected.join(summed, ["origin", "topic"], "full").join(origins, "origin", "left")
    mods = {f"{name}_mods": F.coalesce(f"{name}.mods", F.lit(0)) for name in ("expected", "found")}
    is_bad = F.coalesce(F.col("fault") != _PUT_BACK, F.lit(False))  # noqa: FBT003 - a literal
    judged = pairs.withColumns(mods).withColumn("fault", _fault_of_pair())
    return judged.withColumn("is_bad", is_bad)


def _verdicts(origins: DataFrame, pairs: DataFrame) -> Mapping[Verdict, int]:
    """Count stream partitions by the verdict on their origin."""
    of_origin = pairs.groupBy("origin").agg(
        F.bool_or("is_bad").alias("is_bad"),
        F.bool_or(F.col("fault") == _PUT_BACK).alias("is_put_back"),
    )
    verdict = (
        F.when(F.col("is_bad"), Verdict.MISMATCHED.value)
        .when(F.col("is_put_back"), Verdict.LEFT_OUT.value)
        .otherwise(F.col("state"))
    )
    joined = origins.join(of_origin, "origin", "left").withColumn("verdict", verdict)
    counted = joined.groupBy("verdict").agg(F.sum("tokens").alias("number")).collect()
    return {Verdict(row["verdict"]): row["number"] for row in counted}


def _state(scope: AuditScope) -> Column:
    """Return the verdict on an origin without contradictions."""
    return (
        F.when(F.col("open") > 0, Verdict.OPEN.value)
        .when(F.col("end_us") > scope.through_us, Verdict.NOT_RELEASED.value)
        .when(F.col("start_us") <= scope.begin_us, Verdict.BEGUN_BEFORE.value)
        .otherwise(Verdict.PROVED.value)
    )


def _fault_of_pair() -> Column:
    """Return the fault, `_PUT_BACK` where changes may have been put back, or null."""
    expected, released = F.col("expected_mods"), F.col("found_mods")
    # A change that was put back is not in the totals, and its row does not say that it was.
    most = expected + F.col("parked")
    is_judged = F.col("state") == Verdict.PROVED.value
    other_changes = F.col("has_checksum") & (F.col("expected.checksum") != F.col("found.checksum"))
    other_values = F.col("expected.value_bytes") != F.col("found.value_bytes")
    return (
        F.when(F.col("state").isNull(), Fault.NOT_ANNOUNCED.value)
        .when(is_judged & (released < expected), Fault.MISSING.value)
        .when(is_judged & (released > most), Fault.TOO_MANY.value)
        .when(is_judged & (released == expected) & other_changes, Fault.OTHER_CHANGES.value)
        .when(F.col("found.altered") > 0, Fault.ALTERED.value)
        .when(is_judged & (released > expected), _PUT_BACK)
        .when(is_judged & other_values, Fault.OTHER_VALUES.value)
    )


def _mismatched_pair(row: Row) -> Mismatch:
    subject = {"topic": row["topic"], "origin": row["origin"], "token": row["token"]}
    return Mismatch(
        "stream partition",
        subject,
        Fault(row["fault"]),
        expected=_figures(row["expected"]),
        found=_figures(row["found"]),
    )


def _figures(row: Row | None) -> dict[str, Any]:
    if row is None:
        return {"mods": 0, "value_bytes": 0, "checksum": "0" * 16}
    names = ("mods", "value_bytes", "checksum", "altered")
    return {name: row[name] for name in names if name in row}


def judge_transactions(sums: DataFrame, scope: AuditScope) -> Findings:
    """Compare the records of each transaction with the number that they state."""
    verdict = (
        F.when(F.col("commit_us") <= scope.begin_us, Verdict.BEGUN_BEFORE.value)
        .when(is_whole(), Verdict.PROVED.value)
        .when((F.col("found") < F.col("most")) & is_in_gap(scope.gaps), Verdict.IN_GAP.value)
        .when((F.col("found") < F.col("most")) & F.lit(scope.may_lack), Verdict.LEFT_OUT.value)
        .otherwise(Verdict.MISMATCHED.value)
    )

    def mismatch(row: Row) -> Mismatch:
        return TransactionCount(
            row["commit_us"],
            row["server_transaction_id"],
            found=row["found"],
            least=row["least"] or 0,
            most=row["most"] or 0,
        ).mismatch()

    return _findings(
        sums.withColumn("verdict", verdict), ["commit_us", "server_transaction_id"], mismatch
    )


def judge_releases(
    sums: DataFrame, manifests: DataFrame, *, is_small: bool
) -> tuple[Findings, int]:
    """Compare each release with its manifest; also return how many changes there are."""
    joined = sums.join(manifests, "release", "full").withColumn(
        "found", F.coalesce("found", F.lit(0))
    )
    is_outside = (F.col("first_us") <= F.col("after_us")) | (F.col("last_us") > F.col("through_us"))
    fault = (
        F.when(F.col("not_dense") > 0, Fault.NOT_DENSE.value)
        .when(F.col("out_of_order") > 0, Fault.OUT_OF_ORDER.value)
        .when(F.col("rows") != F.col("found"), Fault.OTHER_COUNT.value)
        .when(is_outside, Fault.OUT_OF_BOUNDS.value)
    )
    verdict = (
        F.when(F.col("fault").isNotNull(), Verdict.MISMATCHED.value)
        .when(F.col("rows").isNull(), Verdict.NO_MANIFEST.value)
        .otherwise(Verdict.PROVED.value)
    )

    def mismatch(row: Row) -> Mismatch:
        names = ("found", "not_dense", "out_of_order", "first_us", "last_us")
        return Mismatch(
            "release",
            {"release": row["release"]},
            Fault(row["fault"]),
            expected={name: row[name] for name in ("rows", "after_us", "through_us")},
            found={name: row[name] for name in names},
        )

    faulty = joined.withColumn("fault", fault).withColumn("verdict", verdict)
    with kept(faulty, is_small=is_small) as judged:
        findings = _findings(judged, ["release"], mismatch)
        changes = judged.agg(F.sum("found").alias("changes")).collect()[0]["changes"]
    return findings, changes or 0


def _findings(judged: DataFrame, place: list[str], mismatch: Callable[[Row], Mismatch]) -> Findings:
    """Count rows by their `verdict`, and list the first mismatches in the order of a place."""
    counted = judged.groupBy("verdict").agg(F.count("*").alias("number")).collect()
    counts = {Verdict(row["verdict"]): row["number"] for row in counted}
    bad = judged.where(F.col("verdict") == Verdict.MISMATCHED.value)
    faults = counts.get(Verdict.MISMATCHED, 0)
    listed = _listed(bad, place) if faults else []
    return Findings(counts, tuple(map(mismatch, listed)), faults)


def _listed(bad: DataFrame, place: list[str]) -> list[Row]:
    """Return the first rows in the order of a place."""
    return bad.orderBy(*place).limit(LISTED_MAX).collect()
