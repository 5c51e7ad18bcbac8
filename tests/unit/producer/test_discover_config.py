"""Only what names a database is needed, and the file of a worker is taken as it is."""

import pytest

from tidegate.producer.config import ProducerConfig
from tidegate.producer.discover_config import DISCOVER_FLAGS, DiscoverConfig
from tidegate.program.settings import InvalidSettings

DATABASE = {"project": "p", "instance": "bank", "database": "bank_1"}


def test_a_database_is_enough():
    found = DiscoverConfig.load(None, **DATABASE)
    assert found.database_path == "projects/p/instances/bank/databases/bank_1"
    assert found.change_stream == ""


def test_the_file_of_a_worker_is_taken_as_it_is(tmp_path):
    file = tmp_path / "producer.toml"
    file.write_text(
        'project = "p"\ninstance = "bank"\ndatabase = "bank"\nchange_stream = "Feed"\n'
        'bootstrap_servers = "k:9092"\nregistry_url = "http://r:8081/"\nprefix = "bank"\n'
        'tables = "a, b"\n'
    )
    assert DiscoverConfig.load(file).change_stream == "Feed"
    ProducerConfig.load(file)


def test_what_is_missing_or_wrong_is_named():
    with pytest.raises(InvalidSettings) as caught:
        DiscoverConfig.load(None, change_stream="1x", project="p")
    text = str(caught.value)
    assert "instance: is not set (flag --instance" in text
    assert "database: is not set" in text
    assert "change_stream: '1x' is not a valid name" in text
    assert "`tidegate-producer discover --help`" in text
    with pytest.raises(InvalidSettings, match="instance: '' is not a valid name"):
        DiscoverConfig.load(None, **{**DATABASE, "instance": ""})


def test_a_worker_still_needs_its_change_stream():
    with pytest.raises(InvalidSettings, match="change_stream: '' is not a valid name"):
        ProducerConfig.load(
            None, **DATABASE, change_stream="", bootstrap_servers="k:1",
            registry_url="http://r:1/", prefix="p",
        )  # fmt: skip


def test_flags_are_settings():
    assert set(DISCOVER_FLAGS) <= set(DiscoverConfig.model_fields)
