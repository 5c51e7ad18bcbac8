"""Changes folded in the driver: the versions of a history, and rows ordered by a column."""

from __future__ import annotations

import random
import tempfile
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import pairwise
from types import SimpleNamespace

import fastavro
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.datastream_files import history, json_bytes
from tests.spark.sinks.merge.test_fold import COLUMNS as FOLD_COLUMNS
from tests.unit.spark_consumer.sinks.delta_building import created, rows_of
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.event_records import EventRecords, place_of
from tidegate.producer.datastream.event_translator import EventTranslator
from tidegate.producer.datastream.stream import FilesCatalogue
from tidegate.producer.translation.pipeline import TranslationPipeline
from tidegate.producer.translation.table_refresh import TableRefresher
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.source_order import SOURCE_ORDER
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import unframe
from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable
from tidegate.spark_consumer.sinks.merge.fold import (
    fold_each_row,
    fold_rows,
    is_ordered_by_column,
    newest_rows,
)
from tidegate.spark_consumer.sinks.merge.mirror import merge_folded
from tidegate.spark_consumer.sinks.merge.versions import HistoryColumns, merge_rows, stage_rows
from tidegate.spark_consumer.sinks.tables import Commit

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEYS = ("id", "k")
COLUMNS = ("id", "k", "a", "at")
TYPES = {"id": "long", "k": "string", "a": "string", "at": "timestamp"}
OURS = {"valid_from": "timestamp", "valid_to": "timestamp", "is_current": "boolean"}
OUTER_TIMES_US = (-62_135_596_799_999_999, 253_402_300_799_999_999)


def change(ordinal, us, mod, key, new=None, *, columns=COLUMNS):
    """A change of a key with these parts; `new` are the captured columns."""
    return {
        "ordinal": ordinal,
        "commit_timestamp": us,
        "mod_type": mod,
        "key": key,
        "new_values": None if new is None else dict.fromkeys(columns) | key | new,
        "new_columns": None if new is None or len(new) == 2 else [*key, *new],
    }


def of_k(ordinal, us, mod, key, new=None):
    return change(ordinal, us, mod, {"id": 1, "k": key}, new)


def folded(changes):
    return fold_rows(changes, list(FOLD_COLUMNS))


# ---------------------------------------------------------------- folded rows


def test_keys_are_folded_by_themselves_and_know_their_base():
    def of(ordinal, mod, new, key, us=0):
        return change(ordinal, us, mod, {"id": key}, new, columns=FOLD_COLUMNS)

    first_row, two = folded(
        [of(0, "DELETE", None, 1), of(1, "UPDATE", {"b": 1}, 2), of(2, "UPDATE", {"b": 2}, 1)]
    )
    assert (first_row.base_ordinal, first_row.is_after_base(0), first_row.is_after_base(2)) == (
        0,
        False,
        True,
    )
    assert (two.base_ordinal, two.is_after_base(1)) == (None, True)
    (replaced,) = folded(
        [of(0, "UPDATE", {"a": "x"}, 1), of(1, "DELETE", None, 1), of(2, "INSERT", {"b": 4}, 1)]
    )
    assert (replaced.captures("a"), replaced.values) == (True, {"id": 1, "b": 4})
    changes = [
        of(0, "INSERT", {"a": "x", "b": 1}, 1, us=5),
        of(1, "INSERT", {"a": "y", "b": 2}, 2, us=6),
        of(2, "UPDATE", {"b": 3}, 1, us=7),
    ]
    steps = sorted(fold_each_row(changes, list(FOLD_COLUMNS)), key=lambda row: row.ordinal)
    assert [(row.is_first, row.ends_at, row.state.values["b"]) for row in steps] == [
        (True, 7, 1), (True, None, 2), (False, None, 3),
    ]  # fmt: skip


# ---------------------------------------------------------------- versions
def write(path, number, changes):
    """Merge a release; return the ordinals of the UPDATEs that were lost."""
    table = DirectTable(path)
    common = {"columns": COLUMNS, "keys": KEYS, "version_columns": HistoryColumns()}
    staged = stage_rows(table, fold_each_row(changes, COLUMNS), **common)
    commit = Commit("query-1", "history", number, number)
    merge_rows(table, staged.rows, **common, commit=commit)
    return staged.lost


def microseconds(time):
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


