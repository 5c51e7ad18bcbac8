"""Records of begun releases: one for each, kept for long, and refused where they do not belong."""

import pytest

from tests.datastream_output import MemoryOutput
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.errors import CheckpointMismatch
from tidegate.spark_consumer.sinks.datastream.begun_releases import KEPT, BegunReleases

SETTINGS = {"query_id": "q", "file_format": "avro", "rows_max": 5, "bytes_max": 9}


def records_of(output, at_s=120.0, release_max=5_000):
    found = BegunReleases(output, folder="_f", clock=lambda: at_s)
    found.open(query_id="q", release_max=release_max)
    return found


def test_a_release_keeps_what_it_was_begun_with():
    output = MemoryOutput()
    begun, was_begun = records_of(output).begin(3, **SETTINGS)
    assert (begun.minute, begun.rows_max, was_begun) == (2, 5, False)
    others = {**SETTINGS, "file_format": "jsonl", "rows_max": 7}
    assert records_of(output, at_s=999.0).begin(3, **others) == (begun, True)
    assert output.files["_f/000000000003.json"] == {
        "query_id": "q", "release": 3, "minute": 2, "format": "avro", "rows_max": 5, "bytes_max": 9,
    }  # fmt: skip


def test_records_of_a_thousand_releases_are_kept():
    output = MemoryOutput()
    one = records_of(output)
    for number in (0, 1, 2, KEPT, KEPT + 1):
        one.begin(number, **SETTINGS)
        one.finish(number)
    assert output.names("_f") == [f"{n:012d}.json" for n in (2, KEPT, KEPT + 1)]
    one.begin(3 * KEPT, **SETTINGS)  # and none of the releases between has changes
    output.files["_f/notes.json"] = {}
    records_of(output)
    assert output.names("_f") == [f"{3 * KEPT:012d}.json", "notes.json"]


def test_a_release_that_another_query_has_begun_is_refused():
    output = MemoryOutput()
    one = records_of(output)
    other = BegunReleases(output, folder="_f", clock=lambda: 0.0)
    other.begin(0, **{**SETTINGS, "query_id": "other"})
    with pytest.raises(ConfigError, match="another query writes"):
        one.begin(0, **SETTINGS)


def test_a_record_that_was_changed_is_named():
    output = MemoryOutput()
    output.files["_f/000000000003.json"] = {"release": 3}
    with pytest.raises(CheckpointMismatch, match=r"_f/000000000003\.json"):
        records_of(output)
