"""A record is published but for its poison changes, which are kept; nothing is left out."""

import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.producer.translation.test_translator import RECORD as ACCOUNT
from tests.unit.producer.translation.translation_building import (
    INT64,
    STRING,
    Catalogue,
    Clock,
    DroppingRegistry,
    Refusing,
    Topics,
    columns_of,
)
from tests.unit.producer.translation.translation_building import RECORD as WITH_UNKNOWN_COLUMN
from tidegate.producer.cli.worker_parts import registered
from tidegate.producer.errors import (
    IncompatibleChange,
    MessageTooLarge,
    QueryInterrupted,
    TopicRefused,
)
from tidegate.producer.messages import FORM_RECORD
from tidegate.producer.records import Mod, RecordColumn, UnreadableValues
from tidegate.producer.translation.parked_record import read_parked_record, write_parked_record
from tidegate.producer.translation.pipeline import (
    ERROR_CHARACTERS_MAX,
    Parking,
    SizeLimits,
    TranslationPipeline,
)
from tidegate.producer.translation.table_refresh import ANSWER_HOLDS_US, TableRefresher
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.errors import SchemaError, SchemaNotKept, UnreachableError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames

NAMES = TopicNames("p")
TABLE = TableSchema(
    "t", (Column("id", INT64, 1, 1), Column("at", ColumnType("TIMESTAMP"), 2),
          Column("note", STRING, 3)),
)  # fmt: skip
COLUMNS = columns_of(TABLE)
RECORD = WITH_UNKNOWN_COLUMN._replace(
    columns=COLUMNS, mods=(), mod_type="UPDATE", commit_timestamp_ns=7_000_123
)
LIMIT = 2_000
DEAD_LETTER = "p-dead-letter"
DAMAGE = '{"note":'


def unreadable(text=DAMAGE):
    return UnreadableValues(text, SchemaError("a JSON value that cannot be read"))


KINDS = {
    "good": ({"at": "2024-01-02T03:04:05.678901Z", "note": "x"}, None),
    "unreadable": (unreadable(), "SchemaError"),
    "nanoseconds": ({"at": "2024-01-02T03:04:05.678901234Z"}, "SchemaError"),
    "large": ({"note": "x" * LIMIT}, "MessageTooLarge"),
    "unknown column": ({"gone": "1"}, "IncompatibleChange"),
}


def mod(kind, key):
    return Mod({"id": str(key)}, KINDS[kind][0], {"note": "old"})


class Limits:
    """Data topics take LIMIT bytes, the dead-letter topic what the test says."""

    def __init__(self, dead_letter=1_000_000):
        self.of = {"p.t": LIMIT, DEAD_LETTER: dead_letter}
        self.refreshed = 0

    def bytes_max(self, topic):
        return self.of[topic]

    def refresh(self):
        self.refreshed += 1


class Bench:
    """The translators of a worker that parks, over a catalogue and a registry in memory."""

    def __init__(self, current=TABLE, *failures, known=TABLE, limits=None, registry=None,
                 envelope=Envelope.TIDEGATE):  # fmt: skip
        self.registry = registry or Refusing()
        registrar = TableRegistrar(NAMES, self.registry, envelope=envelope)
        encodings = {known.name: registrar.register(known)} if known is not None else {}
        self.plain = Translator(encodings, change_stream="s")
        self.catalogue, self.topics = Catalogue(current, *failures), Topics()
        self.limits, self.clock, self.reports = limits or Limits(), Clock(), []
        refresher = TableRefresher(
            self.plain, self.catalogue, registrar, self.topics, clock_us=self.clock
        )
        parking = Parking(
            self.plain, self.limits, dead_letter=DEAD_LETTER,
            report=lambda *report: self.reports.append(report),
        )  # fmt: skip
        limits = SizeLimits(self.limits, clock_us=self.clock)
        self.limited = TranslationPipeline(self.plain, refresher, limits)
        self.parking = replace(self.limited, parking=parking)

    def translate(self, *kinds, **fields):
        return self.parking.translate(record_of(*kinds, **fields), token="token")

    def reasons(self, *kinds, **fields):
        translated = self.translate(*kinds, **fields)
        assert len(translated.messages) + len(translated.parked) == len(kinds)
        return [change.reason for change in translated.parked]


def record_of(*kinds, **fields):
    mods = tuple(mod(kind, key) for key, kind in enumerate(kinds))
    return RECORD._replace(**{"mods": mods, **fields})


def test_a_record_that_can_be_published_is_as_without_parking():
    bench, record = Bench(), record_of("good", "good")
    assert bench.parking.translate_now(record, token="token") == bench.translate("good", "good")
    assert bench.translate("good", "good") == bench.plain.translate(record, token="token")
    assert bench.translate().messages == ()
    for kind in KINDS.keys() - {"good"}:  # left to the translation that may block
        assert bench.parking.translate_now(record_of("good", kind), token="token") is None
    assert not bench.catalogue.asked
    assert not bench.reports


