"""The registration of tables under their topics' subjects."""

from dataclasses import replace
from itertools import permutations

import pytest

from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.record_filter import RecordFilter
from tidegate.producer.translation.table_evolution import OTHER_ENVELOPE_HINT
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.schemas.change_schema import envelope_of, row_fields, unwatched_columns
from tidegate.schemas.errors import ConfigError, SchemaError, SchemaNotKept
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames

INT64 = ColumnType("INT64")
TABLE = TableSchema("t", (Column("id", INT64, 1, key_position=1), Column("v", INT64, 2)))


@pytest.fixture
def registry():
    return InMemorySchemaRegistry()


@pytest.fixture
def registrar(registry):
    return TableRegistrar(TopicNames("bank"), registry)


def test_a_table_is_registered_under_its_topics_subjects(registry, registrar):
    encoding = registrar.register(TABLE)

    assert encoding.topic == "bank.t"
    assert encoding.table == TABLE
    assert set(registry.subjects) == {"bank.t-key", "bank.t-value"}
    assert registry.levels == {"bank.t-key": "BACKWARD", "bank.t-value": "BACKWARD"}
    assert registrar.key_schema_id("bank.t") == registry.subjects["bank.t-key"][0]


def test_a_wider_table_is_a_new_version_of_the_value_only(registry, registrar):
    registrar.register(TABLE)
    registrar.register(TableSchema("t", (*TABLE.columns, Column("w", INT64, 3))))

    assert len(registry.subjects["bank.t-key"]) == 1
    assert len(registry.subjects["bank.t-value"]) == 2


class DroppingRegistry(InMemorySchemaRegistry):
    """Keeps of a schema what Avro defines, as some services do."""

    def register(self, subject, schema):
        return super().register(subject, self.kept(schema))

    def kept(self, schema):
        if isinstance(schema, list):
            return [self.kept(one) for one in schema]
        if not isinstance(schema, dict):
            return schema
        own = ("excludes", "watched")
        return {name: self.kept(one) for name, one in schema.items() if name not in own}


def test_a_registry_that_drops_properties_is_named_where_they_are_needed():
    registrar = TableRegistrar(TopicNames("bank"), DroppingRegistry())
    encoding = registrar.register(TABLE)
    assert encoding.table == TABLE  # without them nothing is lost
    unwatched = replace(TABLE.columns[1], is_watched=False)
    for table, lost in (
        (replace(TABLE, excludes=("exclude_insert",)), "excludes"),
        (replace(TABLE, columns=(TABLE.columns[0], unwatched)), "watched"),
    ):
        with pytest.raises(SchemaNotKept, match=f"keep parts of a schema: {lost}") as caught:
            registrar.register(table)
        assert caught.value.exit_code == 2
        assert not caught.value.retriable
        assert "bank.t-value" in str(caught.value)
        # Either of what the hint names: the stream leaves nothing out, or another registry.
        assert registrar.register(TABLE).table == TABLE
        kept = TableRegistrar(TopicNames("bank"), InMemorySchemaRegistry()).register(table)
        assert lost in str(kept.value.schema)


TEXT = ColumnType("STRING")
OTHER_TYPE = TableSchema("t", (TABLE.columns[0], Column("v", TEXT, 2)))
OTHER_KEY = TableSchema("t", (Column("id", TEXT, 1, key_position=1),))
STAMPED = TableSchema("t", (*TABLE.columns, Column("at", ColumnType("TIMESTAMP"), 3)))
AT_KEY = TableSchema("t", (Column("at", ColumnType("TIMESTAMP"), 1, key_position=1),))


def delete_subjects(registry):
    """Delete them as `reset` asks for: ids keep their meaning."""
    registry.subjects.clear()
    registry.levels.clear()


