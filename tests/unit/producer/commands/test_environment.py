"""What a worker checks before it creates anything, in the order in which it looks."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from confluent_kafka import Consumer

from tidegate.producer.commands import environment
from tidegate.producer.commands.environment import find_environment
from tidegate.producer.commands.parts import Parts
from tidegate.producer.commands.stream_settings import fixed_settings
from tidegate.producer.errors import StreamChangedError
from tidegate.producer.kafka.message_limits import KafkaMessageLimits
from tidegate.producer.spanner import channel
from tidegate.program import from_beginning
from tidegate.program.kafka_clients import list_topics
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    ProgressRecord,
    StreamStarted,
    TableAdded,
)
from tidegate.schemas.topics import ROOT_TOKEN

NOWHERE = "127.0.0.1:1"
LONG_AGO = "2001-01-01T00:00:00Z"
PATIENCE_S = 20.0
EMPTY_PARTS = Parts(**dict.fromkeys(field.name for field in fields(Parts)))


@pytest.fixture
def exits():
    with ExitStack() as stack:
        yield stack


def reading_threads():
    return [thread for thread in threading.enumerate() if thread.name == "readers"]


def test_nothing_runs_on_after_it_was_closed_or_could_not_be_found(place):
    before = len(reading_threads())
    found = find_environment(place.config())
    assert len(reading_threads()) == before + 1
    found.close()
    assert len(reading_threads()) == before

    with pytest.raises(ConfigError):
        find_environment(place.config(start=LONG_AGO))
    assert len(reading_threads()) == before


def started(stream, *filters):
    body = StreamStarted(
        stream, "GOOGLE_STANDARD_SQL", 0, None, "bank-fleet", 4, "pid", (),
        (ChildPartition("p", (ROOT_TOKEN,), 0),), filters,
    )  # fmt: skip
    return ProgressRecord("epoch-1", "worker-1", body)


def test_what_answers_is_found_and_nothing_is_changed(place, exits):
    found = exits.enter_context(closing(find_environment(place.config())))

    assert [table.name for table in found.source.description.tables] == ["Users"]
    assert found.topics.progress == "bank-progress"
    assert found.recorded is None
    assert found.source.catalogue.table("Users", stream=place.config().change_stream) is not None
    assert place.topics() == set()
    assert {method for method, _ in place.registry.asked} == {"GET"}


def test_version_1_is_refused_where_keys_may_be_parked(place, exits):
    first = exits.enter_context(closing(find_environment(place.config(progress_version=1))))
    assert not first.has_dead_letter
    place.create_topic("bank-dead-letter")

    second = exits.enter_context(closing(find_environment(place.config())))
    assert second.has_dead_letter
    with pytest.raises(ConfigError, match=r"progress_version 1.*bank-dead-letter"):
        find_environment(place.config(progress_version=1))


def test_the_record_that_opened_the_epoch_is_found(place, exits):
    record = started(place.config().stream_path)
    place.record(record)

    found = exits.enter_context(closing(find_environment(place.config())))
    assert found.recorded == record


def test_a_progress_topic_that_nothing_was_written_to_has_no_epoch(place, exits):
    place.create_topic("bank-progress")

    found = exits.enter_context(closing(find_environment(place.config())))
    assert found.recorded is None


def test_a_topic_with_the_progress_of_another_stream_is_refused(place):
    other = place.config(database="other").stream_path
    place.record(started(other))

    with pytest.raises(StreamChangedError, match=f"recorded '{other}', now .*Feed"):
        find_environment(place.config())


def test_another_form_of_timestamps_is_refused_before_anything_is_written(place):
    place.record(started(place.config().stream_path))

    with pytest.raises(StreamChangedError, match="timestamps: recorded 'micros', now 'string'"):
        find_environment(place.config(timestamps="string"))
    assert {method for method, _ in place.registry.asked} <= {"GET"}
    assert place.topics() == {"bank-progress"}


@pytest.mark.parametrize(
    ("setting", "now"),
    [
        ({"tombstones": True}, "tombstones: recorded 'false', now 'true'"),
        ({"envelope": "flat"}, "envelope: recorded 'tidegate', now 'flat'"),
        ({"envelope": "debezium"}, "envelope: recorded 'tidegate', now 'debezium'"),
        (
            {"envelope": "datastream", "value_format": "json"},
            "envelope: recorded 'tidegate', now 'datastream'; value_format: recorded 'avro'",
        ),
        (
            {"envelope": "debezium", "value_format": "json", "key_format": "json"},
            "value_format: recorded 'avro', now 'json'; key_format: recorded 'avro', now 'json'",
        ),
    ],
)
def test_another_form_of_the_output_is_refused_before_anything_is_written(place, setting, now):
    place.record(started(place.config().stream_path))

    with pytest.raises(StreamChangedError, match=now):
        find_environment(place.config(**setting))
    assert place.topics() == {"bank-progress"}


def test_a_progress_topic_that_takes_too_little_is_refused(place, monkeypatch):
    monkeypatch.setattr(KafkaMessageLimits, "bytes_max", lambda _limits, _topic: 500_000)
    place.create_topic("bank-progress")

    with pytest.raises(ConfigError, match="takes messages of 500000 bytes at most"):
        find_environment(place.config())


def test_another_number_of_slots_than_the_topics_is_refused(place):
    place.record(started(place.config().stream_path))

    with pytest.raises(ConfigError, match="topic bank-progress has 4, the setting says 16") as info:
        find_environment(place.config(slots=16))
    assert "it can never change" in info.value.hint


def test_a_prefix_that_another_one_continues_is_refused_before_the_registry_is_asked(place):
    place.create_topic("bank.eu-progress")

    with pytest.raises(ConfigError, match="'bank'"):
        find_environment(place.config())
    assert place.registry.asked == []


def test_a_template_that_takes_another_streams_topics_is_refused(place):
    place.create_topic("bank-eu-progress")

    with pytest.raises(ConfigError, match="'bank' and the prefix of another stream"):
        find_environment(place.config(topic_template="{prefix}-{table}"))
    assert place.registry.asked == []
    find_environment(place.config()).close()


DASHED = "producer.topic_template={prefix}-{table}"


def test_a_new_stream_whose_topics_another_ones_template_takes_is_refused(place, exits):
    """Its prefix continues the other one's: only what the other stream has recorded says so."""
    place.record(started("s", DASHED), prefix="bank")
    config = place.config(prefix="bank-eu")

    with pytest.raises(ConfigError, match=r"'bank' and the prefix of another.*bank-eu-progress"):
        find_environment(config)
    assert place.topics() == {"bank-progress"}
    assert {method for method, _ in place.registry.asked} == {"GET"}

    # It was there before the other one, which has checked it.
    place.record(started(config.stream_path), prefix="bank-eu")
    found = exits.enter_context(closing(find_environment(config)))
    assert found.recorded is not None