@given(st.lists(st.sampled_from(sorted(KINDS)), max_size=8))
def test_good_and_parked_changes_are_all_changes_in_order(kinds):
    bench, record = Bench(), record_of(*kinds)
    expected = [KINDS[kind][1] for kind in kinds]
    translated = bench.translate(*kinds)
    # What is good is what it would be alone in a record, but for its number.
    good = record._replace(
        mods=tuple(one._replace(new_values=KINDS["good"][0]) for one in record.mods)
    )
    whole = list(zip(bench.plain.translate(good, token="token").messages, expected, strict=True))
    assert list(translated.messages) == [message for message, reason in whole if reason is None]
    parked = [(record.part(number), *one) for number, one in enumerate(whole) if one[1] is not None]
    for change, (part, message, reason) in zip(translated.parked, parked, strict=True):
        # Topic, key, order key and kind are those of the message that it is not.
        assert change[:4] == (message.topic, message.key, message.order_key, message.mod)
        assert change.content == write_parked_record(part)
        assert (change.form, change.token) == (FORM_RECORD, "token")
        # What refuses the table may name the reason for another change of the record.
        assert change.reason in {reason, "IncompatibleChange"}
        assert change.reason == reason or "unknown column" in kinds
        assert 0 < len(change.error) <= ERROR_CHARACTERS_MAX
    assert translated._replace(messages=(), parked=()) == bench.translate()
    assert [report[0] for report in bench.reports] == list(translated.parked)


def test_a_part_keeps_the_numbers_of_its_changes_and_a_report_names_them():
    bench = Bench()
    whole = bench.translate("good", "good", "unreadable")
    part = record_of("good", "good", "unreadable").part(2).part(0)
    (change,) = bench.parking.translate(part, token="token").parked
    assert change == whole.parked[0]
    assert OrderKey.decode(change.order_key).mod_number == 2
    assert json.loads(change.content)["mod_number"] == 2
    bench = Bench()
    (change,) = bench.translate("good", "nanoseconds").parked
    assert bench.reports == [(change, "id=1", 7_000)]
    assert "column='at'" in change.error
    (change,) = bench.translate(mods=(Mod({"id": "1"}, {"at": "y" * 5_000}, {}),)).parked
    assert len(change.error) <= ERROR_CHARACTERS_MAX


def test_what_is_refused_for_all_changes_is_asked_for_once_in_some_seconds():
    other_type = (COLUMNS[0], RecordColumn("note", INT64, False, 3))
    changed, too_large = Bench(), Bench()
    refused = Bench(known=None, registry=Refusing("p.t-value"))
    for _ in range(50):
        # A table that its schema cannot follow, one that the registry refuses, limits.
        assert changed.reasons(*["good"] * 3, columns=other_type) == ["IncompatibleChange"] * 3
        assert refused.reasons(*["good"] * 3) == ["SchemaError"] * 3
        assert too_large.reasons(*["large"] * 10) == ["MessageTooLarge"] * 10
    assert len(changed.catalogue.asked) == len(refused.catalogue.asked) == 1
    assert refused.registry.attempts == too_large.limits.refreshed == 1


def test_changes_of_an_unknown_table_are_parked_while_its_values_are_refused():
    bench = Bench(known=None, registry=Refusing("p.t-value"))
    refused = bench.translate("good", "unreadable")
    assert refused.messages == ()
    assert [change.reason for change in refused.parked] == ["SchemaError"] * 2
    assert bench.plain.encoding("t") is None
    # Their places are those that the same changes have once the values are accepted.
    bench.registry.refused.clear()
    bench.clock.now_us += ANSWER_HOLDS_US
    accepted = bench.translate("good", "good")
    assert [(m.topic, m.key, m.order_key, m.mod) for m in accepted.messages] == [
        (c.topic, c.key, c.order_key, c.mod) for c in refused.parked
    ]
    # So are those of a table whose topic is refused, and of one with a type that nothing carries.
    later, odd = Bench(known=None), Bench(None, *[SchemaError("an unknown column type")] * 9)
    later.topics.refusal = TopicRefused("cannot create topic p.t", topic="p.t")
    (parked,) = later.translate("good").parked
    assert (parked.topic, parked.reason) == ("p.t", "TopicRefused")
    assert odd.reasons("good", "unknown column") == ["SchemaError"]


def test_an_unknown_table_whose_key_is_refused_stops_as_without_parking():
    bench = Bench(known=None, registry=Refusing("p.t-key"))
    with pytest.raises(SchemaError, match=r"cannot be parked either.*unknown") as caught:
        bench.translate("good")
    assert caught.value.fields["subject"] == "p.t-key"


