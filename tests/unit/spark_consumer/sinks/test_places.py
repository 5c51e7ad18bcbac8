"""Where tables are: what delta-rs gets to reach an output, and catalogs of Iceberg."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.store_access import GcsAccess, S3Access, S3Credentials
from tidegate.spark_consumer.sinks.delta.direct.place import OnlySpark, find_place
from tidegate.spark_consumer.sinks.iceberg.catalog import IcebergPlace

KEYS = S3Credentials("key", "hush", None)

PAIR = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hush"}

FIXED = {"AWS_CONDITIONAL_PUT": "etag"}


class Access(S3Access):
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
        *((other, None) for other in ("file:/data/50%25", "/data/a#b", "s3a://lake/a b")),
        ("gs://lake/a", None),
        ("abfss://lake@account.dfs.core.windows.net/a", None),
        ("hdfs:/a", None),
    ],
)
def test_an_address_that_delta_rs_may_read_otherwise_is_left_to_spark(output, address):
    if address is not None:
        assert find_place(output, Access()).address == address
        return
    with pytest.raises(OnlySpark, match="plain path"):
        find_place(output, Access())


@pytest.mark.parametrize("endpoint", ["", "s3.amazonaws.com", "https://s3.eu-west-1.amazonaws.com"])
def test_amazons_own_endpoints_follow_from_the_region(endpoint):
    assert find_place("/data/out").options() == {}  # on this machine nothing is needed
    expected = {**FIXED, **PAIR, "AWS_REGION": "eu-south-1"}
    assert options(endpoint=endpoint, requester_pays_enabled="false") == expected
    named = options(endpoint=endpoint, endpoint_region="eu-west-1")
    assert named == {**expected, "AWS_REGION": "eu-west-1"}


def test_another_endpoint_is_named_with_its_style():
    names = ("AWS_ENDPOINT_URL", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_ALLOW_HTTP")
    path_style, plain = {"path_style_access": "TRUE"}, {"connection_ssl_enabled": "false"}
    for endpoint, more, expected in (
        ("http://127.0.0.1:9000/", path_style, ("http://127.0.0.1:9000", "false", "true")),
        ("store.example:9000", plain, ("http://lake.store.example:9000", "true", "true")),
        ("store.example", path_style, ("https://store.example", "false", "false")),
    ):
        found = options(endpoint=endpoint, **more)
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
    # Without credentials requests are not signed.
    found = find_place("s3a://lake/a", Access(credentials=None)).options()
    assert found == {**FIXED, "AWS_REGION": "eu-south-1", "AWS_SKIP_SIGNATURE": "true"}


def test_encryption_by_the_server_is_asked_for():
    aes = {"AWS_SERVER_SIDE_ENCRYPTION": "AES256"}
    kms = {"AWS_SERVER_SIDE_ENCRYPTION": "aws:kms", "AWS_SSE_KMS_KEY_ID": "arn"}
    for settings, expected in (
        ({"encryption_algorithm": "AES256"}, aes),
        ({"encryption_algorithm": "SSE-KMS", "encryption_key": "arn"}, kms),
        ({"server-side-encryption-algorithm": "AES256"}, aes),
    ):
        assert expected.items() <= options(**settings).items()


def test_a_setting_or_variable_that_delta_rs_cannot_follow_leaves_all_to_spark(environment):
    for name, value in (
        ("encryption_algorithm", "CSE-KMS"),
        ("encryption_algorithm", "SSE-C"),
        ("proxy_host", "proxy"),
        ("requester_pays_enabled", "true"),
        ("accesspoint_arn", "arn"),
        ("endpoint_fips", "true"),
        ("create_storage_class", "glacier"),
        ("acl_default", "LogDeliveryWrite"),
    ):
        with pytest.raises(OnlySpark, match=rf"fs\.s3a\.{name.replace('_', '.')} is "):
            options(**{name: value})
    for name in ("AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        with environment.context() as patch:
            patch.setenv(name, "other")
            with pytest.raises(OnlySpark, match=name):
                options()


# ---------------------------------------------------------------- Google Cloud Storage


class Google(GcsAccess):
    """What Spark's session says of buckets of Google Cloud Storage."""

    def __init__(self, settings):
        self.settings = settings

    def setting(self, name):
        return self.settings.get(name, "")

    def begins(self, name):
        return any(setting.startswith(name) for setting in self.settings)


@pytest.fixture
def google(environment, tmp_path):
    """A machine without anybody's credentials; returns a function."""
    for name in ("SERVICE_ACCOUNT", "CLOUDSDK_CONFIG"):
        environment.delenv(name, raising=False)
    for name in [one for one in os.environ if one.startswith("GOOGLE_")]:
        environment.delenv(name)
    environment.setenv("HOME", str(tmp_path))

    def options(**settings):
        access = Google({name.replace("_", "."): value for name, value in settings.items()})
        return find_place("gs://lake/a/b", access).options()

    return options


