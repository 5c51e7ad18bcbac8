"""What an audit reports: nothing that was found is left out of its figures."""

from __future__ import annotations

from tidegate.spark_consumer.core.proof import AuditReport, Fault, Findings, Mismatch, Verdict

NOTHING = Findings({}, (), 0)


def report(**named):
    findings = {"stream_partitions": NOTHING, "transactions": NOTHING, "releases": NOTHING}
    return AuditReport(
        release=3,
        through_us=40,
        complete_from_us=None,
        changes=7,
        late_changes=0,
        **{**findings, "tables": NOTHING, **named},
    )


def test_a_report_without_a_fault_is_proved_whatever_was_not_judged():
    found = report(stream_partitions=Findings({Verdict.OPEN: 2, Verdict.PROVED: 1}, (), 0))
    assert found.is_proved
    content = found.content()
    assert content["proved"] is True
    assert content["stream_partitions"] == {"proved": 1, "mismatched": 0, "open": 2}
    assert content["transactions"] == {"proved": 0, "mismatched": 0}
    assert (content["mismatches"], content["mismatches_not_listed"]) == ([], 0)


def test_a_fault_of_any_comparison_is_no_proof_and_is_counted_if_it_is_not_listed():
    one = Mismatch("release", {"release": 1}, Fault.NOT_DENSE, {"rows": 2}, {"found": 1})
    for name in ("tables", "stream_partitions", "transactions", "releases"):
        found = report(**{name: Findings({Verdict.MISMATCHED: 3}, (one,), 3)})
        assert not found.is_proved
        assert found.content()["mismatches_not_listed"] == 2
        assert found.content()["mismatches"] == [
            {
                "what": "release",
                "release": 1,
                "fault": "ordinals are not 0, 1, 2, …",
                "expected": {"rows": 2},
                "found": {"found": 1},
            }
        ]


def test_a_notebook_shows_whether_it_is_proved_and_what_is_not():
    assert "<caption>proved</caption>" in report()._repr_html_()
    one = Mismatch("release", {"release": 1}, Fault.NOT_DENSE, {"rows": 2}, {"found": 1})

    shown = report(releases=Findings({Verdict.MISMATCHED: 1}, (one,), 1))._repr_html_()

    assert "<caption>NOT proved" in shown
    assert "what: release, release: 1, fault: ordinals are not 0, 1, 2, …" in shown
