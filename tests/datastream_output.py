"""An output in memory for the sink of Datastream's files, and releases for it, without Spark."""

from __future__ import annotations

import copy
from types import SimpleNamespace

from tests.topics import ROWS_SCHEMA
from tidegate.spark_consumer.sinks.files.datastream import DatastreamFilesSink, FileSettings
from tidegate.spark_consumer.sinks.files.events import FileFormat, FileLimits
from tidegate.spark_consumer.sinks.port import Release, SourceRecord

STREAM = "projects/p/instances/i/databases/d/changeStreams/everything"
_NAMES = [column.split()[0] for column in ROWS_SCHEMA.split(", ")]


class Killed(Exception):
    """The process died at a step."""


class MemoryOutput:
    """A folder in which each step is whole; dies before the step that `dies_at` counts to."""

    def __init__(self):
        self.files = {}
        self.writes = []
        self.steps = 0
        self.dies_at = None
        self.before_creation = lambda: None

    def _step(self):
        if self.steps == self.dies_at:
            raise Killed
        self.steps += 1

    def read_json(self, name):
        self._step()
        return copy.deepcopy(self.files.get(name))

    def create_json(self, name, content):
        self._step()
        self.before_creation()
        if name in self.files:
            return False
        self.files[name] = content
        return True

    def names(self, folder):
        return sorted(
            name.removeprefix(f"{folder}/") for name in self.files if name.startswith(f"{folder}/")
        )

    def delete(self, names):
        self._step()
        for name in names:
            self.files.pop(name, None)

    def write(self, name, data):
        self._step()
        self.files[name] = data
        self.writes.append(name)

    def written_ms(self, name):
        self._step()
        return 0 if name in self.files else None


def event_files(output):
    """Return the files of events by path."""
    return {
        name: data for name, data in output.files.items() if name.startswith("datastream_files/")
    }


def release_of(number, changes, *, topics=(), query_id="query-1"):
    """A release; `changes` is [(topic, change)] in any order, numbered in commit order."""
    ordered = sorted(changes, key=lambda pair: pair[1].order_key)
    records = []
    for ordinal, (topic, change) in enumerate(ordered):
        row = dict(zip(_NAMES, topic.row(change, ordinal=ordinal), strict=True))
        records.append(SourceRecord(**{name: row[name] for name in SourceRecord._fields}))
    known = {topic.topic: topic for topic in topics} | {t.topic: t for t, _ in changes}
    return Release(
        number=number,
        after_us=0,
        through_us=2**60,
        query_id=query_id,
        batch=number,
        rows=len(records),
        tables={
            name: SimpleNamespace(
                rows=sum(record.topic == name for record in records), schemas=topic.topic_schemas()
            )
            for name, topic in known.items()
        },
        source_records=lambda: iter(records),
    )


def sink_of(
    output, *, form=FileFormat.AVRO, rows_max=100, bytes_max=10_000, minute=30_000_000,
    release_max=99, query_id="query-1", stream=STREAM,
):  # fmt: skip
    """A sink of a new process, whose clock stands in this minute since 1970."""
    sink = DatastreamFilesSink(
        output,
        FileSettings(form, FileLimits(rows_max, bytes_max)),
        stream=lambda: stream,
        clock=lambda: minute * 60 + 17.5,
    )
    sink.open(query_id=query_id, release_max=release_max)
    return sink
