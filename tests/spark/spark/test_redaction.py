"""What Spark shows of a plan holds no login, whatever the session replaces besides."""

import pytest

from tidegate.lineage.subscription import Subscription
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.batch.source import kafka_rows
from tidegate.spark_consumer.kafka.java_options import java_options
from tidegate.spark_consumer.spark.redaction import SETTING, hide_logins

pytestmark = pytest.mark.spark

KEY = "-----BEGIN PRIVATE KEY-----\ntide-4712\ntide-4712\n-----END PRIVATE KEY-----"
OPTIONS = {
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": 'tide "4711" \\',
    "ssl.certificate.pem": "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----",
    "ssl.key.pem": KEY,
    "ssl.key.password": "tide-4713",
}
SECRETS = ("4711", "tide-4712", "tide-4713")


@pytest.fixture(params=["", "PlainLoginModule"])
def session(spark, request):
    """A session that replaces nothing, or something of its own."""
    fresh = spark.newSession()
    if request.param:
        fresh.conf.set(SETTING, request.param)
    return fresh


def explained(spark):
    """What Spark shows of the plans of a stream from Kafka, which is not run."""
    frame = kafka_rows(
        spark,
        bootstrap_servers="127.0.0.1:1",
        subscription=Subscription(TopicNames("bank")),
        changes_per_batch_max=10,
        options=java_options(OPTIONS),
    )
    explain = spark.sparkContext._jvm.PythonSQLUtils.explainString
    return explain(frame._jdf.queryExecution(), "extended")


def test_no_plan_shows_a_login(session):
    assert any(secret in explained(session) for secret in SECRETS), "there is something to hide"
    own = session.conf.get(SETTING, "") or ""
    hide_logins(session)
    hide_logins(session)
    shown = explained(session)
    assert "kafka" in shown
    assert not [secret for secret in SECRETS if secret in shown]
    assert ("PlainLoginModule" in shown) == (not own)
