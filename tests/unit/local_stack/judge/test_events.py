"""What the judge finds in changelogs and mirrors of events, and how long each event took."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tidegate.local_stack.judge.delta import (
    Delivery,
    ManifestTable,
    ReleaseManifest,
    TableRows,
    changelog_table,
)
from tidegate.local_stack.judge.events import (
    EventFigures,
    EventMirrorFigures,
    EventRow,
    SourceEvent,
    compare_event_mirrors,
    compare_events,
    event_deliveries,
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


B = {"release": 1, "ordinal": 0, "at_us": 20}


@pytest.mark.parametrize(
    ("rows", "expected", "example"),
    [
        (
            [*RIGHT[:2], row("c", release=1, ordinal=0, at_us=21)],
            {"missing": 1, "histories_unlike_source": 1},
            "missing: t, event b",
        ),
        ([*RIGHT, row("c", release=1, ordinal=2, at_us=22)], {"duplicates": 1}, "event c"),
        ([*RIGHT[:2], row("x", **B), *RIGHT[2:]], {"invented": 1}, ""),
        ([*RIGHT[:2], row("b", **B, mod_type="UPDATE"), RIGHT[3]], {"unlike_source": 1}, "UPDATE"),
        ([*RIGHT[:2], row("b", **B, key={"id": 3}), RIGHT[3]], {"unlike_source": 1}, "the row is"),
        (
            [*RIGHT[:3], row("c", release=1, ordinal=1, at_us=21, order="005")],
            {"histories_unlike_source": 1},
            "history: t, key 1: 3 events of 3",
        ),
    ],
    ids=["missing", "twice", "of no file", "kind", "row", "order"],
)
def test_an_event_that_is_wrong_shows_in_its_figure(
    rows: list[dict[str, Any]], expected: dict[str, int], example: str
):
    figures = judge(rows)
    assert {name: wrong(figures).get(name) for name in expected} == expected
    assert any(example in one for one in (*figures.examples, ""))


def test_an_event_of_another_table():
    events = {**EVENTS, "b": replace(EVENTS["b"], table="u")}
    assert judge(RIGHT, events).unlike_source == 1


SWAPPED = [
    row("r", release=0, ordinal=0, at_us=10),
    row("c", release=0, ordinal=1, at_us=11),
    row("a", release=1, ordinal=0, at_us=20),
    row("b", release=1, ordinal=1, at_us=21),
]


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        ("", {"in_time_out_of_order": 1}),
        ("ab", {"behind_newer": 1}),
        # One in time may not stand behind a late newer one.
        ("c", {"in_time_out_of_order": 1}),
    ],
)
def test_only_late_events_may_stand_behind_newer_ones(late: str, expected: dict[str, int]):
    events = {**EVENTS, **{name: replace(EVENTS[name], is_in_time=False) for name in late}}
    figures = judge(SWAPPED, events)
    assert wrong(figures) == expected
    if "in_time_out_of_order" in expected:
        text = "in time, but out of order: t: change 0 stands behind change 2"
        assert any(example.startswith(text) for example in figures.examples)


def test_places_ordinals_and_releases_are_judged_as_ever():
    broken = [
        *RIGHT[:2],
        row("b", release=1, ordinal=0, at_us=29),
        row("c", release=1, ordinal=2, at_us=21),
    ]
    figures = judge(broken)
    assert (figures.out_of_order, figures.ordinals_broken) == (2, 1)
    assert judge([*RIGHT[:3], row("c", release=1, ordinal=1, at_us=99)]).outside_release == 1


def mirror_event(
    uuid: str, key: int, number: int | None, *, is_deleted: bool = False
) -> SourceEvent:
    return SourceEvent(
        "t", uuid, key, number, is_deleted=is_deleted, row={"id": key, "note": uuid}, source_us=1
    )


MIRROR_EVENTS = {
    one.uuid: one
    for one in (
        mirror_event("r", 1, None), mirror_event("a", 1, 0), mirror_event("b", 2, 1),
        mirror_event("c", 2, 2, is_deleted=True),
        mirror_event("d", 1, 3),
    )
}  # fmt: skip
MIRROR_ORDER = {"r": "00", "a": "010", "b": "011", "c": "012", "d": "013"}
RELEASES = {"r": 0, "d": 0, "b": 0, "a": 1, "c": 1}
ROWS = [
    EventRow(
        "t",
        release,
        0,
        uuid,
        MIRROR_ORDER[uuid],
        MIRROR_EVENTS[uuid].key,
        "INSERT",
        MIRROR_EVENTS[uuid].row,
    )
    for uuid, release in RELEASES.items()
]


def rows_of(*uuids: str) -> TableRows:
    return {
        "id": tuple(MIRROR_EVENTS[uuid].key for uuid in uuids),
        "note": uuids,
        "_datastream_uuid": uuids,
        "_datastream_change_type": tuple(
            "UPDATE-DELETE" if MIRROR_EVENTS[uuid].is_deleted else "INSERT" for uuid in uuids
        ),
    }


def mirror_manifest(number: int, version: int | None, stands_at: int | None) -> ReleaseManifest:
    table = ManifestTable("changelog/t", 0, "mirror/t", version, stands_at)
    return ReleaseManifest(number, number, number + 1, 1, {"t": table})


class Mirrors:
    def __init__(self, *versions: TableRows) -> None:
        self.versions = versions

    def mirror_tables(self) -> list[str]:
        return ["t"] if self.versions else []

    def mirror(self, table: str, *, version: int | None = None) -> TableRows:
        assert table == "t"
        return self.versions[-1 if version is None else version]


def judge_mirrors(mirrors: Mirrors, *manifests: ReleaseManifest) -> EventMirrorFigures:
    final: dict[str, Any] = {"t": {1: {"id": 1, "note": "d"}}}
    return compare_event_mirrors(
        manifests, mirrors=mirrors, rows=ROWS, events=MIRROR_EVENTS, tables=final, key="id"
    )


MIRROR_RIGHT = Mirrors({}, rows_of("d", "b"), rows_of("c", "d"))
MANIFESTS = (mirror_manifest(0, 1, 0), mirror_manifest(1, 2, 1))


def test_right_mirrors():
    figures = judge_mirrors(
        MIRROR_RIGHT, *MANIFESTS, mirror_manifest(2, 2, 1), mirror_manifest(3, None, None)
    )
    assert figures == EventMirrorFigures(4, 2, 0, 1, 1, mirror_equals_source=True, examples=())


@pytest.mark.parametrize(
    ("last", "example"),
    [
        ("ca", "mirror unlike the changelog: release 1: t differs in 1 rows, such as 1"),
        ("ca", "in the source {'id': 1, 'note': 'd'}"),
        ("d", "mirror unlike the source: t marks 0 rows as deleted, the source 1"),
        ("ddc", "mirror unlike the source: t has 3 rows for 2 keys"),
    ],
)
def test_a_mirror_that_is_wrong_is_named(last: str, example: str):
    figures = judge_mirrors(Mirrors({}, rows_of("d", "b"), rows_of(*last)), *MANIFESTS)
    assert not figures.mirror_equals_source
    assert any(example in one for one in figures.examples)
    assert not judge_mirrors(Mirrors()).mirror_equals_source


IN_TIME = SourceEvent("t", "a", 1, 4, is_deleted=False, row={}, source_us=1).written(
    2_000, is_in_time=True
)


class Times:
    def commit_times_ms(self, table: str) -> dict[int, int]:
        return {3: 10, 5: 20}


def release_manifest(number: int, version: int | None) -> ReleaseManifest:
    return ReleaseManifest(number, 0, 0, 1, {"t": ManifestTable("x", version, None, None)})


def deliveries(event: SourceEvent, *, release: int) -> list[Delivery]:
    row = EventRow("t", release, 0, "a", "", 1, "INSERT", {})
    manifests = [release_manifest(0, 3), release_manifest(1, 5), release_manifest(2, 7)]
    return event_deliveries(Times(), rows=[row], events={"a": event}, manifests=manifests)


def test_from_the_file_to_the_release():
    assert deliveries(IN_TIME, release=1) == [Delivery(2_000, 20_000, 1)]


def test_what_is_not_measured():
    assert deliveries(IN_TIME, release=0) == [], "the first release"
    assert deliveries(IN_TIME, release=2) == [], "its version is unknown"
    assert deliveries(replace(IN_TIME, is_in_time=False), release=1) == []
    assert deliveries(replace(IN_TIME, number=None), release=1) == [], "a row of a backfill"
