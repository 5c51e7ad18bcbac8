"""Value schemas only grow, whatever workers restart, take over, or register at the same time."""

import copy
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from greenlet import getcurrent, greenlet
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.records import DataChangeRecord, Mod, RecordColumn
from tidegate.producer.translation.refreshing import RefreshingTranslator
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.errors import SchemaError, UnreachableError
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import unframe

INT64, STRING = ColumnType("INT64"), ColumnType("STRING")
KEY = Column("id", INT64, 1, key_position=1)
NAMES = TopicNames("p")


def table(*names, of=INT64):
    columns = (Column(name, of, place) for place, name in enumerate(names, 2))
    return TableSchema("t", (KEY, *columns))


def fields(schema):
    row = next(one["type"][1] for one in schema["fields"] if one["name"] == "new_values")
    return {one["name"]: one["type"] for one in row["fields"]}


def versions(registry, topic="p.t"):
    return [fields(registry.schema(one)) for one in registry.subjects[f"{topic}-value"]]


def assert_only_grows(rows):
    for earlier, later in pairwise(rows):
        assert earlier.items() <= later.items()


@dataclass
class Fleet:
    """Two workers over one database, whose one table changes, and one registry."""

    registry: InMemorySchemaRegistry = field(default_factory=InMemorySchemaRegistry)
    columns: list[Column] = field(default_factory=lambda: [KEY, Column("a", INT64, 2)])
    workers: list[RefreshingTranslator] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    committed: list[dict] = field(default_factory=list)
    waiting: list[tuple[tuple[RecordColumn, ...], dict]] = field(default_factory=list)
    """Committed, and not read by a worker."""
    owner: int = 0
    added: int = 0

    def __post_init__(self):
        for worker in (0, 1):
            self.restart(worker)

    def table(self, name, *, stream="s", read_ns=None):
        return TableSchema(name, tuple(self.columns))

    def restart(self, worker):
        registrar = TableRegistrar(NAMES, self.registry)
        known = registrar.register(self.table("t"))
        translator = Translator({"t": known}, change_stream="s")
        self.workers[worker : worker + 1] = [
            RefreshingTranslator(translator, self, registrar, topics=None)
        ]

    def add(self):
        self.added += 1
        ordinal = max(column.ordinal for column in self.columns) + 1
        self.columns.append(Column(f"c{self.added}", (INT64, STRING)[self.added % 2], ordinal))

    def drop(self, place):
        if len(self.columns) > 1:
            del self.columns[1 + place % (len(self.columns) - 1)]

    def commit(self, is_partial):
        """Commit an update of all columns, or of the first and last only."""
        touched = self.columns[1:]
        touched = [touched[0], touched[-1]] if is_partial and touched else touched
        values = {one.name: "7" for one in touched}
        shown = tuple(
            RecordColumn(c.name, c.type, c.key_position is not None, c.ordinal)
            for c in (KEY, *dict.fromkeys(touched))
        )
        self.waiting.append((shown, values))

    def read(self):
        for shown, values in self.waiting:
            record = DataChangeRecord(
                commit_timestamp_ns=5_000, record_sequence="00000000", server_transaction_id="tx",
                is_last_record_in_transaction_in_partition=True, table_name="t", columns=shown,
                mods=(Mod({"id": "1"}, values, {}),), mod_type="UPDATE",
                value_capture_type="NEW_VALUES", number_of_records_in_transaction=1,
                number_of_partitions_in_transaction=1, transaction_tag="",
                is_system_transaction=False,
            )  # fmt: skip
            (message,) = self.workers[self.owner].translate(record, token="k").messages
            self.values.append(message.value)
            self.committed.append(values)
        self.waiting.clear()


ACTIONS = st.one_of(
    st.just(("add",)),
    st.tuples(st.just("drop"), st.integers(0, 5)),
    st.tuples(st.just("commit"), st.booleans()),
    st.just(("read",)),
    st.tuples(st.just("restart"), st.integers(0, 1)),
    st.just(("rebalance",)),
)


@given(st.lists(ACTIONS, max_size=25))
def test_each_version_has_every_earlier_field(actions):
    fleet = Fleet()
    for name, *arguments in [*actions, ("read",)]:
        if name == "rebalance":
            fleet.owner = 1 - fleet.owner
        else:
            getattr(fleet, name)(*arguments)

    assert_only_grows(versions(fleet.registry))
    used = sorted({unframe(value)[0] for value in fleet.values})
    assert_only_grows([fields(fleet.registry.schema(one)) for one in used])


