"""A translator that reads a changed table's schema again, once per change."""

import io
import threading

import fastavro
import pytest

from tests.unit.producer.translation.test_fresh_answers import Clock
from tidegate.producer.errors import IncompatibleChange, QueryInterrupted, TopicRefused
from tidegate.producer.records import DataChangeRecord, Mod, RecordColumn
from tidegate.producer.translation.fresh_answers import ANSWER_HOLDS_US
from tidegate.producer.translation.refreshing import RefreshingTranslator
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import unframe

INT64, STRING = ColumnType("INT64"), ColumnType("STRING")
OLD = TableSchema("t", (Column("id", INT64, 1, key_position=1),))
NEW = TableSchema("t", (*OLD.columns, Column("added", INT64, 2)))
RECORD = DataChangeRecord(
    commit_timestamp_ns=5_000,
    record_sequence="00000000",
    server_transaction_id="tx",
    is_last_record_in_transaction_in_partition=True,
    table_name="t",
    columns=(RecordColumn("id", INT64, True, 1), RecordColumn("added", INT64, False, 2)),
    mods=(Mod({"id": "1"}, {"added": "2"}, {}),),
    mod_type="INSERT",
    value_capture_type="NEW_ROW",
    number_of_records_in_transaction=1,
    number_of_partitions_in_transaction=1,
    transaction_tag="",
    is_system_transaction=False,
)


class Catalogue:
    """Has one table; `failures` are raised by the first calls."""

    def __init__(self, table, *failures):
        self.current = table
        self.failures = list(failures)
        self.asked = []

    def table(self, name, *, stream, read_ns=None):
        assert stream == "s"
        self.asked.append(name)
        if self.failures:
            raise self.failures.pop(0)
        return self.current


class Topics:
    """Notes which topics had to exist."""

    def __init__(self):
        self.ensured = []
        self.key_schema_ids = []
        self.refusal = None

    def ensure(self, topic, *, key_schema_id):
        if self.refusal is not None:
            raise self.refusal
        self.ensured.append(topic)
        self.key_schema_ids.append(key_schema_id)


class Refusing(InMemorySchemaRegistry):
    """Refuses versions of some subjects, and notes each attempt."""

    def __init__(self, *refused):
        super().__init__()
        self.refused, self.attempts = set(refused), 0

    def register(self, subject, schema):
        if subject in self.refused:
            self.attempts += 1
            raise SchemaError("the schema registry rejects a version", subject=subject)
        return super().register(subject, schema)


class Bench:
    """A translator that knows a table, over a catalogue and a registry in memory."""

    def __init__(self, known, catalogue, *, kind=Translator, lock=None, refused=()):
        self.registry, self.clock = Refusing(), Clock()
        registrar = TableRegistrar(TopicNames("p"), self.registry)
        encodings = {} if known is None else {known.name: registrar.register(known)}
        self.registry.refused = set(refused)
        self.translator = kind(encodings, change_stream="s")
        self.catalogue = catalogue
        self.topics, self.registrar = Topics(), registrar
        self.refreshing = RefreshingTranslator(
            self.translator,
            catalogue,
            registrar,
            self.topics,
            lock=lock,
            clock_us=self.clock,
        )

    def translate(self, record=RECORD):
        return self.refreshing.translate(record, token="k").messages

    def refuse(self, record=RECORD, *, count=50):
        """Translate changes that are refused; return the reads of the catalogue, and attempts."""
        for _ in range(count):
            with pytest.raises((SchemaError, IncompatibleChange)) as caught:
                self.translate(record)
            assert caught.value.fields["table" if self.registry.attempts == 0 else "subject"]
        return len(self.catalogue.asked), self.registry.attempts

    @property
    def columns(self):
        return self.translator.encoding("t").table.column_names


def test_a_known_table_is_not_read_again():
    bench = Bench(NEW, Catalogue(NEW))
    bench.translate()

    assert bench.catalogue.asked == []


def test_without_waiting_nothing_is_refreshed():
    bench = Bench(OLD, Catalogue(NEW))
    assert bench.refreshing.translate_now(RECORD, token="k") is None
    assert bench.catalogue.asked == []

    translated = bench.refreshing.translate(RECORD, token="k")
    assert bench.refreshing.translate_now(RECORD, token="k") == translated


def test_an_unknown_column_refreshes_its_table_once():
    bench = Bench(OLD, Catalogue(NEW))
    former = bench.translator.encoding("t")
    (first,), (second,) = bench.translate(), bench.translate()
    current = bench.translator.encoding("t")

    assert bench.catalogue.asked == ["t"]
    assert bench.columns == {"id", "added"}
    assert first.value == second.value
    assert current.key.schema_id == former.key.schema_id
    assert current.value.schema_id != former.value.schema_id
    assert len(bench.registry.subjects["p.t-value"]) == 2


