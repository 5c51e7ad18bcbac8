"""JSON lines, one at a time; a last line that was cut is not taken for a record."""

from decimal import Decimal
from io import BytesIO

import pytest

from tidegate.producer.datastream import json_lines as module
from tidegate.producer.datastream.errors import FileCutShort, FileDamaged, InvalidEvent
from tidegate.producer.datastream.file_limits import LARGE_BYTES, LargeRead
from tidegate.producer.datastream.json_lines import json_lines


def read(data):
    return list(json_lines(BytesIO(data), "a.jsonl"))


def test_records_have_the_numbers_of_their_lines():
    assert read(b'{"a":1}\n\n{"a":2}\r\n{"a":3}') == [(1, {"a": 1}), (3, {"a": 2}), (4, {"a": 3})]
    assert read(b"") == []


@pytest.mark.parametrize("size", range(LARGE_BYTES - 2, LARGE_BYTES + 4))
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_large_line_ends_where_it_ends(size, end):
    line = b'{"a":"' + b"x" * (size - 8 - len(end)) + b'"}' + end
    assert len(line) == size
    found = [one for one in read(line * 2 + b"{}") if not isinstance(one, LargeRead)]
    assert [number for number, _ in found] == [1, 2, 3]


@pytest.mark.rule("datastream-json-values")
def test_numbers_keep_all_their_digits():
    ((_, found),) = read(b'{"a":12345678901234567890.123456789,"b":18446744073709551616}\n')
    assert found == {"a": Decimal("12345678901234567890.123456789"), "b": 2**64}


@pytest.mark.rule("datastream-cut-files")
def test_a_file_cut_anywhere_in_a_line_is_noticed():
    whole = '{"a":{"b":"é"}}\n'.encode() * 3
    starts = [n * len(whole) // 3 for n in range(4)]
    for end in range(len(whole)):
        if end in starts or end + 1 in starts:
            assert len(read(whole[:end])) == (end + 1) * 3 // len(whole)
        else:
            with pytest.raises(FileCutShort, match="record="):
                read(whole[:end])


@pytest.mark.rule("datastream-cut-files")
@pytest.mark.parametrize(
    "line", [b"[1]", b"1", b"null", b"{,}", b'{"a":NaN}', b"\xff\xfe{}", b"[" * 100_000]
)
def test_a_line_that_is_not_an_object_is_damage(line):
    with pytest.raises(FileDamaged, match="record=2"):
        read(b"{}\n" + line + b"\n")


def test_a_text_with_half_a_surrogate_pair_is_an_event_of_its_own_that_cannot_be_used():
    pair, half = rb'{"a":"\ud83d\ude00"}', rb'{"a":{"b":["\uDE00"]}}'
    (_, first), (number, error), (_, last) = read(pair + b"\n" + half + b"\n" + pair)
    assert first == last == {"a": "\N{GRINNING FACE}"}
    assert isinstance(error, InvalidEvent)
    assert (number, error.fields["record"]) == (2, 2)


@pytest.mark.rule("datastream-large-files")
def test_a_line_without_end_is_read_no_further_than_its_limit(monkeypatch):
    monkeypatch.setattr(module, "LARGE_BYTES", 10)
    monkeypatch.setattr(module, "LINE_BYTES_MAX", 100)
    stream = BytesIO(b"x" * 10_000)
    lines = json_lines(stream, "a.jsonl")
    assert next(lines) == LargeRead(100)
    assert stream.tell() == 11  # what is announced is not read before
    with pytest.raises(FileDamaged, match="more than 100 bytes"):
        next(lines)
    assert stream.tell() == 101
