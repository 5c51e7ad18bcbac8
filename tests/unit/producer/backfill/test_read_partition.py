"""Tokens of a backfill: everything that a worker needs is in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.backfill.read_partition import (
    REST,
    ReadPartition,
    done_token,
    done_tokens,
    is_of_backfill,
    parents_of_rest,
    read_token,
    reading_of,
)
from tidegate.schemas.errors import SchemaError

VALUES = st.one_of(
    st.none(), st.booleans(), st.text(max_size=20), st.floats(allow_nan=False, allow_infinity=False)
)
KEYS = st.none() | st.lists(VALUES, min_size=1, max_size=4).map(tuple)


@given(
    st.builds(
        ReadPartition,
        table=st.text(min_size=1), number=st.integers(0, 299), of=st.just(300),
        rows=st.integers(1, 10**12), after=KEYS, through=KEYS,
    )
)  # fmt: skip
def test_a_token_says_what_is_read(one):
    token = read_token(one)

    assert reading_of(token) == one
    assert token.isascii()
    assert is_of_backfill(token)
    assert parents_of_rest(token) is None


def test_each_read_partition_leads_to_the_rest():
    parts = [ReadPartition("t", number, 3, 10, None, None) for number in range(3)]
    tokens = [done_token(one) for one in parts]

    assert tokens == list(done_tokens(3))
    assert [parents_of_rest(token) for token in tokens] == [tuple(tokens)] * 3
    assert [reading_of(token) for token in (*tokens, REST, "", "AbC-_=")] == [None] * 6
    assert parents_of_rest(REST) is None
    assert is_of_backfill(REST)
    assert not is_of_backfill("AbC-_=")


@pytest.mark.parametrize("text", ["", "W10", "bm90IGpzb24", "_w"])
def test_a_damaged_token_is_refused_by_name(text):
    token = f"tidegate-backfill/read/0/1/{text or 'A'}"
    with pytest.raises(SchemaError, match="the token of a read partition cannot be read"):
        reading_of(token)
