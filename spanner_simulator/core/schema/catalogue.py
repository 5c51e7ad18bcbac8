"""The schema of one database and the rules under which a DDL statement may change it.

Names are found without regard to case and kept as written. The error texts are the service's own
where they are known. Rows and stream partitions are not here: `database` reacts to what changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from tidegate.spanner_simulator.core.schema import statements as ddl
from tidegate.spanner_simulator.core.schema.schema_objects import (
    ChangeStream,
    Role,
    Table,
    duration_us,
)
from tidegate.spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from tidegate.spanner_simulator.core.schema.schema_objects import Index, View
    from tidegate.spanner_simulator.core.values import Dialect

__all__ = ["Catalogue"]

STREAMS_MAX = 10
STREAMS_PER_OBJECT_MAX = 3
_BOOL_OPTIONS = (
    "exclude_insert",
    "exclude_update",
    "exclude_delete",
    "exclude_ttl_deletes",
    "allow_txn_exclusion",
)
_CAPTURE_TYPES = ("OLD_AND_NEW_VALUES", "NEW_ROW", "NEW_VALUES", "NEW_ROW_AND_OLD_VALUES")


def _refused(message: str) -> SpannerError:
    return SpannerError(Code.FAILED_PRECONDITION, message)


class Catalogue:
    """Tables, change streams and roles by lower-case name."""

    def __init__(self, dialect: Dialect = "GOOGLE_STANDARD_SQL") -> None:
        self.dialect = dialect
        self.tables: dict[str, Table] = {}
        self.indexes: dict[str, Index] = {}
        self.views: dict[str, View] = {}
        self.streams: dict[str, ChangeStream] = {}
        self.roles: dict[str, Role] = {}

    def table(self, name: str) -> Table:
        """A table by name, or NOT_FOUND."""
        table = self.tables.get(name.lower())
        if table is None:
            raise SpannerError(Code.NOT_FOUND, f"Table not found: {name}")
        return table

    def stream(self, name: str) -> ChangeStream:
        """A change stream by name, or NOT_FOUND."""
        stream = self.streams.get(name.lower())
        if stream is None:
            raise SpannerError(Code.NOT_FOUND, f"Change Stream not found: {name}")
        return stream

    def role(self, name: str) -> Role:
        """A role by name, or NOT_FOUND."""
        role = self.roles.get(name.lower())
        if role is None:
            raise SpannerError(Code.NOT_FOUND, f"Role not found: {name}.")
        return role

    def has_privilege(self, role: str, kind: ddl.ObjectKind, name: str, privilege: str) -> bool:
        """Whether a role has it, itself or through the roles that it is a member of."""
        seen: set[str] = set()
        waiting = [role.lower()]
        while waiting:
            current = waiting.pop()
            if current in seen or current not in self.roles:
                continue
            seen.add(current)
            if (kind, name.lower(), privilege) in self.roles[current].privileges:
                return True
            waiting.extend(self.roles[current].members_of)
        return False

    def apply(self, statement: ddl.Statement, *, now_us: int) -> None:
        """Carry out one statement whole, or raise `SpannerError` and change nothing."""
        match statement:
            case ddl.CreateTable():
                self._create_table(statement)
            case ddl.DropTable():
                self._drop_table(statement)
            case ddl.AddColumn():
                self._add_column(statement)
            case ddl.DropColumn():
                self._drop_column(statement)
            case ddl.CreateStream():
                self._create_stream(statement, now_us)
            case ddl.AlterStreamWatch():
                self._alter_watch(statement)
            case ddl.AlterStreamOptions():
                self._alter_options(statement)
            case ddl.DropStream():
                if not (statement.if_exists and statement.name.lower() not in self.streams):
                    del self.streams[self.stream(statement.name).name.lower()]
            case ddl.CreateRole():
                if statement.name.lower() in self.roles:
                    raise _refused(f"Duplicate name in schema: {statement.name}.")
                self.roles[statement.name.lower()] = Role(statement.name)
            case ddl.DropRole():
                del self.roles[self.role(statement.name).name.lower()]
            case ddl.Grant():
                self._grant(statement)
            case _:
                assert_never(statement)

    def _check_new_name(self, name: str) -> None:
        taken = name.lower() in self.tables or name.lower() in self.streams
        functions = {f"read_{stream}" for stream in self.streams}
        if taken or name.lower() in functions:
            raise _refused(f"Duplicate name in schema: {name}.")

    # -- tables

    def _create_table(self, statement: ddl.CreateTable) -> None:
        if statement.if_not_exists and statement.name.lower() in self.tables:
            return
        self._check_new_name(statement.name)
        names = [column.name.lower() for column in statement.columns]
        if len(set(names)) != len(names):
            raise _refused(f"Duplicate column name in table {statement.name}.")
        by_name = {column.name.lower(): column for column in statement.columns}
        key: list[ddl.KeyColumn] = []
        for part in statement.key:
            column = by_name.get(part.name.lower())
            if column is None:
                raise _refused(
                    f"Table {statement.name} references nonexistent key column {part.name}."
                )
            if column.value_type.code in ("ARRAY", "JSON"):
                raise _refused(
                    f"Key column {column.name} of table {statement.name} has type "
                    f"{column.value_type.ddl()}, which cannot be part of a key."
                )
            key.append(ddl.KeyColumn(column.name, part.descending))
        self.tables[statement.name.lower()] = Table(
            statement.name,
            statement.columns,
            tuple(key),
            tuple(range(1, len(names) + 1)),
            len(names) + 1,
        )

    def _drop_table(self, statement: ddl.DropTable) -> None:
        if statement.if_exists and statement.name.lower() not in self.tables:
            return
        table = self.table(statement.name)
        trackers = sorted(
            stream.name for stream in self.streams.values() if _names_table(stream, table.name)
        )
        if trackers:
            raise _refused(
                f"Cannot drop table {table.name}. Table {table.name} is tracked by "
                f"{len(trackers)} Change Stream: {','.join(trackers)}. Tables explicitly tracked "
                "by a Change Stream cannot be dropped. Please drop the Change Stream or modify "
                "its FOR clause to stop tracking the table explicitly before dropping the table."
            )
        del self.tables[table.name.lower()]

    def _add_column(self, statement: ddl.AddColumn) -> None:
        table, column = self.table(statement.table), statement.column
        if column.name.lower() in table.by_name:
            if statement.if_not_exists:
                return
            raise _refused(f"Duplicate column name {table.name}.{column.name}.")
        if not column.is_nullable:
            raise _refused(f"Cannot add NOT NULL column {table.name}.{column.name}.")
        self.tables[table.name.lower()] = replace(
            table,
            columns=(*table.columns, column),
            ordinals=(*table.ordinals, table.next_ordinal),
            next_ordinal=table.next_ordinal + 1,
        )

    def _drop_column(self, statement: ddl.DropColumn) -> None:
        table = self.table(statement.table)
        column = table.column(statement.column)
        if column.name in table.key_names:
            raise _refused(f"Cannot drop key column {column.name} of table {table.name}.")
        trackers = sorted(
            stream.name
            for stream in self.streams.values()
            if column.name.lower() in _named_columns(stream, table.name)
        )
        if trackers:
            name = f"{table.name}.{column.name}"
            raise _refused(
                f"Cannot drop column {name} . Column {name} is tracked by {len(trackers)} Change "
                f"Stream: {','.join(trackers)}. Columns explicitly tracked by a Change Stream "
                "cannot be dropped. Please drop the Change Stream or modify its FOR clause to "
                "stop tracking the column explicitly before dropping the column."
            )
        kept = [index for index, old in enumerate(table.columns) if old != column]
        self.tables[table.name.lower()] = replace(
            table,
            columns=tuple(table.columns[index] for index in kept),
            ordinals=tuple(table.ordinals[index] for index in kept),
        )

    # -- change streams

    def _create_stream(self, statement: ddl.CreateStream, now_us: int) -> None:
        if statement.if_not_exists and statement.name.lower() in self.streams:
            return
        self._check_new_name(statement.name)
        if len(self.streams) >= STREAMS_MAX:
            raise _refused(
                f"Cannot add Change Stream {statement.name} : because the maximum number of "
                f"Change Streams per Database (limit {STREAMS_MAX}) has been reached."
            )
        _check_options(statement.options)
        stream = ChangeStream(statement.name, now_us, statement.watch, statement.options)
        self._check_watch(stream)
        self.streams[statement.name.lower()] = stream

    def _alter_watch(self, statement: ddl.AlterStreamWatch) -> None:
        stream = self.stream(statement.name)
        if statement.watch is None and stream.watch is None:
            raise _refused(
                "The ALTER CHANGE STREAM DROP FOR clause cannot be applied on Change Stream "
                f"{stream.name}, because it does not have a FOR clause and it does not track any "
                "database object."
            )
        changed = ChangeStream(stream.name, stream.created_us, statement.watch, stream.options)
        self._check_watch(changed)
        self.streams[stream.name.lower()] = changed

    def _alter_options(self, statement: ddl.AlterStreamOptions) -> None:
        stream = self.stream(statement.name)
        _check_options(statement.options)
        options = dict(stream.options)
        for name, value in statement.options:
            if name == "partition_mode" and value != options.get(name, "IMMUTABLE_KEY_RANGE"):
                raise _refused(
                    "Cannot alter partition_mode to a different value. Change Stream "
                    f"{stream.name} was created with partition_mode "
                    f"{options.get(name, 'IMMUTABLE_KEY_RANGE')}."
                )
            if value is None:
                options.pop(name, None)
            else:
                options[name] = value
        self.streams[stream.name.lower()] = ChangeStream(
            stream.name, stream.created_us, stream.watch, tuple(options.items())
        )

    def _check_watch(self, stream: ChangeStream) -> None:
        watch = stream.watch
        if watch is None:
            return
        seen: set[str] = set()
        for name, columns in watch.tables:
            table = self.tables.get(name.lower())
            if table is None:
                raise _refused(
                    f"Change Stream {stream.name} cannot track {name} because either Change "
                    "Streams do not track database objects of this type, or this Table does not "
                    "exist."
                )
            if name.lower() in seen:
                raise _refused(
                    f"Change Stream {stream.name} should not list Table {table.name} more than "
                    "once in the FOR clause."
                )
            seen.add(name.lower())
            for column in columns or ():
                _check_watched_column(stream, table, column)
        self._check_trackers(stream)

    def _check_trackers(self, stream: ChangeStream) -> None:
        others = [s for s in self.streams.values() if s.name.lower() != stream.name.lower()]
        if stream.watch is not None and stream.watch.everything:
            crowd = [o for o in others if o.watch is not None and o.watch.everything]
            if len(crowd) >= STREAMS_PER_OBJECT_MAX:
                raise _too_many_trackers(stream.name, "ALL")
        for table in self.tables.values():
            for column in stream.tracked_columns(table) or ():
                crowd = [o for o in others if column in (o.tracked_columns(table) or ())]
                if len(crowd) >= STREAMS_PER_OBJECT_MAX:
                    raise _too_many_trackers(stream.name, column)

    # -- roles

    def _grant(self, statement: ddl.Grant) -> None:
        roles = [self.role(name) for name in statement.roles]
        for name in statement.objects:
            self._check_grantable(statement.kind, name)
        for role in roles:
            for name in statement.objects:
                if statement.kind == "ROLE":
                    (role.members_of.discard if statement.revoke else role.members_of.add)(
                        name.lower()
                    )
                    continue
                for privilege in statement.privileges:
                    entry = (statement.kind, name.lower(), privilege)
                    (role.privileges.discard if statement.revoke else role.privileges.add)(entry)

    def _check_grantable(self, kind: ddl.ObjectKind, name: str) -> None:
        match kind:
            case "TABLE":
                self.table(name)
            case "CHANGE STREAM":
                self.stream(name)
            case "ROLE":
                self.role(name)
            case "TABLE FUNCTION":
                if not name.lower().startswith("read_") or name[5:].lower() not in self.streams:
                    raise SpannerError(Code.NOT_FOUND, f"Table function not found: {name}")
            case _:
                assert_never(kind)


def _too_many_trackers(stream: str, tracked: str) -> SpannerError:
    return _refused(
        f"Failed to create or alter Change Stream {stream} : because it is not allowed to have "
        f"more than {STREAMS_PER_OBJECT_MAX} Change Streams tracking the same table or non-key "
        f"column or ALL: {tracked}."
    )


def _names_table(stream: ChangeStream, table: str) -> bool:
    watch = stream.watch
    return watch is not None and any(name.lower() == table.lower() for name, _ in watch.tables)


def _named_columns(stream: ChangeStream, table: str) -> frozenset[str]:
    for name, columns in stream.watch.tables if stream.watch else ():
        if name.lower() == table.lower():
            return frozenset(column.lower() for column in columns or ())
    return frozenset()


def _check_watched_column(stream: ChangeStream, table: Table, column: str) -> None:
    found = table.by_name.get(column.lower())
    if found is None:
        raise _refused(
            f"Change Stream {stream.name} cannot track column {column} because it does not exist "
            f"in Table {table.name}."
        )
    if found.name in table.key_names:
        raise _refused(
            f"The FOR clause of Change Stream {stream.name} should not list the primary key "
            f"column {found.name} of Table {table.name}. Please list non-key columns only, because "
            "primary key columns are always tracked if the table is tracked."
        )


def _check_options(options: tuple[tuple[str, ddl.OptionValue], ...]) -> None:
    for name, value in options:
        if name in _BOOL_OPTIONS:
            if value is not None and not isinstance(value, bool):
                raise SpannerError(
                    Code.INVALID_ARGUMENT,
                    f"Error parsing Spanner DDL statement: Unexpected value for option: {name}. "
                    "Supported option values are booleans and NULL.",
                )
        elif name == "retention_period":
            _check_retention(value)
        elif name == "value_capture_type":
            if value is not None and value not in _CAPTURE_TYPES:
                raise _refused(
                    f"Invalid value_capture_type: {value}. Change Streams only support value "
                    "capture types in OLD_AND_NEW_VALUES, NEW_ROW, and NEW_VALUES."
                )
        elif name == "partition_mode":
            if value not in (None, "IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"):
                raise _refused(
                    f"Invalid partition_mode: {value}. Change Streams only support partition "
                    "modes in IMMUTABLE_KEY_RANGE and MUTABLE_KEY_RANGE."
                )
        else:
            raise SpannerError(
                Code.INVALID_ARGUMENT,
                f"Error parsing Spanner DDL statement: Option: {name} is unknown.",
            )


def _check_retention(value: ddl.OptionValue) -> None:
    if value is None:
        return
    period_us = duration_us(str(value))
    if not duration_us("24h") <= period_us <= duration_us("30d"):
        raise _refused(
            f"Invalid retention_period: {value}. Change Streams retention period must be a value "
            "in the range [24h, 30d]."
        )
