"""A record is published but for its poison changes, which are kept; nothing is left out."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.translation.test_fresh_answers import Clock
from tests.unit.producer.translation.test_refreshing import INT64, STRING, Catalogue, Topics
from tests.unit.producer.translation.test_refreshing import RECORD as WITH_UNKNOWN_COLUMN
from tests.unit.producer.translation.test_table_registrar import DroppingRegistry
from tidegate.producer.commands.parts import registered
from tidegate.producer.errors import (
    IncompatibleChange,
    MessageTooLarge,
    QueryInterrupted,
    TopicRefused,
)
from tidegate.producer.messages import FORM_RECORD
from tidegate.producer.records import Mod, RecordColumn, UnreadableValues
from tidegate.producer.translation.fresh_answers import ANSWER_HOLDS_US
from tidegate.producer.translation.limited import LimitedTranslator
from tidegate.producer.translation.parked_record import write_parked_record
from tidegate.producer.translation.parking import ERROR_CHARACTERS_MAX, ParkingTranslator
from tidegate.producer.translation.refreshing import RefreshingTranslator
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.errors import SchemaError, SchemaNotKept, UnreachableError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames

TABLE = TableSchema(
    "t",
    (
        Column("id", INT64, 1, key_position=1),
        Column("at", ColumnType("TIMESTAMP"), 2),
        Column("note", STRING, 3),
    ),
)
COLUMNS = tuple(RecordColumn(c.name, c.type, c.ordinal == 1, c.ordinal) for c in TABLE.columns)
RECORD = WITH_UNKNOWN_COLUMN._replace(
    columns=COLUMNS, mods=(), mod_type="UPDATE", commit_timestamp_ns=7_000_123
)
ODD_KEY = (RecordColumn("id", ColumnType("ODD"), True, 1),)
LIMIT = 2_000
DEAD_LETTER = "p-dead-letter"
DAMAGE = '{"note":'


def unreadable(text=DAMAGE):
    return UnreadableValues(
        text, SchemaError("a JSON value that cannot be read", field="new_values")
    )


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

    def __init__(
        self,
        *,
        known=TABLE,
        catalogue=None,
        limits=None,
        registry=None,
        envelope=Envelope.TIDEGATE,
    ):
        registrar = TableRegistrar(
            TopicNames("p"), registry or InMemorySchemaRegistry(), envelope=envelope
        )
        encodings = {known.name: registrar.register(known)} if known is not None else {}
        self.plain = Translator(encodings, change_stream="s")
        self.catalogue = catalogue or Catalogue(known)
        self.limits = limits or Limits()
        self.clock = Clock()
        self.reports = []
        self.topics = Topics()
        refreshing = RefreshingTranslator(
            self.plain, self.catalogue, registrar, self.topics, clock_us=self.clock
        )
        self.limited = LimitedTranslator(refreshing, self.limits, clock_us=self.clock)
        self.parking = ParkingTranslator(
            self.limited,
            self.plain,
            self.limits,
            dead_letter=DEAD_LETTER,
            report=lambda *report: self.reports.append(report),
        )

    def translate(self, record):
        return self.parking.translate(record, token="token")


def record_of(*kinds, **fields):
    mods = tuple(mod(kind, key) for key, kind in enumerate(kinds))
    return RECORD._replace(mods=mods, **fields)


def test_a_record_that_can_be_published_is_as_without_parking():
    bench, record = Bench(), record_of("good", "good")

    assert bench.parking.translate_now(record, token="token") == bench.translate(record)
    assert bench.translate(record) == bench.plain.translate(record, token="token")
    assert bench.translate(record_of()).messages == ()
    assert not bench.catalogue.asked


@given(st.lists(st.sampled_from(sorted(KINDS)), max_size=8))
def test_good_and_parked_changes_are_all_changes_in_order(kinds):
    bench, record = Bench(), record_of(*kinds)
    expected = [KINDS[kind][1] for kind in kinds]

    translated = bench.translate(record)

    # What is good is what it would be alone in a record, but for its number.
    good = record._replace(
        mods=tuple(one._replace(new_values=KINDS["good"][0]) for one in record.mods)
    )
    whole = bench.plain.translate(good, token="token").messages
    assert list(translated.messages) == [
        message for message, reason in zip(whole, expected, strict=True) if reason is None
    ]
    parked = [
        (message, record.part(number), reason)
        for number, (message, reason) in enumerate(zip(whole, expected, strict=True))
        if reason is not None
    ]
    assert len(translated.parked) == len(parked)
    for change, (message, part, reason) in zip(translated.parked, parked, strict=True):
        # Topic, key, order key and kind are those of the message that it is not.
        assert (change.topic, change.key) == (message.topic, message.key)
        assert (change.order_key, change.mod) == (message.order_key, message.mod)
        assert change.content == write_parked_record(part)
        assert (change.form, change.token) == (FORM_RECORD, "token")
        # What refuses the table may name the reason for another change of the record.
        assert change.reason in {reason, "IncompatibleChange"}
        assert change.reason == reason or "unknown column" in kinds
        assert 0 < len(change.error) <= ERROR_CHARACTERS_MAX
    assert translated._replace(messages=(), parked=()) == bench.translate(record._replace(mods=()))
    assert [report[0] for report in bench.reports] == list(translated.parked)


def test_what_has_to_be_parked_is_left_to_the_translation_that_may_block():
    bench = Bench()

    for kind in KINDS.keys() - {"good"}:
        assert bench.parking.translate_now(record_of("good", kind), token="token") is None
    assert not bench.reports


def test_a_part_of_a_record_keeps_the_numbers_of_its_changes():
    bench = Bench()
    whole = bench.translate(record_of("good", "good", "unreadable"))
    part = record_of("good", "good", "unreadable").part(2).part(0)

    (change,) = bench.translate(part).parked
    assert change == whole.parked[0]
    assert OrderKey.decode(change.order_key).mod_number == 2
    assert json.loads(change.content)["mod_number"] == 2


def test_a_report_names_the_change():
    bench = Bench()

    (change,) = bench.translate(record_of("good", "nanoseconds")).parked

    assert bench.reports == [(change, "id=1", 7_000)]
    assert "column='at'" in change.error


def test_a_table_that_its_schema_cannot_follow_is_read_once_for_all_changes_of_a_record():
    shown = (COLUMNS[0], RecordColumn("note", INT64, False, 3))
    record = record_of("good", "good", "good", columns=shown)
    bench = Bench()

    translated = bench.translate(record)

    assert translated.messages == ()
    assert [change.reason for change in translated.parked] == ["IncompatibleChange"] * 3
    assert len(bench.catalogue.asked) == 1


class Refusing(InMemorySchemaRegistry):
    """Refuses the subjects that it holds for good."""

    def __init__(self, *refused):
        super().__init__()
        self.refused = set(refused)

    def register(self, subject, schema):
        if subject in self.refused:
            raise SchemaError("the schema registry rejects a version", subject=subject)
        return super().register(subject, schema)


def test_changes_of_an_unknown_table_are_parked_while_its_values_are_refused():
    registry = Refusing("p.t-value")
    bench = Bench(known=None, catalogue=Catalogue(TABLE), registry=registry)
    record = record_of("good", "unreadable")

    refused = bench.translate(record)

    assert refused.messages == ()
    assert [change.reason for change in refused.parked] == ["SchemaError"] * 2
    assert bench.plain.encoding("t") is None
    # Their places are those that the same changes have once the values are accepted.
    registry.refused.clear()
    bench.clock.now_us += ANSWER_HOLDS_US
    accepted = bench.translate(record_of("good", "good"))
    assert [(m.topic, m.key, m.order_key, m.mod) for m in accepted.messages] == [
        (c.topic, c.key, c.order_key, c.mod) for c in refused.parked
    ]


def test_a_version_that_the_registry_refuses_is_asked_for_once_for_all_changes_of_a_record():
    registry = Refusing("p.t-value")
    asked = []
    register = registry.register
    registry.register = lambda subject, schema: asked.append(subject) or register(subject, schema)
    bench = Bench(known=None, catalogue=Catalogue(TABLE), registry=registry)

    parked = bench.translate(record_of("good", "good", "good")).parked

    assert [change.reason for change in parked] == ["SchemaError"] * 3
    assert asked.count("p.t-value") == 1


def test_many_records_that_are_parked_ask_once_in_some_seconds():
    registry = Refusing("p.t-value")
    asked = []
    register = registry.register
    registry.register = lambda subject, schema: asked.append(subject) or register(subject, schema)
    refused = Bench(known=None, catalogue=Catalogue(TABLE), registry=registry)
    too_large = Bench()
    for _ in range(50):
        assert len(refused.translate(record_of("good")).parked) == 1
        assert len(too_large.translate(record_of(*["large"] * 10)).parked) == 10

    assert len(refused.catalogue.asked) == asked.count("p.t-value") == 1
    assert too_large.limits.refreshed == 1


def test_an_unknown_table_whose_key_is_refused_stops_as_without_parking():
    bench = Bench(known=None, catalogue=Catalogue(TABLE), registry=Refusing("p.t-key"))

    with pytest.raises(SchemaError, match=r"cannot be parked either.*unknown") as caught:
        bench.translate(record_of("good"))
    assert caught.value.fields["subject"] == "p.t-key"


def test_a_later_table_whose_topic_is_refused_is_parked_until_there_is_one():
    bench = Bench(known=None, catalogue=Catalogue(TABLE))
    bench.topics.refusal = TopicRefused("cannot create topic p.t", topic="p.t")
    (parked,) = bench.translate(record_of("good")).parked
    assert (parked.topic, parked.reason) == ("p.t", "TopicRefused")


def test_a_registry_that_does_not_answer_parks_nothing_of_an_unknown_table():
    class Away(InMemorySchemaRegistry):
        def register(self, subject, schema):
            raise UnreachableError("no registry")

    bench = Bench(known=None, catalogue=Catalogue(TABLE), registry=Away())
    with pytest.raises(UnreachableError):
        bench.translate(record_of("good"))
    assert not bench.reports


def test_a_start_leaves_refused_tables_out_only_where_their_changes_are_parked():
    other = TableSchema("other", TABLE.columns)
    registrar = TableRegistrar(TopicNames("p"), Refusing("p.t-value"))

    (found,) = registered(registrar, [TABLE, other], parks=True, has_begun=False)
    assert found.table.name == "other"
    with pytest.raises(SchemaError):
        list(registered(registrar, [TABLE, other], parks=False, has_begun=False))
    registrar = TableRegistrar(TopicNames("p"), Refusing("p.t-key"))
    with pytest.raises(SchemaError):
        list(registered(registrar, [TABLE, other], parks=True, has_begun=False))


def test_a_stream_that_has_begun_goes_on_without_what_cannot_be_published():
    odd = Column("odd", ColumnType("RANGE<DATE>"), 3)
    umlaut = Column("größe", ColumnType("INT64"), 4)
    tables = [
        TableSchema("refused", TABLE.columns),
        TableSchema("grown", (*TABLE.columns, odd, umlaut)),
        TableSchema("odd_key", (replace(odd, key_position=1),)),
        TableSchema("no_key", (odd,)),
        TableSchema("t__backfill", TABLE.columns),
        TableSchema("x" * 300, TABLE.columns),
        TableSchema("other", TABLE.columns),
    ]
    for parks in (True, False):
        registry = Refusing("p.refused-value")
        found = list(
            registered(TableRegistrar(TopicNames("p"), registry), tables, parks=parks,
                       has_begun=True)
        )  # fmt: skip
        assert [one.table for one in found] == [TableSchema("grown", TABLE.columns), tables[-1]]
        assert not any("backfill" in subject for subject in registry.subjects)


def test_a_start_with_the_other_form_of_timestamps_is_an_error_where_changes_are_parked_too():
    registry = InMemorySchemaRegistry()
    TableRegistrar(TopicNames("p"), registry).register(TABLE)
    other = TableRegistrar(TopicNames("p"), registry, TimestampForm.STRING)
    with pytest.raises(IncompatibleChange) as caught:
        list(registered(other, [TABLE], parks=True, has_begun=False))
    assert "timestamps" in caught.value.hint


def test_a_start_with_a_registry_that_drops_what_readers_need_is_an_error_too():
    registrar = TableRegistrar(TopicNames("p"), DroppingRegistry())
    table = replace(TABLE, excludes=("exclude_insert",))
    with pytest.raises(SchemaNotKept):
        list(registered(registrar, [table], parks=True, has_begun=False))


def test_a_column_type_that_tidegate_does_not_know_parks_the_changes():
    bench = Bench(catalogue=Catalogue(None, *[SchemaError("an unknown column type")] * 9))

    translated = bench.translate(record_of("good", "unknown column"))

    assert len(translated.messages) == 1
    assert [change.reason for change in translated.parked] == ["SchemaError"]


@pytest.mark.parametrize("error", [UnreachableError("no registry"), QueryInterrupted("no answer")])
def test_what_may_pass_parks_nothing(error):
    bench = Bench(catalogue=Catalogue(TABLE, *[error] * 9))

    with pytest.raises(type(error)):
        bench.translate(record_of("good", "unknown column"))
    assert not bench.reports


@pytest.mark.parametrize(
    ("fields", "mods", "why"),
    [
        ({}, (Mod({"id": "x"}, unreadable(), {}),), "INT64"),
        ({}, (Mod({}, unreadable(), {}),), "primary key"),
        ({}, (Mod({"id": "1", "more": "2"}, unreadable(), {}),), "primary key"),
        ({"columns": (RecordColumn("id", STRING, True, 1),)}, (mod("good", 1),), "another type"),
        ({"table_name": "other", "columns": ODD_KEY}, (mod("good", 1),), "table is unknown"),
        ({"record_sequence": "x"}, (mod("good", 1),), "record sequence"),
        ({"server_transaction_id": "\0"}, (mod("good", 1),), "NUL"),
        ({"commit_timestamp_ns": -1_000}, (mod("good", 1),), "order key"),
        ({"record_sequence": "x"}, (), "no change"),
    ],
)
def test_a_change_whose_key_or_place_is_unknown_is_refused_as_without_parking(fields, mods, why):
    bench = Bench(catalogue=Catalogue(None))
    record = RECORD._replace(mods=mods, **fields)

    with pytest.raises((SchemaError, IncompatibleChange)) as without:
        bench.limited.translate(record, token="token")
    with pytest.raises(type(without.value), match="cannot be parked") as caught:
        bench.translate(record)

    assert why in str(caught.value)
    assert caught.value.fields == without.value.fields
    assert not bench.reports


def test_a_change_that_the_dead_letter_topic_does_not_take_is_refused():
    fitting = Bench().translate(record_of("large")).parked[0].size_bytes
    assert Bench(limits=Limits(fitting)).translate(record_of("large")).parked

    with pytest.raises(MessageTooLarge, match="cannot be parked") as caught:
        Bench(limits=Limits(fitting - 1)).translate(record_of("large"))
    assert DEAD_LETTER in str(caught.value)
    assert caught.value.fields["topic"] == "p.t"


def test_values_that_json_cannot_hold_are_refused():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    record = RECORD._replace(mods=(Mod({"id": "1"}, {"at": "never", "note": deep}, {}),))

    with pytest.raises(SchemaError, match="cannot be parked"):
        Bench().translate(record)


def test_a_long_error_is_cut():
    (change,) = (
        Bench().translate(RECORD._replace(mods=(Mod({"id": "1"}, {"at": "y" * 5_000}, {}),))).parked
    )

    assert len(change.error) <= ERROR_CHARACTERS_MAX