@pytest.mark.parametrize("prefix", ["bank-eu", "bank_eu"])
@pytest.mark.parametrize("has_begun", [True, False])
def test_a_new_stream_beside_one_with_the_default_names_is_taken(place, exits, prefix, has_begun):
    if has_begun:
        place.record(started("s"))
    else:
        place.create_topic("bank-progress")
    found = exits.enter_context(closing(find_environment(place.config(prefix=prefix))))
    assert found.recorded is None


def test_a_new_stream_is_refused_where_the_other_ones_names_cannot_be_known(place):
    place.put("bank-progress", b"of another program")
    with pytest.raises(ConfigError, match="bank-progress, which cannot be read") as caught:
        find_environment(place.config(prefix="bank-eu"))
    assert "Use another prefix, or let this principal read" in caught.value.hint


@pytest.mark.parametrize(
    ("recorded", "setting"),
    [(DASHED, "{prefix}.{table}"), ("producer.tables=Users", "{prefix}-{table}")],
)
def test_another_template_is_refused_before_anything_is_written(place, recorded, setting):
    config = place.config(topic_template=setting)
    place.record(started(config.stream_path, recorded))

    with pytest.raises(StreamChangedError, match=r"topic_template: recorded '.*', now '.*'"):
        find_environment(config)
    assert {method for method, _ in place.registry.asked} <= {"GET"}
    assert place.topics() == {"bank-progress"}