class Away(InMemorySchemaRegistry):
    def register(self, subject, schema):
        raise UnreachableError("no registry")


@pytest.mark.parametrize(
    ("bench", "kind"),
    [
        (Bench(TABLE, *[UnreachableError("no registry")] * 9), "unknown column"),
        (Bench(TABLE, *[QueryInterrupted("no answer")] * 9), "unknown column"),
        (Bench(known=None, registry=Away()), "good"),
    ],
)
def test_what_may_pass_parks_nothing(bench, kind):
    with pytest.raises((UnreachableError, QueryInterrupted)):
        bench.translate("good", kind)
    assert not bench.reports


@pytest.mark.parametrize(
    ("fields", "mods", "why"),
    [
        ({}, (Mod({"id": "x"}, unreadable(), {}),), "INT64"),
        ({}, (Mod({}, unreadable(), {}),), "primary key"),
        ({}, (Mod({"id": "1", "more": "2"}, unreadable(), {}),), "primary key"),
        ({"columns": (RecordColumn("id", STRING, True, 1),)}, (mod("good", 1),), "another type"),
        ({"table_name": "other", "columns": (RecordColumn("id", ColumnType("ODD"), True, 1),)},
         (mod("good", 1),), "table is unknown"),
        ({"record_sequence": "x"}, (mod("good", 1),), "record sequence"),
        ({"server_transaction_id": "\0"}, (mod("good", 1),), "NUL"),
        ({"commit_timestamp_ns": -1_000}, (mod("good", 1),), "order key"),
        ({"record_sequence": "x"}, (), "no change"),
    ],
)  # fmt: skip
def test_a_change_whose_key_or_place_is_unknown_is_refused_as_without_parking(fields, mods, why):
    bench = Bench(None)
    with pytest.raises((SchemaError, IncompatibleChange)) as without:
        bench.limited.translate(RECORD._replace(mods=mods, **fields), token="token")
    with pytest.raises(type(without.value), match="cannot be parked") as caught:
        bench.translate(mods=mods, **fields)
    assert why in str(caught.value)
    assert caught.value.fields == without.value.fields
    assert not bench.reports


def test_a_change_that_the_dead_letter_topic_does_not_take_is_refused():
    fitting = Bench().translate("large").parked[0].size_bytes
    assert Bench(limits=Limits(fitting)).translate("large").parked
    with pytest.raises(MessageTooLarge, match="cannot be parked") as caught:
        Bench(limits=Limits(fitting - 1)).translate("large")
    assert DEAD_LETTER in str(caught.value)
    assert caught.value.fields["topic"] == "p.t"


def registered_by(registrar, *tables, parks=True, has_begun=False):
    return [one.table for one in registered(registrar, tables, parks=parks, has_begun=has_begun)]


def test_a_start_leaves_refused_tables_out_only_where_their_changes_are_parked():
    other = TableSchema("other", TABLE.columns)
    registrar = TableRegistrar(NAMES, Refusing("p.t-value"))
    assert registered_by(registrar, TABLE, other) == [other]
    with pytest.raises(SchemaError):
        registered_by(registrar, TABLE, other, parks=False)
    with pytest.raises(SchemaError):
        registered_by(TableRegistrar(NAMES, Refusing("p.t-key")), TABLE, other)


def test_a_stream_that_has_begun_goes_on_without_what_cannot_be_published():
    odd = Column("odd", ColumnType("RANGE<DATE>"), 3)
    umlaut = Column("größe", INT64, 4)
    other = TableSchema("other", TABLE.columns)
    tables = [
        TableSchema("refused", TABLE.columns),
        TableSchema("grown", (*TABLE.columns, odd, umlaut)),
        TableSchema("odd_key", (replace(odd, key_position=1),)),
        TableSchema("no_key", (odd,)),
        TableSchema("t__backfill", TABLE.columns),
        TableSchema("x" * 300, TABLE.columns),
        other,
    ]
    for parks in (True, False):
        registry = Refusing("p.refused-value")
        registrar = TableRegistrar(NAMES, registry)
        found = registered_by(registrar, *tables, parks=parks, has_begun=True)
        assert found == [TableSchema("grown", TABLE.columns), other]
        assert not any("backfill" in subject for subject in registry.subjects)


def test_a_start_with_other_timestamps_or_a_registry_that_drops_parts_is_an_error():
    registry = InMemorySchemaRegistry()
    TableRegistrar(NAMES, registry).register(TABLE)
    with pytest.raises(IncompatibleChange) as caught:
        registered_by(TableRegistrar(NAMES, registry, TimestampForm.STRING), TABLE)
    assert "timestamps" in caught.value.hint
    with pytest.raises(SchemaNotKept):
        registered_by(
            TableRegistrar(NAMES, DroppingRegistry()), replace(TABLE, excludes=("exclude_insert",))
        )


