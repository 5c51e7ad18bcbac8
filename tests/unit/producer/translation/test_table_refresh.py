"""Changed tables are read again, and raised limits too: once in some seconds, by one thread."""

import pytest

from tests.unit.producer.translation.translation_building import (
    INT64,
    NEW,
    OLD,
    RECORD,
    STRING,
    Catalogue,
    Clock,
    Refusing,
    Topics,
    columns_of,
    read_framed,
)
from tidegate.producer.errors import (
    IncompatibleChange,
    MessageTooLarge,
    QueryInterrupted,
    TopicRefused,
)
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.producer.records import Mod, RecordColumn
from tidegate.producer.translation import table_refresh
from tidegate.producer.translation.pipeline import SizeLimits, TranslationPipeline
from tidegate.producer.translation.table_refresh import (
    ANSWER_HOLDS_US,
    FreshAnswers,
    TableRefresher,
    monotonic_us,
)
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.errors import SchemaError, UnreachableError
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import unframe


class Overtaken:
    """A lock: the first thread that wants it gets it after another one did something."""

    meanwhile = None

    def __enter__(self):
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()

    def __exit__(self, *_):
        pass


class Bench:
    """A translator that knows a table, over a catalogue and a registry in memory."""

    def __init__(self, known, current, *failures, lock=None, refused=()):
        self.registry, self.clock, self.topics = Refusing(), Clock(), Topics()
        self.registrar = TableRegistrar(TopicNames("p"), self.registry)
        encodings = {} if known is None else {known.name: self.registrar.register(known)}
        self.registry.refused = set(refused)
        self.translator = Translator(encodings, change_stream="s")
        self.catalogue = Catalogue(current, *failures)
        self.refresher = TableRefresher(
            self.translator, self.catalogue, self.registrar, self.topics,
            lock=lock, clock_us=self.clock,
        )  # fmt: skip
        self.pipeline = TranslationPipeline(self.translator, self.refresher)

    def translate(self, record=RECORD):
        return self.pipeline.translate(record, token="k").messages

    def refuse(self, record=RECORD):
        """Translate changes that are refused; return the reads of the catalogue, and attempts."""
        for _ in range(50):
            with pytest.raises((SchemaError, IncompatibleChange)) as caught:
                self.translate(record)
            assert caught.value.fields["table" if self.registry.attempts == 0 else "subject"]
        return len(self.catalogue.asked), self.registry.attempts

    def row(self, record):
        """The row after the change, and the captured columns, read with the newest schema."""
        (message,) = self.translate(record)
        value = read_framed(message.value, self.registry.schema)
        assert self.translator.place(record).key == message.key
        return value["new_values"], value["new_columns"]

    @property
    def columns(self):
        return self.translator.encoding("t").table.column_names


def shown(*columns, **values):
    """The record with other columns after `id`."""
    columns_shown = (RecordColumn(name, kind, False, 2) for name, kind in columns)
    mods = (Mod({"id": "1"}, values, {}),)
    return RECORD._replace(columns=(RECORD.columns[0], *columns_shown), mods=mods)


def test_an_unknown_column_refreshes_its_table_once():
    bench = Bench(OLD, NEW)
    former = bench.translator.encoding("t")
    assert bench.pipeline.translate_now(RECORD, token="k") is None  # without waiting
    assert bench.catalogue.asked == []
    (first,), (second,) = bench.translate(), bench.translate()
    current = bench.translator.encoding("t")
    assert bench.pipeline.translate_now(RECORD, token="k").messages == (first,)
    assert bench.catalogue.asked == ["t"]
    assert bench.columns == {"id", "added"}
    assert first.value == second.value
    assert current.key.schema_id == former.key.schema_id
    assert current.value.schema_id != former.value.schema_id
    assert len(bench.registry.subjects["p.t-value"]) == 2


@pytest.mark.parametrize(("known", "current"), [(OLD, OLD), (OLD, None), (None, None)])
def test_what_was_dropped_since_is_taken_from_the_record(known, current):
    bench = Bench(known, current)
    assert bench.translate()
    assert bench.columns == {"id", "added"}


