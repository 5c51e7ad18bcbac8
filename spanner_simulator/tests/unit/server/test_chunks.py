"""Pieces are joined here by the official client, whose rules are the ones that count."""

from __future__ import annotations

from functools import reduce

from google.cloud.spanner_v1 import types as spanner
from google.cloud.spanner_v1.streamed import _merge_by_type
from google.protobuf.struct_pb2 import Value
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core.values import Plain, ValueType
from spanner_simulator.server.chunks import pieces_of
from spanner_simulator.server.messages import plain_of
from spanner_simulator.server.type_messages import type_message
from spanner_simulator.server.wire_bytes import plain_bytes

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
FLOAT = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["NaN", "Infinity"])


def joined(pieces: list[Plain], value_type: ValueType) -> Plain:
    kind = spanner.Type.wrap(type_message(value_type))
    values = [Value.FromString(plain_bytes(piece)) for piece in pieces]
    return plain_of(reduce(lambda left, right: _merge_by_type(left, right, kind), values))


@given(st.lists(FLOAT | st.none()), st.integers(4, 30))
def test_lists_of_numbers_and_their_special_texts(items: list[Plain], size: int) -> None:
    kind = ValueType("ARRAY", ValueType("FLOAT64"))

    assert joined(pieces_of(items, size), kind) == items


@given(st.lists(st.lists(TEXT, min_size=2, max_size=2)), st.integers(4, 30))
def test_lists_of_lists_are_joined_by_the_written_rules(items: list[Plain], size: int) -> None:
    def join(left: Plain, right: Plain) -> Plain:
        if isinstance(left, str) and isinstance(right, str):
            return left + right
        assert isinstance(left, list)
        assert isinstance(right, list)
        if not left or not right:
            return left + right
        last, first = left[-1], right[0]
        if type(last) is type(first) and isinstance(last, str | list):
            return [*left[:-1], join(last, first), *right[1:]]
        return left + right

    assert reduce(join, pieces_of(items, size)) == items
