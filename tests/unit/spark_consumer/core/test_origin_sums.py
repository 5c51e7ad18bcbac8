"""Changes summed by where they come from, as their markers are."""

from tidegate.schemas.checksums import xxhash_64
from tidegate.spark_consumer.core.origin_sums import OriginSum, signed_origin, sum_by_origin


def test_changes_are_summed_by_origin_and_topic():
    changes = [(1, "a", b"x", 3), (1, "a", b"y", 4), (1, "b", b"x", 0), (None, "a", b"z", 1)]
    assert sum_by_origin(changes) == {
        (1, "a"): OriginSum(2, 7, (xxhash_64(b"x") + xxhash_64(b"y")) % 2**64),
        (1, "b"): OriginSum(1, 0, xxhash_64(b"x")),
        (None, "a"): OriginSum(1, 1, xxhash_64(b"z")),
    }


def test_checksums_are_added_modulo_2_to_the_64():
    assert OriginSum(1, 2, 2**64 - 1) + OriginSum(1, 2, 2) == OriginSum(2, 4, 1)


def test_the_origin_of_a_token_is_signed_as_in_spark():
    found = {signed_origin(str(n)) < 0 for n in range(20)}
    assert found == {True, False}
