"""What both Kafka sources are given."""

from tidegate.spark_consumer.batch.source import source_options


def test_options_reach_the_client_and_promises_stay():
    given = {"sasl.mechanism": "PLAIN", "isolation.level": "read_uncommitted"}
    options = source_options("broker:9092", given)
    assert options["kafka.sasl.mechanism"] == "PLAIN"
    assert options["kafka.isolation.level"] == "read_committed"
    assert options["kafka.bootstrap.servers"] == "broker:9092"
    assert options["failOnDataLoss"] == "true"
