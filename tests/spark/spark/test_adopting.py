"""`adopt` on real Spark and Delta: what the tables prove, and what an empty checkpoint gets."""

from __future__ import annotations

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles, complete_from_us
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.batch_state import OutputProof
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest
from tidegate.spark_consumer.spark import adopting

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def config(kit, tmp_path):
    return ConsumerConfig.load(
        None,
        bootstrap_servers="127.0.0.1:1",
        registry_url="http://127.0.0.1:1",
        prefix="bank",
        output=kit.output,
        checkpoint=str(tmp_path / "check"),
    )


def test_an_empty_checkpoint_goes_on_where_tables_and_manifests_end(kit, config):
    topic = kit.Topic("t", {1: {"id": "INT64"}}, ["id"])
    output = Storage(kit.spark, config.output)
    output.take()
    sinks = [sink(kit.spark, kit.output) for sink in (DeltaChangelogSink, DeltaMirrorSink)]
    for sink in sinks:
        sink.open(query_id="query-1", release_max=10)
    with pytest.raises(ConfigError, match="no release manifest"):
        adopting.require_proof(kit.spark, config)
    for number in range(2):
        change = kit.Change("INSERT", {"id": number}, {}, us=number * 1_000_000 + 1)
        release = kit.release(number, [(topic, change)])
        written = {sink.name: sink.write(release)["t"] for sink in sinks[: 2 - number]}
        if number == 0:
            bounds = (release.number, "query-1", 0, release.after_us, release.through_us)
            write_manifest(output, Manifest(*bounds, 1, {"t": written}, complete_from_us=7))
    expected = OutputProof("query-1", 0, 1_000_000, ("changelog", "mirror"), 2_000_000, 7)
    steps = []
    proof = adopting.require_proof(kit.spark, config, step=steps.append)
    assert proof == expected
    assert steps == ["manifests", "log 1 of 2: changelog/t", "log 2 of 2: mirror/t"]
    assert adopting.is_unused(kit.spark, config)
    assert adopting.adopt_output(kit.spark, config, proof)["begun_through_us"] == 2_000_000
    gate = Storage(kit.spark, f"{config.checkpoint}/gate")
    files = GateFiles(gate)
    assert files.require_identity(TopicNames("bank"), output=output.root).query_id == "query-1"
    assert complete_from_us(gate) == 7
    state = files.adopted()
    assert (state.watermark_us, state.adopts_through_us) == (1_000_000, 2_000_000)
    assert files.release_max() == 1
    assert not adopting.is_unused(kit.spark, config)
    steps.clear()
    assert adopting.reuse_checkpoint(kit.spark, config, step=steps.append) == []
    assert steps == ["log 1 of 2: changelog/t", "log 2 of 2: mirror/t"]


def test_half_a_checkpoint_is_refused(kit, config):
    spark_part = Storage(kit.spark, f"{config.checkpoint}/spark")
    spark_part.take()
    spark_part.write_json("offsets/0", {})
    with pytest.raises(ConfigError, match="neither empty nor whole"):
        adopting.is_unused(kit.spark, config)
