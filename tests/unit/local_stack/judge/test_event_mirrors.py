"""What the judge finds in mirrors of events: at each release, and at the end."""

from __future__ import annotations

from typing import Any

from tidegate.local_stack.judge.delta import ManifestTable, ReleaseManifest, TableRows
from tidegate.local_stack.judge.event_mirrors import EventMirrorFigures, compare_event_mirrors
from tidegate.local_stack.judge.events import EventRow, SourceEvent


def event(uuid: str, key: int, number: int | None, *, is_deleted: bool = False) -> SourceEvent:
    return SourceEvent(
        "t", uuid, key, number, is_deleted=is_deleted, row={"id": key, "note": uuid}, source_us=1
    )


EVENTS = {
    one.uuid: one
    for one in (
        event("r", 1, None), event("a", 1, 0), event("b", 2, 1), event("c", 2, 2, is_deleted=True),
        event("d", 1, 3),
    )
}  # fmt: skip
ORDER = {"r": "00", "a": "010", "b": "011", "c": "012", "d": "013"}
RELEASES = {"r": 0, "d": 0, "b": 0, "a": 1, "c": 1}
ROWS = [
    EventRow("t", release, 0, uuid, ORDER[uuid], EVENTS[uuid].key, "INSERT", EVENTS[uuid].row)
    for uuid, release in RELEASES.items()
]


def rows_of(*uuids: str) -> TableRows:
    return {
        "id": tuple(EVENTS[one].key for one in uuids),
        "note": uuids,
        "_datastream_uuid": uuids,
        "_datastream_change_type": tuple(
            "UPDATE-DELETE" if EVENTS[one].is_deleted else "INSERT" for one in uuids
        ),
    }


def manifest(number: int, version: int | None, stands_at: int | None) -> ReleaseManifest:
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


def judge(mirrors: Mirrors, *manifests: ReleaseManifest) -> EventMirrorFigures:
    final: dict[str, Any] = {"t": {1: {"id": 1, "note": "d"}}}
    return compare_event_mirrors(
        manifests, mirrors=mirrors, rows=ROWS, events=EVENTS, tables=final, key="id"
    )


RIGHT = Mirrors({}, rows_of("d", "b"), rows_of("c", "d"))
MANIFESTS = (manifest(0, 1, 0), manifest(1, 2, 1))


def test_right_mirrors():
    figures = judge(RIGHT, *MANIFESTS, manifest(2, 2, 1), manifest(3, None, None))

    assert figures == EventMirrorFigures(4, 2, 0, 1, 1, mirror_equals_source=True, examples=())


def test_a_release_whose_mirror_went_back_to_an_older_change():
    figures = judge(Mirrors({}, rows_of("d", "b"), rows_of("c", "a")), *MANIFESTS)

    assert (figures.releases_unlike_changelog, figures.mirror_equals_source) == (1, False)
    assert "mirror unlike the changelog: release 1: t differs in 1 rows, such as 1" in (
        figures.examples
    )
    assert any("in the source {'id': 1, 'note': 'd'}" in one for one in figures.examples)


def test_a_mirror_that_lacks_the_mark_of_a_deletion():
    figures = judge(Mirrors({}, rows_of("d", "b"), rows_of("d")), *MANIFESTS)

    assert not figures.mirror_equals_source
    assert "mirror unlike the source: t marks 0 rows as deleted, the source 1" in figures.examples


def test_a_row_that_stands_twice():
    figures = judge(Mirrors({}, {}, rows_of("d", "d", "c")), manifest(1, 2, 1))

    assert "mirror unlike the source: t has 3 rows for 2 keys" in figures.examples


def test_no_mirror_at_all():
    assert not judge(Mirrors()).mirror_equals_source
