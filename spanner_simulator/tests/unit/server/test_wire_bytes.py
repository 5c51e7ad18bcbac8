from __future__ import annotations

from google.cloud.spanner_v1 import types as spanner
from google.protobuf.struct_pb2 import Value
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core.values import Plain
from spanner_simulator.server.messages import plain_of
from spanner_simulator.server.wire_bytes import message_bytes, plain_bytes, row_bytes

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
