"""A group's offsets are read while its coordinator moves."""

from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.schemas.errors import ConfigError, UnreachableError

GONE = KafkaException(KafkaError(KafkaError._TRANSPORT))
DENIED = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)

PROGRAM = """
import ctypes
from pathlib import Path
import confluent_kafka
from tidegate.producer.kafka.committed_offsets import CommittedOffsets

OFFSET_COMMIT, OFFSET_FETCH, NOT_COORDINATOR = 8, 9, 16
(path,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka-*")
kafka = ctypes.CDLL(str(path))
for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
    getattr(kafka, name).restype = ctypes.c_void_p
kafka.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
text = ctypes.create_string_buffer(512)
config = ctypes.c_void_p(kafka.rd_kafka_conf_new())
client = ctypes.c_void_p(kafka.rd_kafka_new(0, config, text, 512))
cluster = ctypes.c_void_p(kafka.rd_kafka_mock_cluster_new(client, 1))
kafka.rd_kafka_mock_topic_create(cluster, b"t", 1, 1)
for request in OFFSET_COMMIT, OFFSET_FETCH:
    kafka.rd_kafka_mock_push_request_errors(
        cluster, ctypes.c_int16(request), ctypes.c_size_t(2), NOT_COORDINATOR, NOT_COORDINATOR
    )
servers = kafka.rd_kafka_mock_cluster_bootstraps(cluster).decode()
committed = CommittedOffsets({"bootstrap.servers": servers}, group="g")
print(committed.find("t", 0, "cannot read it").offset)
committed.write(confluent_kafka.TopicPartition("t", 0, 7, "who"), "cannot write it")
written = committed.find("t", 0, "cannot read it")
print(written.offset, written.metadata)
"""


def test_a_coordinator_that_has_moved_is_asked_again_and_ends_no_process():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True, timeout=60
    )

    assert (ran.returncode, ran.stdout.split()) == (0, ["-1001", "7", "who"]), ran.stderr


def test_a_client_that_failed_is_replaced(cluster, open_committed):
    cluster.answers += [GONE, 7]

    assert open_committed("g").find("t", 0, "cannot read it").offset == 7
    assert cluster.made == 2


def test_no_client_is_made_before_it_is_needed(cluster, open_committed):
    open_committed("g")

    assert cluster.made == 0


def test_a_missing_right_is_reported_at_once(cluster, open_committed):
    cluster.answers.append(DENIED)

    with pytest.raises(ConfigError):
        open_committed("g").find("t", 0, "cannot read it")


def test_silence_is_an_error_with_the_fields(cluster, open_committed, impatient):
    cluster.answers.append(GONE)

    with pytest.raises(UnreachableError, match=r"cannot read it.*slot=3"):
        open_committed("g").find("t", 0, "cannot read it", slot=3)