@pytest.mark.parametrize(
    ("before", "after", "changed", "subject"),
    [
        (TABLE, OTHER_TYPE, {}, "value"),
        (TABLE, OTHER_KEY, {}, "key"),
        (TABLE, TABLE, {"envelope": Envelope.FLAT}, "value"),
        (STAMPED, STAMPED, {"timestamps": TimestampForm.STRING}, "value"),
        (AT_KEY, AT_KEY, {"timestamps": TimestampForm.STRING}, "key"),
    ],
    ids=["another type", "another key", "another envelope", "other timestamps", "and in the key"],
)
def test_what_a_subject_cannot_follow_is_undone_or_begins_under_another_prefix(
    registry, before, after, changed, subject
):
    names = TopicNames("bank")
    first = TableRegistrar(names, registry).register(before)
    with pytest.raises(IncompatibleChange) as caught:
        TableRegistrar(names, registry, **changed).register(after)
    assert "another prefix" in caught.value.hint
    # The change is undone, or the setting is the former one.
    assert TableRegistrar(names, registry).register(before).value == first.value
    # Another prefix has subjects of its own.
    other = TableRegistrar(TopicNames("other"), registry, **changed).register(after)
    assert (other.topic, other.table) == ("other.t", after)
    # A stream that was reset begins under the same prefix once its subjects are deleted.
    delete_subjects(registry)
    again = TableRegistrar(names, registry, **changed).register(after)
    assert again.table == after
    assert subject in caught.value.fields.get("subject", "bank.t-value")


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
    registrar = TableRegistrar(TopicNames("bank"), registry)
    with pytest.raises((SchemaError, IncompatibleChange)) as caught:
        registrar.register(TABLE)
    assert "another prefix" in caught.value.hint
    assert "delete the subject" in caught.value.hint
    assert TableRegistrar(TopicNames("other"), registry).register(TABLE).topic == "other.t"
    del registry.subjects[f"bank.t-{kind}"]
    assert registrar.register(TABLE).topic == "bank.t"


def test_another_key_is_refused(registrar):
    registrar.register(TABLE)
    other = TableSchema("t", (Column("id", ColumnType("STRING"), 1, key_position=1),))

    with pytest.raises(IncompatibleChange, match="primary key"):
        registrar.register(other)


def test_what_would_be_registered_is_returned_and_nothing_is_made(registry, registrar):
    wider = TableSchema("t", (*TABLE.columns, Column("w", INT64, 3)))
    assert registrar.missing(TABLE) == ["bank.t-key", "bank.t-value"]
    assert registry.subjects == registry.levels == {}
    registrar.register(TABLE)

    assert registrar.missing(TABLE) == []
    assert registrar.missing(wider) == ["bank.t-value"]
    assert len(registry.subjects["bank.t-value"]) == 1


def test_what_could_not_be_registered_is_an_error_before_it_is_tried(registry, registrar):
    registrar.register(TABLE)
    text = ColumnType("STRING")
    with pytest.raises(IncompatibleChange, match="another type"):
        registrar.missing(TableSchema("t", (TABLE.columns[0], Column("v", text, 2))))
    with pytest.raises(IncompatibleChange, match="primary key"):
        registrar.missing(TableSchema("t", (Column("id", text, 1, key_position=1),)))
    registry.set_compatibility("bank.t-value", "FORWARD")
    with pytest.raises(ConfigError, match=r"bank\.t-value has the compatibility FORWARD"):
        registrar.missing(TABLE)


def test_a_registered_column_that_is_left_out_now_is_not_watched(registry):
    """Else a reader takes its null for NULL."""
    TableRegistrar(TopicNames("bank"), registry).register(TABLE)
    chosen = RecordFilter(columns_left_out=("T.v",))
    registrar = TableRegistrar(TopicNames("bank"), registry, record_filter=chosen)
    table = chosen.narrowed_table(TABLE)
    assert registrar.missing(table) == ["bank.t-value"]
    found = registrar.register(table)
    assert unwatched_columns([found.value.schema]) == {"v"}
    assert registrar.missing(table) == []


def test_every_value_schema_says_what_the_producer_leaves_out(registry):
    chosen = RecordFilter(mod_types=("INSERT", "UPDATE"))
    registrar = TableRegistrar(TopicNames("bank"), registry, record_filter=chosen)
    found = registrar.register(replace(TABLE, excludes=("exclude_insert",)))
    assert found.value.schema["excludes"] == ["exclude_delete", "exclude_insert"]
    assert registrar.register(TABLE).value == found.value


def test_a_later_table_that_cannot_have_a_topic_stops_only_what_brings_it(registry):
    names = TopicNames("bank", "{prefix}-{table}")
    registrar = TableRegistrar(names, registry)
    assert registrar.register(TABLE).topic == names.data(TABLE.name)
    unnamed = replace(TABLE, name="progress")
    for register in (registrar.register, registrar.register_key, registrar.missing):
        with pytest.raises(SchemaError, match="table progress: its topic bank-progress would"):
            register(unnamed)
    assert not [one for one in registry.subjects if "progress" in one]
    # Another template, or no such table.
    assert TableRegistrar(TopicNames("bank"), registry).register(unnamed).topic == "bank.progress"
    assert not RecordFilter(tables_left_out=("progress",)).takes_table("progress")
    assert registrar.register(TABLE).topic == names.data(TABLE.name)