def versions(path):
    rows = rows_of(path)
    assert all(row["is_current"] == (row["valid_to"] is None) for row in rows)
    version_rows = [
        (row["k"], *(microseconds(row[name]) for name in ("valid_from", "valid_to")), row["a"],
         microseconds(row["at"]))
        for row in rows
    ]  # fmt: skip
    return sorted(version_rows, key=lambda row: (str(row[0]), row[1]))


def history_table(path, types=TYPES):
    return created(path, OURS | types, partitioned_by=["is_current"])


@pytest.fixture
def path(tmp_path):
    return history_table(tmp_path / "t")


def test_what_an_update_did_not_capture_is_taken_from_the_version_before_it(path):
    first, second = OUTER_TIMES_US
    inserted = [of_k(0, 10, "INSERT", "x", {"a": "one", "at": first})]
    write(path, 0, inserted)
    write(path, 0, inserted)  # a release is merged once
    assert DeltaTable(path).version() == 1
    changes = [
        of_k(0, 20, "UPDATE", "x", {"a": None}),
        of_k(1, 30, "UPDATE", "x", {"at": second}),
        of_k(2, 40, "DELETE", "x"),
        of_k(3, 50, "INSERT", "x", {"a": "two"}),
    ]
    assert not write(path, 1, changes)
    assert versions(path) == [
        ("x", 10, 20, "one", first),
        ("x", 20, 30, None, first),
        ("x", 30, 40, None, second),
        ("x", 50, None, "two", None),
    ]


class Model:
    """One change after the other; it knows neither releases nor versions of no duration."""

    def __init__(self):
        self.rows, self.lost, self.at = {}, [], {}

    def apply(self, place, change):
        key, new = change["key"]["k"], change["new_values"]
        if change["mod_type"] == "UPDATE" and key not in self.rows:
            self.lost.append(place)
        elif change["mod_type"] == "DELETE":
            self.rows.pop(key, None)
        else:
            before = self.rows.get(key) if change["mod_type"] == "UPDATE" else {}
            names = change["new_columns"] or COLUMNS
            self.rows[key] = before | {name: new[name] for name in names}
        # What the table is after the last change of its time.
        self.at[change["commit_timestamp"]] = dict(self.rows)


# Each says how far the clock moves before it, and whether a release ends there.
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 2]),
        st.booleans(),
        st.sampled_from(["INSERT", "UPDATE", "UPDATE", "DELETE"]),
        st.sampled_from([None, "x", "y"]),
        st.fixed_dictionaries(
            {},
            optional={"a": st.sampled_from([None, "p", "q"]), "at": st.sampled_from([None, 7])},
        ),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_at_any_time_each_key_that_was_alive_has_one_row(steps):
    us, changes, cuts = 1, [], []
    for later, is_cut, mod, key, new in steps:
        us += later
        cuts += [len(changes)] * is_cut
        changes.append((us, mod, key, None if mod == "DELETE" else new))
    model, lost = Model(), []
    with tempfile.TemporaryDirectory() as folder:
        path = history_table(f"{folder}/t")
        for number, (start, end) in enumerate(pairwise([0, *cuts, len(changes)])):
            part = [of_k(n, *change) for n, change in enumerate(changes[start:end])]
            if not part:
                continue
            for place, change in enumerate(part):
                model.apply((number, place), change)
            lost += sorted((number, ordinal) for ordinal in write(path, number, part))
            assert not DirectTable(path).has(Commit("query-1", "history", number + 1, 0))
        version_rows = versions(path)
    assert lost == model.lost
    rows = {}
    for at in range(us + 2):
        rows = model.at.get(at, rows)
        alive = [row for row in version_rows if row[1] <= at and (row[2] is None or at < row[2])]
        assert {key: (a, time) for key, _, _, a, time in alive} == {
            key: (row.get("a"), row.get("at")) for key, row in rows.items()
        }
        assert len(alive) == len(rows)
    assert all(end is None or start < end for _, start, end, *_ in version_rows)


# ---------------------------------------------------------------- rows that a column orders
ORDERED = ("id", "note", SOURCE_ORDER, "_datastream_change_type")


def ordered(key, order, *, deleted=False):
    values = (key, f"n{order}", f"{order:04d}", "DELETE" if deleted else "UPDATE")
    row = dict(zip(ORDERED, values, strict=True))
    new, old = (None, row) if deleted else (row, None)
    names = list(ORDERED)
    return {
        "key": {"id": key}, "ordinal": order, "mod_type": "DELETE" if deleted else "INSERT",
        "new_values": new, "old_values": old,
        "new_columns": None if deleted else names, "old_columns": names if deleted else None,
    }  # fmt: skip


