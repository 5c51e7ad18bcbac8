"""Settings and the stream that they are of."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.unit.producer.commands.test_environment import started
from tidegate.producer.backfill.read_partition import ReadPartition, read_token
from tidegate.producer.commands.stream_settings import (
    backfill_tables,
    filter_of,
    require_backfill,
    require_mode,
    require_names,
)
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import ChildPartition, ProgressRecord
from tidegate.schemas.tables import Column, ColumnType, TableSchema


def test_the_filter_has_what_the_settings_leave_out(place):
    assert filter_of(place.config()).is_empty
    chosen = filter_of(place.config(mod_types="insert,delete", tags_left_out="a;b c"))
    assert chosen.mod_types == ("INSERT", "DELETE")
    assert chosen.tags_left_out == ("a", "b c")


def test_keys_that_move_are_never_parked(place):
    moves = SimpleNamespace(has_key_moves=True, partition_mode="MUTABLE_KEY_RANGE")
    stays = SimpleNamespace(has_key_moves=False)
    park, stop = place.config(poison="park"), place.config()
    require_mode(park, stays, has_dead_letter=True)
    require_mode(stop, moves, has_dead_letter=False)
    with pytest.raises(ConfigError, match="poison: park is not possible"):
        require_mode(park, moves, has_dead_letter=False)
    with pytest.raises(ConfigError, match="has a dead-letter topic"):
        require_mode(stop, moves, has_dead_letter=True)


def test_a_column_that_flat_values_have_no_place_for_is_named(place):
    column = Column("__op", ColumnType("STRING"), 2)
    table = TableSchema("shop.T", (Column("id", ColumnType("INT64"), 1, key_position=1), column))
    described = SimpleNamespace(tables=(table,))

    require_names(place.config(), described)
    with pytest.raises(ConfigError, match=r"cannot have the column shop\.T\.__op") as caught:
        require_names(place.config(envelope="flat"), described)
    assert "columns_left_out" in caught.value.hint
    assert "a stream that has begun needs another prefix" in caught.value.hint


def test_a_backfill_is_of_tables_that_are_published(place):
    listed = place.config(backfill=" Users ,Sales.Orders")
    published = ["Users", "Sales.Orders", "Other"]
    assert backfill_tables(listed, published) == ("Users", "Sales.Orders")
    assert backfill_tables(place.config(backfill="*"), published) == tuple(sorted(published))
    assert backfill_tables(place.config(), published) == ()
    with pytest.raises(ConfigError, match=r"backfill: .* does not publish the table Users.*Other"):
        backfill_tables(listed, ["Other"])


def test_a_stream_that_began_without_a_backfill_gets_none(place):
    token = read_token(ReadPartition("Users", 0, 1, 5, None, None))
    without, with_one = (
        ProgressRecord("e", "w", replace(started("s").body, children=(ChildPartition(one, (), 1),)))
        for one in ("token", token)
    )
    config = place.config(backfill="Users")
    with pytest.raises(ConfigError, match="begun without a backfill"):
        require_backfill(config, without)
    require_backfill(config, with_one)
    require_backfill(place.config(), without)
