"""Tables are registered under their topics' subjects, and value schemas only grow."""

import copy
from dataclasses import replace
from itertools import pairwise

import pytest
from greenlet import getcurrent, greenlet
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.translation.translation_building import (
    INT64,
    STRING,
    DroppingRegistry,
    Refusing,
)
from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.record_filter import RecordFilter
from tidegate.producer.translation.subjects import (
    PlannedRegistry,
    is_registered,
    register,
    require_backward,
)
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.schemas.change_schema import envelope_of, row_fields, unwatched_columns
from tidegate.schemas.errors import ConfigError, SchemaError, SchemaNotKept, UnreachableError
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames

KEY = Column("id", INT64, 1, key_position=1)
NAMES = TopicNames("bank")


def table(*names, of=INT64):
    columns = (Column(name, of, place) for place, name in enumerate(names, 2))
    return TableSchema("t", (KEY, *columns))


TABLE = table("v")


@pytest.fixture
def registry():
    return InMemorySchemaRegistry()


def registered(registry, subject, *options, **more):
    return TableRegistrar(NAMES, registry, *options, **more).register(subject)


def versions(registry):
    return [
        {name: one["type"] for name, one in row_fields(registry.schema(version)).items()}
        for version in registry.subjects["bank.t-value"]
    ]


def test_a_table_is_registered_under_its_topics_subjects(registry):
    registrar = TableRegistrar(NAMES, registry)
    assert registrar.missing(TABLE) == ["bank.t-key", "bank.t-value"]
    assert registry.subjects == registry.levels == {}
    encoding = registrar.register(TABLE)
    assert (encoding.topic, encoding.table) == ("bank.t", TABLE)
    assert set(registry.subjects) == {"bank.t-key", "bank.t-value"}
    assert registry.levels == {"bank.t-key": "BACKWARD", "bank.t-value": "BACKWARD"}
    assert registrar.key_schema_id("bank.t") == registry.subjects["bank.t-key"][0]
    # What would be registered is returned, and nothing is made.
    assert registrar.missing(TABLE) == []
    assert registrar.missing(table("v", "w")) == ["bank.t-value"]
    assert len(registry.subjects["bank.t-value"]) == 1
    registrar.register(table("v", "w"))
    assert len(registry.subjects["bank.t-key"]) == 1
    assert len(registry.subjects["bank.t-value"]) == 2


def test_a_registry_that_drops_properties_is_named_where_they_are_needed():
    registrar = TableRegistrar(NAMES, DroppingRegistry())
    assert registrar.register(TABLE).table == TABLE  # without them nothing is lost
    unwatched = replace(TABLE, columns=(KEY, replace(TABLE.columns[1], is_watched=False)))
    excluding = replace(TABLE, excludes=("exclude_insert",))
    for subject, lost in ((excluding, "excludes"), (unwatched, "watched")):
        with pytest.raises(SchemaNotKept, match=f"keep parts of a schema: {lost}") as caught:
            registrar.register(subject)
        assert (caught.value.exit_code, caught.value.retriable) == (2, False)
        assert "bank.t-value" in str(caught.value)
        # Either of what the hint names: the stream leaves nothing out, or another registry.
        assert registrar.register(TABLE).table == TABLE
        assert lost in str(registered(InMemorySchemaRegistry(), subject).value.schema)


AT_KEY = TableSchema("t", (Column("at", ColumnType("TIMESTAMP"), 1, key_position=1),))
AT = table("at", of=ColumnType("TIMESTAMP"))
LIST_AT = table("at", of=ColumnType("ARRAY", ColumnType("TIMESTAMP")))
OTHER_KEY = TableSchema("t", (Column("id", STRING, 1, key_position=1),))
AS_TEXT = {"timestamps": TimestampForm.STRING}
ENVELOPES = "envelope: the setting is 'flat', and .* value schemas have 'tidegate'"