FIELDS = json.loads(write_parked_record(ACCOUNT))


def read_values(text, name):
    return {"read": text, "of": name}


def test_fields_have_spanners_names():
    kinds = INT64, ColumnType("ARRAY", STRING), ColumnType("NUMERIC", annotation="PG_NUMERIC")
    columns = tuple(RecordColumn(f"c{n}", kind, n == 1, n) for n, kind in enumerate(kinds, 1))
    mods = (Mod({"id": "1"}, {}, {}), Mod({"id": "7"}, {"tags": ["ä", None]}, {"n": "1.50"}))
    record = ACCOUNT._replace(columns=columns, mods=mods, mod_type="UPDATE").part(1)
    types = [{"code": "INT64"}, {"code": "ARRAY", "array_element_type": {"code": "STRING"}},
             {"code": "NUMERIC", "type_annotation": "PG_NUMERIC"}]  # fmt: skip
    assert json.loads(write_parked_record(record)) == {
        "commit_timestamp": "2023-11-14T22:13:20.123456Z", "record_sequence": "00000003",
        "server_transaction_id": "tx", "is_last_record_in_transaction_in_partition": True,
        "table_name": "accounts",
        "column_types": [
            {"name": one.name, "type": kind, "is_primary_key": one.is_primary_key,
             "ordinal_position": one.ordinal}
            for one, kind in zip(columns, types, strict=True)
        ],
        "mods": [
            {"keys": {"id": "7"}, "new_values": {"tags": ["ä", None]}, "old_values": {"n": "1.50"}}
        ],
        "mod_type": "UPDATE", "value_capture_type": "OLD_AND_NEW_VALUES",
        "number_of_records_in_transaction": 2, "number_of_partitions_in_transaction": 1,
        "transaction_tag": "tag", "is_system_transaction": False, "mod_number": 1,
    }  # fmt: skip


VALUES = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=4,
    ),
    max_size=3,
)  # fmt: skip


@given(VALUES, VALUES, VALUES, st.integers(0, 2**62), st.integers(0, 9))
@example({"f": -0.0}, {"f": 5e-324}, {"f": 1.7976931348623157e308}, 1, 0)
def test_what_is_written_is_read_again(keys, new, old, commit_ns, number):
    record = ACCOUNT._replace(
        mods=(Mod(keys, new, old),), commit_timestamp_ns=commit_ns, first_mod_number=number
    )
    again = read_parked_record(write_parked_record(record), read_values)
    assert again == record
    assert repr(again.mods) == repr(record.mods)


def test_values_that_could_not_be_read_are_their_text():
    content = write_parked_record(
        ACCOUNT._replace(mods=(Mod({"id": "1"}, unreadable('{"a":'), unreadable("")),))
    )
    assert json.loads(content)["mods"][0]["new_values"] == '{"a":'
    (one,) = read_parked_record(content, read_values).mods
    assert one.new_values == {"read": '{"a":', "of": "new_values"}
    assert one.old_values == {"read": "", "of": "old_values"}


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [float("nan"), b"bytes", "\ud800", nested(100_000)],
                         ids=["nan", "bytes", "surrogate", "deep"])  # fmt: skip
def test_what_json_cannot_hold_is_a_schema_error(value):
    with pytest.raises(SchemaError):
        write_parked_record(ACCOUNT._replace(mods=(Mod({"id": "1"}, {"a": value}, {}),)))
    with pytest.raises(SchemaError, match="cannot be parked"):
        Bench().translate(mods=(Mod({"id": "1"}, {"at": "never", "note": value}, {}),))


DOCUMENTS = {"keys": {}, "new_values": {}, "old_values": {}}
COLUMN = {"name": "id", "type": "INT64", "is_primary_key": True, "ordinal_position": 1}


@pytest.mark.parametrize(
    "content",
    [
        {"commit_timestamp": "yesterday"}, {"mods": []}, {"mods": [DOCUMENTS] * 2}, {"mods": [5]},
        {"mods": [{**DOCUMENTS, "keys": "{}"}]}, {"mods": [{**DOCUMENTS, "new_values": None}]},
        {"mod_type": "UPSERT"}, {"mod_number": True}, {"mod_number": "1"},
        {"column_types": [{"name": "id"}]}, {"column_types": [COLUMN]}, {"table_name": None},
        {"is_system_transaction": 0}, b"", b"{", b"\xff", b"[]", b"null", b"[" * 100_000,
    ],
    ids=lambda content: str(content)[:60],
)  # fmt: skip
def test_another_json_and_other_bytes_are_refused(content):
    if isinstance(content, dict):
        content = json.dumps({**FIELDS, **content}).encode()
    with pytest.raises(SchemaError):
        read_parked_record(content, read_values)
