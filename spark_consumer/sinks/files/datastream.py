"""Every change as an event in a file, in the layout of Google's Datastream.

`<output>/datastream_files/<object>/yyyy/mm/dd/hh/mm/<release, 12 digits>-<number, 5 digits>.avro`,
or `.jsonl` or `.jsonl.gz`.

- A file appears whole and under its last name, or not at all, and never changes.
- Its events are in commit order; so are files of an object by their paths, over all releases.
- A release that is repeated writes the same files under the same names: its minute, form and limits
  are recorded before its first file, and a repeated release uses the record, not the clock or the
  settings.  If two runs begin a release at the same time, one writes the record and both use it.
- Files are in the folder of the minute in which their release was begun; Datastream's are in the
  folder of the minute in which they were written.
- A release is published by its manifest.  A reader that must not see an unfinished release takes
  the files whose release has a manifest.

Changes are encoded in this process, one after the other, in the order of their ordinals: a file's
end, its bytes and its name depend on nothing else (docs/decisions/datastream-files.md).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from heapq import merge
from typing import Any

from tidegate.schemas.errors import ConfigError, invariant
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas, by_table
from tidegate.spark_consumer.errors import CheckpointMismatch
from tidegate.spark_consumer.sinks.files.events import (
    EventEncoder,
    EventsFile,
    FileFormat,
    FileLimits,
    OpenFiles,
    avro_file,
    json_file,
)
from tidegate.spark_consumer.sinks.manifest import OutputFiles
from tidegate.spark_consumer.sinks.port import CollectedTable, Release, TableVersion
from tidegate.spark_consumer.sinks.row_decoding import RowDecoder

DATASTREAM_FILES = "datastream_files"
"""Name of the sink, and its folder in the output."""

_RECORDS = f"_{DATASTREAM_FILES}"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

KEPT = 1_000
"""How many releases keep their records: a run that was replaced may still be at an older one."""

_S_PER_MINUTE = 60
_RECORD = re.compile(r"([0-9]{12,})\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class BegunRelease:
    """A release whose files may be written."""

    query_id: str
    release: int
    minute: int
    """Minutes since 1970: the folder of all its files."""
    format: str
    rows_max: int
    bytes_max: int


class BegunReleases:
    """The records of one output."""

    def __init__(
        self,
        output: OutputFiles,
        *,
        folder: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`folder` is the records' own in the output; `clock` returns seconds since 1970."""
        self._output = output
        self._folder = folder
        self._clock = clock
        self._last_minute = 0
        self._recorded: set[int] = set()
        """Releases with a record that this run has read or written, and not deleted."""

    def open(self, *, query_id: str, release_max: int) -> None:
        """Read the newest record; refuse files of another query, or ahead of its checkpoint.

        Raises ConfigError.
        """
        matches = map(_RECORD.fullmatch, self._output.names(self._folder))
        numbers = sorted(int(number[1]) for number in matches if number is not None)
        if not numbers:
            return
        newest = self._read(numbers[-1])
        if newest is None:
            return
        if newest.query_id != query_id:
            raise ConfigError(
                "the Datastream files of this output belong to another query",
                hint="Use the checkpoint that they were written with, or a new output",
                found=newest.query_id,
                expected=query_id,
            )
        if newest.release > release_max:
            raise ConfigError(
                "the Datastream files of this output are ahead of the checkpoint",
                hint="Restore the checkpoint's newest state, or use a new output and checkpoint",
                found=newest.release,
                expected=release_max,
            )
        self._last_minute = newest.minute
        self._recorded = set(numbers)
        self.finish(numbers[-1])

    def begin(
        self, release: int, *, query_id: str, file_format: str, rows_max: int, bytes_max: int
    ) -> tuple[BegunRelease, bool]:
        """Return a release's record, and whether it was begun before; minutes never fall."""
        earlier = self._read(release)
        if earlier is None:
            minute = max(int(self._clock()) // _S_PER_MINUTE, self._last_minute)
            begun = BegunRelease(query_id, release, minute, file_format, rows_max, bytes_max)
            if self._output.create_json(self._name(release), asdict(begun)):
                self._last_minute = minute
                self._recorded.add(release)
                return begun, False
            earlier = self._read(release)
        if earlier is None or earlier.query_id != query_id:
            raise ConfigError(
                "another query writes Datastream files to this output",
                hint="Give each query an output of its own",
                release=release,
            )
        self._last_minute = max(earlier.minute, self._last_minute)
        self._recorded.add(release)
        return earlier, True

    def finish(self, release: int) -> None:
        """Delete the records of releases that are too old for any run to repeat.

        Releases without a change have no record, and delete none.
        """
        old = sorted(number for number in self._recorded if number <= release - KEPT)
        if old:
            self._output.delete(map(self._name, old))
            self._recorded.difference_update(old)

    def _name(self, release: int) -> str:
        return f"{self._folder}/{release:012d}.json"

    def _read(self, release: int) -> BegunRelease | None:
        name = self._name(release)
        content = self._output.read_json(name)
        if content is None:
            return None
        try:
            return BegunRelease(**content)
        except TypeError as error:
            raise CheckpointMismatch(
                "a record of begun Datastream files is not as Tidegate writes it",
                hint=(
                    "Restore checkpoint and output of one moment, or use a new "
                    "output and checkpoint"
                ),
                file=name,
                cause=str(error),
            ) from error


@dataclass(frozen=True, slots=True)
class FileSettings:
    """The settings for releases that are begun; one that was begun before keeps its own."""

    format: FileFormat
    limits: FileLimits


class DatastreamFilesSink:
    """Writes the files of a release; a repeated write leaves the output as the first one did."""

    name = DATASTREAM_FILES

    def __init__(
        self,
        output: OutputFiles,
        settings: FileSettings,
        *,
        stream: Callable[[], str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the output of the query.

        `stream` returns the change stream's full name, and is called before the first file; `clock`
        returns seconds since 1970.
        """
        self._output = output
        self._settings = settings
        self._begun = BegunReleases(output, folder=_RECORDS, clock=clock)
        self._find_stream = stream
        self._stream = ""

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse files of another query, or ahead of this one's checkpoint, with ConfigError."""
        self._begun.open(query_id=query_id, release_max=release_max)

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Write the files that are not there yet; a table without a change gets none.

        The versions that it returns are numbers of releases.  Raises ConfigError for a stream that
        is not one of Spanner, and SchemaError for a value that no file can hold.
        """
        if not any(table.rows for table in release.tables.values()):
            return {}
        if not self._stream:
            self._stream = self._find_stream()
        tables = _Tables(release, self._stream)  # before anything is recorded
        settings = self._settings
        begun, is_repeated = self._begun.begin(
            release.number,
            query_id=release.query_id,
            file_format=settings.format.value,
            rows_max=settings.limits.rows_max,
            bytes_max=settings.limits.bytes_max,
        )
        minute = (_EPOCH + timedelta(minutes=begun.minute)).strftime("%Y/%m/%d/%H/%M")
        for file in tables.files(begun):
            folder = f"{DATASTREAM_FILES}/{tables.name(file.topic)}/{minute}"
            path = f"{folder}/{release.number:012d}-{file.number:05d}.{begun.format}"
            if not is_repeated or self._output.written_ms(path) is None:
                self._output.write(path, tables.content(file, begun, path))
        self._begun.finish(release.number)
        return {
            table.schemas.table: TableVersion(
                f"{DATASTREAM_FILES}/{table.schemas.table}/{minute}", release.number, table.rows
            )
            for table in release.tables.values()
            if table.rows
        }


class _Tables:
    """The changes of one release, table by table."""

    def __init__(self, release: Release, stream: str) -> None:
        self._release = release
        schemas = by_table({topic: table.schemas for topic, table in release.tables.items()})
        self._of_topic: dict[str, str] = {}
        """The data topic of each topic that is read."""
        for topic, table_schemas in schemas.items():
            self._of_topic |= dict.fromkeys(table_schemas.read_from(topic), topic)
        self._schemas: Mapping[str, TopicSchemas] = schemas
        self._encoders = {
            topic: EventEncoder(table_schemas, stream=stream)
            for topic, table_schemas in schemas.items()
            if release.tables[topic].rows
        }

    def name(self, topic: str) -> str:
        return self._schemas[topic].table

    def files(self, begun: BegunRelease) -> Iterator[EventsFile]:
        """Yield each file when it ends; in memory are one ended file and the open ones."""
        is_avro = begun.format == FileFormat.AVRO
        encode: dict[str, Callable[[Mapping[str, Any]], bytes]] = {
            topic: encoder.avro if is_avro else encoder.json
            for topic, encoder in self._encoders.items()
        }
        open_files = OpenFiles(FileLimits(begun.rows_max, begun.bytes_max))
        rows = dict.fromkeys(self._encoders, 0)
        for topic, change in self._changes():
            rows[topic] += 1
            record = encode[topic](change)
            yield from open_files.add(topic, record, value_bytes=change["value_bytes"])
        yield from open_files.rest()
        for topic, records in rows.items():
            invariant(
                records == self._release.tables[topic].rows,
                "the records of a release are not as many as its changes",
                release=self._release.number,
                table=self.name(topic),
                records=records,
                changes=self._release.tables[topic].rows,
            )

    def content(self, file: EventsFile, begun: BegunRelease, path: str) -> bytes:
        """Return a file's bytes; they depend on the query, its path and its events."""
        if begun.format == FileFormat.AVRO:
            name = f"{begun.query_id}/{path}"
            return avro_file(file.records, self._encoders[file.topic].schema, name=name)
        return json_file(file.records, is_compressed=begun.format == FileFormat.JSON_GZIP)

    def _changes(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield each change with its table's data topic, in the order of the ordinals."""
        changed = {topic: self._release.tables[topic] for topic in self._encoders}
        collected = {
            topic: table.changes
            for topic, table in changed.items()
            if isinstance(table, CollectedTable)
        }
        is_small = len(collected) == len(changed)
        last = -1
        for topic, change in _in_order(collected) if is_small else self._decoded():
            invariant(
                change["ordinal"] > last,
                "the records of a release are not in commit order",
                release=self._release.number,
                ordinal=change["ordinal"],
                after=last,
            )
            last = change["ordinal"]
            yield topic, change

    def _decoded(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        number = self._release.number
        decoders = {
            topic: RowDecoder(self._schemas[topic], release=number) for topic in self._encoders
        }
        for record in self._release.source_records():
            topic = self._of_topic[record.topic]
            row = {
                "topic": record.topic,
                "topic_partition": None,  # the batch finds the place of a bad record
                "offset": None,
                "ordinal": record.ordinal,
                "key": record.key,
                "value": record.value,
                "order_key": record.order_key,
                "origin": record.origin,
            }
            yield topic, decoders[topic].decoded(row)


def _in_order(
    changes: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the changes of all tables by their ordinals; those of each are sorted."""
    tables = ([(topic, change) for change in of_table] for topic, of_table in changes.items())
    return merge(*tables, key=lambda pair: pair[1]["ordinal"])
