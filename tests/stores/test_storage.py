"""The folder of small files in each store, and what it asks of the servers."""

from __future__ import annotations

import pytest

from tests.storage_contract import StorageContract
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.checkpoint.whole_files import S3Objects

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

REQUESTS_MAX = 40
"""More than any write takes."""


@pytest.fixture
def storage(spark, store):
    storage = Storage(spark, f"{store.bucket()}/a folder")
    storage.take()
    return storage


class TestStores(StorageContract):
    """On servers with conditional writes."""

    races = 200


@pytest.mark.parametrize("store", ["hdfs"], indirect=True)
class TestHdfs(StorageContract):
    """On a name node, which renames in one step."""

    races = 200

    def test_nothing_temporary_is_left(self, storage):
        storage.write_json("plans/1.json", 1)
        storage.create_json("plans/2.json", 2)
        assert storage._folder.names("plans") == ["1.json", "2.json"]


def test_nothing_is_renamed_and_nothing_temporary_is_left(storage):
    storage.write_json("plans/1.json", 1)
    storage.create_json("plans/2.json", 2)
    assert storage._folder.names("plans") == ["1.json", "2.json"]


@pytest.mark.parametrize("carries_out", [False, True], ids=["killed before", "killed after"])
def test_killed_between_any_two_requests_a_file_is_the_former_or_the_new_one(
    spark, store, storage, carries_out
):
    """The next run finds one of them, whole, and goes on."""
    for number in range(REQUESTS_MAX):
        replaced, created = f"states/{number}.json", f"plans/{number}.json"
        storage.write_json(replaced, "former")
        was_cut = []
        for write, name in ((storage.write_json, replaced), (storage.create_json, created)):
            store.proxy.refuse(after=number, carries_out=carries_out)
            try:
                write(name, "new")
            except UnreachableError:
                was_cut.append(store.proxy.heal())
                assert was_cut[-1]
            else:
                was_cut.append(store.proxy.heal())
        found = storage.read_json(replaced), storage.read_json(created)
        assert found[0] in ("former", "new")
        assert found[1] in (None, "new")
        following = Storage(spark, storage.root, guard=storage)
        following.write_json(replaced, "newest")
        assert following.create(created, "newest") is (found[1] is None)
        assert storage.read_json(replaced) == "newest"
        assert storage.read_json(created) == ("newest" if found[1] is None else "new")
        if not any(was_cut):
            assert number > 1
            assert found == ("new", "new")
            break
    else:
        pytest.fail("a write took more requests than expected")
    for folder in ("states", "plans"):
        assert len(storage._folder.names(folder)) == number + 1


def test_whichever_answer_is_lost_a_creation_is_won_and_a_replacement_done(storage, store):
    """The client repeats the request, and finds what it has written itself."""
    for number in range(REQUESTS_MAX):
        replaced, created = f"states/{number}.json", f"plans/{number}.json"
        storage.write_json(replaced, "former")
        was_lost = []
        for write, name in ((storage.write_json, replaced), (storage.create_json, created)):
            store.proxy.lose_answer(after=number)
            assert write(name, "new") in (None, True)
            was_lost.append(store.proxy.heal())
            assert storage.read_json(name) == "new"
        if not any(was_lost):
            assert number > 1
            break
    else:
        pytest.fail("a write took more requests than expected")


def test_a_creation_whose_answer_was_lost_is_still_won(storage, monkeypatch):
    create = type(storage._whole_files).create

    def create_twice(*arguments):
        create(*arguments)
        create(*arguments)

    monkeypatch.setattr(type(storage._whole_files), "create", create_twice)
    assert storage.create_json("plans/1.json", 1)
    monkeypatch.undo()
    assert not storage.create_json("plans/1.json", 1)
    assert storage.read_json("plans/1.json") == 1


def test_a_server_that_ignores_the_condition_is_refused(spark, stores, monkeypatch):
    put = S3Objects._put
    monkeypatch.setattr(S3Objects, "_put", lambda *rest, headers: put(*rest, headers={}))
    storage = Storage(spark, f"{stores['s3a'].bucket()}/gate")
    with pytest.raises(ConfigError, match="ignores that an object must be new"):
        storage.take()


def test_a_store_that_denies_access_is_named_before_anything_is_written(storage, store):
    storage.require_store()
    store.proxy.refuse(after=0)
    try:
        with pytest.raises(ConfigError, match="denies the session access") as raised:
            storage.require_store()
    finally:
        store.proxy.heal()
    assert "403" in raised.value.fields["cause"]
    assert "fs.gs.auth" in raised.value.hint
    assert raised.value.exit_code == 2


@pytest.mark.parametrize("store", ["gs"], indirect=True)
def test_credentials_of_google_that_are_missing_are_named(spark, store):
    settings = spark._jsc.hadoopConfiguration()
    settings.set("fs.gs.auth.type", "SERVICE_ACCOUNT_JSON_KEYFILE")
    settings.set("fs.gs.auth.service.account.json.keyfile", "/no/key.json")
    try:
        with pytest.raises(ConfigError, match=r"does not open.*/no/key\.json"):
            Storage(spark, "gs://lake-of-another/gate")
    finally:
        settings.set("fs.gs.auth.type", "UNAUTHENTICATED")
    # Hadoop's default from 3.5.0 on, which Google's connector cannot read.
    size = settings.get("fs.gs.block.size")
    settings.set("fs.gs.block.size", "64m")
    try:
        with pytest.raises(ConfigError, match=r"does not open.*64m"):
            Storage(spark, "gs://lake-of-another/gate")
    finally:
        settings.set("fs.gs.block.size", size)


def test_a_bucket_that_is_missing_is_named(spark, store):
    with pytest.raises(UnreachableError, match="no-such-bucket"):
        Storage(spark, f"{store.scheme}://no-such-bucket/gate").take()
