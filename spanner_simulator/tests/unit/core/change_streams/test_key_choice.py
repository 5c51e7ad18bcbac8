from __future__ import annotations

import random

import pytest

from spanner_simulator.core.change_streams.key_choice import (
    initial_borders,
    merge_candidates,
    split_candidate,
    split_key,
)
from spanner_simulator.core.change_streams.stream_partitions import StreamPartitions
from spanner_simulator.core.rows.storage import TableRows
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.statement_rules import apply_statement
from spanner_simulator.errors import SpannerError


def tables(*definitions: str) -> tuple[list[Table], dict[str, TableRows]]:
    catalogue = Catalogue()
    for definition in definitions:
        apply_statement(catalogue, parse_ddl(f"CREATE TABLE {definition}"), now_us=1)
    return list(catalogue.tables.values()), {name: TableRows() for name in catalogue.tables}


INTS = "A (K INT64) PRIMARY KEY (K)"
TEXTS = "B (K STRING(36)) PRIMARY KEY (K)"


def test_borders_of_empty_tables_divide_the_range_of_the_key_type() -> None:
    (first, second), rows = tables(INTS, TEXTS)
    assert initial_borders([second, first], rows, 4) == [
        first.encoded_key_of([0]),
        second.prefix,
        second.encoded_key_of(["8000"]),
    ]


def test_borders_follow_rows_that_exist() -> None:
    (table,), rows = tables(INTS)
    keys = [table.encoded_key_of([number]) for number in range(100)]
    for key in keys:
        rows["a"].write(key, {}, commit_us=1, commit_number=1)
    assert initial_borders([table], rows, 4) == [keys[25], keys[50], keys[75]]


def test_as_many_as_asked_for_where_a_key_type_has_a_known_range() -> None:
    found, rows = tables(INTS, TEXTS, "C (K STRING(MAX)) PRIMARY KEY (K DESC)")
    unknown, none = tables("A (K BOOL) PRIMARY KEY (K)")
    assert [len(initial_borders(found, rows, count)) for count in (1, 2, 3, 16)] == [0, 1, 2, 15]
    assert initial_borders(unknown, none, 4) == initial_borders([], none, 4) == []


def make() -> StreamPartitions:
    return StreamPartitions(random.Random(1), [b"a", b"b", b"n"], start_us=0)


def test_the_busiest_is_split_at_the_median_of_what_was_written() -> None:
    live = make().live
    live[1].recent_keys.extend([b"a1", b"a2", b"a3"])
    live[2].recent_keys.extend([b"b1"] * 9)
    assert split_candidate(live) is live[1]
    assert split_key(live[1]) == b"a2"


def test_without_writes_the_widest_is_split_half_way() -> None:
    live = make().live
    assert split_candidate(live) is live[3]
    assert live[3].low < split_key(live[3])
    assert b"a" < split_key(live[1]) < b"b"


def test_the_least_written_pair_that_was_written_is_merged() -> None:
    live = make().live
    live[1].recent_keys.extend([b"a1", b"a2", b"a3"])
    live[2].recent_keys.extend([b"b1", b"b2"])
    live[3].recent_keys.append(b"z")
    assert merge_candidates(live) == [live[2], live[3]]


def test_too_narrow_a_range_and_one_alone_are_refused() -> None:
    (_, narrow, _) = StreamPartitions(random.Random(1), [b"a", b"a\x00"], start_us=0).live
    with pytest.raises(SpannerError, match="too narrow"):
        split_key(narrow)
    with pytest.raises(SpannerError, match="nothing to merge"):
        merge_candidates([narrow])
