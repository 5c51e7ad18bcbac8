"""Numbered things without gaps: the last is found with few questions."""

import pytest

from tidegate.spark_consumer.core.last_number import last_number


@pytest.mark.parametrize("first", [0, 1, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 31, 32, 33, 100_000])
def test_the_last_one_is_found_with_few_questions(first, count):
    asked = []

    def is_there(number):
        asked.append(number)
        return first <= number < first + count

    assert last_number(first, is_there) == first + count - 1
    assert len(asked) <= 2 * count.bit_length() + 2
