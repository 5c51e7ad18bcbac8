"""A location is opened with the settings of its table, or refused with its setting's name."""

import pytest

from tests.unit.producer.test_source_config import KAFKA
from tidegate.producer.commands.files_source import open_files
from tidegate.producer.config import ProducerConfig
from tidegate.producer.datastream_source.table_settings import LaterBackfill, TableSettings
from tidegate.schemas.errors import ConfigError


def opened(location, **more):
    source = {"kind": "datastream", "location": str(location), **more}
    config = ProducerConfig.load(None, **KAFKA, source=source, poison="park")
    return open_files(config, config.files)


def test_the_source_has_the_settings(tmp_path):
    found = opened(f"{tmp_path}/", poll_seconds=3, open_minutes=4, lateness_seconds=5)
    assert found.stream.location == str(tmp_path)
    assert found.stream.poll_ms == 3_000
    assert found.stream.parks
    limits = found.stream.limits
    assert (limits.open_minutes, limits.lateness_us, limits.late_hours) == (4, 5_000_000, 24)
    assert found.stream.tables == TableSettings()
    assert found.description.watches_all
    assert found.channels is None
    found.close()


def test_the_source_has_what_the_settings_say_of_tables(tmp_path):
    later = {"since": "1970-01-01T00:00:01Z", "log": "mysql-bin.000124"}
    found = opened(tmp_path, keys={"HR.JOBS": ["ID"]}, backfills={"shop.orders": later})
    assert found.stream.tables == TableSettings(
        keys={"HR.JOBS": ("ID",)},
        backfills={"shop.orders": LaterBackfill(1_000_000, "mysql-bin.000124")},
    )
    found.close()


@pytest.mark.parametrize("location", ["ftp://x/y", "gs://", "nothing/here"])
def test_a_location_that_cannot_be_read_is_named_with_its_setting(tmp_path, location):
    place = tmp_path / location if location.startswith("nothing") else location
    with pytest.raises(ConfigError, match=r"^source\.location: ") as raised:
        opened(place)
    assert raised.value.hint
