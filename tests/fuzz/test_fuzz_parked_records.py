"""The JSON of parked changes, from the dead-letter topic: a record, or a SchemaError."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.producer.translation.test_translator import RECORD
from tidegate.producer.records import UnreadableValues
from tidegate.producer.spanner.values import values_of_text
from tidegate.producer.translation.parked_record import read_parked_record, write_parked_record
from tidegate.schemas.errors import SchemaError

WHOLE = write_parked_record(RECORD)
FIELDS = json.loads(WHOLE)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def check(assert_reportable, content):
    try:
        record = read_parked_record(content, values_of_text)
    except SchemaError as error:
        assert_reportable(error)
        return
    (mod,) = record.mods
    assert isinstance(mod.keys, dict)
    try:
        again = write_parked_record(record)
    except SchemaError as error:  # NaN: Python reads it, and JSON does not have it
        assert_reportable(error)
        return
    found = read_parked_record(again, values_of_text)
    if not any(isinstance(values, UnreadableValues) for values in mod):
        assert repr(found) == repr(record)


@given(st.data())
def test_damaged_bytes(damaged, assert_reportable, data):
    check(assert_reportable, damaged(data, WHOLE))


@given(st.binary(max_size=100))
@example(b"[" * 100_000)
@example(b'{"mods":' * 10_000)
def test_any_bytes(assert_reportable, data):
    check(assert_reportable, data)


@given(st.sampled_from(sorted(FIELDS)), ANY)
@example("commit_timestamp", "0001-01-01T00:00:00+23:59")
@example("mod_number", -1)
@example("mods", [{"keys": {}, "new_values": "{", "old_values": {}}])
def test_any_field(assert_reportable, name, value):
    check(assert_reportable, json.dumps({**FIELDS, name: value}).encode())


@given(st.sampled_from(["keys", "new_values", "old_values"]), ANY)
def test_any_document(assert_reportable, name, value):
    (mod,) = FIELDS["mods"]
    mods = [{**mod, name: value}]
    check(assert_reportable, json.dumps({**FIELDS, "mods": mods}).encode())
