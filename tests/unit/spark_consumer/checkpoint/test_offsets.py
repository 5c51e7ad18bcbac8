"""Spark's offset log: lines are distinguished by their topics."""

import pytest

from tidegate.spark_consumer.checkpoint.offsets import parse_offset_log, read_offsets
from tidegate.spark_consumer.errors import CheckpointMismatch

HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n'


@pytest.mark.parametrize(
    "lines",
    [
        ['{"bank-progress":{"0":5,"11":7}}', '{"bank.a":{"1":2,"0":3},"bank.b":{"0":0}}'],
        ['{"bank.a":{"1":2,"0":3},"bank.b":{"0":0}}', '{"bank-progress":{"0":5,"11":7}}'],
    ],
)
def test_the_order_of_the_sources_is_free(lines):
    assert parse_offset_log(HEAD + "\n".join(lines), batch=3) == {
        "bank-progress": {0: 5, 11: 7},
        "bank.a": {0: 3, 1: 2},
        "bank.b": {0: 0},
    }


@pytest.mark.parametrize("nothing", ["-", "{}"])
def test_a_source_without_offsets_yet_names_no_topic(nothing):
    text = f'{HEAD}{{"bank-progress":{{"0":5}}}}\n{nothing}'
    assert parse_offset_log(text, batch=0) == {"bank-progress": {0: 5}}


def test_another_format_is_refused():
    with pytest.raises(CheckpointMismatch, match="v2"):
        parse_offset_log(HEAD.replace("v1", "v2"), batch=0)


def test_a_topic_in_two_sources_is_refused():
    with pytest.raises(CheckpointMismatch, match="bank"):
        parse_offset_log(f'{HEAD}{{"bank.a":{{"0":1}}}}\n{{"bank.a":{{"0":1}}}}', batch=0)


def test_what_was_read_ends_with_the_last_batch_that_spark_has_committed():
    log = f'{HEAD}{{"bank.a":{{"0":5}}}}'
    logs = {"offsets/10": log, "offsets/11": f'{HEAD}{{"bank.a":{{"0":9}}}}'}

    class Folder:
        root = "spark"
        commits = ()

        def names(self, folder):
            return {"commits": list(self.commits)}[folder]

        def read(self, name):
            return logs[name].encode()

    assert read_offsets(Folder()) is None
    Folder.commits = ("9", "10", "metadata")
    assert read_offsets(Folder()) == parse_offset_log(log, batch=10)