def test_the_recorded_template_has_the_database_in_it(place, exits):
    config = place.config(topic_template="{prefix}.{database}.{table}")
    recorded = f"producer.topic_template={{prefix}}.{config.database}.{{table}}"
    assert fixed_settings(config) == (recorded,)
    place.record(started(config.stream_path, recorded))
    found = exits.enter_context(closing(find_environment(config)))
    assert found.topics.data("Users") == f"bank.{config.database}.Users"


@pytest.mark.rule("spanner-start-in-retention")
def test_a_start_that_cannot_be_read_is_refused_but_not_of_a_stream_that_runs(place, exits):
    """The setting counts only until the stream has begun."""
    config = place.config(start=LONG_AGO)
    before_creation = (datetime.now(UTC) - timedelta(minutes=30)).isoformat()
    for start, message in (
        (LONG_AGO, "changes before the stream's retention"),
        (before_creation, "before the stream's creation or retention"),
        ("2099-01-01T00:00:00Z", "later than now"),
    ):
        with pytest.raises(ConfigError, match=message):
            find_environment(place.config(start=start))
    assert place.topics() == set()

    place.record(started(config.stream_path))
    found = exits.enter_context(closing(find_environment(config)))
    assert found.recorded is not None


@pytest.mark.parametrize(
    ("setting", "address", "named"),
    [
        ("bootstrap_servers", NOWHERE, NOWHERE),
        ("registry_url", f"http://{NOWHERE}/", NOWHERE),
        ("spanner_emulator_host", NOWHERE, "Spanner does not answer"),
    ],
)
def test_a_system_that_does_not_answer_is_named(place, setting, address, named, monkeypatch):
    monkeypatch.setattr(channel, "_SESSION_TIMEOUT_S", 1.0)
    monkeypatch.setattr(environment, "list_topics", partial(list_topics, timeout_s=0.5))

    with pytest.raises(UnreachableError, match=named):
        find_environment(place.config(**{setting: address}))


def test_a_progress_topic_that_cannot_be_read_to_its_end_is_reported(place, monkeypatch):
    class Endless:
        is_closed = False

        def poll(self, _timeout_s):
            return None, False

        def close(self):
            self.is_closed = True

    reader = Endless()
    monkeypatch.setattr(environment, "open_root_slot", lambda *_: reader)
    monkeypatch.setattr(environment, "_SEARCH_PATIENCE_S", 0.1)
    place.record(started(place.config().stream_path))

    with pytest.raises(UnreachableError, match="cannot be read to its end"):
        find_environment(place.config())
    assert reader.is_closed


def test_a_worker_reads_the_roots_slot_once(place, exits, monkeypatch):
    """For the record that opened the epoch, at its start and as a member, and for later tables."""
    made = []

    def make(config):
        made.append(config["group.id"])
        return Consumer(config)

    monkeypatch.setattr(from_beginning, "Consumer", make)
    record = started(place.config().stream_path)
    added = ProgressRecord("epoch-1", "worker-1", TableAdded(DataTopic("bank.T", "id", 3, 7)))
    place.record(record, added)

    found = exits.enter_context(closing(find_environment(place.config())))
    parts = replace(EMPTY_PARTS, found=found, config=place.config())
    assert parts.open_stream_start().poll() == (record, False)
    tables = found.root_slot.poll_records()
    give_up_at = time.monotonic() + PATIENCE_S
    while tables is None or not tables.records:
        assert time.monotonic() < give_up_at
        tables = found.root_slot.poll_records()
    assert tables.records == (added,)
    assert made == ["bank-fleet-root"]


def test_a_stream_that_has_not_begun_is_searched_for_its_record(place, exits):
    found = exits.enter_context(closing(find_environment(place.config())))
    record = started(place.config().stream_path)
    place.record(record)

    finder = replace(EMPTY_PARTS, found=found, config=place.config()).open_stream_start()
    with closing(finder):
        give_up_at = time.monotonic() + PATIENCE_S
        while (read := finder.poll(0.1)[0]) is None:
            assert time.monotonic() < give_up_at
    assert read == record
