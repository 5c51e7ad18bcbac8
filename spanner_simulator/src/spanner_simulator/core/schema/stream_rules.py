"""Rules for change streams: names, limits, options, and watched objects.

Every text is the service's own.  An option's kind was checked when the statement was parsed.
"""

from __future__ import annotations

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.schema_objects import (
    DEFAULT_RETENTION,
    ChangeStream,
    Table,
    duration_us,
)
from spanner_simulator.errors import failed_precondition, invalid_argument

STREAMS_MAX = 10
STREAMS_PER_OBJECT_MAX = 3
NAME_LENGTH_MAX = 118
RETENTION_MIN = "24h"
RETENTION_MAX = "30d"
_CAPTURE_TYPES = ("OLD_AND_NEW_VALUES", "NEW_ROW", "NEW_VALUES", "NEW_ROW_AND_OLD_VALUES")
_PARTITION_MODES = ("IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE")
_TRACKABLE = (
    "Change Streams support tracking Tables and Columns in the default schema (not in "
    "INFORMATION_SCHEMA or SPANNER_SYS). Change Streams, Indexes, Queues, Views/Functions and "
    "non-key Generated Columns that are not STORED VOLATILE are not supported for tracking."
)


def create_stream(catalogue: Catalogue, statement: ddl.CreateStream, now_us: int) -> None:
    """Define a change stream; its read function needs an unused name."""
    name = statement.name
    if statement.if_not_exists and name.lower() in catalogue.streams:
        return
    if len(name) > NAME_LENGTH_MAX:
        raise invalid_argument(f"Change Stream name not valid: {name}.")
    catalogue.check_new_name("Change Stream", name)
    if catalogue.dialect == "GOOGLE_STANDARD_SQL":
        catalogue.check_free_name(f"READ_{name}")
    if len(catalogue.streams) >= STREAMS_MAX:
        raise failed_precondition(
            f"Cannot add Change Stream {name} : because the maximum number of Change Streams per "
            f"Database (limit {STREAMS_MAX}) has been reached."
        )
    _check_options(statement.options)
    options = tuple((key, value) for key, value in statement.options if value is not None)
    watch = _checked_watch(catalogue, name, statement.watch)
    catalogue.streams[name.lower()] = ChangeStream(name, now_us, watch, options, DEFAULT_RETENTION)


def alter_watch(catalogue: Catalogue, statement: ddl.AlterStreamWatch) -> None:
    """Watch other objects, or none."""
    stream = catalogue.stream(statement.name)
    if statement.watch is None and stream.watch is None:
        raise failed_precondition(
            "The ALTER CHANGE STREAM DROP FOR clause cannot be applied on Change Stream "
            f"{stream.name}, because it does not have a FOR clause and it does not track any "
            "database object."
        )
    watch = _checked_watch(catalogue, stream.name, statement.watch)
    catalogue.streams[stream.name.lower()] = _changed(stream, watch, stream.options)


def alter_options(catalogue: Catalogue, statement: ddl.AlterStreamOptions) -> None:
    """Set options, or reset those that are None, as documented."""
    stream = catalogue.stream(statement.name)
    _check_options(statement.options)
    options = dict(stream.options)
    for name, value in statement.options:
        if name == "partition_mode":
            if (value or "IMMUTABLE_KEY_RANGE") != stream.partition_mode:
                raise failed_precondition(
                    "Cannot alter partition_mode to a different value. Change Stream "
                    f"{stream.name} was created with partition_mode {stream.partition_mode}."
                )
        elif value is None:
            options.pop(name, None)
        else:
            options[name] = value
    catalogue.streams[stream.name.lower()] = _changed(stream, stream.watch, tuple(options.items()))


def _changed(
    stream: ChangeStream,
    watch: ddl.Watch | None,
    options: tuple[tuple[str, ddl.OptionValue], ...],
) -> ChangeStream:
    """A new object, because values cached in the old one no longer apply."""
    return ChangeStream(stream.name, stream.created_us, watch, options, stream.default_retention)


# -- options


def _check_options(options: tuple[tuple[str, ddl.OptionValue], ...]) -> None:
    for name, value in options:
        if value is None:
            continue
        if name == "retention_period":
            _check_retention(str(value))
        elif name == "value_capture_type" and value not in _CAPTURE_TYPES:
            raise failed_precondition(
                f"Invalid value_capture_type: {value}. Change Streams only support value capture "
                "types in OLD_AND_NEW_VALUES, NEW_ROW, and NEW_VALUES."
            )
        elif name == "partition_mode" and value not in _PARTITION_MODES:
            raise failed_precondition(
                f"Invalid partition_mode: {value}. Change Streams only support partition modes in "
                "IMMUTABLE_KEY_RANGE and MUTABLE_KEY_RANGE."
            )


def _check_retention(value: str) -> None:
    if not duration_us(RETENTION_MIN) <= duration_us(value) <= duration_us(RETENTION_MAX):
        raise failed_precondition(
            f"Invalid retention_period: {value}. Change Streams retention period must be a value "
            f"in the range [{RETENTION_MIN}, {RETENTION_MAX}]."
        )


# -- what is watched


