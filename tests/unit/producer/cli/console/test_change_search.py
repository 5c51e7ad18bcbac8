"""The search for a key: how a key that was typed becomes the key of a record, and what is shown."""

import io
import json
import time

import fastavro
import pytest

from tidegate.producer.cli.console import change_search
from tidegate.producer.cli.console.change_search import find_changes
from tidegate.producer.kafka import recent_records
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.wire_format import frame

KEY = {
    "type": "record", "name": "Key",
    "fields": [
        {"name": "Id", "type": ["null", "long"]},
        {"name": "Name", "type": ["null", "string"]},
    ],
}  # fmt: skip
VALUE = {"type": "record", "name": "V", "fields": [{"name": "a", "type": "bytes"}]}


def avro(schema, record):
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, record)
    return body.getvalue()


def fields(*types):
    return {
        "type": "record", "name": "Key",
        "fields": [{"name": f"c{n}", "type": ["null", kind]} for n, kind in enumerate(types)],
    }  # fmt: skip


class Registry:
    def __init__(self, key=KEY):
        self.key = key

    def versions(self, _subject):
        return [] if self.key is None else [RegisteredSchema(1, self.key)]

    def schema(self, _schema_id):
        return VALUE


class Message:
    """A record with the order key of a commit second."""

    def __init__(self, key, commit_s=1, *, offset=0, value=b"", mod=b"U", error=None, more=()):
        order = OrderKey(commit_s * 1_000_000, "tx", (0, 2), 3).encode()
        self._key, self._value, self._error, self._offset = key, value, error, offset
        self._headers = [("order", order), ("mod", mod), ("origin", b"x" * 8), *more]

    def key(self):
        return self._key

    def value(self):
        return self._value

    def error(self):
        return self._error

    def offset(self):
        return self._offset

    def partition(self):
        return 0

    def headers(self):
        return self._headers

    def timestamp(self):
        return (1, 5_000)


class End:
    """The report of an end."""

    def code(self):
        return recent_records.AT_END


class Consumer:
    def __init__(self, messages, *, ends=True):
        self.messages = [*messages, *([Message(None, error=End())] if ends else [])]
        self.since_ms = None

    def offsets_for_times(self, places, timeout):
        assert timeout > 0
        self.since_ms = places[0].offset
        for place in places:
            place.offset = 0
        return places

    def assign(self, places):
        assert [place.partition for place in places] == [0]

    def consume(self, _count, _seconds):
        messages, self.messages = self.messages, []
        return messages

    def close(self):
        self.messages = None


@pytest.fixture
def find(place, monkeypatch):
    """Searches in given messages, under a registry."""

    def search(messages, key, *, registry=None, hours=1.0, with_values=True, ends=True):
        consumer = Consumer(messages, ends=ends)
        monkeypatch.setattr(recent_records, "make_client", lambda *_: consumer)
        monkeypatch.setattr(change_search, "schema_registry", lambda _: registry or Registry())

        class Topics:
            def __init__(self, *_, **__):
                pass

            def describe(self, topics):
                description = type("Description", (), {"topic_partitions": 1})
                return {name: description for name in topics if name.endswith(".Items")}

        monkeypatch.setattr(change_search, "KafkaTopics", Topics)
        config = place.config()
        found = find_changes(config, "Items", key, hours=hours, with_values=with_values)
        search.consumer = consumer
        return found

    return search


def framed(record, schema=KEY, schema_id=9):
    return frame(schema_id, avro(schema, record))


@pytest.mark.parametrize("key", ['[7, "x"]', '{"Name": "x", "Id": 7}', '["7", "x"]'])
def test_a_key_is_found_however_it_is_written(find, key):
    own = framed({"Id": 7, "Name": "x"})
    other = framed({"Id": 7, "Name": "y"})
    found = find([Message(own, 3, offset=1), Message(other, 2), Message(own, 1, offset=2)], key)
    assert [(change.commit_us, change.offset) for change in found.changes] == [
        (1_000_000, 2), (3_000_000, 1),
    ]  # fmt: skip
    assert (found.records, found.is_cut) == (3, False)
    first = found.changes[0]
    assert (first.transaction, first.record_sequence, first.mod_number) == ("tx", "2", 3)
    assert (first.mod, first.published_us) == ("UPDATE", 5_000_000)


