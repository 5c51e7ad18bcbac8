"""The benchmark's files are Datastream's: the producer reads the same events from each form."""

from __future__ import annotations

from datetime import UTC, datetime
from io import BytesIO

import pytest

from benchmarks.producer.event_files import FORMS, event_of, file_bytes, write_objects
from tidegate.producer.datastream.event_file import EventFile

AT = datetime(2024, 2, 28, 23, 50, tzinfo=UTC)


@pytest.mark.parametrize("form", FORMS)
def test_files_are_spread_over_objects_and_minutes(tmp_path, form):
    write_objects(tmp_path, 4_800, form=form)
    assert [one.name for one in sorted(tmp_path.iterdir())] == [
        f"bank_Accounts{number}" for number in range(4)
    ]
    assert len(list(tmp_path.rglob(f"*/*/*/*/*/*.{form}"))) == 8


def test_each_form_has_the_same_events_and_rows_of_eight_columns():
    found = []
    for form in FORMS:
        data = file_bytes("Accounts", (event_of("Accounts", n, AT) for n in range(3)), form)
        events = list(EventFile("file", BytesIO(data)))
        assert all(len(one.payload) == 8 for one in events)
        found.append([(one.uuid, one.order_key, one.source_timestamp_us) for one in events])
    assert len(found[0]) == 3
    assert found[0] == found[1] == found[2]
