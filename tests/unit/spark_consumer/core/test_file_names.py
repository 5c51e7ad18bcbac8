"""Names of the files of a checkpoint, and the numbers of their formats."""

from __future__ import annotations

from tidegate.spark_consumer.core.file_names import (
    frontier_file,
    number_in,
    plan_file,
    segment_file,
    segment_name,
    state_file,
)


def test_names_of_files_give_their_numbers_and_have_folders_of_their_own():
    for batch in (0, 9, 10, 123_456):
        for name_of in (plan_file, state_file):
            assert number_in(name_of(batch).rpartition("/")[2]) == batch
    names = {plan_file(1), state_file(1), frontier_file("1"), segment_file("1")}
    assert len({name.partition("/")[0] for name in names}) == 4
    # What all runs have written for a segment is in one folder.
    names = {segment_name("000000000004-000", writer=writer) for writer in (1, 2)}
    assert len(names) == 2
    assert {segment_file(name) for name in names} == {"segments/000000000004-000"}
    assert segment_file("000000000004-000") == "segments/000000000004-000"