def _checked_watch(catalogue: Catalogue, stream: str, watch: ddl.Watch | None) -> ddl.Watch | None:
    """The FOR clause with names in the tables' spelling."""
    if watch is None:
        return None
    if watch.everything:
        _check_crowd(catalogue, stream, watch)
        return watch
    tables: list[tuple[str, tuple[str, ...] | None]] = []
    for name, columns in watch.tables:
        table = _watched_table(catalogue, stream, name)
        if any(table.name == earlier for earlier, _ in tables):
            raise failed_precondition(
                f"Change Stream {stream} should not list Table {name} more than once in the FOR "
                "clause."
            )
        tables.append((table.name, _watched_columns(stream, table, columns)))
    checked = ddl.Watch(tables=tuple(tables))
    _check_crowd(catalogue, stream, checked)
    return checked


def _watched_table(catalogue: Catalogue, stream: str, name: str) -> Table:
    if name.lower() in catalogue.indexes:
        index = catalogue.index(name).name
        raise failed_precondition(
            f"Change Stream {stream} does not support tracking Index {index}. {_TRACKABLE}"
        )
    table = catalogue.tables.get(name.lower())
    if table is None:
        raise failed_precondition(
            f"Change Stream {stream} cannot track {name} because either Change Streams do not "
            "track database objects of this type, or this Table does not exist."
        )
    return table


def _watched_columns(
    stream: str, table: Table, names: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    if names is None:
        return None
    columns: list[str] = []
    for name in names:
        column = table.by_name.get(name.lower())
        if column is None:
            raise failed_precondition(
                f"Change Stream {stream} cannot track column {name} because it does not exist in "
                f"Table {table.name}."
            )
        if column.name in table.key_names:
            raise failed_precondition(
                f"The FOR clause of Change Stream {stream} should not list the primary key column "
                f"{column.name} of Table {table.name}. Please list non-key columns only, because "
                "primary key columns are always tracked if the table is tracked."
            )
        if column.generated is not None:
            raise failed_precondition(
                f"Change Stream {stream} does not support tracking non-key generated column "
                f"{table.name}.{column.name}. {_TRACKABLE}"
            )
        if column.name in columns:
            raise failed_precondition(
                f"Change Stream {stream} should not list Column {column.name} of Table "
                f"{table.name} more than once in the FOR clause."
            )
        columns.append(column.name)
    return tuple(columns)


def _check_crowd(catalogue: Catalogue, name: str, watch: ddl.Watch) -> None:
    """No more than three streams on ALL, on a whole table, or on a column."""
    other_streams = [watcher for key, watcher in catalogue.streams.items() if key != name.lower()]
    stream = ChangeStream(name, 0, watch)
    if watch.everything:
        _check_count(name, "ALL", sum(_watches_all(watcher) for watcher in other_streams))
    for table in catalogue.tables.values():
        if _watches_whole(stream, table):
            _check_count(
                name, table.name, sum(_watches_whole(watcher, table) for watcher in other_streams)
            )
        for column in stream.tracked_columns(table) or ():
            count = sum(
                column in (watcher.tracked_columns(table) or ()) for watcher in other_streams
            )
            _check_count(name, column, count)


def _check_count(stream: str, tracked: str, count: int) -> None:
    if count >= STREAMS_PER_OBJECT_MAX:
        raise failed_precondition(
            f"Failed to create or alter Change Stream {stream} : because it is not allowed to have "
            f"more than {STREAMS_PER_OBJECT_MAX} Change Streams tracking the same table or non-key "
            f"column or ALL: {tracked}."
        )


def _watches_all(stream: ChangeStream) -> bool:
    return stream.watch is not None and stream.watch.everything


def _watches_whole(stream: ChangeStream, table: Table) -> bool:
    return _watches_all(stream) or any(
        name == table.name and columns is None
        for name, columns in (stream.watch.tables if stream.watch else ())
    )


# -- what keeps a table or column from being dropped


def check_table_is_untracked(catalogue: Catalogue, table: Table) -> None:
    """Reject dropping a table that a stream names; FOR ALL stops watching it."""
    trackers = sorted(
        stream.name
        for stream in catalogue.streams.values()
        if any(name == table.name for name, _ in (stream.watch.tables if stream.watch else ()))
    )
    if trackers:
        raise failed_precondition(
            f"Cannot drop table {table.name}. Table {table.name} is tracked by {len(trackers)} "
            f"Change Stream: {','.join(trackers)}. Tables explicitly tracked by a Change Stream "
            "cannot be dropped. Please drop the Change Stream or modify its FOR clause to stop "
            "tracking the table explicitly before dropping the table."
        )


def check_column_is_untracked(catalogue: Catalogue, table: Table, column: str) -> None:
    """Reject dropping a column that a stream lists; a stream of the whole table permits it.

    The text counts all streams that track it, also those that do not list it.
    """
    streams = catalogue.streams.values()
    if not any(
        name == table.name and column in (columns or ())
        for stream in streams
        for name, columns in (stream.watch.tables if stream.watch else ())
    ):
        return
    trackers = sorted(
        stream.name for stream in streams if column in (stream.tracked_columns(table) or ())
    )
    name = f"{table.name}.{column}"
    raise failed_precondition(
        f"Cannot drop column {name} . Column {name} is tracked by {len(trackers)} Change Stream: "
        f"{','.join(trackers)}. Columns explicitly tracked by a Change Stream cannot be dropped. "
        "Please alter the Change Stream to stop tracking the column before dropping the column."
    )
