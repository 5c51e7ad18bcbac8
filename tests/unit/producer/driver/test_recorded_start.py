"""A search for what is known already has its finding at once, however often it begins."""

from tidegate.producer.driver.recorded_start import RecordedStart
from tidegate.schemas.progress import ProgressRecord, StreamStarted

RECORD = ProgressRecord(
    "epoch", "worker", StreamStarted("s", "GOOGLE_STANDARD_SQL", 0, None, "g", 4, "id", (), ())
)


def test_the_record_is_found_by_the_first_poll():
    for search in (RecordedStart(RECORD), RecordedStart(RECORD)):
        record, is_at_end = search.poll()
        search.close()

        assert record is RECORD
        assert not is_at_end, "an end without a finding would count as absence"
