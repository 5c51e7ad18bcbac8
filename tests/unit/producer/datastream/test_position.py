"""Positions sort as files were written, and records within them."""

import pytest

from tidegate.producer.datastream.position import Position, printable


@pytest.mark.rule("datastream-equal-positions")
def test_positions_sort_by_file_then_by_number():
    first = Position("o/2024/02/28/23/59/0_a.avro", 10)
    assert sorted([Position("o/2024/02/29/00/00/0_a.avro", 1), first, Position(first.file, 9)]) == [
        Position(first.file, 9),
        first,
        Position("o/2024/02/29/00/00/0_a.avro", 1),
    ]


def test_a_path_of_any_bytes_can_be_printed_and_encoded():
    assert printable("a b/naïve-日本") == "a b/naïve-日本"
    assert printable("caf\udce9.avro").encode() == rb"caf\udce9.avro"
