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
from spanner_simulator.server.wire_bytes import message_bytes, plain_bytes, row_bytes

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


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=300),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_protobuf_reads_back_what_was_written(plain: Plain) -> None:
    assert plain_of(Value.FromString(plain_bytes(plain))) == plain


def test_a_message_is_the_same_as_protobufs_own() -> None:
    metadata = spanner.ResultSetMetadata.pb()()
    metadata.transaction.id = b"t"
    written = message_bytes(
        [row_bytes([plain_bytes("a"), plain_bytes(None)]), row_bytes([plain_bytes(True)])],
        metadata=metadata.SerializeToString(),
        resume_token=b"token",
        precommit_token=b"\x0a\x01p",
    )
    message = spanner.PartialResultSet.pb().FromString(written)
    assert [plain_of(value) for value in message.values] == ["a", None, True]
    assert message.metadata == metadata
    assert message.resume_token == b"token"
    assert message.precommit_token.precommit_token == b"p"
