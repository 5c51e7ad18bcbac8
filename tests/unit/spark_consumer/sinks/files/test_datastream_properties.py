"""Changes of Spanner to files, and the files through the Datastream source: the same table again.

What writes and what reads are the production parts: the translator of a worker, the decoding of the
consumer, its sink, the source's reading and the core of its stream partitions.  Kafka and the
file system are in memory.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from tests.datastream_folder import MemoryFiles
from tests.datastream_model import ObjectModel
from tests.datastream_output import STREAM, Killed, MemoryOutput, event_files, sink_of
from tidegate.producer.datastream.file_ledger import SourceLimits
from tidegate.producer.records import DataChangeRecord, Mod, RecordColumn
from tidegate.producer.translation.translator import TableEncoding, Translator
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.files.events import FileFormat
from tidegate.spark_consumer.sinks.port import Release, SourceRecord

TABLE = TableSchema(
    "shop.Items",
    (
        Column("Shop", ColumnType("INT64"), 1, 1),
        Column("Sku", ColumnType("STRING"), 2, 2),
        Column("Price", ColumnType("NUMERIC"), 3),
        Column("Seen", ColumnType("TIMESTAMP"), 4),
        Column("Data", ColumnType("BYTES"), 5),
        Column("Sold", ColumnType("BOOL"), 6),
    ),
)
TOPIC = "bank.shop.Items"
KEY = RegisteredSchema(1, key_schema(TOPIC, TABLE))
VALUE = RegisteredSchema(2, value_schema(TOPIC, TABLE))
SCHEMAS = TopicSchemas("shop.Items", KEY.schema, VALUE.schema, {1: KEY.schema, 2: VALUE.schema})
COLUMNS = tuple(
    RecordColumn(c.name, c.type, bool(c.key_position), c.ordinal) for c in TABLE.columns
)
MINUTE = 30_000_000
MINUTE_US = 60_000_000


class Database:
    """A table of Spanner, and the data change records of its transactions."""

    def __init__(self, rng):
        self.rng = rng
        self.rows = {}
        self.histories = {}
        """The rows that each key had, None for a deletion."""
        self.at_us = MINUTE * MINUTE_US - 10 * MINUTE_US

    def transaction(self):
        """Change some keys, and return the records."""
        rng = self.rng
        # Several commits within a millisecond: event times do not distinguish them.
        self.at_us += rng.choice((1, 30, 400, 700_000))
        name = f"tx{self.at_us:x}-{rng.randrange(10**6):06d}"
        kinds = {}
        for number in rng.sample(range(6), rng.randint(1, 4)):
            key = {"Shop": str(number % 2), "Sku": f"s{number}"}
            kind, mod = self._change(tuple(key.values()), key)
            kinds.setdefault(kind, []).append(mod)
        return [
            DataChangeRecord(
                self.at_us * 1_000, f"{sequence:08d}", name, sequence == len(kinds) - 1,
                "shop.Items", COLUMNS, tuple(mods), kind, "NEW_ROW", len(kinds), 1, "tag", False,
            )
            for sequence, (kind, mods) in enumerate(kinds.items())
        ]  # fmt: skip

    def _change(self, key, keys):
        rng = self.rng
        if key in self.rows and rng.random() < 0.25:
            self.rows.pop(key)
            self.histories[key].append(None)
            return "DELETE", Mod(keys, {}, {})
        number = len(self.histories.get(key, ()))
        row = {
            "Price": rng.choice((None, f"{number}.5", "12345678901234567890123.000000001")),
            "Seen": rng.choice((None, f"2023-01-01T00:00:{number % 60:02d}.000007Z")),
            "Data": rng.choice((None, "AP8=")),
            "Sold": rng.choice((None, True, False)),
        }
        kind = "UPDATE" if key in self.rows else "INSERT"
        self.rows[key] = row
        self.histories.setdefault(key, []).append(row)
        return kind, Mod(keys, row, {})


def released(records, number):
    """Return the release of data change records, as the consumer makes it of Kafka's messages."""
    encoding = TableEncoding(TABLE, TOPIC, KEY, VALUE)
    translator = Translator({"shop.Items": encoding}, change_stream="everything")
    messages = [
        message
        for record in records
        for message in translator.translate(record, token="k").messages
    ]
    messages.sort(key=lambda one: one.order_key)
    found = [
        SourceRecord(n, TOPIC, one.key, one.value, one.order_key, "I", 1)
        for n, one in enumerate(messages)
    ]
    tables = {TOPIC: SimpleNamespace(rows=len(found), schemas=SCHEMAS)}
    return Release(number, 0, 2**60, "query-1", number, len(found), tables,
                   source_records=lambda: iter(found))  # fmt: skip