def test_only_what_was_published_since_then_is_read(find):
    find([], '[7, "x"]', hours=2.0)
    assert abs(find.consumer.since_ms / 1_000 - (time.time() - 7_200)) < 60


def test_a_text_that_is_not_json_is_a_string(find):
    schema = fields("string")
    found = find([Message(framed({"c0": "a-1"}, schema))], "a-1", registry=Registry(schema))
    assert len(found.changes) == 1


@pytest.mark.parametrize(
    ("kind", "typed", "avro_value"),
    [
        ("long", "7", 7),
        ("double", "1.5", 1.5),
        ("boolean", "true", True),
        ("string", '"7"', "7"),
        ("bytes", '"AAE="', b"\x00\x01"),
        ({"type": "int", "logicalType": "date"}, '"1970-01-03"', 2),
        ({"type": "long", "logicalType": "timestamp-micros"}, '"1970-01-01T00:00:01Z"', 1_000_000),
        ({"type": "string", "logicalType": "uuid"}, '"0A000000-0000-4000-8000-000000000001"',
         "0a000000-0000-4000-8000-000000000001"),
        ("long", "null", None),
    ],
)  # fmt: skip
def test_values_of_every_type_can_be_typed(find, kind, typed, avro_value):
    schema = fields(kind)
    plain = kind if isinstance(kind, str) else kind["type"]
    key = frame(9, avro(fields(plain), {"c0": avro_value}))
    assert len(find([Message(key)], f"[{typed}]", registry=Registry(schema)).changes) == 1


def test_a_numeric_key_keeps_its_digits(find):
    schema = fields({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9})
    from decimal import Decimal

    key = frame(9, avro(schema, {"c0": Decimal("0.100000001")}))
    assert len(find([Message(key)], "0.100000001", registry=Registry(schema)).changes) == 1


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("7", "the columns Id, Name"),
        ("[7]", "the columns Id, Name"),
        ('{"Id": 7}', "the columns Id, Name"),
        ('["x", "y"]', "cannot be a value of column Id"),
        ('[1.5, "y"]', "cannot be a value of column Id"),
    ],
)
def test_a_key_that_does_not_fit_is_refused_by_column(find, key, text):
    with pytest.raises(ConfigError, match=text):
        find([], key)


def test_keys_in_json_are_compared_by_column(find):
    registry = Registry(key=None)
    own, other = b'{"Id":7,"Name":"x"}', b'{"Id":8,"Name":"x"}'
    found = find([Message(own), Message(other), Message(b"{")], '{"Name": "x", "Id": 7}',
                 registry=registry)  # fmt: skip
    assert len(found.changes) == 1
    with pytest.raises(ConfigError, match="JSON objects"):
        find([], "[7]", registry=registry)


TIMESTAMP_TEXT = {"type": "string", "logicalType": "timestamp-rfc3339"}
NUMERIC = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}
UUID = {"type": "string", "logicalType": "uuid"}


@pytest.mark.parametrize(
    ("kind", "typed", "written"),
    [
        ("long", "7", 7),
        ("double", "0.1", 0.1),
        ("double", "NaN", "NaN"),
        (NUMERIC, "19.90", "19.9"),
        ("bytes", '"AAE="', "AAE="),
        ("boolean", "true", True),
        (TIMESTAMP_TEXT, "2024-01-02T03:04:05.100Z", "2024-01-02T03:04:05.1Z"),
        ("string", "a", "a"),
    ],
)
def test_keys_in_json_are_found_where_their_schema_is_registered(find, kind, typed, written):
    keys = [json.dumps({"c0": value}, separators=(",", ":")).encode() for value in (written, None)]
    messages = [Message(key, offset=place) for place, key in enumerate([*keys, b"{", b"{}"])]
    found = find(messages, typed, registry=Registry(fields(kind)))
    assert [change.offset for change in found.changes] == [0]