def merge_newest(path, release, changes, columns):
    rows = fold_rows(newest_rows(changes, columns), columns)
    commit = Commit("query-1", "mirror", release, release + 1)
    merge_folded(DirectTable(path), rows, columns=columns, keys=["id"], commit=commit)


def test_the_newest_change_of_each_key_is_taken_as_an_insert():
    changes = [ordered(1, 5), ordered(1, 7, deleted=True), ordered(1, 6), ordered(2, 1)]
    newest = newest_rows(changes, ORDERED)
    assert [(change["new_values"]["note"], change["mod_type"]) for change in newest] == [
        ("n7", "INSERT"),
        ("n1", "INSERT"),
    ]
    # A table without the column is left unchanged.
    assert newest_rows(changes, ("id", "note")) is changes
    assert is_ordered_by_column(ORDERED)
    assert not is_ordered_by_column(("id", "note"))


@pytest.mark.rule("datastream-newest-row")
@pytest.mark.parametrize("seed", range(5))
def test_in_any_releases_the_mirror_ends_with_the_highest_order(tmp_path, seed):
    rng = random.Random(seed)
    changes = [ordered(rng.randrange(4), n, deleted=rng.random() < 0.3) for n in range(40)]
    expected = {
        change["key"]["id"]: change["new_values"] or change["old_values"] for change in changes
    }
    rng.shuffle(changes)
    types = dict.fromkeys(ORDERED, "string") | {"id": "long"}
    path = created(tmp_path / "t", types)
    for release in range(8):
        merge_newest(path, release, changes[release * 5 : release * 5 + 5], ORDERED)
    assert {row["id"]: row for row in rows_of(path)} == expected


class JsonFiles:
    """Files of JSON lines, as a worker publishes their events and a gate decodes them."""

    def __init__(self):
        self.registry = InMemorySchemaRegistry()
        self._records = EventRecords()
        plain = Translator({}, change_stream="files")
        keys = SimpleNamespace(ensure=lambda _topic, *, key_schema_id: key_schema_id)
        registrar = TableRegistrar(TopicNames("shop"), self.registry)
        self._translator = EventTranslator(
            TranslationPipeline(plain, TableRefresher(plain, FilesCatalogue(), registrar, keys)),
            parks=False,
            columns_of=plain.registered_columns,
        )

    def changes(self, name, events):
        changes_read = []
        for event in EventFile(name, BytesIO(json_bytes(events))):
            record = self._records.record_of(
                event, None, file=f"{len(name):016x}", release_us=9, place=place_of(7, 2)
            )
            (message,) = self._translator.translate(record, token="t").messages
            key, value = self._read(message.key), self._read(message.value)
            changes_read.append({"key": key, **value, "ordinal": event.position.record})
        return changes_read

    def _read(self, framed):
        schema_id, body = unframe(framed)
        schema = fastavro.parse_schema(self.registry.schema(schema_id))
        return fastavro.schemaless_reader(BytesIO(body), schema, None)


@pytest.mark.rule("datastream-entire-row")
@pytest.mark.parametrize("releases", [1, 2])
def test_a_null_of_json_after_a_value_is_null_in_the_mirror(tmp_path, releases):
    """A column that is null in a row has no type in JSON: its topic's is taken."""
    first, second = history("mysql", random.Random(1), 2)
    second["payload"] = {**first["payload"], "note": None}
    second["source_metadata"].update(change_type="UPDATE-INSERT", is_deleted=False)
    files = JsonFiles()
    changes = [*files.changes("a", [first]), *files.changes("bb", [second])]
    assert [change["new_values"]["note"] for change in changes] == ["change 0", None]
    assert ["note" in change["new_columns"] for change in changes] == [True, True]
    columns = ["id", "note", SOURCE_ORDER]
    path = created(tmp_path / "t", dict.fromkeys(columns, "string"))
    for release in range(releases):
        merge_newest(path, release, changes[release::releases], columns)
    (row,) = rows_of(path)
    assert (row["id"], row["note"]) == (str(first["payload"]["id"]), None)
    assert row[SOURCE_ORDER] == changes[1]["new_values"][SOURCE_ORDER]