@pytest.mark.parametrize("current", [OLD, None], ids=["column dropped", "table dropped"])
def test_what_was_dropped_since_is_taken_from_the_record(current):
    bench = Bench(OLD, Catalogue(current))

    assert bench.translate()
    assert bench.columns == {"id", "added"}


def test_a_table_that_was_created_later_is_picked_up_with_its_topic():
    bench = Bench(None, Catalogue(NEW))
    (message,) = bench.translate()

    assert message.topic == "p.t"
    assert bench.topics.ensured == ["p.t"]
    assert bench.columns == {"id", "added"}
    assert set(bench.registry.subjects) == {"p.t-key", "p.t-value"}
    bench.translate()
    assert bench.topics.ensured == ["p.t"]


def test_a_topic_that_cannot_be_created_leaves_the_table_unknown():
    bench = Bench(None, Catalogue(NEW))
    bench.topics.refusal = TopicRefused("cannot create topic p.t", topic="p.t")
    for _ in range(50):
        with pytest.raises(TopicRefused, match=r"p\.t"):
            bench.translate()
    assert bench.catalogue.asked == ["t"]
    # Its changes can be parked.
    assert bench.translator.place(RECORD).topic == "p.t"

    bench.topics.refusal = None
    bench.clock.now_us += ANSWER_HOLDS_US
    assert bench.translate()


def test_the_records_of_a_table_that_was_dropped_before_the_start_are_read():
    """Its key has the order that the registered schema has, which no record shows."""
    two_keys = TableSchema(
        "t",
        (
            Column("id", INT64, 1, key_position=2),
            Column("region", STRING, 2, key_position=1),
            Column("gone", INT64, 3),
        ),
    )
    record = RECORD._replace(
        columns=(
            RecordColumn("id", INT64, True, 1),
            RecordColumn("region", STRING, True, 2),
            RecordColumn("gone", INT64, False, 3),
        ),
        mods=(Mod({"id": "1", "region": "eu"}, {"gone": "2"}, {}),),
    )
    bench = Bench(None, Catalogue(None))
    before = bench.registrar.register(two_keys)
    (message,) = bench.translate(record)

    schema_id, key = unframe(message.key)
    assert schema_id == before.key.schema_id
    assert key == b"\x02\x04eu\x02\x02"
    assert bench.translator.encoding("t").value.schema_id == before.value.schema_id
    assert bench.topics.ensured == ["p.t"]


def test_a_table_that_no_worker_has_seen_before_its_drop_is_read():
    bench = Bench(None, Catalogue(None))

    assert bench.translate()
    assert bench.columns == {"id", "added"}


def test_a_refresh_that_does_not_help_is_an_error():
    """The mod holds a column that neither the catalogue nor the record's columns name."""
    record = RECORD._replace(columns=RECORD.columns[:1])

    with pytest.raises(IncompatibleChange, match=r"added.*cannot follow"):
        Bench(OLD, Catalogue(OLD)).translate(record)


def test_a_change_that_is_undone_is_followed_again():
    """A column got another type; once it has its own again, its records are read on."""
    other = TableSchema("t", (*OLD.columns, Column("added", STRING, 2)))
    third = Column("third", INT64, 3)
    bench = Bench(NEW, Catalogue(TableSchema("t", (*other.columns, third))))
    record = RECORD._replace(
        columns=(*RECORD.columns, RecordColumn("third", INT64, False, 3)),
        mods=(Mod({"id": "1"}, {"added": "2", "third": "3"}, {}),),
    )
    with pytest.raises(IncompatibleChange, match="another type"):
        bench.translate(record)
    bench.catalogue.current = TableSchema("t", (*NEW.columns, third))
    bench.clock.now_us += ANSWER_HOLDS_US
    assert bench.translate(record)
    assert bench.columns == {"id", "added", "third"}


def test_a_failed_refresh_is_raised_and_retried_with_the_next_record():
    bench = Bench(OLD, Catalogue(NEW, QueryInterrupted("no answer")))
    with pytest.raises(QueryInterrupted):
        bench.translate()

    assert bench.translate()
    assert bench.catalogue.asked == ["t", "t"]


