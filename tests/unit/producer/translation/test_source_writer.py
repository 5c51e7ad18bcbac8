"""The source of a change, in two parts around the mod number."""

import io

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.records import DataChangeRecord
from tidegate.producer.translation.avro_fields import write_long
from tidegate.producer.translation.source_writer import SOURCE_FIELDS, SourceWriter
from tidegate.schemas.change_schema import value_schema
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.tables import Column, ColumnType, TableSchema

TABLE = TableSchema("t", (Column("id", ColumnType("INT64"), 1, key_position=1),))
SCHEMA = fastavro.parse_schema(value_schema("p.t", TABLE)["fields"][-1]["type"])
LONG, TEXT = st.integers(-(2**63), 2**63 - 1), st.text(max_size=9)
RECORDS = st.builds(
    DataChangeRecord,
    commit_timestamp_ns=st.just(0),
    record_sequence=TEXT,
    server_transaction_id=TEXT,
    is_last_record_in_transaction_in_partition=st.booleans(),
    table_name=st.just("t"),
    columns=st.just(()),
    mods=st.just(()),
    mod_type=st.just("INSERT"),
    value_capture_type=TEXT,
    number_of_records_in_transaction=LONG,
    number_of_partitions_in_transaction=LONG,
    transaction_tag=TEXT,
    is_system_transaction=st.booleans(),
)
WRITER = SourceWriter("S")


def test_the_fields_are_those_of_the_schema():
    assert [field["name"] for field in SCHEMA["fields"]] == SOURCE_FIELDS


@given(RECORDS, st.integers(0, 2**50), st.integers(0, 2**31 - 1))
def test_the_parts_are_what_fastavro_writes(record, commit_timestamp_us, mod_number):
    written = (
        WRITER.before_mod_number(record, commit_timestamp_us)
        + write_long(mod_number)
        + WRITER.after_mod_number(record)
    )
    others = {name: getattr(record, name) for name in SOURCE_FIELDS if hasattr(record, name)}
    source = {
        "commit_timestamp": commit_timestamp_us,
        "mod_number": mod_number,
        "change_stream": "S",
        "partition_token": "",
        **others,
    }
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, SCHEMA, source)
    assert written == buffer.getvalue()


def test_many_sources_do_not_pile_up():
    record = DataChangeRecord(0, "1", "tx", True, "t", (), (), "INSERT", "", 1, 1, "", False)
    writer = SourceWriter("S")
    first = writer.after_mod_number(record)
    for number in range(2_000):
        writer.after_mod_number(record._replace(transaction_tag=f"tag {number}"))
    assert len(writer._known) <= 1024
    assert writer.after_mod_number(record) == first


def test_a_number_beyond_64_bits_is_refused():
    record = DataChangeRecord(0, "1", "tx", True, "t", (), (), "INSERT", "", 2**63, 1, "", False)
    with pytest.raises(SchemaError, match="64 bits"):
        WRITER.after_mod_number(record)