def registrar_of(envelope, registry, **options):
    return TableRegistrar(TopicNames("bank"), registry, envelope=envelope, **options)


@pytest.mark.parametrize("envelope", Envelope)
def test_schemas_of_each_envelope_only_grow_over_all_workers(registry, envelope):
    text = ColumnType("STRING")
    new = TableSchema("t", (*TABLE.columns, Column("new", text, 3)))
    other = TableSchema("t", (*TABLE.columns, Column("other", text, 3)))
    first = registrar_of(envelope, registry).register(TABLE)
    assert envelope_of(first.value.schema) is envelope
    assert first.is_flat is (envelope is Envelope.FLAT)
    registrar_of(envelope, registry).register(new)
    both = registrar_of(envelope, registry).register(other)
    assert [*row_fields(both.value.schema)] == ["id", "v", "new", "other"]
    assert [column.name for column in both.table.columns] == ["id", "v", "other"]
    assert registrar_of(envelope, registry).missing(TABLE) == []
    assert registrar_of(envelope, registry).register(TABLE).value == both.value
    with pytest.raises(IncompatibleChange, match="another type"):
        registrar_of(envelope, registry).register(
            TableSchema("t", (TABLE.columns[0], Column("v", text, 2)))
        )


@pytest.mark.parametrize("envelope", Envelope)
def test_schemas_of_each_envelope_say_what_is_left_out(registry, envelope):
    chosen = RecordFilter(mod_types=("INSERT",), columns_left_out=("t.v",))
    registrar_of(envelope, registry).register(TABLE)
    found = registrar_of(envelope, registry, record_filter=chosen).register(
        chosen.narrowed_table(TABLE)
    )
    assert found.value.schema["excludes"] == ["exclude_delete", "exclude_update"]
    assert unwatched_columns([found.value.schema]) == {"v"}


@pytest.mark.parametrize(("first", "other"), list(permutations(Envelope, 2)))
def test_the_other_envelope_is_refused_by_the_settings_name(registry, first, other):
    names = TopicNames("bank")
    TableRegistrar(names, registry, envelope=first).register(TABLE)
    text = f"envelope: the setting is '{other}', and .* value schemas have '{first}'"
    with pytest.raises(IncompatibleChange, match=text) as caught:
        TableRegistrar(names, registry, envelope=other).register(TABLE)
    assert caught.value.hint == OTHER_ENVELOPE_HINT


def test_a_column_without_a_place_is_refused_by_its_name(registry):
    wrong = TableSchema("t", (*TABLE.columns, Column("__op", ColumnType("STRING"), 3)))
    with pytest.raises(SchemaError, match="a flat value cannot have a column") as caught:
        registrar_of(Envelope.FLAT, registry).register(wrong)
    assert caught.value.fields["column"] == "__op"
    chosen = RecordFilter(columns_left_out=("t.__op",))
    without = registrar_of(Envelope.FLAT, registry, record_filter=chosen).register(
        chosen.narrowed_table(wrong)
    )
    assert without.table.column_names == {"id", "v"}
    names = TopicNames("other")
    whole = TableRegistrar(names, registry, envelope=Envelope.TIDEGATE).register(wrong)
    assert "__op" in row_fields(whole.value.schema)


UNKNOWN = ColumnType("UNKNOWN<3>")


@pytest.mark.parametrize(
    ("column", "left"),
    [(Column("new", UNKNOWN, 3), {"id", "v"}), (Column("V", INT64, 3), {"id"})],
    ids=["a type", "a name that differs in case"],
)
def test_a_column_that_no_field_can_carry_is_left_out_by_a_new_stream(registry, column, left):
    wrong = TableSchema("t", (*TABLE.columns, column))
    registrar = TableRegistrar(TopicNames("bank"), registry)
    with pytest.raises(SchemaError) as caught:
        registrar.register(wrong)
    assert "columns_left_out" in caught.value.hint
    chosen = RecordFilter(columns_left_out=(f"t.{column.name}",))
    found = registrar.register(chosen.narrowed_table(wrong))
    assert found.table.column_names == left
    keyed = TableSchema("u", (replace(column, key_position=1),))
    if column.type == UNKNOWN:
        with pytest.raises(SchemaError, match="UNKNOWN") as caught:
            registrar.register(keyed)
        assert "tables_left_out" in caught.value.hint
        assert not RecordFilter(tables_left_out=("u",)).takes_table("u")
