"""`tidegate-consumer adopt`: continue with an output that a run refuses.

That is: other programs have changed rows on purpose, or the checkpoint was lost or is older than
the tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tidegate.lineage.subscription import Subscription
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.program.stream_start import require_topic_names
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.instants import NS_PER_US
from tidegate.spark_consumer.commands.locations import require_folders
from tidegate.spark_consumer.commands.py4j_log import silence_py4j
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.batch_state import OutputProof
from tidegate.spark_consumer.core.retention import complete_from_us
from tidegate.spark_consumer.kafka.topics import find_missing_topics, first_records, may_exist
from tidegate.spark_consumer.spark.requirements import require_spark


def adopt(config: ConsumerConfig, *, step: Callable[[str], None]) -> Sequence[Mapping[str, Any]]:
    """Return what was adopted, ready for JSON; `step` is called with the name of each step.

    Raises ConfigError where the output's history or Kafka does not prove that nothing is lost, and
    ForeignChange for a change that may have undone a release.
    """
    silence_py4j()
    require_spark(jars=config.jars)
    require_folders(config)
    step("Spark")
    from tidegate.spark_consumer.spark import adopting  # noqa: PLC0415 - pyspark, checked above
    from tidegate.spark_consumer.spark.session import session_of  # noqa: PLC0415 - it too

    spark = session_of(config)
    try:
        step("checkpoint")
        if not adopting.is_unused(spark, config):
            return adopting.reuse_checkpoint(spark, config, step=step)
        proof = adopting.require_proof(spark, config, step=step)
        step("Kafka and schema registry")
        require_names(config)
        require_kafka_keeps(config, proof)
        step("new checkpoint")
        return [adopting.adopt_output(spark, config, proof)]
    finally:
        with suppress(Exception):
            spark.stop()


def require_names(config: ConsumerConfig) -> None:
    """Raise ConfigError for a stream whose data topics have other names than the settings say."""
    subscription, options = Subscription(config.topic_names), config.kafka_client_options()
    if not find_missing_topics(config.bootstrap_servers, subscription, options=options):
        registry_options = config.registry_client_options()
        registry = HttpSchemaRegistry(config.registry_url, options=registry_options)
        require_topic_names(config, registry.schema)


def require_kafka_keeps(config: ConsumerConfig, proof: OutputProof) -> None:
    """Raise ConfigError unless Kafka has every change after the output's end, and copies are known.

    Where mirrors are at an older release, Kafka must have the changes after that release too: the
    mirrors take these from the changelog, but their schemas from Kafka.

    A change that was parked and put back is older than the watermark, like the changes in the
    output; nothing says whether the former run has read it.
    """
    names, options = config.topic_names, config.kafka_client_options()
    hint = "Start with a new output and a new checkpoint"
    kept = first_records(config.bootstrap_servers, options, Subscription(names))
    from_us = complete_from_us(kept, now_us=time.time_ns() // NS_PER_US)
    if not kept or (from_us is not None and from_us > proof.needs_after_us):
        raise ConfigError(
            "the output cannot be adopted: Kafka no longer has all changes after its end",
            hint=hint,
            through_us=proof.needs_after_us,
            kafka_complete_from_us=from_us,
        )
    if may_exist(names.dead_letter, bootstrap_servers=config.bootstrap_servers, options=options):
        raise ConfigError(
            "the output cannot be adopted: changes were parked, and may have been put back",
            hint=hint,
            topic=names.dead_letter,
        )
