"""Two kinds of checksums, each a fixed function of the order key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.schemas.checksums import (
    CHECKSUM_MODULUS,
    CHECKSUMS,
    blake2b_64,
    origin_of,
    parked_key,
    xxhash_64,
)
from tidegate.schemas.progress import ChecksumKind


def test_the_hashes_are_those_of_the_protocol():
    assert blake2b_64(b"") == 0xE4A6A0577479B2B4
    # Spark: `SELECT xxhash64(X'')` gives -7444071767201028348, the same bits.
    assert xxhash_64(b"") == -7444071767201028348 % CHECKSUM_MODULUS


def test_every_kind_has_its_hash():
    assert set(CHECKSUMS) == set(ChecksumKind)


@pytest.mark.parametrize("kind", ChecksumKind)
def test_a_summand_fits_the_field(kind):
    for size in range(70):
        assert 0 <= CHECKSUMS[kind](bytes(range(size))) < CHECKSUM_MODULUS


@pytest.mark.parametrize("key", [bytes([n]) for n in range(20)])
def test_a_parked_key_is_a_signed_hash_of_topic_and_key(key):
    number = parked_key("bank.Accounts", key)

    assert number % CHECKSUM_MODULUS == xxhash_64(b"bank.Accounts\0" + key)
    assert -(1 << 63) <= number < 1 << 63


def test_a_parked_key_of_one_topic_is_none_of_another():
    assert parked_key("a", b"key") != parked_key("b", b"key")


@given(st.text())
def test_an_origin_has_eight_bytes_of_the_same_hash(token):
    origin = origin_of(token)

    assert len(origin) == 8
    assert int.from_bytes(origin, "big") == xxhash_64(token.encode())