def test_a_dropped_column_stays_in_the_schema_of_a_worker_that_starts_later():
    registry = InMemorySchemaRegistry()
    before = TableRegistrar(NAMES, registry).register(table("a", "gone"))
    after = TableRegistrar(NAMES, registry).register(table("a"))

    assert after.value.schema_id == before.value.schema_id
    assert after.table.column_names == {"id", "a"}
    assert len(registry.subjects["p.t-value"]) == 1


def test_a_new_column_stands_after_all_that_was_registered():
    registry = InMemorySchemaRegistry()
    TableRegistrar(NAMES, registry).register(table("a", "gone"))
    encoding = TableRegistrar(NAMES, registry).register(table("new", "a"))

    assert list(versions(registry)[-1]) == ["id", "a", "gone", "new"]
    assert [column.name for column in encoding.table.columns] == ["id", "a", "new"]


def test_a_column_that_comes_back_with_another_type_is_refused():
    registry = InMemorySchemaRegistry()
    TableRegistrar(NAMES, registry).register(table("a"))
    TableRegistrar(NAMES, registry).register(table())

    with pytest.raises(IncompatibleChange, match=r"'a'.*registered='long'.*type='string'"):
        TableRegistrar(NAMES, registry).register(table("a", of=STRING))
    assert len(registry.subjects["p.t-value"]) == 1


@pytest.mark.parametrize("is_key", [True, False], ids=["key", "value"])
@pytest.mark.parametrize("code", ["TIMESTAMP", "ARRAY"])
@pytest.mark.parametrize("first", list(TimestampForm))
def test_the_other_form_of_timestamps_is_refused_by_the_settings_name(is_key, code, first):
    registry = InMemorySchemaRegistry()
    of = ColumnType(code, ColumnType("TIMESTAMP") if code == "ARRAY" else None)
    columns = (Column("id", STRING, 1, 1), Column("at", of, 2, 2 if is_key else None))
    subject = TableSchema("t", columns)
    other = next(form for form in TimestampForm if form is not first)
    TableRegistrar(NAMES, registry, first).register(subject)
    TableRegistrar(NAMES, registry, first).register(subject)
    before = copy.deepcopy(registry.subjects)

    with pytest.raises(IncompatibleChange, match="timestamp") as caught:
        TableRegistrar(NAMES, registry, other).register(subject)
    assert "Set timestamps to the form" in caught.value.hint
    with pytest.raises(IncompatibleChange, match="timestamp"):
        TableRegistrar(NAMES, registry, other).missing(subject)
    assert registry.subjects == before


def test_what_the_registry_refuses_is_a_named_error():
    class Strict(InMemorySchemaRegistry):
        def register(self, subject, schema):
            if self.subjects.get(subject):
                message = "the registry rejects a schema as incompatible with earlier versions"
                raise SchemaError(message, subject=subject)
            return super().register(subject, schema)

    registry = Strict()
    TableRegistrar(NAMES, registry).register(table("a"))
    with pytest.raises(SchemaError, match=r"incompatible.*p\.t-value"):
        TableRegistrar(NAMES, registry).register(table("b"))


def test_a_registry_that_does_not_show_what_was_registered_is_an_error():
    class Forgetful(InMemorySchemaRegistry):
        def versions(self, subject):
            return ()

    with pytest.raises(UnreachableError, match=r"does not show.*p\.t-value"):
        TableRegistrar(NAMES, Forgetful()).register(table("a"))


def test_versions_that_shrank_are_grown_together():
    """A stream whose newest version lacks a column gets one with all of them, or the wider one."""
    registry = InMemorySchemaRegistry()
    for names in (("a", "gone"), ("a",)):
        other = InMemorySchemaRegistry()
        TableRegistrar(NAMES, other).register(table(*names))
        registry.register("p.t-value", other.versions("p.t-value")[0].schema)
    encoding = TableRegistrar(NAMES, registry).register(table("a"))

    assert "gone" in fields(registry.schema(encoding.value.schema_id))
    TableRegistrar(NAMES, registry).register(table("a", "new"))
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
    registry = PausingRegistry()
    encodings = []

    def register(names):
        registrar = TableRegistrar(NAMES, registry)
        encodings.append(registrar.register(table(*sorted(names))))

    workers = [greenlet(lambda names=names: register(names)) for names in known]
    turns = [*schedule, *(turn % len(workers) for turn in range(600))]
    for turn in turns:
        worker = workers[turn % len(workers)]
        if not worker.dead:
            worker.switch()

    assert len(encodings) == len(known)
    used = {encoding.value.schema_id for encoding in encodings}
    assert_only_grows(sorted((fields(registry.schema(one)) for one in used), key=len))
    for encoding in encodings:
        written = fields(registry.schema(encoding.value.schema_id))
        assert encoding.table.column_names <= written.keys()
