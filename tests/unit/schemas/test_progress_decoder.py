"""Progress records are decoded with the schemas that their ids name."""

from __future__ import annotations

import copy

import fastavro
import pytest

from tests.unit.schemas.progress_building import ANNOUNCED_BODY, avro_bytes
from tidegate.schemas.errors import SchemaError, UnreachableError, UnreadableProgress
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
)
from tidegate.schemas.progress_codec import (
    RECORD_SCHEMA,
    encode_record,
)
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.wire_format import frame

OWN_ID, LATER_ID, FOREIGN_ID = 7, 9, 11
RECORD = ProgressRecord("e", "w", PartitionAnnounced(ChildPartition("a", ("p",), 5), "p"))
OWN = frame(OWN_ID, encode_record(RECORD))


def later_schema():
    """Return a version with another field before the others, which this version does not know."""
    schema = copy.deepcopy(RECORD_SCHEMA)
    schema["fields"].insert(0, {"name": "cluster", "type": "string", "default": ""})
    return schema


LATER_DATUM = {"cluster": "eu", "epoch": "e", "worker": "w", "body": ANNOUNCED_BODY}
LATER = frame(LATER_ID, avro_bytes(fastavro.parse_schema(later_schema()), LATER_DATUM))


class Registry:
    """Schemas by id; notes what it is asked for."""

    def __init__(self):
        self.asked = []
        self.schemas = {OWN_ID: copy.deepcopy(RECORD_SCHEMA), LATER_ID: later_schema(),
                        FOREIGN_ID: {"type": "string"}, 12: {"type": "nothing"}}  # fmt: skip

    def schema(self, schema_id):
        self.asked.append(schema_id)
        if schema_id not in self.schemas:
            raise SchemaError("the registry has no schema with this id", schema_id=schema_id)
        return self.schemas[schema_id]


@pytest.fixture
def registry():
    return Registry()


def test_a_record_is_read_with_the_schema_that_its_id_names(registry):
    decoder = ProgressDecoder(registry.schema)
    assert [decoder.decode(value) for value in (OWN, LATER, OWN, LATER)] == [RECORD] * 4
    assert registry.asked == [OWN_ID, LATER_ID]
    # An own record needs no request.
    assert ProgressDecoder(registry.schema, own_ids=[OWN_ID]).decode(OWN) == RECORD
    assert registry.asked == [OWN_ID, LATER_ID]


def test_an_id_that_could_not_be_asked_for_is_asked_for_again():
    answers = [UnreachableError("the schema registry does not answer"), later_schema()]

    def schema_of(_schema_id):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    decoder = ProgressDecoder(schema_of)
    with pytest.raises(UnreachableError):
        decoder.decode(LATER)
    assert decoder.decode(LATER) == RECORD


def test_a_value_that_cannot_be_read_is_named_by_its_id_and_place(registry):
    decoder = ProgressDecoder(registry.schema, own_ids=[OWN_ID])
    assert decoder.decode_at(OWN, slot=3, offset=7) == RECORD
    strange = {f"schema_id={one}": frame(one, encode_record(RECORD)) for one in (5, FOREIGN_ID, 12)}
    for text, value in (*strange.items(), ("", b""), ("", b"plain"), ("", frame(OWN_ID, b"\xff"))):
        with pytest.raises(SchemaError, match=text):
            decoder.decode(value)
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
    assert decoder.is_ready(OWN)
    assert decoder.is_ready(b"no frame")  # decoding raises at once
    assert not decoder.is_ready(LATER)
    answers[LATER_ID] = later_schema()
    assert decoder.is_ready(LATER)
    assert decoder.decode(LATER) == RECORD
    assert decoder.is_ready(LATER)
    assert asked == [LATER_ID, LATER_ID]
