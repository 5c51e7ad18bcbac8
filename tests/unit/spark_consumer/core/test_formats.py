"""Format numbers: what this program knows is read, and nothing newer."""

import pytest

from tidegate.spark_consumer.core.formats import require_known
from tidegate.spark_consumer.errors import CheckpointMismatch, NewerCheckpoint


@pytest.mark.parametrize(("data", "found"), [({}, 1), ({"format": 2}, 2), ({"format": 3}, 3)])
def test_a_known_format_is_returned(data, found):
    assert require_known("state", data, newest=3) == found


def test_a_newer_format_names_the_version_that_wrote_it():
    data = {"format": 4, "code": "1.5.0", "batch": 7}
    with pytest.raises(NewerCheckpoint, match=r"this plan .*batch=7, found=4, known=3.*1\.5\.0"):
        require_known("plan", data, newest=3)
    with pytest.raises(CheckpointMismatch, match="that wrote it"):
        require_known("plan", {"format": 4}, newest=3)