def written(seed, form):
    """Return a database, and the output with its changes, which was killed now and then."""
    rng = random.Random(seed)
    database, output = Database(rng), MemoryOutput()
    for number in range(8):
        records = [one for _ in range(rng.randrange(12)) for one in database.transaction()]
        release = released(records, number)
        minute = MINUTE + number // 2
        while True:
            output.dies_at = output.steps + rng.choice((0, 2, 3, 5, 100))
            try:
                sink_of(output, form=form, rows_max=rng.randint(1, 6), minute=minute).write(release)
                break
            except Killed:
                minute += rng.randrange(2)
    output.dies_at = None
    return database, output


def read_again(output, rng):
    """Return the messages of the Datastream source, which sees files late and dies now and then."""
    files = MemoryFiles()
    model = ObjectModel(
        now_us=(MINUTE + 20) * MINUTE_US, start_us=(MINUTE - 30) * MINUTE_US,
        folder="datastream_files/shop.Items", files=files, parks=False,
        limits=SourceLimits(open_minutes=60, lateness_us=60_000_000),
    )  # fmt: skip
    paths = sorted(event_files(output))
    rng.shuffle(paths)
    for path in paths:
        files.put(path, output.files[path], modified_us=model.clock.now_us)
        if rng.random() < 0.4:
            model.clock.now_us += 11_000_000
            for _ in range(rng.randrange(9)):
                model.step()
            if rng.random() < 0.5:
                model.die()
            else:
                model.commit()
    model.clock.now_us += 11_000_000
    model.run()
    return [message.value for message, _ in model.published]


@pytest.mark.rule("datastream-tidegate-history", "sink-datastream-files")
@pytest.mark.parametrize("form", FileFormat)
@pytest.mark.parametrize("seed", range(6))
def test_what_is_read_again_is_the_table_and_each_keys_history(seed, form):
    database, output = written(seed, form)
    records = read_again(output, random.Random(seed))
    events = [(record.mods[0], record.mod_type) for record in records]
    assert len(events) == sum(map(len, database.histories.values())) > 20
    newest, histories = {}, {}
    for mod, kind in sorted(events, key=order_of):
        row = mod.old_values if kind == "DELETE" else mod.new_values
        key = (str(mod.keys["Shop"]), mod.keys["Sku"])
        histories.setdefault(key, []).append(None if kind == "DELETE" else plain(row))
        newest[key] = histories[key][-1]
    assert {key: row for key, row in newest.items() if row is not None} == {
        key: plain(row) for key, row in database.rows.items()
    }
    assert histories == {
        key: [None if row is None else plain(row) for row in rows]
        for key, rows in database.histories.items()
    }
    # The changelog of the second stream is in the order of the first where files come in order.
    in_order = read_in_order(output)
    places = [order_of((one.mods[0], one.mod_type)) for one in in_order]
    assert places == sorted(places)
    times = [one.commit_timestamp_ns for one in in_order]
    assert times == sorted(times)
    assert {record.table_name for record in records} == {"shop.Items"}
    assert STREAM.endswith("everything")


def read_in_order(output):
    files = MemoryFiles()
    for path in sorted(event_files(output)):
        files.put(path, output.files[path])
    model = ObjectModel(
        now_us=(MINUTE + 8) * MINUTE_US, start_us=(MINUTE - 30) * MINUTE_US,
        folder="datastream_files/shop.Items", files=files, parks=False,
        limits=SourceLimits(lateness_us=20 * MINUTE_US),
    )  # fmt: skip
    model.run()
    return [message.value for message, _ in model.published]


def order_of(event):
    mod, kind = event
    row = mod.old_values if kind == "DELETE" else mod.new_values
    return row["_datastream_order"]


def plain(row):
    """A row's own columns in one form: JSON has no types for bytes, and numbers without zeros."""
    price = row.get("Price")
    return {
        "Price": None if price is None else price.rstrip("0").rstrip("."),
        "Seen": row.get("Seen"),
        "Data": row.get("Data"),
        "Sold": row.get("Sold"),
    }