def test_a_topic_that_cannot_be_created_leaves_the_table_unknown():
    bench = Bench(None, NEW)
    bench.topics.refusal = TopicRefused("cannot create topic p.t", topic="p.t")
    for _ in range(50):
        with pytest.raises(TopicRefused, match=r"p\.t"):
            bench.translate()
    assert bench.catalogue.asked == ["t"]
    # Its changes can be parked.
    assert bench.translator.place(RECORD).topic == "p.t"
    bench.topics.refusal = None
    bench.clock.now_us += ANSWER_HOLDS_US
    (message,) = bench.translate()
    assert (message.topic, bench.columns) == ("p.t", {"id", "added"})
    bench.translate()
    assert bench.topics.ensured == ["p.t"]


def test_the_records_of_a_table_that_was_dropped_before_the_start_are_read():
    """Its key has the order that the registered schema has, which no record shows."""
    columns = (Column("id", INT64, 1, 2), Column("region", STRING, 2, 1), Column("gone", INT64, 3))
    record = RECORD._replace(
        columns=columns_of(TableSchema("t", columns)),
        mods=(Mod({"id": "1", "region": "eu"}, {"gone": "2"}, {}),),
    )
    bench = Bench(None, None)
    before = bench.registrar.register(TableSchema("t", columns))
    (message,) = bench.translate(record)
    assert unframe(message.key) == (before.key.schema_id, b"\x02\x04eu\x02\x02")
    assert bench.translator.encoding("t").value.schema_id == before.value.schema_id
    assert bench.topics.ensured == ["p.t"]


def test_a_refresh_that_does_not_help_is_an_error():
    """The mod holds a column that neither the catalogue nor the record's columns name."""
    with pytest.raises(IncompatibleChange, match=r"added.*cannot follow"):
        Bench(OLD, OLD).translate(RECORD._replace(columns=RECORD.columns[:1]))


def test_a_change_that_is_undone_is_followed_again():
    """A column got another type; once it has its own again, its records are read on."""
    third = Column("third", INT64, 3)
    bench = Bench(NEW, TableSchema("t", (*OLD.columns, Column("added", STRING, 2), third)))
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
    # A failed refresh is raised, and retried with the next record.
    bench = Bench(OLD, NEW, QueryInterrupted("no answer"))
    with pytest.raises(QueryInterrupted):
        bench.translate()
    assert bench.translate()
    assert bench.catalogue.asked == ["t", "t"]


def test_threads_that_meet_one_change_refresh_once_and_those_of_two_for_each():
    lock = Overtaken()
    bench = Bench(OLD, NEW, lock=lock)
    lock.meanwhile = bench.translate
    assert bench.translate()
    assert lock.meanwhile is None
    assert bench.catalogue.asked == ["t"]
    # Of two dropped columns each is learnt from its own record.
    bench = Bench(OLD, OLD, lock=lock)
    lock.meanwhile = lambda: bench.translate(shown(("other", INT64), other="2"))
    assert bench.translate()
    assert bench.columns == {"id", "added", "other"}


OF_ANOTHER_CASE = TableSchema("t", (*OLD.columns, Column("ADDED", INT64, 2)))


@pytest.mark.parametrize("is_known", [True, False], ids=["running", "started later"])
def test_a_column_that_comes_back_in_another_case_is_the_same_column(is_known):
    bench = Bench(NEW, OF_ANOTHER_CASE)
    if not is_known:  # a worker that starts after the column has changed
        other = Bench(None, OF_ANOTHER_CASE)
        other.registrar._registry = other.registry = bench.registry
        bench = other
    for name in ("ADDED", "added", "Added"):  # late records of the dropped one among them
        row = bench.row(shown((name, INT64), **{name: "7"}))
        assert row == ({"id": 1, "added": 7}, ["id", "added"])
    assert len(bench.registry.subjects["p.t-value"]) == 1
    bench.catalogue.current = TableSchema("t", (*OLD.columns, Column("ADDED", STRING, 2)))
    with pytest.raises(IncompatibleChange, match="another type"):
        bench.translate(shown(("ADDED", STRING), ADDED="x"))


def test_a_key_that_comes_back_in_another_case_is_the_same_key():
    bench = Bench(None, TableSchema("t", (Column("ID", INT64, 1, key_position=1),)))
    before = bench.registrar.register(OLD)
    columns = (RecordColumn("ID", INT64, True, 1),)
    record = RECORD._replace(columns=columns, mods=(Mod({"ID": "1"}, {}, {}),))
    (message,) = bench.translate(record)
    assert unframe(message.key) == (before.key.schema_id, b"\x02\x02")
    assert bench.row(record) == ({"id": 1}, ["id"])


