"""Carries out one DDL statement on a catalogue; each kind has its rules in a module of its own."""

from __future__ import annotations

from typing import assert_never

from spanner_simulator.core.schema import (
    column_rules,
    constraint_rules,
    database_options,
    index_rules,
    proto_rules,
    role_rules,
    stream_rules,
    table_rules,
    view_rules,
)
from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.catalogue import Catalogue


def apply_statement(
    catalogue: Catalogue, statement: ddl.Statement, *, now_us: int, proto_descriptors: bytes = b""
) -> None:
    """Carry out one statement whole, or raise `SpannerError` and change nothing.

    A failure of the analyser changes nothing either. `proto_descriptors` is a serialised
    FileDescriptorSet with the types of a proto bundle.
    """
    with catalogue.restored_on_error():
        statement = proto_rules.with_known_types(catalogue, statement)
        _apply(catalogue, statement, now_us, proto_descriptors)
        role_rules.forget_lost_objects(catalogue)


def _apply(
    catalogue: Catalogue, statement: ddl.Statement, now_us: int, proto_descriptors: bytes
) -> None:
    match statement:
        case ddl.CreateTable():
            table_rules.create_table(catalogue, statement)
        case ddl.DropTable():
            table_rules.drop_table(catalogue, statement)
        case ddl.AddConstraint():
            constraint_rules.add_constraint(catalogue, statement)
        case ddl.DropConstraint():
            constraint_rules.drop_constraint(catalogue, statement)
        case ddl.SetRowDeletion():
            table_rules.set_row_deletion(catalogue, statement)
        case ddl.SetOnDelete():
            table_rules.set_on_delete(catalogue, statement)
        case ddl.AddColumn():
            column_rules.add_column(catalogue, statement)
        case ddl.DropColumn():
            column_rules.drop_column(catalogue, statement)
        case (
            ddl.ReplaceColumn()
            | ddl.AlterColumnType()
            | ddl.SetColumnDefault()
            | ddl.SetColumnNullable()
            | ddl.SetColumnOptions()
        ):
            column_rules.alter_column(catalogue, statement)
        case ddl.CreateIndex():
            index_rules.create_index(catalogue, statement)
        case ddl.AlterIndex():
            index_rules.alter_index(catalogue, statement)
        case ddl.DropIndex():
            index_rules.drop_index(catalogue, statement)
        case ddl.CreateView():
            view_rules.create_view(catalogue, statement)
        case ddl.DropView():
            view_rules.drop_view(catalogue, statement)
        case ddl.CreateSchema():
            view_rules.create_schema(catalogue, statement)
        case ddl.DropSchema():
            view_rules.drop_schema(catalogue, statement)
        case ddl.CreateProtoBundle():
            proto_rules.create_bundle(catalogue, statement, proto_descriptors)
        case ddl.AlterProtoBundle():
            proto_rules.alter_bundle(catalogue, statement, proto_descriptors)
        case ddl.DropProtoBundle():
            proto_rules.drop_bundle(catalogue)
        case ddl.AlterDatabase():
            database_options.alter_database(catalogue, statement)
        case ddl.Analyze():
            pass
        case ddl.CreateStream():
            stream_rules.create_stream(catalogue, statement, now_us)
        case ddl.AlterStreamWatch():
            stream_rules.alter_watch(catalogue, statement)
        case ddl.AlterStreamOptions():
            stream_rules.alter_options(catalogue, statement)
        case ddl.DropStream():
            stream_rules.drop_stream(catalogue, statement)
        case ddl.CreateRole():
            role_rules.create_role(catalogue, statement)
        case ddl.DropRole():
            role_rules.drop_role(catalogue, statement)
        case ddl.Grant():
            role_rules.grant(catalogue, statement)
        case _:
            assert_never(statement)
