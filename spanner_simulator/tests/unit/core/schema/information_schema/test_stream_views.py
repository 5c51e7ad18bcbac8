from __future__ import annotations

PG = "POSTGRESQL"


def test_streams(shown) -> None:
    assert shown("change_streams", "change_stream_name all") == [("S", False), ("Everything", True)]
    assert shown("change_streams", "change_stream_schema all", PG) == [
        ("public", "NO"),
        ("public", "YES"),
        ("public", "NO"),
    ]


def test_what_streams_name(shown) -> None:
    assert shown(
        "change_stream_tables",
        "change_stream_name table_schema table_name all_columns",
    ) == [("S", "", "T", False), ("S", "ns", "R", True)]
    assert shown("change_stream_tables", "table_schema all_columns", PG) == [("public", "NO")]
    assert shown("change_stream_columns", "change_stream_name table_name column_name") == [
        ("S", "T", "a"),
    ]


def test_only_options_that_were_set(shown) -> None:
    names = "change_stream_name option_name option_type option_value"

    assert shown("change_stream_options", names) == [
        ("S", "retention_period", "STRING", "36h"),
        ("S", "exclude_insert", "BOOL", "true"),
    ]
    assert shown("change_stream_options", names, PG) == [
        ("s", "retention_period", "character varying", "36h"),
        ("m", "partition_mode", "character varying", "MUTABLE_KEY_RANGE"),
    ]


def test_read_functions(shown) -> None:
    assert shown("routines", "specific_schema routine_name routine_type") == [
        ("", "READ_S", "TABLE FUNCTION"),
        ("", "READ_Everything", "TABLE FUNCTION"),
    ]
    assert shown("routines", "routine_schema routine_name", PG) == [
        ("spanner", "read_json_s"),
        ("spanner", "read_json_everything"),
        ("spanner", "read_proto_bytes_m"),
    ]


def test_arguments_of_read_functions(shown) -> None:
    assert shown(
        "parameters", "ordinal_position parameter_name data_type", specific_name="READ_S"
    ) == [
        (1, "start_timestamp", "TIMESTAMP"),
        (2, "end_timestamp", "TIMESTAMP"),
        (3, "partition_token", "STRING"),
        (4, "heartbeat_milliseconds", "INT64"),
        (5, "read_options", "ARRAY<STRING>"),
    ]