def test_credentials_of_google_are_those_of_sparks_session(google, environment, tmp_path):
    assert find_place("gs://lake/a/b", Google({})).address == "gs://lake/a/b"
    # The metadata server of Google's machines.
    assert google() == google(auth_type="COMPUTE_ENGINE") == {}
    assert google(auth_type="APPLICATION_DEFAULT") == {}
    account = {"auth_type": "SERVICE_ACCOUNT_JSON_KEYFILE"}
    key = {"auth_service_account_json_keyfile": "/key.json"}
    assert google(**account, **key) == {"GOOGLE_SERVICE_ACCOUNT": "/key.json"}
    named = tmp_path / "adc.json"
    for kind in ("service_account", "authorized_user"):
        named.write_text(json.dumps({"type": kind}))
        environment.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(named))
        expected = {"GOOGLE_APPLICATION_CREDENTIALS": str(named)}
        assert google(auth_type="application_default") == expected
    environment.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    usual = tmp_path / ".config/gcloud/application_default_credentials.json"
    usual.parent.mkdir(parents=True)
    named.rename(usual)
    found = google(auth_type="APPLICATION_DEFAULT")
    assert found == {"GOOGLE_APPLICATION_CREDENTIALS": str(usual)}
    with pytest.raises(OnlySpark, match="COMPUTE_ENGINE, and delta-rs would use"):
        google()


def test_a_server_of_its_own_is_named_and_asked_without_a_login(google):
    found = google(auth_type="UNAUTHENTICATED", storage_root_url="http://127.0.0.1:4443/")
    assert found["GOOGLE_BASE_URL"] == "http://127.0.0.1:4443"
    assert json.loads(found["GOOGLE_SERVICE_ACCOUNT_KEY"])["disable_oauth"] is True
    assert google(storage_root_url="https://storage.googleapis.com/") == {}


def test_a_setting_of_google_that_delta_rs_cannot_follow_leaves_all_to_spark(
    google, environment, tmp_path
):
    for name, value in (
        ("auth_type", "USER_CREDENTIALS"),
        ("auth_type", "ACCESS_TOKEN_PROVIDER"),
        ("auth_type", "WORKLOAD_IDENTITY_FEDERATION_CREDENTIAL_CONFIG_FILE"),
        ("auth_impersonation_service_account", "other@project"),
        ("auth_impersonation_service_account_for_user_me", "other@project"),
        ("encryption_algorithm", "AES256"),
        ("proxy_address", "proxy:80"),
        ("requester_pays_mode", "AUTO"),
    ):
        with pytest.raises(OnlySpark, match=r"fs\.gs\."):
            google(**{name: value})
    with environment.context() as patch:
        patch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", "{hush}")
        with pytest.raises(OnlySpark, match="GOOGLE_SERVICE_ACCOUNT_KEY is in the env") as raised:
            google()
        assert "hush" not in str(raised.value)
    for text, reason in (
        ('{"type": "external_account"}', "which are external_account"),
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
    ):
        file = tmp_path / "adc.json"
        file.write_text(text)
        environment.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        with pytest.raises(OnlySpark, match=reason):
            google(auth_type="APPLICATION_DEFAULT")


# ---------------------------------------------------------------- catalogs of Iceberg
def session(**settings):
    conf = SimpleNamespace(get=settings.get, set=settings.__setitem__)
    return SimpleNamespace(conf=conf, settings=settings)


def test_without_a_catalog_the_tables_are_in_one_of_the_output():
    place = IcebergPlace.of("file:/lake/", prefix="bank-eu.v1")
    assert place.warehouse == "file:/lake/iceberg"
    assert place.identifier("mirror", "a.b") == f"`{place.catalog}`.`bank_eu_v1_mirror`.`a.b`"
    assert place.path("mirror", "accounts") == "iceberg/bank_eu_v1_mirror/accounts"
    spark = session()
    place.register(spark)
    name = f"spark.sql.catalog.{place.catalog}"
    assert spark.settings == {
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.type": "hadoop",
        f"{name}.warehouse": "file:/lake/iceberg",
        f"{name}.cache-enabled": "false",
    }
    others = [IcebergPlace.of(output, prefix="bank-eu.v1") for output in ("file:/lake", "/b")]
    assert [one == place for one in others] == [True, False]
    assert place.catalog != others[1].catalog
    for scheme in ("s3a", "s3", "gs", "wasbs", "abfs", "abfss"):
        with pytest.raises(ConfigError, match=r"needs a catalog.*iceberg_catalog"):
            IcebergPlace.of(f"{scheme}://lake/x", prefix="bank")


def test_a_catalog_of_the_session_is_left_as_it_is_and_named_in_manifests():
    place = IcebergPlace.of("s3a://lake/x", prefix="bank", catalog="glue", namespace="raw.bank")
    spark = session()
    place.register(spark)
    assert spark.settings == {}
    assert place.identifier("changelog", "t") == "`glue`.`raw`.`bank_changelog`.`t`"
    assert place.namespace_identifier("changelog") == "`glue`.`raw`.`bank_changelog`"
    assert place.path("changelog", "t") == "`glue`.`raw`.`bank_changelog`.`t`"