def test_the_rows_beside_a_table_have_its_columns_names():
    bench = Bench(NEW, TableSchema("t__backfill", OF_ANOTHER_CASE.columns))
    record = shown(("ADDED", INT64), ADDED="7")._replace(table_name="t__backfill")
    assert bench.row(record) == ({"id": 1, "added": 7}, ["id", "added"])
    assert bench.translate(record)[0].topic == "p.t__backfill"


@pytest.mark.parametrize("known", [OLD, None], ids=["known", "unknown"])
def test_two_columns_of_one_name_are_refused_by_name(known):
    bench = Bench(known, TableSchema("t", (*NEW.columns, Column("ADDED", INT64, 3))))
    with pytest.raises(SchemaError, match=r"differ in case.*ADDED"):
        bench.translate(shown(("added", INT64), ("ADDED", INT64), added="1", ADDED="2"))


ODD = ColumnType("RANGE<DATE>")
WITH_ODD = TableSchema("t", (*OLD.columns, Column("added", ODD, 2), Column("third", INT64, 3)))
THIRD = RecordColumn("third", INT64, False, 3)


@pytest.mark.parametrize("known", [OLD, None], ids=["column", "table"])
def test_a_column_of_an_unknown_type_concerns_only_the_records_that_show_it(known):
    bench = Bench(known, WITH_ODD)
    without = shown(("third", INT64), third="2")
    assert bench.translate(without)
    assert bench.columns == {"id", "third"}
    with pytest.raises(SchemaError, match=r"unsupported column type.*RANGE<DATE>") as caught:
        bench.translate(shown(("added", ODD), added="2"))
    assert caught.value.fields == {"type": ODD.code, "table": "t", "column": "added"}
    assert bench.translate(without)
    # A record names the type by its code, whatever the catalogue's notation is.
    assert bench.translate(RECORD)
    assert bench.columns == {"id", "added", "third"}
    assert bench.translate(without)


def test_a_key_column_of_an_unknown_notation_has_the_type_that_records_show():
    odd_key = TableSchema("t", (Column("id", ODD, 1, key_position=1), *NEW.columns[1:]))
    bench = Bench(None, odd_key)
    (first,) = bench.translate()
    bench.catalogue.current = TableSchema("t", (*odd_key.columns, Column("third", INT64, 3)))
    (second,) = bench.translate(RECORD._replace(columns=(*RECORD.columns, THIRD)))
    assert first.key == second.key
    assert bench.columns == {"id", "added", "third"}


@pytest.mark.parametrize("known", [OLD, None], ids=["column", "table"])
def test_a_table_that_the_registry_refuses_is_asked_for_once_in_some_seconds(known):
    bench = Bench(known, NEW, refused=["p.t-value"])
    assert bench.refuse() == (1, 1)
    bench.clock.now_us += ANSWER_HOLDS_US - 1
    assert bench.refuse() == (1, 1)
    bench.clock.now_us += 1
    assert bench.refuse() == (2, 2)
    # Once the registry is repaired, that is seen as soon.
    bench.registry.refused.clear()
    bench.clock.now_us += ANSWER_HOLDS_US
    assert bench.translate()


def test_a_refusal_is_of_the_columns_that_the_record_shows():
    other = RECORD._replace(columns=(*RECORD.columns, RecordColumn("more", STRING, False, 3)))
    bench = Bench(OLD, NEW, refused=["p.t-value"])
    bench.refuse()
    bench.registry.refused.clear()
    assert bench.translate(other)
    # The columns of the first are known by now, and nothing has to be asked.
    assert bench.translate()
    assert bench.catalogue.asked == ["t", "t"]


def test_a_refusal_for_a_column_that_only_values_name_says_nothing_of_another_one():
    bench = Bench(OLD, OLD)
    bench.refuse(shown(added="2"))
    bench.catalogue.current = TableSchema("t", (*OLD.columns, Column("other", INT64, 3)))
    assert bench.translate(shown(other="2"))


def test_a_value_that_its_column_cannot_hold_refuses_no_other_change():
    bench = Bench(OLD, NEW)
    with pytest.raises(SchemaError):
        bench.translate(RECORD._replace(mods=(Mod({"id": "1"}, {"added": "no number"}, {}),)))
    assert bench.translate()


