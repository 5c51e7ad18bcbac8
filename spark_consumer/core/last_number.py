"""The last of numbered things without gaps, found without a list of them."""

from __future__ import annotations

from collections.abc import Callable


def last_number(first: int, is_there: Callable[[int], bool]) -> int:
    """Return the last number from `first` on for which `is_there` is true; `first` - 1 for none.

    What is true for a number has to be true for all between `first` and it.  Asks about twice the
    logarithm of their count: in growing steps up, then by halves.
    """
    low, step = first - 1, 1
    while is_there(low + step):
        low += step
        step *= 2
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_there(middle) else (low, middle)
    return low
