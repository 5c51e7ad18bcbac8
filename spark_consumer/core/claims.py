"""Which of the numbers that runs have claimed are kept: the newest, and those that a search asks.

A search for the newest number asks for few of those below it (`last_number`), and every later
search for the same ones or higher ones.  The others can go, and no delay makes that wrong: what is
not needed for a number is not needed for any higher one.
"""

from __future__ import annotations

CLAIMS_KEPT = 100
"""Newest numbers that are all kept."""


def is_needed(number: int, *, newest: int) -> bool:
    """Whether a search from 1 for a number of at least `newest` asks for this lower one.

    It goes up to powers of two, less 1, and from there by halves: to `newest` + 1 without some of
    its low bits, less 1.
    """
    place = number + 1
    lowest_bit = place & -place
    return place == lowest_bit or (newest + 1) // lowest_bit * lowest_bit == place
