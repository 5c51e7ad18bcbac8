"""A mirror of changes that come out of order: the highest order wins, whatever the releases."""

from __future__ import annotations

import random
from io import BytesIO
from types import SimpleNamespace

import fastavro
import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.datastream_files import history, json_bytes
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream_source.description import FilesCatalogue
from tidegate.producer.datastream_source.event_records import EventRecords, place_of
from tidegate.producer.datastream_source.translator import EventTranslator
from tidegate.producer.translation.refreshing import RefreshingTranslator
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.source_order import SOURCE_ORDER
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import unframe
from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.direct_merge import merge_folded
from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
from tidegate.spark_consumer.sinks.delta.newest import is_ordered_by_column, newest_rows
from tidegate.spark_consumer.sinks.delta.row_fold import fold_rows

COLUMNS = ("id", "note", SOURCE_ORDER, "_datastream_change_type")
PLAIN = ("id", "note")


def change(key, order, *, deleted=False):
    row = {
        "id": key,
        "note": f"n{order}",
        SOURCE_ORDER: f"{order:04d}",
        "_datastream_change_type": "DELETE" if deleted else "UPDATE",
    }
    new, old = (None, row) if deleted else (row, None)
    return {
        "key": {"id": key}, "ordinal": order, "mod_type": "DELETE" if deleted else "INSERT",
        "new_values": new, "old_values": old,
        "new_columns": None if deleted else list(COLUMNS),
        "old_columns": list(COLUMNS) if deleted else None,
    }  # fmt: skip


def test_the_newest_change_of_each_key_is_taken_as_an_insert():
    found = newest_rows(
        [change(1, 5), change(1, 7, deleted=True), change(1, 6), change(2, 1)], COLUMNS
    )
    assert [((one["new_values"] or {}).get("note"), one["mod_type"]) for one in found] == [
        ("n7", "INSERT"),
        ("n1", "INSERT"),
    ]


def test_a_table_without_the_column_is_left_as_it_is():
    changes = [{"anything": 1}]
    assert newest_rows(changes, PLAIN) is changes
    assert is_ordered_by_column(COLUMNS)
    assert not is_ordered_by_column(PLAIN)


@pytest.mark.rule("datastream-newest-row")
@pytest.mark.parametrize("seed", range(5))
def test_in_any_releases_the_mirror_ends_with_the_highest_order(tmp_path, seed):
    rng = random.Random(seed)
    changes = [change(rng.randrange(4), n, deleted=rng.random() < 0.3) for n in range(40)]
    expected = {one["key"]["id"]: one["new_values"] or one["old_values"] for one in changes}
    rng.shuffle(changes)
    kinds = [pyarrow.int64(), pyarrow.string(), pyarrow.string(), pyarrow.string()]
    schema = pyarrow.schema(list(zip(COLUMNS, kinds, strict=True)))
    write_deltalake(tmp_path / "t", pyarrow.Table.from_pylist([], schema=schema))
    for release in range(8):
        some = changes[release * 5 : release * 5 + 5]
        merge_folded(
            DirectTable(str(tmp_path / "t")),
            fold_rows(newest_rows(some, COLUMNS), COLUMNS),
            columns=COLUMNS, keys=["id"], commit=Commit("query-1", "mirror", release, release + 1),
        )  # fmt: skip
    found = DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()
    assert {row["id"]: row for row in found} == expected


class JsonFiles:
    """Files of JSON lines, as a worker publishes their events and a gate decodes them."""

    def __init__(self):
        self.registry = InMemorySchemaRegistry()
        self._records = EventRecords()
        plain = Translator({}, change_stream="files")
        self._translator = EventTranslator(
            RefreshingTranslator(
                plain,
                FilesCatalogue(),
                TableRegistrar(TopicNames("shop"), self.registry),
                SimpleNamespace(ensure=lambda _topic, *, key_schema_id: key_schema_id),
            ),
            parks=False,
            columns_of=plain.registered_columns,
        )

    def changes(self, name, events):
        found = []
        for event in EventFile(name, BytesIO(json_bytes(events))):
            record = self._records.record_of(
                event, None, file=f"{len(name):016x}", release_us=9, place=place_of(7, 2)
            )
            (message,) = self._translator.translate(record, token="t").messages
            found.append({"key": self._read(message.key), **self._read(message.value),
                          "ordinal": event.position.record})  # fmt: skip
        return found

    def _read(self, framed):
        schema_id, body = unframe(framed)
        return fastavro.schemaless_reader(
            BytesIO(body), fastavro.parse_schema(self.registry.schema(schema_id)), None
        )


@pytest.mark.rule("datastream-entire-row")
@pytest.mark.parametrize("releases", [1, 2])
def test_a_null_of_json_after_a_value_is_null_in_the_mirror(tmp_path, releases):
    """A column that is null in a row has no type in JSON: its topic's is taken."""
    first, second = history("mysql", random.Random(1), 2)
    second["payload"] = {**first["payload"], "note": None}
    second["source_metadata"].update(change_type="UPDATE-INSERT", is_deleted=False)
    files = JsonFiles()
    changes = [*files.changes("a", [first]), *files.changes("bb", [second])]
    assert [one["new_values"]["note"] for one in changes] == ["change 0", None]
    assert ["note" in one["new_columns"] for one in changes] == [True, True]
    columns = ["id", "note", SOURCE_ORDER]
    schema = pyarrow.schema([(name, pyarrow.string()) for name in columns])
    write_deltalake(tmp_path / "t", pyarrow.Table.from_pylist([], schema=schema))
    for release in range(releases):
        merge_folded(
            DirectTable(str(tmp_path / "t")),
            fold_rows(newest_rows(changes[release :: releases], columns), columns),
            columns=columns, keys=["id"], commit=Commit("query-1", "mirror", release, release + 1),
        )  # fmt: skip
    (row,) = DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()
    assert (row["id"], row["note"]) == (str(first["payload"]["id"]), None)
    assert row[SOURCE_ORDER] == changes[1]["new_values"][SOURCE_ORDER]
