"""Change streams: what they watch, their options and their read functions."""

from __future__ import annotations

from collections.abc import Iterator

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.information_schema.rows import (
    ViewRow,
    located,
    option,
)
from spanner_simulator.core.schema.role_rules import read_functions
from spanner_simulator.core.schema.schema_objects import ChangeStream

_PARAMETERS = (
    ("start_timestamp", "TIMESTAMP", "timestamp with time zone"),
    ("end_timestamp", "TIMESTAMP", "timestamp with time zone"),
    ("partition_token", "STRING", "character varying"),
    ("heartbeat_milliseconds", "INT64", "bigint"),
    ("read_options", "ARRAY<STRING>", "character varying[]"),
)


def _stream(stream: ChangeStream) -> ViewRow:
    return located(stream.name, "change_stream")


def change_streams(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Every change stream, and whether it watches everything."""
    for stream in catalogue.streams.values():
        everything = stream.watch is not None and stream.watch.everything
        yield _stream(stream) | {"all": everything}


def change_stream_tables(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Tables that are named; a stream on everything names none."""
    for stream in catalogue.streams.values():
        for table, columns in stream.watch.tables if stream.watch else ():
            yield _stream(stream) | located(table) | {"all_columns": columns is None}


def change_stream_columns(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Columns that are listed."""
    for stream in catalogue.streams.values():
        for table, columns in stream.watch.tables if stream.watch else ():
            for column in columns or ():
                yield _stream(stream) | located(table) | {"column_name": column}


def change_stream_options(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Options that were set, not those that have their default."""
    for stream in catalogue.streams.values():
        for name, value in stream.options:
            row = _stream(stream) | option(name, value)
            yield (
                row | {"option_value": str(row["option_value"]).lower()}
                if isinstance(value, bool)
                else row
            )


def routine(catalogue: Catalogue, function: str) -> ViewRow:
    """The columns that name a read function."""
    name = function if catalogue.dialect == "GOOGLE_STANDARD_SQL" else f"spanner.{function}"
    return located(name, "specific") | located(name, "routine")


def routines(catalogue: Catalogue) -> Iterator[ViewRow]:
    """The read functions of all change streams."""
    for stream in catalogue.streams.values():
        for function in read_functions(catalogue, stream.name):
            yield routine(catalogue, function) | {
                "routine_type": "TABLE FUNCTION"
                if catalogue.dialect == "GOOGLE_STANDARD_SQL"
                else "FUNCTION",
                "routine_body": "EXTERNAL",
                "security_type": "INVOKER",
            }


def parameters(catalogue: Catalogue) -> Iterator[ViewRow]:
    """The arguments of the read functions; all may be left out."""
    for stream in catalogue.streams.values():
        for function in read_functions(catalogue, stream.name):
            for position, (name, google, postgres) in enumerate(_PARAMETERS, start=1):
                is_google = catalogue.dialect == "GOOGLE_STANDARD_SQL"
                yield routine(catalogue, function) | {
                    "ordinal_position": position,
                    "parameter_name": name,
                    "data_type": google if is_google else postgres,
                    "parameter_default": "NULL",
                }
