"""What tests of translation share: a clock, a catalogue, topics, registries, one record."""

from tidegate.producer.records import DataChangeRecord, Mod, RecordColumn
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema

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


class Clock:
    """Stands still until a test moves it."""

    def __init__(self):
        self.now_us = 7

    def __call__(self):
        return self.now_us


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
