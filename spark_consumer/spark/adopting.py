"""`adopt` on a session: into a checkpoint that knows the output, or into an empty one.

An empty checkpoint continues the output's query, at the watermark that its tables prove: the former
checkpoint was lost, or is older than the tables.  All topics are read again; changes that are in
the output already are recognised by their commit times, until the watermark of the read records has
passed that watermark.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.core.batch_state import OutputProof, State
from tidegate.spark_consumer.sinks.delta.adoption import adopt_changes, prove_output, table_logs
from tidegate.spark_consumer.sinks.manifest import newest_manifest, read_manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.spark_consumer.config import ConsumerConfig


def is_unused(spark: SparkSession, config: ConsumerConfig) -> bool:
    """Whether no run has worked with the checkpoint; raises ConfigError if one has in part."""
    gate = Storage(spark, f"{config.checkpoint}/gate")
    output = Storage(spark, config.output).root
    files = GateFiles(gate)
    identity = files.require_identity(config.topic_names, output=output)
    is_new = files.adopted() is None and files.release_max() < 0 and files.state(0) is None
    has_begun = bool(Storage(spark, f"{config.checkpoint}/spark").names("offsets"))
    if is_new and (has_begun or (identity is not None and files.plan(0) is not None)):
        raise _not_whole(config)
    return is_new


def reuse_checkpoint(
    spark: SparkSession, config: ConsumerConfig, *, step: Callable[[str], None] = lambda _name: None
) -> Sequence[Mapping[str, Any]]:
    """Accept and return the foreign changes, for the runs of a checkpoint.

    `step` is called with the name of each step.
    """
    output = Storage(spark, config.output).root
    files = GateFiles(Storage(spark, f"{config.checkpoint}/gate"))
    identity = files.require_identity(config.topic_names, output=output)
    if identity is None:
        raise _not_whole(config)
    adopted = adopt_changes(
        spark,
        output,
        query_id=identity.query_id,
        release_max=files.release_max(),
        batch_max=files.batch_max(),
        step=step,
    )
    return [asdict(change) for change in adopted]


def require_proof(
    spark: SparkSession, config: ConsumerConfig, *, step: Callable[[str], None] = lambda _name: None
) -> OutputProof:
    """Return the proven end of the output; raises ConfigError if nothing is proved.

    `step` is called with the name of each step.
    """
    step("manifests")
    output = Storage(spark, config.output)
    manifest = newest_manifest(output, watermark_us=sys.maxsize)
    query_id = "" if manifest is None else manifest.query_id
    logs = table_logs(spark, output.root, query_id=query_id)
    return prove_output(
        manifest,
        {(sink, table): log for sink, table, log in logs},
        manifest_of=lambda release: read_manifest(output, release),
        step=step,
    )


def adopt_output(
    spark: SparkSession, config: ConsumerConfig, proof: OutputProof
) -> Mapping[str, Any]:
    """Make an empty checkpoint continue at the end of the output; return that end.

    A call that was interrupted can be repeated.
    """
    gate = Storage(spark, f"{config.checkpoint}/gate")
    gate.take()
    files = GateFiles(gate)
    output = Storage(spark, config.output).root
    identity = files.identify(config.topic_names, output=output, new_id=lambda: proof.query_id)
    if identity.query_id != proof.query_id:
        raise ConfigError(
            "the checkpoint belongs to another query",
            hint="Set an empty folder",
            checkpoint=config.checkpoint,
        )
    files.note_start(proof.complete_from_us)
    state = State.adopted(
        prefix=config.prefix,
        query_id=proof.query_id,
        proof=proof,
        code=version("tidegate"),
    )
    files.store_adopted(state)
    return {
        "query_id": proof.query_id,
        "release": proof.release,
        "through_us": proof.through_us,
        "begun_through_us": proof.begun_through_us,
        "mirror_release": proof.release if proof.mirror_release is None else proof.mirror_release,
    }


def _not_whole(config: ConsumerConfig) -> ConfigError:
    message = "the checkpoint is neither empty nor whole"
    hint = "Set an empty folder: adopt goes on at the output's own watermark"
    return ConfigError(message, hint=hint, checkpoint=config.checkpoint)