def test_threads_that_meet_one_change_refresh_once():
    all_failed = threading.Barrier(4)

    class Meeting(Translator):
        """Every thread's first failure waits for those of the others."""

        met = threading.local()

        def translate(self, record, *, token):
            try:
                return super().translate(record, token=token)
            except Exception:
                if not hasattr(self.met, "once"):
                    self.met.once = True
                    all_failed.wait(20)
                raise

    bench = Bench(OLD, Catalogue(NEW), kind=Meeting)
    results = []
    threads = [threading.Thread(target=lambda: results.append(bench.translate())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len(results) == 4
    assert bench.catalogue.asked == ["t"]


def test_a_refresh_for_another_change_is_not_taken_for_this_one():
    """Two threads meet two dropped columns; each must learn its own from its record."""
    other = RECORD._replace(
        columns=(RECORD.columns[0], RecordColumn("other", INT64, False, 3)),
        mods=(Mod({"id": "1"}, {"other": "2"}, {}),),
    )

    class Overtaken:
        """The first thread that wants the lock gets it after another one."""

        bench = None

        def __enter__(self):
            bench, self.bench = self.bench, None
            if bench is not None:
                bench.translate(other)

        def __exit__(self, *_):
            pass

    lock = Overtaken()
    bench = Bench(OLD, Catalogue(OLD), lock=lock)
    lock.bench = bench

    assert bench.translate()
    assert bench.columns == {"id", "added", "other"}


def values_of(bench, message):
    """The row after the change, and the captured columns, read with the newest schema."""
    schema_id, body = unframe(message.value)
    schema = fastavro.parse_schema(bench.registry.schema(schema_id))
    found = fastavro.schemaless_reader(io.BytesIO(body), schema, None)
    return found["new_values"], found["new_columns"]


def renamed(record, columns, **values):
    """The record with other columns behind `id`."""
    shown = (RECORD.columns[0], *(RecordColumn(name, kind, False, 2) for name, kind in columns))
    return record._replace(columns=shown, mods=(Mod({"id": "1"}, values, {}),))


OF_ANOTHER_CASE = TableSchema("t", (*OLD.columns, Column("ADDED", INT64, 2)))


@pytest.mark.parametrize("is_known", [True, False], ids=["running", "started later"])
def test_a_column_that_comes_back_in_another_case_is_the_same_column(is_known):
    bench = Bench(NEW, Catalogue(OF_ANOTHER_CASE))
    if not is_known:  # a worker that starts after the column has changed
        other = Bench(None, Catalogue(OF_ANOTHER_CASE))
        other.registrar._registry = other.registry = bench.registry
        bench = other
    for name in ("ADDED", "added", "Added"):  # late records of the dropped one among them
        record = renamed(RECORD, [(name, INT64)], **{name: "7"})
        (message,) = bench.translate(record)
        assert values_of(bench, message) == ({"id": 1, "added": 7}, ["id", "added"])
        assert bench.translator.place(record).key == message.key
    assert len(bench.registry.subjects["p.t-value"]) == 1
    bench.catalogue.current = TableSchema("t", (*OLD.columns, Column("ADDED", STRING, 2)))
    with pytest.raises(IncompatibleChange, match="another type"):
        bench.translate(renamed(RECORD, [("ADDED", STRING)], ADDED="x"))


def test_a_key_that_comes_back_in_another_case_is_the_same_key():
    bench = Bench(None, Catalogue(TableSchema("t", (Column("ID", INT64, 1, key_position=1),))))
    before = bench.registrar.register(OLD)
    shown = (RecordColumn("ID", INT64, True, 1),)
    record = RECORD._replace(columns=shown, mods=(Mod({"ID": "1"}, {}, {}),))
    (message,) = bench.translate(record)
    assert unframe(message.key) == (before.key.schema_id, b"\x02\x02")
    assert bench.translator.place(record).key == message.key
    assert values_of(bench, message) == ({"id": 1}, ["id"])


def test_the_rows_beside_a_table_have_its_columns_names():
    bench = Bench(NEW, Catalogue(OF_ANOTHER_CASE))
    record = renamed(RECORD, [("ADDED", INT64)], ADDED="7")._replace(table_name="t__backfill")
    bench.catalogue.current = TableSchema("t__backfill", OF_ANOTHER_CASE.columns)
    (message,) = bench.translate(record)
    assert message.topic == "p.t__backfill"
    assert values_of(bench, message) == ({"id": 1, "added": 7}, ["id", "added"])


@pytest.mark.parametrize("known", [OLD, None], ids=["known", "unknown"])
def test_two_columns_of_one_name_are_refused_by_name(known):
    both = TableSchema("t", (*NEW.columns, Column("ADDED", INT64, 3)))
    bench = Bench(known, Catalogue(both))
    record = renamed(RECORD, [("added", INT64), ("ADDED", INT64)], added="1", ADDED="2")
    with pytest.raises(SchemaError, match=r"differ in case.*ADDED"):
        bench.translate(record)


ODD = ColumnType("RANGE<DATE>")
WITH_ODD = TableSchema("t", (*OLD.columns, Column("added", ODD, 2), Column("third", INT64, 3)))
THIRD = RecordColumn("third", INT64, False, 3)


@pytest.mark.parametrize("known", [OLD, None], ids=["column", "table"])
def test_a_column_of_an_unknown_type_concerns_only_the_records_that_show_it(known):
    bench = Bench(known, Catalogue(WITH_ODD))
    without = RECORD._replace(
        columns=(RECORD.columns[0], THIRD), mods=(Mod({"id": "1"}, {"third": "2"}, {}),)
    )
    assert bench.translate(without)
    assert bench.columns == {"id", "third"}
    shown = (RECORD.columns[0], RecordColumn("added", ODD, False, 2))
    with pytest.raises(SchemaError, match=r"unsupported column type.*RANGE<DATE>") as caught:
        bench.translate(RECORD._replace(columns=shown))
    assert caught.value.fields == {"type": ODD.code, "table": "t", "column": "added"}
    assert bench.translate(without)

    # A record names the type by its code, whatever the catalogue's notation is.
    assert bench.translate(RECORD)
    assert bench.columns == {"id", "added", "third"}
    assert bench.translate(without)


def test_a_key_column_of_an_unknown_notation_has_the_type_that_records_show():
    odd_key = TableSchema("t", (Column("id", ODD, 1, key_position=1), *NEW.columns[1:]))
    bench = Bench(None, Catalogue(odd_key))
    (first,) = bench.translate()
    bench.catalogue.current = TableSchema("t", (*odd_key.columns, Column("third", INT64, 3)))
    (second,) = bench.translate(RECORD._replace(columns=(*RECORD.columns, THIRD)))
    assert first.key == second.key
    assert bench.columns == {"id", "added", "third"}


ADDED_AS_TEXT = (RECORD.columns[0], RecordColumn("added", STRING, False, 2))


@pytest.mark.parametrize("known", [OLD, None], ids=["column", "table"])
def test_a_table_that_the_registry_refuses_is_asked_for_once_in_some_seconds(known):
    bench = Bench(known, Catalogue(NEW), refused=["p.t-value"])

    assert bench.refuse() == (1, 1)
    bench.clock.now_us += ANSWER_HOLDS_US - 1
    assert bench.refuse() == (1, 1)
    bench.clock.now_us += 1
    assert bench.refuse() == (2, 2)


def test_a_registry_that_is_repaired_is_seen_after_some_seconds():
    bench = Bench(OLD, Catalogue(NEW), refused=["p.t-value"])
    bench.refuse()

    bench.registry.refused.clear()
    bench.clock.now_us += ANSWER_HOLDS_US
    assert bench.translate()


def test_a_table_that_changed_in_a_way_that_its_schema_cannot_follow_is_asked_for_once():
    bench = Bench(NEW, Catalogue(NEW))

    assert bench.refuse(RECORD._replace(columns=ADDED_AS_TEXT)) == (1, 0)


def test_a_refusal_is_of_the_columns_that_the_record_shows():
    other = RECORD._replace(columns=(*RECORD.columns, RecordColumn("more", STRING, False, 3)))
    bench = Bench(OLD, Catalogue(NEW), refused=["p.t-value"])
    bench.refuse()

    bench.registry.refused.clear()
    assert bench.translate(other)
    # The columns of the first are known by now, and nothing has to be asked.
    assert bench.translate()
    assert bench.catalogue.asked == ["t", "t"]


def test_a_refusal_for_a_column_that_only_values_name_says_nothing_of_another_one():
    shown = RECORD.columns[:1]
    bench = Bench(OLD, Catalogue(OLD))
    bench.refuse(RECORD._replace(columns=shown))

    bench.catalogue.current = TableSchema("t", (*OLD.columns, Column("other", INT64, 3)))
    assert bench.translate(
        RECORD._replace(columns=shown, mods=(Mod({"id": "1"}, {"other": "2"}, {}),))
    )


def test_a_value_that_its_column_cannot_hold_refuses_no_other_change():
    damaged = RECORD._replace(mods=(Mod({"id": "1"}, {"added": "no number"}, {}),))
    bench = Bench(OLD, Catalogue(NEW))
    with pytest.raises(SchemaError):
        bench.translate(damaged)

    assert bench.translate()