@pytest.mark.parametrize(
    ("tables", "first", "changed", "text"),
    [
        ((TABLE, table("v", of=STRING)), {}, {}, "another type"),
        ((TABLE, OTHER_KEY), {}, {}, "primary key"),
        ((TABLE, TABLE), {}, {"envelope": Envelope.FLAT}, ENVELOPES),
        *(((one, one), {}, AS_TEXT, "timestamp") for one in (AT, LIST_AT, AT_KEY)),
        *(((one, one), AS_TEXT, {}, "timestamp") for one in (AT, LIST_AT, AT_KEY)),
    ],
)
def test_what_a_subject_cannot_follow_is_undone_or_begins_under_another_prefix(
    registry, tables, first, changed, text
):
    before, after = tables
    held = registered(registry, before, **first)
    subjects = copy.deepcopy(registry.subjects)
    registrar = TableRegistrar(NAMES, registry, **changed)
    for refuse in (registrar.register, registrar.missing):
        with pytest.raises(IncompatibleChange, match=text) as caught:
            refuse(after)
        assert "another prefix" in caught.value.hint
        assert ("Set timestamps to the form" in caught.value.hint) == (text == "timestamp")
    assert registry.subjects == subjects
    # The change is undone, or the setting is the former one.
    assert registered(registry, before, **first).value == held.value
    # Another prefix has subjects of its own.
    other = TableRegistrar(TopicNames("other"), registry, **changed).register(after)
    assert (other.topic, other.table) == ("other.t", after)
    # A stream that was reset begins under the same prefix once its subjects are deleted.
    registry.subjects.clear()
    registry.levels.clear()
    assert registered(registry, after, **changed).table == after


FOREIGN = [
    {"type": "record", "name": "Orders", "fields": [{"name": "a", "type": "long"}]},
    {"type": "record", "name": "Change", "fields": []},
    {"type": "string"},
    {},
]
"""As other programs register them; the last one is not of Avro."""


@pytest.mark.parametrize("kind", ["key", "value"])
@pytest.mark.parametrize("schema", FOREIGN)
def test_a_subject_of_another_program_is_left_for_another_prefix_or_deleted(registry, schema, kind):
    registry.register(f"bank.t-{kind}", schema)
    with pytest.raises((SchemaError, IncompatibleChange)) as caught:
        registered(registry, TABLE)
    assert "another prefix" in caught.value.hint
    assert "delete the subject" in caught.value.hint
    assert TableRegistrar(TopicNames("other"), registry).register(TABLE).topic == "other.t"
    del registry.subjects[f"bank.t-{kind}"]
    assert registered(registry, TABLE).topic == "bank.t"


@pytest.mark.parametrize("envelope", Envelope)
def test_schemas_of_each_envelope_say_what_is_left_out(registry, envelope):
    """A column that is left out is not watched; else a reader takes its null for NULL."""
    chosen = RecordFilter(mod_types=("INSERT",), columns_left_out=("T.v",))
    registered(registry, TABLE, envelope=envelope)
    registrar = TableRegistrar(NAMES, registry, envelope=envelope, record_filter=chosen)
    narrow = chosen.narrowed_table(TABLE)
    assert registrar.missing(narrow) == ["bank.t-value"]
    found = registrar.register(replace(narrow, excludes=("exclude_ttl_deletes",)))
    excludes = ["exclude_delete", "exclude_ttl_deletes", "exclude_update"]
    assert found.value.schema["excludes"] == excludes
    assert registrar.register(narrow).value == found.value
    assert unwatched_columns([found.value.schema]) == {"v"}
    assert registrar.missing(narrow) == []


def test_a_later_table_that_cannot_have_a_topic_stops_only_what_brings_it(registry):
    names = TopicNames("bank", "{prefix}-{table}")
    registrar = TableRegistrar(names, registry)
    unnamed = replace(TABLE, name="progress")
    for refuse in (registrar.register, registrar.register_key, registrar.missing):
        with pytest.raises(SchemaError, match="table progress: its topic bank-progress would"):
            refuse(unnamed)
    assert not [subject for subject in registry.subjects if "progress" in subject]
    # Another template, or no such table.
    assert registered(registry, unnamed).topic == "bank.progress"
    assert not RecordFilter(tables_left_out=("progress",)).takes_table("progress")
    assert registrar.register(TABLE).topic == names.data(TABLE.name)


