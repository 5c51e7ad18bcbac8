"""Progress records are read with the schema that their id names, whichever version wrote them."""

from __future__ import annotations

import copy
import io

import fastavro
import pytest

from tidegate.schemas.errors import SchemaError, UnreachableError, UnreadableProgress
from tidegate.schemas.progress import ChildPartition, PartitionAnnounced, ProgressRecord
from tidegate.schemas.progress_codec import RECORD_SCHEMA, encode_record
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.wire_format import frame

OWN_ID, LATER_ID, FOREIGN_ID = 7, 9, 11
RECORD = ProgressRecord("e", "w", PartitionAnnounced(ChildPartition("a", ("p",), 5), "p"))


def later_schema():
    """Return a version with another field before the others, which this version does not know."""
    schema = copy.deepcopy(RECORD_SCHEMA)
    schema["fields"].insert(0, {"name": "cluster", "type": "string", "default": ""})
    return schema


def written_later():
    announced = {
        "child": {"token": "a", "parents": ["p"], "start_ns": 5},
        "parent": "p",
    }
    body = ("tidegate.progress.PartitionAnnounced", announced)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(
        buffer,
        fastavro.parse_schema(later_schema()),
        {"cluster": "eu", "epoch": "e", "worker": "w", "body": body},
    )
    return buffer.getvalue()


class Registry:
    """Schemas by id; notes what it is asked for."""

    def __init__(self):
        self.asked = []
        self.schemas = {
            OWN_ID: copy.deepcopy(RECORD_SCHEMA),
            LATER_ID: later_schema(),
            FOREIGN_ID: {"type": "string"},
            12: {"type": "nothing"},
        }

    def schema(self, schema_id):
        self.asked.append(schema_id)
        if schema_id not in self.schemas:
            message = "the registry has no schema with this id"
            raise SchemaError(message, schema_id=schema_id)
        return self.schemas[schema_id]


@pytest.fixture
def registry():
    return Registry()


def test_an_own_record_needs_no_request(registry):
    decoder = ProgressDecoder(registry.schema, own_ids=[OWN_ID])

    assert decoder.decode(frame(OWN_ID, encode_record(RECORD))) == RECORD
    assert registry.asked == []


def test_versions_meet_in_one_topic(registry):
    decoder = ProgressDecoder(registry.schema)
    own, later = frame(OWN_ID, encode_record(RECORD)), frame(LATER_ID, written_later())

    assert [decoder.decode(value) for value in (own, later, own, later)] == [RECORD] * 4
    assert registry.asked == [OWN_ID, LATER_ID]


@pytest.mark.parametrize("schema_id", [5, FOREIGN_ID, 12])
def test_an_id_that_is_no_progress_schema_is_named(registry, schema_id):
    decoder = ProgressDecoder(registry.schema, own_ids=[OWN_ID])

    with pytest.raises(SchemaError, match=f"schema_id={schema_id}"):
        decoder.decode(frame(schema_id, encode_record(RECORD)))


def test_an_id_that_could_not_be_asked_for_is_asked_for_again(registry):
    answers = [UnreachableError("the schema registry does not answer"), later_schema()]

    def schema_of(_schema_id):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    decoder = ProgressDecoder(schema_of)
    with pytest.raises(UnreachableError):
        decoder.decode(frame(LATER_ID, written_later()))
    assert decoder.decode(frame(LATER_ID, written_later())) == RECORD


@pytest.mark.parametrize("value", [b"", b"plain", frame(OWN_ID, b"\xff\xff")])
def test_anything_else_is_a_schema_error(registry, value):
    with pytest.raises(SchemaError):
        ProgressDecoder(registry.schema, own_ids=[OWN_ID]).decode(value)


def test_a_place_is_named_with_what_to_do(registry):
    decoder = ProgressDecoder(registry.schema, own_ids=[OWN_ID])

    assert decoder.decode_at(frame(OWN_ID, encode_record(RECORD)), slot=3, offset=7) == RECORD
    for value in (b"plain", frame(FOREIGN_ID, b"later"), frame(5, b"")):
        with pytest.raises(UnreadableProgress, match="slot=3, offset=7") as caught:
            decoder.decode_at(value, slot=3, offset=7)
        assert caught.value.hint
        assert caught.value.exit_code == 2


def test_a_record_is_ready_once_its_schema_is_known():
    answers, asked = {}, []

    def has_answer(schema_id):
        asked.append(schema_id)
        return schema_id in answers

    decoder = ProgressDecoder(answers.__getitem__, own_ids=[OWN_ID], has_answer=has_answer)
    assert decoder.is_ready(frame(OWN_ID, encode_record(RECORD)))
    assert decoder.is_ready(b"no frame")  # decoding raises at once
    later = frame(LATER_ID, written_later())
    assert not decoder.is_ready(later)
    answers[LATER_ID] = later_schema()
    assert decoder.is_ready(later)
    assert decoder.decode(later) == RECORD
    assert decoder.is_ready(later)
    assert asked == [LATER_ID, LATER_ID]
