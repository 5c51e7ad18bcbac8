"""Sums of rows."""

from tidegate.spark_consumer.core.row_sums import NO_ROWS, RowSum


def test_sums_are_taken_modulo_two_to_the_sixty_fourth():
    assert RowSum(1, 2**64 - 1) + RowSum(2, 3) == RowSum(3, 2)
    assert sum([RowSum(1, 5), RowSum(1, 6)], NO_ROWS) == RowSum(2, 11)
