"""The bank's rows as files of events: their forms, deliveries and the writer's steps."""

from __future__ import annotations

import copy
import io
import threading
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tidegate.local_stack.demo import event_writer as writer_module
from tidegate.local_stack.demo.bank import FilesOf
from tidegate.local_stack.demo.event_forms import (
    CDC,
    SOURCES,
    avro_bytes,
    backfill_event,
    change_event,
    event_schema,
    named,
)
from tidegate.local_stack.demo.event_writer import DeliveredFile, Delivery, FilesWriter
from tidegate.local_stack.demo.source_bank import FIELDS, SourceBank
from tidegate.local_stack.errors import PartFailedError
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.read_methods import ReadKind


def bank(**settings: int) -> SourceBank:
    return SourceBank(**{"accounts": 20, "rows": 30, "seed": 5, "opened_us": 1_000, **settings})


def total(made: SourceBank) -> object:
    return sum(row["balance"] for row in made.tables["accounts"].values())


def test_changes_lead_from_the_first_rows_to_the_last():
    made = bank()
    tables = copy.deepcopy(made.tables)
    kinds: Counter[tuple[str, str]] = Counter()
    for number in range(100):
        for change in made.transfer(number, at_us=2_000 + number):
            kinds[change.table, change.kind] += 1
            assert set(change.row) == {field["name"] for field in FIELDS[change.table]}
            if change.kind == "DELETE":
                assert tables[change.table].pop(change.row["id"]) == change.row
            else:
                assert (change.row["id"] in tables[change.table]) == (change.kind == "UPDATE")
                tables[change.table][change.row["id"]] = dict(change.row)
        assert total(made) == made.total == 20_000

    assert tables == made.tables
    assert len(made.tables["ledger"]) == 130
    assert kinds["accounts", "DELETE"] == 8
    assert kinds["accounts", "INSERT"] == 4


@pytest.mark.parametrize("transfers", [7, 24, 25, 26, 49, 300])
def test_an_account_stays_closed_after_the_first_one_is_and_two_stay_open(transfers: int):
    for accounts in (20, 2):
        made = bank(accounts=accounts)
        for number in range(transfers):
            made.transfer(number, at_us=2_000)
        assert 2 <= len(made.tables["accounts"]) < max(accounts, 3)


def test_a_seed_gives_the_same_changes_and_files():
    first, second, other = bank(), bank(), bank(seed=6)
    assert first.tables == second.tables != other.tables
    assert first.transfer(0, at_us=9) == second.transfer(0, at_us=9)
    assert run(4) == run(4) != run(5)


def test_a_row_that_was_read_does_not_change_later():
    made = bank(accounts=2)
    row = made.tables["accounts"][1]
    before = dict(row)
    for number in range(10):
        made.transfer(number, at_us=2_000)
    assert row == before != made.tables["accounts"][1]


ROW = {"id": 7, "from_account": 1, "to_account": 2, "amount": Decimal("1.50"), "note": None}