TWO_CHANGES = RECORD._replace(
    mods=(Mod({"id": "1"}, {}, {}), Mod({"id": "2", "region": "eu"}, {}, {}))
)


class Limits:
    """Knows `now`; says `known` until it is asked again."""

    def __init__(self, known, now=None):
        self.known, self.now = known, known if now is None else now
        self.refreshed = 0

    def bytes_max(self, topic):
        assert topic == "p.t"
        return self.known

    def refresh(self):
        self.refreshed += 1
        if isinstance(self.now, Exception):
            raise self.now
        self.known = self.now


class Fixed:
    def __init__(self, *sizes):
        self.messages = tuple(
            ChangeMessage("p.t", b"k", b"v" * size, b"order", b"I", bytes(8)) for size in sizes
        )

    def translate(self, record, *, token):
        assert token == "token"
        return PublishableRecord(7, "tx", "0", self.messages)


def pipeline(limits, *sizes, clock=None):
    fixed = Fixed(*sizes)
    return TranslationPipeline(fixed, fixed, SizeLimits(limits, clock_us=clock or Clock()))


def limited(limits, *sizes):
    translator = pipeline(limits, *sizes)
    return lambda: translator.translate(TWO_CHANGES, token="token").messages


@pytest.mark.parametrize("value_bytes", [0, 10, 100, 200, 300, 5_000])
def test_a_message_at_the_limit_passes_and_one_byte_more_does_not(value_bytes):
    (message,) = Fixed(value_bytes).messages
    limits = Limits(message.size_bytes)
    assert limited(limits, value_bytes)() == (message,)
    assert not limits.refreshed
    with pytest.raises(MessageTooLarge):
        limited(Limits(message.size_bytes - 1), value_bytes)()


def test_what_may_be_too_large_is_left_to_the_translation_that_may_block():
    limits = Limits(Fixed(5_000).messages[0].size_bytes)
    assert pipeline(limits, 5_000, 5_001).translate_now(TWO_CHANGES, token="token") is None
    translator = pipeline(limits, 5_000)
    assert translator.translate_now(TWO_CHANGES, token="token").messages == Fixed(5_000).messages
    assert not limits.refreshed


def test_the_error_names_the_record():
    with pytest.raises(MessageTooLarge) as caught:
        limited(Limits(500), 100, 1_000)()
    assert caught.value.fields == {
        "topic": "p.t", "table": "t", "key": "id=2, region=eu", "commit_timestamp_us": 7,
        "size_bytes": Fixed(1_000).messages[0].size_bytes, "limit_bytes": 500,
    }  # fmt: skip
    assert "max.message.bytes" in caught.value.hint
    assert not caught.value.retriable


def test_limits_are_read_again_once_in_some_seconds():
    raised = Limits(500, now=5_000)
    for _ in range(2):
        assert len(limited(raised, 100, 1_000)()) == 2
    assert raised.refreshed == 1
    limits, clock = Limits(500), Clock()
    translator = pipeline(limits, 100, 1_000, clock=clock)
    for later_us, refreshed in ((0, 1), (ANSWER_HOLDS_US - 1, 1), (1, 2)):
        clock.now_us += later_us
        for _ in range(50):
            with pytest.raises(MessageTooLarge):
                translator.translate(TWO_CHANGES, token="token")
        assert limits.refreshed == refreshed
    limits.now = 5_000
    clock.now_us += ANSWER_HOLDS_US
    assert len(translator.translate(TWO_CHANGES, token="token").messages) == 2


def test_limits_that_could_not_be_read_are_read_with_the_next_change():
    limits = Limits(500, now=UnreachableError("no broker"))
    translate = limited(limits, 1_000)
    for _ in range(2):
        with pytest.raises(UnreachableError) as caught:
            translate()
        assert caught.value.retriable
    assert limits.refreshed == 2


def test_of_very_many_answers_the_newest_are_kept(monkeypatch):
    monkeypatch.setattr(table_refresh, "_ANSWERS_MAX", 2)
    clock = Clock()
    answers = FreshAnswers(clock)
    assert answers.get("a") is None
    for question in ("a", "b", "a", "c"):
        answers.add(question, question)
    assert [answers.get(key) for key in "abc"] == ["a", None, "c"]
    clock.now_us += ANSWER_HOLDS_US
    assert answers.get("a") is None
    monkeypatch.setattr(table_refresh.time, "monotonic_ns", lambda: 5_999)
    assert monotonic_us() == 5
