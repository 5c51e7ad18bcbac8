from __future__ import annotations

from spanner_simulator.core.schema.information_schema.layout import (
    Column,
    columns_of,
    view_names,
)


def test_columns_say_what_they_are() -> None:
    columns = columns_of("GOOGLE_STANDARD_SQL", "Change_Streams") or ()

    assert columns[0] == Column("change_stream_catalog", "TEXT", is_nullable=False)
    assert columns[-1] == Column("all", "BOOL", is_nullable=False)
    position = (columns_of("POSTGRESQL", "key_column_usage") or ())[-1]
    assert position == Column("position_in_unique_constraint", "INT64", is_nullable=True)


def test_some_views_belong_to_one_dialect() -> None:
    assert columns_of("GOOGLE_STANDARD_SQL", "information_schema_catalog_name") is None
    assert columns_of("POSTGRESQL", "sequence_options") is None
    assert set(view_names("GOOGLE_STANDARD_SQL")) ^ set(view_names("POSTGRESQL")) == {
        "information_schema_catalog_name",
        "sequence_options",
    }
