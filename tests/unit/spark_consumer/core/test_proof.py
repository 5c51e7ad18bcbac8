"""Reports of an audit: what is a proof, and what is no proof."""

from __future__ import annotations

from dataclasses import replace

from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.core.proof import (
    AuditReport,
    Fault,
    Findings,
    Mismatch,
    Verdict,
    html_table,
    readable,
)

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
    assert "<caption>proved</caption>" in found._repr_html_()


def test_a_fault_of_any_comparison_is_no_proof_and_is_counted_if_it_is_not_listed():
    one = Mismatch("release", {"release": 1}, Fault.NOT_DENSE, {"rows": 2}, {"found": 1})
    text = "ordinals are not 0, 1, 2, …"
    listed = {"what": "release", "release": 1, "fault": text}
    for name in ("tables", "stream_partitions", "transactions", "releases"):
        found = report(**{name: Findings({Verdict.MISMATCHED: 3}, (one,), 3)})
        assert not found.is_proved
        content = found.content()
        assert content["mismatches_not_listed"] == 2
        assert content["mismatches"] == [listed | {"expected": {"rows": 2}, "found": {"found": 1}}]
    shown = found._repr_html_()
    assert "<caption>NOT proved" in shown
    assert f"what: release, release: 1, fault: {text}" in shown


GAP = PartitionGap("t", 1_000_000, 2_000_000, "ops", 3_000_000)


def test_people_read_times_and_words_in_the_place_of_microseconds_and_none():
    one = Mismatch("release", {"release": 0}, Fault.NO_TABLE, {"after_us": -1}, {"first": None})
    wrong = Findings({Verdict.MISMATCHED: 1}, (one,), 1)
    found = report(releases=wrong, gaps=(GAP,))
    figures = found.readable_figures
    assert figures["through"] == "1970-01-01T00:00:00.000040Z"
    assert figures["complete_from"] == "the beginning of the stream"
    assert figures["gaps"] == [
        {
            "token": "t",
            "from": "1970-01-01T00:00:01Z",
            "until": "1970-01-01T00:00:02Z",
            "accepted_by": "ops",
            "accepted": "1970-01-01T00:00:03Z",
        }
    ]
    begun = replace(found, complete_from_us=5).readable_figures["complete_from"]
    assert begun == "1970-01-01T00:00:00.000005Z"
    assert readable(one.content())["expected"] == {"after": "none"}
    assert readable(one.content())["found"] == {"first": "none"}
    for absent in ("None", "_us"):
        assert absent not in found._repr_html_()
    assert found.content()["through_us"] == 40


def test_a_table_has_its_head_its_rows_and_its_title():
    assert html_table(("figure", "value"), [("lag_s", 1.26), ("gaps", [])], title="<a>") == (
        "<table><caption>&lt;a&gt;</caption>"
        "<thead><tr><th>figure</th><th>value</th></tr></thead>"
        "<tbody><tr><td>lag_s</td><td>1.3</td></tr><tr><td>gaps</td><td>none</td></tr></tbody>"
        "</table>"
    )


def test_what_is_in_a_value_is_shown_line_by_line_and_never_taken_for_markup():
    cells = [(None, {"<b>": ["x&y", 2], "none": {}}, ("<i>",), 0)]

    assert html_table((), cells).split("<tbody>")[1] == (
        "<tr><td>-</td><td>&lt;b&gt;: x&amp;y<br>2<br>none: none</td><td>&lt;i&gt;</td><td>0</td>"
        "</tr></tbody></table>"
    )
