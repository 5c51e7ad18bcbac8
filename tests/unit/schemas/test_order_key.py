"""The order key sorts as commit order, and checksums are sums over order keys."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.schemas.checksums import (
    CHECKSUM_MODULUS,
    CHECKSUMS,
    blake2b_64,
    origin_of,
    parked_key,
    xxhash_64,
)
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey, first_key_after, sequence_pair
from tidegate.schemas.progress import ChecksumKind

UINT64 = st.integers(0, 2**64 - 1)
TRANSACTION = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
KEYS = st.builds(
    OrderKey,
    st.integers(0, 2**63),
    TRANSACTION,
    st.tuples(UINT64, UINT64),
    st.integers(0, 2**32 - 1),
)


def test_the_bytes_are_those_of_the_protocol():
    key = OrderKey(1, "tx", sequence_pair("00000012"), 3)
    expected = "0000000000000001" + "7478" + "00" + "0" * 16 + "000000000000000c" + "00000003"
    assert key.encode().hex() == expected


@pytest.mark.parametrize("data", [b"", b"\0" * 20, b"\0" * 8 + b"\xff\0" + b"\0" * 20, b"\0" * 30])
def test_other_bytes_are_refused(data):
    with pytest.raises(SchemaError, match="not an order key"):
        OrderKey.decode(data)


@pytest.mark.rule("spanner-commit-order", "spanner-equal-timestamps")
@given(KEYS, KEYS)
def test_keys_sort_as_commit_order(left, right):
    def order(key):
        return (
            key.commit_timestamp_us,
            key.server_transaction_id.encode(),
            key.record_sequence,
            key.mod_number,
        )

    assert (left.encode() < right.encode()) == (order(left) < order(right))


@given(KEYS, KEYS)
def test_a_key_comes_back_and_different_changes_have_different_keys(left, right):
    assert OrderKey.decode(left.encode()) == left
    assert (left.encode() == right.encode()) == (left == right)


@given(KEYS, st.integers(0, 5))
def test_the_mods_of_a_record_follow_its_first(key, count):
    last = key.mod_number + count - 1
    if last >= 2**32:
        with pytest.raises(SchemaError, match="range"):
            key.encode_mods(count)
        return
    assert key.encode_mods(count) == [
        replace(key, mod_number=number).encode() for number in range(key.mod_number, last + 1)
    ]


@given(KEYS, st.integers(-(2**63), 2**63))
@example(OrderKey(0, "", (0, 0), 0), -(2**63))
def test_the_bound_parts_what_is_at_or_before_a_time_from_what_is_after(key, time_us):
    assert (key.encode() < first_key_after(time_us)) == (key.commit_timestamp_us <= time_us)


DECIMAL = st.integers(0, 2**64 - 1).map(lambda number: f"{number:08d}")
HEX = st.tuples(UINT64, UINT64).map(lambda pair: f"{pair[0]:016x}-{pair[1]:08X}")


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("00000012", (0, 12)),
        ("0", (0, 0)),
        ("18446744073709551615", (0, 2**64 - 1)),
        ("1" + "0" * 18, (0, 10**18)),
        ("0" * 19 + "1", (0, 1)),
        ("963d1af435fb3e79-00000000", (0x963D1AF435FB3E79, 0)),
        ("A-f", (10, 15)),
    ],
)
def test_sequences(text, pair):
    assert sequence_pair(text) == pair


@given(st.one_of(st.tuples(DECIMAL, DECIMAL), st.tuples(HEX, HEX)))
def test_record_sequences_of_one_notation_sort_as_their_numbers(sequences):
    numbers = [
        tuple(int(part, 16) for part in text.split("-")) if "-" in text else (0, int(text))
        for text in sequences
    ]
    assert [sequence_pair(text) for text in sequences] == numbers


@pytest.mark.rule("spanner-record-sequence")
@pytest.mark.parametrize(
    "text",
    ["", "-", "1-", "-1", "1a", "+1", " 1", "1_0", "0x1-1", "18446744073709551616", "1-2-3",
     "٣", "1" * 100_000, "f" * 17 + "-0"],
)  # fmt: skip
def test_other_sequences_are_refused(text):
    with pytest.raises(SchemaError) as caught:
        sequence_pair(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "key",
    [
        OrderKey(-1, "t", (0, 0), 0),
        OrderKey(2**64, "t", (0, 0), 0),
        OrderKey(1, "a\0b", (0, 0), 0),
        OrderKey(1, "\ud800", (0, 0), 0),
        OrderKey(1, "t", (2**64, 0), 0),
        OrderKey(1, "t", (0, 0), 2**32),
        OrderKey(1, "t", (0, 0), -1),
    ],
)
def test_coordinates_without_a_place_are_refused(key):
    with pytest.raises(SchemaError):
        key.encode()


def test_the_hashes_are_those_of_the_protocol_and_fit_its_field():
    assert blake2b_64(b"") == 0xE4A6A0577479B2B4
    # Spark: `SELECT xxhash64(X'')` gives -7444071767201028348, the same bits.
    assert xxhash_64(b"") == -7444071767201028348 % CHECKSUM_MODULUS
    for kind in ChecksumKind:
        for size in range(70):
            assert 0 <= CHECKSUMS[kind](bytes(range(size))) < CHECKSUM_MODULUS


def test_a_parked_key_is_a_signed_hash_of_topic_and_key():
    for key in (bytes([n]) for n in range(20)):
        number = parked_key("bank.Accounts", key)
        assert number % CHECKSUM_MODULUS == xxhash_64(b"bank.Accounts\0" + key)
        assert -(1 << 63) <= number < 1 << 63
        assert number != parked_key("bank.Others", key)


@given(st.text())
def test_an_origin_has_eight_bytes_of_the_same_hash(token):
    origin = origin_of(token)
    assert len(origin) == 8
    assert int.from_bytes(origin, "big") == xxhash_64(token.encode())
