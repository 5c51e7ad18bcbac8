"""Numbers that later searches ask for."""

import pytest

from tidegate.spark_consumer.core.claims import is_needed
from tidegate.spark_consumer.core.last_number import last_number


def asked(newest):
    """The numbers that exist among those that a search for the newest one asks for."""
    found = set()

    def is_there(number):
        if number <= newest:
            found.add(number)
        return number <= newest

    assert last_number(1, is_there) == newest
    return found


@pytest.mark.parametrize("newest", [1, 2, 3, 7, 8, 31, 100, 127, 128, 129, 200])
def test_needed_is_what_this_or_a_later_search_asks_for(newest):
    later = set().union(*(asked(number) for number in range(newest, 1_100)))
    for number in range(1, newest):
        assert is_needed(number, newest=newest) or number not in later


def test_few_numbers_are_needed():
    assert sum(is_needed(number, newest=100_000) for number in range(1, 100_000)) < 40


def test_what_is_not_needed_is_never_needed_again():
    for number in range(1, 200):
        needed = [is_needed(number, newest=newest) for newest in range(number + 1, 600)]
        assert needed == sorted(needed, reverse=True)