def test_fractions_in_json_keys_are_compared_exactly(find):
    own, other = b'{"Id":0.1}', b'{"Id":0.2}'
    found = find([Message(own), Message(other)], '{"Id": 0.1}', registry=Registry(key=None))
    assert len(found.changes) == 1


@pytest.mark.parametrize("kind", ["double", "float"])
def test_both_zeros_are_one_key(find, kind):
    schema = fields(kind)
    key = framed({"c0": 0.0}, schema)
    assert len(find([Message(key)], "-0.0", registry=Registry(schema)).changes) == 1


def test_a_timestamp_is_found_with_more_digits_than_it_needs(find):
    schema = fields(TIMESTAMP_TEXT)
    key = framed({"c0": "2024-01-02T03:04:05.1Z"}, schema)
    found = find([Message(key)], "2024-01-02T03:04:05.100Z", registry=Registry(schema))
    assert len(found.changes) == 1


@pytest.mark.parametrize("typed", ["1e5", "true", "1.50", "NaN", "7"])
def test_a_string_key_need_not_be_quoted(find, typed):
    schema = fields("string")
    key = framed({"c0": typed}, schema)
    assert len(find([Message(key)], typed, registry=Registry(schema)).changes) == 1


@pytest.mark.parametrize(
    ("kind", "typed"),
    [
        ("long", "1e999999999"),
        ("long", "9223372036854775808"),
        ("long", "[Infinity]"),
        ("double", "[1" + "0" * 400 + "]"),
        ("string", "[true]"),
        ({"type": "int", "logicalType": "date"}, "5"),
        (UUID, "5"),
        (NUMERIC, "1e30"),
        (NUMERIC, "1e999999999"),
        (NUMERIC, "NaN"),
        ("long", "[" * 100_000),
    ],
)
def test_a_value_that_no_row_can_have_is_refused(find, kind, typed):
    with pytest.raises(ConfigError, match="cannot be a value of column c0"):
        find([], typed, registry=Registry(fields(kind)))


def test_only_the_newest_changes_of_a_key_are_decoded(find, monkeypatch):
    monkeypatch.setattr(change_search, "SHOWN_MAX", 2)
    own = framed({"Id": 7, "Name": "x"})
    messages = [Message(own, second, offset=second) for second in (5, 3, 4)]
    decoded = []
    monkeypatch.setattr(change_search, "_shown", lambda value, _: decoded.append(value) or "")
    found = find(messages, '[7, "x"]')
    assert [change.offset for change in found.changes] == [4, 5]
    assert len(decoded) == 2


def test_a_table_without_a_topic_is_named(place, find, monkeypatch):
    find([], '[7, "x"]')
    with pytest.raises(ConfigError, match=r"no topic .*\.Others"):
        find_changes(place.config(), "Others", "7", hours=1.0, with_values=True)


def test_values_are_shown_as_json_and_only_when_wanted(find):
    own = framed({"Id": 7, "Name": "x"})
    value = frame(1, avro(VALUE, {"a": b"\x01"}))
    (change,) = find([Message(own, value=value)], '[7, "x"]').changes
    assert json.loads(change.values) == {"a": "AQ=="}
    (change,) = find([Message(own, value=b'{"a": 1}')], '[7, "x"]').changes
    assert change.values == '{"a": 1}'
    (change,) = find([Message(own, value=value)], '[7, "x"]', with_values=False).changes
    assert change.values == ""


def test_a_tombstone_is_no_change(find):
    own = framed({"Id": 7, "Name": "x"})
    assert find([Message(own, value=None)], '[7, "x"]').changes == ()


def test_a_change_that_was_put_back_says_so(find):
    own = framed({"Id": 7, "Name": "x"})
    (change,) = find([Message(own, more=[("redriven", b"1")])], '[7, "x"]').changes
    assert change.is_redriven


def test_a_search_ends_at_its_limit(find, monkeypatch):
    monkeypatch.setattr(recent_records, "_RECORDS_MAX", 1)
    own = framed({"Id": 7, "Name": "x"})
    found = find([Message(own)], '[7, "x"]', ends=False)
    assert found.is_cut