def events(source: str) -> list[dict[str, object]]:
    table = named(source, database="bank", table="ledger")
    shared = {"read_ms": 9_000, "payload": ROW}
    return [
        backfill_event(table, 0, uuid="a", **shared),
        change_event(table, 1, at_ms=8_000, uuid="b", change_type="INSERT", **shared),
        change_event(table, 2, at_ms=8_000, uuid="c", change_type="DELETE", **shared),
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_a_file_has_the_events_under_the_sources_schema(source: str):
    table = named(source, database="bank", table="ledger")
    schema = event_schema(source, table.object_name, FIELDS["ledger"])
    read = list(fastavro.reader(io.BytesIO(avro_bytes(schema, events(source), codec="deflate"))))
    assert [one["uuid"] for one in read] == ["a", "b", "c"]
    assert [one["payload"] for one in read] == [ROW] * 3
    assert [one["source_metadata"]["is_deleted"] for one in read] == [False, False, True]
    assert {one["source_metadata"]["primary_keys"][0] for one in read} == {"id"}
    assert read[1]["read_method"] == CDC[source] != read[0]["read_method"]
    assert "backfill" in read[0]["read_method"]


def test_names_are_those_of_the_source():
    names = {
        source: (forms.object_name, forms.topic_name)
        for source in SOURCES
        for forms in [named(source, database="bank", table="ledger")]
    }
    assert names == {
        "mysql": ("bank_ledger", "bank.ledger"),
        "oracle": ("BANK_LEDGER", "BANK.LEDGER"),
        "postgresql": ("public_ledger", "public.ledger"),
        "sqlserver": ("dbo_ledger", "dbo.ledger"),
        "salesforce": ("Ledger", "Ledger"),
    }


@pytest.mark.parametrize("key_fields", [{}, {"replication_index": ["id"]}])
def test_an_event_can_have_the_fields_that_the_page_has(key_fields: dict[str, list[str]]):
    source = "sqlserver" if key_fields else "oracle"
    table = named(source, database="bank", table="ledger")
    shared = {"payload": ROW, "read_ms": 9_000, "uuid": "a", "key_fields": key_fields}
    made = [
        change_event(table, 1, at_ms=1, change_type="INSERT", read_method="other", **shared),
        backfill_event(table, 1, read_method="another", **shared),
    ]
    schema = event_schema(source, table.object_name, FIELDS["ledger"], has_primary_keys=False)
    read = list(fastavro.reader(io.BytesIO(avro_bytes(schema, made))))
    assert [event["read_method"] for event in read] == ["other", "another"]
    for event in read:
        assert "primary_keys" not in event["source_metadata"]
        assert event["source_metadata"].get("replication_index") == key_fields.get(
            "replication_index"
        )


def test_positions_of_mysql_grow_within_a_log_and_over_logs():
    table = named("mysql", database="bank", table="ledger")
    made = [
        change_event(
            table, number, at_ms=1, read_ms=1, uuid="", change_type="INSERT", payload=ROW,
            per_log=4,
        )["source_metadata"]
        for number in range(6)
    ]  # fmt: skip
    assert [(position["log_file"], position["log_position"]) for position in made] == [
        ("mysql-bin.999999", 900), ("mysql-bin.999999", 1_100), ("mysql-bin.999999", 1_300),
        ("mysql-bin.999999", 1_500), ("mysql-bin.1000000", 900), ("mysql-bin.1000000", 1_100),
    ]  # fmt: skip


def run(seed: int, *, events: int = 400) -> list[tuple[float, DeliveredFile[int]]]:
    delivery: Delivery[int] = Delivery(seed, hold_s=20.0)
    files, now_s = [], 600.0
    for number in range(events):
        delivery.add("ab"[number % 2], number, now_s=now_s)
        now_s += 0.25
        if number % 4 == 3:
            files += [(now_s, file) for file in delivery.files(now_s=now_s)]
    while not delivery.is_empty:
        now_s += 1
        files += [(now_s, file) for file in delivery.files(now_s=now_s)]
    return files


def test_every_event_comes_some_twice_late_and_out_of_order():
    files = run(3)
    counts = Counter(event for _, file in files for event in file.events)
    assert set(counts) == set(range(400))
    assert max(counts.values()) > 1
    assert {event % 2 for _, file in files for event in file.events if file.folder == "a"} == {0}
    in_order = [event for _, file in files for event in file.events]
    assert in_order != sorted(in_order)
    # A change every quarter of a second from second 600 on; late ones are in their minute's folder.
    late = [file for at_s, file in files if max(file.events) / 4 + 600 + 20 < at_s]
    assert late
    assert all(
        one.minute in {int(600 + event / 4) // 60, int(600 + event / 4 + 11) // 60}
        for one in late
        for event in one.events
    )


def test_the_next_files_are_held_back_if_asked_for():
    for seed in range(20):
        delivery: Delivery[int] = Delivery(seed, hold_s=20.0)
        delivery.add("a", 0, now_s=0.0)
        delivery.files(now_s=1.0)
        delivery.hold_next()
        for number in range(1, 9):
            delivery.add("a", number, now_s=100.0)
        delivery.files(now_s=101.0)
        early = [event for file in delivery.files(now_s=120.9) for event in file.events]
        late = [event for file in delivery.files(now_s=140.0) for event in file.events]
        assert len(set(early) - {0}) < 8, "copies, at most"
        assert set(range(1, 9)) <= set(late)


BEGAN_S = 1_700_000_000.0


class Clock:
    """Time as the writer's steps see it; also when files were written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = BEGAN_S
        monkeypatch.setattr(
            writer_module.time, "time_ns", lambda: int(self.now_s * 1_000) * 1_000_000
        )

    def steps(self, made: FilesWriter, until: Any) -> None:
        for _ in range(5_000):
            if until():
                return
            made.step(now_s=self.now_s)
            self.now_s += 0.1
        raise AssertionError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def make(folder: Path, **settings: Any) -> FilesWriter:
    location = folder / "files"
    location.mkdir(exist_ok=True)
    bank = SourceBank(accounts=9, rows=20, seed=2, opened_us=int(BEGAN_S) * 1_000_000)
    given = {
        "location": location, "source": "mysql", "bank": bank, "transfers": 120, "rate_max": 20.0,
        "pause_at": 12, "seed": 2, "hold_s": 20.0, "in_time_s": 8.0,
    }  # fmt: skip
    return FilesWriter(**{**given, **settings})


def write_all(made: FilesWriter, clock: Clock) -> None:
    made.resume()
    clock.steps(made, lambda: made.has_written_all_but_last)
    made.finish()
    clock.steps(made, lambda: made.has_finished)


def events_in(location: Path) -> list[Any]:
    events = []
    for path in sorted(location.rglob("*.avro")):
        with path.open("rb") as stream:
            events += EventFile(str(path), stream).each()
    return events


@pytest.mark.parametrize("source", FilesOf)
def test_sorted_by_the_documented_order_files_have_the_sources_history(
    source: FilesOf, tmp_path: Path, clock: Clock
):
    made = make(tmp_path, source=source)
    write_all(made, clock)
    read = events_in(made.location)
    changes = {event.uuid: event for event in read if event.read_method.kind is ReadKind.CDC}
    by_key = sorted(changes.values(), key=lambda event: event.order_key)

    assert {event.uuid for event in read} == set(made.events)
    assert [made.events[event.uuid].number for event in by_key] == list(range(360))
    assert len({event.order_key for event in by_key}) == 360
    assert made.copies == len(read) - len(made.events) > 0
    assert made.event_counts["changes"] == 360
    rows = made.event_counts["rows"]
    assert rows == len(made.events) - 360
    assert 29 - 5 <= rows <= 29
    assert 0 < made.event_counts["late"] < 360
    folders = {path.parent for path in made.location.rglob("*.avro")}
    assert all(len(folder.relative_to(made.location).parts) == 6 for folder in folders)


def test_events_lead_to_the_final_tables_and_those_of_late_files_are_late(
    tmp_path: Path, clock: Clock
):
    made = make(tmp_path)
    write_all(made, clock)
    tables: dict[str, dict[Any, Any]] = {"bank.accounts": {}, "bank.ledger": {}}
    ordered = sorted(
        made.events.values(), key=lambda event: -1 if event.number is None else event.number
    )
    for event in ordered:
        if event.is_deleted:
            tables[event.table].pop(event.key)
        else:
            tables[event.table][event.key] = event.row
    assert tables == made.final_tables
    assert made.topic_name("ledger") == "bank.ledger"
    for event in made.events.values():
        assert event.is_in_time == (event.written_us - event.source_us < 8_000_000)


def test_it_waits_at_the_pause_and_before_the_last_transfer(tmp_path: Path, clock: Clock):
    made = make(tmp_path)
    clock.steps(made, lambda: clock.now_s > BEGAN_S + 60)
    assert made.done == 12
    made.resume()
    clock.steps(made, lambda: made.has_written_all_but_last)
    assert made.done == 119
    assert len(made.events) == made.event_counts["rows"] + 3 * 119
    made.step(now_s=clock.now_s)
    assert made.done == 119
    made.finish()
    clock.steps(made, lambda: made.has_finished)
    last = max(made.events.values(), key=lambda event: event.number or 0)
    assert last.source_us == made.last_source_us
    assert last.is_in_time


def test_no_limit_of_the_rate_makes_all_at_once(tmp_path: Path, clock: Clock):
    made = make(tmp_path, rate_max=0.0)
    made.step(now_s=clock.now_s)
    assert made.done == 12


def test_the_thread_writes_and_its_failure_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made = make(tmp_path, location=tmp_path / "new", transfers=10, pause_at=3)
    wrote = threading.Event()

    def fail(*_: Any, **__: Any) -> None:
        wrote.set()
        raise OSError("disk full")

    monkeypatch.setattr(FilesWriter, "step", fail)
    monkeypatch.setattr(writer_module, "_STEP_S", 0.0)
    made.start()
    assert wrote.wait(30)
    made.stop()

    with pytest.raises(PartFailedError, match="writer of files failed"):
        _ = made.has_finished
