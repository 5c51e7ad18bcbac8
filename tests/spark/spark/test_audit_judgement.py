"""Transactions and releases as an audit judges them, from hand-made rows."""

from __future__ import annotations

import pytest

from tests.spark.spark.audited_stream import name_of
from tidegate.spark_consumer.batch.transaction_sums import sums_by_transaction
from tidegate.spark_consumer.core.origin_ledger import fault_of
from tidegate.spark_consumer.core.origin_sums import OriginSum
from tidegate.spark_consumer.core.proof import Fault, Verdict
from tidegate.spark_consumer.spark import audit_judgement, audit_rows, auditing

pytestmark = [pytest.mark.spark, pytest.mark.slow]


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
    assert [name_of(one) for one in strict.mismatches] == [
        ("short", Fault.MISSING),
        ("long", Fault.TOO_MANY),
        ("torn", Fault.TOO_MANY),
    ]
    lax = audit_judgement.judge_transactions(sums, scope(complete_from_us=100, may_lack=True))
    assert lax.counts[Verdict.LEFT_OUT] == 1
    assert [name_of(one)[0] for one in lax.mismatches] == ["long", "torn"]


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
    assert [name_of(one) for one in findings.mismatches] == [
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
