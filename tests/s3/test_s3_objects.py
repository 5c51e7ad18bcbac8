"""The folder of small files in S3, and what it asks of the server."""

from __future__ import annotations

import pytest

from tests.storage_contract import StorageContract
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.checkpoint.s3_objects import S3Objects
from tidegate.spark_consumer.checkpoint.storage import Storage

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def storage(spark, server):
    storage = Storage(spark, f"s3a://{server.bucket()}/a folder")
    storage.take()
    return storage


class TestS3Storage(StorageContract):
    """On a server with conditional writes."""


def test_nothing_is_renamed_and_nothing_temporary_is_left(storage):
    storage.write_json("plans/1.json", 1)
    storage.create_json("plans/2.json", 2)
    found = storage._files.listStatus(storage._path("plans"))
    assert sorted(str(one.getPath().getName()) for one in found) == ["1.json", "2.json"]


def test_a_creation_whose_answer_was_lost_is_still_won(storage, monkeypatch):
    put = S3Objects._put

    def put_twice(*arguments, **named):
        put(*arguments, **named)
        put(*arguments, **named)

    monkeypatch.setattr(S3Objects, "_put", put_twice)
    assert storage.create_json("plans/1.json", 1)
    monkeypatch.undo()
    assert not storage.create_json("plans/1.json", 2)
    assert storage.read_json("plans/1.json") == 1


def test_a_server_that_ignores_the_condition_is_refused(spark, server, monkeypatch):
    put = S3Objects._put
    monkeypatch.setattr(
        S3Objects, "_put", lambda *rest, headers, mark: put(*rest, headers={}, mark=mark)
    )
    storage = Storage(spark, f"s3a://{server.bucket()}/gate")
    with pytest.raises(ConfigError, match="conditional writes"):
        storage.take()


def test_a_bucket_that_is_missing_is_named(spark):
    with pytest.raises(UnreachableError, match="no-such-bucket"):
        Storage(spark, "s3a://no-such-bucket/gate").take()
