"""The client's function puts keys where the contract's does."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.producer.kafka import partitioner
from tidegate.schemas.partitioner import topic_partition_of


def test_the_client_shows_its_function():
    assert partitioner._load() is not None


@given(st.binary(max_size=600), st.integers(1, 2**31 - 1))
@example(b"", 1)
@example(b"\0" * 255, 7)
@example(b"\0" * 256, 7)
@example(b"\0\0\0\0\1" + b"x" * 100_000, 12)
def test_a_key_is_placed_as_the_contract_says(key, count):
    assert partitioner.topic_partition_of(key, count) == topic_partition_of(key, count)


@pytest.mark.parametrize("key", [b"", b"abc", b"\0\0\0\0\1\2\4eu"])
def test_without_the_clients_function_the_contracts_is_used(key, monkeypatch):
    monkeypatch.setattr(partitioner, "_murmur2", None)
    assert partitioner.topic_partition_of(key, 12) == topic_partition_of(key, 12)


def test_a_library_without_the_function_is_noticed(monkeypatch):
    monkeypatch.setattr(partitioner, "_FUNCTION", "rd_kafka_no_such_function")
    assert partitioner._load() is None
