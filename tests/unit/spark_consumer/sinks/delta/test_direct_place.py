"""What delta-rs gets to reach an output, and which outputs are left to Spark."""

from __future__ import annotations

import pytest

from tidegate.spark_consumer.checkpoint.s3_access import S3Credentials
from tidegate.spark_consumer.sinks.delta.direct_place import OnlySpark, find_place

KEYS = S3Credentials("key", "hush", None)
PAIR = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hush"}
FIXED = {"AWS_CONDITIONAL_PUT": "etag"}


class Access:
    """What Spark's session says of the bucket `lake`."""

    bucket = "lake"

    def __init__(self, settings=(), credentials=KEYS):
        self.settings, self.found, self.asked = dict(settings), credentials, 0

    def setting(self, name):
        return self.settings.get(name, "")

    def region(self):
        return "eu-south-1"

    def credentials(self):
        self.asked += 1
        return self.found


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def options(**settings):
    access = Access({name.replace("_", "."): value for name, value in settings.items()})
    return find_place("s3a://lake/a/b", access).options()


@pytest.mark.parametrize(
    ("output", "address"),
    [
        ("/data/a b/out", "/data/a b/out"),
        ("file:/data/out", "/data/out"),
        ("file:///data/out", "/data/out"),
        ("s3a://lake/a/b", "s3://lake/a/b"),
    ],
)
def test_the_address(output, address):
    assert find_place(output, Access()).address == address


@pytest.mark.parametrize(
    "output", ["file:/data/50%25", "/data/a#b", "s3a://lake/a b", "gs://lake/a", "hdfs:/a"]
)
def test_an_address_that_delta_rs_may_read_otherwise_is_left_to_spark(output):
    with pytest.raises(OnlySpark, match="plain path"):
        find_place(output, Access())


def test_on_this_machine_nothing_is_needed():
    assert find_place("/data/out").options() == {}


@pytest.mark.parametrize("endpoint", ["", "s3.amazonaws.com", "https://s3.eu-west-1.amazonaws.com"])
def test_amazons_own_endpoints_follow_from_the_region(endpoint):
    expected = {**FIXED, **PAIR, "AWS_REGION": "eu-south-1"}
    assert options(endpoint=endpoint) == expected
    named = options(endpoint=endpoint, endpoint_region="eu-west-1")
    assert named == {**expected, "AWS_REGION": "eu-west-1"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"endpoint": "http://127.0.0.1:9000/", "path_style_access": "true"},
            ("http://127.0.0.1:9000", "false", "true"),
        ),
        (
            {"endpoint": "store.example:9000", "connection_ssl_enabled": "false"},
            ("http://lake.store.example:9000", "true", "true"),
        ),
        (
            {"endpoint": "store.example", "path_style_access": "TRUE"},
            ("https://store.example", "false", "false"),
        ),
    ],
)
def test_another_endpoint_is_named_with_its_style(settings, expected):
    found = options(**settings)
    names = ("AWS_ENDPOINT_URL", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_ALLOW_HTTP")
    assert tuple(found[name] for name in names) == expected
    assert found["AWS_REGION"] == "us-east-1"


def test_credentials_are_asked_for_each_table_and_may_be_for_a_while():
    access = Access(credentials=S3Credentials("key", "hush", "for an hour"))
    place = find_place("s3a://lake/a", access)
    asked = access.asked
    assert place.options()["AWS_SESSION_TOKEN"] == "for an hour"
    access.found = S3Credentials("next", "hush", "for another")
    assert place.options()["AWS_ACCESS_KEY_ID"] == "next"
    assert access.asked == asked + 2
    assert "hush" not in repr(access.found)


def test_without_credentials_requests_are_not_signed():
    found = find_place("s3a://lake/a", Access(credentials=None)).options()
    assert found == {**FIXED, "AWS_REGION": "eu-south-1", "AWS_SKIP_SIGNATURE": "true"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"encryption_algorithm": "AES256"}, {"AWS_SERVER_SIDE_ENCRYPTION": "AES256"}),
        (
            {"encryption_algorithm": "SSE-KMS", "encryption_key": "arn"},
            {"AWS_SERVER_SIDE_ENCRYPTION": "aws:kms", "AWS_SSE_KMS_KEY_ID": "arn"},
        ),
        ({"server-side-encryption-algorithm": "AES256"}, {"AWS_SERVER_SIDE_ENCRYPTION": "AES256"}),
    ],
)
def test_encryption_by_the_server_is_asked_for(settings, expected):
    assert expected.items() <= options(**settings).items()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encryption_algorithm", "CSE-KMS"),
        ("encryption_algorithm", "SSE-C"),
        ("proxy_host", "proxy"),
        ("requester_pays_enabled", "true"),
        ("accesspoint_arn", "arn"),
        ("endpoint_fips", "true"),
        ("create_storage_class", "glacier"),
        ("acl_default", "LogDeliveryWrite"),
    ],
)
def test_a_setting_that_delta_rs_cannot_follow_leaves_all_to_spark(name, value):
    with pytest.raises(OnlySpark, match=rf"fs\.s3a\.{name.replace('_', '.')} is "):
        options(**{name: value})


@pytest.mark.parametrize("name", ["AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_a_variable_that_the_session_does_not_use_leaves_all_to_spark(environment, name):
    environment.setenv(name, "other")
    with pytest.raises(OnlySpark, match=name):
        options()


def test_a_setting_that_is_off_changes_nothing():
    assert options(requester_pays_enabled="false") == options()