@pytest.mark.parametrize("envelope", Envelope)
def test_schemas_of_each_envelope_only_grow_over_all_workers(registry, envelope):
    new, other = (
        TableSchema("t", (*TABLE.columns, Column(name, STRING, 3))) for name in ("new", "other")
    )
    first = registered(registry, TABLE, envelope=envelope)
    assert envelope_of(first.value.schema) is envelope
    assert first.is_flat is (envelope is Envelope.FLAT)
    registered(registry, new, envelope=envelope)
    both = registered(registry, other, envelope=envelope)
    assert [*row_fields(both.value.schema)] == ["id", "v", "new", "other"]
    assert [column.name for column in both.table.columns] == ["id", "v", "other"]
    assert TableRegistrar(NAMES, registry, envelope=envelope).missing(TABLE) == []
    assert registered(registry, TABLE, envelope=envelope).value == both.value
    with pytest.raises(IncompatibleChange, match=r"'v'.*registered='long'.*type='string'"):
        registered(registry, table("v", of=STRING), envelope=envelope)


def test_a_column_without_a_place_is_refused_by_its_name(registry):
    wrong = TableSchema("t", (*TABLE.columns, Column("__op", STRING, 3)))
    with pytest.raises(SchemaError, match="a flat value cannot have a column") as caught:
        registered(registry, wrong, envelope=Envelope.FLAT)
    assert caught.value.fields["column"] == "__op"
    chosen = RecordFilter(columns_left_out=("t.__op",))
    narrow = chosen.narrowed_table(wrong)
    without = registered(registry, narrow, envelope=Envelope.FLAT, record_filter=chosen)
    assert without.table.column_names == {"id", "v"}
    assert "__op" in row_fields(registered(InMemorySchemaRegistry(), wrong).value.schema)


UNKNOWN = ColumnType("UNKNOWN<3>")


@pytest.mark.parametrize(
    ("column", "left"),
    [(Column("new", UNKNOWN, 3), {"id", "v"}), (Column("V", INT64, 3), {"id"})],
    ids=["a type", "a name that differs in case"],
)
def test_a_column_that_no_field_can_carry_is_left_out_by_a_new_stream(registry, column, left):
    wrong = TableSchema("t", (*TABLE.columns, column))
    with pytest.raises(SchemaError) as caught:
        registered(registry, wrong)
    assert "columns_left_out" in caught.value.hint
    chosen = RecordFilter(columns_left_out=(f"t.{column.name}",))
    assert registered(registry, chosen.narrowed_table(wrong)).table.column_names == left
    with pytest.raises(SchemaError, match="UNKNOWN") as caught:
        registered(registry, TableSchema("u", (Column("k", UNKNOWN, 1, 1),)))
    assert "tables_left_out" in caught.value.hint


def assert_only_grows(rows):
    for earlier, later in pairwise(rows):
        assert earlier.items() <= later.items()


def test_what_the_registry_refuses_or_does_not_show_is_a_named_error():
    registry = Refusing()
    registered(registry, TABLE)
    registry.refused.add("bank.t-value")
    with pytest.raises(SchemaError, match=r"rejects.*bank\.t-value"):
        registered(registry, table("b"))

    class Forgetful(InMemorySchemaRegistry):
        def versions(self, subject):
            return ()

    with pytest.raises(UnreachableError, match=r"does not show.*bank\.t-value"):
        registered(Forgetful(), TABLE)


def test_versions_that_shrank_are_grown_together(registry):
    """A stream whose newest version lacks a column gets one with all of them, or the wider one."""
    for names in (("a", "gone"), ("a",)):
        schema = registered(InMemorySchemaRegistry(), table(*names)).value.schema
        registry.register("bank.t-value", schema)
    encoding = registered(registry, table("a"))
    assert "gone" in row_fields(registry.schema(encoding.value.schema_id))
    registered(registry, table("a", "new"))
    assert set(versions(registry)[-1]) == {"id", "a", "gone", "new"}


class PausingRegistry(InMemorySchemaRegistry):
    """Lets the schedule go on before every call, after it, and between an id and its version.

    As Apicurio does: a schema that has its id may become a version after one with a higher id,
    and equal schemas that are registered at the same time become two versions.
    """

    def __init__(self):
        super().__init__()
        self.hub = getcurrent()

    def register(self, subject, schema):
        self.hub.switch()
        schema_id = super().register(f"{subject} to be", schema)
        is_new = schema_id not in self.subjects.get(subject, ())
        self.hub.switch()
        if is_new:
            self.subjects.setdefault(subject, []).append(schema_id)
        self.hub.switch()
        return schema_id

    def versions(self, subject):
        self.hub.switch()
        found = super().versions(subject)
        self.hub.switch()
        return found


