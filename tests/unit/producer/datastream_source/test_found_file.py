"""Minutes of files, and their names in a position."""

import pytest

from tidegate.producer.datastream.errors import MisplacedFile
from tidegate.producer.datastream_source.found_file import found_file, minute_of, minute_of_name

PATH = "2024/02/29/23/59/a.avro"
MINUTE = 28_487_519


def test_the_folder_is_the_minute():
    assert minute_of(PATH) == minute_of(f"x/{PATH}") == MINUTE
    for path in ("a.avro", "2024/02/30/00/00/a", "2024/02/29/24/00/a", "1969/12/31/23/59/a"):
        assert minute_of(path) is None


def test_names_sort_as_minutes_and_do_not_depend_on_where_the_files_are():
    one = found_file(f"bucket/o/{PATH}", within="bucket/o", modified_us=5)
    moved = found_file(f"/tmp/copy/o/{PATH}", within="/tmp/copy/o", modified_us=9)
    later = found_file("o/2024/03/01/00/00/a.avro", within="o", modified_us=0)
    assert one.name == moved.name < later.name
    assert minute_of_name(one.name) == one.minute == MINUTE
    assert one.end_us == (MINUTE + 1) * 60_000_000


def test_two_files_of_a_minute_have_two_names():
    names = {
        found_file(f"o/2024/02/29/23/59/{n}.avro", within="o", modified_us=0).name
        for n in range(1_000)
    }
    assert len(names) == 1_000


def test_a_file_without_a_minute_is_refused():
    with pytest.raises(MisplacedFile, match="yyyy/mm/dd/hh/mm") as raised:
        found_file("o/a.avro", within="o", modified_us=0)
    assert raised.value.fields["file"] == "o/a.avro"
