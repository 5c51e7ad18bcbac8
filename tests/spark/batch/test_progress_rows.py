"""Progress rows, collected and decoded."""

from __future__ import annotations

import copy

import pytest

from tests.spark.gate_rows import change
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import ChildPartition, PartitionAnnounced, ProgressRecord
from tidegate.schemas.progress_codec import RECORD_SCHEMA, encode_key, encode_record
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.wire_format import frame
from tidegate.spark_consumer.batch import progress_rows
from tidegate.spark_consumer.batch.progress_rows import ProgressReader

pytestmark = pytest.mark.spark


class ProgressLog:
    def __init__(self):
        self.registry = InMemorySchemaRegistry()
        self.schema_id = self.registry.register("p", copy.deepcopy(RECORD_SCHEMA))
        self.rows = []

    def announce(self, token, *, slot=0, schema_id=None):
        body = PartitionAnnounced(ChildPartition(token, ("p",), 5), "p")
        value = frame(schema_id or self.schema_id, encode_record(ProgressRecord("e", "w", body)))
        key = bytearray(frame(1, encode_key(body)))
        offset = len(self.rows)
        self.rows.append((True, "x", slot, offset, key, bytearray(value), None, None, None))

    def tombstone(self, offset):
        self.rows.append(
            (*self.rows[offset][:3], len(self.rows), self.rows[offset][4], *[None] * 4)
        )


@pytest.mark.parametrize("thinned", [False, True])
def test_progress_rows_are_decoded_thinned_or_not(rows, monkeypatch, thinned):
    log = ProgressLog()
    for token, slot in (("a", 0), ("b", 1), ("a", 0), ("c", 0)):
        log.announce(token, slot=slot)
    log.tombstone(3)
    monkeypatch.setattr(progress_rows, "ROWS_TAKEN_WHOLE_MAX", 3)
    reader = ProgressReader(log.registry.schema)
    found = reader.read(rows(*log.rows, change(3)), offsets=5 if thinned else 2)
    tokens = sorted((row.offset, row.slot, row.record.body.child.token) for row in found)
    whole = [(0, 0, "a"), (1, 1, "b"), (2, 0, "a"), (3, 0, "c")]
    assert tokens == ([(1, 1, "b"), (2, 0, "a")] if thinned else whole)


def test_a_progress_record_of_a_newer_version_is_read_with_its_own_schema(rows):
    log = ProgressLog()
    newer = copy.deepcopy(RECORD_SCHEMA)
    newer["doc"] = "another version"
    log.announce("a", schema_id=log.registry.register("p", newer))
    (found,) = ProgressReader(log.registry.schema).read(rows(*log.rows), offsets=1)
    assert found.record.body.child.token == "a"


def test_bytes_that_are_no_progress_record_are_refused(rows):
    log = ProgressLog()
    log.announce("a")
    broken = (*log.rows[0][:5], bytearray(frame(log.schema_id, b"\xff")), *[None] * 3)
    with pytest.raises(SchemaError):
        ProgressReader(log.registry.schema).read(rows(broken), offsets=1)
