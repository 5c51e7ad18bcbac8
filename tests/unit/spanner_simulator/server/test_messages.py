from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import types as spanner

from tidegate.spanner_simulator.core.rows.mutations import Delete, KeyBound, KeySet, KeySpan, Write
from tidegate.spanner_simulator.core.values import ValueType
from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.server.messages import (
    key_set,
    metadata_bytes,
    mutation,
    parameters,
    timestamp_message,
    timestamp_us_of,
)


@pytest.mark.parametrize("kind", ["insert", "update", "insert_or_update", "replace"])
def test_writes(kind: str) -> None:
    message = spanner.Mutation.pb()()
    write = getattr(message, kind)
    write.table = "T"
    write.columns.extend(["a", "b"])
    row = write.values.add().values
    row.add(string_value="1")
    row.add(null_value=0)

    assert mutation(message) == Write(kind, "T", ("a", "b"), (["1", None],))  # type: ignore[arg-type]


def test_a_delete_with_keys_ranges_and_everything() -> None:
    message = spanner.Mutation.pb()()
    keys = message.delete.key_set
    message.delete.table = "T"
    keys.keys.add().values.add(bool_value=True)
    span = keys.ranges.add()
    span.start_open.values.add(number_value=1)
    span.end_closed.SetInParent()
    keys.all_ = True

    assert mutation(message) == Delete(
        "T",
        KeySet(
            ([True],),
            (KeySpan(KeyBound([1.0], inclusive=False), KeyBound([], inclusive=True)),),
            everything=True,
        ),
    )


def test_a_range_without_an_end_and_an_unknown_mutation_are_refused() -> None:
    open_ended = spanner.KeySet.pb()()
    open_ended.ranges.add().start_closed.SetInParent()
    with pytest.raises(SpannerError) as caught:
        key_set(open_ended)
    assert caught.value.code is Code.INVALID_ARGUMENT

    with pytest.raises(SpannerError) as caught:
        mutation(spanner.Mutation.pb()())
    assert caught.value.code is Code.UNIMPLEMENTED


def test_parameters_are_found_in_any_case() -> None:
    request = spanner.ExecuteSqlRequest.pb()()
    request.params.update({"Start": "x", "Names": ["a", None], "O": {"b": 1.0}})

    assert parameters(request) == {"start": "x", "names": ["a", None], "o": {"b": 1.0}}


@pytest.mark.parametrize("timestamp_us", [0, 1_234_567, -1])
def test_timestamps_round_trip(timestamp_us: int) -> None:
    assert timestamp_us_of(timestamp_message(timestamp_us)) == timestamp_us


def test_metadata_has_names_types_and_the_transaction() -> None:
    columns = [("a", ValueType("ARRAY", ValueType("INT64"))), ("b", ValueType("JSON"))]
    begun = spanner.Transaction.pb()(id=b"t")
    metadata = spanner.ResultSetMetadata.pb().FromString(metadata_bytes(columns, begun))
    array, json = metadata.row_type.fields

    assert metadata.transaction.id == b"t"
    assert (array.name, json.name) == ("a", "b")
    assert array.type_.array_element_type.code == spanner.TypeCode.INT64
    assert json.type_.code == spanner.TypeCode.JSON
