"""File names: numbers come back as they went in."""

import pytest

from tidegate.spark_consumer.core.files import (
    frontier_file,
    number_in,
    plan_file,
    segment_file,
    segment_name,
    state_file,
)


@pytest.mark.parametrize("batch", [0, 9, 10, 123_456])
@pytest.mark.parametrize("name_of", [plan_file, state_file])
def test_a_batch_is_found_in_its_file_name(name_of, batch):
    assert number_in(name_of(batch).rpartition("/")[2]) == batch


def test_kinds_have_folders_of_their_own():
    names = {plan_file(1), state_file(1), frontier_file("1"), segment_file("1")}
    assert len({name.partition("/")[0] for name in names}) == 4


def test_what_all_runs_have_written_for_a_segment_is_in_one_folder():
    names = [segment_name("000000000004-000", writer=writer) for writer in (1, 2)]
    assert len(set(names)) == 2
    assert {segment_file(name) for name in names} == {"segments/000000000004-000"}
    assert segment_file("000000000004-000") == "segments/000000000004-000"
