"""Carries out one DDL statement on a catalogue; each kind has its rules in a separate module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from spanner_simulator.core.schema import (
    column_rules,
    object_rules,
    stream_rules,
    table_rules,
)
from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.catalogue import Catalogue


def apply_statement(
    catalogue: Catalogue, statement: ddl.Statement, *, now_us: int, proto_descriptors: bytes = b""
) -> None:
    """Apply one statement completely, or raise `SpannerError` and change nothing.

    A failure of the analyser changes nothing either.  `proto_descriptors` is a serialised
    FileDescriptorSet with the types of a proto bundle.
    """
    with catalogue.restored_on_error():
        statement = object_rules.with_known_types(catalogue, statement)
        _apply(catalogue, statement, now_us, proto_descriptors)
        object_rules.forget_lost_objects(catalogue)


def _apply(
    catalogue: Catalogue, statement: ddl.Statement, now_us: int, proto_descriptors: bytes
) -> None:
    match statement:
        case ddl.CreateTable():
            table_rules.create_table(catalogue, statement)
        case ddl.AddColumn():
            column_rules.add_column(catalogue, statement)
        case ddl.DropColumn():
            column_rules.drop_column(catalogue, statement)
        case ddl.AlterColumn():
            column_rules.alter_column(catalogue, statement)
        case ddl.SetRowDeletion():
            table_rules.set_row_deletion(catalogue, statement)
        case ddl.CreateIndex():
            object_rules.create_index(catalogue, statement)
        case ddl.CreateSchema(name=name):
            if not (statement.if_not_exists and name.lower() in catalogue.schemas):
                catalogue.check_new_name("Schema", name)
                catalogue.schemas[name.lower()] = name
        case ddl.CreateProtoBundle():
            object_rules.create_bundle(catalogue, statement, proto_descriptors)
        case ddl.CreateStream():
            stream_rules.create_stream(catalogue, statement, now_us)
        case ddl.AlterStreamWatch():
            stream_rules.alter_watch(catalogue, statement)
        case ddl.AlterStreamOptions():
            stream_rules.alter_options(catalogue, statement)
        case ddl.CreateRole():
            object_rules.create_role(catalogue, statement)
        case ddl.Drop():
            _drop(catalogue, statement)
        case ddl.Grant():
            object_rules.grant(catalogue, statement)
        case _:
            assert_never(statement)


def _drop(catalogue: Catalogue, statement: ddl.Drop) -> None:
    name = statement.name
    owned: dict[ddl.DropKind, Mapping[str, object]] = {
        "TABLE": catalogue.tables,
        "INDEX": catalogue.indexes,
        "CHANGE STREAM": catalogue.streams,
        "ROLE": catalogue.roles,
    }
    if statement.if_exists and name.lower() not in owned[statement.kind]:
        return
    match statement.kind:
        case "TABLE":
            table_rules.drop_table(catalogue, catalogue.table(name))
        case "INDEX":
            del catalogue.indexes[catalogue.index(name).name.lower()]
        case "CHANGE STREAM":
            del catalogue.streams[catalogue.stream(name).name.lower()]
        case "ROLE":
            object_rules.drop_role(catalogue, catalogue.role(name))
        case _:
            assert_never(statement.kind)
