"""What the judge finds in changelogs of events, one fault at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tidegate.local_stack.judge.delta import ManifestTable, ReleaseManifest, changelog_table
from tidegate.local_stack.judge.events import (
    EventFigures,
    SourceEvent,
    compare_events,
    event_rows,
)

STRUCT = pa.struct(
    [
        ("note", pa.string()), ("_datastream_order", pa.string()), ("_datastream_uuid", pa.string())
    ]
)  # fmt: skip
SOURCE = {
    "transaction_tag": "", "number_of_records_in_transaction": 1,
    "number_of_partitions_in_transaction": 1, "commit_timestamp": 0, "server_transaction_id": "",
    "record_sequence": "0-0", "mod_number": 0,
}  # fmt: skip
TABLE = ManifestTable("changelog/t", 0, None, None)
EVENTS = {
    one.uuid: one
    for one in (
        SourceEvent("t", "r", 1, None, is_deleted=False, row={"id": 1, "note": "r"}, source_us=5),
        SourceEvent("t", "a", 1, 0, is_deleted=False, row={"id": 1, "note": "a"}, source_us=6),
        SourceEvent("t", "b", 2, 1, is_deleted=False, row={"id": 2, "note": "b"}, source_us=7),
        SourceEvent("t", "c", 1, 2, is_deleted=True, row={"id": 1, "note": "c"}, source_us=8),
    )
}
EVENTS = {uuid: one.written(9, is_in_time=True) for uuid, one in EVENTS.items()}
ORDER = {"r": "00", "a": "010", "b": "011", "c": "012"}


def row(uuid: str, *, release: int, ordinal: int, at_us: int, **changed: Any) -> dict[str, Any]:
    event = EVENTS.get(uuid, EVENTS["b"])
    order = changed.pop("order", ORDER.get(uuid, "09"))
    values = {
        "note": event.row["note"], "_datastream_order": order, "_datastream_uuid": uuid,
    }  # fmt: skip
    deleted = event.is_deleted
    return {
        "release": release, "ordinal": ordinal, "commit_timestamp": at_us,
        "server_transaction_id": order, "record_sequence": "0-0", "mod_number": 0,
        "mod_type": "DELETE" if deleted else "INSERT", "key": {"id": event.key},
        "new_values": None if deleted else values, "old_values": values if deleted else None,
        "new_columns": None, "old_columns": None, "origin": 1, "source": SOURCE, **changed,
    }  # fmt: skip


RIGHT = [
    row("r", release=0, ordinal=0, at_us=10),
    row("a", release=0, ordinal=1, at_us=10),
    row("b", release=1, ordinal=0, at_us=20),
    row("c", release=1, ordinal=1, at_us=21),
]


def judge(rows: list[dict[str, Any]], events: dict[str, SourceEvent] | None = None) -> EventFigures:
    schema = pa.schema(
        [
            *((name, pa.int64()) for name in ("release", "ordinal", "commit_timestamp")),
            ("server_transaction_id", pa.string()), ("record_sequence", pa.string()),
            ("mod_number", pa.int64()), ("mod_type", pa.string()),
            ("key", pa.struct([("id", pa.int64())])), ("new_values", STRUCT),
            ("old_values", STRUCT), ("new_columns", pa.list_(pa.string())),
            ("old_columns", pa.list_(pa.string())), ("origin", pa.int64()),
            ("source", pa.struct([(n, pa.scalar(v).type) for n, v in SOURCE.items()])),
        ]
    )  # fmt: skip
    changelog = changelog_table("t", [("f", pa.Table.from_pylist(rows, schema=schema))])
    counts = {number: sum(one["release"] == number for one in rows) for number in (0, 1)}
    return compare_events(
        EVENTS if events is None else events,
        rows=event_rows([changelog], key="id"),
        changelogs=[changelog],
        manifests=[
            ReleaseManifest(0, 0, 15, counts[0], {"t": TABLE}),
            ReleaseManifest(1, 15, 30, counts[1], {"t": TABLE}),
        ],
    )


def wrong(figures: EventFigures) -> dict[str, int]:
    names = (
        "missing", "duplicates", "invented", "unlike_source", "histories_unlike_source",
        "in_time_out_of_order", "behind_newer", "out_of_order", "ordinals_broken",
        "outside_release",
    )  # fmt: skip
    return {name: getattr(figures, name) for name in names if getattr(figures, name)}


def test_a_right_changelog():
    figures = judge(RIGHT)

    assert (figures.events_in_changelog, figures.keys) == (4, 2)
    assert wrong(figures) == {}
    assert figures.examples == ()


def test_a_missing_event():
    figures = judge([*RIGHT[:2], row("c", release=1, ordinal=0, at_us=21)])

    assert wrong(figures) == {"missing": 1, "histories_unlike_source": 1}
    assert "missing: t, event b" in figures.examples


def test_an_event_that_came_twice():
    figures = judge([*RIGHT, row("c", release=1, ordinal=2, at_us=22)])

    assert wrong(figures) == {"duplicates": 1}
    assert "duplicate: event c" in figures.examples


def test_an_event_that_no_file_has():
    figures = judge([*RIGHT[:2], row("x", release=1, ordinal=0, at_us=20), *RIGHT[2:]])

    assert wrong(figures)["invented"] == 1


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"mod_type": "UPDATE"}, "mod_type is UPDATE"),
        ({"key": {"id": 3}}, "the row is"),
    ],
)
def test_an_event_that_differs(changed: dict[str, Any], text: str):
    figures = judge([*RIGHT[:2], row("b", release=1, ordinal=0, at_us=20, **changed), RIGHT[3]])

    assert figures.unlike_source == 1
    assert any(text in one for one in figures.examples)


def test_an_event_of_another_table():
    events = {**EVENTS, "b": replace(EVENTS["b"], table="u")}

    assert judge(RIGHT, events).unlike_source == 1


def test_an_order_that_is_not_the_sources():
    figures = judge([*RIGHT[:3], row("c", release=1, ordinal=1, at_us=21, order="005")])

    assert figures.histories_unlike_source == 1
    assert "history: t, key 1: 3 events of 3" in figures.examples


SWAPPED = [
    row("r", release=0, ordinal=0, at_us=10),
    row("c", release=0, ordinal=1, at_us=11),
    row("a", release=1, ordinal=0, at_us=20),
    row("b", release=1, ordinal=1, at_us=21),
]


def test_events_in_time_have_to_stand_in_order():
    figures = judge(SWAPPED)

    assert wrong(figures) == {"in_time_out_of_order": 1}
    assert "in time, but out of order: t: change 0 stands behind change 2" in figures.examples


def test_late_events_may_stand_behind_newer_ones():
    events = {**EVENTS, "a": replace(EVENTS["a"], is_in_time=False)}
    events["b"] = replace(EVENTS["b"], is_in_time=False)

    assert wrong(judge(SWAPPED, events)) == {"behind_newer": 1}


def test_an_event_in_time_may_not_stand_behind_a_late_newer_one():
    events = {**EVENTS, "c": replace(EVENTS["c"], is_in_time=False)}
    figures = judge(SWAPPED, events)

    assert wrong(figures) == {"in_time_out_of_order": 1}
    assert any(
        one.endswith("change 0 stands behind change 2 of its row") for one in figures.examples
    )


def test_places_ordinals_and_releases_are_judged_as_ever():
    broken = [
        *RIGHT[:2],
        row("b", release=1, ordinal=0, at_us=29),
        row("c", release=1, ordinal=2, at_us=21),
    ]
    figures = judge(broken)

    assert (figures.out_of_order, figures.ordinals_broken) == (2, 1)
    assert judge([*RIGHT[:3], row("c", release=1, ordinal=1, at_us=99)]).outside_release == 1