@given(
    st.lists(st.sets(st.sampled_from("abcd"), max_size=3), min_size=2, max_size=3),
    st.lists(st.integers(0, 2), max_size=60),
)
def test_workers_that_register_at_the_same_time_use_growing_versions(known, schedule):
    registry, encodings = PausingRegistry(), []

    def register_all(names):
        encodings.append(registered(registry, table(*sorted(names))))

    workers = [greenlet(lambda names=names: register_all(names)) for names in known]
    for turn in [*schedule, *(turn % len(workers) for turn in range(600))]:
        worker = workers[turn % len(workers)]
        if not worker.dead:
            worker.switch()
    assert len(encodings) == len(known)
    rows = {one.value.schema_id: row_fields(one.value.schema) for one in encodings}
    assert_only_grows(sorted(rows.values(), key=len))
    for encoding in encodings:
        assert encoding.table.column_names <= rows[encoding.value.schema_id].keys()


OLD_SCHEMA, NEW_SCHEMA = {"type": "string"}, {"type": "bytes"}


class ReadOnly(InMemorySchemaRegistry):
    is_closed = False

    def set_compatibility(self, subject, level):
        raise ConfigError("registry_user_info: the registry rejects these credentials")

    def register(self, subject, schema):
        assert not self.is_closed
        return super().register(subject, schema)


@pytest.mark.parametrize("level", ["BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"])
def test_a_level_that_promises_as_much_is_left_alone(level):
    registry = ReadOnly()
    registry.levels["a-key"] = level
    require_backward(registry, "a-key")
    assert registry.levels == {"a-key": level}
    # A user that may only read needs no more where all is made.
    assert register(registry, "a-key", OLD_SCHEMA) == 1
    registry.is_closed = True
    assert is_registered(registry, "a-key", OLD_SCHEMA)
    assert register(registry, "a-key", OLD_SCHEMA) == 1
    assert not is_registered(registry, "a-key", {"type": "long"})


def test_a_level_is_set_where_it_is_unset_and_one_of_an_operator_is_named(registry):
    registry.set_compatibility("b-key", "NONE")
    assert register(registry, "a-key", OLD_SCHEMA) == register(registry, "b-key", OLD_SCHEMA)
    assert registry.levels == {"a-key": "BACKWARD", "b-key": "BACKWARD"}
    registered(registry, TABLE)
    registry.set_compatibility("bank.t-value", "FORWARD")
    text = r"subject bank\.t-value has the compatibility FORWARD.*BACKWARD"
    with pytest.raises(ConfigError, match=text):
        TableRegistrar(NAMES, registry).missing(TABLE)
    with pytest.raises(ConfigError, match=text):
        register(registry, "bank.t-value", OLD_SCHEMA)
    assert registry.levels["bank.t-value"] == "FORWARD"
    with pytest.raises(ConfigError, match=r"subject a-key has no compatibility level.*rejects"):
        register(ReadOnly(), "a-key", OLD_SCHEMA)


def test_what_is_planned_is_kept_apart_from_the_registry(registry):
    registry.register("s", OLD_SCHEMA)
    planned = PlannedRegistry(registry)
    assert register(planned, "s", OLD_SCHEMA) == registry.versions("s")[0].schema_id
    assert len(planned.versions("s")) == 1
    schema_id = register(planned, "s", NEW_SCHEMA)
    assert register(planned, "s", NEW_SCHEMA) == schema_id
    assert planned.schema(schema_id) == NEW_SCHEMA
    assert [version.schema for version in planned.versions("s")] == [OLD_SCHEMA, NEW_SCHEMA]
    assert [version.schema for version in registry.versions("s")] == [OLD_SCHEMA]
    assert registry.compatibility("s") is None
    with pytest.raises(SchemaError):
        registry.schema(schema_id)
    # A table with a planned column can be written and read.
    before, encoding = registered(registry, TABLE), registered(planned, table("v", "w"))
    assert encoding.key == before.key
    assert planned.schema(encoding.value.schema_id) == encoding.value.schema
    assert len(registry.versions("bank.t-value")) == 1
